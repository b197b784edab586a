//! Serializes arrays and tensors to bytes, and rebuilds them with the checks of an import.

use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::{Array, make_array};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::{DataType, FieldRef};

use super::copy_array::copy_array_for;
use crate::alloc::{HostBuffer, fallible};
use crate::arrow::{DeviceArray, child_types, validate};
use crate::dtype::DType;
use crate::error::{Error, Result, catch_panic};
use crate::spec::{Dims, TensorField};
use crate::tensor::Tensor;

/// Why an array or a tensor that is pickled is copied.
pub(crate) const PICKLED: &str = "pickled by value";

/// An array without its type.
#[derive(Debug)]
pub(crate) struct ArrayParts<B> {
    /// The number of its slots.
    pub(crate) len: usize,
    /// Its validity bitmap.
    pub(crate) nulls: Option<B>,
    /// Its other buffers.
    pub(crate) buffers: Vec<B>,
    /// Its children, or its dictionary's values.
    pub(crate) children: Vec<ArrayParts<B>>,
}

/// The parts of an array in host memory: a copy of what its rows need.
///
/// # Errors
/// As [`super::copy_array`].
pub(crate) fn take_apart(array: &DeviceArray) -> Result<ArrayParts<Buffer>> {
    let copy = copy_array_for(array, PICKLED)?.to_arrow_unlogged()?;
    parts_of(&copy.to_data()).map_err(|error| error.in_column(array.field().name()))
}

fn parts_of(data: &ArrayData) -> Result<ArrayParts<Buffer>> {
    let nulls = data.nulls().map(|nulls| nulls.inner());
    if data.offset() != 0 || nulls.is_some_and(|nulls| nulls.offset() != 0) {
        return Err(Error::internal("a copy of an array starts behind its buffers"));
    }
    Ok(ArrayParts {
        len: data.len(),
        nulls: nulls.map(|nulls| nulls.inner().clone()),
        buffers: fallible::copied(data.buffers())?,
        children: data.child_data().iter().map(parts_of).collect::<Result<_>>()?,
    })
}

/// The array of these parts and this field.
///
/// # Errors
/// When the parts are none of the field's type, or break the Arrow format.
pub(crate) fn put_together(field: &FieldRef, parts: ArrayParts<PickledBytes>) -> Result<DeviceArray> {
    let named = |error: Error| error.in_column(field.name());
    let array = catch_panic(|| {
        let data = data_of(field.data_type(), parts)?;
        validate(&data).map_err(|error| Error::invalid(error.to_string()))?;
        Ok(make_array(data))
    });
    let array = array.map_err(named)?;
    DeviceArray::from_arrow(array.as_ref(), field.clone())
}

fn data_of(data_type: &DataType, parts: ArrayParts<PickledBytes>) -> Result<ArrayData> {
    let types = child_types(data_type);
    if types.len() != parts.children.len() {
        return Err(Error::invalid(format!("{} children for an array of {data_type}", parts.children.len())));
    }
    let nulls = parts.nulls.map(PickledBytes::buffer);
    if nulls.as_ref().is_some_and(|nulls| nulls.len() < parts.len.div_ceil(8)) {
        return Err(Error::invalid(format!("the validity bitmap is shorter than {} slots", parts.len)));
    }
    let children = types.into_iter().zip(parts.children).map(|(data_type, parts)| data_of(data_type, parts));
    let data = ArrayData::builder(data_type.clone())
        .len(parts.len)
        .null_bit_buffer(nulls)
        .buffers(parts.buffers.into_iter().map(PickledBytes::buffer).collect())
        .child_data(children.collect::<Result<_>>()?);
    // SAFETY: the bitmap has a bit for each slot, so that its count reads no further; the whole is validated before anyone
    // reads it.
    Ok(unsafe { data.build_unchecked() })
}

/// Returns the bytes of a dense tensor of this shape; `None` for a negative extent, or beyond the address space.
fn bytes_of(dtype: DType, shape: &[i64]) -> Option<usize> {
    let mut extents = shape.iter().map(|extent| usize::try_from(*extent).ok());
    // An extent of zero ends the product, whatever the others are.
    if shape.contains(&0) {
        return extents.all(|extent| extent.is_some()).then_some(0);
    }
    extents.try_fold(dtype.itemsize(), |bytes, extent| bytes.checked_mul(extent?))
}

/// A block of memory of our own, every byte of which is initialised.
#[derive(Debug)]
pub(crate) struct PickledBytes(HostBuffer);

impl PickledBytes {
    /// A block of `len` zeros.
    ///
    /// # Errors
    /// When the allocation fails.
    pub(crate) fn zeroed(len: usize) -> Result<Self> {
        let mut block = HostBuffer::uninitialised(len)?;
        for slot in block.as_uninit_mut() {
            slot.write(0);
        }
        Ok(Self(block))
    }

    /// The bytes, to be written.
    pub(crate) fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the block has `len` bytes at this address, all initialised by `zeroed`; the borrow of `self`, which alone has
        // them, is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr(), self.0.len()) }
    }

    fn buffer(self) -> Buffer {
        let (start, len) = (NonNull::new(self.0.as_ptr()), self.0.len());
        match start {
            // SAFETY: a block of `len` bytes that its owner, which the buffer keeps, frees; `zeroed` has initialised each.
            Some(start) => unsafe { Buffer::from_custom_allocation(start, len, Arc::new(self.0)) },
            None => Buffer::default(),
        }
    }

    /// The bytes as a tensor, whose elements lie densely in the order that the strides give.
    ///
    /// # Errors
    /// When shape and strides are no such layout of as many bytes; when a byte is no bool of a tensor of bools; when the field
    /// does not describe the tensor.
    pub(crate) fn tensor(self, dtype: DType, shape: Dims, strides: Dims, field: Option<FieldRef>) -> Result<Tensor> {
        let bytes = self.0.len();
        if let Some(field) = &field
            && TensorField::new(dtype, &shape, &strides, Some(field))?.field != *field
        {
            let reason = format!("a tensor of {dtype} {shape:?} is no column of {}", field.data_type());
            return Err(Error::invalid(reason));
        }
        let not_dense = |shape: &[i64], strides: &[i64]| {
            let reason =
                format!("{bytes} bytes are no dense {dtype} tensor of shape {shape:?} and strides {strides:?}");
            Err(Error::invalid(reason))
        };
        if bytes_of(dtype, &shape) != Some(bytes) {
            return not_dense(&shape, &strides);
        }
        // SAFETY: `zeroed` has initialised every byte, and every pattern of bits is an element of a dtype but for bools, which are
        // checked below; the layout is checked next, and nobody reads before.
        let tensor = unsafe { Tensor::from_host_buffer(self.0, dtype, shape, strides, field) }?;
        if !(tensor.is_empty() || tensor.in_memory_order().is_some()) {
            return not_dense(tensor.shape(), tensor.strides());
        }
        if dtype == DType::Bool
            && let Some(flat) = tensor.bytes_in_memory_order()
            && flat.as_bytes()?.iter().any(|byte| *byte > 1)
        {
            return Err(Error::invalid("a tensor of bools has bytes other than 0 and 1"));
        }
        Ok(tensor)
    }
}
