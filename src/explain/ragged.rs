//! Rows of a report for the parts of ragged rows.

use arrow_schema::FieldRef;

use super::{Report, ReportRow};
use crate::error::Result;
use crate::ragged::PartPlan;

/// A row for each part, or one that says why there are none.
pub(super) fn report(field: &FieldRef, plans: Result<Vec<PartPlan>>) -> Report {
    let rows = match plans {
        Ok(plans) => plans.into_iter().map(|plan| row(field, plan)).collect(),
        Err(error) => {
            let mut row = ReportRow::new(field);
            row.fill(|_| Err(error));
            vec![row]
        }
    };
    Report { rows, matrices: Vec::new() }
}

fn row(field: &FieldRef, plan: PartPlan) -> ReportRow {
    let name = field.name();
    let column = if name.is_empty() { plan.name } else { format!("{name}.{}", plan.name) };
    ReportRow {
        column,
        arrow_type: plan.arrow_type,
        dtype: Some(plan.dtype),
        shape: plan.shape,
        view: plan.error.is_none() && plan.steps.is_empty(),
        steps: plan.steps,
        bytes: plan.bytes,
        at_most: plan.at_most,
        promotion: None,
        error: plan.error,
    }
}
