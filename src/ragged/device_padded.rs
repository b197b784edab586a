//! [`DevicePadded`]: lists and strings that kernels pad on their device. The host reads the measured lengths, and no offsets.

use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

use arrow_schema::{DataType, FieldRef};
use smallvec::smallvec;

use super::device_rows::DeviceRows;
use super::elements::parts;
use super::level::null_row;
use super::pad_rules::{item_spec, longer_row, outside_rows, plan_schema};
use super::part::Part;
use crate::alloc::fallible;
use crate::arrow::{DeviceArray, Leaf};
use crate::column::{ColumnRef, columns, read_chunks, shared_dictionary};
use crate::convert::null_item;
use crate::copy_log::rows_of;
use crate::cuda::is_cuda;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::kernels::{
    Casts, Measured, Padded, PaddedItems, PaddedRows, Padding, decodes_items, has_padding_kernel, kept_lengths,
    measure, pad,
};
use crate::plan::{Action, DICTIONARIES_READ, Placement, Plan, needs_copy};
use crate::spec::{
    CopyMode, NullPolicy, Nulls, Options, Pad, Pattern, Side, Spec, Undecided, row_major_strides, signed,
};
use crate::stream_order::Readiness;
use crate::tensor::Tensor;

/// What the host waits for before it can make the matrix.
const LENGTHS_READ: &str = "the length of the longest row is read, and whether every row lies inside the elements";
/// What it waits for at the end.
const VALUES_READ: &str = "whether every value fits, and none that is shown is a refused null, is read";
/// What it waits for at the end, too, where kernels decode items.
pub(super) const CODES_READ: &str = "whether every code has a value, and every item a run, is read";

/// The plan of padded rows on a device. Planning reads no memory of the device.
pub(crate) struct DevicePadded {
    field: FieldRef,
    spec: Spec,
    pad: Pad,
    padding: Pattern,
    options: Options,
    device: Device,
    chunks: Vec<PaddedChunk>,
    /// Whether the items are codes of several dictionaries, which the host compares.
    are_compared: bool,
    rows: usize,
    /// The copy that is refused, as far as the arrays tell.
    refused: Option<Error>,
    /// The measured rows, once the host has read them.
    read: OnceLock<ReadRows>,
}

/// A chunk that is not empty.
struct PaddedChunk {
    own: DeviceRows,
    rows: PaddedRows,
}

/// What the host reads from the device about all rows.
struct ReadRows {
    readiness: Readiness,
    /// Items per padded row.
    length: usize,
    /// The rows of each chunk, with the number of their items, and the items that they span: all, from 0 on, if these are not decoded.
    rows: Vec<(PaddedRows, Range<usize>)>,
}

impl fmt::Debug for DevicePadded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DevicePadded").field("field", &self.field).field("rows", &self.rows).finish_non_exhaustive()
    }
}

impl DevicePadded {
    /// Plans chunks, at least one of which is on a device.
    ///
    /// # Errors
    /// If rows of this type cannot be padded so, whatever the data; for types that no kernel pads.
    pub(super) fn new(field: &FieldRef, chunks: &[DeviceArray], pad: Pad, options: &Options) -> Result<Self> {
        let (spec, padding) = item_spec(field, pad, options)?;
        parts(field, chunks)?;
        let device = DeviceArray::device_of(chunks);
        let refuse = |why: &str| Err(needs_copy(device, why));
        if let DataType::Utf8View | DataType::BinaryView = field.data_type() {
            return refuse(&Action::GatherViews.to_string());
        }
        if !is_cuda(device) || !has_padding_kernel(&spec) {
            let actions: Vec<_> = Plan::padding_actions(&spec, pad.length).map(|action| action.to_string()).collect();
            return refuse(&actions.join(", "));
        }
        let filled = chunks.iter().filter(|chunk| !chunk.is_empty());
        let chunks = fallible::collected(filled.map(PaddedChunk::new))?;
        let are_compared = spec.has_codes() && check_codes(&spec, &chunks, device, pad)?;
        let rows = chunks.iter().fold(0_usize, |rows, chunk| rows.saturating_add(chunk.rows.count));
        let refused = match pad.length {
            _ if options.copy != CopyMode::Never || rows == 0 => None,
            Some(length) => Plan::padded(&spec, rows, length, items_of(&chunks))?.refuse_steps(options.copy).err(),
            None => plan_schema(field, &spec, pad, options).into_iter().find_map(|part| part.error),
        };
        let (field, options) = (field.clone(), options.clone());
        Ok(Self {
            field,
            spec,
            pad,
            padding,
            options,
            device,
            chunks,
            are_compared,
            rows,
            refused,
            read: OnceLock::new(),
        })
    }

