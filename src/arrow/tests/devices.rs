//! What do the structs of a device's arrays tell, and what is refused because only its memory could tell?

use std::ffi::c_void;
use std::ptr::null;
use std::sync::Arc;

use arrow_array::types::{Int8Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, FixedSizeListArray, Int8Array, Int32Array, ListArray, RunArray, StringArray,
    StringViewArray,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field};

use super::{edited, edited_on_device, leaf, on_device, set_buffer, structs, union};
use crate::arrow::export_device_array;
use crate::arrow::lists::Hidden;
use crate::error::ErrorKind;
use crate::ffi::arrow_device::ArrowArray;
use crate::request_field;
use crate::spec::Conversion;

fn some_null() -> Int32Array {
    Int32Array::from(vec![Some(1), None])
}

fn no_null() -> Int32Array {
    Int32Array::from(vec![1, 2])
}

fn second_null() -> Option<NullBuffer> {
    Some(vec![true, false].into())
}

#[test]
fn arrays_of_a_device_are_refused_where_the_host_reads() {
    let list = ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)]), None]);
    let views = StringViewArray::from(vec!["a text that is not inline", "b"]);
    let hidden = Hidden::all(2).unwrap();
    let fixed = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)]), None], 1);
    let large = Arc::new(Field::new("x", DataType::new_large_list(DataType::Int32, true), true));
    let inner: ArrayRef = Arc::new(structs(vec![("a", Arc::new(some_null()))], second_null()));
    let nested = on_device(&structs(vec![("s", inner)], None));
    let paths = Conversion::default().columns(["s.a"]).paths(nested.field()).unwrap().unwrap();
    let ints = on_device(&some_null());
    let errors = [
        on_device(&list).lists().map(drop).unwrap_err(),
        on_device(&views).views().map(drop).unwrap_err(),
        on_device(&no_null()).hiding(&hidden).map(drop).unwrap_err(),
        on_device(&no_null()).split_inherited().map(drop).unwrap_err(),
        on_device(&fixed).fixed_as_lists(&large).map(drop).unwrap_err(),
        leaf(&ints).logical_mask(&ints).map(drop).unwrap_err(),
        nested.at_paths(&paths, |_, _, _| Ok(None)).map(drop).unwrap_err(),
    ];
    assert!(errors.iter().all(|error| error.kind() == ErrorKind::Device), "{errors:?}");
    assert!(edited(&list, |_| ()).views().is_err() && edited(&views, |_| ()).lists().is_err());
}

#[test]
fn nulls_of_a_struct_that_only_a_device_can_count_are_none_of_its_unions() {
    let rows = structs(vec![("u", Arc::new(union()))], None);
    let all_valid = |raw: &mut ArrowArray| {
        static BITS: u8 = 0xff;
        raw.null_count = -1;
        set_buffer(raw, 0, (&raw const BITS).cast());
    };
    let export = |rows: crate::DeviceArray| export_device_array(&rows.column(0).unwrap()).map(drop);
    assert!(export(edited(&rows, all_valid)).is_ok(), "the host counts that none is null");
    let error = export(edited_on_device(&rows, all_valid)).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Unsupported, Some("u")), "{error}");
}

#[test]
fn items_of_a_device_are_as_many_as_its_structs_tell() {
    let list = on_device(&ListArray::from_iter_primitive::<Int32Type, _, _>([Some(vec![Some(1)])]));
    let texts = edited_on_device(&StringArray::from(vec!["a"]), |raw| set_buffer(raw, 2, null::<c_void>()));
    for (array, span, refusal) in [
        (&list, 0..1, None),
        (&list, 0..2, Some("offsets to 2 of 1 elements")),
        (&texts, 0..0, None),
        (&texts, 0..1, Some("the bytes of strings are NULL")),
    ] {
        match (array.device_items(Arc::new(Field::new("item", DataType::Int32, true)), &span), refusal) {
            (Ok(items), None) => assert_eq!(items.len(), span.len()),
            (Err(error), Some(words)) => {
                assert!(error.kind() == ErrorKind::Invalid && error.reason().contains(words), "{error}");
            }
            (found, _) => panic!("{span:?}: {found:?}"),
        }
    }
}

#[test]
fn nulls_that_a_device_may_have_are_refused_where_a_field_forbids_them() {
    let words = |words: Vec<Option<&str>>| -> DictionaryArray<Int8Type> {
        DictionaryArray::new(Int8Array::from(vec![0, 1]), Arc::new(StringArray::from(words)))
    };
    let runs = |values: Int32Array| RunArray::try_new(&Int32Array::from(vec![1, 2]), &values).unwrap();
    let list = |row: Option<Vec<Option<i32>>>| ListArray::from_iter_primitive::<Int32Type, _, _>([row]);
    let items = |nullable: bool| DataType::new_list(DataType::Int32, nullable);
    let of_struct = |nulls| on_device(&structs(vec![("n", Arc::new(no_null()))], nulls)).column(0).unwrap();
    let same = |array: &dyn Array| (on_device(array), array.data_type().clone());
    let cases = [
        (same(&no_null()), None),
        (same(&some_null()), Some("y")),
        ((of_struct(None), DataType::Int32), None),
        ((of_struct(second_null()), DataType::Int32), Some("y")),
        (same(&words(vec![Some("a"), Some("b")])), None),
        (same(&words(vec![Some("a"), None])), Some("y")),
        (same(&runs(no_null())), None),
        (same(&runs(some_null())), Some("values")),
        (same(&list(Some(vec![Some(1), None]))), None),
        ((on_device(&list(Some(vec![Some(1), None]))), items(false)), Some("item")),
        ((on_device(&list(Some(vec![Some(1)]))), items(false)), None),
        (same(&list(None)), Some("y")),
    ];
    for ((array, data_type), refused) in cases {
        let requested = Arc::new(Field::new("y", data_type, false));
        let error = request_field(&array, &requested).err();
        assert_eq!(error.as_ref().and_then(|error| error.column()), refused, "{requested}: {error:?}");
        assert!(error.is_none_or(|error| error.kind() == ErrorKind::Null), "{requested}");
    }
}

#[test]
fn nulls_of_a_struct_move_to_the_host_with_the_struct() {
    let column = on_device(&structs(vec![("n", Arc::new(no_null()))], second_null())).column(0).unwrap();
    let error = column.alone().unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Device, Some("n")));
    assert_eq!(error.remedy().as_deref(), Some("move the struct as a whole, then take its column"));
    let error = export_device_array(&column).unwrap_err();
    assert_eq!(error.remedy().as_deref(), Some("export the struct as a whole"));
}
