//! Rows of a report for matrices: one for each column, and one for the matrix.

use arrow_schema::FieldRef;

use super::{Report, ReportRow};
use crate::arrow::DeviceArray;
use crate::column::check_types;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::matrix::{PlannedMatrix, PlannedResult, with_planned_matrix, with_planned_result};
use crate::plan::{Action, Plan};
use crate::spec::{
    Conversion, CopyMode, Group, MatrixOptions, MatrixSpec, Options, PossibleStep, ResultKind, ResultSpec, Spec,
    require_columns, select,
};

/// Explains the conversion of columns of these chunks into a matrix, or into several: a row for each column, which tells what is
/// done to it on its way, and one in [`Report::matrices`] for each matrix.
///
/// # Errors
/// When a chunk is of another type, or a selected column does not exist. What is wrong with a column or a matrix is in its
/// row.
pub(crate) fn explain_matrix(
    field: &FieldRef,
    chunks: &[DeviceArray],
    matrix: &MatrixOptions,
    options: impl Fn(&str) -> Options,
) -> Result<Report> {
    check_types(field, chunks)?;
    report((field, Some(chunks)), "", matrix, &options)
}

/// Explains the conversion of columns of any data of this field into a matrix, as far as the type decides it.
///
/// # Errors
/// As [`explain_matrix`].
pub(crate) fn explain_matrix_schema(
    field: &FieldRef,
    matrix: &MatrixOptions,
    options: impl Fn(&str) -> Options,
) -> Result<Report> {
    report((field, None), "", matrix, &options)
}

/// Explains the conversion into named groups, of these chunks, or of any data of this field if they are `None`. Rows of single
/// columns are called as their groups.
///
/// # Errors
/// As [`explain_matrix`].
pub(crate) fn explain_groups(
    field: &FieldRef,
    chunks: Option<&[DeviceArray]>,
    groups: &[(String, Group)],
    matrix: &MatrixOptions,
    conversion: &Conversion,
) -> Result<Report> {
    require_columns(field, groups.iter().flat_map(|(_, group)| group.columns()).map(String::as_str))?;
    conversion.check_groups()?;
    let mut all = Report::default();
    for (name, group) in groups {
        let options = |column: &str| conversion.of_in(name, group, column);
        let (columns, dtype) = (group.columns(), conversion.dtype_in(name, group));
        let part = match (group.is_matrix(), chunks) {
            (false, Some(chunks)) => super::explain(field, chunks, Some(columns), options)?,
            (false, None) => super::explain_schema(field, Some(columns), options)?,
            (true, _) => {
                let matrix = MatrixOptions { columns: Some(columns.to_owned()), dtype, ..matrix.clone() };
                report((field, chunks), name, &matrix, &options)?
            }
        };
        all = all.and(part.in_group(name));
        all.rows.extend(group.validity_name().map(|validity| {
            let device = chunks.map_or(Device::CPU, DeviceArray::device_of);
            let mut row = ReportRow { device, ..ReportRow::of_type(validity.to_owned(), String::new()) };
            row.fill(|row| describe_validity(row, field, chunks, (name, group), (matrix, conversion)));
            row.error = row.error.take().map(|error| error.in_group(name));
            row
        }));
    }
    Ok(all)
}

/// Explains the validity of any data of a type.
pub(crate) fn explain_validity(result: &ResultSpec, copy: CopyMode) -> Report {
    let mut row = ReportRow::of_type(result.name().to_owned(), String::new());
    row.fill(|row| {
        row.describe_validity(&result.kind);
        row.set_validity_possible(copy)
    });
    Report { rows: vec![row], ..Report::default() }
}

/// Explains a result that was planned, named as its group if it has one.
pub(crate) fn explain_result(result: &ResultSpec, device: Device, planned: &PlannedResult<'_>) -> Report {
    let report = match planned {
        PlannedResult::Column(planned) => super::explain_planned(device, planned),
        PlannedResult::Matrix(planned) => explain_planned_matrix(result.name(), device, planned),
        PlannedResult::Validity(planned) => return explain_planned_validity(result, device, planned.plan()),
    };
    match &result.group {
        Some(group) => report.in_group(group),
        None => report,
    }
}

