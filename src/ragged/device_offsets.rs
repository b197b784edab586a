//! Rows on a device: their offsets and lengths are views, and the host reads of them what it needs to go on: the first and the last
//! offset, and bitmaps if nulls are refused and not counted; the other offsets only on request.

use std::ops::Range;
use std::sync::OnceLock;

use arrow_schema::{DataType, FieldRef};
use smallvec::{SmallVec, smallvec};

use super::elements::{RaggedPart, item_field, unsupported};
use super::level::{Convert, RaggedRows, UnreadRows, ints_part, null_row, validity_part};
use super::part::Part;
use crate::arrow::{BitmapBytes, DeviceArray, ListInts};
use crate::column::{ColumnRef, SharedReads};
use crate::convert::{ColumnTask, device_ints_view};
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::kernels::validity_placement;
use crate::plan::{Action, Placement, Plan, needs_copy};
use crate::spec::{CopyMode, NullPolicy, Options, Spec, VariableShape};
use crate::stream_order::{self, Readiness};
use crate::tensor::Tensor;
use crate::transfer::{HostRead, read_to_host, zero_on};

/// The rows of the only chunk that has any. None of its memory is read before its offsets are made.
pub(super) struct DeviceLevel<'a> {
    field: &'a FieldRef,
    options: &'a Options,
    array: &'a DeviceArray,
    readiness: &'a Readiness,
    /// How many chunks have rows.
    filled: usize,
    offsets: ListInts,
    lengths: Option<ListInts>,
    has_bitmap: bool,
    /// The elements that the rows span, once the host knows.
    span: OnceLock<Range<usize>>,
}

/// Returns the bitmap that tells which rows of lists or strings are null; `None` if none is.
///
/// # Errors
/// If nulls of enclosing structs would have to be joined with those of the rows.
pub(super) fn bitmap_of_rows(array: &DeviceArray) -> Result<Option<BitmapBytes>> {
    array.view().bitmap().map_err(|error| error.remedy_is(array.device().host_remedy()))
}

impl<'a> DeviceLevel<'a> {
    /// The level, and the field of its elements.
    ///
    /// # Errors
    /// For types that cannot be views.
    pub(super) fn new(field: &'a FieldRef, parts: &'a [RaggedPart], options: &'a Options) -> Result<(Self, FieldRef)> {
        let filled = || parts.iter().map(|part| &part.array).filter(|array| !array.is_empty());
        let array = filled().next().or(parts.first().map(|part| &part.array));
        let ready = array.and_then(|array| Some((array, array.readiness()?)));
        let (array, readiness) = ready.ok_or_else(|| Error::internal("no rows of a device"))?;
        if VariableShape::of(field)?.is_some() {
            return Err(needs_copy(readiness.device(), "shapes compared with offsets")
                .remedy_is("pass the fields data and shape of its storage apart, or copy the data to the CPU first"));
        }
        let item = item_field(field).ok_or_else(|| unsupported(field.data_type()))?;
        if let DataType::Utf8View | DataType::BinaryView = field.data_type() {
            return Err(needs_copy(readiness.device(), &Action::GatherViews.to_string()));
        }
        let (offsets, lengths) = array.list_ints()?;
        let has_bitmap = match bitmap_of_rows(array) {
            // Kernels join those of enclosing structs.
            Err(_) if options.nulls == NullPolicy::Keep => true,
            bitmap => bitmap?.is_some(),
        };
        let (filled, span) = (filled().count(), OnceLock::new());
        Ok((Self { field, options, array, readiness, filled, offsets, lengths, has_bitmap, span }, item))
    }

    fn part(&self, name: &'static str, ints: &ListInts, own: [Option<Action>; 2]) -> Part {
        let is_aligned = ints.bytes().start.is_multiple_of(ints.dtype().alignment());
        let count = self.array.len() + usize::from(self.lengths.is_none());
        let part = ints_part((name, count), self.field, (self.filled.max(1), is_aligned), own, self.options);
        part.on(self.readiness.device())
    }

