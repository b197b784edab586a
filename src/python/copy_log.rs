//! The classes behind `track_copies()`.

use pyo3::prelude::*;

use super::escapes::python_escapes;
use super::html;
use crate::error::Counted;

/// One copy: what was copied, why, and its bytes.
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
        let entry = &self.0;
        python_escapes(&format!("CopyEntry(what={:?}, why={:?}, bytes={})", entry.what, entry.why, entry.bytes))
    }
}

/// How many copies there are, and of how many bytes.
fn summary(entries: &[crate::copy_log::Copied]) -> String {
    let bytes = entries.iter().fold(0_usize, |bytes, copied| bytes.saturating_add(copied.bytes));
    format!("CopyLog({}, {})", Counted(entries.len(), "copy"), Counted(bytes, "byte"))
}

/// The copies that this package makes on this thread inside a `with track_copies()` block.
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
        summary(&self.0.entries())
    }

    /// A table of the copies, for notebooks: the first ones of many.
    fn _repr_html_(&self) -> String {
        const SHOWN: usize = 100;
        let entries = self.0.entries();
        let rows = entries.iter().take(SHOWN);
        let rows = rows
            .map(|copied| [copied.what.as_str(), copied.why.as_str(), &copied.bytes.to_string()].map(str::to_owned));
        let more = entries.len().checked_sub(SHOWN).filter(|more| *more > 0);
        let more = more.map(|more| format!("and {more} more: print(log) shows all"));
        html::table(&summary(&entries), &["what", "why", "bytes"], rows, more.as_deref())
    }

    fn __str__(&self) -> String {
        let lines: Vec<String> = self
            .0
            .entries()
            .iter()
            .map(|copied| format!("{}: {} ({})", Counted(copied.bytes, "byte"), copied.what, copied.why))
            .collect();
        if lines.is_empty() { "no copies".to_owned() } else { lines.join("\n") }
    }
}