/// Explains the validity of a group's result that was planned.
fn explain_planned_validity(result: &ResultSpec, device: Device, plan: &Plan) -> Report {
    let mut row = ReportRow { device, ..ReportRow::of_type(result.name().to_owned(), String::new()) };
    row.fill(|row| {
        row.describe_validity(&result.kind);
        row.take_validity(plan);
        Ok(())
    });
    Report { rows: vec![row], ..Report::default() }
}

impl ReportRow {
    /// Sets what the spec alone says of a validity.
    fn describe_validity(&mut self, kind: &ResultKind) {
        self.dtype = Some(DType::Bool);
        self.shape = match kind {
            ResultKind::ColumnValidity { spec, .. } => {
                std::iter::once(None).chain(spec.inner_shape().iter().copied().map(Some)).collect()
            }
            ResultKind::Validity(spec) => vec![None, i64::try_from(spec.width()).ok()],
            ResultKind::Matrix(_) | ResultKind::Column { .. } => Vec::new(),
        };
    }

    /// Sets what is done for a validity of any data.
    fn set_validity_possible(&mut self, copy: CopyMode) -> Result<()> {
        self.set_possible(&[PossibleStep { text: Action::Unpack.to_string(), only_if: None }], copy)
    }

    /// Sets what the plan of a validity says.
    fn take_validity(&mut self, plan: &Plan) {
        if let Some(rows) = self.shape.first_mut() {
            *rows = i64::try_from(plan.rows).ok();
        }
        self.take(plan);
    }
}

/// Sets what the validity of a group would be, and what would be done for it.
fn describe_validity(
    row: &mut ReportRow,
    field: &FieldRef,
    chunks: Option<&[DeviceArray]>,
    (name, group): (&str, &Group),
    (matrix, conversion): (&MatrixOptions, &Conversion),
) -> Result<()> {
    row.dtype = Some(DType::Bool);
    let results = conversion.results_of(field, (name, group))?;
    let Some(result) = results.last() else { return Ok(()) };
    row.describe_validity(&result.kind);
    let Some(chunks) = chunks else { return row.set_validity_possible(matrix.copy) };
    with_planned_result(result, chunks, matrix, |planned| {
        let PlannedResult::Validity(planned) = planned else { return Err(Error::internal("elements are no validity")) };
        row.take_validity(planned.plan());
        Ok(())
    })
}

/// Explains a matrix of `name` that was planned: a row for each column, and one for the matrix.
fn explain_planned_matrix(name: &str, device: Device, planned: &PlannedMatrix<'_>) -> Report {
    let spec = planned.spec();
    let (plan, refusal, count) = (planned.plan(), planned.check_nulls().err(), i64::try_from(planned.plan().rows).ok());
    let row = |((_, column), part): (&(usize, Spec), Plan)| {
        let mut row = ReportRow { device, ..ReportRow::new(column.field()) };
        (row.dtype, row.shape) = (Some(spec.dtype()), shape_of(count, column));
        row.take_column(&part);
        row.error = refusal.clone().filter(|error| error.column() == Some(column.field().name()));
        row.view = row.view && row.error.is_none();
        row
    };
    let rows: Vec<_> = spec.columns().iter().zip(planned.column_plans()).map(row).collect();
    let mut whole = ReportRow { column: name.to_owned(), device, ..ReportRow::new(spec.field()) };
    (whole.dtype, whole.promotion) = (Some(spec.dtype()), Some(spec.promotion()));
    whole.shape = vec![count, i64::try_from(spec.width()).ok()];
    whole.take(plan);
    whole.refuse_values(planned.copy());
    whole.error = refusal;
    whole.view = (whole.view || whole.steps.is_empty()) && whole.error.is_none();
    Report { rows, matrices: vec![whole], ..Report::default() }
}

/// The shape of a column's elements, for so many rows if that is known.
fn shape_of(rows: Option<i64>, column: &Spec) -> Vec<Option<i64>> {
    std::iter::once(rows).chain(column.inner_shape().iter().copied().map(Some)).collect()
}

