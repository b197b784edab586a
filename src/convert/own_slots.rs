//! Slices of nested arrays over the slots of their children that they show alone, so that no other slot counts where the children are
//! joined.

use std::ops::Range;

use arrow_buffer::{ArrowNativeType, Buffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, UnionFields, UnionMode};

use super::repeat::{child, slots};
use crate::alloc::fallible;
use crate::error::{Error, Result};

/// Makes one array of slots of arrays.
pub(super) type Join<'a> = &'a dyn Fn(&[(&ArrayData, Range<usize>)]) -> Result<Option<ArrayData>>;

/// Returns the lists over the items that they have alone.
pub(super) fn with_own_items<T: ArrowNativeType>(lists: &ArrayData) -> Result<ArrayData> {
    let broken = || Error::invalid("the offsets of a list lead out of its items");
    let stored: &[T] = lists.buffers().first().map_or(&[], |offsets| offsets.typed_data());
    let end = lists.offset().saturating_add(lists.len()).saturating_add(1);
    let offsets = stored.get(lists.offset()..end).unwrap_or(&[]);
    let first = offsets.first().map_or(0, |first| first.as_usize());
    let span = first..offsets.last().map_or(0, |last| last.as_usize());
    let items = lists.child_data().first().filter(|items| span.start <= span.end && span.end <= items.len());
    let items = with_own_fields(items.ok_or_else(broken)?.slice(span.start, span.len()))?;
    let mut own = fallible::with_room(lists.len().saturating_add(1))?;
    for offset in offsets {
        own.push(offset.as_usize().checked_sub(first).and_then(T::from_usize).ok_or_else(broken)?);
    }
    if own.is_empty() {
        own.push(T::usize_as(0));
    }
    let lists = lists.clone().into_builder().offset(0).buffers(vec![Buffer::from_vec(own)]).child_data(vec![items]);
    // SAFETY: the offsets of as many lists, each less the first one, over the items from there on.
    Ok(unsafe { lists.build_unchecked() })
}

/// Returns the fixed-size lists over the items that they have alone.
pub(super) fn with_fixed_items(lists: &ArrayData, size: usize) -> Result<ArrayData> {
    let items = with_own_fields(child(lists, size)?)?;
    // SAFETY: as many lists, over their own items from the first one on.
    Ok(unsafe { lists.clone().into_builder().offset(0).child_data(vec![items]).build_unchecked() })
}

/// Returns the list views over a copy of the items that they show, one after the other.
pub(super) fn with_shown_items<T: ArrowNativeType>(views: &ArrayData, join: Join<'_>) -> Result<ArrayData> {
    let broken = || Error::invalid("the views of a list lead out of its items");
    let items = views.child_data().first().ok_or_else(broken)?;
    let (starts, sizes) = (ints::<T>(views, 0).ok_or_else(broken)?, ints::<T>(views, 1).ok_or_else(broken)?);
    let (mut own_starts, mut own_sizes) = (fallible::with_room(views.len())?, fallible::with_room(views.len())?);
    let (mut shown, mut end) = (fallible::with_room(views.len())?, 0_usize);
    for (row, (start, size)) in starts.iter().zip(sizes).enumerate() {
        let is_null = views.nulls().is_some_and(|nulls| nulls.is_null(row));
        let (start, size) = if is_null { (0, 0) } else { (start.as_usize(), size.as_usize()) };
        let span = start..start.checked_add(size).filter(|end| *end <= items.len()).ok_or_else(broken)?;
        shown.push((items, span));
        own_starts.push(T::from_usize(end).ok_or_else(broken)?);
        own_sizes.push(T::usize_as(size));
        end = end.checked_add(size).ok_or_else(broken)?;
    }
    let shown = joined(&shown, items, join)?;
    let buffers = vec![Buffer::from_vec(own_starts), Buffer::from_vec(own_sizes)];
    let views = views.clone().into_builder().offset(0).buffers(buffers).child_data(vec![shown]);
    // SAFETY: a start and a size for each view, of its items in the copy.
    Ok(unsafe { views.build_unchecked() })
}

