//! Chooses which of several refused values an error names: the one in the lowest row, then in the first column. The
//! choice depends neither on the chunks nor on whether they came one by one.

use std::ops::Range;

use super::chunk::{ColumnChunk, MatrixColumns};
use super::lane::Lane;
use super::misfit::Misfit;
use super::pack::Isa;
use crate::categories::Categories;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::spec::{MatrixSpec, Nulls, Spec};

/// The remedy for refused nulls.
pub(crate) fn null_remedy(spec: &Spec) -> Remedy {
    if is_float(spec) { Remedy::NanFillOrValidity } else { Remedy::FillOrValidity }
}

/// As [`check_nulls`], for rows that nobody can ask the validity of.
pub(crate) fn check_nulls_of_passing_rows(spec: &Spec, chunk: &ColumnChunk<'_>) -> Result<()> {
    check_nulls(spec, [chunk]).map_err(|error| match error.kind() {
        ErrorKind::Null => error.remedy_is(remedy_of_passing_rows(spec)),
        _ => error,
    })
}

/// As [`null_remedy`], for rows that nobody can ask the validity of.
pub(crate) fn remedy_of_passing_rows(spec: &Spec) -> Remedy {
    if is_float(spec) { Remedy::NanOrFill } else { Remedy::Fill }
}

fn is_float(spec: &Spec) -> bool {
    spec.dtype().kind() == crate::dtype::Kind::Float
}

/// Returns the error for element `index` of a column, which is null where nulls are refused.
pub(crate) fn refused_null(spec: &Spec, index: usize) -> Error {
    null_at(spec, index / spec.row_elements().max(1))
}

/// Returns the error for element `index` of a column, whose code no value of the dictionary has.
pub(crate) fn code_error(spec: &Spec, index: usize, code: i128) -> Error {
    Error::invalid(format!("code {code} leads out of the dictionary's values"))
        .at_row(index / spec.row_elements().max(1))
        .in_column(spec.field().name())
}

/// Returns the error for runs that end before element `index` of a column.
pub(crate) fn no_run_error(spec: &Spec, index: usize) -> Error {
    let row = index / spec.row_elements().max(1);
    Error::invalid("the runs end before this row").at_row(row).in_column(spec.field().name())
}

/// Returns the error for a run of a column that ends no later than the one before.
pub(crate) fn run_end_error(spec: &Spec, end: i64) -> Error {
    Error::invalid(format!("the run end {end} is not above the one before")).in_column(spec.field().name())
}

fn null_at(spec: &Spec, row: usize) -> Error {
    Error::new(ErrorKind::Null, "the column has nulls, the first one here")
        .at_row(row)
        .remedy_is(null_remedy(spec))
        .in_column(spec.field().name())
}

/// A value that is refused whatever the dtype is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Refused {
    Null,
    /// A value that is no category, with its negative code.
    Unknown(i32),
}

impl Refused {
    fn error(self, spec: &Spec, row: usize) -> Error {
        match (self, spec.categories()) {
            (Self::Unknown(code), Some(categories)) => {
                categories.error(code).at_row(row).in_column(spec.field().name())
            }
            _ => null_at(spec, row),
        }
    }
}

/// The element of the first value of a chunk that is refused.
fn first_refused(spec: &Spec, chunk: &ColumnChunk<'_>) -> Option<(usize, Refused)> {
    let null = chunk.mask.as_ref().filter(|_| spec.nulls() == Nulls::Refused);
    let null = null.map(|mask| (mask.first_null(), Refused::Null));
    null.into_iter().chain(first_unknown(spec, chunk)).min()
}

/// The element of the first value of a chunk that is no category, if such values are refused.
fn first_unknown(spec: &Spec, chunk: &ColumnChunk<'_>) -> Option<(usize, Refused)> {
    // Only where a value was not found codes may be negative.
    if !spec.categories().is_some_and(Categories::has_unknown) || chunk.leaf.elements == 0 {
        return None;
    }
    let bytes = chunk.leaf.elements.checked_mul(size_of::<i32>())?;
    // SAFETY: the spec's elements are int32, so the checked array, which was decoded to host memory, has this many bytes from
    // here on, alive and unchanged while `chunk` is.
    let codes = unsafe { std::slice::from_raw_parts(chunk.leaf.start(spec.element()), bytes) };
    let codes = codes.as_chunks().0.iter().map(|code| i32::from_ne_bytes(*code)).enumerate();
    // What lies in the slots of nulls counts for nothing.
    let is_null = |element: usize| chunk.mask.as_ref().is_some_and(|mask| !mask.is_valid(element));
    let mut unknown = codes.filter(|(element, code)| *code < 0 && !is_null(*element));
    unknown.next().map(|(element, code)| (element, Refused::Unknown(code)))
}

