//! Caches fields: those of plain numbers without a name, and the last few that each thread read.

use std::cell::RefCell;
use std::ffi::{CStr, c_char};
use std::sync::{Arc, LazyLock};

use arrow_schema::{DataType, Field, FieldRef};
use smallvec::SmallVec;

use super::binary_metadata::{bytes_of, text_of};
use super::check::children_of;
use super::foreign::{MAX_DEPTH, foreign, foreign_entry};
use super::schema::{MetadataReader, parse, read_schema, simple, text};
use crate::error::Result;
use crate::ffi::arrow_device::{
    ARROW_FLAG_DICTIONARY_ORDERED, ARROW_FLAG_MAP_KEYS_SORTED, ARROW_FLAG_NULLABLE, ArrowSchema,
};

/// How many fields a thread keeps.
const MOST_KEPT: usize = 4;

thread_local! {
    /// The last fields that were read, oldest first. The next batch probably has the same schema, and comparing costs a
    /// fraction of reading.
    static KEPT: RefCell<Vec<FieldRef>> = const { RefCell::new(Vec::new()) };
}

/// Like [`read_schema`], but shared, because making and freeing a field costs more than the rest of a column's import.
///
/// # Errors
/// As [`read_schema`].
///
/// # Safety
/// As [`read_schema`].
pub unsafe fn read_field(schema: &ArrowSchema) -> Result<FieldRef> {
    // SAFETY: `strings`, `nested` and `metadata` of `read_schema` are promised, in the same words.
    if let Some(field) = unsafe { plain_field(schema) } {
        return Ok(field);
    }
    let is_kept = |field: &&FieldRef| {
        // SAFETY: `strings`, `nested` and `metadata` of `read_schema` are promised.
        unsafe { describes(schema, field, 0) }
    };
    let kept = KEPT.try_with(|kept| kept.borrow().iter().find(is_kept).cloned());
    if let Ok(Some(field)) = kept {
        return Ok(field);
    }
    // SAFETY: `strings`, `nested` and `metadata` are promised, in the same words.
    let field = Arc::new(unsafe { read_schema(schema) }?);
    // SAFETY: `strings`, `nested` and `metadata` of `read_schema` are promised. A field that is not found again need
    // not be kept.
    if unsafe { describes(schema, &field, 0) } {
        let oldest = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            let oldest = (kept.len() >= MOST_KEPT).then(|| kept.remove(0));
            kept.push(field.clone());
            oldest
        });
        drop(oldest);
    }
    Ok(field)
}

/// Empties this thread's cache.
#[cfg(feature = "python")]
pub(crate) fn forget_fields() {
    let kept = KEPT.try_with(RefCell::take);
    drop(kept);
}

/// Returns whether reading a schema would give this field.
///
/// # Safety
/// As [`read_schema`].
unsafe fn describes(schema: &ArrowSchema, field: &Field, depth: usize) -> bool {
    let nullable = if field.is_nullable() { ARROW_FLAG_NULLABLE } else { 0 };
    let ordered = if field.dict_is_ordered() == Some(true) { ARROW_FLAG_DICTIONARY_ORDERED } else { 0 };
    if schema.flags & !ARROW_FLAG_MAP_KEYS_SORTED != nullable | ordered {
        return false;
    }
    // SAFETY: `strings`: the name is NULL or ends with NUL.
    let named = unsafe { is_text(schema.name, field.name()) };
    // SAFETY: `metadata` is promised for this schema.
    let same = named && unsafe { is_metadata(schema.metadata, field) };
    // SAFETY: `strings` and `nested` are promised for this schema.
    same && unsafe { describes_type(schema, field.data_type(), depth) }
}

