//! [`LentTensor`]: a tensor that Python code may write to.

use std::ops::Deref;
use std::sync::Arc;

use crate::tensor::Tensor;

/// A tensor for Python, whose writable memory is lent: [`Tensor::as_slice`] refuses it, because NumPy or PyTorch may write
/// to the elements while the slice is alive.
///
/// A class that exports a tensor keeps it in this type. Read-only tensors, such as views of Arrow data, are as they were.
///
/// Memory that other tensors share is read-only for Python: safe code may hold a slice of it, now or later.
#[derive(Clone, Debug)]
pub struct LentTensor(Tensor);

impl LentTensor {
    /// Lends a tensor to Python.
    #[must_use]
    pub fn new(tensor: Tensor) -> Self {
        let is_shared = Arc::strong_count(tensor.owner()) > 1;
        Self::of_result(if is_shared { tensor.into_read_only() } else { tensor })
    }

    /// Lends a tensor of which no slice is ever taken: the result of a conversion, of which some may share their memory.
    pub(super) fn of_result(tensor: Tensor) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn python_writes_to_no_memory_of_which_safe_code_may_hold_a_slice() {
        let made = || Tensor::from_vec(vec![1.0_f32, 2.0], &[2]).unwrap();
        let lent = LentTensor::new(made());
        assert!(lent.is_writable() && lent.as_slice::<f32>().is_err());
        let kept = made();
        let slice = kept.as_slice::<f32>().unwrap();
        let shared = LentTensor::new(kept.clone());
        assert!(!shared.is_writable() && shared.as_slice::<f32>().is_ok());
        assert_eq!(slice, [1.0, 2.0]);
    }
}
