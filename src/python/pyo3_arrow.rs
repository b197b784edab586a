//! Conversions between the classes of the crate pyo3-arrow and this crate's arrays and streams (feature `pyo3-arrow`).
//!
//! A function of an extension module takes a class of pyo3-arrow, which reads any object with the Arrow dunders, and passes it to
//! a [`Conversion`](crate::Conversion):
//!
//! ```no_run
//! use arrow_dlpack::Conversion;
//! use arrow_dlpack::python::protocol::into_package;
//! use pyo3::prelude::*;
//! use pyo3_arrow::PyTable;
//!
//! /// The columns as a matrix: an `arrow_dlpack.Tensor`.
//! #[pyfunction]
//! fn to_matrix(py: Python<'_>, table: PyTable) -> PyResult<Bound<'_, PyAny>> {
//!     into_package(py, Conversion::default().to_tensor(table)?)
//! }
//! ```
//!
//! Both sides share memory: nothing is copied, but what arrow-rs copies to align it.
//!
//! | pyo3-arrow | this crate | and back |
//! |---|---|---|
//! | `PyArray` | [`DeviceArray`], [`Chunks`] of a reference | from [`DeviceArray`] |
//! | `PyRecordBatch` | [`DeviceArray`] of structs, [`Chunks`] of a reference | from [`DeviceArray`] of structs |
//! | `PyChunkedArray` | [`Chunks`] of a reference, [`DeviceArrayStream`] | from [`Chunks`], or from a stream, which is read to its end |
//! | `PyTable` | [`Chunks`], [`DeviceArrayStream`] | from [`Chunks`], or from a stream, which is read to its end |
//! | `PyRecordBatchReader` | [`DeviceArrayStream`], read batch by batch | from [`DeviceArrayStream`], read batch by batch |
//! | `PySchema` | the field of its batches: [`field_of_schema`] | from a [`DeviceArray`] or stream of structs, [`schema_of_field`] |
//!
//! Conversions back need host memory: pyo3-arrow has no devices, and the error for others says how to copy.
//!
//! This module shows types of pyo3-arrow, which has no 1.0 yet: it is outside of the promise of semver, and follows that crate's
//! releases. It needs PyO3 0.30.

use std::sync::Arc;

use ::pyo3_arrow::{PyArray, PyChunkedArray, PyRecordBatch, PyRecordBatchReader, PySchema, PyTable};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{Field, FieldRef};
use pyo3::prelude::*;

use crate::arrow::{Chunks, DeviceArray, DeviceArrayStream, field_of, schema_of};
use crate::device::Device;
use crate::error::{Error, Result};

/// Returns the field of the arrays of structs that hold batches of this schema. Its metadata is the schema's.
#[must_use]
pub fn field_of_schema(schema: &PySchema) -> FieldRef {
    field_of(schema.as_ref())
}

/// Returns the schema of the record batches that arrays of structs of this field hold.
///
/// # Errors
/// If the field is not of structs.
pub fn schema_of_field(field: &Field) -> Result<PySchema> {
    schema_of(field).map(PySchema::new)
}

impl TryFrom<&DeviceArray> for PySchema {
    type Error = Error;

    /// As [`schema_of_field`].
    fn try_from(array: &DeviceArray) -> Result<Self> {
        schema_of_field(array.field())
    }
}

impl TryFrom<&DeviceArrayStream> for PySchema {
    type Error = Error;

    /// As [`schema_of_field`]. Reads no array.
    fn try_from(stream: &DeviceArrayStream) -> Result<Self> {
        schema_of_field(stream.field())
    }
}

// ---- To this crate ----

/// Shares an array under a field, which may differ from its type in the names and nullability of children.
fn shared(array: &ArrayRef, field: &FieldRef) -> Result<DeviceArray> {
    if array.data_type() == field.data_type() {
        return DeviceArray::from_arrow(array, field.clone());
    }
    let own = Field::new(field.name(), array.data_type().clone(), field.is_nullable());
    DeviceArray::from_arrow(array, Arc::new(own))?.relabel(field.clone())
}

