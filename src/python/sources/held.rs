//! [`HeldObject`]: an object of Python that an open source refers to, shown to the garbage collector.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

/// An object that the stream of a source refers to until it lets it go. Whoever owns the stream shows the object to the garbage
/// collector, which finds cycles through the source by that.
#[derive(Clone, Debug)]
pub(in crate::python) struct HeldObject(Arc<Mutex<Option<Py<PyAny>>>>);

impl HeldObject {
    pub(super) fn new(object: Py<PyAny>) -> Self {
        Self(Arc::new(Mutex::new(Some(object))))
    }

    /// The reference. No code of Python runs meanwhile, and who locks it is attached to the interpreter, so that a fork leaves no lock.
    fn lock(&self) -> MutexGuard<'_, Option<Py<PyAny>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another reference to the object; `None` once it was let go.
    pub(super) fn get<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        self.lock().as_ref().map(|object| object.bind(py).clone())
    }

    /// Lets the object go. To drop it may run code of Python.
    pub(super) fn take(&self) -> Option<Py<PyAny>> {
        self.lock().take()
    }

    /// Shows the object, for the only owner of the stream. An object that another thread looks at has one more reference, so that nothing
    /// would be freed anyway.
    pub(in crate::python) fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.0.try_lock().map_or(Ok(()), |object| visit.call(object.as_ref()))
    }
}
