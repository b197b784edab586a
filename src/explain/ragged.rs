//! Rows of a report for the parts of lists and strings, and for Arrow batches.

use arrow_schema::FieldRef;

use super::{Report, ReportRow};
use crate::device::Device;
use crate::error::Result;
use crate::plan::{Action, Plan, needs_copy};
use crate::ragged::Part;
use crate::spec::{CopyMode, PossibleStep};

/// Explains a column of which these are the parts, named as the attributes of its rows: a row for each, or one that says why there are
/// none.
pub(crate) fn explain_parts(field: &FieldRef, device: Device, parts: Result<Vec<Part>>) -> Report {
    let name = |part: Option<&str>| part.map_or_else(|| field.name().clone(), |part| part_name(field, part));
    explain_parts_as(field, device, parts, name)
}

/// The name of a part of a column.
pub(super) fn part_name(field: &FieldRef, part: &str) -> String {
    if field.name().is_empty() { part.to_owned() } else { format!("{}.{part}", field.name()) }
}

/// As [`explain_parts`], with other names of the parts, and of them all.
pub(crate) fn explain_parts_as(
    field: &FieldRef,
    device: Device,
    parts: Result<Vec<Part>>,
    name: impl Fn(Option<&str>) -> String,
) -> Report {
    let rows = match parts {
        Ok(parts) => parts.into_iter().map(|part| row(name(Some(&part.name)), device, part)).collect(),
        Err(error) => {
            let mut row = ReportRow { device, column: name(None), ..ReportRow::new(field) };
            row.fill(|_| Err(error));
            vec![row]
        }
    };
    Report { rows, ..Report::default() }
}

fn row(column: String, device: Device, part: Part) -> ReportRow {
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

/// Explains an Arrow batch of this name that was planned, with the bytes of a copy of it, or of any data of this field where there is no
/// plan.
pub(crate) fn explain_batch(
    name: &str,
    field: &FieldRef,
    device: Device,
    plan: Option<(&Plan, Option<usize>)>,
    copy: CopyMode,
) -> Report {
    let mut row = ReportRow { device, ..ReportRow::of_type(name.to_owned(), field.data_type().to_string()) };
    row.shape = vec![plan.and_then(|(plan, _)| i64::try_from(plan.rows).ok())];
    row.arrow_bytes = plan.and_then(|(_, bytes)| bytes);
    row.fill(|row| match plan {
        Some((plan, _)) => plan.refuse_steps(copy).map(|()| row.take(plan)),
        // Nothing on a device joins them.
        None if !device.is_cpu() && copy == CopyMode::Always => Err(needs_copy(device, &Action::JoinRows.to_string())),
        None => {
            let copy = if device.is_cpu() { copy } else { CopyMode::Never };
            let only_if = (copy != CopyMode::Always).then_some("rows are in several chunks");
            row.set_possible(&[PossibleStep { text: Action::JoinRows.to_string(), only_if }], copy)
        }
    });
    Report { rows: vec![row], ..Report::default() }
}
