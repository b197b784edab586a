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
use crate::error::{Error, Result, try_from};

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

try_from! {
    /// As [`schema_of_field`].
    [] &DeviceArray => PySchema, |array| schema_of_field(array.field());
    /// As [`schema_of_field`]. Reads no array.
    [] &DeviceArrayStream => PySchema, |stream| schema_of_field(stream.field());
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

try_from! {
    /// As [`DeviceArray::from_arrow`], under the array's field.
    [] &PyArray => DeviceArray, |array| shared(array.array(), array.field());
    /// As [`DeviceArray::from_arrow`], under the array's field.
    [] PyArray => DeviceArray, |array| Self::try_from(&array);
    /// As [`DeviceArray::from_record_batch`].
    [] &PyRecordBatch => DeviceArray, |batch| Self::from_record_batch(batch.as_ref());
    /// As [`DeviceArray::from_record_batch`].
    [] PyRecordBatch => DeviceArray, |batch| Self::try_from(&batch);
    [] &PyArray => Chunks<'_>, |array| DeviceArray::try_from(array).map(Self::from);
    [] &PyRecordBatch => Chunks<'_>, |batch| DeviceArray::try_from(batch).map(Self::from);
    [] &PyChunkedArray => Chunks<'_>, |column| {
        let chunks: Result<Vec<_>> = column.chunks().iter().map(|chunk| shared(chunk, column.field())).collect();
        Ok(Self::from((column.field().clone(), chunks?)))
    };
    /// Takes the table, as it lends no schema.
    [] PyTable => Chunks<'_>, |table| batches_of(table).map(Self::from);
    /// Returns a stream of the chunks.
    [] PyChunkedArray => DeviceArrayStream, |column| {
        let (chunks, field) = column.into_inner();
        let chunks = chunks.iter().map(|chunk| shared(chunk, &field)).collect::<Result<_>>()?;
        Ok(stream_of(field, chunks))
    };
    /// Returns a stream of the batches, as arrays of structs.
    [] PyTable => DeviceArrayStream, |table| {
        let (field, batches) = batches_of(table)?;
        Ok(stream_of(field, batches))
    };
    /// As [`DeviceArrayStream::from_reader`]. An error if the reader was consumed.
    [] PyRecordBatchReader => DeviceArrayStream, |reader| {
        Ok(Self::from_reader(reader.into_reader().map_err(Error::producer)?))
    };
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

try_from! {
    /// As [`DeviceArray::to_arrow`], with the array's field.
    [] &DeviceArray => PyArray, |array| Ok(Self::try_new(array.to_arrow()?, array.field().clone())?);
    /// As [`DeviceArray::to_arrow`], with the array's field.
    [] DeviceArray => PyArray, |array| Self::try_from(&array);
    /// As [`DeviceArray::to_record_batch`].
    [] &DeviceArray => PyRecordBatch, |array| array.to_record_batch().map(Self::new);
    /// As [`DeviceArray::to_record_batch`].
    [] DeviceArray => PyRecordBatch, |array| Self::try_from(&array);
    /// As [`DeviceArray::to_arrow`], for each chunk.
    [] Chunks<'_> => PyChunkedArray, |chunks| column_of(chunks.field(), chunks.arrays());
    /// As [`DeviceArray::to_record_batch`], for each chunk.
    [] Chunks<'_> => PyTable, |chunks| table_of(chunks.field(), chunks.arrays());
    /// Reads the stream to its end, without the interpreter, and shares its arrays as by [`DeviceArray::to_arrow`].
    [] DeviceArrayStream => PyChunkedArray, |stream| {
        let (field, arrays) = read(stream)?;
        column_of(&field, &arrays)
    };
    /// Reads the stream to its end, without the interpreter, and shares its arrays as by [`DeviceArray::to_record_batch`].
    [] DeviceArrayStream => PyTable, |stream| {
        schema_of(stream.field())?;
        let (field, arrays) = read(stream)?;
        table_of(&field, &arrays)
    };
    /// As [`DeviceArrayStream::into_reader`].
    [] DeviceArrayStream => PyRecordBatchReader, |stream| stream.into_reader().map(Self::new);
}
