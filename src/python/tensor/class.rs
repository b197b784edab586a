//! What the class `Tensor` holds, and how Rust makes one.

use pyo3::prelude::*;

use crate::python::lent::LentTensor;
use crate::python::options::Legacy;

/// Strided n-dimensional data of one dtype on one device, in any library's memory.
///
/// Views of Arrow data are read-only, because libraries treat Arrow memory as immutable.
#[pyclass(frozen, module = "arrow_dlpack")]
#[derive(Debug)]
pub struct Tensor {
    pub(super) tensor: LentTensor,
    pub(super) legacy: Legacy,
}

impl Tensor {
    /// A tensor for Python.
    #[must_use]
    pub fn new(tensor: crate::tensor::Tensor) -> Self {
        Self::with_legacy(tensor, Legacy::default())
    }

    pub(in crate::python) fn with_legacy(tensor: crate::tensor::Tensor, legacy: Legacy) -> Self {
        Self { tensor: LentTensor::new(tensor), legacy }
    }

    /// The tensor itself.
    #[must_use]
    pub fn tensor(&self) -> &crate::tensor::Tensor {
        &self.tensor
    }
}
