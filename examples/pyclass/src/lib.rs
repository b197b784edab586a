//! Gives classes of one's own `__dlpack__` and the Arrow dunders: a column, a data frame, and a matrix that NumPy writes to.

use std::sync::Arc;

use arrow_array::Float64Array;
use arrow_dlpack::python::input::{self, InputChunks};
use arrow_dlpack::python::protocol::{self, LentTensor, TensorClass, exchange_api};
use arrow_dlpack::{Conversion, CopyMode, DeviceArray, DeviceArrayStream};
use arrow_schema::{DataType, Field};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// A column of any library's memory. Consumers read the same memory.
#[pyclass(frozen, module = "frames")]
struct Column(DeviceArray);

#[pymethods]
impl Column {
    /// A column of floats; None is a null.
    #[new]
    fn new(name: &str, values: Vec<Option<f64>>) -> PyResult<Self> {
        let field = Arc::new(Field::new(name, DataType::Float64, true));
        Ok(Self(DeviceArray::from_arrow(&Float64Array::from(values), field)?))
    }

    #[pyo3(signature = (**kwargs))]
    fn __dlpack__<'py>(&self, py: Python<'py>, kwargs: Option<&Bound<'py, PyDict>>) -> PyResult<Bound<'py, PyAny>> {
        let tensor = Conversion::default().copy(CopyMode::Never).to_tensor(&self.0)?;
        protocol::dlpack(py, &LentTensor::new(tensor), kwargs)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        protocol::dlpack_device(self.0.device())
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        protocol::c_schema(py, self.0.field())
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        protocol::c_array(py, &self.0, requested_schema)
    }

    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        protocol::c_device_array(py, &self.0, requested_schema, kwargs)
    }
}

/// Record batches of any library's memory.
#[pyclass(frozen, module = "frames")]
struct Frame(InputChunks);

impl Frame {
    fn stream(&self) -> DeviceArrayStream {
        let batches = self.0.arrays().to_vec();
        DeviceArrayStream::new(self.0.field().clone(), self.0.device().device_type(), batches.into_iter().map(Ok))
    }
}

#[pymethods]
impl Frame {
    /// The data of any object that exports Arrow data.
    #[new]
    fn new(data: &Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(Self(InputChunks::read(data, CopyMode::Never)?))
    }

    fn __len__(&self) -> usize {
        self.0.arrays().iter().map(DeviceArray::len).sum()
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        protocol::c_stream(py, self.stream(), requested_schema)
    }

    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        protocol::c_device_stream(py, self.stream(), requested_schema, kwargs)
    }
}

/// A tensor. Its exchange table makes exports to PyTorch and tvm-ffi free of calls into Python.
#[pyclass(frozen, module = "frames")]
struct Matrix(LentTensor);

impl TensorClass for Matrix {
    fn lent_tensor(&self) -> &LentTensor {
        &self.0
    }

    fn from_lent(tensor: LentTensor) -> PyResult<Self> {
        Ok(Self(tensor))
    }
}

#[pymethods]
impl Matrix {
    /// The memory of any object with `__dlpack__`.
    #[new]
    fn new(tensor: &Bound<'_, PyAny>) -> PyResult<Self> {
        let imported = input::import_dlpack(tensor, None, CopyMode::Never)?;
        Ok(Self(imported.ok_or_else(|| PyTypeError::new_err("expected an object with __dlpack__"))?.into()))
    }

    #[classattr]
    fn __dlpack_c_exchange_api__(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        exchange_api::<Self>(py)
    }

    #[pyo3(signature = (**kwargs))]
    fn __dlpack__<'py>(&self, py: Python<'py>, kwargs: Option<&Bound<'py, PyDict>>) -> PyResult<Bound<'py, PyAny>> {
        protocol::dlpack(py, &self.0, kwargs)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        protocol::dlpack_device(self.0.device())
    }
}

/// The extension module.
#[pymodule(gil_used = false)]
fn frames(module: &Bound<'_, PyModule>) -> PyResult<()> {
    protocol::init(module.py())?;
    module.add_class::<Column>()?;
    module.add_class::<Frame>()?;
    module.add_class::<Matrix>()
}