/// Returns whether reading a schema would give a field of this type.
///
/// # Safety
/// As [`read_schema`].
unsafe fn describes_type(schema: &ArrowSchema, data_type: &DataType, depth: usize) -> bool {
    if schema.release.is_none() || depth > MAX_DEPTH {
        return false;
    }
    // SAFETY: `strings`: the format is NULL or ends with NUL.
    if unsafe { plain_type(schema) }.is_some_and(|plain| plain.data_type() == data_type) {
        return schema.n_children == 0 && schema.dictionary.is_null();
    }
    let children = children_of(data_type);
    let described = |(index, child): (usize, &&FieldRef)| {
        // SAFETY: `nested`: `children` has `n_children` entries, which were compared with these before `described` is
        // called.
        let schema = unsafe { foreign_entry(schema.children, index, "") };
        // SAFETY: `nested`: all clauses hold for a child too.
        schema.is_ok_and(|schema| unsafe { describes(schema, child, depth + 1) })
    };
    if usize::try_from(schema.n_children) != Ok(children.len()) || !children.iter().enumerate().all(described) {
        return false;
    }
    // SAFETY: `strings`: the format is NULL or ends with NUL.
    let Ok(Some(format)) = (unsafe { text(schema.format, "") }) else { return false };
    let is_format_of = |data_type: &DataType| {
        let children = children.iter().map(|child| FieldRef::clone(child)).collect();
        parse(format, children, schema.flags).is_ok_and(|parsed| parsed == *data_type)
    };
    match data_type {
        DataType::Dictionary(indices, values) => {
            // SAFETY: `nested`: the dictionary is a schema, unless it is NULL or misaligned.
            is_format_of(indices) && unsafe { is_dictionary(schema.dictionary, values, depth) }
        }
        _ if !schema.dictionary.is_null() => false,
        DataType::Struct(_) => format == "+s",
        other => is_format_of(other),
    }
}

/// # Safety
/// The pointer is NULL or misaligned, or its schema is as [`read_schema`] asks.
unsafe fn is_dictionary(dictionary: *const ArrowSchema, values: &DataType, depth: usize) -> bool {
    // SAFETY: a schema, unless the pointer is NULL or misaligned.
    let Ok(schema) = (unsafe { foreign(dictionary, "") }) else { return false };
    // Of the values' field only the type is kept, but all of it must be valid.
    // SAFETY: `strings`: the name is NULL or ends with NUL.
    let readable = schema.metadata.is_null() && unsafe { text(schema.name, "") }.is_ok();
    // SAFETY: all clauses hold for the dictionary, as it is a schema.
    readable && unsafe { describes_type(schema, values, depth + 1) }
}

/// # Safety
/// As [`text`].
unsafe fn is_text(pointer: *const c_char, expected: &str) -> bool {
    if pointer.is_null() {
        return expected.is_empty();
    }
    // SAFETY: not NULL, so NUL-terminated by `# Safety`.
    unsafe { CStr::from_ptr(pointer) }.to_bytes() == expected.as_bytes()
}

/// # Safety
/// As [`metadata`].
unsafe fn is_metadata(pointer: *const c_char, field: &Field) -> bool {
    let expected = field.metadata();
    if pointer.is_null() {
        return expected.is_empty();
    }
    let mut reader = MetadataReader { position: pointer.cast() };
    // SAFETY: four bytes of count come first.
    if unsafe { reader.length("count") } != Ok(expected.len()) {
        return false;
    }
    let mut keys: SmallVec<[&[u8]; 4]> = SmallVec::new();
    let is_same = (0..expected.len()).all(|_| {
        // SAFETY: the count was compared with `expected`, so there are as many pairs, and a key follows, after its
        // length.
        let Ok(key) = (unsafe { reader.bytes() }) else { return false };
        // SAFETY: a pair's value follows its key, after its length.
        let Ok(value) = (unsafe { reader.bytes() }) else { return false };
        keys.push(key);
        expected.get(&*text_of(key)).is_some_and(|found| *bytes_of(found) == *value)
    });
    // Equal numbers of pairs and keys mean equal pairs only if no key repeats.
    keys.sort_unstable();
    is_same && keys.windows(2).all(|pair| pair.first() != pair.last())
}

/// Returns the field of a nullable, unnamed type of one letter, without children or metadata.
///
/// # Safety
/// As [`read_schema`].
unsafe fn plain_field(schema: &ArrowSchema) -> Option<FieldRef> {
    let plain = schema.release.is_some()
        && schema.flags == ARROW_FLAG_NULLABLE
        && schema.n_children == 0
        && schema.metadata.is_null()
        && schema.dictionary.is_null();
    // SAFETY: `strings`: not NULL, so it ends with NUL and has a first byte.
    if !plain || !(schema.name.is_null() || unsafe { schema.name.read() } == 0) {
        return None;
    }
    // SAFETY: `strings`: the format is NULL or ends with NUL.
    unsafe { plain_type(schema) }.cloned()
}

