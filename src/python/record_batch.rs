//! The class `RecordBatch`.

use pyo3::exceptions::{PyIndexError, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use super::answers::error_about;
use super::arrow_dunders::{DeviceKeywords, as_requested, c_array, c_device_array, requested_field};
use super::capsule::{device_stream_capsule, schema_capsule, stream_capsule};
use super::column_names::known;
use super::counts::position;
use super::device_request::ToDevice;
use super::escapes::{bare_name, message, type_text};
use super::exchange::memory;
use super::{Array, Device, device, html, pickle};
use crate::arrow::{DeviceArray, DeviceArrayStream};
use crate::convert::check_request;
use crate::error::Counted;

/// An Arrow record batch: named columns of one length, in any library's memory. Every array of structs is one.
///
/// The device dunders accept the keywords of `Array`'s.
#[pyclass(frozen, module = "arrow_dlpack")]
#[derive(Debug)]
pub struct RecordBatch(pub(crate) DeviceArray);

impl RecordBatch {
    /// A stream of this batch alone.
    fn stream(&self, requested_schema: Option<&Bound<'_, PyAny>>) -> PyResult<DeviceArrayStream> {
        let batch = as_requested(&self.0, requested_schema)?;
        let (field, device_type) = (batch.field().clone(), batch.device().device_type());
        Ok(DeviceArrayStream::new(field, device_type, std::iter::once(Ok(batch))))
    }

    fn position(&self, key: &Bound<'_, PyAny>) -> PyResult<usize> {
        let columns = self.0.columns();
        if let Ok(name) = key.cast::<PyString>() {
            let name = known(name)?;
            let mut named = columns.iter().enumerate().filter(|(_, column)| *column.name() == name);
            return match (named.next(), named.count()) {
                (Some((position, _)), 0) => Ok(position),
                (None, _) => {
                    let known = self.column_names();
                    Err(PyKeyError::new_err(message(&format!(
                        "there is no column {name:?}; the columns are {known:?}"
                    ))))
                }
                (Some(_), _) => Err(PyKeyError::new_err(message(&format!(
                    "more than one column is named {name:?}; pass a position"
                )))),
            };
        }
        let found = position("the position of a column", key, columns.len())?;
        found.ok_or_else(|| {
            let told = |key| format!("column {key} of {}", columns.len());
            error_about(key.py(), key.str(), |key| PyIndexError::new_err(told(key)))
        })
    }
}

#[pymethods]
impl RecordBatch {
    /// The number of rows.
    #[getter]
    fn num_rows(&self) -> usize {
        self.0.len()
    }

    /// The number of columns.
    #[getter]
    fn num_columns(&self) -> usize {
        self.0.columns().len()
    }

    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<&str> {
        self.0.columns().iter().map(|column| column.name().as_str()).collect()
    }

    /// The memory's device.
    #[getter]
    fn device(&self) -> Device {
        Device(self.0.device())
    }

    /// A column, by name or position, over the same memory.
    fn column(&self, key: &Bound<'_, PyAny>) -> PyResult<Array> {
        Ok(Array(self.0.column(self.position(key)?)?))
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Array> {
        self.column(key)
    }

    fn __contains__(&self, name: &Bound<'_, PyAny>) -> bool {
        name.extract::<&str>().is_ok_and(|name| self.0.columns().iter().any(|column| column.name() == name))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Returns the data on another device: itself if it is there, the same memory if that device reaches it, else a
    /// copy of what the rows need. A result on the CPU is complete.
    ///
    /// stream: the CUDA stream of the copies; None is this thread's, see `stream`.
    /// threads: the number of threads that copy host memory; None is ARROW_DLPACK_THREADS, or one per core.
    /// allocator: as for `to_tensor`.
    #[pyo3(signature = (device, /, *, stream=None, threads=None, allocator=None))]
    fn to_device(
        slf: Bound<'_, Self>,
        device: &Bound<'_, PyAny>,
        stream: Option<&Bound<'_, PyAny>>,
        threads: Option<&Bound<'_, PyAny>>,
        allocator: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<Self>> {
        let _source = memory::scope(allocator, None)?;
        let own = slf.get().0.device();
        let transfer = ToDevice::read(own, device, stream, threads)?;
        if transfer.device == own {
            return Ok(slf.unbind());
        }
        Py::new(slf.py(), Self(transfer.array(slf.py(), &slf.get().0)?))
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        schema_capsule(py, self.0.field())
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        c_array(py, &self.0, requested_schema)
    }

    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        c_device_array(py, &self.0, requested_schema, kwargs)
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        device::require_host(self.0.device())?;
        stream_capsule(py, self.stream(requested_schema)?)
    }

    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (keywords, requested) = (DeviceKeywords::read(kwargs)?, requested_field(requested_schema)?);
        if let Some(requested) = &requested {
            check_request(self.0.field(), requested)?;
        }
        keywords.require_path(self.0.device().device_type())?;
        device_stream_capsule(py, keywords.apply_to_stream(self.stream(None)?, requested))
    }

    /// Pickles by value: host memory alone, out of band from protocol 5 on.
    fn __reduce_ex__<'py>(&self, py: Python<'py>, protocol: u32) -> PyResult<Bound<'py, PyTuple>> {
        pickle::array(py, &self.0, protocol)
    }

    /// The same memory under another object.
    fn __copy__(&self) -> Self {
        Self(self.0.clone())
    }

    fn __repr__(&self) -> String {
        let columns = self.0.columns().iter();
        let columns = columns.map(|column| format!("{}: {}", bare_name(column.name()), type_text(column.data_type())));
        let columns: Vec<String> = columns.collect();
        let rows = Counted(self.0.len(), "row");
        format!("RecordBatch({rows}, device={}; {})", self.0.device(), columns.join(", "))
    }

    /// A table of the columns, for notebooks. No value is read.
    fn _repr_html_(&self) -> String {
        let columns = self.0.columns();
        let rows = columns.iter().map(|column| {
            let nullable = if column.is_nullable() { "True" } else { "False" };
            [column.name().clone(), column.data_type().to_string(), nullable.to_owned()]
        });
        let (length, width) = (Counted(self.0.len(), "row"), Counted(columns.len(), "column"));
        let title = format!("RecordBatch({length}, {width}, device={})", self.0.device());
        html::table(&title, &["column", "type", "nullable"], rows, None)
    }
}
