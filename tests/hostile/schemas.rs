//! Schemas, and the metadata of extension types.

use std::ffi::{CString, c_char};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use arrow_dlpack::arrow::read_schema;
use arrow_dlpack::ffi::arrow_device::ArrowSchema;
use arrow_dlpack::{Conversion, ErrorKind, Result};
use arrow_schema::{DataType, FieldRef};

use crate::misaligned;
use crate::support::arrow::{extension, field, list, random_array, shared};
use crate::support::{Random, left_alive};

/// Keeps what a schema points to until the end, where LeakSanitizer finds it.
fn kept<T: ?Sized>(value: Box<T>) -> &'static mut T {
    let value = Box::leak(value);
    left_alive(std::ptr::from_mut(value).cast::<u8>());
    value
}

/// A schema by hand; what it points to lives as long as the test.
fn schema(format: &str) -> ArrowSchema {
    unsafe extern "C" fn release(_: *mut ArrowSchema) {}
    let text = |text: &str| kept(CString::new(text).unwrap_or_default().into_boxed_c_str()).as_ptr().cast();
    ArrowSchema {
        format: text(format),
        name: text("x"),
        metadata: null(),
        flags: 2,
        n_children: 0,
        children: null_mut(),
        dictionary: null_mut(),
        release: Some(release),
        private_data: null_mut(),
    }
}

fn with_children(format: &str, children: Vec<ArrowSchema>) -> ArrowSchema {
    let n_children = i64::try_from(children.len()).unwrap_or(-1);
    let children: Vec<*mut ArrowSchema> = children.into_iter().map(|child| &raw mut *kept(Box::new(child))).collect();
    ArrowSchema { n_children, children: kept(children.into_boxed_slice()).as_mut_ptr(), ..schema(format) }
}

fn read(schema: &ArrowSchema) -> Result<FieldRef> {
    // SAFETY: as the C data interface describes it, but for what a test breaks on purpose.
    unsafe { read_schema(schema) }.map(Arc::new)
}

fn assert_schema_refused(schema: &ArrowSchema, words: &[&str]) {
    let error = read(schema).expect_err(&format!("{words:?}"));
    assert!(words.iter().all(|word| error.to_string().contains(word)), "{error} lacks one of {words:?}");
}

#[test]
fn broken_members_of_a_schema_are_named() {
    let text = |bytes: &'static [u8]| bytes.as_ptr().cast::<c_char>();
    assert!(read(&schema("i")).is_ok());
    assert_schema_refused(&ArrowSchema { release: None, ..schema("i") }, &["ArrowSchema was released"]);
    assert_schema_refused(&ArrowSchema { format: null(), ..schema("i") }, &["ArrowSchema.format", "NULL"]);
    assert_schema_refused(
        &ArrowSchema { format: text(b"\xff\xfe\0"), ..schema("i") },
        &["ArrowSchema.format", "UTF-8"],
    );
    assert_schema_refused(&ArrowSchema { name: text(b"\xc3\x28\0"), ..schema("i") }, &["ArrowSchema.name", "UTF-8"]);
    assert_schema_refused(&ArrowSchema { n_children: -1, ..schema("+s") }, &["ArrowSchema.n_children", "-1"]);
    assert_schema_refused(&ArrowSchema { n_children: i64::MAX, ..schema("+s") }, &["ArrowSchema.children", "NULL"]);
    assert_schema_refused(
        &ArrowSchema { n_children: 1, children: misaligned(null_mut()), ..schema("+s") },
        &["misaligned"],
    );
    assert_schema_refused(
        &ArrowSchema { dictionary: misaligned(null_mut()), ..schema("c") },
        &["ArrowSchema.dictionary"],
    );
    for format in ["", "?", "+w", "+w:", "+w:x", "ts?:", "d:", "+ud:x", "w:99999999999999999999", "i ", "+", ":"] {
        let error = read(&schema(format)).err();
        assert!(error.is_some_and(|error| error.column() == Some("x")), "{format:?}");
    }
    let unnamed = ArrowSchema { name: null(), ..schema("i") };
    assert_eq!(read(&unnamed).unwrap().name(), "");
}

#[test]
fn child_counts_must_be_the_formats() {
    let child = || schema("i");
    for (format, right) in [("i", 0), ("+l", 1), ("+w:2", 1), ("+r", 2)] {
        for count in (0..4).filter(|count| *count != right) {
            let children = (0..count).map(|_| child()).collect();
            assert_schema_refused(&with_children(format, children), &["ArrowSchema.n_children", &count.to_string()]);
        }
        assert!(read(&with_children(format, (0..right).map(|_| child()).collect())).is_ok(), "{format}");
    }
    let no_child = with_children("+l", vec![child()]);
    // SAFETY: the array of children has an entry.
    unsafe { no_child.children.write(null_mut()) };
    assert_schema_refused(&no_child, &["ArrowSchema.children", "NULL"]);
    let released = ArrowSchema { release: None, ..child() };
    assert_schema_refused(&with_children("+l", vec![released]), &["ArrowSchema was released"]);
    assert_schema_refused(&with_children("+m", vec![child()]), &["map"]);
}

