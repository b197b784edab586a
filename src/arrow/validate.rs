//! Validates the arrays that are given to and come from arrow-rs, which refuses some valid arrays, and whose
//! allocations of claimed sizes end the process if they fail.

use arrow_buffer::ArrowNativeType;
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType};

use super::check::{Buffer, buffers_of, children_of};
use super::node::ArrayNode;
use super::strict_children::{check_hidden_nulls, check_shown_nulls, check_viewed_nulls, offsets, refused};
use super::validated::{Checked, Validated};
use crate::alloc::fallible;
use crate::error::Result;

/// The one offset of an array without rows.
static NO_ROWS: u64 = 0;

/// Prepares a node of this type for arrow-rs, which copies buffers that are not aligned, but reads the last offset of strings
/// and bytes before that: returns aligned copies of such offsets, which the node then refers to.
///
/// # Errors
/// If memory for the copies cannot be allocated.
///
/// # Safety
/// The node is over host memory of an array that import has checked for this type, or over a range of it.
pub(super) unsafe fn prepare(data_type: &DataType, node: &mut ArrayNode) -> Result<Vec<Vec<u64>>> {
    let mut copies = Vec::new();
    // SAFETY: promised in the same words.
    unsafe { align_offsets(data_type, node, &mut copies) }?;
    fallible::require(misaligned(data_type, node))?;
    Ok(copies)
}

/// Copies the offsets of strings and bytes that are not aligned.
///
/// # Safety
/// As [`prepare`].
unsafe fn align_offsets(data_type: &DataType, node: &mut ArrayNode, copies: &mut Vec<Vec<u64>>) -> Result<()> {
    let width = match data_type {
        DataType::Utf8 | DataType::Binary => 4,
        DataType::LargeUtf8 | DataType::LargeBinary => 8,
        _ => 0,
    };
    // Without rows, no offset is read.
    let has_offsets = width > 0 && node.length > 0;
    if let Some(start) = node.buffers.get_mut(1).filter(|start| has_offsets && is_misaligned(**start, width)) {
        let bytes = node.offset.saturating_add(node.length).saturating_add(1).saturating_mul(width);
        let mut copy = fallible::filled(bytes.div_ceil(8), 0_u64)?;
        // SAFETY: import checked that the array has an offset for each slot and one more, so that the product fits the
        // address space, and the memory is the host's. The copy is fresh, and has as many bytes.
        unsafe { copy.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(*start, bytes) };
        *start = copy.as_ptr().cast();
        fallible::push(copies, copy)?;
    }
    let values = if let DataType::Dictionary(_, values) = data_type { Some(values.as_ref()) } else { None };
    let fields = children_of(data_type);
    let types = fields.iter().map(|field| field.data_type());
    let parts = node.children.iter_mut().zip(types).chain(node.dictionary.as_deref_mut().zip(values));
    for (node, data_type) in parts {
        // SAFETY: import has checked children and the dictionary with their parent, and their buffers are host memory too.
        unsafe { align_offsets(data_type, node, copies) }?;
    }
    Ok(())
}

/// Replaces the offsets of arrays without rows, leaves out the buffers of nulls, and counts the bytes of buffers that are not aligned.
fn misaligned(data_type: &DataType, node: &mut ArrayNode) -> usize {
    let kinds = buffers_of(data_type);
    if *data_type == DataType::Null {
        // Polars exports the bitmap that the type does not have, as NULL; arrow-rs refuses it.
        node.buffers.clear();
    }
    if node.length == 0 && kinds.iter().any(|kind| matches!(kind, Buffer::Offsets(_))) {
        // arrow-rs expects an array without rows to have no bytes, and refuses any other first offset.
        node.offset = 0;
        for (start, _) in node.buffers.iter_mut().zip(&kinds).filter(|(_, kind)| matches!(kind, Buffer::Offsets(_))) {
            *start = (&raw const NO_ROWS).cast();
        }
    }
    let slots = node.offset.saturating_add(node.length);
    let sizes = node.buffers.iter().zip(&kinds).map(|(start, kind)| match *kind {
        Buffer::Width(width) if is_misaligned(*start, width) => slots.saturating_mul(width),
        Buffer::Offsets(width) if is_misaligned(*start, width) => slots.saturating_add(1).saturating_mul(width),
        _ => 0,
    });
    let own = sizes.fold(0, usize::saturating_add);
    let values = if let DataType::Dictionary(_, values) = data_type { Some(values.as_ref()) } else { None };
    let fields = children_of(data_type);
    let types = fields.iter().map(|field| field.data_type());
    let parts = node.children.iter_mut().zip(types).chain(node.dictionary.as_deref_mut().zip(values));
    parts.fold(own, |all, (node, data_type)| all.saturating_add(misaligned(data_type, node)))
}

