//! Checks an `ArrowArray` against its type on import: counts, lengths, pointers that may not be NULL, sizes that would
//! overflow. Reads only the structs, never a buffer, so it serves device memory too.

use std::ffi::c_void;

use arrow_schema::{DataType, Field, FieldRef, UnionMode};
use smallvec::{SmallVec, smallvec};

use super::foreign::{MAX_DEPTH, buffer, child, foreign, foreign_entry};
use crate::alloc::is_addressable;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ffi::arrow_device::ArrowArray;
use crate::spec::item_of_lists;
use crate::stream_order::check_host;

/// What a buffer holds, which determines its size.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Buffer {
    /// A bit per slot; NULL if there are no nulls.
    Validity,
    /// A bit a slot.
    Bits,
    /// So many bytes a slot.
    Width(usize),
    /// So many bytes a slot and one more.
    Offsets(usize),
    /// A size that only other buffers tell.
    Data,
}

/// Returns the buffers of a type, in order. View types have variadic buffers after them.
pub(super) fn buffers_of(data_type: &DataType) -> SmallVec<[Buffer; 3]> {
    use Buffer::{Bits, Data, Offsets, Validity, Width};
    match data_type {
        DataType::Null | DataType::RunEndEncoded(_, _) => smallvec![],
        DataType::Boolean => smallvec![Validity, Bits],
        DataType::Utf8 | DataType::Binary => smallvec![Validity, Offsets(4), Data],
        DataType::LargeUtf8 | DataType::LargeBinary => smallvec![Validity, Offsets(8), Data],
        DataType::Utf8View | DataType::BinaryView => smallvec![Validity, Width(16)],
        DataType::List(_) | DataType::Map(_, _) => smallvec![Validity, Offsets(4)],
        DataType::LargeList(_) => smallvec![Validity, Offsets(8)],
        DataType::ListView(_) => smallvec![Validity, Width(4), Width(4)],
        DataType::LargeListView(_) => smallvec![Validity, Width(8), Width(8)],
        DataType::FixedSizeList(_, _) | DataType::Struct(_) => smallvec![Validity],
        DataType::Union(_, UnionMode::Sparse) => smallvec![Width(1)],
        DataType::Union(_, UnionMode::Dense) => smallvec![Width(1), Width(4)],
        DataType::FixedSizeBinary(width) => smallvec![Validity, Width(usize::try_from(*width).unwrap_or(0))],
        DataType::Dictionary(indices, _) => smallvec![Validity, Width(indices.primitive_width().unwrap_or(0))],
        other => smallvec![Validity, Width(other.primitive_width().unwrap_or(0))],
    }
}

/// Returns whether the first buffer of a type is a validity bitmap.
pub(super) fn has_validity(data_type: &DataType) -> bool {
    !matches!(data_type, DataType::Null | DataType::RunEndEncoded(_, _) | DataType::Union(_, _))
}

/// Checks an array of this field with its children and dictionary.
///
/// # Errors
/// If the struct breaks the C data interface. Names the field and the member.
///
/// # Safety
/// - `pointers`: `buffers` and `children`, unless NULL or misaligned, have the lengths that the struct gives.
/// - `nested`: each child and the dictionary is NULL, misaligned, or a live struct for which all this holds.
/// - Nobody changes any of it during the call.
pub(super) unsafe fn check(field: &Field, array: &ArrowArray) -> Result<()> {
    // SAFETY: `pointers` and `nested` are promised, in the same words.
    unsafe { check_at(field.data_type(), array, 0) }.map_err(|error| error.in_column(field.name()))
}

/// # Safety
/// As [`check`].
unsafe fn check_at(data_type: &DataType, array: &ArrowArray, depth: usize) -> Result<()> {
    if array.release.is_none() {
        return Err(Error::invalid("the ArrowArray was released or moved away"));
    }
    if depth > MAX_DEPTH {
        return Err(Error::unsupported(format!("ArrowArray nested deeper than {MAX_DEPTH} levels")));
    }
    // SAFETY: `pointers` is promised for this array.
    if unsafe { is_plain(data_type, array) } {
        return Ok(());
    }
    // SAFETY: `pointers` and `nested` are promised, in the same words.
    unsafe { check_parts(data_type, array, depth) }
}

