//! [`HostOnly`]: what the types of a result say that no kernel of a device makes of it.

use crate::cuda::is_cuda;
use crate::device::Device;
use crate::error::{Error, Remedy};
use crate::kernels::tells_validity;
use crate::plan::{Action, needs_copy};
use crate::spec::ResultKind;

/// A step that the host does, and kernels only for some types.
#[derive(Clone, Debug)]
pub(super) struct HostOnly {
    action: Action,
    column: String,
    remedy: Remedy,
    /// Whether kernels do it for columns of these types.
    has_kernels: bool,
}

impl HostOnly {
    /// Returns the unpacking of a validity, of a column or a matrix; `None` for other results. Kernels read bitmaps alone: those of the
    /// elements, and those of the plain values that codes or runs stand for.
    pub(super) fn of_validity(result: &ResultKind) -> Option<Self> {
        let (spec, remedy) = match result {
            ResultKind::ColumnValidity { spec, .. } => {
                (spec, if spec.has_bitmap() { Remedy::BitmapOnDevice } else { Remedy::NoBitmap })
            }
            ResultKind::Validity(matrix) => {
                let mut columns = matrix.columns().iter().map(|(_, column)| column);
                let first = columns.clone().next()?;
                (columns.find(|column| !tells_validity(column)).unwrap_or(first), Remedy::CopyToHostOrBitmaps)
            }
            ResultKind::Matrix(_) | ResultKind::Column { .. } => return None,
        };
        let (column, has_kernels) = (spec.field().name().clone(), tells_validity(spec));
        Some(Self { action: Action::Unpack, column, remedy, has_kernels })
    }

    /// Whether no kernel of this device does it.
    pub(super) fn is_refused_on(&self, device: Device) -> bool {
        !(self.has_kernels && is_cuda(device))
    }

    /// Returns the error of a result on this device.
    pub(super) fn error(self, device: Device) -> Error {
        needs_copy(device, &self.action.to_string()).remedy_is(self.remedy).in_column(&self.column)
    }
}