/// The dense union over a copy of the slots of its fields that it shows, one after the other.
pub(super) fn with_used_slots(union: &ArrayData, fields: &UnionFields, join: Join<'_>) -> Result<ArrayData> {
    let broken = || Error::invalid("a slot of a union leads to no slot of its fields");
    let (ids, places) = (ints::<i8>(union, 0).ok_or_else(broken)?, ints::<i32>(union, 1).ok_or_else(broken)?);
    let mut used: Vec<Vec<(&ArrayData, Range<usize>)>> = union.child_data().iter().map(|_| Vec::new()).collect();
    let (mut own_ids, mut own_places) = (fallible::with_room(ids.len())?, fallible::with_room(ids.len())?);
    for (id, place) in ids.iter().zip(places) {
        let field = fields.iter().position(|(known, _)| known == *id).ok_or_else(broken)?;
        let (child, used) = union.child_data().get(field).zip(used.get_mut(field)).ok_or_else(broken)?;
        let slot = usize::try_from(*place).ok().filter(|slot| *slot < child.len()).ok_or_else(broken)?;
        own_ids.push(*id);
        own_places.push(i32::try_from(used.len()).map_err(|_| broken())?);
        fallible::push(used, (child, slot..slot.saturating_add(1)))?;
    }
    let children = used.iter().zip(union.child_data()).map(|(used, child)| joined(used, child, join));
    let buffers = vec![Buffer::from_vec(own_ids), Buffer::from_vec(own_places)];
    let union = union.clone().into_builder().offset(0).buffers(buffers).child_data(fallible::collected(children)?);
    // SAFETY: the type of each slot, and its place in the copy of that field.
    Ok(unsafe { union.build_unchecked() })
}

/// The runs of the array's rows, and no others.
pub(super) fn with_own_runs<T: ArrowNativeType>(runs: &ArrayData) -> Result<ArrayData> {
    let broken = || Error::invalid("runs without ends or values");
    let [ends, values] = runs.child_data() else { return Err(broken()) };
    let (stored, last) = (slots::<T>(ends), runs.offset().saturating_add(runs.len()));
    let from = stored.partition_point(|end| end.as_usize() <= runs.offset());
    let to = stored.partition_point(|end| end.as_usize() < last).saturating_add(1).min(stored.len());
    let own = if runs.is_empty() { 0..0 } else { from..to };
    let own_ends = stored.get(own.clone()).filter(|_| own.end <= values.len()).ok_or_else(broken)?.iter().map(|end| {
        let end = end.as_usize().min(last).saturating_sub(runs.offset());
        T::from_usize(end).ok_or_else(broken)
    });
    let own_ends = Buffer::from_vec(fallible::collected(own_ends)?);
    let own_ends = ArrayData::builder(ends.data_type().clone()).len(own.len()).add_buffer(own_ends);
    // SAFETY: so many ends, which ascend as those of the source do, up to the number of rows.
    let own_ends = unsafe { own_ends.build_unchecked() };
    let values = with_own_fields(values.slice(own.start, own.len()))?;
    // SAFETY: a value for each of these ends, the last of which is the number of rows.
    Ok(unsafe { runs.clone().into_builder().offset(0).child_data(vec![own_ends, values]).build_unchecked() })
}

/// Returns these slots of a child as an array of their own.
fn joined(slots: &[(&ArrayData, Range<usize>)], items: &ArrayData, join: Join<'_>) -> Result<ArrayData> {
    join(slots)?.map_or_else(|| with_own_fields(items.slice(0, 0)), Ok)
}

/// The integers of a buffer, one for each of the array's slots.
fn ints<T: ArrowNativeType>(data: &ArrayData, buffer: usize) -> Option<&[T]> {
    let end = data.offset().checked_add(data.len())?;
    data.buffers().get(buffer)?.typed_data().get(data.offset()..end)
}

/// The array with sparse unions over the slots that they have alone: arrow-rs joins the fields of a union from their first slot on, even
/// if the union begins at another one.
pub(super) fn with_own_fields(data: ArrayData) -> Result<ArrayData> {
    let (first, count) = (data.offset(), data.len());
    match data.data_type() {
        DataType::Struct(_) => {
            let children = fallible::collected(data.child_data().iter().map(|column| with_own_fields(column.clone())))?;
            // SAFETY: the same columns, with the same values.
            Ok(unsafe { data.into_builder().child_data(children).build_unchecked() })
        }
        DataType::Union(_, UnionMode::Sparse)
            if first > 0 || data.child_data().iter().any(|field| field.len() > count) =>
        {
            let ids = data.buffers().first().filter(|ids| first.saturating_add(count) <= ids.len());
            let ids = ids.ok_or_else(|| Error::invalid("a union with fewer types than slots"))?;
            let ids = ids.slice_with_length(first, count);
            let fields = data.child_data().iter().map(|field| with_own_fields(field.slice(first, count)));
            let union = data.clone().into_builder().offset(0).buffers(vec![ids]);
            // SAFETY: the type of each slot, and the same slots of each field.
            Ok(unsafe { union.child_data(fallible::collected(fields)?).build_unchecked() })
        }
        _ => Ok(data),
    }
}