/// # Safety
/// As [`check`].
unsafe fn check_parts(data_type: &DataType, array: &ArrowArray, depth: usize) -> Result<()> {
    let end = check_counts(data_type, array)?;
    // SAFETY: `pointers` is promised, and `check_counts` has compared `n_buffers` with the type.
    unsafe { check_buffers(data_type, array, end) }?;
    // SAFETY: `pointers` and `nested` are promised, and `check_counts` has compared `n_children` with the type.
    unsafe { check_children(data_type, array, end, depth) }
}

/// Returns whether an array is a valid array of plain numbers: the fast path of the checks below.
///
/// # Safety
/// As [`check`].
#[inline]
unsafe fn is_plain(data_type: &DataType, array: &ArrowArray) -> bool {
    let Some(dtype) = DType::of_arrow(data_type) else { return false };
    let whole = array.n_buffers == 2
        && array.n_children == 0
        && array.dictionary.is_null()
        && (-1..=array.length).contains(&array.null_count);
    let end = usize::try_from(array.offset).ok().zip(usize::try_from(array.length).ok());
    let bytes = end
        .and_then(|(offset, length)| offset.checked_add(length).filter(|end| i64::try_from(*end).is_ok()))
        .and_then(|end| end.checked_mul(dtype.itemsize()));
    let (Some(bytes), true, false) = (bytes, whole && array.buffers.is_aligned(), array.buffers.is_null()) else {
        return false;
    };
    // SAFETY: `pointers`: `n_buffers` is 2, and `buffers` is neither NULL nor misaligned, so it has two entries.
    let [validity, values]: [*const c_void; 2] = unsafe { array.buffers.cast::<[_; 2]>().read() };
    // A bit needs no more room than a number.
    is_addressable(validity.addr(), bytes)
        && is_addressable(values.addr(), bytes)
        && (array.length == 0 || (!values.is_null() && (array.null_count <= 0 || !validity.is_null())))
}

/// Checks the integers of the struct; returns `offset + length`.
fn check_counts(data_type: &DataType, array: &ArrowArray) -> Result<usize> {
    let ArrowArray { length, null_count, offset, n_buffers, n_children, .. } = *array;
    let negative = |name: &str, value: i64| Error::invalid(format!("ArrowArray.{name} is {value}"));
    usize::try_from(length).map_err(|_| negative("length", length))?;
    usize::try_from(offset).map_err(|_| negative("offset", offset))?;
    if null_count < -1 || (null_count > length && *data_type != DataType::Null) {
        return Err(Error::invalid(format!("ArrowArray.null_count is {null_count} of {length}")));
    }
    let expected = buffers_of(data_type).len();
    let buffers = usize::try_from(n_buffers).map_err(|_| negative("n_buffers", n_buffers))?;
    let fits = match data_type {
        // The null type once had a validity buffer, which some producers still export.
        DataType::Null => buffers <= 1,
        // Variadic buffers follow, which views index by an int32, and then a buffer with their sizes.
        DataType::Utf8View | DataType::BinaryView => buffers > expected && i32::try_from(buffers).is_ok(),
        _ => buffers == expected,
    };
    if !fits {
        let expected = match data_type {
            DataType::Utf8View | DataType::BinaryView => format!("{} or more", expected + 1),
            _ => expected.to_string(),
        };
        return Err(Error::invalid(format!("ArrowArray.n_buffers is {n_buffers}, and {data_type} has {expected}")));
    }
    let expected = children_of(data_type).len();
    if usize::try_from(n_children) != Ok(expected) {
        return Err(Error::invalid(format!("ArrowArray.n_children is {n_children}, and {data_type} has {expected}")));
    }
    offset
        .checked_add(length)
        .and_then(|end| usize::try_from(end).ok())
        .ok_or_else(|| Error::invalid(format!("ArrowArray.offset {offset} + length {length} overflows")))
}