    /// What the host waits for to make the offsets.
    fn waits(&self) -> impl Iterator<Item = &'static str> {
        let has_ends = self.lengths.is_none() && !self.array.is_empty();
        let has_nulls = !self.array.is_empty() && self.has_bitmap && self.options.nulls == NullPolicy::Error;
        let ends = has_ends.then_some(ENDS_READ);
        ends.into_iter().chain(has_nulls.then_some("the bitmap of null rows is read"))
    }

    /// Reads and checks what the host needs to know, by one wait; gives the elements that the rows span.
    fn read(&self) -> Result<Range<usize>> {
        for ints in [&self.offsets].into_iter().chain(&self.lengths) {
            stream_order::check_memory(self.readiness.device(), ints.bytes().start, ints.bytes().len())?;
        }
        let (array, offsets, lengths) = (self.array, &self.offsets, self.lengths.as_ref());
        let is_refused = self.options.nulls == NullPolicy::Error;
        let bitmap = if is_refused { bitmap_of_rows(array)? } else { None };
        let mut ranges: SmallVec<[Range<usize>; 3]> = smallvec![];
        let ends = (lengths.is_none() && !array.is_empty()).then(|| [offsets.one(0), offsets.one(array.len())]);
        ranges.extend(ends.iter().flatten().cloned());
        ranges.extend(bitmap.iter().map(BitmapBytes::range));
        let checked = stream_order::is_check_asked();
        if checked {
            ranges.extend([offsets].into_iter().chain(lengths).map(ListInts::bytes));
        }
        let host_read = read_to_host(self.readiness, &ranges)?;
        if let Some(bitmap) = &bitmap {
            let bytes = host_read.require(bitmap.start().addr(), bitmap.len())?;
            let valid = |row: &usize| {
                let bit = bitmap.first_bit() + row;
                bytes.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
            };
            (0..array.len()).find(|row| !valid(row)).map_or(Ok(()), |row| Err(null_row(row)))?;
        }
        let items = array.device_items_len()?;
        if checked {
            check_rows(offsets, lengths, items, &host_read)?;
        }
        match (&ends, items) {
            (Some([first, last]), items) => self.span_of(first, last, &host_read, items),
            // Rows of list views may stand anywhere in the child.
            (None, Some(items)) if lengths.is_some() && !array.is_empty() => Ok(0..items),
            _ => Ok(0..0),
        }
    }

    /// The elements that the rows span, by their first and their last offset.
    fn span_of(
        &self,
        first: &Range<usize>,
        last: &Range<usize>,
        host_read: &HostRead,
        items: Option<usize>,
    ) -> Result<Range<usize>> {
        let read = |range: &Range<usize>| {
            let value = self.offsets.value(host_read.require(range.start, range.len())?);
            value.ok_or_else(|| Error::internal("an offset that was not read"))
        };
        let (start, end) = (read(first)?, read(last)?);
        let range = usize::try_from(start).ok().zip(usize::try_from(end).ok()).map(|(start, end)| start..end);
        let fits = |range: &Range<usize>| range.start <= range.end && items.is_none_or(|items| range.end <= items);
        let Some(span) = range.filter(fits) else {
            let of = items.map_or_else(String::new, |items| format!(" of {items} elements"));
            return Err(Error::invalid(format!("offsets from {start} to {end}{of}")));
        };
        let rebased = (span.start > 0).then_some(Action::RebaseOffsets);
        self.part("offsets", &self.offsets, [rebased, None]).plan.refuse_steps(self.options.copy)?;
        Ok(span)
    }
}

/// The host wait of every level whose rows are not list views.
pub(super) const ENDS_READ: &str = "the first and the last offset are read: they are refused if they do not start at 0";