/// Returns an unnamed, nullable field of the type of a one-letter format string.
///
/// # Safety
/// As [`read_schema`].
unsafe fn plain_type(schema: &ArrowSchema) -> Option<&'static FieldRef> {
    static PLAIN: LazyLock<[Option<FieldRef>; 128]> = LazyLock::new(|| {
        std::array::from_fn(|letter| {
            let format = u8::try_from(letter).map(char::from).ok()?.to_string();
            Some(Arc::new(Field::new("", simple(&format)?, true)))
        })
    });
    if schema.format.is_null() {
        return None;
    }
    // SAFETY: `strings`: not NULL, so it ends with NUL and has a first byte.
    let letter = unsafe { schema.format.read() };
    // SAFETY: the first byte is not NUL, so a second one follows.
    if letter == 0 || unsafe { schema.format.wrapping_add(1).read() } != 0 {
        return None;
    }
    // Signed on some targets; a letter beyond ASCII is behind the table's end.
    let letter = u8::from_ne_bytes(letter.to_ne_bytes());
    PLAIN.get(usize::from(letter))?.as_ref()
}

#[cfg(test)]
mod tests {
    use arrow_schema::{Field, Fields, UnionFields, UnionMode};
    use std::collections::HashMap;

    use super::*;
    use crate::arrow::export_schema;

    fn child(data_type: DataType) -> FieldRef {
        Arc::new(Field::new("c", data_type, true))
    }

    /// Fields of which no two are the same.
    fn fields() -> Vec<Field> {
        let int = child(DataType::Int32);
        let entries = |nullable| {
            let fields =
                Fields::from(vec![Field::new("k", DataType::Utf8, false), Field::new("v", DataType::Int8, nullable)]);
            Arc::new(Field::new("entries", DataType::Struct(fields), false))
        };
        let dictionary = |values| DataType::Dictionary(Box::new(DataType::Int8), Box::new(values));
        let union = |mode| DataType::Union(UnionFields::try_new([3], [int.as_ref().clone()]).unwrap(), mode);
        let types = [
            DataType::Int32,
            DataType::UInt32,
            DataType::FixedSizeBinary(3),
            DataType::FixedSizeBinary(4),
            DataType::Timestamp(arrow_schema::TimeUnit::Second, None),
            DataType::Timestamp(arrow_schema::TimeUnit::Second, Some("UTC".into())),
            DataType::List(int.clone()),
            DataType::LargeList(int.clone()),
            DataType::List(child(DataType::Int64)),
            DataType::FixedSizeList(int.clone(), 2),
            DataType::FixedSizeList(int.clone(), 3),
            DataType::Map(entries(true), false),
            DataType::Map(entries(true), true),
            DataType::Map(entries(false), true),
            DataType::RunEndEncoded(int.clone(), int.clone()),
            union(UnionMode::Sparse),
            union(UnionMode::Dense),
            dictionary(DataType::Utf8),
            dictionary(DataType::LargeUtf8),
            dictionary(DataType::List(int.clone())),
            dictionary(dictionary(DataType::Utf8)),
            DataType::Struct(vec![int.clone(), int.clone()].into()),
            DataType::Struct(vec![int].into()),
        ];
        let mut fields: Vec<Field> = types.into_iter().map(|data_type| Field::new("x", data_type, true)).collect();
        let metadata = |value: &str| HashMap::from([("k".to_owned(), value.to_owned())]);
        let plain = Field::new("x", DataType::Int8, true);
        fields.extend([
            Field::new("x", dictionary(DataType::Utf8), true).with_dict_is_ordered(true),
            Field::new("y", DataType::Int8, true),
            Field::new("x", DataType::Int8, false),
            plain.clone().with_metadata(metadata("1")),
            plain.clone().with_metadata(metadata("2")),
            plain.clone().with_metadata(metadata("1").into_iter().chain([("l".to_owned(), String::new())]).collect()),
            plain,
        ]);
        let structs = |field: &Field| Field::new("", DataType::Struct(vec![field.clone()].into()), false);
        let nested: Vec<Field> = fields.iter().map(structs).collect();
        fields.extend(nested);
        fields
    }

    #[test]
    fn a_field_is_kept_for_exactly_the_schemas_that_would_be_read_as_it() {
        // Miri takes minutes for all pairs.
        let fields: Vec<Field> = fields().into_iter().step_by(if cfg!(miri) { 9 } else { 1 }).collect();
        for field in &fields {
            let mut schema = export_schema(field).unwrap().into_raw();
            // SAFETY: a schema that was just made.
            assert_eq!(unsafe { read_schema(&schema) }.unwrap(), *field);
            for other in &fields {
                // SAFETY: a schema that was just made, and is released below.
                let described = unsafe { describes(&schema, other, 0) };
                // Fields that differ in the order of a dictionary alone are equal.
                assert_eq!(described, format!("{field:?}") == format!("{other:?}"), "{field:?} {other:?}");
            }
            // SAFETY: a schema that was just made, and is released below.
            let (first, second) = (unsafe { read_field(&schema) }.unwrap(), unsafe { read_field(&schema) }.unwrap());
            assert!(Arc::ptr_eq(&first, &second) && *first == *field);
            // SAFETY: released once, by its owner.
            unsafe { schema.release.unwrap()(&raw mut schema) };
        }
    }