/// # Safety
/// As [`check`]; [`check_counts`] accepted the array.
unsafe fn check_buffers(data_type: &DataType, array: &ArrowArray, end: usize) -> Result<()> {
    let buffers = buffers_of(data_type);
    // The null type has no buffers, and some producers export one.
    if array.n_buffers == 0 {
        return Ok(());
    }
    // SAFETY: `pointers`: unless NULL or misaligned, it has `n_buffers` entries, of which there is at least one.
    unsafe { foreign(array.buffers, "ArrowArray.buffers") }?;
    for (index, buffer) in buffers.iter().enumerate() {
        // SAFETY: `check_counts` found at least as many buffers as the type has.
        let entry = unsafe { array.buffers.add(index) };
        // SAFETY: inside the array, which is initialised and, by `foreign`, aligned.
        let start: *const c_void = unsafe { entry.read() };
        let bytes = match buffer {
            Buffer::Validity | Buffer::Bits => Some(end.div_ceil(8)),
            Buffer::Width(width) => end.checked_mul(*width),
            Buffer::Offsets(width) => end.checked_add(1).and_then(|slots| slots.checked_mul(*width)),
            Buffer::Data => Some(0),
        };
        let bytes = bytes
            .filter(|bytes| is_addressable(start.addr(), *bytes))
            .ok_or_else(|| Error::invalid(format!("buffer {index} of {end} slots reaches beyond the address space")))?;
        let may_be_null = match buffer {
            Buffer::Validity => array.null_count <= 0,
            _ => bytes == 0 || array.length == 0,
        };
        if start.is_null() && !may_be_null {
            return Err(Error::invalid(format!(
                "buffer {index} of {data_type} is NULL, and the array has {end} slots"
            )));
        }
    }
    Ok(())
}

/// # Safety
/// As [`check`]; [`check_counts`] accepted the array.
unsafe fn check_children(data_type: &DataType, array: &ArrowArray, end: usize, depth: usize) -> Result<()> {
    for (index, child_field) in children_of(data_type).iter().enumerate() {
        // SAFETY: `pointers`: `children` has `n_children` entries, as many as the type, by `check_counts`.
        let child = unsafe { foreign_entry(array.children, index, "ArrowArray.children") }?;
        // SAFETY: `nested`: all clauses hold for a child too.
        unsafe { check_at(child_field.data_type(), child, depth + 1) }
            .map_err(|error| error.in_column(child_field.name()))?;
        let needed = match data_type {
            DataType::Struct(_) | DataType::Union(_, UnionMode::Sparse) => Some(end),
            DataType::FixedSizeList(_, size) => usize::try_from(*size).ok().and_then(|size| end.checked_mul(size)),
            _ => Some(0),
        };
        let long_enough = needed.is_some_and(|needed| usize::try_from(child.length).is_ok_and(|have| have >= needed));
        if !long_enough {
            return Err(Error::invalid(format!(
                "the child has {} slots, and {end} slots of {data_type} need more",
                child.length
            ))
            .in_column(child_field.name()));
        }
    }
    let dictionary = if let DataType::Dictionary(_, values) = data_type { Some(values) } else { None };
    match (dictionary, array.dictionary.is_null()) {
        (None, true) => Ok(()),
        (None, false) => Err(Error::invalid(format!("ArrowArray.dictionary is set, and {data_type} has none"))),
        (Some(values), _) => {
            // SAFETY: `nested`: NULL, misaligned or a live array.
            let dictionary = unsafe { foreign(array.dictionary.cast_const(), "ArrowArray.dictionary") }?;
            // SAFETY: `nested`: all clauses hold for the dictionary too.
            unsafe { check_at(values, dictionary, depth + 1) }
        }
    }
}

