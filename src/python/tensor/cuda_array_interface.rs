//! The CUDA array interface, version 3 (<https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html>):
//! exports a [`Tensor`] by it, and imports objects that offer nothing better.

use std::sync::Arc;

use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::array_interface::{dtype_of, typestr};
use crate::cuda::{Pointer, PooledStream, Stream};
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::ffi::dlpack::DLDeviceType;
use crate::python::answers::answer;
use crate::python::attach::release_attached;
use crate::python::cuda_stream;
use crate::spec::{Dims, row_major_strides};
use crate::stream_order::{self, Readiness, Wait};
use crate::tensor::{Tensor, TensorParts};

/// The dict of the interface. The reader of the memory keeps the tensor alive.
///
/// # Errors
/// `AttributeError` where there is no such interface: for memory that is not of a CUDA device, and dtypes that it has no
/// name for.
pub(super) fn cuda_array_interface<'py>(py: Python<'py>, tensor: &Tensor) -> PyResult<Bound<'py, PyDict>> {
    let reached = [DLDeviceType::CUDA, DLDeviceType::CUDA_MANAGED].contains(&tensor.device().device_type());
    let Some(readiness) = tensor.readiness().filter(|_| reached) else {
        let reason =
            format!("__cuda_array_interface__ reaches memory of CUDA devices only, and this is on {}", tensor.device());
        return Err(PyAttributeError::new_err(reason));
    };
    let Some(typestr) = typestr(tensor.dtype()) else {
        return Err(PyAttributeError::new_err(format!("__cuda_array_interface__ has no type for {}", tensor.dtype())));
    };
    let interface = PyDict::new(py);
    interface.set_item(intern!(py, "version"), 3)?;
    interface.set_item(intern!(py, "typestr"), typestr)?;
    interface.set_item(intern!(py, "shape"), PyTuple::new(py, tensor.shape())?)?;
    // A tensor's byte span fits the address space, and so does each step that it takes.
    let itemsize = i64::try_from(tensor.dtype().itemsize()).unwrap_or(1);
    let strides = tensor.strides().iter().map(|stride| stride.saturating_mul(itemsize));
    let strides = (!tensor.is_row_major()).then(|| PyTuple::new(py, strides.collect::<Vec<_>>())).transpose()?;
    interface.set_item(intern!(py, "strides"), strides)?;
    interface.set_item(intern!(py, "data"), (tensor.as_ptr().addr(), !tensor.is_writable()))?;
    readiness.lend(Wait::LentByArrayInterface);
    interface.set_item(intern!(py, "stream"), waiting_stream(readiness)?.map(Stream::number))?;
    Ok(interface)
}

/// A stream of ours that waits until the memory is written, and that lives as long as the process; `None` where the memory is
/// written. Consumers wait for it, or put their work on it.
fn waiting_stream(readiness: &Readiness) -> crate::error::Result<Option<Stream>> {
    if readiness.is_complete()? {
        return Ok(None);
    }
    let current = stream_order::enter(readiness.device())?;
    let stream = PooledStream::idle(&current)?;
    readiness.wait_in(&current, stream.stream(), Wait::ArrayInterfaceStream)?;
    readiness.record_stream_for(stream.stream(), None, Wait::ArrayInterfaceKept)?;
    Ok(Some(stream.stream()))
}

/// A Python object that memory is of.
struct InterfaceOwner {
    object: Option<Py<PyAny>>,
    readiness: Readiness,
}

impl Drop for InterfaceOwner {
    fn drop(&mut self) {
        let mut object = self.object.take();
        self.readiness.release(move || {
            release_attached(&mut || drop(object.take()));
            // Once the interpreter is going down there is nobody to take it back.
            std::mem::forget(object);
        });
    }
}

