//! Rows of a report from types alone, for data that is not read, such as a stream's, on the host or on a device.

use arrow_schema::FieldRef;

use super::{Report, ReportRow, explain, explain_parts};
use crate::cuda::is_cuda;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::kernels::{has_kernel, is_gathered, is_read_on, looks_up_values, reads_lists_on};
use crate::plan::{Action, HostWait, needs_copy};
use crate::ragged::{is_rows, plan_ragged_type};
use crate::spec::{
    ABOVE_1, APART, CHUNKS, CopyMode, DICTIONARIES, Element, JOINED, NULLS, NULLS_READ, Nulls, Options, PRIVATE,
    PossibleStep, Spec, Undecided, may_be_null,
};

/// Explains the conversion of any data of this field on a device, as far as type and device decide it: of a stream that is not read.
///
/// # Errors
/// As [`explain`].
pub(crate) fn explain_stream(
    field: &FieldRef,
    device: Device,
    columns: Option<&[String]>,
    options: impl Fn(&str) -> Options,
) -> Result<Report> {
    if device.is_cpu() || !is_rows(field, &options(field.name())) {
        return Ok(explain(field, None, columns, options)?.unread_on(device));
    }
    Ok(explain_parts(field, device, plan_ragged_type(field, device, &options(field.name()))))
}

impl Report {
    /// The report, which was made of types alone, of data that is on a device: what kernels do there, what the host
    /// may wait for, and what no kernel is for. Nothing is asked of a driver.
    pub(crate) fn unread_on(mut self, device: Device) -> Self {
        if !device.is_cpu() {
            self.rows.iter_mut().for_each(|row| row.set_unread(device));
            self.matrices.iter_mut().for_each(|row| row.set_unread_matrix(device));
        }
        self
    }
}

impl ReportRow {
    /// Says what data may hold that would be refused, whatever copies are allowed.
    pub(super) fn set_refused(&mut self, spec: &Spec) {
        if spec.nulls() == Nulls::Refused && may_be_null(spec.field()) {
            self.add_refused_if(NULLS);
        }
        if spec.has_codes() {
            self.add_refused_if(DICTIONARIES);
        }
    }

    /// Says what is refused where no copy is allowed, and only values decide if one is needed.
    pub(super) fn refuse_values(&mut self, copy: CopyMode) {
        if self.at_most && copy == CopyMode::Never {
            self.add_refused_if(ABOVE_1);
            (self.steps, self.bytes, self.at_most, self.view) = (Vec::new(), 0, false, true);
        }
    }

    pub(super) fn add_refused_if(&mut self, condition: &str) {
        if self.refused_if.iter().all(|own| own != condition) {
            self.refused_if.push(condition.to_owned());
        }
    }

    /// Sets what data that was not seen may make necessary.
    ///
    /// # Errors
    /// As [`Undecided::new`].
    pub(super) fn set_possible(&mut self, steps: &[PossibleStep], copy: CopyMode) -> Result<()> {
        let undecided = Undecided::new(steps, copy).map_err(|error| error.in_column(&self.column))?;
        (self.steps, self.at_most) = (undecided.steps, undecided.at_most);
        undecided.refused_if.iter().for_each(|condition| self.add_refused_if(condition));
        Ok(())
    }

    /// Takes back what several chunks would ask for; gives whether it was there.
    pub(super) fn take_one_chunk(&mut self) -> bool {
        let before = self.steps.len() + self.refused_if.len();
        self.refused_if.retain(|condition| condition != CHUNKS);
        if let Some(step) = self.steps.iter().position(|step| step == JOINED) {
            self.steps.remove(step);
            self.view = self.error.is_none() && self.steps.is_empty();
            self.at_most = !self.steps.is_empty();
        }
        self.steps.len() + self.refused_if.len() < before
    }

    /// As [`ReportRow::set_unread`], of a matrix, which is called as its group if it has one.
    fn set_unread_matrix(&mut self, device: Device) {
        if self.error.is_some() {
            self.device = device;
            return;
        }
        self.set_unread(device);
        self.error =
            self.error.take().map(|error| if self.column.is_empty() { error } else { error.in_group(&self.column) });
    }

    fn set_unread(&mut self, device: Device) {
        self.device = device;
        // Parts of rows, and batches, have no specs: what they say was made for the device.
        if self.error.is_some() || (self.specs.is_empty() && self.validity_specs.is_empty()) {
            return;
        }
        // Kernels join chunks, and nothing else there does.
        if !(is_cuda(device) && self.specs.iter().all(has_kernel)) && self.take_one_chunk() {
            self.add_refused_if(CHUNKS);
        }
        let of_lists = || self.specs.iter().chain(&self.validity_specs).filter(|spec| reads_lists_on(spec, device));
        let has_lists = of_lists().next().is_some();
        if has_lists {
            let decoding: Vec<_> = of_lists().filter_map(Spec::decoding).collect();
            self.refuse_lists_apart(&decoding);
        }
        let is_copy = !self.view && !self.at_most;
        self.error = self.has_no_kernel(device, is_copy);
        if self.error.is_some() {
            self.view = false;
            return;
        }
        let any = |found: &dyn Fn(&Spec) -> bool| self.specs.iter().any(found);
        let waits = [
            (has_lists, HostWait::Lists.to_string()),
            (any(&|spec| spec.nulls() == Nulls::Refused && spec.field().is_nullable()), NULLS_READ.to_owned()),
            (!is_copy && any(&|spec| spec.element() == Element::Bool8), HostWait::Bools.to_string()),
            (is_copy && any(&Spec::is_checked_cast), HostWait::Casts.to_string()),
            (
                any(&|spec| is_gathered(spec) || (!self.view && spec.has_codes() && spec.nulls() != Nulls::Refused))
                    || self.validity_specs.iter().any(looks_up_values),
                HostWait::Codes.to_string(),
            ),
            (
                self.refused_if.iter().all(|condition| condition != CHUNKS) && any(&Spec::has_codes),
                HostWait::Dictionaries.to_string(),
            ),
        ];
        self.waits = waits.into_iter().filter_map(|(waits, text)| waits.then_some(text)).collect();
        self.set_kernel(is_copy);
    }

    /// Says that lists which do not follow each other are refused, and not decoded.
    fn refuse_lists_apart(&mut self, decoding: &[String]) {
        let before = self.steps.len();
        self.steps.retain(|step| !decoding.contains(step));
        // Lists that are not refused follow each other, which is the condition of this step.
        self.steps.iter_mut().filter(|step| step.starts_with(PRIVATE)).for_each(|step| PRIVATE.clone_into(step));
        self.add_refused_if(APART);
        if self.steps.is_empty() && before > 0 {
            (self.view, self.at_most) = (self.error.is_none(), false);
        }
    }

    /// Why the types alone forbid the conversion on this device.
    fn has_no_kernel(&self, device: Device, is_copy: bool) -> Option<Error> {
        if let Some(host_only) = self.host_only.as_ref().filter(|step| step.is_refused_on(device)) {
            return Some(host_only.clone().error(device));
        }
        let missing = |spec: &&Spec| !is_read_on(spec, device) || is_copy && !has_kernel(spec);
        let refused = self.specs.iter().find(|spec| missing(spec));
        match refused {
            Some(spec) if !is_read_on(spec, device) => {
                Some(needs_copy(device, &Action::decoding(spec).to_string()).in_column(spec.field().name()))
            }
            Some(spec) => Some(needs_copy(device, &self.steps.join(", ")).in_column(spec.field().name())),
            None if is_copy && !is_cuda(device) => Some(needs_copy(device, &self.steps.join(", "))),
            None => None,
        }
    }
}
