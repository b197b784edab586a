//! Reports of named groups of any form: rows that are padded or ragged, and Arrow batches, beside tensors.

use arrow_schema::FieldRef;

use super::planned_rows::{PlannedRows, padded_parts};
use super::varied::VariedGroup;
use crate::arrow::DeviceArray;
use crate::column::check_types;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::explain::{Report, ReportRow, explain_batch, explain_group, explain_parts_as};
use crate::ragged::{Part, lengths_of_type, plan_padded_type, plan_ragged_type};
use crate::spec::{Conversion, CopyMode, Group, GroupForm, Positions};

impl Conversion {
    /// Explains the conversion into named groups, of these chunks, or of any data of this field on a device if they are `None`.
    ///
    /// # Errors
    /// When a chunk is of another type, or a selected column does not exist. What is wrong with a group is in its rows.
    pub(super) fn explain_named(
        &self,
        field: &FieldRef,
        chunks: Option<&[DeviceArray]>,
        groups: &[(String, Group)],
        device: Device,
    ) -> Result<Report> {
        let positions = Positions::new(field)?;
        positions.require(groups.iter().flat_map(|(_, group)| group.columns()).map(String::as_str))?;
        self.check_groups()?;
        chunks.map_or(Ok(()), |chunks| check_types(field, chunks))?;
        groups.iter().try_fold(Report::default(), |all, group| {
            let (name, own) = group;
            if own.has_fixed_rows() {
                return Ok(all.and(explain_group((field, &positions), chunks, (name, own), &self.matrix(), self)?));
            }
            let report = VariedGroup::new(self, (field, &positions), name, own).map(|group| match chunks {
                Some(chunks) => group.report(device, group.plan(chunks, self.copy).as_ref().map_err(Clone::clone)),
                None => group.report_type(device, self.copy),
            });
            Ok(all.and(report.unwrap_or_else(|error| refused(name, &positions, own, error))))
        })
    }
}

impl VariedGroup {
    /// Reports what its plan will do.
    pub(super) fn report(&self, device: Device, planned: Result<&PlannedRows>) -> Report {
        match planned {
            Ok(PlannedRows::Arrow(batch)) => {
                let plan = (&batch.plan, batch.bytes_of_copy());
                explain_batch(&self.name, &self.field, device, Some(plan), batch.copy).in_group(&self.name)
            }
            rows => self.parts_report(device, rows.and_then(PlannedRows::parts)),
        }
    }

    /// Reports what would be done to any data on this device.
    fn report_type(&self, device: Device, copy: CopyMode) -> Report {
        let Self { field, options, .. } = self;
        let parts = match self.group.form() {
            GroupForm::Arrow => {
                return explain_batch(&self.name, field, device, None, copy).in_group(&self.name);
            }
            GroupForm::Padded(pad) => plan_padded_type(field, device, pad, options).map(|both| {
                let lengths = self.group.lengths_name().map(|_| {
                    let (error, part) =
                        (both.first().and_then(|both| both.error.clone()), lengths_of_type(field, copy));
                    Part { error: error.or(part.error.clone()), ..part }
                });
                padded_parts(both, self.group.validity_name().is_some(), lengths)
            }),
            _ => plan_ragged_type(field, device, options),
        };
        self.parts_report(device, parts)
    }

    /// The rows of the parts, called as the results that they become.
    fn parts_report(&self, device: Device, parts: Result<Vec<Part>>) -> Report {
        let name = |part: Option<&str>| match (self.group.form(), part) {
            (GroupForm::Padded(_), Some("validity")) => self.group.validity_name().unwrap_or_default().to_owned(),
            (GroupForm::Padded(_), Some("lengths")) => self.group.lengths_name().unwrap_or_default().to_owned(),
            (GroupForm::Ragged, Some(part)) => format!("{}.{part}", self.name),
            _ => self.name.clone(),
        };
        let mut report = explain_parts_as(&self.field, device, parts, name);
        for row in &mut report.rows {
            row.error = row.error.take().map(|error| error.in_group(&self.name).of_named_results());
        }
        report
    }
}

/// The row of a group that is refused by its type.
fn refused(name: &str, positions: &Positions<'_>, group: &Group, error: Error) -> Report {
    let columns = positions.select(Some(group.columns())).unwrap_or_default();
    let types: Vec<_> = columns.iter().map(|(_, column)| column.data_type().to_string()).collect();
    let mut row = ReportRow::of_type(name.to_owned(), types.join(", "));
    row.error = Some(error.in_group(name).of_named_results());
    Report { rows: vec![row], ..Report::default() }
}
