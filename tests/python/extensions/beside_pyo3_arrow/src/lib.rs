//! An extension whose functions take classes of pyo3-arrow, and return them or objects of the installed package.

use std::sync::Arc;

use arrow_dlpack::arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_dlpack::python::input::{self, ArrowInput};
use arrow_dlpack::python::protocol::{self, into_package};
use arrow_dlpack::python::pyo3_arrow::{field_of_schema, schema_of_field};
use arrow_dlpack::{Chunks, Conversion, CopyMode, DeviceArray, DeviceArrayStream, Tensor};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3_arrow::{PyArray, PyChunkedArray, PyRecordBatch, PyRecordBatchReader, PySchema, PyTable};

/// The view of data that becomes chunks.
fn view<'a>(data: impl TryInto<Chunks<'a>, Error: Into<arrow_dlpack::Error>>) -> PyResult<Tensor> {
    Ok(Conversion::default().copy(CopyMode::Never).to_tensor(data)?)
}

/// A view of an array: the package's `Tensor`.
#[pyfunction]
fn view_array(py: Python<'_>, array: PyArray) -> PyResult<Bound<'_, PyAny>> {
    into_package(py, view(&array)?)
}

/// A view of a chunked array: the package's `Tensor`.
#[pyfunction]
fn view_chunked(py: Python<'_>, column: PyChunkedArray) -> PyResult<Bound<'_, PyAny>> {
    into_package(py, view(&column)?)
}

/// The matrix of a batch: the package's `Tensor`.
#[pyfunction]
fn batch_matrix(py: Python<'_>, batch: PyRecordBatch) -> PyResult<Bound<'_, PyAny>> {
    into_package(py, Conversion::default().to_tensor(&batch)?)
}

/// The matrix of a table: the package's `Tensor`.
#[pyfunction]
fn table_matrix(py: Python<'_>, table: PyTable) -> PyResult<Bound<'_, PyAny>> {
    into_package(py, Conversion::default().to_tensor(table)?)
}

/// The matrix of a reader, read batch by batch: the package's `Tensor`.
#[pyfunction]
fn reader_matrix(py: Python<'_>, reader: PyRecordBatchReader) -> PyResult<Bound<'_, PyAny>> {
    let mut stream = DeviceArrayStream::try_from(reader)?;
    let tensor = py.detach(|| Conversion::default().read_tensor(&mut stream))?;
    into_package(py, tensor)
}

/// An array as the package's `Array`.
#[pyfunction]
fn package_array(py: Python<'_>, array: PyArray) -> PyResult<Bound<'_, PyAny>> {
    into_package(py, DeviceArray::try_from(array)?)
}

/// A chunked array as the package's `ArrayStream`.
#[pyfunction]
fn package_chunked(py: Python<'_>, column: PyChunkedArray) -> PyResult<Bound<'_, PyAny>> {
    into_package(py, DeviceArrayStream::try_from(column)?)
}

/// A table as the package's `ArrayStream`.
#[pyfunction]
fn package_table(py: Python<'_>, table: PyTable) -> PyResult<Bound<'_, PyAny>> {
    into_package(py, DeviceArrayStream::try_from(table)?)
}

/// A reader as the package's `ArrayStream`, from which nothing was read.
#[pyfunction]
fn package_reader(py: Python<'_>, reader: PyRecordBatchReader) -> PyResult<Bound<'_, PyAny>> {
    into_package(py, DeviceArrayStream::try_from(reader)?)
}

/// A batch as the package's `RecordBatch`.
#[pyfunction]
fn package_batch(py: Python<'_>, batch: PyRecordBatch) -> PyResult<Bound<'_, PyAny>> {
    into_package(py, DeviceArray::try_from(batch)?)
}

fn array_of(data: &Bound<'_, PyAny>) -> PyResult<DeviceArray> {
    match input::arrow(data)? {
        Some(ArrowInput::Array(array)) => Ok(array),
        _ => Err(PyTypeError::new_err("expected an array")),
    }
}

fn stream_of(data: &Bound<'_, PyAny>) -> PyResult<DeviceArrayStream> {
    match input::arrow(data)? {
        Some(ArrowInput::Stream(stream)) => Ok(stream),
        _ => Err(PyTypeError::new_err("expected a stream")),
    }
}

/// An array that this crate read, as pyo3-arrow's `Array`.
#[pyfunction]
fn array(data: &Bound<'_, PyAny>) -> PyResult<PyArray> {
    Ok(PyArray::try_from(array_of(data)?)?)
}

/// A batch that this crate read, as pyo3-arrow's `RecordBatch`.
#[pyfunction]
fn batch(data: &Bound<'_, PyAny>) -> PyResult<PyRecordBatch> {
    Ok(PyRecordBatch::try_from(array_of(data)?)?)
}

/// A stream that this crate read, as pyo3-arrow's `ChunkedArray`.
#[pyfunction]
fn chunked(data: &Bound<'_, PyAny>) -> PyResult<PyChunkedArray> {
    Ok(PyChunkedArray::try_from(stream_of(data)?)?)
}

/// A stream that this crate read, as pyo3-arrow's `Table`.
#[pyfunction]
fn table(data: &Bound<'_, PyAny>) -> PyResult<PyTable> {
    Ok(PyTable::try_from(stream_of(data)?)?)
}

/// A stream that this crate opened, as pyo3-arrow's `RecordBatchReader`.
#[pyfunction]
fn reader(data: &Bound<'_, PyAny>) -> PyResult<PyRecordBatchReader> {
    Ok(PyRecordBatchReader::try_from(stream_of(data)?)?)
}

/// A table by way of this crate's chunks.
#[pyfunction]
fn rechunked_table(table: PyTable) -> PyResult<PyTable> {
    Ok(PyTable::try_from(Chunks::try_from(table)?)?)
}

/// A chunked array by way of this crate's chunks.
#[pyfunction]
fn rechunked_column(column: PyChunkedArray) -> PyResult<PyChunkedArray> {
    Ok(PyChunkedArray::try_from(Chunks::try_from(&column)?)?)
}

/// The schema of an array or a stream that this crate opened.
#[pyfunction]
fn schema(data: &Bound<'_, PyAny>) -> PyResult<PySchema> {
    match input::arrow(data)? {
        Some(ArrowInput::Array(array)) => Ok(PySchema::try_from(&array)?),
        Some(ArrowInput::Stream(stream)) => Ok(PySchema::try_from(&stream)?),
        _ => Err(PyTypeError::new_err("expected Arrow data")),
    }
}

/// A schema by way of this crate's field.
#[pyfunction]
fn same_schema(schema: PySchema) -> PyResult<PySchema> {
    Ok(schema_of_field(&field_of_schema(&schema))?)
}

/// The table of a stream whose batch is made by a thread that needs the interpreter.
#[pyfunction]
fn table_of_a_thread(py: Python<'_>) -> PyResult<PyTable> {
    let values: Vec<i64> = py.eval(c"[1, 2]", None, None)?.extract()?;
    let column: ArrayRef = Arc::new(Int64Array::from(values));
    let batch = RecordBatch::try_from_iter([("x", column)]).map_err(arrow_dlpack::Error::from)?;
    let array = DeviceArray::try_from(batch)?;
    let (field, device) = (array.field().clone(), array.device().device_type());
    let made = std::iter::once_with(move || {
        let thread = std::thread::spawn(move || Python::attach(|_| array));
        thread.join().map_err(|_| arrow_dlpack::Error::producer("the thread panicked"))
    });
    Ok(PyTable::try_from(DeviceArrayStream::new(field, device, made))?)
}

/// The extension module.
#[pymodule(gil_used = false)]
fn beside_pyo3_arrow(module: &Bound<'_, PyModule>) -> PyResult<()> {
    protocol::init(module.py())?;
    module.add_function(wrap_pyfunction!(view_array, module)?)?;
    module.add_function(wrap_pyfunction!(view_chunked, module)?)?;
    module.add_function(wrap_pyfunction!(batch_matrix, module)?)?;
    module.add_function(wrap_pyfunction!(table_matrix, module)?)?;
    module.add_function(wrap_pyfunction!(reader_matrix, module)?)?;
    module.add_function(wrap_pyfunction!(package_array, module)?)?;
    module.add_function(wrap_pyfunction!(package_batch, module)?)?;
    module.add_function(wrap_pyfunction!(package_chunked, module)?)?;
    module.add_function(wrap_pyfunction!(package_table, module)?)?;
    module.add_function(wrap_pyfunction!(package_reader, module)?)?;
    module.add_function(wrap_pyfunction!(array, module)?)?;
    module.add_function(wrap_pyfunction!(batch, module)?)?;
    module.add_function(wrap_pyfunction!(chunked, module)?)?;
    module.add_function(wrap_pyfunction!(table, module)?)?;
    module.add_function(wrap_pyfunction!(reader, module)?)?;
    module.add_function(wrap_pyfunction!(rechunked_table, module)?)?;
    module.add_function(wrap_pyfunction!(rechunked_column, module)?)?;
    module.add_function(wrap_pyfunction!(schema, module)?)?;
    module.add_function(wrap_pyfunction!(same_schema, module)?)?;
    module.add_function(wrap_pyfunction!(table_of_a_thread, module)?)
}
