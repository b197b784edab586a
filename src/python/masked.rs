//! Refuses masked arrays of NumPy: their `__dlpack__` hands out the masked values as valid ones.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

use crate::error::{Counted, Error, ErrorKind};

/// The module of masked arrays, if anybody has imported it: before, there are none.
fn module(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    MODULES.import(py, "sys", "modules")?.get_item(intern!(py, "numpy.ma"))
}

/// Whether an object is a masked array of NumPy.
///
/// # Errors
/// What `numpy.ma` raises.
pub(super) fn is_masked_array(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    /// `numpy.ndarray`, which most arrays are: told without looking up the other class.
    static PLAIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    if PLAIN.get(py).is_some_and(|plain| object.get_type().is(plain)) {
        return Ok(false);
    }
    let Some(module) = module(py)? else { return Ok(false) };
    // None while the module is being imported.
    let Some(class) = module.getattr_opt(intern!(py, "MaskedArray"))? else { return Ok(false) };
    let Ok(class) = class.cast_into::<PyType>() else { return Ok(false) };
    if PLAIN.get(py).is_none() {
        // Set before by another thread, it is the same class.
        let _ = PLAIN.set(py, class.getattr(intern!(py, "__base__"))?.unbind());
    }
    object.get_type().is_subclass(&class)
}

/// Refuses a masked array with masked values.
///
/// # Errors
/// The refusal, which says how to pass the mask; what `numpy.ma` raises.
pub(super) fn refuse_masked(object: &Bound<'_, PyAny>) -> PyResult<()> {
    if !is_masked_array(object)? {
        return Ok(());
    }
    let Some(module) = module(object.py())? else { return Ok(()) };
    let masked: usize = module.call_method1("getmaskarray", (object,))?.call_method0("sum")?.extract()?;
    if masked == 0 {
        return Ok(());
    }
    let column = match object.getattr("ndim")?.extract()? {
        1 => "to_arrow(x.data, validity=~numpy.ma.getmaskarray(x)) for a column with nulls, or ",
        2 => "to_arrow(x.data, names=names, validity=~numpy.ma.getmaskarray(x)) for a batch with nulls, or ",
        _ => "",
    };
    let reason = format!("the array has {}, and DLPack has no mask", Counted(masked, "masked value"));
    let remedy = format!("pass {column}x.filled(0), with a value of your own for 0, or x.data to drop the mask");
    Err(Error::new(ErrorKind::Null, reason).remedy_is(remedy).into())
}