/// Returns whether values of this size can need another alignment.
fn is_misaligned(start: *const u8, width: usize) -> bool {
    width.is_power_of_two() && !start.addr().is_multiple_of(width.min(16))
}

/// Refuses an array if its bitmaps do not fit memory: arrow-rs copies those that start at another bit than the array.
///
/// # Errors
/// If memory for the copies cannot be allocated.
pub(super) fn require_bitmaps(data: &ArrayData) -> Result<()> {
    fn bytes(data: &ArrayData) -> usize {
        let own = match data.nulls() {
            Some(nulls) if nulls.offset() != data.offset() => data.offset().saturating_add(data.len()).div_ceil(8),
            _ => 0,
        };
        data.child_data().iter().map(bytes).fold(own, usize::saturating_add)
    }
    fallible::require(bytes(data))
}

/// Refuses an array if a few bits per value do not fit memory: to find nulls, arrow-rs allocates them for all values
/// that codes, runs and unions stand for, which may outnumber the stored ones.
///
/// # Errors
/// When the allocation fails.
pub(super) fn require_logical_nulls(data: &ArrayData) -> Result<()> {
    fn bytes(data: &ArrayData) -> usize {
        data.child_data().iter().map(bytes).fold(data.len().div_ceil(8), usize::saturating_add)
    }
    fallible::require(bytes(data).saturating_mul(2))
}

/// Validates an array and its descendants, contents included, like [`ArrayData::validate_full`]. That function writes a
/// bit for each item of fixed-size lists that must not be null, and reads a child's slots as if its parent's offset
/// were 0.
///
/// # Errors
/// If the array breaks the Arrow format.
pub(crate) fn validate(data: &ArrayData) -> std::result::Result<(), ArrowError> {
    validate_new(data, &Validated::default())
}

/// As [`validate`], without a look at children that are `known`: slices of one array have the same ones.
pub(super) fn validate_new(data: &ArrayData, known: &Validated) -> std::result::Result<(), ArrowError> {
    data.validate()?;
    match data.data_type() {
        DataType::Struct(fields) => {
            check_null_count(data)?;
            let strict = fields.iter().zip(data.child_data()).filter(|(field, _)| !field.is_nullable());
            strict.into_iter().try_for_each(|(_, child)| check_hidden_nulls(data, child, 1))?;
        }
        DataType::FixedSizeList(item, size) => {
            check_null_count(data)?;
            let size = usize::try_from(*size).map_err(|_| refused(data, "has lists of negative size"))?;
            let strict = data.child_data().iter().filter(|_| !item.is_nullable());
            strict.into_iter().try_for_each(|child| check_hidden_nulls(data, child, size))?;
        }
        DataType::List(_) | DataType::LargeList(_) | DataType::Map(_, _) => check_null_count(data)?,
        _ => data.validate_nulls()?,
    }
    match data.child_data() {
        [ends, _] if has_known_ends(data, ends, known) => {}
        [ends, _] if matches!(data.data_type(), DataType::RunEndEncoded(_, _)) => {
            data.validate_values()?;
            known.insert(Checked::RunEnds, ends);
        }
        _ if has_ordered_offsets(data) || is_text(data) => {}
        _ => data.validate_values()?,
    }
    match (data.data_type(), data.child_data()) {
        (DataType::List(item) | DataType::Map(item, _), [items]) if !item.is_nullable() => {
            check_shown_nulls::<i32>(data, items)?;
        }
        (DataType::LargeList(item), [items]) if !item.is_nullable() => check_shown_nulls::<i64>(data, items)?,
        (DataType::ListView(item), [items]) if !item.is_nullable() => check_viewed_nulls::<i32>(data, items)?,
        (DataType::LargeListView(item), [items]) if !item.is_nullable() => check_viewed_nulls::<i64>(data, items)?,
        _ => {}
    }
    data.child_data().iter().enumerate().try_for_each(|(index, child)| {
        let of_child =
            |error| ArrowError::InvalidArgumentError(format!("{} child #{index}: {error}", data.data_type()));
        // Slices of these have children of their own: `push_down`.
        let is_own = matches!(data.data_type(), DataType::Struct(_) | DataType::FixedSizeList(_, _));
        if !is_own && known.contains(Checked::Contents, child) {
            return Ok(());
        }
        validate_new(child, known).map_err(of_child)?;
        if !is_own {
            known.insert(Checked::Contents, child);
        }
        Ok(())
    })
}

