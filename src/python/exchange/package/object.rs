//! Objects of the package that is installed, made from this copy's tensors, arrays and streams.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use arrow_schema::Field;
use pyo3::exceptions::PyModuleNotFoundError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::super::produce::wait_by_this_thread;
use super::connect::{Functions, answered, connect, package};
use super::layout::{ORIGIN_COPIED, Origin};
use super::serve::is_served;
use crate::arrow::{
    DeviceArray, DeviceArrayStream, Exported, export_device_array, export_device_stream, export_schema,
};
use crate::dlpack::Offer;
use crate::error::{Result, from};
use crate::ffi::arrow_device::ArrowSchema;
use crate::python::stream::wrap;
use crate::python::{ArrayStream, Ragged, Tensor};
use crate::spec::CopyMode;

/// What [`into_package`] takes: a tensor, an array, a stream, or rows of different lengths.
#[derive(Debug)]
#[non_exhaustive]
pub enum PackageObject {
    /// Becomes an `arrow_dlpack.Tensor`.
    Tensor(crate::tensor::Tensor),
    /// Becomes an `arrow_dlpack.RecordBatch` if it is of structs, else an `arrow_dlpack.Array`.
    Array(DeviceArray),
    /// Becomes an `arrow_dlpack.ArrayStream`.
    Stream(DeviceArrayStream),
    /// Becomes an `arrow_dlpack.Ragged`, whose parts are read-only.
    Ragged(Box<crate::ragged::Ragged>),
}

from! {
    [] crate::tensor::Tensor => PackageObject, |tensor| Self::Tensor(tensor);
    [] DeviceArray => PackageObject, |array| Self::Array(array);
    [] DeviceArrayStream => PackageObject, |stream| Self::Stream(stream);
    [] crate::ragged::Ragged => PackageObject, |ragged| Self::Ragged(Box::new(ragged));
}

/// Returns an instance of the installed package's class: an `arrow_dlpack.Tensor`, `Array`, `RecordBatch`, `ArrayStream` or `Ragged`
/// over the same memory, but that the validity of ragged rows is copied. It imports the package if nobody did.
///
/// A class of this copy of the crate would look the same, and be no instance of the package's (docs/two-copies.md).
///
/// # Errors
/// `ModuleNotFoundError` if the package is not installed, `ImportError` if its table has another version, and what the package
/// finds wrong with the object.
pub fn into_package<'py>(py: Python<'py>, object: impl Into<PackageObject>) -> PyResult<Bound<'py, PyAny>> {
    let object = object.into();
    if is_served() {
        return own(py, object);
    }
    connect(py)?;
    let Some(package) = package() else {
        let message = "the package arrow_dlpack is not installed, and the result is an instance of one of its classes; \
                       run: pip install arrow-dlpack";
        return Err(PyModuleNotFoundError::new_err(message));
    };
    match object {
        PackageObject::Tensor(tensor) => package.tensor(py, &tensor),
        PackageObject::Array(array) => package.array(py, &array),
        PackageObject::Stream(stream) => package.stream(py, stream),
        PackageObject::Ragged(ragged) => package.ragged(py, &ragged),
    }
}

/// The object where this copy is the package.
fn own(py: Python<'_>, object: PackageObject) -> PyResult<Bound<'_, PyAny>> {
    match object {
        PackageObject::Tensor(tensor) => Ok(Bound::new(py, Tensor::new(tensor))?.into_any()),
        PackageObject::Array(array) => wrap(py, array),
        PackageObject::Stream(stream) => Ok(Bound::new(py, ArrayStream::new(stream))?.into_any()),
        PackageObject::Ragged(ragged) => Ok(Bound::new(py, Ragged::new(py, *ragged, None)?)?.into_any()),
    }
}

fn exported_field(field: Option<&Field>) -> Result<Option<Exported<ArrowSchema>>> {
    field.map(export_schema).transpose()
}

impl Functions {
    fn tensor<'py>(&self, py: Python<'py>, tensor: &crate::tensor::Tensor) -> PyResult<Bound<'py, PyAny>> {
        // The package's tensor is written in the order of this thread's stream.
        wait_by_this_thread(py, tensor)?;
        let kept = tensor.kept_field();
        let dictionary = tensor.dictionary().filter(|_| kept.is_some());
        let field = exported_field(kept.map(|field| &**field))?;
        let of_dictionary = exported_field(dictionary.map(|dictionary| &**dictionary.field()))?;
        let mut dictionary = dictionary.map(export_device_array).transpose()?;
        let origin = Origin {
            field: field.as_deref().map_or(null(), std::ptr::from_ref),
            dictionary_field: of_dictionary.as_deref().map_or(null(), std::ptr::from_ref),
            dictionary: dictionary.as_mut().map_or(null_mut(), Exported::as_mut_ptr),
            flags: if tensor.is_copied() { ORIGIN_COPIED } else { 0 },
        };
        let offer = Offer::new(tensor)?;
        let mut object: *mut c_void = null_mut();
        // SAFETY: attached; a managed tensor as `dlpack.h` describes it, which the package owns if it answers 0; structs of the
        // C data interface that live during the call; a place to write to.
        let status = unsafe { (self.tensor_to_object)(offer.as_ptr(), &raw const origin, &raw mut object) };
        match status {
            0 => offer.accepted(),
            _ => drop(offer),
        }
        // SAFETY: the answer of a function of the table.
        unsafe { answered(py, status, object) }
    }

    fn array<'py>(&self, py: Python<'py>, array: &DeviceArray) -> PyResult<Bound<'py, PyAny>> {
        let field = export_schema(array.field())?;
        let mut array = export_device_array(array)?;
        let mut object: *mut c_void = null_mut();
        // SAFETY: attached; structs of the C data and device interfaces, of which the package moves the array out; a place to
        // write to.
        let status = unsafe { (self.array_to_object)(array.as_mut_ptr(), &raw const *field, &raw mut object) };
        // SAFETY: the answer of a function of the table.
        unsafe { answered(py, status, object) }
    }

    /// By way of the list array, which knows the field: the table has no function for rows of different lengths.
    fn ragged<'py>(&self, py: Python<'py>, ragged: &crate::ragged::Ragged) -> PyResult<Bound<'py, PyAny>> {
        let lists = self.array(py, &ragged.to_arrow(CopyMode::IfNeeded)?)?;
        let keywords = PyDict::new(py);
        if ragged.validity().is_some() {
            keywords.set_item("nulls", "keep")?;
        }
        py.import("arrow_dlpack")?.getattr("to_ragged")?.call((lists,), Some(&keywords))
    }

    fn stream<'py>(&self, py: Python<'py>, stream: DeviceArrayStream) -> PyResult<Bound<'py, PyAny>> {
        let mut stream = export_device_stream(stream);
        let mut object: *mut c_void = null_mut();
        // SAFETY: attached; a struct of the C device stream interface, which the package moves out; a place to write to.
        let status = unsafe { (self.stream_to_object)(stream.as_mut_ptr(), &raw mut object) };
        // SAFETY: the answer of a function of the table.
        unsafe { answered(py, status, object) }
    }
}