impl RaggedRows for DeviceLevel<'_> {
    fn validity_part(&self) -> Option<Part> {
        let is_told = self.options.nulls == NullPolicy::Keep && self.has_bitmap && !self.array.is_empty();
        is_told.then(|| {
            let part = validity_part(self.field, self.array.len());
            let has_kernel = || {
                let spec = Spec::of_validity(self.field, &Options::default()).ok()?;
                let leaf = self.array.view().leaf(&spec).ok()?;
                Some(matches!(validity_placement(&spec, &leaf, self.readiness), Placement::Kernels(_)))
            };
            if has_kernel() == Some(true) {
                part.by_kernels(self.readiness.device())
            } else {
                part.on(self.readiness.device())
            }
        })
    }

    fn validity(&self) -> Result<Tensor> {
        let spec = Spec::of_validity(self.field, &Options::default())?;
        let chunk = ColumnRef::whole(self.array).chunk(&spec)?;
        let placement = validity_placement(&spec, &chunk.leaf, self.readiness);
        let plan = Plan::validity(&spec, self.array.len(), placement, CopyMode::IfNeeded)?;
        let task = ColumnTask { spec: &spec, plan: &plan, chunks: std::slice::from_ref(&chunk) };
        SharedReads::default().with_backend(Some(self.readiness), |backend| backend.validity(task))
    }

    fn offsets_part(&self) -> Part {
        let emptied = matches!(self.options.nulls, NullPolicy::Nan | NullPolicy::Fill(_)) && self.has_bitmap;
        self.part("offsets", &self.offsets, [emptied.then_some(Action::EmptyNullRows), None])
    }

    fn offsets(&self, _: &Plan) -> Result<Tensor> {
        let span = self.read()?;
        self.span.get_or_init(|| span);
        if self.array.is_empty() && self.lengths.is_none() {
            // The array need not have that one offset.
            return zero_on(self.array.device(), self.offsets.dtype());
        }
        device_ints_view(self.array, self.offsets)
    }

    fn lengths_part(&self) -> Option<Part> {
        self.lengths.as_ref().map(|lengths| self.part("lengths", lengths, [None, None]))
    }

    fn lengths(&self, _: &Plan) -> Result<Tensor> {
        let lengths = self.lengths.ok_or_else(|| Error::internal("these rows have no lengths"))?;
        device_ints_view(self.array, lengths)
    }

    fn items(&self, item: &FieldRef) -> Result<Option<Vec<RaggedPart>>> {
        let part = |span| Ok(RaggedPart { array: self.array.device_items(item.clone(), span)?, hidden: None });
        self.span.get().map(|span| part(span).map(|part| vec![part])).transpose()
    }

    fn column(&self, item: &FieldRef, items: &[RaggedPart]) -> Result<(Spec, Vec<DeviceArray>, Options)> {
        let arrays = items.iter().map(|part| part.array.clone()).collect();
        Ok((Spec::new(item, self.options)?, arrays, self.options.clone()))
    }

    fn at_row(&self, item: &FieldRef, error: Error, _: Convert<'_>) -> Error {
        // The offsets that would tell its row are not on the host, and an inner level has told the element.
        let is_null = error.kind() == ErrorKind::Null && item_field(item).is_none();
        let Some(element) = error.row().filter(|_| is_null) else { return error };
        let reason = format!("element {element} of the values is null");
        Error::new(ErrorKind::Null, reason).remedy_is(Remedy::KeepElements)
    }

    fn unread(&self) -> Option<UnreadRows> {
        let (device, is_empty) = (self.readiness.device(), self.array.is_empty());
        Some(UnreadRows { device, is_empty, waits: self.waits().collect() })
    }
}

/// Refuses rows that do not lie inside the elements, of which strings have as many as their last offset says.
///
/// # Errors
/// Names the first such row.
fn check_rows(
    offsets: &ListInts,
    lengths: Option<&ListInts>,
    items: Option<usize>,
    host_read: &HostRead,
) -> Result<()> {
    let starts = read(offsets, host_read)?;
    let limit = items.map_or(i64::MAX, |items| i64::try_from(items).unwrap_or(i64::MAX));
    let of = items.map_or_else(String::new, |items| format!(" of {items} elements"));
    if let Some(lengths) = lengths {
        for (row, (start, length)) in starts.zip(read(lengths, host_read)?).enumerate() {
            if start < 0 || length < 0 || start > limit || length > limit - start {
                return Err(Error::invalid(format!("offset {start} and length {length}{of}")).at_row(row));
            }
        }
        return Ok(());
    }
    let mut last = 0;
    for (number, offset) in starts.enumerate() {
        if offset < last || offset > limit {
            // An offset that is not the first one ends the row before it.
            return Err(Error::invalid(format!("offset {offset} after {last}{of}")).at_row(number.saturating_sub(1)));
        }
        last = offset;
    }
    Ok(())
}

fn read<'a>(ints: &'a ListInts, host_read: &'a HostRead) -> Result<impl Iterator<Item = i64> + 'a> {
    let range = ints.bytes();
    let bytes = if range.is_empty() { &[] } else { host_read.require(range.start, range.len())? };
    Ok(bytes.chunks_exact(ints.dtype().itemsize()).filter_map(|bytes| ints.value(bytes)))
}
