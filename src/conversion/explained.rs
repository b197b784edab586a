//! Reports of a conversion, from its data or its type to where the results are asked for.

use arrow_schema::FieldRef;

use crate::arrow::{Chunks, DeviceArray};
use crate::column::to_arrow;
use crate::device::Device;
use crate::error::Result;
use crate::explain::{Report, explain_tensor};
use crate::spec::{Conversion, CopyMode, Pad};
use crate::tensor::Tensor;

/// What a report is about.
#[cfg(feature = "python")]
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
    /// As [`Conversion::explain`], or [`Conversion::explain_padded`], of any subject.
    ///
    /// # Errors
    /// As [`Conversion::explain`].
    #[cfg(feature = "python")]
    pub(crate) fn explain_subject(&self, subject: Subject, pad: Option<Pad>) -> Result<Report> {
        match subject {
            Subject::Chunks(field, chunks) => {
                self.explain_any(&field, Some(&chunks), pad, DeviceArray::device_of(&chunks))
            }
            Subject::Type(field, own) => self.explain_any(&field, None, pad, own),
            // A tensor has no lists: its type says so.
            Subject::Tensor(tensor) if pad.is_some() => {
                self.explain_any(&tensor.arrow_form()?.field, None, pad, Device::CPU)
            }
            Subject::Tensor(tensor) => self.explain_tensor(&tensor),
        }
    }

    /// The report of the conversion of these chunks, or of any data of the type on `own`. Data that is copied to the host first is
    /// described by its type alone.
    pub(super) fn explain_any(
        &self,
        field: &FieldRef,
        chunks: Option<&[DeviceArray]>,
        pad: Option<Pad>,
        own: Device,
    ) -> Result<Report> {
        let there = chunks.map(|chunks| self.at_paths(Chunks::new(field, chunks))).transpose()?;
        let chunks = there.as_ref().map(Chunks::arrays);
        let field = &*self.type_at_paths(field)?;
        let Some(target) = self.device else { return self.explain_there(field, chunks, pad, own) };
        let conversion = self.by_way_of(self.destination().is_surely_copied_from(own), own);
        if !self.comes_before(own) {
            return Ok(conversion.explain_there(field, chunks, pad, own)?.then_to(target, self.copy));
        }
        let report = conversion.explain_there(field, None, pad, target)?;
        Ok(match chunks {
            Some(chunks) => self.explain_moved(report, field, chunks),
            None => report.after_moves(field, own, target, self.copy),
        })
    }

    /// The report of data that comes to the host before it is converted, from one of its type.
    pub(super) fn explain_moved(&self, report: Report, field: &FieldRef, chunks: &[DeviceArray]) -> Report {
        report.after_move(field, chunks, self.device.unwrap_or(Device::CPU), self.copy)
    }

    /// As [`Conversion::explain`], of a DLPack tensor, which becomes a column first: strided elements are gathered for that.
    ///
    /// # Errors
    /// When no Arrow type holds the tensor.
    pub fn explain_tensor(&self, tensor: &Tensor) -> Result<Report> {
        if !self.comes_before(tensor.device()) {
            let own = tensor.device();
            let conversion = self.by_way_of(self.destination().is_surely_copied_from(own), own);
            let report = explain_tensor(tensor, |column| conversion.of(column))?;
            return Ok(match self.device {
                Some(target) => report.then_to(target, self.copy),
                None => report,
            });
        }
        // Bools become bits by a kernel, before they are moved.
        match to_arrow(tensor, None, CopyMode::Never) {
            Ok(array) => self.explain_any(array.field(), Some(std::slice::from_ref(&array)), None, tensor.device()),
            Err(_) => self.explain_any(&tensor.arrow_form()?.field, None, None, tensor.device()),
        }
    }
}