/// The report of one matrix, of any data where there are no chunks.
fn report(
    (field, chunks): (&FieldRef, Option<&[DeviceArray]>),
    name: &str,
    matrix: &MatrixOptions,
    options: &impl Fn(&str) -> Options,
) -> Result<Report> {
    let columns = matrix.columns_of(field);
    let selected = select(field, columns.as_deref())?;
    let device = DeviceArray::device_of(chunks.unwrap_or_default());
    let left_out = if matrix.columns.is_none() { matrix.index.left_out(field) } else { Vec::new() };
    let new = |field| ReportRow { device, ..ReportRow::new(field) };
    let mut rows: Vec<ReportRow> = selected.iter().map(|(_, column)| new(column)).collect();
    let mut whole = ReportRow { column: name.to_owned(), ..new(field) };
    let spec = MatrixSpec::new(field, columns.as_deref(), options, matrix.dtype);
    if let Ok(spec) = &spec {
        for (row, (_, column)) in rows.iter_mut().zip(spec.columns()) {
            (row.dtype, row.shape) = (Some(spec.dtype()), shape_of(None, column));
            row.set_possible(&column.possible_steps(&Options::default()), CopyMode::IfNeeded)?;
        }
        (whole.dtype, whole.promotion) = (Some(spec.dtype()), Some(spec.promotion()));
        whole.shape = vec![None, i64::try_from(spec.width()).ok()];
    } else {
        for (row, (_, column)) in rows.iter_mut().zip(&selected) {
            let mut options = options(column.name());
            options.dtype = matrix.dtype.or(options.dtype);
            row.fill(|row| row.describe(column, &options).map(drop));
            row.view = false;
        }
    }
    let planned = |spec: MatrixSpec| match chunks {
        None => Ok((spec, None)),
        Some(chunks) => {
            with_planned_matrix(&spec, chunks, matrix, |planned| explain_planned_matrix(name, device, &planned))
                .map(|report| (spec, Some(report)))
        }
    };
    match spec.and_then(planned) {
        Ok((_, Some(report))) => return Ok(Report { left_out, ..report }),
        Ok((spec, None)) => {
            let is_own = matrix.writable || matrix.copy == CopyMode::Always;
            let steps = possible_steps(&spec, is_own);
            for (row, (_, column)) in rows.iter_mut().zip(spec.columns()) {
                (row.view, row.at_most) = (false, !is_own && (row.at_most || row.steps.is_empty()));
                row.specs = vec![column.clone()];
                row.set_refused(column);
                whole.set_refused(column);
            }
            whole.specs = spec.columns().iter().map(|(_, column)| column.clone()).collect();
            whole.fill(|whole| whole.set_possible(&steps, matrix.copy));
        }
        Err(error) => {
            // What is wrong with one column stands in its row too.
            for row in &mut rows {
                row.view = false;
                row.error = row.error.take().or_else(|| error.of_column(&row.column));
            }
            whole.error = Some(error);
        }
    }
    Ok(Report { rows, matrices: vec![whole], left_out, ..Report::default() })
}

/// What may have to be done to make a matrix; what is done to its columns stands in their rows.
fn possible_steps(spec: &MatrixSpec, is_own: bool) -> Vec<PossibleStep> {
    let columns = || spec.columns().iter().flat_map(|(_, column)| column.possible_steps(&Options::default()));
    let changes = is_own || columns().any(|step| step.only_if.is_none());
    let mut steps: Vec<PossibleStep> = Vec::new();
    steps.extend(is_own.then(|| PossibleStep { text: Action::Private.to_string(), only_if: None }));
    for step in columns().filter(|step| !changes && step.only_if.is_some()) {
        if !steps.contains(&step) {
            steps.push(step);
        }
    }
    let text = "packed, unless the columns lie as the matrix already".to_owned();
    let only_if = (!changes).then_some("the columns do not lie as the matrix, in one chunk");
    steps.push(PossibleStep { text, only_if });
    steps
}