/// Refuses host memory that belongs to a device, under `ARROW_DLPACK_CHECK`.
///
/// # Errors
/// Names the field.
pub(super) fn check_addresses(data_type: &DataType, array: &ArrowArray) -> Result<()> {
    let buffers = usize::try_from(array.n_buffers).unwrap_or(0);
    (0..buffers).try_for_each(|index| check_host(buffer(array, index).map_or(0, <*const u8>::addr)))?;
    for (index, field) in children_of(data_type).iter().enumerate() {
        let child = child(array, index)?;
        check_addresses(field.data_type(), child).map_err(|error| error.in_column(field.name()))?;
    }
    // SAFETY: `check` accepted the array: a live dictionary where the type has one.
    match (data_type, unsafe { array.dictionary.as_ref() }) {
        (DataType::Dictionary(_, values), Some(dictionary)) => check_addresses(values, dictionary),
        _ => Ok(()),
    }
}

/// Checks the sizes that arrow-rs reads from host buffers before it validates anything: the last offset of strings and
/// bytes, and the sizes of view buffers.
///
/// # Errors
/// If a size is negative, leaves the address space, or cannot be read in place.
///
/// # Safety
/// [`check`] accepted the array for this type, and its buffers are host memory.
pub(super) unsafe fn check_sizes(data_type: &DataType, array: &ArrowArray) -> Result<()> {
    let end = usize::try_from(array.offset.saturating_add(array.length)).unwrap_or(0);
    if array.length > 0 && matches!(data_type, DataType::Utf8 | DataType::Binary) {
        // SAFETY: `check` found a buffer of `end + 1` offsets in these types, which is host memory, so that entry `end`
        // is there.
        unsafe { check_size::<i32>(data_type, array, (1, end), 2) }?;
    } else if array.length > 0 && matches!(data_type, DataType::LargeUtf8 | DataType::LargeBinary) {
        // SAFETY: `check` found a buffer of `end + 1` offsets in these types, which is host memory, so that entry `end`
        // is there.
        unsafe { check_size::<i64>(data_type, array, (1, end), 2) }?;
    }
    if let DataType::Utf8View | DataType::BinaryView = data_type {
        // Read for arrays without rows too.
        // SAFETY: `check` accepted the array of views, and its buffers are host memory.
        unsafe { view_sizes(data_type, array) }?;
    }
    for (index, field) in children_of(data_type).iter().enumerate() {
        let child = child(array, index)?;
        // SAFETY: `check` accepted the children with their parent, and their buffers are host memory too.
        unsafe { check_sizes(field.data_type(), child) }.map_err(|error| error.in_column(field.name()))?;
    }
    match data_type {
        DataType::Dictionary(_, values) => {
            // SAFETY: `check` accepted the dictionary: a live array.
            let dictionary = unsafe { foreign(array.dictionary.cast_const(), "ArrowArray.dictionary") }?;
            // SAFETY: `check` accepted the dictionary with its parent, and its buffers are host memory too.
            unsafe { check_sizes(values, dictionary) }
        }
        _ => Ok(()),
    }
}

/// Returns the sizes of a view array's data buffers, each read once and checked.
///
/// # Errors
/// If the sizes are missing, or a size is impossible.
///
/// # Safety
/// As [`check_sizes`], of an array of this type, one of string or binary views.
pub(super) unsafe fn view_sizes(data_type: &DataType, array: &ArrowArray) -> Result<Vec<usize>> {
    let sizes = usize::try_from(array.n_buffers).unwrap_or(0).saturating_sub(1);
    let size = |index: usize| {
        // SAFETY: the last buffer, number `sizes`, has a size for each buffer between the views and itself, and is host
        // memory.
        unsafe { check_size::<i64>(data_type, array, (sizes, index - 2), index) }
    };
    (2..sizes).map(size).collect()
}

