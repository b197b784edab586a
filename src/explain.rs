//! Reports what a conversion would do, column by column, and what it would cost.

mod groups;
mod host_only;
mod matrix;
mod ragged;
mod report;
mod results;
mod to_arrow;
mod transfers;
mod unread;

use arrow_schema::{DataType, FieldRef};

pub(crate) use groups::{explain_group, explain_matrix};
pub(crate) use ragged::{explain_batch, explain_parts, explain_parts_as};
pub use report::{Report, ReportRow};
pub(crate) use results::{explain_result, explain_spec};
pub(crate) use to_arrow::explain_ragged_to_arrow_on;
pub use to_arrow::{explain_matrix_to_arrow, explain_ragged_to_arrow, explain_to_arrow};
pub(crate) use unread::explain_stream;

use crate::arrow::DeviceArray;
use crate::column::{check_types, placement, to_arrow};
use crate::error::Result;
use crate::kernels::has_kernel;
use crate::plan::{ChunkSize, Placement, Plan};
use crate::ragged::{is_rows, plan_parts, plan_schema};
use crate::spec::{CopyMode, MatrixOptions, Options, ResultKind, ResultSpec, Spec, select};
use crate::tensor::Tensor;

/// Explains the conversion of these chunks of `field`, or of any data of it where they are `None`: of each column, where they are structs.
/// Lists and strings become ragged rows, with a row of the report for each part; in a struct they are refused, as by a conversion of
/// columns.
///
/// # Errors
/// When a chunk is of another type, or a selected column does not exist. What is wrong with a single column is in its
/// row.
pub(crate) fn explain(
    field: &FieldRef,
    chunks: Option<&[DeviceArray]>,
    columns: Option<&[String]>,
    options: impl Fn(&str) -> Options,
) -> Result<Report> {
    check_types(field, chunks.unwrap_or_default())?;
    let device = DeviceArray::device_of(chunks.unwrap_or_default());
    if is_rows(field, &options(field.name())) {
        let options = options(field.name());
        let parts = match chunks {
            Some(chunks) => plan_parts(field, chunks, &options),
            None => plan_schema(field, &options, true),
        };
        return Ok(explain_parts(field, device, parts));
    }
    Ok(match field.data_type() {
        DataType::Struct(_) => explain_columns(select(field, columns)?, chunks, options),
        _ => explain_column((None, field), chunks, options(field.name()), &MatrixOptions::default()),
    })
}

/// Explains the conversion of columns of a struct at these positions, each by itself.
fn explain_columns(
    columns: Vec<(usize, &FieldRef)>,
    chunks: Option<&[DeviceArray]>,
    options: impl Fn(&str) -> Options,
) -> Report {
    let column = |(position, column): (usize, &FieldRef)| {
        explain_column((Some(position), column), chunks, options(column.name()), &MatrixOptions::default())
    };
    columns.into_iter().map(column).fold(Report::default(), Report::and)
}

/// Explains the conversion of one column: the array itself, or the one at a position of its structs.
pub(crate) fn explain_column(
    (position, field): (Option<usize>, &FieldRef),
    chunks: Option<&[DeviceArray]>,
    options: Options,
    matrix: &MatrixOptions,
) -> Report {
    match Spec::new(field, &options) {
        Ok(spec) => explain_spec(&ResultSpec::new(ResultKind::Column { position, spec, options }), chunks, matrix),
        Err(error) => {
            let error = if position.is_some() { error.of_named_results() } else { error };
            let device = DeviceArray::device_of(chunks.unwrap_or_default());
            let row = ReportRow { device, error: Some(error), ..ReportRow::new(field) };
            Report { rows: vec![row], ..Report::default() }
        }
    }
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
        options.dtype = options.dtype.or(tensor.dtype().if_complex());
        options
    };
    if plan.is_view() {
        let array = to_arrow(tensor, None, CopyMode::Never)?;
        return explain(array.field(), Some(std::slice::from_ref(&array)), None, options);
    }
    let options = options(form.field.name());
    let mut row = ReportRow { device: tensor.device(), ..ReportRow::new(&form.field) };
    row.fill(|row| {
        let (device, own) = (tensor.device(), placement(tensor.device()));
        let gathered = Plan::to_arrow(&form, tensor.is_aligned(), false, options.copy, own)?;
        let spec = Spec::new(&form.field, &options)?;
        row.describe(&spec);
        // The column that it becomes has no nulls, and is aligned and nobody else's.
        let chunk = ChunkSize::without_nulls(plan.rows);
        let of_own = options.clone().copy(options.copy.once()).writable(false);
        let own = if own == Placement::Host || has_kernel(&spec) { own } else { Placement::Views(device) };
        let converted = Plan::new(&spec, &[chunk], &of_own, own)?;
        row.take_column(&gathered);
        let by_kernel = row.kernel;
        row.take_column(&converted);
        row.kernel |= by_kernel;
        row.steps.splice(0..0, plan.steps.iter().map(|step| step.action.to_string()));
        row.bytes = plan.bytes.saturating_add(converted.bytes);
        Ok(())
    });
    Ok(Report { rows: vec![row], ..Report::default() })
}
