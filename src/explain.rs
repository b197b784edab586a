//! Reports what a conversion would do, column by column, and what it would cost.

mod matrix;
mod ragged;
mod report;
mod transfers;
mod unread;

use arrow_schema::{DataType, FieldRef};

pub(crate) use matrix::{explain_groups, explain_matrix, explain_matrix_schema, explain_result, explain_validity};
pub(crate) use ragged::{explain_batch, explain_parts, explain_parts_as};
pub use report::{Report, ReportRow};
pub(crate) use unread::explain_stream;

use crate::arrow::DeviceArray;
use crate::column::{ColumnRef, PlannedColumn, check_types, require_host, to_arrow, with_planned};
use crate::device::Device;
use crate::error::Result;
use crate::plan::{ChunkSize, Placement, Plan};
use crate::ragged::{is_ragged, plan_parts, plan_schema};
use crate::spec::{CopyMode, Options, select, unless_one_chunk};
use crate::tensor::Tensor;

/// Explains the conversion of these chunks of `field`: of each column, where they are structs. Lists and strings become
/// ragged rows, with a row of the report for each part; in a struct they are refused, as by a conversion of columns.
///
/// # Errors
/// When a chunk is of another type, or a selected column does not exist. What is wrong with a single column is in its
/// row.
pub(crate) fn explain(
    field: &FieldRef,
    chunks: &[DeviceArray],
    columns: Option<&[String]>,
    options: impl Fn(&str) -> Options,
) -> Result<Report> {
    check_types(field, chunks)?;
    if is_ragged(field) && options(field.name()).categories.is_none() {
        let plans = plan_parts(field, chunks, &options(field.name()));
        return Ok(explain_parts(field, DeviceArray::device_of(chunks), plans));
    }
    report(field, columns, |index, column| {
        let options = options(column.name());
        let arrays = chunks;
        let chunks: Vec<_> = arrays
            .iter()
            .map(|chunk| index.map_or_else(|| ColumnRef::whole(chunk), |index| ColumnRef::column(chunk, index)))
            .collect();
        let mut row = ReportRow { device: DeviceArray::device_of(arrays), ..ReportRow::new(column) };
        row.fill(|row| {
            let spec = row.describe(column, &options)?;
            with_planned(&spec, &chunks, &options, |planned| row.take_planned(&planned))
        });
        row
    })
}

/// Explains a column that was planned.
fn explain_planned(device: Device, planned: &PlannedColumn<'_>) -> Report {
    let mut row = ReportRow { device, ..ReportRow::new(planned.spec().field()) };
    row.fill(|row| {
        row.describe_spec(planned.spec());
        row.take_planned(planned)
    });
    Report { rows: vec![row], ..Report::default() }
}

/// Explains the conversion of any data of this field, as far as the type decides it.
///
/// # Errors
/// As [`explain`].
pub(crate) fn explain_schema(
    field: &FieldRef,
    columns: Option<&[String]>,
    options: impl Fn(&str) -> Options,
) -> Result<Report> {
    if is_ragged(field) && options(field.name()).categories.is_none() {
        return Ok(explain_parts(field, Device::CPU, plan_schema(field, &options(field.name()), true)));
    }
    report(field, columns, |_, column| {
        let options = options(column.name());
        let mut row = ReportRow::new(column);
        row.fill(|row| {
            let spec = row.describe(column, &options)?;
            row.specs.push(spec.clone());
            row.set_refused(&spec);
            row.set_possible(&unless_one_chunk(spec.possible_steps(&options)), options.copy)
        });
        row
    })
}

/// Explains the conversion of a DLPack tensor, which becomes a column first: strided elements are gathered for that.
///
/// # Errors
/// When no Arrow type holds the tensor.
pub(crate) fn explain_tensor(tensor: &Tensor, options: impl Fn(&str) -> Options) -> Result<Report> {
    let form = tensor.arrow_form()?;
    let plan = Plan::to_arrow(&form, tensor.is_aligned(), false, CopyMode::IfNeeded, Placement::Host)?;
    // Complex numbers, pairs of floats in Arrow, stay what they are unless another dtype is asked for.
    let options = |column: &str| {
        let mut options = options(column);
        options.dtype = options.dtype.or(tensor.dtype().component().map(|_| tensor.dtype()));
        options
    };
    if plan.is_view() {
        let array = to_arrow(tensor, None, CopyMode::Never)?;
        return explain(array.field(), std::slice::from_ref(&array), None, options);
    }
    let options = options(form.field.name());
    let mut row = ReportRow { device: tensor.device(), ..ReportRow::new(&form.field) };
    row.fill(|row| {
        require_host(tensor.device(), form.field.name())?;
        Plan::to_arrow(&form, tensor.is_aligned(), false, options.copy, Placement::Host)?;
        let spec = row.describe(&form.field, &options)?;
        if let Some(rows) = row.shape.first_mut() {
            *rows = i64::try_from(plan.rows).ok();
        }
        // The column that it becomes has no nulls, and is aligned and nobody else's.
        let chunk = ChunkSize::without_nulls(plan.rows);
        let copy = if options.copy == CopyMode::Always { CopyMode::IfNeeded } else { options.copy };
        let of_own = options.clone().copy(copy).writable(false);
        let converted = Plan::new(&spec, &[chunk], &of_own, Placement::Host)?;
        row.take_column(&converted);
        row.steps.splice(0..0, plan.steps.iter().map(|step| step.action.to_string()));
        row.bytes = plan.bytes.saturating_add(converted.bytes);
        Ok(())
    });
    Ok(Report { rows: vec![row], ..Report::default() })
}

fn report(
    field: &FieldRef,
    columns: Option<&[String]>,
    row: impl Fn(Option<usize>, &FieldRef) -> ReportRow,
) -> Result<Report> {
    let rows = match field.data_type() {
        DataType::Struct(_) => {
            select(field, columns)?.into_iter().map(|(index, column)| row(Some(index), column)).collect()
        }
        _ => vec![row(None, field)],
    };
    Ok(Report { rows, ..Report::default() })
}
