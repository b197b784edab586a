//! Converts a column on a device: views, and what the host has to know of its data.

use std::ops::Range;

use arrow_schema::FieldRef;
use smallvec::SmallVec;

use super::pending_casts::verify;
use super::{ColumnRef, Runner};
use crate::alloc::fallible;
use crate::arrow::{DeviceArray, Leaf, Mask};
use crate::convert::{self, ColumnChunk, check_nulls};
use crate::copy_log::{self, Copied};
use crate::cuda::{MatrixLayout, is_cuda};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::kernels::{self, KernelSource, Shape, Target, TargetLayout};
use crate::plan::{Action, ChunkSize, Plan};
use crate::spec::{CopyMode, Element, Nulls, Options, Spec};
use crate::stream_order::{self, Readiness};
use crate::tensor::{Output, Tensor};
use crate::transfer::{Fetched, fetch};

/// The addresses of what the host has to know before it can say that a column is a view: bitmaps, where nulls are refused and
/// their number is not known, and bytes that have to be bools.
pub(crate) fn needed(spec: &Spec, leaf: &Leaf<'_>) -> SmallVec<[Range<usize>; 1]> {
    let mut ranges = SmallVec::new();
    if spec.nulls() == Nulls::Refused {
        ranges.extend(leaf.bitmaps());
    }
    if spec.element() == Element::Bool8 {
        ranges.push(values(spec, leaf));
    }
    ranges
}

/// The addresses of a column's elements, for elements of whole bytes.
pub(crate) fn values(spec: &Spec, leaf: &Leaf<'_>) -> Range<usize> {
    let start = leaf.start(spec.element()).addr();
    start..start.saturating_add(leaf.elements.saturating_mul(spec.element().stored_bytes()))
}

/// Reads what several columns of a chunk need, together; `None` of host memory, and where one column alone needs anything.
///
/// # Errors
/// When the memory is not what the array says, or the driver fails.
pub(crate) fn fetch_columns<'a>(
    chunk: &DeviceArray,
    columns: impl IntoIterator<Item = (usize, &'a FieldRef)>,
    options: impl Fn(&str) -> Options,
) -> Result<Option<Fetched>> {
    let Some(readiness) = chunk.readiness() else { return Ok(None) };
    let mut ranges = Vec::new();
    for (index, column) in columns {
        // What is wrong with a column is found again when it is converted.
        let Ok(spec) = Spec::new(column, &options(column.name())) else { continue };
        let Ok(leaf) = ColumnRef::column(chunk, index).leaf(&spec) else { continue };
        if spec.decoded().is_none() {
            ranges.extend(needed(&spec, &leaf));
        }
    }
    fetch(readiness, &ranges).map(Some)
}

/// Which elements are null. The host reads bitmaps where nulls are refused and their number is not known to be 0.
pub(crate) fn mask<'a>(
    spec: &Spec,
    leaf: &Leaf<'a>,
    readiness: &Readiness,
    fetched: Option<&Fetched>,
) -> Result<Option<Mask<'a>>> {
    match spec.nulls() {
        Nulls::Kept => return Ok(None),
        Nulls::Refused => {}
        Nulls::Filled(_) if leaf.has_bitmaps() && leaf.elements > 0 => {
            return Err(needs_copy(readiness, "nulls filled").remedy_is(Remedy::KeepOrNoNulls));
        }
        Nulls::Filled(_) => {}
    }
    if leaf.known_nulls() == Some(leaf.elements) {
        fallible::require(leaf.elements.div_ceil(8))?;
    }
    let ranges: SmallVec<[Range<usize>; 1]> = leaf.bitmaps().collect();
    let own = match fetched {
        Some(_) => None,
        None => Some(fetch(readiness, &ranges)?),
    };
    leaf.mask_read(|start, bytes| {
        let fetched = own.as_ref().or(fetched);
        fetched.map_or(Ok(Vec::new()), |fetched| fetched.require(start.addr(), bytes).and_then(fallible::copied))
    })
}

