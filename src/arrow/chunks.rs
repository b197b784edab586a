//! Combines the chunks of a column: the `Readiness` of all, their first rows, an array without rows on a device.

use arrow_schema::FieldRef;

use super::{ArrayNode, DeviceArray, array_ready_at};
use crate::device::Device;
use crate::error::Result;
use crate::stream_order::Readiness;

impl DeviceArray {
    /// Returns the readiness of chunks that are on a device: that of the first one with rows, because the others are
    /// not read.
    pub(crate) fn readiness_of<'a, I>(chunks: I) -> Option<&'a Readiness>
    where
        I: IntoIterator<Item = &'a Self, IntoIter: Clone>,
    {
        let chunks = chunks.into_iter();
        chunks.clone().filter(|chunk| !chunk.is_empty()).chain(chunks).find_map(Self::readiness)
    }

    /// Where rows are: chunks without any may be elsewhere. The CPU, if there are no chunks.
    pub(crate) fn device_of(chunks: &[Self]) -> Device {
        let filled = chunks.iter().find(|chunk| !chunk.is_empty());
        filled.or(chunks.first()).map_or(Device::CPU, Self::device)
    }

    /// The first rows of all chunks.
    pub(crate) fn first_rows(chunks: &[Self], rows: usize) -> Vec<Self> {
        let mut left = rows;
        let first = |chunk: &Self| {
            let chunk = chunk.clipped(&(0..left));
            left = left.saturating_sub(chunk.len());
            chunk
        };
        chunks.iter().map(first).collect()
    }

    /// Joins the readiness of all chunks with rows; `None` if none of them is on a device.
    ///
    /// # Errors
    /// If they are on different devices, or the driver fails.
    pub(crate) fn joined_readiness<'a>(chunks: impl IntoIterator<Item = &'a Self>) -> Result<Option<Readiness>> {
        let filled = chunks.into_iter().filter(|chunk| !chunk.is_empty());
        Readiness::joined(filled.filter_map(|chunk| chunk.readiness().cloned()))
    }
}

/// Returns an array without slots on a device.
pub(crate) fn empty_on(field: FieldRef, device: Device) -> Result<DeviceArray> {
    let empty = DeviceArray::from_arrow(arrow_array::new_empty_array(field.data_type()).as_ref(), field.clone())?;
    array_ready_at(ArrayNode::of(&empty)?.export(&empty.owner())?, field, Readiness::written(device))
}
