//! Makes arrays of another library from tensors: through its exchange table if its array type has one, else through its
//! `from_dlpack`.

use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyModule, PyType, PyWeakrefMethods, PyWeakrefReference};

use super::super::answers::answer;
use super::super::options::Legacy;
use super::super::package::package;
use super::super::{Tensor, capsule};
use super::namespaces::remedy;
use super::read_only::{Access, Library};
use crate::cuda::Stream;
use crate::device::Device;
use crate::dlpack::Offer;
use crate::ffi::dlpack::{
    DLDeviceType, DLPACK_MAJOR_VERSION, DLPackCurrentWorkStream, DLPackExchangeAPI, DLPackExchangeAPIHeader,
    DLPackManagedTensorToPyObjectNoSync,
};
use crate::stream_order::{Readiness, Wait};

/// A chain of older tables is not followed further: a corrupt one may have no end.
const MOST_TABLES: usize = 16;
/// How many functions are known at a time.
const MOST_FUNCTIONS: usize = 16;

/// How the tensors of one call become what was asked for.
pub(in crate::python) struct Arrays<'py> {
    py: Python<'py>,
    legacy: Legacy,
    access: Access,
    namespace: Option<Namespace<'py>>,
}

struct Namespace<'py> {
    /// The stream that waits for memory already, and which memory.
    ordered: Option<(Stream, Readiness)>,
    from_dlpack: Bound<'py, PyAny>,
    route: Maker,
    /// Looked up for the first view, where it is not known.
    library: Option<Library>,
}

/// How a namespace makes arrays.
enum Maker {
    /// By its function; a module's first array tells whether there is a table.
    Unknown,
    /// By its function.
    Function,
    /// By the table of its array type.
    Table(ArrayTable),
}

impl<'py> Arrays<'py> {
    /// # Errors
    /// `TypeError` when `xp` is no array namespace.
    pub(in crate::python) fn of(
        py: Python<'py>,
        legacy: Legacy,
        access: Access,
        xp: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Self> {
        let namespace = xp.map(Namespace::of).transpose()?;
        Ok(Self { py, legacy, access, namespace })
    }

    pub(in crate::python) fn py(&self) -> Python<'py> {
        self.py
    }

    /// Warns of a view before a stream is read, where its result can be nothing else.
    ///
    /// # Errors
    /// The warning, where it is an error.
    pub(in crate::python) fn foresee(&self, copy: Option<bool>) -> PyResult<()> {
        match &self.namespace {
            Some(Namespace { from_dlpack, library, .. }) if self.access == Access::Warned && copy == Some(false) => {
                library.map_or_else(|| Library::of(from_dlpack), Ok)?.warn_of_view(self.py)
            }
            _ => Ok(()),
        }
    }

    /// The tensor for Python, or the array that the namespace makes of it.
    ///
    /// # Errors
    /// What the namespace raises, and the warning of a view where that is an error.
    pub(in crate::python) fn make(&mut self, tensor: crate::tensor::Tensor) -> PyResult<Bound<'py, PyAny>> {
        let tensor = if self.access == Access::ReadOnly { tensor.into_read_only() } else { tensor };
        let own = |tensor| Bound::new(self.py, Tensor::with_legacy(tensor, self.legacy)).map(Bound::into_any);
        let Some(Namespace { ordered, from_dlpack, route, library }) = &mut self.namespace else { return own(tensor) };
        if self.access == Access::Warned && !tensor.is_writable() {
            let known = library.map_or_else(|| Library::of(from_dlpack), Ok)?;
            *library = Some(known);
            known.warn_of_view(self.py)?;
        }
        // Where the table refuses, the function says why, in the library's own words.
        if let Maker::Table(table) = route
            && tensor
                .readiness()
                .map_or(Ok(true), |readiness| table.orders(self.py, tensor.device(), readiness, ordered))?
            && let Some(array) = table.make(self.py, &tensor)?
        {
            return Ok(array);
        }
        let memory = tensor.readiness().cloned().map(|readiness| (tensor.device(), readiness));
        let given = own(tensor)?;
        let array = capsule::call(from_dlpack, (&given,), None).map_err(|error| told_what(error, &given))?;
        if let Maker::Unknown = route {
            *route = learn(from_dlpack, &array)?;
            if let (Maker::Table(table), Some((device, readiness))) = (route, memory) {
                table.orders(self.py, device, &readiness, ordered)?;
            }
        }
        Ok(array)
    }
}

