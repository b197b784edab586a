//! Views values and offsets of lists and strings on a device. The host reads the first and the last offset, and bitmaps
//! if nulls are refused and not counted; it reads the other offsets only on request.

mod checked;

use std::ops::Range;

use arrow_schema::{DataType, FieldRef};
use smallvec::{SmallVec, smallvec};

use super::elements::{item_field, leaf_spec, unsupported};
use super::level::null_row;
use super::part::Part;
use super::variable_shape::VariableShape;
use super::{Ragged, Values};
use crate::arrow::{DeviceArray, DeviceInts};
use crate::column::{ColumnRef, convert_chunks, only_filled, run_here};
use crate::convert::device_ints_view;
use crate::cuda::is_cuda;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::kernels::{has_kernel, is_checked};
use crate::plan::{Action, needs_copy};
use crate::spec::{CopyMode, NullPolicy, Options, Spec};
use crate::stream_order::{self, Readiness};
use crate::tensor::Tensor;
use crate::transfer::{Fetched, fetch, zero_on};

/// The rows of the only chunk that has any.
///
/// # Errors
/// When a copy is needed, a null is refused, or the memory or the offsets are not what the array says.
pub(super) fn convert(
    field: &FieldRef,
    chunks: &[DeviceArray],
    options: &Options,
    readiness: &Readiness,
) -> Result<Ragged> {
    let only = only_filled(chunks, DeviceArray::len, readiness)?.unwrap_or(0);
    let array = chunks.get(only).ok_or_else(|| needs_copy(readiness.device(), "a result without rows"))?;
    level(field, array, options, readiness)
}

/// Refuses what no data of this type on a device could be without a copy.
fn refuse(field: &FieldRef, options: &Options, readiness: &Readiness) -> Result<FieldRef> {
    if VariableShape::of(field)?.is_some() {
        return Err(needs_copy(readiness.device(), "shapes compared with offsets")
            .remedy_is("pass the fields data and shape of its storage apart, or copy the data to the CPU first"));
    }
    let item = item_field(field).ok_or_else(|| unsupported(field.data_type()))?;
    if let DataType::Utf8View | DataType::BinaryView = field.data_type() {
        return Err(needs_copy(readiness.device(), &Action::GatherViews.to_string()));
    }
    if options.copy == CopyMode::Always || options.writable {
        return Err(needs_copy(readiness.device(), &Action::Private.to_string()));
    }
    Ok(item)
}

fn level(field: &FieldRef, array: &DeviceArray, options: &Options, readiness: &Readiness) -> Result<Ragged> {
    let item = refuse(field, options, readiness)?;
    let (offsets, lengths) = array.device_ints()?;
    check_ints(&offsets, readiness)?;
    lengths.as_ref().map_or(Ok(()), |lengths| check_ints(lengths, readiness))?;
    let mut ranges: SmallVec<[Range<usize>; 3]> = smallvec![];
    let ends = (lengths.is_none() && !array.is_empty()).then(|| [offsets.one(0), offsets.one(array.len())]);
    ranges.extend(ends.iter().flatten().cloned());
    let bitmap = array.view().bitmap()?;
    if let Some(bitmap) = bitmap {
        if options.nulls != NullPolicy::Error {
            let why = if options.nulls == NullPolicy::Keep { Action::Unpack } else { Action::EmptyNullRows };
            return Err(needs_copy(readiness.device(), &why.to_string()).remedy_is(Remedy::BitmapOnDevice));
        }
        let start = bitmap.start().addr();
        ranges.push(start..start.saturating_add(bitmap.len()));
    }
    let checked = stream_order::is_check_asked();
    if checked {
        ranges.extend([&offsets].into_iter().chain(&lengths).map(DeviceInts::bytes));
    }
    // One wait for all that this level needs.
    let fetched = fetch(readiness, &ranges)?;
    if let Some(bitmap) = bitmap {
        let bytes = fetched.require(bitmap.start().addr(), bitmap.len())?;
        let valid = |row: &usize| {
            let bit = bitmap.first_bit() + row;
            bytes.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
        };
        (0..array.len()).find(|row| !valid(row)).map_or(Ok(()), |row| Err(null_row(row)))?;
    }
    if checked {
        checked::check_rows(&offsets, lengths.as_ref(), array.device_items_len()?, &fetched)?;
    }
    let span = match (&ends, array.device_items_len()?) {
        (Some([first, last]), items) => span_of(&offsets, first, last, &fetched, items, readiness)?,
        // Rows of list views may stand anywhere in the child.
        (None, Some(items)) if lengths.is_some() => 0..items,
        _ => 0..0,
    };
    let items = array.device_items(item.clone(), &span)?;
    let values: Values = if item_field(&item).is_some() {
        level(&item, &items, options, readiness)?.into()
    } else {
        leaf(&item, &items, options)?.into()
    };
    let offsets = if array.is_empty() && lengths.is_none() {
        // The array need not have that one offset.
        zero_on(array.device(), offsets.dtype())?
    } else {
        device_ints_view(array, offsets)?
    };
    let lengths = lengths.map(|lengths| device_ints_view(array, lengths)).transpose()?;
    Ok(Ragged { values, offsets, lengths, shapes: None, validity: None, field: Some(field.clone()) })
}

