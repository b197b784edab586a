//! Reads where the memory of device results comes from: `allocator=`, or the library that `xp=` names.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyException, PyMemoryError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyModule, PyString};

use super::super::answers::{answer, error_about};
use super::super::attach::{Raised, ReleasedAttached, attached};
use super::super::capsule::{call, call_method};
use super::super::cuda_stream::NamedStream;
use crate::cuda::{Allocated, Allocator, AllocatorError, Current, MemorySource, SourceScope, Stream, allocate_from};
use crate::device::Device;
use crate::ffi::dlpack::DLDeviceType;
use crate::python::package::package;
use crate::stream_order;

/// What `allocator=` says; `None` where it says nothing.
///
/// # Errors
/// `ValueError` for a name of no allocator, `TypeError` for an object that is none.
pub(in crate::python) fn source(allocator: Option<&Bound<'_, PyAny>>) -> PyResult<Option<MemorySource>> {
    let Some(allocator) = allocator else { return Ok(None) };
    if let Ok(name) = allocator.cast::<PyString>() {
        return match name.to_str()? {
            "cuMemAlloc" => Ok(Some(MemorySource::Unpooled)),
            other => Err(PyValueError::new_err(format!(
                "allocator must be None, \"cuMemAlloc\", or an object with allocate and deallocate, not {other:?}"
            ))),
        };
    }
    let py = allocator.py();
    let has = |name| allocator.getattr_opt(name).map(|found| found.is_some_and(|method| method.is_callable()));
    if !has(intern!(py, "allocate"))? || !has(intern!(py, "deallocate"))? {
        let name = allocator.get_type().name()?;
        return Err(PyTypeError::new_err(format!(
            "allocator must be None, \"cuMemAlloc\", or an object with allocate and deallocate, not {name}"
        )));
    }
    let resource = Resource { object: allocator.clone().unbind(), stream_type: stream_type(allocator)? };
    Ok(Some(MemorySource::Allocator(Arc::new(PythonAllocator(ReleasedAttached::new(AllocatorKind::Resource(
        resource,
    )))))))
}

/// Has results of this thread come from `allocator`, else from the library of `xp`, if that has an allocator; until what is
/// returned is dropped.
///
/// # Errors
/// As [`source`].
#[inline]
pub(in crate::python) fn scope(
    allocator: Option<&Bound<'_, PyAny>>,
    xp: Option<&Bound<'_, PyAny>>,
) -> PyResult<Option<SourceScope>> {
    if allocator.is_none() && xp.is_none() {
        return Ok(None);
    }
    let source = match (source(allocator)?, xp) {
        (None, Some(xp)) => of_namespace(xp)?,
        (source, _) => source,
    };
    Ok(source.map(allocate_from))
}

/// The allocator of an array namespace, where it is one of those that are known.
fn of_namespace(xp: &Bound<'_, PyAny>) -> PyResult<Option<MemorySource>> {
    let py = xp.py();
    let Some(from_dlpack) = xp.getattr_opt(intern!(py, "from_dlpack"))? else { return Ok(None) };
    let Some(package) = answer(py, package(&from_dlpack))? else { return Ok(None) };
    // Such a library is imported already.
    let cuda = |name: &str| Ok::<_, PyErr>(PyModule::import(py, name)?.getattr(intern!(py, "cuda"))?.unbind());
    let kind = match package.as_str() {
        "torch" => AllocatorKind::Torch(cuda("torch")?),
        "cupy" => AllocatorKind::CuPy(cuda("cupy")?, Mutex::default()),
        _ => return Ok(None),
    };
    Ok(Some(MemorySource::Allocator(Arc::new(PythonAllocator(ReleasedAttached::new(kind))))))
}

/// The type of streams that a resource of RMM takes: no other.
fn stream_type(object: &Bound<'_, PyAny>) -> PyResult<Option<Py<PyAny>>> {
    let py = object.py();
    for base in object.get_type().mro().iter() {
        if answer(py, package(&base))?.is_some_and(|package| package == "rmm") {
            return Ok(Some(PyModule::import(py, "rmm.pylibrmm.stream")?.getattr("Stream")?.unbind()));
        }
    }
    Ok(None)
}

/// An allocator of Python's.
struct PythonAllocator(ReleasedAttached<AllocatorKind>);

enum AllocatorKind {
    Resource(Resource),
    /// The module `torch.cuda`.
    Torch(Py<PyAny>),
    /// The module `cupy.cuda`, and the pointers that keep memory, by address.
    CuPy(Py<PyAny>, Mutex<HashMap<usize, Py<PyAny>>>),
}

/// An object with `allocate(nbytes, stream)` and `deallocate(pointer, nbytes, stream)`, such as a memory resource of RMM.
struct Resource {
    object: Py<PyAny>,
    stream_type: Option<Py<PyAny>>,
}

impl fmt::Debug for PythonAllocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0.get() {
            Some(AllocatorKind::Resource(_)) => "PythonAllocator(resource)",
            Some(AllocatorKind::Torch(_)) => "PythonAllocator(torch)",
            Some(AllocatorKind::CuPy(..)) => "PythonAllocator(cupy)",
            None => "PythonAllocator",
        })
    }
}