    /// The bytes of a schema's metadata.
    fn metadata(pairs: &[(&str, &str)]) -> Vec<u8> {
        let length = |length: usize| i32::try_from(length).unwrap().to_ne_bytes();
        let mut bytes = length(pairs.len()).to_vec();
        for text in pairs.iter().flat_map(|(key, value)| [key, value]) {
            bytes.extend(length(text.len()));
            bytes.extend(text.as_bytes());
        }
        bytes
    }

    #[test]
    fn a_key_that_stands_twice_is_no_other_key() {
        let read = |pairs: &[(&str, &str)]| {
            let mut schema = export_schema(&Field::new("x", DataType::Int8, true)).unwrap().into_raw();
            let metadata = metadata(pairs);
            let own = std::mem::replace(&mut schema.metadata, metadata.as_ptr().cast());
            // SAFETY: a schema of our own, with metadata that live until the end of this function.
            let field = unsafe { read_field(&schema) }.unwrap();
            schema.metadata = own;
            // SAFETY: released once, by its owner.
            unsafe { schema.release.unwrap()(&raw mut schema) };
            field
        };
        let both = read(&[("a", "1"), ("b", "2")]);
        assert_eq!(both.metadata().len(), 2);
        assert!(Arc::ptr_eq(&read(&[("b", "2"), ("a", "1")]), &both), "the order of keys means nothing");
        for pairs in [[("a", "1"), ("a", "1")], [("b", "2"), ("b", "2")], [("a", "1"), ("a", "2")]] {
            let [_, (key, value)] = pairs;
            let expected = HashMap::from([(key.to_owned(), value.to_owned())]);
            assert_eq!(*read(&pairs).metadata(), expected, "{pairs:?}");
        }
    }

    #[test]
    fn schemas_that_cannot_be_read_are_no_field() {
        let field = Field::new("x", DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)), true);
        let mut schema = export_schema(&field).unwrap().into_raw();
        let whole = |schema: &ArrowSchema| {
            // SAFETY: a schema of our own, perhaps with a NULL.
            unsafe { describes(schema, &field, 0) }
        };
        assert!(whole(&schema));
        let format = std::mem::replace(&mut schema.format, std::ptr::null());
        assert!(!whole(&schema));
        schema.format = format;
        let dictionary = std::mem::replace(&mut schema.dictionary, std::ptr::null_mut());
        assert!(!whole(&schema));
        // SAFETY: our own struct, which is not read while the reference is used: each is gone before the next check.
        let values = || unsafe { &mut *dictionary };
        let count = b"\xff\xff\xff\xff";
        schema.dictionary = dictionary;
        values().metadata = count.as_ptr().cast();
        assert!(!whole(&schema));
        values().metadata = std::ptr::null();
        let name = std::mem::replace(&mut values().name, c"\xff".as_ptr());
        assert!(!whole(&schema));
        values().name = name;
        assert!(whole(&schema));
        let release = schema.release.take();
        assert!(!whole(&schema));
        // SAFETY: released once, by its owner.
        unsafe { release.unwrap()(&raw mut schema) };
    }

    #[test]
    fn schemas_of_plain_numbers_that_cannot_be_read_are_no_field() {
        let mut schema = export_schema(&Field::new("", DataType::Int32, true)).unwrap().into_raw();
        let whole = ArrowSchema { ..schema };
        // SAFETY: a schema of our own, perhaps with a wrong member.
        let is_field = |schema: &ArrowSchema| unsafe { read_field(schema) }.is_ok();
        assert!(is_field(&schema));
        schema.release = None;
        assert!(!is_field(&schema), "a released schema");
        (schema.release, schema.n_children, schema.children) = (whole.release, 1, std::ptr::null_mut());
        assert!(!is_field(&schema), "a child");
        (schema.n_children, schema.format) = (0, c"ii".as_ptr());
        assert!(!is_field(&schema), "two letters");
        (schema.format, schema.children) = (whole.format, whole.children);
        // SAFETY: released once, by its owner.
        unsafe { schema.release.unwrap()(&raw mut schema) };
    }
}
