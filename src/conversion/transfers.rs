//! Takes the data of a conversion to where it is converted, and the results to where they are asked for.
//!
//! The host converts if it is one of the two: data that is asked for there comes before, results of host data go after.

use std::borrow::Cow;

use super::converted::Converted;
use super::run::Run;
use crate::arrow::DeviceArray;
use crate::column::{Runner, run_step};
use crate::cuda::is_host_visible;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::spec::{Conversion, Selection};
use crate::tensor::Tensor;
use crate::transfer::{Destination, elsewhere};

/// A conversion, and its data, where it is converted.
pub(super) struct BroughtData<'a> {
    pub(super) conversion: Cow<'a, Conversion>,
    pub(super) chunks: Cow<'a, [DeviceArray]>,
    /// Whether all memory was copied for this conversion alone.
    pub(super) is_own: bool,
}

impl BroughtData<'_> {
    /// A tensor of memory that was copied for it is nobody else's.
    pub(super) fn owned_tensor(&self, tensor: Tensor) -> Tensor {
        if self.is_own { tensor.into_own() } else { tensor }
    }

    /// As [`BroughtData::owned_tensor`], of a result of any form.
    pub(super) fn owned(&self, result: Converted) -> Result<Converted> {
        match result {
            Converted::Tensor(tensor) => Ok(self.owned_tensor(tensor).into()),
            Converted::Ragged(rows) if self.is_own => rows.into_own().map(Into::into),
            other => Ok(other),
        }
    }
}

impl Conversion {
    /// Where the results go.
    pub(crate) fn destination(&self) -> Destination {
        Destination::new(self.device, self.copy)
    }

    /// Whether data on `own`, or results of it, may have to go: what kernels make of page-locked and managed memory is on its device.
    pub(crate) fn is_elsewhere(&self, own: Device) -> bool {
        self.device.is_some_and(|device| device != own || is_host_visible(own))
    }

    /// Whether the data comes to the host before it is converted.
    pub(super) fn comes_before(&self, own: Device) -> bool {
        self.destination().comes_before(own)
    }

    /// The conversion of data that a step takes to the host, or whose results it takes away. What is copied for that is nobody else's, and
    /// is not copied again; but for groups, two of which may have one column.
    pub(super) fn by_way_of(&self, is_copied: bool, own: Device) -> Cow<'_, Self> {
        let is_shared = self.comes_before(own) && matches!(self.selection, Selection::Named(_));
        let mut conversion = Cow::Borrowed(self);
        if is_copied && !is_shared {
            conversion.to_mut().take_as_own();
        }
        conversion
    }

    /// The data where it is converted. Whether that was copied for the conversion alone is asked of all chunks, and of `run`.
    ///
    /// # Errors
    /// As [`Destination::array`].
    pub(super) fn bring<'a>(&'a self, chunks: &'a [DeviceArray], run: Run<'_>) -> Result<BroughtData<'a>> {
        let (destination, own) = (self.destination(), DeviceArray::device_of(chunks));
        let mut is_copied = destination.is_copied_from(own)?;
        // Chunks without rows have nothing to copy.
        for array in chunks.iter().filter(|array| !array.is_empty()) {
            is_copied = is_copied && destination.is_copied_from(array.device())?;
        }
        let mut there = Cow::Borrowed(chunks);
        if chunks.iter().any(|array| self.comes_before(array.device())) {
            let bring = |array| destination.array(array).map(Cow::into_owned);
            there = run_step(run.runner, usize::MAX, || chunks.iter().map(bring).collect::<Result<Vec<_>>>())?.into();
        }
        let is_named = matches!(self.selection, Selection::Named(_));
        let is_own = (run.is_own || is_copied && self.comes_before(own)) && !is_named;
        let conversion = self.by_way_of(is_own || is_copied, own);
        Ok(BroughtData { conversion, chunks: there, is_own })
    }

    /// Results, where they are asked for.
    ///
    /// # Errors
    /// As [`Destination::tensors`].
    pub(crate) fn send(&self, tensors: Vec<Tensor>, runner: &Runner<'_>) -> Result<Vec<Tensor>> {
        if self.device.is_none_or(|device| tensors.iter().all(|tensor| tensor.device() == device)) {
            return Ok(tensors);
        }
        run_step(runner, usize::MAX, || self.destination().tensors(tensors))
    }

    /// As [`Conversion::send`], of one result.
    pub(crate) fn send_one(&self, tensor: Tensor, runner: &Runner<'_>) -> Result<Tensor> {
        if self.device.is_none_or(|device| tensor.device() == device) {
            return Ok(tensor);
        }
        run_step(runner, usize::MAX, || self.destination().tensor(tensor))
    }

    /// As [`Conversion::send`], of results of any form.
    pub(super) fn send_results(
        &self,
        results: Vec<(String, Converted)>,
        runner: &Runner<'_>,
    ) -> Result<Vec<(String, Converted)>> {
        let mut parts = Vec::new();
        for (_, result) in &results {
            match result {
                Converted::Tensor(tensor) => parts.push(tensor.clone()),
                Converted::Ragged(rows) => parts.extend(rows.parts()),
                Converted::Arrow(_) => {}
            }
        }
        let mut sent = self.send(parts, runner)?.into_iter();
        let place = |(name, result)| {
            let result = match result {
                Converted::Tensor(_) => sent.next().map(Into::into).ok_or_else(|| Error::internal("a tensor was lost")),
                Converted::Ragged(rows) => rows.with_parts(&mut sent).map(Into::into),
                Converted::Arrow(batch) => Ok(Converted::Arrow(self.destination().array(&batch)?.into_owned())),
            };
            Ok((name, result?))
        };
        results.into_iter().map(place).collect()
    }

    /// Refuses a result that would not be where it is asked for: memory that is written to is where it is.
    pub(super) fn require_device(&self, own: Device) -> Result<()> {
        match self.device.filter(|device| *device != own) {
            Some(device) => Err(elsewhere(own, device)),
            None => Ok(()),
        }
    }
}
