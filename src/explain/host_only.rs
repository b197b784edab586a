//! [`HostOnly`]: what the types of a result say that no kernel makes of it.

use crate::device::Device;
use crate::error::{Error, Remedy};
use crate::kernels::tells_validity;
use crate::plan::{Action, needs_copy};
use crate::spec::ResultKind;

/// A step that no kernel does for columns of these types: the host alone does it.
#[derive(Clone, Debug)]
pub(super) struct HostOnly {
    action: Action,
    column: Option<String>,
    remedy: Option<Remedy>,
}

impl HostOnly {
    /// Returns the validity, of a column or a matrix, that no kernel makes: kernels read bitmaps alone, those of plain values included.
    pub(super) fn of_validity(result: &ResultKind) -> Option<Self> {
        let (spec, remedy) = match result {
            ResultKind::ColumnValidity { spec, .. } => {
                let remedy = if spec.has_bitmap() { Remedy::BitmapOnDevice } else { Remedy::NoBitmap };
                (Some(spec).filter(|spec| !tells_validity(spec))?, Some(remedy))
            }
            ResultKind::Validity(matrix) => {
                let mut columns = matrix.columns().iter().map(|(_, column)| column);
                let refused = columns.find(|column| !tells_validity(column))?;
                (refused, Some(Remedy::CopyToHostOrBitmaps))
            }
            ResultKind::Matrix(_) | ResultKind::Column { .. } => return None,
        };
        Some(Self { action: Action::Unpack, column: Some(spec.field().name().clone()), remedy })
    }

    /// Returns the error of a result on this device.
    pub(super) fn error(self, device: Device) -> Error {
        let error = needs_copy(device, &self.action.to_string());
        let error = if let Some(remedy) = self.remedy { error.remedy_is(remedy) } else { error };
        if let Some(column) = self.column { error.in_column(&column) } else { error }
    }
}
