//! Rows of a report for the parts of lists and strings.

use arrow_schema::FieldRef;

use super::{Report, ReportRow};
use crate::arrow::{DeviceArray, empty_on};
use crate::device::Device;
use crate::error::Result;
use crate::ragged::{Part, PlannedPadded, PlannedRagged, parts_of, plan_padded};
use crate::spec::{Options, Pad};

/// Explains the conversion of lists or strings of these chunks into rows of one length, or of any data of this field on `device` where
/// they are `None`: a row for the matrix, and one for its validity.
pub(crate) fn explain_padded(
    field: &FieldRef,
    chunks: Option<&[DeviceArray]>,
    device: Device,
    pad: Pad,
    options: &Options,
) -> Report {
    let device = chunks.and_then(<[_]>::first).map_or(device, DeviceArray::device);
    let plans = match chunks {
        // Of a device, no data can be padded.
        None if !device.is_cpu() => {
            empty_on(field.clone(), device).and_then(|empty| plan_padded(field, Some(&[empty]), pad, options))
        }
        _ => plan_padded(field, chunks, pad, options),
    };
    report(field, device, plans)
}

/// Explains ragged rows that were planned.
pub(crate) fn explain_planned_ragged(device: Device, planned: &PlannedRagged) -> Report {
    report(planned.field(), device, parts_of(planned))
}

/// Explains padded rows that were planned.
pub(crate) fn explain_planned_padded(device: Device, planned: &PlannedPadded) -> Report {
    report(planned.field(), device, planned.parts())
}

/// A row for each part, or one that says why there are none.
pub(super) fn report(field: &FieldRef, device: Device, plans: Result<Vec<Part>>) -> Report {
    let rows = match plans {
        Ok(plans) => plans.into_iter().map(|plan| row(field, device, plan)).collect(),
        Err(error) => {
            let mut row = ReportRow { device, ..ReportRow::new(field) };
            row.fill(|_| Err(error));
            vec![row]
        }
    };
    Report { rows, ..Report::default() }
}

fn row(field: &FieldRef, device: Device, part: Part) -> ReportRow {
    let name = field.name();
    let column = if name.is_empty() { part.name.into_owned() } else { format!("{name}.{}", part.name) };
    let mut row = ReportRow { device, ..ReportRow::of_type(column, part.field.data_type().to_string()) };
    (row.dtype, row.shape) = (Some(part.dtype), part.shape.into_vec());
    row.take(&part.plan);
    if let Some(undecided) = part.undecided {
        (row.steps, row.at_most, row.refused_if) = (undecided.steps, undecided.at_most, undecided.refused_if);
    }
    row.refuse_values(part.copy);
    row.waits = part.waits.into_iter().map(str::to_owned).collect();
    (row.view, row.error) = (part.error.is_none() && row.steps.is_empty(), part.error);
    row.set_kernel(!row.at_most);
    row
}