/// Notes on what a library raised, in words of its own, which tensor it was given.
fn told_what(error: PyErr, given: &Bound<'_, PyAny>) -> PyErr {
    let py = given.py();
    let tell = || -> PyResult<()> {
        let text = format!("from_dlpack was given arrow_dlpack.{}", given.repr()?);
        let notes = error.value(py).getattr_opt(intern!(py, "__notes__"))?;
        // A library may raise one object again and again.
        let is_told = notes.map_or(Ok(false), |notes| notes.contains(&text))?;
        if is_told { Ok(()) } else { error.add_note(py, text) }
    };
    match tell() {
        Err(other) if !other.is_instance_of::<PyException>(py) => other,
        // An exception that takes no note says as much as the library does.
        _ => error,
    }
}

impl<'py> Namespace<'py> {
    fn of(xp: &Bound<'py, PyAny>) -> PyResult<Self> {
        let Some(from_dlpack) = xp.getattr_opt(intern!(xp.py(), "from_dlpack"))? else {
            let remedy = remedy(xp)?;
            let message = format!("xp must be an array namespace with from_dlpack, and is {}{remedy}", xp.repr()?);
            return Err(PyTypeError::new_err(message));
        };
        // An object that is no module may make a new function at each look-up, and treat arrays in its own way.
        let (route, library) =
            if xp.is_instance_of::<PyModule>() { known(&from_dlpack) } else { (Maker::Function, None) };
        Ok(Self { ordered: None, from_dlpack, route, library })
    }
}

/// What is known of a `from_dlpack`.
struct KnownMaker {
    address: usize,
    /// Weak: a function may hold on to anything.
    from_dlpack: Py<PyWeakrefReference>,
    table: Option<ArrayTable>,
    library: Library,
}

impl KnownMaker {
    fn is_gone(&self, py: Python<'_>) -> bool {
        self.from_dlpack.bind(py).upgrade().is_none()
    }

    fn is_of(&self, from_dlpack: &Bound<'_, PyAny>) -> bool {
        self.from_dlpack.bind(from_dlpack.py()).upgrade().is_some_and(|known| known.is(from_dlpack))
    }
}

/// No two of one address. Nothing is asked of Python while this is locked, nor freed: both can run Python code.
static KNOWN: Mutex<Vec<Arc<KnownMaker>>> = Mutex::new(Vec::new());

/// Empties the cache of other libraries' tables.
pub(in crate::python) fn forget_tables() {
    let known = std::mem::take(&mut *KNOWN.lock().unwrap_or_else(PoisonError::into_inner));
    drop(known);
}

fn known(from_dlpack: &Bound<'_, PyAny>) -> (Maker, Option<Library>) {
    let (py, address) = (from_dlpack.py(), from_dlpack.as_ptr().addr());
    let entries = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let found = entries.iter().find(|known| known.address == address).cloned();
    drop(entries);
    // Another function can have the address of one that is gone.
    match found.as_deref().filter(|known| known.is_of(from_dlpack)) {
        Some(KnownMaker { table: Some(table), library, .. }) => (Maker::Table(table.clone_ref(py)), Some(*library)),
        Some(KnownMaker { table: None, library, .. }) => (Maker::Function, Some(*library)),
        None => (Maker::Unknown, None),
    }
}