    /// Refuses a copy that is not allowed.
    ///
    /// # Errors
    /// Names the column.
    pub(super) fn refuse(&self) -> Result<()> {
        self.refused.clone().map_or(Ok(()), |error| Err(error.in_column(self.field.name())))
    }

    /// Returns the plans of the matrix and of its validity; with a given length of the rows, including their bytes. Items that are decoded
    /// count as if rows span all of them, because only the memory of the device tells which.
    ///
    /// # Errors
    /// If the result is larger than the address space.
    pub(super) fn parts(&self) -> Result<Vec<Part>> {
        let mut parts = self.parts_of_type();
        if let (Some(length), [matrix, flags]) = (self.pad.length, parts.as_mut_slice()) {
            let plan = Plan::padded(&self.spec, self.rows, length, items_of(&self.chunks))?;
            let padded = [Action::Pad { length: Some(length) }];
            let own = Plan::of_part(DType::Bool, self.rows.saturating_mul(length), padded);
            matrix.plan =
                Plan { bytes: plan.bytes.saturating_sub(own.bytes), placement: matrix.plan.placement, ..plan };
            flags.plan = Plan { placement: flags.plan.placement, ..own };
            // The steps are decided. Whether values are refused is not, because the host has read none.
            for part in [matrix, flags] {
                let steps = part.plan.steps.iter().map(|step| step.action.to_string()).collect();
                part.undecided = part.undecided.take().map(|undecided| Undecided { steps, ..undecided });
            }
        }
        for part in &mut parts {
            if let Some(rows) = part.shape.first_mut() {
                *rows = i64::try_from(self.rows).ok();
            }
            if self.rows == 0 {
                part.waits.clear();
            }
            part.error = self.refused.clone().map(|error| error.in_column(self.field.name()));
        }
        Ok(parts)
    }

    /// Plans any rows of this type on this device.
    pub(super) fn parts_of_type(&self) -> Vec<Part> {
        let parts = plan_schema(&self.field, &self.spec, self.pad, &self.options);
        let mut parts: Vec<_> = parts.into_iter().map(|part| part.by_kernels(self.device)).collect();
        if let Some(matrix) = parts.first_mut() {
            matrix.waits = vec![LENGTHS_READ];
            matrix.waits.extend(decodes_items(&self.spec).then_some(CODES_READ));
            matrix.waits.extend(self.is_checked().then_some(VALUES_READ));
            // Without chunks nothing is known of their dictionaries.
            let are_compared = self.are_compared || (self.spec.has_codes() && self.chunks.is_empty());
            matrix.waits.extend(are_compared.then_some(DICTIONARIES_READ));
        }
        parts
    }

    /// Whether the host may wait for checks of the elements, as far as the type tells.
    fn is_checked(&self) -> bool {
        self.spec.is_checked_cast()
            || (self.spec.nulls() == Nulls::Refused && crate::spec::may_be_null(self.spec.field()))
    }

    /// Returns the plan that counts the elements of each row.
    pub(super) fn lengths_part(&self) -> Part {
        let (counted, copy) = ((DType::Int64, self.rows), self.options.copy);
        let part = Part::new("lengths", &self.field, counted, [Action::CountLengths], copy).by_kernels(self.device);
        Part { error: self.refuse().err(), ..part }.checked()
    }

    /// Returns the matrix, and a bool for each of its items, true where it is valid.
    ///
    /// # Errors
    /// As [`DevicePadded::refuse`]; for a row that is out of bounds, too long, or a refused null; for an element that is a refused null or
    /// does not fit; when an allocation or the driver fails.
    pub(super) fn run(&self) -> Result<(Tensor, Tensor)> {
        self.refuse()?;
        self.make().map_err(|error| error.in_column(self.field.name()))
    }

    /// Returns how many elements each row keeps; a null row keeps none.
    ///
    /// # Errors
    /// As [`DevicePadded::run`].
    pub(super) fn lengths(&self) -> Result<Tensor> {
        let make = || {
            let ReadRows { readiness, length, rows } = self.read()?;
            let mut chunks = fallible::with_room(rows.len())?;
            chunks.extend(rows.iter().map(|(rows, _)| rows.clone()));
            let kept = kept_lengths(readiness, &chunks, *length)?;
            kept.tensor(DType::Int64, (smallvec![signed(self.rows)?], smallvec![1]), None)
        };
        self.lengths_part().make(|_| make()).map_err(|error| error.in_column(self.field.name()))
    }

