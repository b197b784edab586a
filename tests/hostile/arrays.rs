//! Arrow arrays: what their structs show.

use std::ffi::c_void;
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{
    Array, ArrayRef, DictionaryArray, FixedSizeListArray, Int8Array, Int32Array, NullArray, StringArray,
    StringViewArray, StructArray, UnionArray,
};
use arrow_dlpack::ffi::arrow_device::ArrowArray;
use arrow_dlpack::{Conversion, ErrorKind, NullPolicy};
use arrow_schema::{DataType, Field, UnionFields};

use crate::support::Random;
use crate::support::arrow::{child_of, counted, field, import_edited, list, random_array, release, set_buffer};
use crate::{lists, misaligned, strings};

/// A broken struct: an error that has all of `words`, and one release.
fn assert_array_refused(array: &dyn Array, edit: impl FnOnce(&mut ArrowArray), words: &[&str]) {
    let own = field("x", array.data_type().clone());
    let (outcome, released) = import_edited(array, &own, edit);
    let error = outcome.expect_err(&format!("{} {words:?}", array.data_type()));
    assert!(words.iter().all(|word| error.to_string().contains(word)), "{error} lacks one of {words:?}");
    assert!(error.column().is_some(), "{error}");
    assert_eq!(released.get(), 1, "{error}");
}

fn every_count_is_checked(array: &dyn Array) {
    type Edit = fn(&mut ArrowArray);
    let edits: [(Edit, &[&str]); 15] = [
        (|array| array.length = -1, &["ArrowArray.length", "-1"]),
        (|array| array.length = i64::MIN, &["ArrowArray.length"]),
        (|array| array.offset = -1, &["ArrowArray.offset", "-1"]),
        (|array| array.offset = i64::MAX, &["ArrowArray.offset", "overflows"]),
        (|array| (array.offset, array.length) = (i64::MAX, i64::MAX), &["ArrowArray.offset", "overflows"]),
        (|array| array.null_count = -2, &["ArrowArray.null_count", "-2"]),
        (|array| array.null_count = i64::MIN, &["ArrowArray.null_count"]),
        (|array| array.null_count = array.length + 1, &["ArrowArray.null_count"]),
        (|array| array.n_buffers = -1, &["ArrowArray.n_buffers", "-1"]),
        (|array| array.n_buffers = 0, &["ArrowArray.n_buffers"]),
        (|array| array.n_buffers += 1, &["ArrowArray.n_buffers"]),
        (|array| array.n_children = -1, &["ArrowArray.n_children", "-1"]),
        (|array| array.n_children += 1, &["ArrowArray.n_children"]),
        (|array| array.buffers = null_mut(), &["ArrowArray.buffers", "NULL"]),
        (|array| array.buffers = misaligned(array.buffers), &["ArrowArray.buffers", "misaligned"]),
    ];
    for (edit, words) in edits {
        assert_array_refused(array, edit, words);
    }
}

fn with_nulls(data_type: &DataType) -> ArrayRef {
    random_array(data_type, 9, 3, &mut Random(4))
}

fn rows() -> StructArray {
    StructArray::from(vec![(field("a", DataType::Int32), with_nulls(&DataType::Int32))])
}

#[test]
fn every_count_of_an_array_is_checked() {
    for data_type in [DataType::Int32, DataType::Boolean, list(DataType::Int8, 2)] {
        every_count_is_checked(&with_nulls(&data_type));
    }
    every_count_is_checked(&strings());
    every_count_is_checked(&lists());
    every_count_is_checked(&rows());
}

#[test]
fn bitmaps_of_more_slots_than_memory_has_bits_are_refused() {
    for array in [&with_nulls(&DataType::Boolean) as &dyn Array, &with_nulls(&list(DataType::Int8, 0))] {
        for length in [i64::MAX, 1 << 60, (1 << 59) + 8] {
            assert_array_refused(array, |array| (array.length, array.null_count) = (length, -1), &["address space"]);
        }
    }
}

#[test]
fn buffers_end_inside_the_address_space() {
    for array in [&with_nulls(&DataType::Int32) as &dyn Array, &with_nulls(&DataType::Int16), &strings(), &lists()] {
        for (offset, length, buffer) in
            [(0, i64::MAX, "buffer 0"), (i64::MAX - 9, 1, "buffer 0"), (0, 1 << 58, "buffer 1")]
        {
            let edit = |array: &mut ArrowArray| (array.offset, array.length, array.null_count) = (offset, length, 0);
            assert_array_refused(array, edit, &[buffer, "address space"]);
        }
    }
}

