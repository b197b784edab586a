//! Rows on a device: their offsets and lengths are views, or those of several chunks and of slices are written by a kernel. The host reads
//! of them what it needs to go on: the first and the last offset, and bitmaps if nulls are refused and not counted; the other offsets only
//! on request.

use std::ops::Range;
use std::sync::OnceLock;

use arrow_schema::{DataType, Field, FieldRef};
use smallvec::{SmallVec, smallvec};

use super::device_rows::DeviceRows;
use super::elements::{RaggedPart, item_field, null_elements, unsupported};
use super::level::{
    Convert, RaggedRows, SPAN_ELEMENTS, UnreadRows, has_lengths, ints_dtype, ints_part, rebased_if_slice, validity_part,
};
use super::part::Part;
use crate::alloc::fallible;
use crate::arrow::{DeviceArray, ListInts};
use crate::column::{ColumnRef, SharedReads};
use crate::convert::{ColumnTask, beyond_int32, device_ints_view};
use crate::cuda::is_cuda;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::kernels::{ShiftedOffsets, measure, shift_offsets, validity_placement};
use crate::plan::{Action, Placement, Plan, Step, needs_copy};
use crate::spec::{CopyMode, NullPolicy, Options, Spec, Undecided, VariableShape};
use crate::stream_order::{self, Readiness, different_devices, unknown_runtime};
use crate::tensor::Tensor;
use crate::transfer::{read_to_host, zero_on};

/// The rows of the chunks that have any, or of the first one. None of their memory is read before their offsets are made.
pub(super) struct DeviceLevel<'a> {
    field: &'a FieldRef,
    options: &'a Options,
    device: Device,
    chunks: Vec<DeviceRows>,
    has_bitmap: bool,
    /// When all chunks are written, once that was asked.
    readiness: OnceLock<Readiness>,
    found: OnceLock<FoundRows>,
}

/// What the host has read of all rows.
struct FoundRows {
    /// The elements that the rows of each chunk span.
    spans: Vec<Range<usize>>,
    /// Whether a null row spans elements, where null rows are to be empty.
    null_spans: bool,
}

impl<'a> DeviceLevel<'a> {
    /// The level, and the field of its elements.
    ///
    /// # Errors
    /// For types that cannot be views; for chunks that are not on one device; if nulls of enclosing structs would have to be joined with
    /// those of the rows, which kernels do where nulls are kept.
    pub(super) fn new(field: &'a FieldRef, parts: &[RaggedPart], options: &'a Options) -> Result<(Self, FieldRef)> {
        let filled = parts.iter().map(|part| &part.array).filter(|array| !array.is_empty());
        let mut arrays: Vec<_> = filled.collect();
        if arrays.is_empty() {
            arrays.extend(parts.first().map(|part| &part.array));
        }
        let device = arrays.first().map(|array| array.device());
        let device = device.ok_or_else(|| Error::internal("no rows of a device"))?;
        if let Some(other) = arrays.iter().map(|array| array.device()).find(|other| *other != device) {
            return Err(different_devices(device, other));
        }
        if VariableShape::of(field)?.is_some() {
            return Err(needs_copy(device, "shapes compared with offsets")
                .remedy_is("pass the fields data and shape of its storage apart, or copy the data to the CPU first"));
        }
        let item = item_field(field).ok_or_else(|| unsupported(field))?;
        if let DataType::Utf8View | DataType::BinaryView = field.data_type() {
            return Err(needs_copy(device, &Action::GatherViews.to_string()));
        }
        let chunks = arrays.into_iter().map(DeviceRows::new).collect::<Result<Vec<_>>>()?;
        let mut has_bitmap = false;
        for chunk in &chunks {
            has_bitmap |= match chunk.bitmap() {
                Err(_) if options.nulls == NullPolicy::Keep => true,
                bitmap => bitmap?.is_some(),
            } && !chunk.array.is_empty();
        }
        let (readiness, found) = (OnceLock::new(), OnceLock::new());
        Ok((Self { field, options, device, chunks, has_bitmap, readiness, found }, item))
    }

    /// The chunks with rows.
    fn filled(&self) -> impl Iterator<Item = &DeviceRows> {
        self.chunks.iter().filter(|chunk| !chunk.array.is_empty())
    }

    fn is_empty(&self) -> bool {
        self.filled().next().is_none()
    }

    fn rows(&self) -> usize {
        self.chunks.iter().fold(0, |rows, chunk| rows.saturating_add(chunk.array.len()))
    }

    /// Whether null rows have to be empty, and may not be.
    fn may_span_nulls(&self) -> bool {
        self.has_bitmap && matches!(self.options.nulls, NullPolicy::Nan | NullPolicy::Fill(_))
    }

