//! [`LentTensor`]: a tensor that Python code may write to.

use std::ops::Deref;

use crate::tensor::Tensor;

/// A tensor for Python, whose writable memory is lent: [`Tensor::as_slice`] refuses it, because NumPy or PyTorch may write
/// to the elements while the slice is alive.
///
/// A class that exports a tensor keeps it in this type. Read-only tensors, such as views of Arrow data, are as they were.
#[derive(Clone, Debug)]
pub struct LentTensor(Tensor);

impl LentTensor {
    /// Lends a tensor to Python.
    #[must_use]
    pub fn new(tensor: Tensor) -> Self {
        Self(if tensor.is_writable() { tensor.into_lent() } else { tensor })
    }
}

impl From<Tensor> for LentTensor {
    fn from(tensor: Tensor) -> Self {
        Self::new(tensor)
    }
}

impl Deref for LentTensor {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        &self.0
    }
}
