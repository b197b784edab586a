//! What only the contents of host buffers show: found before anyone reads by it.

use std::ffi::c_void;
use std::ptr::{null, without_provenance_mut};
use std::sync::Arc;

use arrow_array::types::{Int8Type, Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, DictionaryArray, FixedSizeListArray, Int8Array, Int32Array,
    Int64Array, LargeBinaryArray, LargeStringArray, ListViewArray, NullArray, RunArray, StringArray, StringViewArray,
    StructArray, UnionArray,
};
use arrow_buffer::NullBuffer;
use arrow_dlpack::ffi::arrow_device::ArrowArray;
use arrow_dlpack::{Conversion, ErrorKind, request_field};
use arrow_schema::{DataType, Field, UnionFields};

use crate::support::arrow::{child_of, counted, field, import_edited, release, set_buffer};
use crate::{lists, strings};

/// An array whose structs are in order and whose contents are not: refused as arrow-rs' array and as another type.
fn assert_contents_refused(array: &dyn Array, edit: impl FnOnce(&mut ArrowArray), words: &[&str]) {
    assert_contents_of_refused("x", array, edit, words);
}

/// As [`assert_contents_refused`], with an error that names this column.
fn assert_contents_of_refused(column: &str, array: &dyn Array, edit: impl FnOnce(&mut ArrowArray), words: &[&str]) {
    let own = field("x", array.data_type().clone());
    let (imported, released) = import_edited(array, &own, edit);
    let imported = imported.unwrap();
    let error = imported.to_arrow().expect_err(&format!("{} {words:?}", array.data_type()));
    assert_eq!((error.kind(), error.column()), (ErrorKind::Invalid, Some(column)), "{error}");
    assert!(words.iter().all(|word| error.to_string().contains(word)), "{error} lacks one of {words:?}");
    assert!(request_field(&imported, &field("x", DataType::Boolean)).is_err());
    drop(imported);
    assert_eq!(released.get(), 1);
}

fn pointer<T>(values: &[T]) -> *const c_void {
    values.as_ptr().cast()
}

#[test]
fn offsets_that_lead_out_of_their_array_are_refused() {
    let large = LargeStringArray::from(vec!["ab", "c", "de"]);
    for offsets in [[0_i32, 2, 2, -1], [0, 2, 1, 5], [-1, 2, 3, 5], [3, 2, 2, 5], [0, i32::MIN, 2, i32::MIN]] {
        assert_contents_refused(&strings(), |array| set_buffer(array, 1, pointer(&offsets)), &[]);
        let offsets = offsets.map(i64::from);
        assert_contents_refused(&large, |array| set_buffer(array, 1, pointer(&offsets)), &[]);
    }
    for offsets in [[0_i32, 2, 2, -1], [0, 2, 1, 3], [0, 2, 2, 4], [-1, 2, 2, 3]] {
        assert_contents_refused(&lists(), |array| set_buffer(array, 1, pointer(&offsets)), &[]);
    }
}

#[test]
fn last_offsets_of_nested_text_are_read_before_arrow_rs_reads_them() {
    let texts: [ArrayRef; 2] = [Arc::new(strings()), Arc::new(LargeStringArray::from(vec!["ab", "c", "de"]))];
    for text in texts {
        let own = field("text", text.data_type().clone());
        let rows = StructArray::from(vec![(own, text.clone())]);
        let nested =
            StructArray::from(vec![(field("rows", rows.data_type().clone()), Arc::new(rows.clone()) as ArrayRef)]);
        let dictionary = DictionaryArray::<Int8Type>::new(vec![0_i8, 1].into(), text);
        let (offsets, large) = ([0_i32, 2, 2, -1], [0_i64, 2, 2, -1]);
        let last_offset = |array: &mut ArrowArray, data_type: &DataType| {
            let wide = *data_type == DataType::LargeUtf8;
            set_buffer(array, 1, if wide { pointer(&large) } else { pointer(&offsets) });
        };
        let words = ["gives buffer 2 a size", "-1"];
        let values = |data_type: &DataType| match data_type {
            DataType::Struct(fields) => fields[0].data_type().clone(),
            other => other.clone(),
        };
        let of_rows = values(rows.data_type());
        assert_contents_of_refused("text", &rows, |array| last_offset(child_of(array, 0), &of_rows), &words);
        let edit = |array: &mut ArrowArray| last_offset(child_of(child_of(array, 0), 0), &of_rows);
        assert_contents_of_refused("text", &nested, edit, &words);
        let edit = |array: &mut ArrowArray| {
            // SAFETY: the dictionary's own array of buffers, which this test alone uses.
            let buffers = unsafe { (*array.dictionary).buffers };
            let wide = of_rows == DataType::LargeUtf8;
            // SAFETY: text has three buffers.
            unsafe { buffers.wrapping_add(1).write(if wide { pointer(&large) } else { pointer(&offsets) }) };
        };
        assert_contents_of_refused("x", &dictionary, edit, &words);
    }
}