    /// The plan of offsets or lengths: a view, or made by a kernel. None makes null rows empty, or reads integers that are not aligned.
    fn part(&self, name: &'static str, own: [Option<Action>; 2], ints: impl Fn(&DeviceRows) -> ListInts) -> Part {
        let ints = || self.chunks.iter().map(&ints);
        let is_aligned = ints().all(|ints| ints.bytes().start.is_multiple_of(ints.dtype().alignment()));
        let count = self.rows() + usize::from(!has_lengths(self.field));
        let part = ints_part(
            (name, count),
            self.field,
            (self.filled().count(), is_aligned),
            own.into_iter().flatten(),
            self.options,
        );
        if is_cuda(self.device) && is_aligned && !own.contains(&Some(Action::EmptyNullRows)) {
            part.by_kernels(self.device)
        } else {
            part.on(self.device)
        }
    }

    /// The same plan of offsets that nobody has read: those of a slice are rebased, and null rows that span elements are refused.
    fn unread_offsets(&self, mut part: Part) -> Part {
        let mut undecided = Undecided::default();
        if part.plan.is_copy() {
            let rebased = (!has_lengths(self.field)).then(|| rebased_if_slice().text);
            let steps = part.plan.steps.iter().map(|step| step.action.to_string());
            undecided.steps = steps.chain(rebased).collect();
        } else if !has_lengths(self.field) {
            // Only a step that is certain is refused.
            undecided = Undecided::new(&[rebased_if_slice()], part.copy).unwrap_or_default();
            if part.copy != CopyMode::Never {
                let bytes = part.plan.rows.saturating_mul(part.dtype.itemsize());
                part.plan.steps.push(Step { action: Action::RebaseOffsets, bytes, at_most: true });
                part.plan.bytes = bytes;
            }
        }
        undecided.refused_if.extend(self.may_span_nulls().then(|| SPAN_ELEMENTS.to_owned()));
        Part { undecided: Some(undecided), ..part }
    }

    /// All elements that rows can refer to, whatever their offsets; none of texts.
    fn all_items(&self, item: &FieldRef) -> Result<Vec<RaggedPart>> {
        let mut items = fallible::with_room(self.chunks.len())?;
        for chunk in &self.chunks {
            if let Some(count) = chunk.array.device_items_len()? {
                let count = if chunk.array.is_empty() { 0 } else { count };
                let array = chunk.array.device_items(item.clone(), &(0..count))?;
                items.push(RaggedPart { array, hidden: None, follows: false });
            }
        }
        Ok(items)
    }