#[test]
fn formats_with_parameters_are_checked_with_their_children() {
    let children = |formats: &[&str]| formats.iter().map(|format| schema(format)).collect::<Vec<_>>();
    let good = [
        ("w:0", &[] as &[&str]),
        ("+w:0", &["i"]),
        ("+ud:", &[]),
        ("+ud:0,1", &["i", "f"]),
        ("+us:127,0", &["i", "f"]),
        ("+r", &["s", "f"]),
        ("+r", &["l", "f"]),
    ];
    for (format, formats) in good {
        read(&with_children(format, children(formats))).unwrap();
    }
    let bad = [
        ("w:-1", &[] as &[&str]),
        ("+w:-1", &["i"]),
        ("+ud:0", &["i", "f"]),
        ("+ud:0,1,2", &["i", "f"]),
        ("+us:-1,1", &["i", "f"]),
        ("+us:0,-128", &["i", "f"]),
        ("+us:128,0", &["i", "f"]),
        ("+us:0,0", &["i", "f"]),
        ("+r", &["f", "f"]),
        ("+r", &["c", "f"]),
        ("+r", &["I", "f"]),
    ];
    for (format, formats) in bad {
        let error = read(&with_children(format, children(formats))).expect_err(format);
        assert_eq!(error.column(), Some("x"), "{format} {formats:?}");
    }
    for fields in [1, 3] {
        let entries = with_children("+s", (0..fields).map(|_| schema("i")).collect());
        assert_schema_refused(&with_children("+m", vec![entries]), &["map", "two fields"]);
    }
}

#[test]
fn deep_and_cyclic_schemas_end() {
    let nested = |levels| (0..levels).fold(schema("i"), |deep, _| with_children("+l", vec![deep]));
    read(&nested(64)).unwrap();
    for levels in [65, 1000] {
        assert_schema_refused(&nested(levels), &["64 levels"]);
    }
    let mut cycle = Box::new(with_children("+s", vec![schema("i"), schema("i")]));
    let own = &raw mut *cycle;
    // SAFETY: the array of children has a second entry.
    unsafe { cycle.children.wrapping_add(1).write(own) };
    assert_schema_refused(&cycle, &["64 levels"]);
    let mut dictionary = Box::new(schema("c"));
    dictionary.dictionary = &raw mut *dictionary;
    assert_schema_refused(&dictionary, &["64 levels"]);
}

#[test]
fn dictionaries_need_integer_indices() {
    let values = &raw mut *kept(Box::new(schema("u")));
    let field = read(&ArrowSchema { dictionary: values, ..schema("c") }).unwrap();
    assert_eq!(*field.data_type(), DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)));
    for format in ["f", "u", "b", "tdD", "n"] {
        assert_schema_refused(&ArrowSchema { dictionary: values, ..schema(format) }, &["dictionary", "indices"]);
    }
}

#[test]
fn metadata_lengths_are_checked() {
    let metadata = |words: &[&[u8]]| kept(words.concat().into_boxed_slice()).as_ptr().cast::<c_char>();
    let count = |value: i32| value.to_ne_bytes();
    let good = metadata(&[&count(2), &count(1), b"k", &count(2), b"vv", &count(0), &count(1), b"\xff"]);
    let field = read(&ArrowSchema { metadata: good, ..schema("i") }).unwrap();
    assert_eq!(field.metadata().get("k").map(String::as_str), Some("vv"));
    assert!(field.metadata().contains_key(""));
    for bad in [
        metadata(&[&count(-1)]),
        metadata(&[&count(i32::MIN)]),
        metadata(&[&count(1), &count(-1)]),
        metadata(&[&count(1), &count(1), b"k", &count(-5)]),
    ] {
        assert_schema_refused(&ArrowSchema { metadata: bad, ..schema("i") }, &["ArrowSchema.metadata"]);
    }
}

#[test]
fn metadata_of_extension_types_is_checked_when_it_is_used() {
    for metadata in ["", "{}", r#"{"shape":[2,2]}"#, r#"{"shape":[-2,-3]}"#, r#"{"shape":[6],"permutation":[1]}"#] {
        let column = extension(&field("x", list(DataType::Int8, 6)), "arrow.fixed_shape_tensor", metadata);
        let array = shared(&random_array(column.data_type(), 2, 0, &mut Random(1)), &column);
        let error = Conversion::default().to_tensor(&array).unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.reason().contains("fixed_shape_tensor"), "{error}");
    }
}
