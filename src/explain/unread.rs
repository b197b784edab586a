//! Rows of a report for streams on a device, none of whose arrays is read: what the types alone say of such data there.

use arrow_schema::FieldRef;

use super::{Report, ReportRow, explain, explain_schema};
use crate::arrow::empty_on;
use crate::column::on_device::needs_copy;
use crate::cuda::is_cuda;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::kernels::{has_kernel, is_checked};
use crate::order::Order;
use crate::plan::Action;
use crate::ragged::is_ragged;
use crate::spec::{Element, Nulls, Options};

/// Explains the conversion of any data of this field on a device, as far as type and device decide it: of a stream that is not read.
///
/// # Errors
/// As [`explain`].
pub fn explain_stream(
    field: &FieldRef,
    device: Device,
    columns: Option<&[String]>,
    options: impl Fn(&str) -> Options,
) -> Result<Report> {
    if device.is_cpu() || !is_ragged(field) {
        return Ok(explain_schema(field, columns, options)?.unread_on(device));
    }
    let mut report = explain(field, &[empty_on(field.clone(), device)?], columns, options)?;
    for row in &mut report.rows {
        if let Some(extent) = row.shape.first_mut() {
            *extent = None;
        }
        if row.column.ends_with("offsets") && row.error.is_none() {
            (row.steps, row.at_most, row.view) = (Vec::new(), false, true);
            row.waits
                .push("the first and the last offset are read: they are refused if they do not start at 0".to_owned());
        }
    }
    Ok(report)
}

impl Report {
    /// The report, which [`explain_schema`] and its kind make, of data that is on a device: what kernels do there, what the host
    /// may wait for, and what no kernel is for. Nothing is asked of a driver.
    #[must_use]
    pub fn unread_on(mut self, device: Device) -> Self {
        if !device.is_cpu() {
            self.rows.iter_mut().chain(&mut self.matrices).for_each(|row| row.set_unread(device));
        }
        self
    }
}

impl ReportRow {
    fn set_unread(&mut self, device: Device) {
        self.device = device;
        if self.error.is_some() {
            return;
        }
        let is_copy = !self.view && !self.at_most;
        self.error = self.has_no_kernel(device, is_copy);
        if self.error.is_some() {
            self.view = false;
            return;
        }
        let any = |found: &dyn Fn(&crate::spec::Spec) -> bool| self.specs.iter().any(found);
        let waits = [
            (
                any(&|spec| spec.nulls() == Nulls::Refused && spec.field().is_nullable()),
                "bitmaps of nulls are read, where they are not counted",
            ),
            (!is_copy && any(&|spec| spec.element() == Element::Bool8), "bytes that have to be bools are looked at"),
            (is_copy && any(&is_checked), "whether every value fits is read, once for all columns"),
        ];
        self.waits = waits.iter().filter(|(waits, _)| *waits).map(|(_, text)| (*text).to_owned()).collect();
        self.set_kernel(is_copy);
    }

    /// Why the types alone forbid the conversion on this device.
    fn has_no_kernel(&self, device: Device, is_copy: bool) -> Option<Error> {
        let order = Order::on_device(device);
        let missing = |spec: &&crate::spec::Spec| spec.decoded().is_some() || is_copy && !has_kernel(spec);
        let refused = self.specs.iter().find(|spec| missing(spec));
        match refused {
            Some(spec) if spec.decoded().is_some() => {
                Some(needs_copy(&order, &Action::Decode.to_string()).in_column(spec.field().name()))
            }
            Some(spec) => Some(needs_copy(&order, &self.steps.join(", ")).in_column(spec.field().name())),
            None if is_copy && !is_cuda(device) => Some(needs_copy(&order, &self.steps.join(", "))),
            None => None,
        }
    }
}
