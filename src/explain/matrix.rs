//! Rows of a report for a matrix: one for each column, which tells what is done to it on its way, and one for the matrix.

use arrow_schema::{DataType, FieldRef};

use super::{Report, ReportRow};
use crate::device::Device;
use crate::error::Error;
use crate::matrix::PlannedMatrix;
use crate::plan::Plan;
use crate::spec::{CopyMode, MatrixOptions, MatrixSpec, MemoryOrder, Options, Spec, packing};

/// Explains a matrix that was planned.
pub(super) fn explain_planned_matrix(device: Device, planned: &PlannedMatrix<'_>) -> Report {
    let spec = planned.spec();
    let refusal = planned.check_nulls().err();
    let row = |(mut row, part): (ReportRow, Plan)| {
        row.take_column(&part);
        row.refuse_values(planned.copy());
        row.error = refusal.clone().filter(|error| error.column() == Some(row.column.as_str()));
        row.view = row.view && row.error.is_none();
        row
    };
    let (rows, mut whole) = described(spec, device);
    let rows = rows.into_iter().zip(planned.column_plans()).map(row).collect();
    whole.take_rows(planned.plan());
    whole.refuse_values(planned.copy());
    whole.error = refusal;
    whole.view = (whole.view || whole.steps.is_empty()) && whole.error.is_none() && !planned.is_written();
    Report { rows, matrices: vec![whole], ..Report::default() }
}

/// Explains a matrix of any data of its type.
pub(super) fn matrix_of_type(spec: &MatrixSpec, options: &MatrixOptions) -> Report {
    let is_own = options.is_written || options.copy.asks_for_own(options.writable);
    let (mut rows, mut whole) = described(spec, Device::CPU);
    for (row, (_, column)) in rows.iter_mut().zip(spec.columns()) {
        row.set_column_possible(column);
        (row.view, row.at_most) = (false, !is_own && (row.at_most || row.steps.is_empty()));
        row.specs = vec![column.clone()];
        row.set_refused(column);
        whole.set_refused(column);
    }
    whole.specs = spec.columns().iter().map(|(_, column)| column.clone()).collect();
    whole.fill(|whole| whole.set_possible(&spec.possible_steps(options), options.copy));
    Report { rows, matrices: vec![whole], ..Report::default() }
}

/// Explains a column of any data of its type, in a matrix that is refused.
pub(super) fn column_of_type(column: &Spec) -> ReportRow {
    let mut row = ReportRow::new(column.field());
    row.describe(column);
    row.set_column_possible(column);
    row.set_refused(column);
    // In a matrix that is refused no column lies as its result.
    ReportRow { view: row.error.is_none() && row.steps.is_empty(), at_most: false, ..row }
}

/// The rows of a matrix that cannot be planned.
pub(super) fn refused_matrix(spec: &MatrixSpec, device: Device, error: Error) -> Report {
    let (mut rows, whole) = described(spec, device);
    for (row, (_, column)) in rows.iter_mut().zip(spec.columns()) {
        row.set_column_possible(column);
    }
    let rows = rows.into_iter().map(|row| refused_column(row, &error)).collect();
    Report { rows, matrices: vec![ReportRow { error: Some(error), ..whole }], ..Report::default() }
}

/// The row of a column of a matrix that is refused: what is wrong with one column stands in its row too.
pub(super) fn refused_column(row: ReportRow, error: &Error) -> ReportRow {
    ReportRow { view: false, error: row.error.clone().or_else(|| error.of_column(&row.column)), ..row }
}

/// What the spec of a matrix says: of each column, and of the matrix.
fn described(spec: &MatrixSpec, device: Device) -> (Vec<ReportRow>, ReportRow) {
    let dtype = Some(spec.dtype());
    let row = |(_, column): &(usize, Spec)| {
        let mut row = ReportRow { device, ..ReportRow::new(column.field()) };
        row.describe(column);
        ReportRow { dtype, ..row }
    };
    let rows: Vec<_> = spec.columns().iter().map(row).collect();
    let shape = vec![None, i64::try_from(spec.width()).ok()];
    let whole = row_of_matrix(spec.columns().iter().map(|(_, column)| column.field()));
    (rows, ReportRow { device, dtype, shape, promotion: Some(spec.promotion()), ..whole })
}

/// The row of a matrix of these columns: its type is a struct of them, and not of all columns that there are.
pub(super) fn row_of_matrix<'a>(columns: impl Iterator<Item = &'a FieldRef>) -> ReportRow {
    ReportRow::of_type(String::new(), DataType::Struct(columns.cloned().collect()).to_string())
}

impl ReportRow {
    /// Sets that a column whose memory could be the result goes into a matrix.
    pub(super) fn pack(&mut self, order: MemoryOrder) {
        if !std::mem::take(&mut self.view) {
            return;
        }
        self.steps = vec![packing(order).to_owned()];
        let bytes = |elements: usize| self.dtype.and_then(|dtype| elements.checked_mul(dtype.itemsize()));
        let extents = self.shape.iter().map(|extent| extent.and_then(|extent| usize::try_from(extent).ok()));
        let elements = extents.reduce(|before, extent| before?.checked_mul(extent?));
        self.bytes = elements.flatten().and_then(bytes).unwrap_or(0);
    }

    /// Sets what may be done to a column of a matrix.
    fn set_column_possible(&mut self, column: &Spec) {
        self.error = self.set_possible(&column.possible_steps_in_matrix(&Options::default()), CopyMode::IfNeeded).err();
    }
}
