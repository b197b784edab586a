//! Is memory what its producer says: memory of that device, of that size?

use std::ops::Range;
use std::sync::PoisonError;

use super::{Readiness, enter};
use crate::cuda::{Current, is_cuda};
use crate::device::Device;
use crate::error::Result;

impl Readiness {
    /// Refuses a part of the memory that contradicts its producer: another device or kind, another context than the primary one,
    /// or a shorter size. Asks the driver once for all parts of one allocation. Memory outside CUDA is not checked.
    ///
    /// # Errors
    /// If the memory differs, or there is no driver to ask.
    pub(crate) fn check_part(&self, part: &Range<usize>) -> Result<()> {
        if !is_cuda(self.0.device) || self.is_in_allocation(part) {
            return Ok(());
        }
        self.check_part_in(&self.enter()?, part)
    }

    /// As [`Readiness::check_part`], on a thread in which the context of a device is current.
    pub(crate) fn check_part_in(&self, current: &Current, part: &Range<usize>) -> Result<()> {
        if !is_cuda(self.0.device) || self.is_in_allocation(part) {
            return Ok(());
        }
        if let Some(allocation) = current.checked_allocation(part.start, part.len(), self.0.device)? {
            *self.0.allocation.lock().unwrap_or_else(PoisonError::into_inner) = Some(allocation);
        }
        Ok(())
    }

    fn is_in_allocation(&self, part: &Range<usize>) -> bool {
        let known = self.0.allocation.lock().unwrap_or_else(PoisonError::into_inner);
        part.is_empty() || known.as_ref().is_some_and(|known| known.start <= part.start && part.end <= known.end)
    }
}

/// Refuses memory that contradicts its producer: another device or kind, another context than the primary one, or a
/// shorter size. Memory outside CUDA is not checked.
///
/// # Errors
/// If the memory differs, or there is no driver to ask.
pub(crate) fn check_memory(device: Device, address: usize, bytes: usize) -> Result<()> {
    if !is_cuda(device) || bytes == 0 {
        return Ok(());
    }
    enter(device)?.check_memory(address, bytes, device)
}
