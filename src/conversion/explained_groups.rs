//! Reports of named groups of any form: rows that are padded or ragged, and Arrow batches, beside tensors.

use arrow_schema::FieldRef;

use super::varied::VariedGroup;
use crate::arrow::DeviceArray;
use crate::column::check_types;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::explain::{Report, ReportRow, explain_groups, explain_padded, explain_rows};
use crate::plan::Action;
use crate::spec::{Conversion, CopyMode, Group, GroupForm, Options, Pad, require_columns, select};

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
        require_columns(field, groups.iter().flat_map(|(_, group)| group.columns()).map(String::as_str))?;
        self.check_groups()?;
        chunks.map_or(Ok(()), |chunks| check_types(field, chunks))?;
        groups.iter().try_fold(Report::default(), |all, group| {
            let (name, own) = group;
            if own.has_fixed_rows() {
                return Ok(all.and(explain_groups(field, chunks, std::slice::from_ref(group), &self.matrix(), self)?));
            }
            let rows = VariedGroup::new(self, field, name, own)
                .and_then(|group| self.explain_varied(&group, chunks, device))
                .unwrap_or_else(|error| vec![refused(name, field, own, error)]);
            let mut report = Report { rows, ..Report::default() };
            for row in &mut report.rows {
                row.error = row.error.take().map(|error| error.in_group(name));
            }
            Ok(all.and(report))
        })
    }

    fn explain_varied(
        &self,
        group: &VariedGroup,
        chunks: Option<&[DeviceArray]>,
        device: Device,
    ) -> Result<Vec<ReportRow>> {
        let parts = chunks.map(|chunks| chunks.iter().map(|chunk| group.part_of(chunk)).collect::<Result<Vec<_>>>());
        let parts = parts.transpose()?;
        match group.group.form() {
            GroupForm::Padded(pad) => Ok(padded_rows(group, parts.as_deref(), device, pad, &group.options)),
            GroupForm::Arrow => Ok(vec![batch_row(group, parts.as_deref(), device, self.copy)]),
            _ => {
                let mut rows = explain_rows(&group.field, parts.as_deref(), device, &group.options)?.rows;
                for row in &mut rows {
                    let part = row.column.strip_prefix(group.field.name().as_str()).unwrap_or(&row.column);
                    row.column = format!("{}{part}", group.name);
                }
                Ok(rows)
            }
        }
    }
}

/// The matrix, and the validity and the lengths that are asked for. Validity is always made beside the matrix.
fn padded_rows(
    group: &VariedGroup,
    parts: Option<&[DeviceArray]>,
    device: Device,
    pad: Pad,
    options: &Options,
) -> Vec<ReportRow> {
    let mut rows = explain_padded(&group.field, parts, device, pad, options).rows.into_iter();
    let Some(mut matrix) = rows.next() else { return Vec::new() };
    matrix.column.clone_from(&group.name);
    let mut validity = rows.next();
    let lengths = group.group.lengths_name().map(|name| {
        let mut row = ReportRow::of_type(name.to_owned(), String::new());
        let extent = matrix.shape.first().copied().flatten();
        (row.dtype, row.shape, row.device) = (Some(DType::Int64), vec![extent], matrix.device);
        row.steps = vec![Action::CountLengths.to_string()];
        row.bytes = extent.and_then(|rows| usize::try_from(rows).ok()).unwrap_or(0).saturating_mul(8);
        row.error.clone_from(&matrix.error);
        row
    });
    if let (Some(row), None) = (&validity, group.group.validity_name()) {
        matrix.bytes = matrix.bytes.saturating_add(row.bytes);
        validity = None;
    }
    if let (Some(row), Some(name)) = (&mut validity, group.group.validity_name()) {
        name.clone_into(&mut row.column);
    }
    std::iter::once(matrix).chain(validity).chain(lengths).collect()
}

/// The batch of a group of Arrow columns.
fn batch_row(group: &VariedGroup, parts: Option<&[DeviceArray]>, device: Device, copy: CopyMode) -> ReportRow {
    let mut row = ReportRow::of_type(group.name.clone(), group.field.data_type().to_string());
    row.device = parts.map_or(device, DeviceArray::device_of);
    let Some(parts) = parts else {
        row.shape = vec![None];
        let joined = copy != CopyMode::Never;
        row.steps = joined.then(|| Action::JoinRows.to_string()).into_iter().collect();
        (row.at_most, row.view) = (joined && copy == CopyMode::IfNeeded, false);
        row.refused_if = (!joined).then(|| "rows are in several chunks".to_owned()).into_iter().collect();
        return row;
    };
    row.shape = vec![i64::try_from(parts.iter().map(DeviceArray::len).sum::<usize>()).ok()];
    match group.batch_action(parts, copy) {
        Ok(None) => row.view = true,
        Ok(Some((action, bytes))) => (row.steps, row.bytes) = (vec![action.to_string()], bytes),
        Err(error) => row.error = Some(error),
    }
    row
}

/// The row of a group that is refused by its type.
fn refused(name: &str, field: &FieldRef, group: &Group, error: Error) -> ReportRow {
    let columns = select(field, Some(group.columns())).unwrap_or_default();
    let types: Vec<_> = columns.iter().map(|(_, column)| column.data_type().to_string()).collect();
    let mut row = ReportRow::of_type(name.to_owned(), types.join(", "));
    row.error = Some(error);
    row
}
