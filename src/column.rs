//! Converts one column, in both directions: makes a spec and a plan, and runs the plan.

mod host_reads;
mod to_arrow;
mod validity;
mod write_into;

use std::sync::Arc;

use arrow_schema::{Field, FieldRef};
use smallvec::{SmallVec, smallvec};

pub(crate) use to_arrow::{Bitmap, ColumnNode, as_requested, column_node, row_validity};
#[cfg(feature = "python")]
pub(crate) use to_arrow::{check_requested, check_to_arrow};
pub use to_arrow::{to_arrow, to_arrow_as};

pub(crate) use host_reads::{needed, read_nulls, refuse_known};

use crate::arrow::{DeviceArray, Leaf};
use crate::convert::{self, Backend, ColumnChunk, HostPass};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::kernels::{Casts, DeviceBackend, column_placement, refuse_decoding};
use crate::plan::{ChunkSize, Placement, Plan};
use crate::spec::{CopyMode, Options, Spec};
use crate::stream_order::Readiness;
use crate::tensor::Tensor;
use crate::transfer::Fetched;

pub use validity::Bits;
pub(crate) use validity::{plan_validity, validity, validity_bits};
pub(crate) use write_into::{chunks_to_tensor_into, overlap, require_copy};

/// A chunk of a column: an array, or one column of an array of structs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnRef<'a> {
    array: &'a DeviceArray,
    column: Option<usize>,
    /// What the host has read of a chunk on a device.
    fetched: Option<&'a Fetched>,
    /// Who looks at the values of a cast on a device; `None`: who makes it.
    casts: Option<&'a Casts>,
}

impl<'a> ColumnRef<'a> {
    /// The array itself.
    pub(crate) fn whole(array: &'a DeviceArray) -> Self {
        Self { array, column: None, fetched: None, casts: None }
    }

    /// One column of an array of structs.
    pub(crate) fn column(array: &'a DeviceArray, index: usize) -> Self {
        Self { array, column: Some(index), fetched: None, casts: None }
    }

    /// The column at this position of an array of structs, or the array itself.
    pub(crate) fn of(array: &'a DeviceArray, column: Option<usize>) -> Self {
        Self { array, column, fetched: None, casts: None }
    }

    /// The same column, of whose memory this was read.
    pub(crate) fn with_fetched(self, fetched: Option<&'a Fetched>) -> Self {
        Self { fetched, ..self }
    }

    /// The same column, the values of which are looked at with those of others.
    pub(crate) fn with_casts(self, casts: Option<&'a Casts>) -> Self {
        Self { casts, ..self }
    }

    /// Where the column's elements are.
    pub(crate) fn leaf(&self, spec: &Spec) -> Result<Leaf<'a>> {
        let view = self.array.view();
        match self.column {
            None => view.leaf(spec),
            Some(index) => view.struct_field(index)?.leaf(spec),
        }
    }

    /// The chunk: of host memory with its nulls, of a device without a look at its memory.
    // Inlined, as the chunk is too large to be handed on without a copy of it.
    #[inline(always)]
    pub(crate) fn chunk(&self, spec: &Spec) -> Result<ColumnChunk<'a>> {
        let leaf = self.leaf(spec)?;
        let mask = match self.array.readiness() {
            None => leaf.logical_mask(self.array),
            Some(_) => Ok(None),
        };
        Ok(ColumnChunk { mask: mask.map_err(|error| error.in_column(spec.field().name()))?, leaf, array: self.array })
    }

    fn rows(&self) -> usize {
        self.array.len()
    }

    /// The column with its runs, or its dictionary's values, written out.
    pub(crate) fn decode(&self, spec: &Spec, field: &FieldRef) -> Result<DeviceArray> {
        require_host(self.array.device(), spec.field().name())?;
        match self.column {
            None => convert::decode(self.array, field),
            Some(index) => convert::decode(&self.array.column(index)?, field),
        }
    }
}

