//! Rows of a report for a result: a column, a matrix, or the validity of either, of data or of a type.

use super::host_only::HostOnly;
use super::matrix::{explain_planned_matrix, matrix_of_type, refused_matrix};
use super::{Report, ReportRow};
use crate::arrow::DeviceArray;
use crate::column::{ColumnRef, check_lists_on_device};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernels::reads_lists_on;
use crate::matrix::{PlannedResult, with_planned_result};
use crate::plan::Action;
use crate::spec::{
    CopyMode, MatrixOptions, MatrixSpec, MemoryOrder, Options, PossibleStep, ResultKind, ResultSpec, Spec,
    unless_one_chunk,
};

/// Explains a result of these chunks, or of any data of its type where they are `None`. Why it is refused stands in its rows.
pub(crate) fn explain_spec(result: &ResultSpec, chunks: Option<&[DeviceArray]>, options: &MatrixOptions) -> Report {
    let Some(chunks) = chunks else { return explain_type(result, options) };
    let device = DeviceArray::device_of(chunks);
    if result.specs().any(|spec| reads_lists_on(spec, device)) {
        // The host reads the offsets of lists before it plans.
        return match check_lists(result, chunks, device) {
            Ok(()) => explain_type(result, options)
                .unread_on(device)
                .of_rows(DeviceArray::rows_of(chunks), options.memory_order),
            Err(error) => refused(result, device, error),
        };
    }
    with_planned_result(result, chunks, options, |planned| Ok(explain_result(result, device, &planned)))
        .unwrap_or_else(|error| refused(result, device, error))
}

/// Refuses lists of one length on a device as far as nothing is read for it.
fn check_lists(result: &ResultSpec, chunks: &[DeviceArray], device: Device) -> Result<()> {
    let check = |(position, spec): (Option<usize>, &Spec)| {
        if !reads_lists_on(spec, device) {
            return Ok(());
        }
        check_lists_on_device(spec, &chunks.iter().map(|chunk| ColumnRef::of(chunk, position)).collect::<Vec<_>>())
    };
    match &result.kind {
        ResultKind::Column { position, spec, .. } | ResultKind::ColumnValidity { position, spec } => {
            check((*position, spec))
        }
        ResultKind::Matrix(spec) | ResultKind::Validity(spec) => {
            spec.columns().iter().try_for_each(|(position, column)| check((Some(*position), column)))
        }
    }
}

impl Report {
    /// The report of so many rows, which was made of types alone; columns of a matrix are packed in this order.
    fn of_rows(mut self, rows: usize, order: MemoryOrder) -> Self {
        for row in self.rows.iter_mut().chain(&mut self.matrices) {
            if let Some(first) = row.shape.first_mut() {
                *first = first.or_else(|| i64::try_from(rows).ok());
            }
            row.bytes = row.result_bytes().filter(|_| row.error.is_none() && !row.view).unwrap_or(0);
        }
        if let [whole] = self.matrices.as_slice()
            && whole.error.is_none()
            && !whole.view
        {
            for row in self.rows.iter_mut().filter(|row| row.error.is_none() && row.steps.is_empty()) {
                (row.view, row.at_most) = (true, whole.at_most);
                row.pack(order);
                row.set_kernel(!whole.at_most);
            }
        }
        self
    }
}

/// Explains a result that was planned, called as its group if it has one.
pub(crate) fn explain_result(result: &ResultSpec, device: Device, planned: &PlannedResult<'_>) -> Report {
    match planned {
        PlannedResult::Column(planned) => single(result, device, |row| row.take_planned(planned)),
        PlannedResult::Validity(planned) => single(result, device, |row| {
            row.take_rows(planned.plan());
            Ok(())
        }),
        PlannedResult::Matrix(planned) => in_group(result, explain_planned_matrix(device, planned)),
    }
}