    /// What the host waits for to make the offsets.
    fn waits(&self) -> impl Iterator<Item = &'static str> {
        let has_nulls = self.has_bitmap && self.options.nulls == NullPolicy::Error;
        let waits = [
            ends_read(self.field, self.may_span_nulls()).filter(|_| !self.is_empty()),
            has_nulls.then_some("the bitmap of null rows is read"),
        ];
        waits.into_iter().flatten()
    }

    /// When all chunks are written.
    fn readiness(&self) -> Result<&Readiness> {
        if let Some(known) = self.readiness.get() {
            return Ok(known);
        }
        let joined = DeviceArray::joined_readiness(self.chunks.iter().map(|chunk| &chunk.array))?;
        Ok(self.readiness.get_or_init(|| joined.unwrap_or_else(|| Readiness::on_device(self.device))))
    }

    /// What unpacks the validity of all chunks.
    fn validity_placement(&self, spec: &Spec) -> Placement {
        let is_made = |chunk: &DeviceRows| {
            let (Ok(leaf), Some(readiness)) = (chunk.array.view().leaf(spec), chunk.array.readiness()) else {
                return false;
            };
            matches!(validity_placement(spec, &leaf, readiness), Placement::Kernels(_))
        };
        if self.filled().all(is_made) { Placement::Kernels(self.device) } else { Placement::Views(self.device) }
    }

    /// Reads and checks what the host needs to know, by one wait.
    fn read(&self) -> Result<FoundRows> {
        for ints in self.chunks.iter().flat_map(DeviceRows::ints) {
            stream_order::check_memory(self.device, ints.bytes().start, ints.bytes().len())?;
        }
        if self.may_span_nulls() { self.measured() } else { self.read_ends() }
    }

    /// The elements that the rows of each chunk span, by their ends. Refuses null rows where they are refused.
    fn read_ends(&self) -> Result<FoundRows> {
        let (is_checked, is_refused) = (stream_order::is_check_asked(), self.options.nulls == NullPolicy::Error);
        let refused = |chunk: &DeviceRows| if is_refused { chunk.bitmap() } else { Ok(None) };
        let mut ranges: SmallVec<[Range<usize>; 3]> = smallvec![];
        for chunk in self.filled() {
            ranges.extend(chunk.ends().into_iter().flatten());
            ranges.extend(refused(chunk)?.map(|bitmap| bitmap.range()));
            ranges.extend(chunk.ints().filter(|_| is_checked).map(|ints| ints.bytes()));
        }
        let host_read = read_to_host(self.readiness()?, &ranges)?;
        let (mut spans, mut before) = (fallible::with_room(self.chunks.len())?, 0_usize);
        for chunk in &self.chunks {
            let read = || {
                if chunk.array.is_empty() {
                    return Ok(0..0);
                }
                refused(chunk)?.map_or(Ok(()), |bitmap| chunk.refuse_nulls(&bitmap, &host_read))?;
                let items = chunk.array.device_items_len()?;
                if is_checked {
                    chunk.check(items, &host_read)?;
                }
                chunk.span(items, &host_read)
            };
            spans.push(read().map_err(|error| error.behind(before))?);
            before = before.saturating_add(chunk.array.len());
        }
        Ok(FoundRows { spans, null_spans: false })
    }

    /// The same by a kernel, which looks for null rows that span elements, and at all offsets.
    fn measured(&self) -> Result<FoundRows> {
        let rows = fallible::collected(self.chunks.iter().map(DeviceRows::in_kernels))?;
        let measured = measure(self.readiness()?, &rows, (None, true))?;
        let (mut spans, mut before, mut null_spans) = (fallible::with_room(self.chunks.len())?, 0_usize, false);
        for ((chunk, rows), found) in self.chunks.iter().zip(&rows).zip(&measured) {
            if let Some(row) = found.outside {
                return Err(chunk.outside(row)?.at_row(before.saturating_add(row)));
            }
            null_spans |= found.filled_null.is_some();
            let anywhere = chunk.lengths.and(rows.items);
            spans.push(anywhere.map_or(found.start.min(found.end)..found.end, |items| 0..items));
            before = before.saturating_add(rows.count);
        }
        Ok(FoundRows { spans, null_spans })
    }

    /// What is added to the offsets of each chunk: the elements before its own, less those that a slice leaves out.
    ///
    /// # Errors
    /// Where 32-bit offsets cannot count the elements of all chunks.
    fn shifts(&self, spans: &[Range<usize>]) -> Result<Vec<u64>> {
        let (mut shifts, mut before) = (fallible::with_room(spans.len())?, 0_usize);
        // The offsets of one chunk count its elements already, and those of list views may all begin below the last one.
        let is_narrow = spans.len() > 1 && ints_dtype(self.field) == DType::Int32;
        for span in spans {
            let end = before.saturating_add(span.len());
            if is_narrow && i32::try_from(end).is_err() {
                return Err(beyond_int32());
            }
            shifts.push((before as u64).wrapping_sub(span.start as u64));
            before = end;
        }
        Ok(shifts)
    }

    /// Returns the first row that spans an element of the values; `None` if none does. Reads the offsets of its chunk, for an error.
    fn row_of(&self, element: usize) -> Option<usize> {
        let (mut first_row, mut first_item) = (0_usize, 0_usize);
        for (chunk, span) in self.chunks.iter().zip(&self.found.get()?.spans) {
            if let Some(within) = element.checked_sub(first_item).filter(|within| *within < span.len()) {
                let row = chunk.row_of(span.start.saturating_add(within)).ok()??;
                return Some(first_row.saturating_add(row));
            }
            first_row = first_row.saturating_add(chunk.array.len());
            first_item = first_item.saturating_add(span.len());
        }
        None
    }

    /// The integers of all chunks, as a view of the only ones, or by a kernel, which adds to those of each chunk what `shifts` says.
    fn ints(&self, plan: &Plan, shifts: &[u64], ints: impl Fn(&DeviceRows) -> ListInts) -> Result<Tensor> {
        match self.chunks.as_slice() {
            [only] if plan.is_view() => device_ints_view(&only.array, ints(only)),
            chunks => {
                let last = chunks.len().saturating_sub(1);
                let shifted = chunks.iter().zip(shifts).enumerate().map(|(number, (chunk, shift))| {
                    let (ints, rows) = (ints(chunk), chunk.array.len());
                    // The last offset of a chunk is the first one of the next.
                    let end = if number == last { ints.bytes().end } else { ints.one(rows).start };
                    Ok(ShiftedOffsets { bytes: ints.bytes().start..end, shift: *shift })
                });
                shift_offsets(self.readiness()?, &fallible::collected(shifted)?, ints_dtype(self.field))
            }
        }
    }
}

/// What the host waits for to make the offsets of rows of this type; `may_span_nulls`: null rows have to be empty, and may not be.
pub(super) fn ends_read(field: &Field, may_span_nulls: bool) -> Option<&'static str> {
    match (has_lengths(field), may_span_nulls) {
        (false, false) => Some("the first and the last offset are read"),
        (false, true) => Some("the first and the last offset are read, and whether null rows span elements"),
        (true, false) => None,
        (true, true) => Some("whether null rows span elements is read"),
    }
}