/// Shares the batches of a table as arrays of structs of one field: that of its schema.
fn batches_of(table: PyTable) -> Result<(FieldRef, Vec<DeviceArray>)> {
    let (batches, schema) = table.into_inner();
    let field = field_of(&schema);
    let shared = |batch| DeviceArray::from_record_batch(batch)?.relabel(field.clone());
    let batches = batches.iter().map(shared).collect::<Result<_>>()?;
    Ok((field, batches))
}

fn stream_of(field: FieldRef, arrays: Vec<DeviceArray>) -> DeviceArrayStream {
    DeviceArrayStream::new(field, Device::CPU.device_type(), arrays.into_iter().map(Ok))
}

impl TryFrom<&PyArray> for DeviceArray {
    type Error = Error;

    /// As [`DeviceArray::from_arrow`], under the array's field.
    fn try_from(array: &PyArray) -> Result<Self> {
        shared(array.array(), array.field())
    }
}

impl TryFrom<PyArray> for DeviceArray {
    type Error = Error;

    /// As [`DeviceArray::from_arrow`], under the array's field.
    fn try_from(array: PyArray) -> Result<Self> {
        Self::try_from(&array)
    }
}

impl TryFrom<&PyRecordBatch> for DeviceArray {
    type Error = Error;

    /// As [`DeviceArray::from_record_batch`].
    fn try_from(batch: &PyRecordBatch) -> Result<Self> {
        Self::from_record_batch(batch.as_ref())
    }
}

impl TryFrom<PyRecordBatch> for DeviceArray {
    type Error = Error;

    /// As [`DeviceArray::from_record_batch`].
    fn try_from(batch: PyRecordBatch) -> Result<Self> {
        Self::try_from(&batch)
    }
}

impl TryFrom<&PyArray> for Chunks<'_> {
    type Error = Error;

    fn try_from(array: &PyArray) -> Result<Self> {
        DeviceArray::try_from(array).map(Self::from)
    }
}

impl TryFrom<&PyRecordBatch> for Chunks<'_> {
    type Error = Error;

    fn try_from(batch: &PyRecordBatch) -> Result<Self> {
        DeviceArray::try_from(batch).map(Self::from)
    }
}

impl TryFrom<&PyChunkedArray> for Chunks<'_> {
    type Error = Error;

    fn try_from(column: &PyChunkedArray) -> Result<Self> {
        let chunks: Result<Vec<_>> = column.chunks().iter().map(|chunk| shared(chunk, column.field())).collect();
        Ok(Self::from((column.field().clone(), chunks?)))
    }
}

impl TryFrom<PyTable> for Chunks<'_> {
    type Error = Error;

    /// Takes the table, as it lends no schema.
    fn try_from(table: PyTable) -> Result<Self> {
        batches_of(table).map(Self::from)
    }
}

impl TryFrom<PyChunkedArray> for DeviceArrayStream {
    type Error = Error;

    /// Returns a stream of the chunks.
    fn try_from(column: PyChunkedArray) -> Result<Self> {
        let (chunks, field) = column.into_inner();
        let chunks = chunks.iter().map(|chunk| shared(chunk, &field)).collect::<Result<_>>()?;
        Ok(stream_of(field, chunks))
    }
}

impl TryFrom<PyTable> for DeviceArrayStream {
    type Error = Error;

    /// Returns a stream of the batches, as arrays of structs.
    fn try_from(table: PyTable) -> Result<Self> {
        let (field, batches) = batches_of(table)?;
        Ok(stream_of(field, batches))
    }
}

impl TryFrom<PyRecordBatchReader> for DeviceArrayStream {
    type Error = Error;

    /// As [`DeviceArrayStream::from_reader`]. An error if the reader was consumed.
    fn try_from(reader: PyRecordBatchReader) -> Result<Self> {
        Ok(Self::from_reader(reader.into_reader().map_err(Error::producer)?))
    }
}

// ---- To pyo3-arrow ----