    fn make(&self) -> Result<(Tensor, Tensor)> {
        let ReadRows { readiness, length, rows } = self.read()?;
        let (field, spec, length) = (&self.field, &self.spec, *length);
        let decoded = rows.iter().map(|(_, span)| span.len()).sum();
        let mut plan = Plan::padded(spec, self.rows, length, decoded)?;
        plan.placement = Placement::Kernels(self.device);
        plan.refuse_steps(self.options.copy)?;
        plan.record(|| rows_of(field.name(), plan.rows, field.data_type()));
        let mut sources = fallible::with_room(rows.len())?;
        for (chunk, (rows, span)) in self.chunks.iter().zip(rows) {
            let (items, shown) = (chunk.own.items(field, &(0..span.end))?, chunk.own.items(field, span)?);
            let leaf = |items| Ok::<_, Error>(ColumnRef::whole(items).chunk(spec)?.leaf);
            let items = PaddedItems::new(spec, &leaf(&items)?, &leaf(&shown)?);
            let padded = || needs_copy(self.device, &Action::Pad { length: Some(length) }.to_string());
            sources.push((rows.clone(), items.ok_or_else(padded)?));
        }
        // Without `truncate`, rows that are too long were refused, so the side does not matter.
        let (side, truncate) = (self.pad.side, self.pad.truncate.unwrap_or(Side::Right));
        let padding = Padding { spec, length, value: self.padding, side, truncate };
        let Padded { mut values, mask, decoded } = pad(readiness, sources, padding)?;
        let (casts, mut numbers) = (Casts::default(), fallible::with_room(decoded.len())?);
        for (number, check) in decoded {
            casts.add([spec], Some(check));
            numbers.push(number);
        }
        casts.add([spec], values.check.take());
        for (place, error) in casts.errors()?.into_iter().enumerate() {
            match (error, numbers.get(place)) {
                (None, _) => {}
                (Some(error), Some(number)) => return Err(self.at_item(error, *number, rows)?),
                (Some(error), None) => return Err(self.at_row(error, length)),
            }
        }
        let shape = smallvec![signed(self.rows)?, signed(length)?];
        let strides = row_major_strides(&shape)?;
        let item = signed(spec.row_elements())?;
        let inner_shape = shape.iter().chain(spec.inner_shape()).copied().collect();
        let outer = strides.iter().map(|stride| stride.saturating_mul(item));
        let inner_strides = outer.chain(spec.inner_strides().iter().copied()).collect();
        let values = values.tensor(spec.dtype(), (inner_shape, inner_strides), None)?;
        Ok((values, mask.tensor(DType::Bool, (shape, strides), None)?))
    }

    /// Returns the error of a padded item as that of its row.
    fn at_row(&self, error: Error, length: usize) -> Error {
        let row = error.row().map(|item| item.checked_div(length).unwrap_or(0));
        let error = if error.kind() == ErrorKind::Null { null_item(&self.spec) } else { error };
        match row {
            Some(row) => error.at_row(row),
            None => error,
        }
    }

    /// Returns the error of an item that was decoded, as counted from the first one that the rows of a chunk span, as that of its row.
    fn at_item(&self, error: Error, number: usize, rows: &[(PaddedRows, Range<usize>)]) -> Result<Error> {
        let (Some(item), Some(chunk), Some((_, span))) = (error.row(), self.chunks.get(number), rows.get(number))
        else {
            return Ok(error);
        };
        let before: usize = self.chunks.iter().take(number).map(|chunk| chunk.rows.count).sum();
        let item = span.start.saturating_add(item);
        Ok(match chunk.own.row_of(item)? {
            Some(row) => error.at_row(before.saturating_add(row)),
            None => outside_rows(item, &error),
        })
    }

    /// Returns the measured rows, for which the host waits once.
    fn read(&self) -> Result<&ReadRows> {
        if let Some(read) = self.read.get() {
            return Ok(read);
        }
        let read = self.read_rows()?;
        Ok(self.read.get_or_init(|| read))
    }

