//! `writable=`, and the warning for libraries that would write through a view of read-only memory.

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;

use super::super::errors;
use crate::python::answers::answer;
use crate::python::package::package;

/// How `writable=` of a call restricts the arrays that it hands out. The conversion makes private memory if that is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::python) enum Access {
    /// None: views are read-only, and a library that ignores that is warned about.
    Warned,
    /// True, and functions without the keyword: as the conversion made them.
    AsMade,
    /// False: read-only, copies too.
    ReadOnly,
}

impl Access {
    pub(in crate::python) fn of(writable: Option<bool>) -> Self {
        match writable {
            None => Self::Warned,
            Some(true) => Self::AsMade,
            Some(false) => Self::ReadOnly,
        }
    }
}

/// A package whose arrays are writable, whatever the DLPack flag of their memory says.
pub(super) struct Ignoring {
    package: &'static str,
    /// Whether this process has warned about it.
    is_warned: AtomicBool,
}

impl Ignoring {
    const fn new(package: &'static str) -> Self {
        Self { package, is_warned: AtomicBool::new(false) }
    }
}

/// As found by writing to a view in each library. NumPy and what is built on it refuse to write; arrays of JAX are immutable;
/// TensorFlow, MLX and others ask for unversioned capsules, which of read-only memory are copies.
static IGNORING: [Ignoring; 3] = [Ignoring::new("torch"), Ignoring::new("paddle"), Ignoring::new("cupy")];

/// How the library of a `from_dlpack` treats the read-only flag.
#[derive(Clone, Copy)]
pub(super) enum Library {
    Heeds,
    Ignores(&'static Ignoring),
}

impl Library {
    /// # Errors
    /// As [`answer`].
    pub(super) fn of(from_dlpack: &Bound<'_, PyAny>) -> PyResult<Self> {
        // A type without a module belongs to no known library.
        let Some(package) = answer(from_dlpack.py(), package(from_dlpack))? else { return Ok(Self::Heeds) };
        Ok(IGNORING.iter().find(|library| library.package == package).map_or(Self::Heeds, Self::Ignores))
    }

    /// Warns, the first time in this process, that the library writes through a view. The warning names the line of Python that
    /// called.
    ///
    /// # Errors
    /// The warning, where the filters make it an error: it is raised again at the next view.
    #[inline]
    pub(super) fn warn_of_view(self, py: Python<'_>) -> PyResult<()> {
        match self {
            Self::Ignores(library) if !library.is_warned.load(Ordering::Relaxed) => warn(py, library),
            _ => Ok(()),
        }
    }
}

#[cold]
fn warn(py: Python<'_>, library: &Ignoring) -> PyResult<()> {
    if library.is_warned.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let message = format!(
        "{} ignores the read-only flag of DLPack, and this result is a view: a write to it changes the data that it was made of. \
         Pass writable=True for memory of your own, or writable=False for a view without this warning.",
        library.package
    );
    let warned =
        errors::read_only_view_warning(py).and_then(|category| PyErr::warn(py, &category, &CString::new(message)?, 1));
    if warned.is_err() {
        library.is_warned.store(false, Ordering::Relaxed);
    }
    warned
}