/// The chunks of a stream, read without the interpreter: a producer's thread may need it.
fn read(stream: DeviceArrayStream) -> Result<(FieldRef, Vec<DeviceArray>)> {
    let read = move || {
        let field = stream.field().clone();
        let arrays: Result<Vec<_>> = stream.map(|array| array?.relabel(field.clone())).collect();
        Ok((field, arrays?))
    };
    let mut read = Some(read);
    // Without an interpreter nobody holds it.
    let done = Python::try_attach(|py| read.take().map(|read| py.detach(read)));
    done.flatten().or_else(|| read.take().map(|read| read())).unwrap_or_else(|| Err(Error::internal("read twice")))
}

fn column_of<'a>(field: &FieldRef, arrays: impl IntoIterator<Item = &'a DeviceArray>) -> Result<PyChunkedArray> {
    let chunks = arrays.into_iter().map(|array| array.relabel(field.clone())?.to_arrow()).collect::<Result<_>>()?;
    PyChunkedArray::try_new(chunks, field.clone()).map_err(Error::producer)
}

fn table_of<'a>(field: &FieldRef, arrays: impl IntoIterator<Item = &'a DeviceArray>) -> Result<PyTable> {
    let schema = schema_of(field)?;
    let batches = arrays.into_iter().map(|array| array.relabel(field.clone())?.to_record_batch());
    PyTable::try_new(batches.collect::<Result<_>>()?, schema).map_err(Error::producer)
}

impl TryFrom<&DeviceArray> for PyArray {
    type Error = Error;

    /// As [`DeviceArray::to_arrow`], with the array's field.
    fn try_from(array: &DeviceArray) -> Result<Self> {
        Ok(Self::try_new(array.to_arrow()?, array.field().clone())?)
    }
}

impl TryFrom<DeviceArray> for PyArray {
    type Error = Error;

    /// As [`DeviceArray::to_arrow`], with the array's field.
    fn try_from(array: DeviceArray) -> Result<Self> {
        Self::try_from(&array)
    }
}

impl TryFrom<&DeviceArray> for PyRecordBatch {
    type Error = Error;

    /// As [`DeviceArray::to_record_batch`].
    fn try_from(array: &DeviceArray) -> Result<Self> {
        array.to_record_batch().map(Self::new)
    }
}

impl TryFrom<DeviceArray> for PyRecordBatch {
    type Error = Error;

    /// As [`DeviceArray::to_record_batch`].
    fn try_from(array: DeviceArray) -> Result<Self> {
        Self::try_from(&array)
    }
}

impl TryFrom<Chunks<'_>> for PyChunkedArray {
    type Error = Error;

    /// As [`DeviceArray::to_arrow`], for each chunk.
    fn try_from(chunks: Chunks<'_>) -> Result<Self> {
        column_of(chunks.field(), chunks.arrays())
    }
}

impl TryFrom<Chunks<'_>> for PyTable {
    type Error = Error;

    /// As [`DeviceArray::to_record_batch`], for each chunk.
    fn try_from(chunks: Chunks<'_>) -> Result<Self> {
        table_of(chunks.field(), chunks.arrays())
    }
}

impl TryFrom<DeviceArrayStream> for PyChunkedArray {
    type Error = Error;

    /// Reads the stream to its end, without the interpreter, and shares its arrays as by [`DeviceArray::to_arrow`].
    fn try_from(stream: DeviceArrayStream) -> Result<Self> {
        let (field, arrays) = read(stream)?;
        column_of(&field, &arrays)
    }
}

impl TryFrom<DeviceArrayStream> for PyTable {
    type Error = Error;

    /// Reads the stream to its end, without the interpreter, and shares its arrays as by [`DeviceArray::to_record_batch`].
    fn try_from(stream: DeviceArrayStream) -> Result<Self> {
        schema_of(stream.field())?;
        let (field, arrays) = read(stream)?;
        table_of(&field, &arrays)
    }
}

impl TryFrom<DeviceArrayStream> for PyRecordBatchReader {
    type Error = Error;

    /// As [`DeviceArrayStream::into_reader`].
    fn try_from(stream: DeviceArrayStream) -> Result<Self> {
        stream.into_reader().map(Self::new)
    }
}