/// Explains a result of any data of its type.
fn explain_type(result: &ResultSpec, matrix: &MatrixOptions) -> Report {
    let host_only = HostOnly::of_validity(&result.kind);
    let mut report = match &result.kind {
        ResultKind::Matrix(spec) => in_group(result, matrix_of_type(spec, matrix)),
        ResultKind::Column { spec, options, .. } => {
            single(result, Device::CPU, |row| row.take_type(spec, options, matrix.is_written))
        }
        ResultKind::ColumnValidity { spec, .. } => {
            single(result, Device::CPU, |row| row.set_validity_possible(Some(spec), matrix.copy))
        }
        ResultKind::Validity(spec) => {
            let decoded =
                || spec.columns().iter().map(|(_, column)| column).filter(|column| column.decoded().is_some());
            let surely = decoded().find(|column| !column.is_of_lists());
            single(result, Device::CPU, |row| row.set_validity_possible(surely.or(decoded().next()), matrix.copy))
        }
    };
    let is_validity = matches!(result.kind, ResultKind::Validity(_) | ResultKind::ColumnValidity { .. });
    for row in report.rows.iter_mut().filter(|_| is_validity) {
        row.host_only.clone_from(&host_only);
        row.validity_specs = result.specs().cloned().collect();
    }
    report
}

/// The rows of a result that cannot be planned.
fn refused(result: &ResultSpec, device: Device, error: Error) -> Report {
    match &result.kind {
        ResultKind::Matrix(spec) => in_group(result, refused_matrix(spec, device, error)),
        _ => single(result, device, |_| Err(error)),
    }
}

fn in_group(result: &ResultSpec, report: Report) -> Report {
    match &result.group {
        Some(group) => report.in_group(group),
        None => report,
    }
}

/// The only row of a result.
fn single(result: &ResultSpec, device: Device, fill: impl FnOnce(&mut ReportRow) -> Result<()>) -> Report {
    let mut row = match &result.kind {
        ResultKind::Column { spec, .. } => {
            let mut row = ReportRow::new(spec.field());
            row.describe(spec);
            row
        }
        kind => ReportRow { dtype: Some(DType::Bool), shape: shape_of(kind), ..ReportRow::of_type("", String::new()) },
    };
    (row.device, row.column) = (device, result.name().to_owned());
    row.fill(|row| fill(row).map_err(|error| result.in_group(error)));
    Report { rows: vec![row], ..Report::default() }
}

/// The shape of a validity, as far as the type tells it.
fn shape_of(kind: &ResultKind) -> Vec<Option<i64>> {
    let columns = |spec: &MatrixSpec| i64::try_from(spec.width()).ok();
    match kind {
        ResultKind::Column { spec, .. } | ResultKind::ColumnValidity { spec, .. } => {
            std::iter::once(None).chain(spec.inner_shape().iter().copied().map(Some)).collect()
        }
        ResultKind::Matrix(spec) | ResultKind::Validity(spec) => vec![None, columns(spec)],
    }
}

impl ReportRow {
    /// Sets what any data of a column's type may make necessary. `is_written`: into memory that is there.
    fn take_type(&mut self, spec: &Spec, options: &Options, is_written: bool) -> Result<()> {
        self.specs.push(spec.clone());
        self.set_refused(spec);
        let mut steps = spec.possible_steps(options);
        steps.extend(is_written.then(|| PossibleStep { text: Action::WriteOutput.to_string(), only_if: None }));
        self.set_possible(&unless_one_chunk(steps), options.copy)
    }

    /// Sets what is done for a validity of any data, for which a column of this spec is decoded.
    fn set_validity_possible(&mut self, decoded: Option<&Spec>, copy: CopyMode) -> Result<()> {
        let steps = decoded.and_then(Spec::decoding).into_iter().chain([Action::Unpack.to_string()]);
        self.set_possible(&steps.map(|text| PossibleStep { text, only_if: None }).collect::<Vec<_>>(), copy)
    }
}