/// The error for what only a copy on the device could do.
pub(crate) fn needs_copy(readiness: &Readiness, why: &str) -> Error {
    let reason = format!("a copy on {} is needed ({why}), which this build does not make", readiness.device());
    Error::new(ErrorKind::Device, reason).remedy_is(readiness.device().host_remedy())
}

/// Of chunks of which one is on a device, the only one that has rows.
///
/// # Errors
/// When there are several: they would have to be joined.
pub(crate) fn only_filled<T>(chunks: &[T], rows: impl Fn(&T) -> usize, readiness: &Readiness) -> Result<Option<usize>> {
    let mut filled = chunks.iter().enumerate().filter(|(_, chunk)| rows(chunk) > 0).map(|(index, _)| index);
    let first = filled.next();
    let others = filled.count();
    if others > 0 {
        return Err(needs_copy(readiness, &Action::Concatenate { chunks: others + 1 }.to_string())
            .remedy_is("convert each chunk for itself, or copy the data to the CPU first"));
    }
    Ok(first)
}

/// A column on a device as a tensor of ours, where it cannot be a view; `None` where it may be one, or where no kernel is for
/// what has to be done.
///
/// # Errors
/// Where a copy is refused, for a null or a value that is refused, and as [`kernels::pack`]. Names the column and the row.
pub(super) fn converted(
    spec: &Spec,
    chunks: &[ColumnRef<'_>],
    options: &Options,
    readiness: &Readiness,
    runner: &Runner<'_>,
) -> Result<Option<Tensor>> {
    let Some((plan, sources)) = copied(spec, chunks, options, true)? else { return Ok(None) };
    if spec.nulls() == Nulls::Refused {
        let read = chunks.iter().map(|chunk| chunk.chunk(spec)).collect::<Result<Vec<_>>>()?;
        check_nulls(spec, &read)?;
    }
    let run = || run(spec, chunks, &plan, &sources, readiness);
    runner(&plan, &run).map(Some).map_err(|error| error.in_column(spec.field().name()))
}

/// The plan of a column of which the elements have to move, and what the kernels read. `may_look`: whether the memory may be
/// looked at, where only that tells.
fn copied(
    spec: &Spec,
    chunks: &[ColumnRef<'_>],
    options: &Options,
    may_look: bool,
) -> Result<Option<(Plan, Vec<Vec<KernelSource>>)>> {
    if spec.decoded().is_some() || spec.has_codes() {
        return Ok(None);
    }
    let leaves = chunks.iter().map(|chunk| chunk.leaf(spec)).collect::<Result<Vec<_>>>()?;
    let sizes: Vec<ChunkSize> = leaves.iter().map(|leaf| leaf.chunk(spec, nulls_at_most(spec, leaf))).collect();
    let allowed = if options.copy == CopyMode::Never { CopyMode::IfNeeded } else { options.copy };
    let plan = Plan::new(spec, &sizes, &options.clone().copy(allowed))?;
    if !(plan.is_copy() || may_look && needs_normalising(spec, chunks, &leaves)?) {
        return Ok(None);
    }
    let sources: Option<Vec<Vec<KernelSource>>> = leaves
        .iter()
        .filter(|leaf| leaf.elements > 0)
        .map(|leaf| KernelSource::new(spec, leaf).map(|source| vec![source]))
        .collect();
    let Some(sources) = sources else { return Ok(None) };
    if options.copy == CopyMode::Never {
        let reason = format!("a copy of {} bytes is needed ({})", plan.bytes, reasons(spec, chunks, &plan)?);
        let asked = plan.steps.iter().all(|step| step.action == Action::Private);
        let remedy = if asked { Remedy::AllowCopyOrReadOnly } else { Remedy::AllowCopy };
        return Err(Error::new(ErrorKind::Copy, reason).remedy_is(remedy).in_column(spec.field().name()));
    }
    Ok(Some((plan, sources)))
}

/// Why bytes of these chunks move, in words: of nulls that nobody has counted, how many there are at most.
fn reasons(spec: &Spec, chunks: &[ColumnRef<'_>], plan: &Plan) -> Result<String> {
    let fill = plan.steps.iter().find(|step| matches!(step.action, Action::Fill { .. }));
    Ok(match fill {
        Some(fill) if !are_counted(spec, chunks)? => {
            let text = fill.action.to_string();
            plan.reasons().replace(&text, &format!("at most {text}"))
        }
        _ => plan.reasons(),
    })
}

/// Whether bytes that have to be bools are none. The host waits for the answer.
fn needs_normalising(spec: &Spec, chunks: &[ColumnRef<'_>], leaves: &[Leaf<'_>]) -> Result<bool> {
    if spec.element() != Element::Bool8 {
        return Ok(false);
    }
    for (chunk, leaf) in chunks.iter().zip(leaves).filter(|(_, leaf)| leaf.elements > 0) {
        let Some(readiness) = chunk.array.readiness() else { continue };
        if !are_bools(&values(spec, leaf), readiness, chunk.fetched)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A bool for each element of chunks on a device, true where it is valid; `None` where their bitmaps do not say all of it.
///
/// # Errors
/// As [`kernels::pack`].
pub(super) fn validity(spec: &Spec, chunks: &[DeviceArray], readiness: &Readiness) -> Result<Option<Tensor>> {
    if spec.decoded().is_some() || spec.has_codes() || !is_cuda(readiness.device()) {
        return Ok(None);
    }
    let leaves = chunks.iter().map(|chunk| ColumnRef::whole(chunk).leaf(spec)).collect::<Result<Vec<_>>>()?;
    let filled = leaves.iter().filter(|leaf| leaf.elements > 0);
    let Some(sources) = filled.map(|leaf| Some(vec![KernelSource::validity(leaf)?])).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let sum = |count: fn(&Leaf<'_>) -> usize| leaves.iter().map(count).fold(0_usize, usize::saturating_add);
    let (rows, elements) = (sum(|leaf| leaf.rows), sum(|leaf| leaf.elements));
    let joined = DeviceArray::joined_readiness(chunks)?.unwrap_or_else(|| readiness.clone());
    let shape = Shape { rows: elements, columns: 1, dtype: DType::Bool, is_row_major: false };
    let written = kernels::pack(&joined, &sources, shape)?;
    copy_log::record(|| Copied {
        what: format!("validity of {} on {}", convert::what(spec, rows), readiness.device()),
        why: Action::Unpack.to_string(),
        bytes: elements,
    });
    written.tensor(DType::Bool, convert::layout(spec, rows)?, None).map(Some)
}

/// How many null slots are written, at most: nobody reads a bitmap to know.
fn nulls_at_most(spec: &Spec, leaf: &Leaf<'_>) -> usize {
    if spec.nulls() == Nulls::Refused { 0 } else { leaf.known_nulls().unwrap_or(leaf.elements) }
}

fn run(
    spec: &Spec,
    chunks: &[ColumnRef<'_>],
    plan: &Plan,
    sources: &[Vec<KernelSource>],
    readiness: &Readiness,
) -> Result<Tensor> {
    // Every chunk's memory is written first, and kept until it has been read.
    let arrays = chunks.iter().map(|chunk| chunk.array);
    let joined = DeviceArray::joined_readiness(arrays)?.unwrap_or_else(|| readiness.clone());
    let shape = Shape { rows: plan.elements, columns: 1, dtype: spec.dtype(), is_row_major: false };
    let mut written = kernels::pack(&joined, sources, shape)?;
    match chunks.iter().find_map(|chunk| chunk.casts) {
        Some(casts) => casts.add([spec], written.check.take()),
        None => verify([spec], written.check.take())?,
    }
    copy_log::record(|| {
        let what = format!("{} on {}", convert::what(spec, plan.rows), readiness.device());
        Copied { what, why: reasons(spec, chunks, plan).unwrap_or_else(|_| plan.reasons()), bytes: plan.bytes }
    });
    written.tensor(spec.dtype(), convert::layout(spec, plan.rows)?, spec.kept_field().cloned())
}

/// Writes chunks on a device into memory of somebody else's on the same device.
///
/// # Errors
/// As [`converted`], and when `out` is on another device, or has another dtype, shape or layout.
pub(super) fn write(
    spec: &Spec,
    chunks: &[ColumnRef<'_>],
    options: &Options,
    readiness: &Readiness,
    out: &Output<'_>,
) -> Result<()> {
    let target_readiness = out.require_device(readiness.device())?;
    let rows = chunks.iter().fold(0_usize, |rows, chunk| rows.saturating_add(chunk.rows()));
    let stride = convert::row_stride(spec, rows, out)?;
    let as_copy = options.clone().copy(CopyMode::Always);
    let made = copied(spec, chunks, &as_copy, true)?;
    let Some((plan, sources)) = made else {
        // Of no elements, or of what no kernel is for.
        let plan = Plan::new(spec, &[ChunkSize { rows, nulls: 0, aligned: true }], &as_copy)?;
        return if plan.elements == 0 { Ok(()) } else { Err(needs_copy(readiness, &plan.reasons())) };
    };
    if spec.nulls() == Nulls::Refused {
        let read = chunks.iter().map(|chunk| chunk.chunk(spec)).collect::<Result<Vec<_>>>()?;
        check_nulls(spec, &read)?;
    }
    let arrays = chunks.iter().map(|chunk| chunk.array);
    let joined = DeviceArray::joined_readiness(arrays)?.unwrap_or_else(|| readiness.clone());
    let (width, stride) = (spec.row_elements() as u64, stride as u64);
    let layout = if width == stride || rows < 2 {
        TargetLayout::Matrix(MatrixLayout::ColumnMajor { stride: plan.elements as u64 })
    } else if width == 1 {
        TargetLayout::Matrix(MatrixLayout::RowMajor { stride })
    } else {
        TargetLayout::Rows { width, stride }
    };
    let target = Target { span: out.span(), readiness: target_readiness, layout };
    let shape = Shape { rows: plan.elements, columns: 1, dtype: spec.dtype(), is_row_major: false };
    let check = kernels::pack_into(&joined, &sources, shape, &target)?;
    verify([spec], check)?;
    copy_log::record(|| {
        let what = format!("{} on {}", convert::what(spec, plan.rows), readiness.device());
        let bytes = plan.elements.saturating_mul(spec.dtype().itemsize());
        Copied { what, why: format!("{}, written to out", plan.reasons()), bytes }
    });
    Ok(())
}

/// Calls `work` with the chunk and a plan that nothing moves by.
///
/// # Errors
/// When something would have to move, or the memory is not what the array says.
pub(super) fn planned<R>(
    spec: &Spec,
    plan: &Plan,
    chunk: ColumnChunk<'_>,
    readiness: &Readiness,
    column: &ColumnRef<'_>,
    work: impl FnOnce(&Plan, &[ColumnChunk<'_>]) -> Result<R>,
) -> Result<R> {
    let in_column = |error: Error| error.in_column(spec.field().name());
    let mut plan = plan.clone();
    if plan.steps.iter().any(|step| step.action != Action::Normalise) {
        return Err(in_column(needs_copy(readiness, &plan.reasons())));
    }
    let range = values(spec, &chunk.leaf);
    stream_order::check_memory(readiness.device(), range.start, range.len()).map_err(in_column)?;
    if !plan.is_view() {
        if !column.are_bools && !are_bools(&range, readiness, column.fetched).map_err(in_column)? {
            return Err(in_column(needs_copy(readiness, &plan.reasons())));
        }
        plan.steps.clear();
        plan.bytes = 0;
    }
    work(&plan, &[chunk])
}

/// Whether bytes on a device are all 0 or 1. The host reads them, or what a kernel finds.
pub(crate) fn are_bools(range: &Range<usize>, readiness: &Readiness, fetched: Option<&Fetched>) -> Result<bool> {
    let read = |fetched: &Fetched| Some(fetched.get(range.start, range.len())?.iter().all(|byte| *byte <= 1));
    match fetched.and_then(read) {
        Some(are) => Ok(are),
        None if readiness.device().device_type() == DLDeviceType::CUDA => kernels::are_bools(readiness, range),
        None => Ok(read(&fetch(readiness, std::slice::from_ref(range))?).unwrap_or(range.is_empty())),
    }
}

/// What would be done to a column on a device, or why it would be refused, as far as the arrays tell without their memory.
///
/// # Errors
/// As the conversion.
pub(super) fn explain(spec: &Spec, chunks: &[ColumnRef<'_>], options: &Options, readiness: &Readiness) -> Result<Plan> {
    if spec.decoded().is_some() {
        return Err(needs_copy(readiness, &Action::Decode.to_string()));
    }
    if is_cuda(readiness.device())
        && let Some((plan, _)) = copied(spec, chunks, options, false)?
    {
        for chunk in chunks {
            refuse_known(spec, chunk.leaf(spec)?.known_nulls())?;
        }
        return Ok(plan);
    }
    let only = only_filled(chunks, ColumnRef::rows, readiness)?.unwrap_or(0);
    let Some(chunk) = chunks.get(only) else { return Plan::new(spec, &[], options) };
    let leaf = chunk.leaf(spec)?;
    let nulls = leaf.known_nulls();
    refuse_known(spec, nulls)?;
    if matches!(spec.nulls(), Nulls::Filled(_)) && nulls != Some(0) {
        return Err(needs_copy(readiness, "nulls filled"));
    }
    let plan = Plan::new(spec, &[ChunkSize { nulls: 0, ..leaf.chunk(spec, 0) }], options)?;
    if plan.is_copy() { Err(needs_copy(readiness, &plan.reasons())) } else { Ok(plan) }
}

/// Refuses nulls that the arrays have counted, where the spec does.
pub(crate) fn refuse_known(spec: &Spec, nulls: Option<usize>) -> Result<()> {
    match (spec.nulls(), nulls) {
        (Nulls::Refused, Some(nulls)) if nulls > 0 => {
            let reason = format!("{nulls} null{}, which are refused", if nulls == 1 { "" } else { "s" });
            Err(Error::new(ErrorKind::Null, reason)
                .remedy_is(convert::null_remedy(spec))
                .in_column(spec.field().name()))
        }
        _ => Ok(()),
    }
}

/// As [`refuse_known`], of a whole array, or of the column of a struct's. What has to be decoded has not counted them.
pub(crate) fn refuse_counted(spec: &Spec, column: &ColumnRef<'_>) -> Result<()> {
    if spec.decoded().is_some() {
        return Ok(());
    }
    refuse_known(spec, column.leaf(spec)?.known_nulls())
}

/// What the host would wait for before a column on a device is converted, or to know that it was: empty of host memory.
///
/// # Errors
/// When the array is not of the type that it says.
pub(crate) fn waits(spec: &Spec, chunks: &[ColumnRef<'_>], is_copy: bool) -> Result<Vec<&'static str>> {
    let mut waits = Vec::new();
    let filled = |chunk: &&ColumnRef<'_>| chunk.array.readiness().is_some() && chunk.rows() > 0;
    let mut leaves = chunks.iter().filter(filled).map(|chunk| chunk.leaf(spec)).collect::<Result<Vec<_>>>()?;
    leaves.retain(|leaf| leaf.elements > 0);
    if leaves.is_empty() {
        return Ok(waits);
    }
    if spec.nulls() == Nulls::Refused && leaves.iter().any(|leaf| leaf.bitmaps().next().is_some()) {
        waits.push("bitmaps of nulls that are not counted are read");
    }
    if spec.element() == Element::Bool8 && !is_copy {
        waits.push("bytes that have to be bools are looked at");
    }
    if is_copy && kernels::is_checked(spec) {
        waits.push("whether every value fits is read, once for all columns");
    }
    Ok(waits)
}

/// Whether the arrays have counted the nulls of a column.
///
/// # Errors
/// As [`waits`].
pub(crate) fn are_counted(spec: &Spec, chunks: &[ColumnRef<'_>]) -> Result<bool> {
    for chunk in chunks {
        if chunk.leaf(spec)?.known_nulls().is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}