/// Looks for the table of a module's arrays, and remembers what was found.
fn learn(from_dlpack: &Bound<'_, PyAny>, array: &Bound<'_, PyAny>) -> PyResult<Maker> {
    let (py, address) = (array.py(), from_dlpack.as_ptr().addr());
    // Whatever is wrong with the table: the function works.
    let table = answer(py, ArrayTable::of(from_dlpack, &array.get_type()))?.flatten();
    let route = table.as_ref().map_or(Maker::Function, |table| Maker::Table(table.clone_ref(py)));
    let library = Library::of(from_dlpack)?;
    // What has no weak references is looked at anew each time.
    if let Ok(from_dlpack) = PyWeakrefReference::new(from_dlpack) {
        let swap = |entries| std::mem::replace(&mut *KNOWN.lock().unwrap_or_else(PoisonError::into_inner), entries);
        let mut entries = swap(Vec::new());
        entries.retain(|known| known.address != address && !known.is_gone(py));
        if entries.len() >= MOST_FUNCTIONS {
            entries.remove(0);
        }
        entries.push(Arc::new(KnownMaker { address, from_dlpack: from_dlpack.unbind(), table, library }));
        // What another thread has learnt meanwhile is learnt again.
        drop(swap(entries));
    }
    Ok(route)
}

/// The part of an exchange table that makes arrays, and the type that they have.
struct ArrayTable {
    functions: TableFunctions,
    array_type: Py<PyType>,
    /// Whether the library's streams live as long as the process.
    keeps_streams: bool,
}

/// The packages that never destroy a stream: PyTorch hands out those of a pool
/// (<https://docs.pytorch.org/docs/stable/generated/torch.cuda.Stream.html>). A stream from elsewhere that is made its current one
/// (`torch.cuda.ExternalStream`) is its caller's to keep, for PyTorch's own allocator too.
const KEEPING_STREAMS: [&str; 1] = ["torch"];

#[derive(Clone, Copy)]
struct TableFunctions {
    to_object: DLPackManagedTensorToPyObjectNoSync,
    current_work_stream: DLPackCurrentWorkStream,
}

impl ArrayTable {
    fn clone_ref(&self, py: Python<'_>) -> Self {
        Self { array_type: self.array_type.clone_ref(py), ..*self }
    }

    /// Whether the table makes an array of memory: its functions synchronise nothing, so the stream that the library works
    /// on has to wait for memory on CUDA first, once for the columns of a batch.
    fn orders(
        &self,
        py: Python<'_>,
        device: Device,
        readiness: &Readiness,
        ordered: &mut Option<(Stream, Readiness)>,
    ) -> PyResult<bool> {
        if device.device_type() != DLDeviceType::CUDA {
            return Ok(false);
        }
        // Where it fails, its `from_dlpack` says why.
        let Some(stream) = self.functions.work_stream(py, device)? else { return Ok(false) };
        if !ordered.as_ref().is_some_and(|(by, waited)| *by == stream && waited.is_same(readiness)) {
            readiness.wait_on_stream(device, stream, Wait::ExchangeOutput)?;
            if self.keeps_streams && !stream.is_default() {
                // Nothing else says when the library's work there is done. A stream that may be gone by then cannot be asked.
                readiness.record_stream_for(stream, None, Wait::ReleaseBehindLibrary)?;
            }
            *ordered = Some((stream, readiness.clone()));
        }
        Ok(true)
    }

    /// The table of arrays of this type, if `from_dlpack` is the function of the same library: any other may do more than
    /// the table does, such as to copy, or to move to a device.
    fn of(from_dlpack: &Bound<'_, PyAny>, array_type: &Bound<'_, PyType>) -> PyResult<Option<Self>> {
        let py = array_type.py();
        // A tensor of ours knows more than what goes through a table.
        let library = package(from_dlpack)?;
        if array_type.is(py.get_type::<Tensor>()) || library != package(array_type)? {
            return Ok(None);
        }
        // Not an inherited one: that makes arrays of the base.
        let members = array_type.getattr(intern!(py, "__dict__"))?;
        let capsule = members.get_item(intern!(py, "__dlpack_c_exchange_api__"))?;
        let Some(newest) = capsule::exchange_table(&capsule) else { return Ok(None) };
        // SAFETY: what a capsule of this name holds, which lives as long as the process.
        let functions = unsafe { supported(newest) };
        let keeps_streams = KEEPING_STREAMS.contains(&library.as_str());
        Ok(functions.map(|functions| Self { functions, array_type: array_type.clone().unbind(), keeps_streams }))
    }