#[test]
fn buffers_may_be_null_only_where_nothing_is_in_them() {
    for array in [&with_nulls(&DataType::Int32) as &dyn Array, &with_nulls(&DataType::Boolean), &strings(), &lists()] {
        assert_array_refused(array, |array| set_buffer(array, 0, null()), &["buffer 0", "NULL"]);
        assert_array_refused(array, |array| set_buffer(array, 1, null()), &["buffer 1", "NULL"]);
    }
    assert_array_refused(&with_nulls(&list(DataType::Int8, 2)), |array| set_buffer(array, 0, null()), &["buffer 0"]);
    let far = without_provenance_mut::<c_void>(usize::MAX - 3).cast_const();
    assert_array_refused(&with_nulls(&DataType::Int32), |array| set_buffer(array, 1, far), &["buffer 1", "address"]);
    // Offsets are one more than slots.
    let last = without_provenance_mut::<c_void>(isize::MAX.unsigned_abs() - 12).cast_const();
    assert_array_refused(&strings(), |array| set_buffer(array, 1, last), &["buffer 1", "address"]);

    // No nulls need no bitmap; no slots need no buffer at all.
    let array = Int32Array::from(vec![Some(1), None]);
    let (imported, _) = import_edited(&array, &field("x", DataType::Int32), |array| {
        set_buffer(array, 0, null());
        array.null_count = -1;
    });
    assert_eq!(Conversion::default().to_tensor(&imported.unwrap()).unwrap().len(), 2);
    let (imported, _) = import_edited(&array, &field("x", DataType::Int32), |array| {
        set_buffer(array, 0, null());
        set_buffer(array, 1, null());
        (array.length, array.null_count) = (0, 0);
    });
    let imported = imported.unwrap();
    assert!(Conversion::default().to_tensor(&imported).unwrap().is_empty());
    assert_eq!(imported.to_arrow().unwrap().len(), 0);
}

#[test]
fn children_must_be_there_and_long_enough() {
    for array in [&with_nulls(&list(DataType::Int8, 2)) as &dyn Array, &rows()] {
        assert_array_refused(array, |array| array.children = null_mut(), &["ArrowArray.children", "NULL"]);
        assert_array_refused(array, |array| array.children = misaligned(array.children), &["ArrowArray.children"]);
        // SAFETY: the helper's array of children has an entry.
        let no_child = |array: &mut ArrowArray| unsafe { array.children.write(null_mut()) };
        assert_array_refused(array, no_child, &["ArrowArray.children", "NULL"]);
        assert_array_refused(array, |array| child_of(array, 0).length -= 1, &["child has", "slots"]);
        assert_array_refused(array, |array| child_of(array, 0).length = -1, &["ArrowArray.length"]);
        assert_array_refused(array, |array| child_of(array, 0).offset = i64::MAX, &["ArrowArray.offset"]);
        assert_array_refused(array, |array| child_of(array, 0).n_buffers = 1, &["ArrowArray.n_buffers"]);
        assert_array_refused(array, |array| child_of(array, 0).null_count = 100, &["ArrowArray.null_count"]);
        assert_array_refused(array, |array| array.length += 1, &["child has", "10 slots"]);
        assert_array_refused(array, |array| array.offset += 1, &["child has", "10 slots"]);
    }
    let union = UnionArray::try_new(
        UnionFields::try_new([0], [Field::new("a", DataType::Int32, true)]).unwrap(),
        vec![0_i8; 3].into(),
        None,
        vec![Arc::new(Int32Array::from(vec![1, 2, 3]))],
    );
    let union = union.unwrap();
    assert_array_refused(&union, |array| child_of(array, 0).length -= 1, &["the child has 2", "3 slots"]);
    assert_array_refused(&union, |array| array.offset += 1, &["the child has 3", "4 slots"]);
    let own = field("outer", rows().data_type().clone());
    let error = import_edited(&rows(), &own, |array| child_of(array, 0).length = 1).0.unwrap_err();
    assert_eq!(error.column(), Some("a"), "the narrowest column is named");
}

#[test]
fn dictionaries_are_where_the_type_has_one() {
    let dictionary: DictionaryArray<Int8Type> = ["a", "b"].into_iter().collect();
    assert_array_refused(&dictionary, |array| array.dictionary = null_mut(), &["ArrowArray.dictionary", "NULL"]);
    assert_array_refused(
        &dictionary,
        |array| array.dictionary = misaligned(array.dictionary),
        &["ArrowArray.dictionary"],
    );
    let (mut other, released) = counted(&Int32Array::from(vec![1]));
    let stray = &raw mut other;
    assert_array_refused(&Int32Array::from(vec![1]), |array| array.dictionary = stray, &["ArrowArray.dictionary"]);
    release(&mut other);
    assert_eq!(released.get(), 1);
}

#[test]
fn a_dictionary_without_values_needs_no_offsets() {
    let no_words: ArrayRef = Arc::new(StringArray::from(vec![""; 0]));
    let codes = DictionaryArray::<Int8Type>::new(Int8Array::from(vec![None, None]), no_words);
    let edit = |array: &mut ArrowArray| {
        // SAFETY: the dictionary's own array of buffers, which this test alone uses.
        let buffers = unsafe { (*array.dictionary).buffers };
        // SAFETY: strings have three buffers.
        unsafe { buffers.wrapping_add(1).write(null()) };
    };
    let imported = import_edited(&codes, &field("x", codes.data_type().clone()), edit).0.unwrap();
    assert_eq!(imported.to_arrow().unwrap().logical_null_count(), 2);
}

