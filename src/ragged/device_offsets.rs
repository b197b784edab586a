//! Rows on a device: their offsets and lengths are views, or those of several chunks and of slices are written by a kernel. The host reads
//! of them what it needs to go on: the first and the last offset, and bitmaps if nulls are refused and not counted; the other offsets only
//! on request.

use std::ops::Range;
use std::sync::OnceLock;

use arrow_schema::{DataType, FieldRef};
use smallvec::{SmallVec, smallvec};

use super::elements::{RaggedPart, item_field, unsupported};
use super::level::{
    Convert, RaggedRows, UnreadRows, has_lengths, ints_dtype, ints_part, null_row, rebased_if_slice, validity_part,
};
use super::part::Part;
use crate::alloc::fallible;
use crate::arrow::{BitmapBytes, DeviceArray, ListInts};
use crate::column::{ColumnRef, SharedReads};
use crate::convert::{ColumnTask, beyond_int32, device_ints_view};
use crate::cuda::is_cuda;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::kernels::{ShiftedOffsets, shift_offsets, validity_placement};
use crate::plan::{Action, Placement, Plan, Step, needs_copy};
use crate::spec::{CopyMode, NullPolicy, Options, Spec, Undecided, VariableShape};
use crate::stream_order::{self, Readiness, different_devices, unknown_runtime};
use crate::tensor::Tensor;
use crate::transfer::{HostRead, read_to_host, zero_on};

/// The rows of the chunks that have any, or of the first one. None of their memory is read before their offsets are made.
pub(super) struct DeviceLevel<'a> {
    field: &'a FieldRef,
    options: &'a Options,
    device: Device,
    chunks: Vec<DeviceRows<'a>>,
    /// When all chunks are written, once that was asked.
    readiness: OnceLock<Readiness>,
    /// The elements that the rows of each chunk span, once the host knows.
    spans: OnceLock<Vec<Range<usize>>>,
}