    /// The array of a tensor; `None` where the library refuses, or makes something else of it.
    ///
    /// # Errors
    /// When an allocation fails, or the call was interrupted.
    #[inline]
    fn make<'py>(&self, py: Python<'py>, tensor: &crate::tensor::Tensor) -> PyResult<Option<Bound<'py, PyAny>>> {
        let offer = Offer::new(tensor)?;
        let mut object: *mut c_void = null_mut();
        // SAFETY: attached; a managed tensor as `dlpack.h` describes it, and a place to write to.
        let status = unsafe { (self.functions.to_object)(offer.as_ptr(), &raw mut object) };
        if status == 0 {
            offer.accepted();
            // SAFETY: a new reference, or NULL.
            let array = unsafe { Bound::from_owned_ptr_or_opt(py, object.cast()) };
            if let Some(array) = array {
                return Ok(Some(array).filter(|array| array.get_type().is(&self.array_type)));
            }
        } else {
            drop(offer);
        }
        match PyErr::take(py) {
            Some(error) if !error.is_instance_of::<PyException>(py) => Err(error),
            _ => Ok(None),
        }
    }
}

impl TableFunctions {
    /// The stream that the library works on now; `None` where it fails to say.
    fn work_stream(self, py: Python<'_>, device: Device) -> PyResult<Option<Stream>> {
        let mut stream: *mut c_void = null_mut();
        // SAFETY: a function as `dlpack.h` describes it, attached, and a place to write to.
        let status = unsafe { (self.current_work_stream)(device.device_type(), device.id(), &raw mut stream) };
        if status != 0 {
            drop(PyErr::take(py));
            return Ok(None);
        }
        // As a handle, NULL is the legacy default stream.
        Ok(Some(if stream.is_null() { Stream::LEGACY } else { Stream::named(stream.addr())? }))
    }
}

/// The stream that the library of an array works on now; `None` where its type has no table, or that fails to say.
///
/// # Errors
/// If the number that it names is no stream.
pub(in crate::python) fn work_stream(array: &Bound<'_, PyAny>, device: Device) -> PyResult<Option<Stream>> {
    let (py, array_type) = (array.py(), array.get_type());
    // A tensor of ours knows itself when it is written.
    if array_type.is(py.get_type::<Tensor>()) {
        return Ok(None);
    }
    let capsule = answer(py, array_type.getattr_opt(intern!(py, "__dlpack_c_exchange_api__")))?.flatten();
    let Some(newest) = capsule.as_ref().and_then(capsule::exchange_table) else { return Ok(None) };
    // SAFETY: what a capsule of this name holds, which lives as long as the process.
    let functions = unsafe { supported(newest) };
    functions.map_or(Ok(None), |functions| functions.work_stream(py, device))
}

/// The functions that are used here, of the newest table in a chain that has our major version and all its functions.
///
/// # Safety
/// `newest`, unless misaligned, is a table as `dlpack.h` describes it, and so are the older ones behind it.
unsafe fn supported(newest: NonNull<DLPackExchangeAPIHeader>) -> Option<TableFunctions> {
    let mut table = Some(newest);
    for _ in 0..MOST_TABLES {
        let at = table.filter(|table| table.is_aligned())?;
        // SAFETY: a table, as the pointer is aligned; the header is the same at every version.
        let header = unsafe { at.as_ref() };
        if header.version.major > DLPACK_MAJOR_VERSION {
            table = NonNull::new(header.prev_api);
            continue;
        }
        if header.version.major < DLPACK_MAJOR_VERSION {
            return None;
        }
        // SAFETY: the header of a table of our version starts that table.
        let api = unsafe { at.cast::<DLPackExchangeAPI>().as_ref() };
        let complete = api.managed_tensor_allocator.is_some() && api.managed_tensor_from_py_object_no_sync.is_some();
        return match (api.managed_tensor_to_py_object_no_sync, api.current_work_stream) {
            (Some(to_object), Some(current_work_stream)) if complete => {
                Some(TableFunctions { to_object, current_work_stream })
            }
            _ => None,
        };
    }
    None
}