    fn read_rows(&self) -> Result<ReadRows> {
        let joined = DeviceArray::joined_readiness(self.chunks.iter().map(|chunk| &chunk.own.array))?;
        let readiness = joined.unwrap_or_else(|| Readiness::on_device(self.device));
        let mut chunks = fallible::with_room(self.chunks.len())?;
        chunks.extend(self.chunks.iter().map(|chunk| chunk.rows.clone()));
        let most = self.pad.length.filter(|_| self.pad.truncate.is_none());
        let is_decoded = decodes_items(&self.spec);
        let measured = measure(&readiness, &chunks, (most, is_decoded))?;
        self.refuse_rows(&measured)?;
        self.compare_dictionaries(&measured)?;
        let (mut longest, mut rows) = (0, fallible::with_room(chunks.len())?);
        for (mut chunk, measured) in chunks.into_iter().zip(&measured) {
            chunk.items = chunk.items.or(Some(measured.end));
            longest = measured.longest.max(longest);
            let shown = measured.start.min(measured.end)..measured.end;
            let span = if is_decoded { shown } else { 0..chunk.items.unwrap_or(0) };
            rows.push((chunk, span));
        }
        Ok(ReadRows { readiness, length: self.pad.length_of(longest)?, rows })
    }

    /// Refuses chunks with different dictionaries, of the items that rows span.
    fn compare_dictionaries(&self, measured: &[Measured]) -> Result<()> {
        if !self.are_compared {
            return Ok(());
        }
        let mut items = fallible::with_room(self.chunks.len())?;
        for (chunk, measured) in self.chunks.iter().zip(measured) {
            items.push(chunk.own.items(&self.field, &(measured.start.min(measured.end)..measured.end))?);
        }
        let chunks = read_chunks(&self.spec, &columns(&items))?;
        shared_dictionary(&self.spec, &chunks).map(drop)
    }

    /// Refuses rows in the same order as padding on the host: first those out of bounds, then nulls and rows that are too long.
    fn refuse_rows(&self, measured: &[Measured]) -> Result<()> {
        let mut before = 0;
        for (chunk, measured) in self.chunks.iter().zip(measured) {
            if let Some(row) = measured.outside {
                return Err(chunk.own.outside(row)?.at_row(before + row));
            }
            before += chunk.rows.count;
        }
        before = 0;
        for (chunk, measured) in self.chunks.iter().zip(measured) {
            let null = measured.null.filter(|_| self.options.nulls == NullPolicy::Error);
            let longer = measured.longer.filter(|longer| null.is_none_or(|null| *longer < null));
            if let Some(row) = longer {
                let (start, end) = chunk.own.row(row)?;
                let length = if chunk.own.lengths.is_some() { end } else { end.saturating_sub(start) };
                return Err(longer_row(length, self.pad.length.unwrap_or(0)).at_row(before + row));
            }
            if let Some(row) = null {
                return Err(null_row(before + row));
            }
            before += chunk.rows.count;
        }
        Ok(())
    }
}

impl PaddedChunk {
    fn new(array: &DeviceArray) -> Result<Self> {
        let own = DeviceRows::new(array)?;
        let rows = own.in_kernels()?;
        Ok(Self { own, rows })
    }
}

/// Returns the number of items that the rows of these chunks may span, as far as the arrays tell.
fn items_of(chunks: &[PaddedChunk]) -> usize {
    chunks.iter().map(|chunk| chunk.rows.items.unwrap_or(0)).sum()
}

/// Refuses codes of values whose own bitmap does not tell which are null. Returns whether the host has to compare the dictionaries of chunks.
fn check_codes(spec: &Spec, chunks: &[PaddedChunk], device: Device, pad: Pad) -> Result<bool> {
    let filled = chunks.iter().filter(|chunk| chunk.rows.items != Some(0));
    let items = filled.map(|chunk| chunk.own.items(chunk.own.array.field(), &(0..0))).collect::<Result<Vec<_>>>()?;
    let leaves = items.iter().map(|items| ColumnRef::whole(items).leaf(spec)).collect::<Result<Vec<_>>>()?;
    if !leaves.iter().all(Leaf::has_plain_dictionary) {
        let actions: Vec<_> = Plan::padding_actions(spec, pad.length).map(|action| action.to_string()).collect();
        return Err(needs_copy(device, &actions.join(", ")));
    }
    Ok(leaves.iter().zip(leaves.iter().skip(1)).any(|(one, next)| !one.shares_dictionary(next)))
}