#[test]
fn nesting_of_more_than_64_levels_is_refused() {
    let nested = |levels| {
        let items = random_array(&DataType::Int8, 1, 0, &mut Random(1));
        (0..levels).fold(items, |items, _| {
            let item = field("item", items.data_type().clone());
            Arc::new(FixedSizeListArray::new(item, 1, items, None)) as ArrayRef
        })
    };
    let deepest = nested(64);
    import_edited(&deepest, &field("x", deepest.data_type().clone()), |_| ()).0.unwrap();
    for levels in [65, 70] {
        assert_array_refused(&nested(levels), |_| (), &["64 levels"]);
    }
    let codes = |values| DictionaryArray::<Int8Type>::new(Int8Array::from(vec![0]), values);
    let nested = |levels| (1..levels).fold(codes(Arc::new(Int8Array::from(vec![1]))), |deep, _| codes(Arc::new(deep)));
    let deepest = nested(64);
    import_edited(&deepest, &field("x", deepest.data_type().clone()), |_| ()).0.unwrap();
    assert_array_refused(&nested(65), |_| (), &["64 levels"]);
}

#[test]
fn children_that_were_released_are_refused() {
    for array in [&with_nulls(&list(DataType::Int8, 2)) as &dyn Array, &rows(), &lists()] {
        // A copy, so that the parent still releases its child.
        let mut child = None;
        let edit = |array: &mut ArrowArray| {
            // SAFETY: the child lives; the copy is not released.
            let mut copy = unsafe { (&raw const *child_of(array, 0)).read() };
            copy.release = None;
            // SAFETY: the helper's array of children has an entry, and `child` outlives the import.
            unsafe { array.children.write(child.insert(copy)) };
        };
        assert_array_refused(array, edit, &["released or moved away"]);
    }
    let dictionary: DictionaryArray<Int8Type> = ["a", "b"].into_iter().collect();
    let mut values = None;
    let edit = |array: &mut ArrowArray| {
        // SAFETY: the dictionary lives; the copy is not released.
        let mut copy = unsafe { array.dictionary.read() };
        copy.release = None;
        array.dictionary = values.insert(copy);
    };
    assert_array_refused(&dictionary, edit, &["released or moved away"]);
}

#[test]
fn views_have_a_buffer_with_sizes_behind_their_own() {
    let long = "a string that is too long to be inlined";
    for array in [&StringViewArray::from(vec![long]) as &dyn Array, &StringViewArray::from(vec!["short"])] {
        for buffers in [0, 1, 2, 1 << 31, i64::MAX] {
            assert_array_refused(array, |array| array.n_buffers = buffers, &["ArrowArray.n_buffers"]);
        }
    }
}

#[test]
fn the_null_type_may_have_one_buffer_and_a_null_pointer_to_none() {
    let nulls = NullArray::new(3);
    let own = field("x", DataType::Null);
    let mut bitmap: *const c_void = null();
    let one_buffer = |array: &mut ArrowArray| (array.n_buffers, array.buffers) = (1, &raw mut bitmap);
    let imported = import_edited(&nulls, &own, one_buffer).0.unwrap();
    assert_eq!((imported.len(), imported.to_arrow().unwrap().len()), (3, 3));
    // A slice may keep the null count of the whole.
    let shorter = import_edited(&nulls, &own, |array| (array.length, array.null_count) = (2, 3)).0.unwrap();
    assert_eq!(shorter.to_arrow().unwrap().len(), 2);
    assert_eq!(import_edited(&nulls, &own, |array| array.buffers = null_mut()).0.unwrap().len(), 3);
    assert_array_refused(&nulls, |array| array.n_buffers = 2, &["ArrowArray.n_buffers"]);
}

#[test]
fn null_counts_that_lie_are_not_believed() {
    let array = Int32Array::from(vec![Some(1), None, Some(3), None]);
    for (claimed, nulls) in [(1, 2), (4, 2), (-1, 2)] {
        let (imported, released) =
            import_edited(&array, &field("x", DataType::Int32), |array| array.null_count = claimed);
        let imported = imported.unwrap();
        let error = Conversion::default().to_tensor(&imported).unwrap_err();
        assert_eq!((error.kind(), error.row()), (ErrorKind::Null, Some(1)), "{error}");
        let kept = Conversion::default().nulls(NullPolicy::Keep).to_tensor(&imported).unwrap();
        assert_eq!(kept.as_slice::<i32>().unwrap()[2], 3);
        match imported.to_arrow() {
            Ok(arrow) => assert_eq!(arrow.null_count(), nulls),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid),
        }
        drop((imported, kept));
        assert_eq!(released.get(), 1);
    }
}

#[test]
fn a_schema_and_an_array_that_disagree_are_refused() {
    let array = Int32Array::from(vec![1, 2]);
    for data_type in [
        DataType::Utf8,
        DataType::Null,
        DataType::Struct([Arc::new(Field::new("a", DataType::Int32, true))].into()),
        list(DataType::Int32, 1),
        DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Int32)),
    ] {
        let (outcome, released) = import_edited(&array, &field("x", data_type.clone()), |_| ());
        assert!(outcome.is_err(), "{data_type}");
        assert_eq!(released.get(), 1);
    }
}
