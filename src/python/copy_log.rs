//! The classes behind `track_copies()`.

use pyo3::prelude::*;

/// One copy that was made.
#[pyclass(frozen, module = "arrow_dlpack")]
#[derive(Debug)]
pub struct CopyEntry(crate::copy_log::Copied);

#[pymethods]
impl CopyEntry {
    /// The column or tensor that moved.
    #[getter]
    fn what(&self) -> &str {
        &self.0.what
    }

    /// Why it could not be a view.
    #[getter]
    fn why(&self) -> &str {
        &self.0.why
    }

    /// Bytes written.
    #[getter]
    fn bytes(&self) -> usize {
        self.0.bytes
    }

    fn __repr__(&self) -> String {
        format!("CopyEntry(what={:?}, why={:?}, bytes={})", self.0.what, self.0.why, self.0.bytes)
    }
}

/// The copies made inside a `with track_copies()` block, by this package, on this thread.
#[pyclass(frozen, module = "arrow_dlpack")]
#[derive(Debug, Default)]
pub struct CopyLog(pub(super) crate::copy_log::CopyLog);

#[pymethods]
impl CopyLog {
    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf.get().0.activate();
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyAny>) {
        self.0.deactivate();
    }

    /// The copies, oldest first.
    #[getter]
    fn entries(&self) -> Vec<CopyEntry> {
        self.0.entries().into_iter().map(CopyEntry).collect()
    }

    /// Bytes of all copies.
    #[getter]
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn __len__(&self) -> usize {
        self.0.entries().len()
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.entries().into_pyobject(py)?.try_iter()?.into_any().unbind())
    }

    fn __repr__(&self) -> String {
        format!("CopyLog({} copies, {} bytes)", self.__len__(), self.bytes())
    }

    fn __str__(&self) -> String {
        let lines: Vec<String> = self
            .0
            .entries()
            .iter()
            .map(|copied| format!("{} bytes: {} ({})", copied.bytes, copied.what, copied.why))
            .collect();
        if lines.is_empty() { "no copies".to_owned() } else { lines.join("\n") }
    }
}