/// Refuses integers that are misaligned, or not on the device.
fn check_ints(ints: &DeviceInts, readiness: &Readiness) -> Result<()> {
    let range = ints.bytes();
    if !range.start.is_multiple_of(ints.dtype().alignment()) {
        return Err(needs_copy(readiness.device(), &Action::Realign { dtype: ints.dtype() }.to_string()));
    }
    stream_order::check_memory(readiness.device(), range.start, range.len())
}

/// The elements that the rows span, by their first and their last offset.
fn span_of(
    offsets: &DeviceInts,
    first: &Range<usize>,
    last: &Range<usize>,
    fetched: &Fetched,
    items: Option<usize>,
    readiness: &Readiness,
) -> Result<Range<usize>> {
    let read = |range: &Range<usize>| {
        let value = offsets.value(fetched.require(range.start, range.len())?);
        value.ok_or_else(|| Error::internal("an offset that was not read"))
    };
    let (start, end) = (read(first)?, read(last)?);
    let range = usize::try_from(start).ok().zip(usize::try_from(end).ok()).map(|(start, end)| start..end);
    let fits = |range: &Range<usize>| range.start <= range.end && items.is_none_or(|items| range.end <= items);
    let Some(span) = range.filter(fits) else {
        let of = items.map_or_else(String::new, |items| format!(" of {items} elements"));
        return Err(Error::invalid(format!("offsets from {start} to {end}{of}")));
    };
    if span.start > 0 {
        return Err(needs_copy(readiness.device(), &Action::RebaseOffsets.to_string()));
    }
    Ok(span)
}

/// Elements that are no rows themselves.
fn leaf(item: &FieldRef, array: &DeviceArray, options: &Options) -> Result<Tensor> {
    let spec = Spec::new(item, options)?;
    convert_chunks(&spec, &[ColumnRef::whole(array)], options, &run_here).map_err(|error| {
        // The offsets that would tell its row are not on the host.
        let Some(element) = error.row().filter(|_| error.kind() == ErrorKind::Null) else { return error };
        let reason = format!("element {element} of the values is null");
        Error::new(ErrorKind::Null, reason).remedy_is(Remedy::KeepElements)
    })
}

/// What would be done to the parts, as far as the arrays tell without their memory.
///
/// # Errors
/// As [`convert`], for what types and structure refuse.
pub(super) fn plan(
    field: &FieldRef,
    chunks: &[DeviceArray],
    plans: Vec<Part>,
    options: &Options,
    readiness: &Readiness,
) -> Result<Vec<Part>> {
    let only = only_filled(chunks, DeviceArray::len, readiness)?.unwrap_or(0);
    let rows = chunks.get(only).map_or(0, DeviceArray::len);
    refuse(field, options, readiness)?;
    let leaf = leaf_spec(field, options)?;
    let by_kernel = is_cuda(readiness.device()) && has_kernel(&leaf);
    let bitmap = chunks.get(only).map(|chunk| chunk.view().bitmap()).transpose()?.flatten();
    let names: Vec<_> = plans.iter().map(|part| part.name.clone()).collect();
    let of_part = |mut part: Part| {
        let per_row = match &*part.name {
            "offsets" if plans_have_lengths(field) => Some(rows),
            "offsets" => Some(rows.saturating_add(1)),
            "lengths" => Some(rows),
            _ => None,
        };
        if let (Some(count), Some(extent)) = (per_row, part.shape.first_mut()) {
            *extent = i64::try_from(count).ok();
        }
        let has_lengths = |path: &str| names.iter().any(|name| name.strip_suffix("lengths") == Some(path));
        if let Some(path) = part.name.strip_suffix("offsets").filter(|path| rows > 0 && !has_lengths(path)) {
            // Others than the offsets of a slice start at 0, and those of a slice are refused.
            part.undecided = None;
            part.waits.push("the first and the last offset are read: they are refused if they do not start at 0");
            if path.is_empty() && bitmap.is_some() && options.nulls == NullPolicy::Error {
                part.waits.push("the bitmap of null rows is read");
            }
        }
        let is_converted = by_kernel && part.name.ends_with("values");
        let certain = part.undecided.as_ref().filter(|undecided| !undecided.at_most);
        let steps = certain.map(|undecided| undecided.steps.join(", ")).unwrap_or_default();
        if is_converted && certain.is_some() && is_checked(&leaf) {
            part.waits.push("whether every value fits is read");
        }
        if !steps.is_empty() && !is_converted {
            let error = needs_copy(readiness.device(), &steps);
            part.error = part.error.or(Some(error.in_column(field.name())));
        }
        part
    };
    Ok(plans.into_iter().map(of_part).collect())
}

fn plans_have_lengths(field: &FieldRef) -> bool {
    matches!(field.data_type(), DataType::ListView(_) | DataType::LargeListView(_))
}