#[test]
fn text_of_no_rows_needs_no_offsets() {
    let arrays: [ArrayRef; 4] = [
        Arc::new(StringArray::new_null(0)),
        Arc::new(LargeStringArray::new_null(0)),
        Arc::new(BinaryArray::new_null(0)),
        Arc::new(LargeBinaryArray::new_null(0)),
    ];
    for array in arrays {
        let own = field("x", array.data_type().clone());
        let (imported, _) = import_edited(&array, &own, |array| set_buffer(array, 1, null()));
        assert_eq!(imported.unwrap().to_arrow().unwrap().to_data(), array.to_data());
    }
}

#[test]
fn offsets_that_are_not_aligned_are_refused_or_moved() {
    let offsets: [i32; 5] = [0, 2, 2, 5, 5];
    let bytes: Vec<u8> = std::iter::once(0).chain(offsets.iter().flat_map(|offset| offset.to_ne_bytes())).collect();
    let words: Vec<u64> =
        bytes.chunks(8).map(|chunk| chunk.iter().rev().fold(0, |word, byte| (word << 8) | u64::from(*byte))).collect();
    let start = words.as_ptr().cast::<u8>().wrapping_add(1).cast::<c_void>();
    let own = field("x", DataType::Utf8);
    let (imported, released) = import_edited(&strings(), &own, |array| set_buffer(array, 1, start));
    match imported.unwrap().to_arrow() {
        Ok(array) => assert_eq!(array.to_data(), strings().to_data()),
        Err(error) => assert!(error.reason().contains("aligned"), "{error}"),
    }
    assert_eq!(released.get(), 1);
}

#[test]
fn text_that_is_not_utf8_is_refused() {
    let text = [0xff_u8; 8];
    assert_contents_refused(&strings(), |array| set_buffer(array, 2, pointer(&text)), &["UTF8"]);
}

#[test]
fn string_data_may_be_null_only_where_there_is_none() {
    assert_contents_refused(&strings(), |array| set_buffer(array, 2, null()), &["position 2 is null"]);
    let empty = StringArray::from(vec!["", ""]);
    let (imported, _) = import_edited(&empty, &field("x", DataType::Utf8), |array| set_buffer(array, 2, null()));
    assert_eq!(imported.unwrap().to_arrow().unwrap().to_data(), empty.to_data());
}

#[test]
fn views_that_lead_out_of_their_buffers_are_refused() {
    let long = "a string that is too long to be inlined";
    let strings = StringViewArray::from(vec![long, "short"]);
    let binaries = BinaryViewArray::from(vec![long.as_bytes(), b"short"]);
    for array in [&strings as &dyn Array, &binaries] {
        assert_eq!(counted_buffers(array), 4);
        for lengths in [[-1_i64], [i64::MIN], [3], [i64::MAX]] {
            assert_contents_refused(array, |array| set_buffer(array, 3, pointer(&lengths)), &[]);
        }
        assert_contents_refused(array, |array| set_buffer(array, 3, null()), &["NULL"]);
        assert_contents_refused(array, |array| set_buffer(array, 3, without_provenance_mut(1)), &["aligned"]);
        let last = without_provenance_mut(usize::MAX - 7);
        assert_contents_refused(array, |array| set_buffer(array, 3, last), &["buffer 3", "address space"]);
        assert_contents_refused(array, |array| set_buffer(array, 2, null()), &["position 2 is null"]);
        // A view of the second buffer, where there is one only.
        let views = [u128::from(u32::try_from(long.len()).unwrap()) | (1 << 64), 0];
        assert_contents_refused(array, |array| set_buffer(array, 1, pointer(&views)), &[]);
    }
}

#[test]
fn views_of_no_rows_have_buffer_sizes_too() {
    let strings = StringViewArray::from(vec!["a string that is too long to be inlined"]);
    assert_contents_refused(
        &strings,
        |array| {
            array.length = 0;
            set_buffer(array, 3, null());
        },
        &["buffer 3", "NULL"],
    );
    let (imported, _) = import_edited(&strings, &field("x", DataType::Utf8View), |array| array.length = 0);
    assert_eq!(imported.unwrap().to_arrow().unwrap().len(), 0);
}

/// Counts the buffers, and releases the struct.
fn counted_buffers(array: &dyn Array) -> i64 {
    let (mut exported, _) = counted(array);
    release(&mut exported);
    exported.n_buffers
}

#[test]
fn indices_beyond_their_dictionary_are_refused() {
    let dictionary: DictionaryArray<Int8Type> = ["a", "b"].into_iter().collect();
    for indices in [[0_i8, 2], [-1, 0]] {
        assert_contents_refused(&dictionary, |array| set_buffer(array, 1, pointer(&indices)), &[]);
    }
}