/// Returns whether the ends of an array's runs were validated, and the last one is behind its slots.
fn has_known_ends(data: &ArrayData, ends: &ArrayData, known: &Validated) -> bool {
    fn last<T: ArrowNativeType>(ends: &ArrayData) -> Option<usize> {
        let at = ends.offset().saturating_add(ends.len()).checked_sub(1)?;
        ends.buffers().first()?.typed_data::<T>().get(at)?.to_usize()
    }
    let DataType::RunEndEncoded(field, _) = data.data_type() else { return false };
    let last = match field.data_type() {
        DataType::Int16 => last::<i16>(ends),
        DataType::Int32 => last::<i32>(ends),
        _ => last::<i64>(ends),
    };
    let is_long = last.is_some_and(|last| last >= data.offset().saturating_add(data.len()));
    is_long && known.contains(Checked::RunEnds, ends)
}

/// Returns whether the type's only contents to check are offsets, and none is less than the one before it. The first and the last
/// one are valid, as [`ArrayData::validate`] has checked, so all are.
fn has_ordered_offsets(data: &ArrayData) -> bool {
    match data.data_type() {
        DataType::Binary | DataType::List(_) | DataType::Map(_, _) => offsets::<i32>(data).is_some_and(are_ordered),
        DataType::LargeBinary | DataType::LargeList(_) => offsets::<i64>(data).is_some_and(are_ordered),
        _ => false,
    }
}

/// Returns whether the values are strings, and each of them is UTF-8. Looks at the text from the first to the last offset; arrow-rs looks
/// at what lies before it, too, for each of many slices of one text.
fn is_text(data: &ArrayData) -> bool {
    fn is_text_of<T: ArrowNativeType>(data: &ArrayData) -> Option<bool> {
        let (offsets, bytes) = (offsets::<T>(data)?, data.buffers().get(1)?.as_slice());
        let (first, last) = (offsets.first()?.to_usize()?, offsets.last()?.to_usize()?);
        let text = std::str::from_utf8(bytes.get(first..last)?).ok()?;
        let starts_there = |offset: &T| text.is_char_boundary(offset.as_usize().wrapping_sub(first));
        Some(are_ordered(offsets) && offsets.iter().all(starts_there))
    }
    let found = match data.data_type() {
        DataType::Utf8 => is_text_of::<i32>(data),
        DataType::LargeUtf8 => is_text_of::<i64>(data),
        _ => None,
    };
    found == Some(true)
}

fn are_ordered<T: ArrowNativeType>(offsets: &[T]) -> bool {
    // Does not stop at a decrease, so that the compiler vectorises the loop.
    offsets.iter().zip(offsets.iter().skip(1)).fold(true, |ordered, (start, end)| ordered & (start <= end))
}

