//! What does taking an array apart refuse, of offsets and sizes that import has not read?

use std::ffi::c_void;
use std::ptr::null;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BinaryViewArray, Int32Array, ListArray, StringArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field};

use super::{edited, edited_on_device, set_buffer, structs};
use crate::arrow::{Decomposed, DeviceArray, read_host};
use crate::error::{ErrorKind, Result};

fn apart(array: &DeviceArray) -> Result<Decomposed> {
    Decomposed::new(array, true, &mut |wanted| {
        // SAFETY: memory of the host in spite of its label, which the array keeps, or which is static.
        unsafe { read_host(wanted) }
    })
}

/// Returns lists over so many items, with these offsets.
fn lists(items: usize, offsets: &'static [i32]) -> DeviceArray {
    let item = Arc::new(Field::new("item", DataType::Int32, true));
    let rows = OffsetBuffer::from_lengths(vec![0; offsets.len() - 1]);
    let lists = ListArray::new(item, rows, Arc::new(Int32Array::from(vec![0; items])), None);
    edited_on_device(&lists, |raw| set_buffer(raw, 1, offsets.as_ptr().cast()))
}

#[test]
fn offsets_that_go_back_or_beyond_the_items_are_refused() {
    for (items, offsets, fits) in [
        (1, &[0, 1, 1][..], true),
        (1, &[0, 1, 9], false),
        (3, &[2, 2], true),
        (3, &[3, 3, 1], false),
        (3, &[-1, 2], false),
    ] {
        let found = apart(&lists(items, offsets)).map(drop).map_err(|error| error.kind());
        assert_eq!(found, if fits { Ok(()) } else { Err(ErrorKind::Invalid) }, "{offsets:?} of {items} items");
    }
}

#[test]
fn bytes_that_offsets_name_are_there() {
    static OFFSETS: [i32; 2] = [0, 5];
    let texts = edited_on_device(&StringArray::from(vec!["words"]), |raw| {
        set_buffer(raw, 1, OFFSETS.as_ptr().cast());
        set_buffer(raw, 2, null::<c_void>());
    });
    let error = apart(&texts).unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.reason().contains("NULL"), "{error}");
}

#[test]
fn sizes_of_view_buffers_are_ones_that_memory_can_have() {
    static SIZES: [i64; 3] = [-1, 1 << 60, 30];
    for (size, words) in SIZES.iter().zip([Some("negative"), Some("address space"), None]) {
        let views = BinaryViewArray::from(vec![&b"a value that is not inline at all"[..30]]);
        let views = edited_on_device(&views, |raw| set_buffer(raw, 3, std::ptr::from_ref(size).cast()));
        match (apart(&views), words) {
            (Ok(_), None) => {}
            (Err(error), Some(words)) => {
                assert!(error.kind() == ErrorKind::Invalid && error.reason().contains(words), "{error}");
            }
            (found, _) => panic!("{size} bytes: {found:?}"),
        }
    }
}

#[test]
fn joined_nulls_live_as_long_as_the_array_that_has_them() {
    let ints: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None, Some(3)]));
    let rows = structs(vec![("n", ints)], Some(vec![false, true, true].into()));
    let column = edited(&rows, |_| ()).column(0).unwrap();
    let joined = column.as_host_memory().unwrap();
    drop(column);
    let joined = joined.to_arrow().unwrap();
    assert_eq!((0..3).map(|row| joined.is_null(row)).collect::<Vec<_>>(), [true, true, false]);
}
