//! Gives an array by itself: with the nulls of its structs in a bitmap of its own, and under the name of another device.

use super::import::DeviceArray;
use super::node::ArrayNode;
use crate::error::{ErrorKind, Result};

impl DeviceArray {
    /// Returns the array with the nulls of enclosing structs joined into its own, for a transfer.
    ///
    /// # Errors
    /// As [`super::export_device_array`], with the remedy of a transfer.
    pub(crate) fn alone(&self) -> Result<Self> {
        if self.view().inherited.is_empty() {
            return Ok(self.clone());
        }
        let exported = super::export::export_joined(self, false, |_| Ok(None));
        let mut exported = exported.map_err(|error| match error.kind() {
            ErrorKind::Device | ErrorKind::Unsupported => {
                error.remedy_is("move the struct as a whole, then take its column")
            }
            _ => error,
        })?;
        // SAFETY: an export of our own, moved and released once.
        unsafe { Self::import_device(&raw mut exported, self.field().clone()) }
    }

    /// Returns the same memory as the CPU's, for the host to read now.
    ///
    /// # Errors
    /// As [`super::export_device_array`].
    pub(crate) fn as_host_memory(&self) -> Result<Self> {
        // The joined bitmap belongs to `alone`, not to this array.
        let alone = self.alone()?;
        let array = ArrayNode::of(&alone)?.export(&alone.owner())?;
        super::import::host_array(array, self.field().clone())
    }

    /// Returns the same memory under another device that reaches it, with this readiness.
    ///
    /// # Errors
    /// As [`super::export_device_array`].
    pub(crate) fn relabelled(&self, readiness: crate::stream_order::Readiness) -> Result<Self> {
        let alone = self.alone()?;
        let array = ArrayNode::of(&alone)?.export(&alone.owner())?;
        super::import::array_ready_at(array, self.field().clone(), Some(readiness))
    }
}