fn check_null_count(data: &ArrayData) -> std::result::Result<(), ArrowError> {
    let is_right = data.nulls().is_none_or(|nulls| nulls.null_count() == nulls.len() - nulls.inner().count_set_bits());
    if is_right { Ok(()) } else { Err(refused(data, "has another number of nulls than its null count says")) }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use arrow_array::types::Int64Type;
    use arrow_array::{Array, FixedSizeListArray, Int32Array, Int64Array, RunArray, StructArray};
    use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
    use arrow_schema::{Field, Fields};

    use super::*;

    /// Returns rows of `size` numbers that must not be null, as the C data interface allows: an offset, and a whole
    /// child.
    fn rows(valid: &[bool], child: ArrayData, size: i32, offset: usize) -> ArrayData {
        let field = Arc::new(Field::new("item", child.data_type().clone(), false));
        let data_type =
            if size == 0 { DataType::Struct(vec![field].into()) } else { DataType::FixedSizeList(field, size) };
        let nulls = NullBuffer::from(valid.to_vec()).slice(offset, valid.len() - offset);
        let data = ArrayData::builder(data_type).len(valid.len() - offset).offset(offset).nulls(Some(nulls));
        // SAFETY: the child has as many slots as the rows need.
        unsafe { data.add_child_data(child).build_unchecked() }
    }

    #[test]
    fn nulls_of_strict_children_lie_in_null_rows() {
        let values = |nulls: &[usize]| {
            Int32Array::from_iter((0..6).map(|value| (!nulls.contains(&value)).then_some(0))).to_data()
        };
        for offset in 0..3 {
            for (size, nulls, is_valid) in [
                (2, &[0, 1][..], true),
                (2, &[1][..], true),
                (2, &[2][..], offset > 1),
                (2, &[0, 5][..], false),
                (0, &[0][..], true),
                (0, &[0, 1][..], offset > 1),
                (0, &[2][..], false),
                // No row shows it.
                (0, &[5][..], true),
            ] {
                let data = rows(&[false, true, true], values(nulls), size, offset);
                assert_eq!(validate(&data).is_ok(), is_valid, "{size} {nulls:?} {offset}");
            }
        }
        let wrong = NullBuffer::new(BooleanBuffer::new_unset(3));
        // SAFETY: the bitmap has a bit for each of the three rows; nothing reads memory by its wrong count of nulls.
        let wrong = unsafe { NullBuffer::new_unchecked(wrong.into_inner(), 1) };
        let data = rows(&[true; 3], values(&[]), 2, 0).into_builder().nulls(Some(wrong));
        // SAFETY: buffers and children have the slots that the rows need; nothing reads memory by the wrong count of nulls.
        assert!(validate(&unsafe { data.build_unchecked() }).is_err());
    }

    #[test]
    fn slices_of_one_array_validate_its_children_once() {
        let runs = |ends: Vec<i64>| {
            let of = DataType::RunEndEncoded(
                Arc::new(Field::new("run_ends", DataType::Int64, false)),
                Arc::new(Field::new("values", DataType::Utf8, true)),
            );
            let values = ArrayData::builder(DataType::Utf8).len(2).add_buffer(Buffer::from_vec(vec![0_i32, 1, 2]));
            // SAFETY: two strings of a byte each, which is no UTF-8; nothing reads them as text.
            let values = unsafe { values.add_buffer(Buffer::from_vec(vec![0xff_u8; 2])).build_unchecked() };
            let data = ArrayData::builder(of).len(3).add_child_data(Int64Array::from(ends).to_data());
            // SAFETY: two ends and two values; nothing reads the rows by ends that may decrease.
            unsafe { data.add_child_data(values).build_unchecked() }
        };
        let known = Validated::default();
        let data = runs(vec![4, 4]);
        assert!(validate_new(&data, &known).is_err());
        known.insert(Checked::RunEnds, &data.child_data()[0]);
        assert!(validate_new(&data, &known).is_err());
        known.insert(Checked::Contents, &data.child_data()[1]);
        assert!(validate_new(&data, &known).is_ok());
        let slice = |offset, length| {
            // SAFETY: two ends and two values, as the whole array has; nothing reads the rows by ends that may decrease.
            unsafe { data.clone().into_builder().offset(offset).len(length).build_unchecked() }
        };
        assert!(validate_new(&slice(1, 3), &known).is_ok());
        // Beyond the last end, and over other memory.
        assert!(validate_new(&slice(1, 4), &known).is_err());
        assert!(validate_new(&runs(vec![4, 4]), &known).is_err());
        assert!(validate(&data).is_err());
    }

    #[test]
    fn rows_are_validated_without_memory_for_their_items() {
        let size = i32::MAX;
        // Terabytes for their items, even of the rows that Miri takes seconds for.
        let shift = if cfg!(miri) { 10 } else { 20 };
        let items = i64::from(size) << shift;
        let runs = RunArray::<Int64Type>::try_new(&Int64Array::from(vec![items]), &Int32Array::from(vec![1])).unwrap();
        let mut valid = vec![true; 1 << shift];
        valid[7] = false;
        assert!(validate(&rows(&valid, runs.to_data(), size, 1)).is_ok());
    }

    #[test]
    fn offsets_never_decrease_and_lie_in_the_values() {
        let data = |of: &DataType, offsets: &[i64], slots: Range<usize>| {
            let is_large = matches!(of, DataType::LargeBinary | DataType::LargeList(_));
            let small: Vec<i32> = offsets.iter().map(|offset| i32::try_from(*offset).unwrap()).collect();
            let offsets = if is_large { Buffer::from_vec(offsets.to_vec()) } else { Buffer::from_vec(small) };
            let data = ArrayData::builder(of.clone()).offset(slots.start).len(slots.len()).add_buffer(offsets);
            let data = match of {
                DataType::List(_) | DataType::LargeList(_) => {
                    data.add_child_data(Int64Array::from(vec![0; 10]).to_data())
                }
                _ => data.add_buffer(Buffer::from_vec(vec![0_u8; 10])),
            };
            // SAFETY: buffers have room for the offsets; nothing reads by them but `validate`.
            unsafe { data.build_unchecked() }
        };
        let item = Arc::new(Field::new("item", DataType::Int64, true));
        let lists = [DataType::List(item.clone()), DataType::LargeList(item)];
        for of in [DataType::Binary, DataType::LargeBinary].into_iter().chain(lists) {
            let right = [0, 0, 1, 5, 5, 5, 6, 7, 10, 10, 10];
            assert!(validate(&data(&of, &right, 0..10)).is_ok());
            for at in (0..right.len()).step_by(if cfg!(miri) { 5 } else { 1 }) {
                for wrong in [-1, 11, i64::from(i32::MIN), right[at] + 6, right[at] - 6] {
                    let mut offsets = right;
                    offsets[at] = wrong;
                    let is_valid = |part: &[i64]| part.is_sorted() && part[0] >= 0 && part[part.len() - 1] <= 10;
                    for slots in [0..10, 1..10, 0..9, 3..7] {
                        let expected = is_valid(&offsets[slots.start..=slots.end]);
                        assert_eq!(validate(&data(&of, &offsets, slots)).is_ok(), expected, "{of} {offsets:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn strings_are_utf_8_in_the_slots_of_the_array() {
        let text = |of: &DataType, offsets: &[i64], slots: Range<usize>| {
            let small: Vec<i32> = offsets.iter().map(|offset| i32::try_from(*offset).unwrap()).collect();
            let is_large = *of == DataType::LargeUtf8;
            let offsets = if is_large { Buffer::from_vec(offsets.to_vec()) } else { Buffer::from_vec(small) };
            let data = ArrayData::builder(of.clone()).offset(slots.start).len(slots.len()).add_buffer(offsets);
            // A letter of two bytes at 1, and no text at 4.
            let data = data.add_buffer(Buffer::from_vec(b"a\xc3\xa9z\xffb".to_vec()));
            // SAFETY: buffers have room for the offsets; nothing reads by them but `validate`.
            validate(&unsafe { data.build_unchecked() })
        };
        for of in [DataType::Utf8, DataType::LargeUtf8] {
            for (offsets, slots, is_valid) in [
                (&[0, 1, 3, 4][..], 0..3, true),
                (&[0, 1, 1, 4], 0..3, true),
                (&[0, 2, 3, 4], 0..3, false),
                // No slot has the half of a letter, or what is no text.
                (&[0, 2, 3, 4], 2..3, true),
                (&[0, 2, 3, 4], 1..3, false),
                (&[0, 1, 3, 4, 5, 6], 0..3, true),
                (&[0, 1, 3, 4, 5, 6], 4..5, true),
                (&[0, 1, 3, 4, 5, 6], 0..5, false),
                (&[3, 1, 3], 0..2, false),
                (&[-1, 1, 3], 0..2, false),
                (&[0, 1, 7], 0..2, false),
            ] {
                assert_eq!(text(&of, offsets, slots.clone()).is_ok(), is_valid, "{of} {offsets:?} {slots:?}");
            }
        }
    }

    #[test]
    fn valid_arrays_pass_and_broken_children_do_not() {
        let child = Arc::new(Int32Array::from(vec![Some(1), None, Some(3), None]));
        let field = Arc::new(Field::new("x", DataType::Int32, true));
        let lists = FixedSizeListArray::new(field.clone(), 2, child.clone(), None);
        assert!(validate(&lists.to_data()).is_ok());
        let structs = StructArray::new(Fields::from(vec![field]), vec![child], None);
        assert!(validate(&structs.to_data().slice(1, 2)).is_ok());
        let text = ArrayData::builder(DataType::Utf8).len(1).add_buffer(Buffer::from_vec(vec![0_i32, 1]));
        // SAFETY: invalid text is what this is about.
        let text = unsafe { text.add_buffer(Buffer::from_vec(vec![0xff_u8])).build_unchecked() };
        let error = validate(&rows(&[true], text, 1, 0)).unwrap_err().to_string();
        assert!(error.contains("child #0") && error.contains("UTF8"), "{error}");
    }
}
