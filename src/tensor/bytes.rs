//! Tensors of bytes: views of a dense tensor, or of a buffer.

use std::sync::Arc;

use arrow_buffer::Buffer;

use super::{Tensor, TensorParts};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::spec::Dims;

impl Tensor {
    /// Returns the bytes of the elements in memory order, read-only; `None` if the elements are not dense, or there are
    /// none.
    pub(crate) fn bytes_in_memory_order(&self) -> Option<Self> {
        let flat = self.in_memory_order().filter(|flat| !flat.is_empty())?;
        let len = flat.len.checked_mul(flat.dtype.itemsize())?;
        let shape = Dims::from_slice(&[i64::try_from(len).ok()?]);
        Some(Self { dtype: DType::UInt8, shape, len, read_only: true, codes: None, ..flat })
    }

    /// Returns the bytes of a buffer, read-only.
    ///
    /// # Errors
    /// Never for a buffer that is in memory.
    pub(crate) fn of_bytes(bytes: Buffer) -> Result<Self> {
        let len = i64::try_from(bytes.len()).map_err(|_| Error::internal("a buffer of more than 2^63 bytes"))?;
        let layout = (Dims::from_slice(&[len]), Dims::from_slice(&[1]));
        let parts = TensorParts::of_host(bytes.as_ptr().cast_mut(), DType::UInt8, layout, Arc::new(bytes));
        // SAFETY: the initialised bytes of a buffer, which is immutable and which the owner keeps.
        unsafe { Self::from_parts(parts) }
    }
}