/// The tensor of an object with `__cuda_array_interface__`; `None` without it. The object is kept as long as the memory.
///
/// # Errors
/// `TypeError` for a dict that breaks the interface, what its attribute raises, or when the memory is not what it says.
pub(in crate::python) fn of_cuda_array_interface(object: &Bound<'_, PyAny>) -> PyResult<Option<Tensor>> {
    let Some(interface) = object.getattr_opt(intern!(object.py(), "__cuda_array_interface__"))? else {
        return Ok(None);
    };
    let interface = Interface::read(&interface)?;
    let Interface { address, read_only, shape, strides, dtype, stream } = interface;
    // Nobody asks about no memory.
    let device = match shape.contains(&0) {
        true => Device::new(DLDeviceType::CUDA, 0),
        false => Pointer::of(address)?.device.ok_or_else(|| {
            let reason = format!("the CUDA driver does not know the address {address:#x} of __cuda_array_interface__");
            Error::new(ErrorKind::Device, reason)
        })?,
    };
    let current = stream_order::enter(device)?;
    let readiness = match stream {
        None => Readiness::written(device),
        Some(stream) => {
            current.require_own(stream)?;
            stream_order::refuse_capture(&current, stream, "__cuda_array_interface__ names it")?;
            Some(Readiness::recorded(device, &current, stream, Wait::ArrayInterfaceImport)?)
        }
    };
    let Some(readiness) = readiness else { return Ok(None) };
    let owner = InterfaceOwner { object: Some(object.clone().unbind()), readiness: readiness.clone() };
    let data = std::ptr::without_provenance_mut(address);
    let parts = TensorParts::of_host(data, dtype, (shape, strides), Arc::new(owner));
    let parts = TensorParts { device, read_only, readiness: Some(readiness), ..parts };
    // SAFETY: the interface: the elements that shape and strides reach are memory of the device, alive as long as the object.
    let tensor = unsafe { Tensor::from_parts(parts) }?.into_lent();
    tensor.check_memory(&current)?;
    Ok(Some(tensor))
}

/// What the dict says.
struct Interface {
    address: usize,
    read_only: bool,
    shape: Dims,
    /// In elements.
    strides: Dims,
    dtype: crate::dtype::DType,
    /// `None` where nothing has to be waited for.
    stream: Option<Stream>,
}

impl Interface {
    fn read(interface: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = interface.py();
        let wrong = |what: &str| PyTypeError::new_err(format!("__cuda_array_interface__ {what}"));
        let dict = interface.cast::<PyDict>().map_err(|_| wrong("must be a dict"))?;
        let entry = |name: &str| dict.get_item(name).map(|entry| entry.filter(|entry| !entry.is_none()));
        let required = |name: &str| entry(name)?.ok_or_else(|| wrong(&format!("has no {name:?}")));
        if entry("mask")?.is_some() {
            let reason = "the array of __cuda_array_interface__ has a mask, which a tensor has no place for";
            return Err(Error::unsupported(reason).remedy_is("fill what is masked first").into());
        }
        let version = answer(py, required("version")?.extract::<i64>())?;
        let version = version.ok_or_else(|| wrong("has a \"version\" that is no int"))?;
        let typestr =
            required("typestr")?.extract::<String>().map_err(|_| wrong("has a \"typestr\" that is no str"))?;
        let dtype = dtype_of(&typestr).ok_or_else(|| {
            Error::unsupported(format!("the typestr {typestr:?} of __cuda_array_interface__ is no dtype"))
        })?;
        let dims = |object: &Bound<'_, PyAny>, name: &str| {
            let dims = answer(py, object.extract::<Vec<i64>>())?.map(Dims::from_vec);
            dims.ok_or_else(|| wrong(&format!("has a {name:?} that is no tuple of ints")))
        };
        let shape = dims(&required("shape")?, "shape")?;
        let itemsize = i64::try_from(dtype.itemsize()).unwrap_or(i64::MAX);
        let strides = match entry("strides")? {
            None => row_major_strides(&shape)?,
            Some(strides) => {
                let mut strides = dims(&strides, "strides")?;
                for stride in &mut strides {
                    if *stride % itemsize != 0 {
                        let reason = format!("a stride of {stride} bytes is no multiple of an element of {dtype}");
                        return Err(Error::unsupported(reason).remedy_is("copy the array first").into());
                    }
                    *stride /= itemsize;
                }
                strides
            }
        };
        let data = answer(py, required("data")?.extract::<(Option<usize>, bool)>())?;
        let (address, read_only) = data.ok_or_else(|| wrong("has \"data\" that is not (address, read_only)"))?;
        // Version 2 knows no streams: its producers have waited.
        let stream = entry("stream")?.filter(|_| version >= 3);
        let stream = stream.map(|stream| cuda_stream::extract(&stream)).transpose()?;
        Ok(Self { address: address.unwrap_or(0), read_only, shape, strides, dtype, stream })
    }
}
