//! Chunks of one column or table, with rows or without, on devices.

use arrow_schema::FieldRef;

use super::{ArrayNode, DeviceArray, ordered_array};
use crate::device::Device;
use crate::error::Result;
use crate::order::Order;

impl DeviceArray {
    /// The order of chunks of which one is on a device: that of the first one with rows, as nothing is read of the others.
    pub(crate) fn order_of<'a, I>(chunks: I) -> Option<&'a Order>
    where
        I: IntoIterator<Item = &'a Self, IntoIter: Clone>,
    {
        let chunks = chunks.into_iter();
        chunks.clone().filter(|chunk| !chunk.is_empty()).chain(chunks).find_map(Self::order)
    }

    /// The first rows of all chunks.
    pub(crate) fn first_rows(chunks: &[Self], rows: usize) -> Vec<Self> {
        let mut left = rows;
        let first = |chunk: &Self| {
            let chunk = chunk.slice(&(0..left));
            left = left.saturating_sub(chunk.len());
            chunk
        };
        chunks.iter().map(first).collect()
    }

    /// When all is written that is read of the chunks, as one order; `None` where none of them with rows is on a device.
    ///
    /// # Errors
    /// When they are on different devices, or the driver fails.
    pub(crate) fn joined_order<'a>(chunks: impl IntoIterator<Item = &'a Self>) -> Result<Option<Order>> {
        let filled = chunks.into_iter().filter(|chunk| !chunk.is_empty());
        Order::joined(filled.filter_map(|chunk| chunk.order().cloned()))
    }
}

/// An array without slots that counts as one on a device.
pub(crate) fn empty_on(field: FieldRef, device: Device) -> Result<DeviceArray> {
    let empty = DeviceArray::from_arrow(arrow_array::new_empty_array(field.data_type()).as_ref(), field.clone())?;
    ordered_array(ArrayNode::of(&empty)?.export(&empty.owner())?, field, Order::written(device))
}