/// Refuses nulls, where the spec does, and values that are no category. Names the column and the first row.
///
/// # Errors
/// For the first such value; for a value in a row before it that a cast cannot take.
pub(crate) fn check_nulls<'a>(
    spec: &Spec,
    chunks: impl IntoIterator<Item = &'a ColumnChunk<'a>, IntoIter: Clone>,
) -> Result<()> {
    if spec.nulls() != Nulls::Refused && spec.categories().is_none() {
        return Ok(());
    }
    let chunks = chunks.into_iter();
    let mut refused =
        chunks.clone().enumerate().filter_map(|(number, chunk)| Some((number, first_refused(spec, chunk)?)));
    let Some((number, (element, refused))) = refused.next() else { return Ok(()) };
    let width = spec.row_elements().max(1);
    let mut row = 0_usize;
    for (index, chunk) in chunks.take(number.saturating_add(1)).enumerate() {
        let rows = if index == number { element / width } else { chunk.leaf.rows };
        // Only whole rows before it: in its own row it comes first.
        let misfit = check_values(spec, chunk, 0..rows.saturating_mul(width));
        misfit.map_err(|misfit| misfit.error(spec, row).in_column(spec.field().name()))?;
        row = row.saturating_add(rows);
    }
    Err(refused.error(spec, row))
}

/// Refuses the null, or the value that a cast cannot take, in the lowest row of a column in host memory.
pub(crate) fn check_column(spec: &Spec, chunks: &[ColumnChunk<'_>]) -> Result<()> {
    check_nulls(spec, chunks)?;
    let mut row = 0_usize;
    for chunk in chunks {
        let misfit = check_values(spec, chunk, 0..chunk.leaf.elements);
        misfit.map_err(|misfit| misfit.error(spec, row).in_column(spec.field().name()))?;
        row = row.saturating_add(chunk.leaf.rows);
    }
    Ok(())
}

/// As [`check_column`], of a matrix.
pub(crate) fn check_matrix(spec: &MatrixSpec, chunks: &[MatrixColumns<'_>]) -> Result<()> {
    check_matrix_nulls(spec, chunks)?;
    let mut before = 0_usize;
    for chunk in chunks {
        check_rows(spec, chunk, usize::MAX, 0..chunk.rows, before)?;
        before = before.saturating_add(chunk.rows);
    }
    Ok(())
}

/// Refuses nulls of a matrix, where the spec of a column does, and values that are no category.
///
/// # Errors
/// For such a value in the lowest row, of the first such column; for a value before it that a cast cannot take.
pub(crate) fn check_matrix_nulls(spec: &MatrixSpec, chunks: &[MatrixColumns<'_>]) -> Result<()> {
    let mut before = 0_usize;
    for (number, chunk) in chunks.iter().enumerate() {
        if let Some((row, column, refused)) = first_refused_in(spec, chunk) {
            let mut start = 0_usize;
            for earlier in chunks.iter().take(number) {
                check_rows(spec, earlier, usize::MAX, 0..earlier.rows, start)?;
                start = start.saturating_add(earlier.rows);
            }
            check_rows(spec, chunk, usize::MAX, 0..row, before)?;
            check_rows(spec, chunk, column, row..row.saturating_add(1), before)?;
            let column = spec.columns().get(column).map(|(_, column)| column);
            return column.map_or(Ok(()), |column| Err(refused.error(column, before + row)));
        }
        before = before.saturating_add(chunk.rows);
    }
    Ok(())
}

/// The row and the column of the first value of a chunk that is refused.
fn first_refused_in(spec: &MatrixSpec, chunk: &MatrixColumns<'_>) -> Option<(usize, usize, Refused)> {
    let columns = spec.columns().iter().zip(&chunk.columns).enumerate();
    let refused = columns.filter_map(|(index, ((_, spec), column))| {
        let (element, refused) = first_refused(spec, column)?;
        Some((element / spec.row_elements().max(1), index, refused))
    });
    refused.min()
}

/// Looks for values that do not fit in some rows of the first `count` columns of a chunk, whose first row is number `before`.
fn check_rows(
    spec: &MatrixSpec,
    chunk: &MatrixColumns<'_>,
    count: usize,
    mut rows: Range<usize>,
    before: usize,
) -> Result<()> {
    let mut lowest = Ok(());
    for ((_, spec), column) in spec.columns().iter().zip(&chunk.columns).take(count) {
        let width = spec.row_elements();
        let elements = rows.start.saturating_mul(width)..rows.end.saturating_mul(width);
        if let Err(misfit) = check_values(spec, column, elements) {
            // An error of a later column counts only in a lower row.
            rows.end = misfit.index / width.max(1);
            lowest = Err(misfit.error(spec, before).in_column(spec.field().name()));
        }
    }
    lowest
}

/// Looks for values that do not fit among elements of a chunk in host memory.
fn check_values(spec: &Spec, chunk: &ColumnChunk<'_>, elements: Range<usize>) -> std::result::Result<(), Misfit> {
    // A kernel's findings are known only after it has run.
    if !chunk.array.device().is_cpu() || chunk.array.readiness().is_some() {
        return Ok(());
    }
    let elements = elements.start..elements.end.min(chunk.leaf.elements);
    // SAFETY: `Lane::check`: the leaf of a checked array has these elements; the processor has what was detected.
    unsafe { Lane::new(Isa::detect(), spec, chunk)?.check(elements) }
}