// SAFETY: that the memory is nobody else's but the stream's until it is given back is what these libraries document of their
// allocators, and the word of whoever passes another; that it is of the device, aligned and long enough, is checked.
unsafe impl Allocator for PythonAllocator {
    fn allocate(&self, device: i32, bytes: usize, stream: Stream) -> Result<Allocated, AllocatorError> {
        let allocated = attached(|py| {
            let allocated = match self.0.get() {
                Some(AllocatorKind::Resource(resource)) => resource.allocate(py, bytes, stream),
                Some(AllocatorKind::Torch(cuda)) => torch_allocate(cuda.bind(py), device, bytes),
                Some(AllocatorKind::CuPy(cuda, pointers)) => cupy_allocate(cuda.bind(py), pointers, bytes),
                None => Ok(None),
            };
            allocated.map_err(|error| failed(py, error))
        });
        allocated
            .unwrap_or_else(|| Err(AllocatorError::Failed("the interpreter is going down".to_owned())))?
            .ok_or(AllocatorError::NotHere)
    }

    fn deallocate(&self, device: i32, address: usize, bytes: usize) {
        // Once the interpreter is going down the memory is left to the end of the process.
        attached(|py| {
            let given_back = match self.0.get() {
                Some(AllocatorKind::Resource(resource)) => resource.deallocate(py, address, bytes, idle_stream(device)),
                Some(AllocatorKind::Torch(cuda)) => {
                    call_method(cuda.bind(py), intern!(py, "caching_allocator_delete"), (address,)).map(drop)
                }
                Some(AllocatorKind::CuPy(_, pointers)) => {
                    let pointer = pointers.lock().unwrap_or_else(PoisonError::into_inner).remove(&address);
                    // What is raised at its end is shown by Python.
                    drop(pointer);
                    Ok(())
                }
                None => Ok(()),
            };
            if let Err(error) = given_back {
                error.write_unraisable(py, None);
            }
        });
    }
}

impl Resource {
    fn stream<'py>(&self, py: Python<'py>, stream: Stream) -> PyResult<Bound<'py, PyAny>> {
        let stream = Bound::new(py, NamedStream(stream))?.into_any();
        self.stream_type.as_ref().map_or(Ok(stream.clone()), |of| call(of.bind(py), (stream,), None))
    }

    fn allocate(&self, py: Python<'_>, bytes: usize, stream: Stream) -> PyResult<Option<Allocated>> {
        let arguments = (bytes, self.stream(py, stream)?);
        let returned = call_method(self.object.bind(py), intern!(py, "allocate"), arguments)?;
        let address = answer(py, returned.extract::<usize>())?.ok_or_else(|| {
            let told = |returned| format!("allocate must return an address, and returned {returned}");
            error_about(py, returned.repr(), |returned| PyTypeError::new_err(told(returned)))
        })?;
        Ok(Some(Allocated::new(address, stream)))
    }

    fn deallocate(&self, py: Python<'_>, address: usize, bytes: usize, stream: Stream) -> PyResult<()> {
        let arguments = (address, bytes, self.stream(py, stream)?);
        call_method(self.object.bind(py), intern!(py, "deallocate"), arguments).map(drop)
    }
}

/// Returns the stream in whose order a resource may free memory: any will do, as all work is done. What the resource records on the legacy
/// default stream would end captures on blocking streams: beside one, that is a stream of our own without work.
fn idle_stream(device: i32) -> Stream {
    let idle = |current: Current| match current.is_capturing(Stream::LEGACY) {
        Ok(true) => current.free_stream(),
        _ => Stream::LEGACY,
    };
    stream_order::enter(Device::new(DLDeviceType::CUDA, device)).map_or(Stream::LEGACY, idle)
}

/// Memory of PyTorch's caching allocator, as its current stream uses it; `None` where this PyTorch has no CUDA.
fn torch_allocate(cuda: &Bound<'_, PyAny>, device: i32, bytes: usize) -> PyResult<Option<Allocated>> {
    let py = cuda.py();
    if !call_method(cuda, intern!(py, "is_available"), ())?.is_truthy()? {
        return Ok(None);
    }
    let stream = call_method(cuda, intern!(py, "current_stream"), (device,))?;
    let handle = stream.getattr(intern!(py, "cuda_stream"))?.extract::<usize>()?;
    let address = call_method(cuda, intern!(py, "caching_allocator_alloc"), (bytes, device, stream))?.extract()?;
    Ok(Some(Allocated::new(address, of_runtime(handle)?)))
}

/// Memory of CuPy's allocator, as its current stream uses it. The device is current.
fn cupy_allocate(
    cuda: &Bound<'_, PyAny>,
    pointers: &Mutex<HashMap<usize, Py<PyAny>>>,
    bytes: usize,
) -> PyResult<Option<Allocated>> {
    let py = cuda.py();
    let stream = call_method(cuda, intern!(py, "get_current_stream"), ())?;
    let handle = stream.getattr(intern!(py, "ptr"))?.extract::<usize>()?;
    let pointer = call_method(cuda, intern!(py, "alloc"), (bytes,))?;
    let address = pointer.getattr(intern!(py, "ptr"))?.extract::<usize>()?;
    let before = pointers.lock().unwrap_or_else(PoisonError::into_inner).insert(address, pointer.unbind());
    drop(before);
    Ok(Some(Allocated::new(address, of_runtime(handle)?)))
}

/// The stream of a handle of the runtime, whose 0 is the legacy default stream.
fn of_runtime(handle: usize) -> PyResult<Stream> {
    Ok(if handle == 0 { Stream::LEGACY } else { Stream::named(handle)? })
}

fn failed(py: Python<'_>, error: PyErr) -> AllocatorError {
    if !error.is_instance_of::<PyException>(py) {
        return AllocatorError::Interrupted(Arc::new(Raised::new(py, error)));
    }
    // PyTorch's is no MemoryError.
    let name = error.get_type(py).name().map_or_else(|_| String::new(), |name| name.to_string());
    if error.is_instance_of::<PyMemoryError>(py) || name == "OutOfMemoryError" {
        AllocatorError::OutOfMemory(error.to_string())
    } else {
        AllocatorError::Failed(error.to_string())
    }
}