impl RaggedRows for DeviceLevel<'_> {
    fn read_offsets(&self) -> Result<Option<Part>> {
        let found = self.read()?;
        self.found.get_or_init(|| found);
        Ok(Some(self.offsets_part()))
    }

    fn validity_part(&self) -> Option<Part> {
        let is_told = self.options.nulls == NullPolicy::Keep && self.has_bitmap;
        is_told.then(|| {
            let mut part = validity_part(self.field, self.rows());
            let spec = Spec::of_validity(self.field, &Options::default());
            part.plan.placement = spec.map_or(Placement::Views(self.device), |spec| self.validity_placement(&spec));
            part
        })
    }

    fn validity(&self) -> Result<Tensor> {
        let (spec, readiness) = (Spec::of_validity(self.field, &Options::default())?, self.readiness()?);
        let chunks = self.filled().map(|chunk| ColumnRef::whole(&chunk.array).chunk(&spec));
        let chunks = chunks.collect::<Result<Vec<_>>>()?;
        let plan = Plan::validity(&spec, self.rows(), self.validity_placement(&spec), CopyMode::IfNeeded)?;
        let task = ColumnTask { spec: &spec, plan: &plan, chunks: &chunks };
        SharedReads::default().with_backend(Some(readiness), |backend| backend.validity(task))
    }

    fn offsets_part(&self) -> Part {
        let found = self.found.get();
        let is_slice = found.is_some_and(|found| found.spans.iter().any(|span| span.start > 0));
        let is_emptied = found.is_some_and(|found| found.null_spans);
        let own = [is_slice.then_some(Action::RebaseOffsets), is_emptied.then_some(Action::EmptyNullRows)];
        let part = self.part("offsets", own, |chunk| chunk.offsets);
        let is_read = !has_lengths(self.field) || (self.has_bitmap && self.options.nulls != NullPolicy::Keep);
        if is_read && !is_cuda(self.device) {
            return Part { error: Some(unknown_runtime(self.device)), ..part };
        }
        if found.is_none() && !self.is_empty() { self.unread_offsets(part) } else { part }
    }

    fn offsets(&self, plan: &Plan) -> Result<Tensor> {
        if self.is_empty() && !has_lengths(self.field) {
            // The array need not have that one offset.
            let is_own = self.options.copy.asks_for_own(self.options.writable);
            return zero_on(self.device, ints_dtype(self.field), is_own);
        }
        let found = self.found.get().ok_or_else(|| Error::internal("offsets whose ends were not read"))?;
        self.ints(plan, &self.shifts(&found.spans)?, |chunk| chunk.offsets)
    }

    fn lengths_part(&self) -> Option<Part> {
        has_lengths(self.field).then(|| self.part("lengths", [None, None], DeviceRows::lengths_or_offsets))
    }

    fn lengths(&self, plan: &Plan) -> Result<Tensor> {
        let shifts = fallible::filled(self.chunks.len(), 0)?;
        self.ints(plan, &shifts, DeviceRows::lengths_or_offsets)
    }

    fn items(&self, item: &FieldRef) -> Result<Option<Vec<RaggedPart>>> {
        let Some(found) = self.found.get() else { return Ok(None) };
        let part = |(chunk, span): (&DeviceRows, &Range<usize>)| {
            Ok(RaggedPart { array: chunk.array.device_items(item.clone(), span)?, hidden: None, follows: false })
        };
        self.chunks.iter().zip(&found.spans).map(part).collect::<Result<_>>().map(Some)
    }

    fn column(&self, item: &FieldRef, items: &[RaggedPart]) -> Result<(Spec, Vec<DeviceArray>, Options)> {
        let arrays = items.iter().map(|part| part.array.clone()).collect();
        Ok((Spec::new(item, self.options)?, arrays, self.options.clone()))
    }

    fn at_row(&self, item: &FieldRef, error: Error, _: Convert<'_>) -> Error {
        let Some(element) = error.row() else { return error };
        let is_of_elements = error.kind() == ErrorKind::Null && item_field(item).is_none();
        let spec = Spec::new(item, self.options).ok().filter(|_| is_of_elements);
        let error = spec.map_or(error, |spec| null_elements(&spec, None));
        // Nobody reads list views, no row of which need show the element.
        match Some(element).filter(|_| !has_lengths(self.field)).and_then(|element| self.row_of(element)) {
            Some(row) => error.at_row(row),
            None => error.at_element(element),
        }
    }

    fn unread(&self) -> Option<UnreadRows> {
        let items = item_field(self.field).and_then(|item| self.all_items(&item).ok());
        let (device, chunks, items) = (self.device, self.filled().count(), items.unwrap_or_default());
        Some(UnreadRows { device, chunks, waits: self.waits().collect(), items })
    }
}
