//! The class `LoaderIterator`: one epoch of a `Loader`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyType};

use crate::conversion::Converted;
use crate::loader::{Batch, Batches, Next, Progress};
use crate::python::errors::of_next;
use crate::python::exchange::{Access, Arrays};
use crate::python::options::Legacy;
use crate::python::sources::HeldObject;
use crate::python::varied;
use crate::spec::Selection;

/// How long a wait goes on before signals are looked for.
pub(super) const PATIENCE: Duration = Duration::from_millis(50);

/// The batches of one epoch of a Loader. Its thread ends, and the source is released, when it is dropped,
/// closed or exhausted.
#[pyclass(frozen, module = "arrow_dlpack")]
#[derive(Debug)]
pub struct LoaderIterator {
    batches: Arc<Batches>,
    /// What the source refers to until it is released.
    held: Vec<HeldObject>,
    /// The names of the results, and whether they have rows of one shape; `None` where a batch is one tensor.
    names: Option<Vec<(Py<PyString>, bool)>>,
    xp: Option<Py<PyAny>>,
    progress: Arc<Progress>,
    run: u64,
    /// The batch that was ready when the handler of a signal raised an error: the next one to be handed out.
    kept: Mutex<Option<Batch>>,
}

impl LoaderIterator {
    pub(super) fn new(
        py: Python<'_>,
        (batches, held): (Arc<Batches>, Vec<HeldObject>),
        selection: &Selection,
        xp: Option<Py<PyAny>>,
        progress: Arc<Progress>,
        run: u64,
    ) -> Self {
        let names = match selection {
            Selection::Named(groups) => {
                let results = groups.iter().flat_map(|(name, group)| {
                    group.result_names(name).map(|name| (PyString::new(py, name).unbind(), group.has_fixed_rows()))
                });
                Some(results.collect())
            }
            _ => None,
        };
        Self { batches, held, names, xp, progress, run, kept: Mutex::new(None) }
    }

    /// The next batch; `None` when there are no more. While it is waited for, the interpreter is free, and signals are seen.
    fn wait(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        if !self.batches.is_in_this_process() {
            return Err(PyRuntimeError::new_err(
                "this iteration of a Loader began in another process, which this one was forked from; begin one here, by \
                 iter() of a Loader whose source is a callable or a table",
            ));
        }
        if let Some(batch) = self.replace_kept(None) {
            return Ok(Some(batch));
        }
        let mut next = self.batches.next_if_ready()?.map_or(Next::NotYet, Next::Batch);
        loop {
            match next {
                // If a handler raised after the return, the caller would not get the batch, and the state would count it.
                Next::Batch(batch) => match py.check_signals() {
                    Ok(()) => return Ok(Some(batch)),
                    Err(error) => {
                        drop(self.replace_kept(Some(batch)));
                        return Err(error);
                    }
                },
                Next::End => {
                    self.progress.ended(self.run);
                    return Ok(None);
                }
                Next::Cut => return Ok(None),
                Next::NotYet => {}
            }
            py.check_signals()?;
            next = py.detach(|| self.batches.next_within(PATIENCE))?;
        }
    }

    fn replace_kept(&self, batch: Option<Batch>) -> Option<Batch> {
        std::mem::replace(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner), batch)
    }

    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(batch) = self.wait(py)? else { return Ok(None) };
        let number = batch.number;
        let batch = self.for_python(py, batch).inspect_err(|_| {
            // The batch is lost, and the next one must not pass for it.
            py.detach(|| self.batches.close());
        })?;
        self.progress.handed_out(self.run, number);
        Ok(Some(batch))
    }

    fn for_python<'py>(&self, py: Python<'py>, batch: Batch) -> PyResult<Bound<'py, PyAny>> {
        let mut arrays = Arrays::of(py, Legacy::default(), Access::AsMade, self.xp.as_ref().map(|xp| xp.bind(py)))?;
        let mut tensors = batch.tensors.into_iter();
        let Some(names) = &self.names else {
            let only = tensors.next().ok_or_else(|| PyRuntimeError::new_err("a batch without tensors"))?;
            return arrays.make(only);
        };
        let named = PyDict::new(py);
        let mut others = batch.varied.into_iter();
        for (name, has_fixed_rows) in names {
            let made = if *has_fixed_rows { tensors.next().map(Converted::Tensor) } else { others.next() };
            let made = made.ok_or_else(|| PyRuntimeError::new_err("a batch without one of its results"))?;
            named.set_item(name, varied::for_python(made, &mut arrays)?)?;
        }
        Ok(named.into_any())
    }
}

#[pymethods]
impl LoaderIterator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.next(py).map_err(|error| of_next(py, error))
    }

    /// Ends the epoch: waits for the thread, and releases the source and the batches that were not handed out.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        drop(self.replace_kept(None));
        // The thread may wait for its source for any time.
        while !py.detach(|| self.batches.close_within(PATIENCE)) {
            py.check_signals()?;
        }
        Ok(())
    }

    /// `LoaderIterator[T]`, for annotations: T is the type of the batches.
    #[classmethod]
    #[pyo3(signature = (batch, /))]
    fn __class_getitem__<'py>(cls: &Bound<'py, PyType>, batch: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        cls.py().import("types")?.getattr("GenericAlias")?.call1((cls, batch))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.xp)?;
        self.held.iter().try_for_each(|held| held.traverse(&visit))
    }

    /// Ends the epoch of a cycle that nobody refers to.
    fn __clear__(&self) {
        drop(self.replace_kept(None));
        Python::attach(|py| py.detach(|| self.batches.close()));
    }
}

impl Drop for LoaderIterator {
    fn drop(&mut self) {
        // The source may need the interpreter to come to an end. Without one there is nothing to wait for: at exit every
        // iteration was closed.
        Python::try_attach(|py| py.detach(|| self.batches.close()));
    }
}