/// Checks the size of buffer `sized`, which is entry `at.1` of buffer `at.0`, and returns it.
///
/// # Safety
/// The entry `at.1` is in buffer `at.0`, which is host memory, unless that buffer is NULL or misaligned.
unsafe fn check_size<T: Copy + TryInto<usize> + std::fmt::Display>(
    data_type: &DataType,
    array: &ArrowArray,
    at: (usize, usize),
    sized: usize,
) -> Result<usize> {
    let start = |index| buffer(array, index).unwrap_or(std::ptr::null());
    let sizes = start(at.0).cast::<T>();
    if sizes.is_null() || !sizes.is_aligned() {
        let what = if sizes.is_null() { "NULL" } else { "not aligned" };
        return Err(Error::invalid(format!("buffer {} of {data_type} is {what}", at.0)));
    }
    if !is_addressable(sizes.addr(), at.1.saturating_add(1).saturating_mul(size_of::<T>())) {
        return Err(Error::invalid(format!("buffer {} of {data_type} reaches beyond the address space", at.0)));
    }
    // SAFETY: the buffer is neither NULL nor misaligned, so it has entry `at.1`.
    let entry = unsafe { sizes.add(at.1) };
    // SAFETY: the entry is inside host memory, and aligned as the start is.
    let size = unsafe { entry.read() };
    let bytes = size.try_into().ok().filter(|bytes| is_addressable(start(sized).addr(), *bytes));
    bytes.ok_or_else(|| {
        Error::invalid(format!("buffer {} of {data_type} gives buffer {sized} a size of {size} bytes", at.0))
    })
}

/// Returns the types of an array's children, and of a dictionary's values.
pub(crate) fn child_types(data_type: &DataType) -> Vec<&DataType> {
    match data_type {
        DataType::Dictionary(_, values) => vec![values],
        other => children_of(other).iter().map(|child| child.data_type()).collect(),
    }
}

/// Returns whether a type, or one inside it at any level, is what `is_found` looks for.
pub(crate) fn has_type(data_type: &DataType, is_found: &impl Fn(&DataType) -> bool) -> bool {
    is_found(data_type) || child_types(data_type).into_iter().any(|child| has_type(child, is_found))
}

/// Returns the child fields of a type, in the order of `ArrowArray.children`.
pub(super) fn children_of(data_type: &DataType) -> SmallVec<[&FieldRef; 1]> {
    match data_type {
        DataType::FixedSizeList(child, _) | DataType::Map(child, _) => smallvec![child],
        DataType::Struct(fields) => fields.iter().collect(),
        DataType::Union(fields, _) => fields.iter().map(|(_, field)| field).collect(),
        DataType::RunEndEncoded(run_ends, values) => smallvec![run_ends, values],
        other => item_of_lists(other).map_or_else(SmallVec::new, |item| smallvec![item]),
    }
}

/// Returns whether one type is a plain integer and the other a count in that integer, such as days: their arrays are
/// interchangeable.
pub(crate) fn counts_in(one: &DataType, other: &DataType) -> bool {
    let stored = DType::of_arrow(one);
    stored.is_some()
        && stored == DType::of_arrow(other)
        && [one, other]
            .into_iter()
            .filter(|data_type| stored.and_then(DType::to_arrow).as_ref() == Some(data_type))
            .count()
            == 1
}

/// Returns whether arrays of both types have the same buffers: they differ at most in names, nullability and metadata.
pub(crate) fn same_layout(one: &DataType, other: &DataType) -> bool {
    let (children, others) = (children_of(one), children_of(other));
    if children.is_empty() || children.len() != others.len() {
        return one == other;
    }
    let same_kind = match (one, other) {
        (DataType::FixedSizeList(_, size), DataType::FixedSizeList(_, other)) => size == other,
        (DataType::Map(_, sorted), DataType::Map(_, other)) => sorted == other,
        (DataType::Union(fields, mode), DataType::Union(others, other)) => {
            mode == other && fields.iter().map(|(id, _)| id).eq(others.iter().map(|(id, _)| id))
        }
        _ => std::mem::discriminant(one) == std::mem::discriminant(other),
    };
    same_kind && children.iter().zip(&others).all(|(one, other)| same_layout(one.data_type(), other.data_type()))
}

#[cfg(test)]
mod tests {
    use std::ptr::{null, null_mut, without_provenance, without_provenance_mut};
    use std::sync::Arc;

    use arrow_schema::UnionFields;

