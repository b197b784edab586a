//! Reports of matrices and of named groups with rows of one shape.

use std::sync::Arc;

use arrow_schema::FieldRef;

use super::matrix::{column_of_type, refused_column, row_of_matrix};
use super::results::explain_spec;
use super::{Report, ReportRow, explain_column, explain_columns};
use crate::arrow::DeviceArray;
use crate::column::check_types;
use crate::dtype::DType;
use crate::error::Result;
use crate::spec::{
    Conversion, Group, MatrixOptions, MatrixSpec, Options, Positions, ResultKind, ResultSpec, Spec, select,
};

/// Explains the conversion of columns of a struct into a matrix: of these chunks, or of any data of this field where they are `None`.
/// `dtype` is that of all columns, unless they are promoted to one.
///
/// # Errors
/// When a chunk is of another type, or a selected column does not exist. What is wrong with a column or the matrix is in its row.
pub(crate) fn explain_matrix(
    field: &FieldRef,
    chunks: Option<&[DeviceArray]>,
    (columns, dtype): (Option<&[String]>, Option<DType>),
    matrix: &MatrixOptions,
    options: impl Fn(&str) -> Options,
) -> Result<Report> {
    check_types(field, chunks.unwrap_or_default())?;
    explain_selected(field, chunks, select(field, columns)?, (columns, dtype), matrix, options)
}

/// As [`explain_matrix`], of columns whose positions are known, and chunks of this type.
fn explain_selected(
    field: &FieldRef,
    chunks: Option<&[DeviceArray]>,
    selected: Vec<(usize, &FieldRef)>,
    (columns, dtype): (Option<&[String]>, Option<DType>),
    matrix: &MatrixOptions,
    options: impl Fn(&str) -> Options,
) -> Result<Report> {
    Ok(match MatrixSpec::of_selected(field, selected.clone(), columns, &options, dtype) {
        Ok(spec) => explain_spec(&ResultSpec::new(ResultKind::Matrix(Arc::new(spec))), chunks, matrix),
        Err(error) => {
            let device = DeviceArray::device_of(chunks.unwrap_or_default());
            let whole = row_of_matrix(selected.iter().map(|(_, column)| *column));
            // Each column by itself, so that its own reasons are told, too.
            let rows_of = |(position, column): (usize, &FieldRef)| {
                let mut options = options(column.name());
                options.dtype = dtype.or(options.dtype);
                if chunks.is_none()
                    && let Ok(spec) = Spec::new(column, &options)
                {
                    return vec![column_of_type(&spec)];
                }
                explain_column((Some(position), column), chunks, options, matrix).rows
            };
            let of_matrix = |mut row: ReportRow| {
                row.pack(matrix.memory_order);
                let own = error.of_column(&row.column).or(row.error.clone());
                refused_column(ReportRow { error: own, ..row }, &error)
            };
            let rows = selected.into_iter().flat_map(rows_of).map(of_matrix).collect();
            Report { rows, matrices: vec![ReportRow { device, error: Some(error), ..whole }], ..Report::default() }
        }
    })
}

/// Explains the conversion into a named group with rows of one shape, of these chunks, which are of the type of this field, or of any data
/// of it where they are `None`. `positions` are those of its columns.
///
/// # Errors
/// As [`explain_matrix`].
pub(crate) fn explain_group(
    (field, positions): (&FieldRef, &Positions<'_>),
    chunks: Option<&[DeviceArray]>,
    (name, group): (&str, &Group),
    matrix: &MatrixOptions,
    conversion: &Conversion,
) -> Result<Report> {
    let options = |column: &str| conversion.of_in(name, group, column);
    let columns = Some(group.columns());
    let selected = positions.select(columns)?;
    let report = if group.is_matrix() {
        explain_selected(field, chunks, selected, (columns, conversion.dtype_in(name, group)), matrix, options)?
    } else {
        explain_columns(selected, chunks, options)
    };
    let report = report.in_group(name);
    let Some(validity) = group.validity_name() else { return Ok(report) };
    Ok(report.and(match conversion.results_of((field, positions), (name, group)).as_deref() {
        Ok([.., result]) => explain_spec(result, chunks, matrix),
        Ok([]) => Report::default(),
        Err(error) => {
            let device = DeviceArray::device_of(chunks.unwrap_or_default());
            let row = ReportRow { device, dtype: Some(DType::Bool), ..ReportRow::of_type(validity, String::new()) };
            Report { rows: vec![ReportRow { error: Some(error.clone()), ..row }], ..Report::default() }
        }
    }))
}
