//! Reports of a conversion whose results are asked for on a device.

use arrow_schema::FieldRef;

use crate::arrow::DeviceArray;
use crate::column::to_arrow;
use crate::device::Device;
use crate::error::Result;
use crate::explain::{Report, explain_tensor};
use crate::ragged::Pad;
use crate::spec::{Conversion, CopyMode, Selection};
use crate::tensor::Tensor;
use crate::transfer::Route;

/// What a report is about.
#[derive(Debug)]
pub(crate) enum Subject {
    /// The chunks of a column, or of the columns of structs.
    Chunks(FieldRef, Vec<DeviceArray>),
    /// Its type, and where it is.
    Type(FieldRef, Device),
    /// A tensor, which becomes a column first.
    Tensor(Tensor),
}

impl Conversion {
    /// As [`Conversion::explain`], or [`Conversion::explain_padded`], for results that go to `target`. What the CPU is asked for is moved
    /// there before it is converted, and no more is known of it than of a type.
    ///
    /// # Errors
    /// As [`Conversion::explain`].
    pub(crate) fn explain_to(&self, subject: Subject, pad: Option<Pad>, target: Option<Device>) -> Result<Report> {
        match subject {
            Subject::Chunks(field, chunks) => self.explain_chunks_to(&field, &chunks, pad, target),
            Subject::Type(field, own) => self.explain_type_to(&field, own, pad, target),
            // A tensor has no lists: its type says so.
            Subject::Tensor(tensor) if pad.is_some() => {
                self.explain_type_to(&tensor.arrow_form()?.field, Device::CPU, pad, target)
            }
            Subject::Tensor(tensor) => self.explain_tensor_to(&tensor, target),
        }
    }

    fn explain_chunks_to(
        &self,
        field: &FieldRef,
        chunks: &[DeviceArray],
        pad: Option<Pad>,
        target: Option<Device>,
    ) -> Result<Report> {
        let own = chunks.first().map_or(Device::CPU, DeviceArray::device);
        let moved = chunks.first().zip(target).filter(|(array, target)| target.is_cpu() && !array.device().is_cpu());
        let conversion = self.of_moved(own, target);
        match moved {
            Some((array, target)) => {
                let report = conversion.explain_here(field, None, pad, Device::CPU)?;
                Ok(report.after_move(array, target, self.copy))
            }
            None => Ok(self.sent(conversion.explain_here(field, Some(chunks), pad, own)?, target)),
        }
    }

    fn explain_type_to(
        &self,
        field: &FieldRef,
        own: Device,
        pad: Option<Pad>,
        target: Option<Device>,
    ) -> Result<Report> {
        let conversion = self.of_moved(own, target);
        match target.filter(|target| target.is_cpu() && !own.is_cpu()) {
            Some(target) => {
                let report = conversion.explain_here(field, None, pad, Device::CPU)?;
                Ok(report.after_moves(field, own, target, self.copy))
            }
            None => Ok(self.sent(conversion.explain_here(field, None, pad, own)?, target)),
        }
    }

    fn explain_tensor_to(&self, tensor: &Tensor, target: Option<Device>) -> Result<Report> {
        if !target.is_some_and(Device::is_cpu) || tensor.device().is_cpu() {
            return Ok(self.sent(explain_tensor(tensor, |column| self.of(column))?, target));
        }
        // Bools become bits by a kernel, before they are moved.
        match to_arrow(tensor, None, CopyMode::Never) {
            Ok(array) => self.explain_chunks_to(array.field(), std::slice::from_ref(&array), None, target),
            Err(_) => self.explain_type_to(&tensor.arrow_form()?.field, tensor.device(), None, target),
        }
    }

    fn explain_here(
        &self,
        field: &FieldRef,
        chunks: Option<&[DeviceArray]>,
        pad: Option<Pad>,
        device: Device,
    ) -> Result<Report> {
        match pad {
            Some(pad) => self.explain_padded(field, chunks, pad, device),
            None => self.explain(field, chunks, device),
        }
    }

    /// The report, with the way of the results to a device.
    fn sent(&self, report: Report, target: Option<Device>) -> Report {
        match target {
            Some(target) => report.then_to(target, self.copy),
            None => report,
        }
    }

    /// The conversion of data that was moved to the CPU where that is asked for: what is copied for it is nobody else's.
    fn of_moved(&self, own: Device, target: Option<Device>) -> Self {
        let is_own = target.is_some_and(|target| target.is_cpu() && Route::is_copy(own, target));
        let mut conversion = self.clone();
        if is_own && !matches!(self.selection, Selection::Named(_)) {
            conversion.take_as_own();
        }
        conversion
    }
}