    use super::*;

    /// Returns an array of int32 with these two buffers, which nobody reads here.
    fn ints(buffers: &mut [*const c_void; 2]) -> ArrowArray {
        let buffers = buffers.as_mut_ptr();
        ArrowArray { length: 4, n_buffers: 2, buffers, ..ArrowArray::empty() }
    }

    #[test]
    fn what_is_taken_for_plain_is_what_passes_the_whole_check() {
        let mut plain = 0;
        let addresses = [null(), without_provenance(64), without_provenance(usize::MAX - 8)];
        for validity in addresses {
            for values in addresses {
                for (length, offset) in
                    [(0, 0), (4, 0), (4, 3), (-1, 0), (4, -1), (4, i64::MAX), (i64::MAX, 0), (1 << 60, 0)]
                {
                    for null_count in [-2, -1, 0, 1, 4, 5] {
                        for edit in 0..6 {
                            // Miri takes minutes for all of them: with an edit, only the array that is plain without it.
                            if cfg!(miri) && edit > 0 && (length, offset, null_count) != (4, 0, 0) {
                                continue;
                            }
                            let mut buffers = [validity, values];
                            let mut array = ints(&mut buffers);
                            (array.length, array.offset, array.null_count) = (length, offset, null_count);
                            match edit {
                                0 => {}
                                1 => array.n_buffers = 1,
                                2 => array.n_children = 1,
                                3 => array.dictionary = without_provenance_mut(64),
                                4 => array.buffers = null_mut(),
                                _ => array.buffers = array.buffers.wrapping_byte_add(1),
                            }
                            // SAFETY: two buffers where the pointer to them can be one.
                            let whole = unsafe { check_parts(&DataType::Int32, &array, 0) };
                            // SAFETY: two buffers where the pointer to them can be one.
                            let taken = unsafe { is_plain(&DataType::Int32, &array) };
                            assert_eq!(taken, whole.is_ok(), "{array:?} {buffers:?} {whole:?}");
                            plain += usize::from(taken);
                        }
                    }
                }
            }
        }
        // No rows need no buffers: 2 * 2 addresses, 2 counts. 4 rows, at either offset, need values, and a bitmap for nulls.
        assert_eq!(plain, 8 + 2 * (2 + 4));
    }

    #[test]
    fn layouts_are_the_same_whatever_names_say_and_not_whatever_kinds_say() {
        let item = |name: &str, data_type| Arc::new(Field::new(name, data_type, name == "a"));
        let entries =
            |name: &str| item(name, DataType::Struct([item("k", DataType::Int8), item("v", DataType::Int8)].into()));
        let union = |ids: [i8; 2], mode| {
            let fields = [Field::new("a", DataType::Int8, true), Field::new("b", DataType::Int16, true)];
            DataType::Union(UnionFields::try_new(ids, fields).unwrap(), mode)
        };
        let list = |name: &str, size| DataType::FixedSizeList(item(name, DataType::Int8), size);
        let same = [
            (list("a", 2), list("b", 2)),
            (DataType::Map(entries("a"), false), DataType::Map(entries("b"), false)),
            (union([0, 1], UnionMode::Dense), union([0, 1], UnionMode::Dense)),
        ];
        for (one, other) in same {
            assert!(same_layout(&one, &other), "{one} {other}");
        }
        let others = [
            (list("a", 2), list("a", 3)),
            (list("a", 2), DataType::List(item("a", DataType::Int8))),
            (DataType::List(item("a", DataType::Int8)), DataType::List(item("a", DataType::Int16))),
            (DataType::Map(entries("a"), false), DataType::Map(entries("a"), true)),
            (union([0, 1], UnionMode::Dense), union([0, 1], UnionMode::Sparse)),
            (union([0, 1], UnionMode::Sparse), union([0, 2], UnionMode::Sparse)),
            (DataType::Int8, DataType::UInt8),
        ];
        for (one, other) in others {
            assert!(!same_layout(&one, &other) && !same_layout(&other, &one), "{one} {other}");
        }
    }
}