/// As [`refuse_known`], of a whole array, or of the column of a struct's. What has to be decoded has not counted them.
pub(crate) fn refuse_counted(spec: &Spec, column: &ColumnRef<'_>) -> Result<()> {
    if spec.decoded().is_some() {
        return Ok(());
    }
    refuse_known(spec, column.leaf(spec)?.known_nulls())
}

/// As [`DeviceArray::readiness_of`].
fn readiness_of<'a>(chunks: &[ColumnRef<'a>]) -> Option<&'a Readiness> {
    DeviceArray::readiness_of(chunks.iter().map(|chunk| chunk.array))
}

/// Refuses memory that is not the host's.
pub(crate) fn require_host(device: Device, column: &str) -> Result<()> {
    if device.is_cpu() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Device, format!("the data is on {device}, where this build makes no such conversion"))
        .remedy_is(device.host_remedy())
        .in_column(column))
}

/// What may be looked at to make a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// All memory. The host waits for that of a device where only it tells whether a null is refused.
    AtMemory,
    /// Of a device only what the arrays themselves tell.
    AtStructure,
}

/// Calls `work` with the chunks, decoded where they have to be, and with the plan for them.
fn planned<R>(
    spec: &Spec,
    chunks: &[ColumnRef<'_>],
    options: &Options,
    look: Look,
    work: impl FnOnce(&Plan, &[ColumnChunk<'_>]) -> Result<R>,
) -> Result<R> {
    if let Some(field) = spec.decoded() {
        if let Some(readiness) = readiness_of(chunks) {
            return Err(refuse_decoding(readiness).in_column(spec.field().name()));
        }
        if options.copy == CopyMode::Never {
            // Refused before anything is decoded.
            let size = |chunk: &ColumnRef<'_>| ChunkSize::without_nulls(chunk.rows());
            Plan::new(spec, &chunks.iter().map(size).collect::<Vec<_>>(), options, Placement::Host)?;
        }
        let decoded = chunks.iter().map(|chunk| chunk.decode(spec, field)).collect::<Result<Vec<_>>>()?;
        return planned_as_stored(spec, &columns(&decoded), options, look, work);
    }
    planned_as_stored(spec, chunks, options, look, work)
}

/// Refuses the null or the value in the lowest row that a conversion of chunks in host memory would refuse.
pub(crate) fn check_rows(spec: &Spec, chunks: &[ColumnRef<'_>]) -> Result<()> {
    planned(spec, chunks, &Options::default(), Look::AtMemory, |_, chunks| convert::check_column(spec, chunks))
}

/// As [`planned`], for columns that are not decoded, or are by now.
#[inline]
fn planned_as_stored<'a, R>(
    spec: &Spec,
    chunks: &[ColumnRef<'a>],
    options: &Options,
    look: Look,
    work: impl FnOnce(&Plan, &[ColumnChunk<'_>]) -> Result<R>,
) -> Result<R> {
    // Most columns have one chunk, and their conversion takes about as long as a collection does.
    if let [only] = chunks
        && only.array.readiness().is_none()
    {
        let chunk = only.chunk(spec)?;
        let plan = Plan::new(spec, &[chunk.size(spec)], options, Placement::Host)?;
        return work(&plan, &[chunk]);
    }
    let mut before = 0;
    let chunk = |chunk: &ColumnRef<'a>| {
        let made = chunk.chunk(spec).map_err(|error| match error.row() {
            Some(row) => error.at_row(before + row),
            None => error,
        });
        before += chunk.rows();
        made
    };
    let mut read = chunks.iter().map(chunk).collect::<Result<SmallVec<[ColumnChunk<'a>; 1]>>>()?;
    let sizes: SmallVec<[ChunkSize; 1]> = read.iter().map(|chunk| chunk.size(spec)).collect();
    let placement = readiness_of(chunks).map_or(Placement::Host, |readiness| column_placement(spec, &read, readiness));
    let plan = Plan::new(spec, &sizes, options, placement)?;
    if look == Look::AtMemory && placement != Placement::Host {
        for (chunk, column) in read.iter_mut().zip(chunks) {
            chunk.mask = read_nulls(spec, chunk, column.fetched)?;
        }
    }
    work(&plan, &read)
}

/// What does the steps of a plan for these chunks.
fn with_backend<R>(chunks: &[ColumnRef<'_>], work: impl FnOnce(&dyn Backend) -> R) -> R {
    match readiness_of(chunks) {
        None => work(&HostPass),
        Some(readiness) => {
            let filled = || chunks.iter().find(|chunk| chunk.rows() > 0);
            let fetched = filled().and_then(|chunk| chunk.fetched);
            work(&DeviceBackend { readiness, fetched, casts: chunks.iter().find_map(|chunk| chunk.casts) })
        }
    }
}

/// Runs the last step of a conversion, knowing its plan: without the interpreter, say, where bytes move.
pub(crate) type Runner<'a> = dyn Fn(&Plan, &(dyn Fn() -> Result<Tensor> + Sync)) -> Result<Tensor> + 'a;

/// Converts the chunks of a column into one tensor of shape `(rows, *inner)`.
pub(crate) fn convert_chunks(
    spec: &Spec,
    chunks: &[ColumnRef<'_>],
    options: &Options,
    runner: &Runner<'_>,
) -> Result<Tensor> {
    with_backend(chunks, |backend| convert_by(spec, chunks, options, runner, backend))
}

fn convert_by(
    spec: &Spec,
    chunks: &[ColumnRef<'_>],
    options: &Options,
    runner: &Runner<'_>,
    backend: &dyn Backend,
) -> Result<Tensor> {
    let run = |plan: &Plan, chunks: &[ColumnChunk<'_>]| {
        runner(plan, &|| convert::run(spec, plan, chunks, options.copy, backend))
    };
    if spec.decoded().is_none() && !spec.has_codes() {
        // Of the branches the one that most columns take: nothing is moved on the way out.
        return planned_as_stored(spec, chunks, options, Look::AtMemory, run);
    }
    let convert = |runner: &Runner<'_>| {
        planned(spec, chunks, options, Look::AtMemory, |plan, chunks| {
            let dictionary = shared_dictionary(spec, chunks)?;
            let tensor = runner(plan, &|| convert::run(spec, plan, chunks, options.copy, backend))?;
            Ok(match dictionary {
                Some(dictionary) => tensor.with_dictionary(dictionary, !chunks.iter().any(ColumnChunk::may_have_nulls)),
                None => tensor,
            })
        })
    };
    if spec.decoded().is_none() {
        return convert(runner);
    }
    // Decoding moves bytes too: as many as these, if nothing refuses it.
    let rows = chunks.iter().fold(0_usize, |rows, chunk| rows.saturating_add(chunk.rows()));
    let bytes = rows.saturating_mul(spec.row_elements()).saturating_mul(spec.element().stored_bytes());
    runner(&Plan { rows, bytes, ..Plan::default() }, &|| convert(&run_here))
}

/// The dictionary that the codes of all chunks are of; `None` where the elements are no codes.
///
/// # Errors
/// When chunks have different dictionaries: the same code would stand for different values.
pub(crate) fn shared_dictionary<'a>(
    spec: &Spec,
    chunks: impl IntoIterator<Item = &'a ColumnChunk<'a>, IntoIter: Clone>,
) -> Result<Option<DeviceArray>> {
    let Some(values) = spec.dictionary_values() else { return Ok(None) };
    let chunks = chunks.into_iter();
    let mut filled = chunks.clone().filter(|chunk| chunk.leaf.rows > 0).peekable();
    let Some(chunk) = filled.next().or(chunks.clone().next()) else {
        let empty = arrow_array::new_empty_array(values);
        return DeviceArray::from_arrow(&empty, Arc::new(Field::new("", values.clone(), true))).map(Some);
    };
    let Some(first) = chunk.array.dictionary_of(&chunk.leaf)? else { return Ok(None) };
    if filled.peek().is_some() {
        let values = first.to_arrow()?;
        for chunk in filled {
            let dictionary =
                chunk.array.dictionary_of(&chunk.leaf)?.map(|dictionary| dictionary.to_arrow()).transpose()?;
            if dictionary.is_none_or(|dictionary| dictionary.as_ref() != values.as_ref()) {
                return Err(Error::unsupported(
                    "the chunks have different dictionaries, so their codes mean different things",
                )
                .remedy_is(Remedy::DictionaryValues)
                .in_column(spec.field().name()));
            }
        }
    }
    Ok(Some(first))
}

/// Runs a conversion at once.
pub(crate) fn run_here(_plan: &Plan, convert: &(dyn Fn() -> Result<Tensor> + Sync)) -> Result<Tensor> {
    convert()
}

/// What [`convert_chunks`] would do, or why it would refuse, as far as is known without a look at the memory of a device: nulls
/// included.
pub(crate) fn plan_chunks(spec: &Spec, chunks: &[ColumnRef<'_>], options: &Options) -> Result<Plan> {
    planned(spec, chunks, options, Look::AtStructure, |plan, chunks| {
        if plan.placement == Placement::Host {
            shared_dictionary(spec, chunks)?;
            convert::check_nulls(spec, chunks)?;
        } else {
            chunks.iter().try_for_each(|chunk| refuse_known(spec, chunk.leaf.known_nulls()))?;
        }
        Ok(plan.clone())
    })
}

/// The chunks as columns.
fn columns(chunks: &[DeviceArray]) -> SmallVec<[ColumnRef<'_>; 1]> {
    match chunks {
        [only] => smallvec![ColumnRef::whole(only)],
        _ => chunks.iter().map(ColumnRef::whole).collect(),
    }
}

/// Converts the chunks of a column into one tensor of shape `(rows, *inner)`; no chunks give a tensor of no rows.
///
/// A view of the only chunk where layout and options allow it, else one pass over all of them, by `runner`.
///
/// # Errors
/// When a chunk's field is of another type than `field`, or as [`Conversion::to_tensor`](crate::Conversion::to_tensor).
pub(crate) fn chunks_to_tensor_by(
    field: &FieldRef,
    chunks: &[DeviceArray],
    options: &Options,
    runner: &Runner<'_>,
) -> Result<Tensor> {
    check_types(field, chunks)?;
    convert_column(field, &columns(chunks), options, runner)
}

/// Converts the chunks of a column of this field.
#[inline]
pub(crate) fn convert_column(
    field: &FieldRef,
    chunks: &[ColumnRef<'_>],
    options: &Options,
    runner: &Runner<'_>,
) -> Result<Tensor> {
    if let [ColumnRef { array, column, .. }] = chunks
        && let Some(view) = convert::plain_view(field, array, *column, options)?
    {
        return Ok(view);
    }
    convert_chunks(&Spec::new(field, options)?, chunks, options, runner)
}

/// Refuses chunks of another type than the field's.
pub(crate) fn check_types(field: &FieldRef, chunks: &[DeviceArray]) -> Result<()> {
    let differs =
        |chunk: &&DeviceArray| !Arc::ptr_eq(chunk.field(), field) && chunk.field().data_type() != field.data_type();
    match chunks.iter().find(differs) {
        None => Ok(()),
        Some(chunk) => {
            let (found, expected) = (chunk.field().data_type(), field.data_type());
            Err(Error::invalid(format!("a chunk of type {found} in a column of {expected}")).in_column(field.name()))
        }
    }
}

/// Converts an array into a tensor of shape `(rows, *inner)`.
///
/// # Errors
/// As [`Conversion::to_tensor`](crate::Conversion::to_tensor).
pub(crate) fn to_tensor(array: &DeviceArray, options: &Options) -> Result<Tensor> {
    convert_column(array.field(), &[ColumnRef::whole(array)], options, &run_here)
}

#[cfg(test)]
mod tests;
