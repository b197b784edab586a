//! Rows of a report for the parts of lists and strings.

use arrow_schema::FieldRef;

use super::{Report, ReportRow};
use crate::arrow::{DeviceArray, empty_on};
use crate::device::Device;
use crate::error::Result;
use crate::ragged::{Pad, PartPlan, plan_padded};
use crate::spec::Options;

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

/// A row for each part, or one that says why there are none.
pub(super) fn report(field: &FieldRef, device: Device, plans: Result<Vec<PartPlan>>) -> Report {
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

fn row(field: &FieldRef, device: Device, plan: PartPlan) -> ReportRow {
    let name = field.name();
    let column = if name.is_empty() { plan.name } else { format!("{name}.{}", plan.name) };
    let (error, is_copy) = (plan.error, !plan.at_most);
    let mut row = ReportRow {
        column,
        arrow_type: plan.arrow_type,
        dtype: Some(plan.dtype),
        shape: plan.shape,
        device,
        view: error.is_none() && plan.steps.is_empty(),
        steps: plan.steps,
        kernel: false,
        waits: plan.waits.into_iter().map(str::to_owned).collect(),
        is_sent: false,
        specs: Vec::new(),
        bytes: plan.bytes,
        at_most: plan.at_most,
        refused_if: plan.refused_if,
        promotion: None,
        error,
    };
    row.set_kernel(is_copy);
    row
}