/// The rows of a chunk.
struct DeviceRows<'a> {
    array: &'a DeviceArray,
    offsets: ListInts,
    lengths: Option<ListInts>,
    has_bitmap: bool,
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
    /// For types that cannot be views; for chunks that are not on one device.
    pub(super) fn new(field: &'a FieldRef, parts: &'a [RaggedPart], options: &'a Options) -> Result<(Self, FieldRef)> {
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
        let item = item_field(field).ok_or_else(|| unsupported(field.data_type()))?;
        if let DataType::Utf8View | DataType::BinaryView = field.data_type() {
            return Err(needs_copy(device, &Action::GatherViews.to_string()));
        }
        let chunks = arrays.into_iter().map(|array| DeviceRows::new(array, options)).collect::<Result<_>>()?;
        Ok((Self { field, options, device, chunks, readiness: OnceLock::new(), spans: OnceLock::new() }, item))
    }

    /// The chunks with rows.
    fn filled(&self) -> impl Iterator<Item = &DeviceRows<'a>> {
        self.chunks.iter().filter(|chunk| !chunk.array.is_empty())
    }

    fn is_empty(&self) -> bool {
        self.filled().next().is_none()
    }

    fn rows(&self) -> usize {
        self.chunks.iter().fold(0, |rows, chunk| rows.saturating_add(chunk.array.len()))
    }

    fn has_bitmap(&self) -> bool {
        self.filled().any(|chunk| chunk.has_bitmap)
    }

    /// The plan of offsets or lengths: a view, or made by a kernel. None makes null rows empty.
    fn part(&self, name: &'static str, own: [Option<Action>; 2], ints: impl Fn(&DeviceRows<'_>) -> ListInts) -> Part {
        let ints = || self.chunks.iter().map(&ints);
        let is_aligned = ints().all(|ints| ints.bytes().start.is_multiple_of(ints.dtype().alignment()));
        let count = self.rows() + usize::from(!has_lengths(self.field));
        let part = ints_part((name, count), self.field, (self.chunks.len(), is_aligned), own, self.options);
        if is_cuda(self.device) && !own.contains(&Some(Action::EmptyNullRows)) {
            part.by_kernels(self.device)
        } else {
            part.on(self.device)
        }
    }

    /// The same plan of offsets that nobody has read: those of a slice are rebased.
    fn unless_slice(&self, mut part: Part) -> Part {
        if part.copy != CopyMode::Never {
            let bytes = part.plan.rows.saturating_mul(part.dtype.itemsize());
            part.plan.steps.push(Step { action: Action::RebaseOffsets, bytes, at_most: true });
            part.plan.bytes = bytes;
        }
        part.undecided = Undecided::new(&[rebased_if_slice()], part.copy).ok();
        part
    }

    /// What the host waits for to make the offsets.
    fn waits(&self) -> impl Iterator<Item = &'static str> {
        let has_ends = !has_lengths(self.field) && !self.is_empty();
        let has_nulls = self.has_bitmap() && self.options.nulls == NullPolicy::Error;
        let ends = has_ends.then_some(ENDS_READ);
        ends.into_iter().chain(has_nulls.then_some("the bitmap of null rows is read"))
    }

    /// When all chunks are written.
    fn readiness(&self) -> Result<&Readiness> {
        if let Some(known) = self.readiness.get() {
            return Ok(known);
        }
        let joined = DeviceArray::joined_readiness(self.chunks.iter().map(|chunk| chunk.array))?;
        Ok(self.readiness.get_or_init(|| joined.unwrap_or_else(|| Readiness::on_device(self.device))))
    }

    /// What unpacks the validity of all chunks.
    fn validity_placement(&self, spec: &Spec) -> Placement {
        let is_made = |chunk: &DeviceRows<'_>| {
            let (Ok(leaf), Some(readiness)) = (chunk.array.view().leaf(spec), chunk.array.readiness()) else {
                return false;
            };
            matches!(validity_placement(spec, &leaf, readiness), Placement::Kernels(_))
        };
        if self.filled().all(is_made) { Placement::Kernels(self.device) } else { Placement::Views(self.device) }
    }

    /// Reads and checks what the host needs to know, by one wait; gives the elements that the rows of each chunk span.
    fn read_spans(&self) -> Result<Vec<Range<usize>>> {
        for ints in self.chunks.iter().flat_map(DeviceRows::ints) {
            stream_order::check_memory(self.device, ints.bytes().start, ints.bytes().len())?;
        }
        let is_checked = stream_order::is_check_asked();
        let mut ranges: SmallVec<[Range<usize>; 3]> = smallvec![];
        for chunk in self.filled() {
            ranges.extend(chunk.ends().into_iter().flatten());
            ranges.extend(chunk.refused_bitmap(self.options)?.map(|bitmap| bitmap.range()));
            ranges.extend(chunk.ints().filter(|_| is_checked).map(|ints| ints.bytes()));
        }
        let host_read = read_to_host(self.readiness()?, &ranges)?;
        let (mut spans, mut before) = (fallible::with_room(self.chunks.len())?, 0_usize);
        for chunk in &self.chunks {
            let read = || {
                if chunk.array.is_empty() {
                    return Ok(0..0);
                }
                chunk.refuse_nulls(self.options, &host_read)?;
                let items = chunk.array.device_items_len()?;
                if is_checked {
                    check_rows(&chunk.offsets, chunk.lengths.as_ref(), items, &host_read)?;
                }
                chunk.span(items, &host_read)
            };
            spans.push(read().map_err(|error| error.behind(before))?);
            before = before.saturating_add(chunk.array.len());
        }
        Ok(spans)
    }

    /// What is added to the offsets of each chunk: the elements before its own, less those that a slice leaves out.
    ///
    /// # Errors
    /// Where 32-bit offsets cannot count the elements of all chunks.
    fn shifts(&self, spans: &[Range<usize>]) -> Result<Vec<u64>> {
        let (mut shifts, mut before) = (fallible::with_room(spans.len())?, 0_usize);
        let is_narrow = self.chunks.iter().any(|chunk| chunk.offsets.dtype() == DType::Int32);
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

    /// The integers of all chunks, as a view of the only ones, or by a kernel, which adds to those of each chunk what `shifts` says.
    fn ints(&self, plan: &Plan, shifts: &[u64], ints: impl Fn(&DeviceRows<'_>) -> ListInts) -> Result<Tensor> {
        match self.chunks.as_slice() {
            [only] if plan.is_view() => device_ints_view(only.array, ints(only)),
            chunks => {
                let last = chunks.len().saturating_sub(1);
                let shifted = chunks.iter().zip(shifts).enumerate().map(|(number, (chunk, shift))| {
                    let ints = ints(chunk);
                    // The last offset of a chunk is the first one of the next.
                    let bytes = if number == last {
                        ints.bytes()
                    } else {
                        ints.bytes().start..ints.one(chunk.array.len()).start
                    };
                    ShiftedOffsets { bytes, shift: *shift }
                });
                let dtype = chunks.first().map_or(DType::Int64, |chunk| ints(chunk).dtype());
                shift_offsets(self.readiness()?, &fallible::collected(shifted.map(Ok))?, dtype)
            }
        }
    }
}

impl<'a> DeviceRows<'a> {
    fn new(array: &'a DeviceArray, options: &Options) -> Result<Self> {
        let (offsets, lengths) = array.list_ints()?;
        let has_bitmap = match bitmap_of_rows(array) {
            // Kernels join those of enclosing structs.
            Err(_) if options.nulls == NullPolicy::Keep => true,
            bitmap => bitmap?.is_some(),
        };
        Ok(Self { array, offsets, lengths, has_bitmap })
    }

    /// Of list views the lengths, of others the offsets.
    fn lengths_or_offsets(&self) -> ListInts {
        self.lengths.unwrap_or(self.offsets)
    }

    fn ints(&self) -> impl Iterator<Item = ListInts> {
        [self.offsets].into_iter().chain(self.lengths)
    }

    /// The addresses of the first and the last offset; `None` of list views, and of no rows.
    fn ends(&self) -> Option<[Range<usize>; 2]> {
        let has_ends = self.lengths.is_none() && !self.array.is_empty();
        has_ends.then(|| [self.offsets.one(0), self.offsets.one(self.array.len())])
    }

    /// The bitmap of null rows, where these are refused.
    fn refused_bitmap(&self, options: &Options) -> Result<Option<BitmapBytes>> {
        if options.nulls == NullPolicy::Error { bitmap_of_rows(self.array) } else { Ok(None) }
    }

    /// Refuses the first null row.
    fn refuse_nulls(&self, options: &Options, host_read: &HostRead) -> Result<()> {
        let Some(bitmap) = self.refused_bitmap(options)? else { return Ok(()) };
        let bytes = host_read.require(bitmap.start().addr(), bitmap.len())?;
        let valid = |row: &usize| {
            let bit = bitmap.first_bit() + row;
            bytes.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
        };
        (0..self.array.len()).find(|row| !valid(row)).map_or(Ok(()), |row| Err(null_row(row)))
    }

    /// Of so many elements, those that the rows span: by their first and their last offset, or of list views, which may stand anywhere, all.
    fn span(&self, items: Option<usize>, host_read: &HostRead) -> Result<Range<usize>> {
        let Some([first, last]) = self.ends() else { return Ok(0..items.unwrap_or(0)) };
        let read = |range: &Range<usize>| {
            let value = self.offsets.value(host_read.require(range.start, range.len())?);
            value.ok_or_else(|| Error::internal("an offset that was not read"))
        };
        let (start, end) = (read(&first)?, read(&last)?);
        let range = usize::try_from(start).ok().zip(usize::try_from(end).ok()).map(|(start, end)| start..end);
        let fits = |range: &Range<usize>| range.start <= range.end && items.is_none_or(|items| range.end <= items);
        range.filter(fits).ok_or_else(|| {
            let of = items.map_or_else(String::new, |items| format!(" of {items} elements"));
            Error::invalid(format!("offsets from {start} to {end}{of}"))
        })
    }
}

/// The host wait of every level whose rows are not list views.
pub(super) const ENDS_READ: &str = "the first and the last offset are read";

impl RaggedRows for DeviceLevel<'_> {
    fn read_offsets(&self) -> Result<Option<Part>> {
        let spans = self.read_spans()?;
        self.spans.get_or_init(|| spans);
        Ok(Some(self.offsets_part()))
    }

    fn validity_part(&self) -> Option<Part> {
        let is_told = self.options.nulls == NullPolicy::Keep && self.has_bitmap();
        is_told.then(|| {
            let mut part = validity_part(self.field, self.rows());
            let spec = Spec::of_validity(self.field, &Options::default());
            part.plan.placement = spec.map_or(Placement::Views(self.device), |spec| self.validity_placement(&spec));
            part
        })
    }

    fn validity(&self) -> Result<Tensor> {
        let (spec, readiness) = (Spec::of_validity(self.field, &Options::default())?, self.readiness()?);
        let chunks =
            self.filled().map(|chunk| ColumnRef::whole(chunk.array).chunk(&spec)).collect::<Result<Vec<_>>>()?;
        let plan = Plan::validity(&spec, self.rows(), self.validity_placement(&spec), CopyMode::IfNeeded)?;
        let task = ColumnTask { spec: &spec, plan: &plan, chunks: &chunks };
        SharedReads::default().with_backend(Some(readiness), |backend| backend.validity(task))
    }

    fn offsets_part(&self) -> Part {
        let emptied = matches!(self.options.nulls, NullPolicy::Nan | NullPolicy::Fill(_)) && self.has_bitmap();
        let is_slice = self.spans.get().is_some_and(|spans| spans.iter().any(|span| span.start > 0));
        let own = [is_slice.then_some(Action::RebaseOffsets), emptied.then_some(Action::EmptyNullRows)];
        let part = self.part("offsets", own, |chunk| chunk.offsets);
        match has_lengths(self.field) {
            false if !is_cuda(self.device) => Part { error: Some(unknown_runtime(self.device)), ..part },
            false if self.spans.get().is_none() && !self.is_empty() && part.plan.is_view() => self.unless_slice(part),
            _ => part,
        }
    }

    fn offsets(&self, plan: &Plan) -> Result<Tensor> {
        if self.is_empty() && !has_lengths(self.field) {
            // The array need not have that one offset.
            return zero_on(self.device, ints_dtype(self.field));
        }
        let spans = self.spans.get().ok_or_else(|| Error::internal("offsets whose ends were not read"))?;
        self.ints(plan, &self.shifts(spans)?, |chunk| chunk.offsets)
    }

    fn lengths_part(&self) -> Option<Part> {
        has_lengths(self.field).then(|| self.part("lengths", [None, None], |chunk| chunk.lengths_or_offsets()))
    }

    fn lengths(&self, plan: &Plan) -> Result<Tensor> {
        let shifts = fallible::filled(self.chunks.len(), 0)?;
        self.ints(plan, &shifts, |chunk| chunk.lengths_or_offsets())
    }

    fn items(&self, item: &FieldRef) -> Result<Option<Vec<RaggedPart>>> {
        let Some(spans) = self.spans.get() else { return Ok(None) };
        let part = |(chunk, span): (&DeviceRows<'_>, &Range<usize>)| {
            Ok(RaggedPart { array: chunk.array.device_items(item.clone(), span)?, hidden: None })
        };
        self.chunks.iter().zip(spans).map(part).collect::<Result<_>>().map(Some)
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
        Some(UnreadRows { device: self.device, chunks: self.filled().count(), waits: self.waits().collect() })
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