#[test]
fn list_views_that_lead_out_of_their_child_are_refused() {
    let items = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let item = field("item", DataType::Int32);
    let views = ListViewArray::new(item, vec![0, 1].into(), vec![1, 2].into(), items, None);
    for (offsets, sizes) in
        [([0_i32, 2], [1_i32, 2]), ([-1, 1], [1, 2]), ([0, 1], [1, -1]), ([0, i32::MAX], [1, i32::MAX])]
    {
        let edit = |array: &mut ArrowArray| {
            set_buffer(array, 1, pointer(&offsets));
            set_buffer(array, 2, pointer(&sizes));
        };
        assert_contents_refused(&views, edit, &[]);
    }
}

#[test]
fn unions_that_lead_out_of_their_children_are_refused() {
    let fields =
        UnionFields::try_new([3, 5], [Field::new("a", DataType::Int32, true), Field::new("b", DataType::Int8, true)]);
    let children: Vec<ArrayRef> = vec![Arc::new(Int32Array::from(vec![1])), Arc::new(Int8Array::from(vec![2]))];
    let union = UnionArray::try_new(fields.unwrap(), vec![3, 5].into(), Some(vec![0, 0].into()), children).unwrap();
    for ids in [[3_i8, 4], [-1, 3], [127, 5]] {
        assert_contents_refused(&union, |array| set_buffer(array, 0, pointer(&ids)), &[]);
    }
    for offsets in [[0_i32, 1], [-1, 0], [i32::MAX, 0]] {
        assert_contents_refused(&union, |array| set_buffer(array, 1, pointer(&offsets)), &[]);
    }
}

#[test]
fn run_ends_that_do_not_grow_or_do_not_reach_the_length_are_refused() {
    let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![2, 5]), &Int32Array::from(vec![7, 8])).unwrap();
    for ends in [[2_i32, 2], [0, 5], [-1, 5], [5, 2], [2, 4]] {
        assert_contents_refused(&runs, |array| set_buffer(child_of(array, 0), 1, pointer(&ends)), &[]);
    }
}

#[test]
fn null_counts_that_no_bitmap_has_are_refused() {
    let numbers = Arc::new(Int32Array::from(vec![Some(1), None, Some(3), None]));
    let nulls = NullBuffer::from(vec![true, false, true, false]);
    let lists = FixedSizeListArray::new(field("item", DataType::Int32), 1, numbers.clone(), Some(nulls.clone()));
    let columns = [field("a", DataType::Int32)];
    let rows = StructArray::new(columns.as_slice().into(), vec![numbers.clone()], Some(nulls));
    for array in [numbers.as_ref() as &dyn Array, &lists, &rows] {
        for claimed in [1, 3, 4] {
            assert_contents_refused(array, |array| array.null_count = claimed, &["null"]);
        }
        let (imported, _) = import_edited(array, &field("x", array.data_type().clone()), |array| array.null_count = 2);
        assert_eq!(imported.unwrap().to_arrow().unwrap().null_count(), 2);
    }
}

#[test]
fn results_that_memory_cannot_hold_are_refused() {
    let runs = RunArray::<Int64Type>::try_new(&Int64Array::from(vec![1 << 50]), &Int32Array::from(vec![None])).unwrap();
    let nulls = NullArray::new(3);
    let empty = FixedSizeListArray::new_null(field("item", DataType::Int32), 0, 0);
    for (array, requested) in [
        (&nulls as &dyn Array, field("x", DataType::Int64)),
        (&nulls, Arc::new(Field::new("x", DataType::Null, false))),
        (&runs, field("x", DataType::Int32)),
        (&runs, Arc::new(Field::new("x", runs.data_type().clone(), false))),
        (&empty, field("x", DataType::LargeList(field("item", DataType::Int32)))),
    ] {
        let edit = |array: &mut ArrowArray| {
            (array.length, array.null_count) = (1 << 50, -1);
            if array.n_buffers == 1 {
                set_buffer(array, 0, null());
            }
        };
        let (imported, released) = import_edited(array, &field("x", array.data_type().clone()), edit);
        let error = request_field(&imported.unwrap(), &requested).unwrap_err();
        assert!(error.kind() == ErrorKind::Memory && error.column() == Some("x"), "{requested}: {error:?}");
        assert_eq!(released.get(), 1);
    }
}

#[test]
fn the_row_of_a_code_beyond_a_dictionary_with_nulls_counts_over_lists() {
    let values: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
    let words: ArrayRef = Arc::new(DictionaryArray::<Int8Type>::new(vec![0_i8; 6].into(), values));
    let pairs = FixedSizeListArray::new(field("item", words.data_type().clone()), 2, words, None);
    let codes = [0_i8, 0, 0, 7, 0, 0];
    let (imported, _released) = import_edited(&pairs, &field("x", pairs.data_type().clone()), |array| {
        set_buffer(child_of(array, 0), 1, pointer(&codes));
    });
    let error = Conversion::default().to_tensor(&imported.unwrap()).unwrap_err();
    assert_eq!((error.kind(), error.row()), (ErrorKind::Invalid, Some(1)), "{error}");
}
