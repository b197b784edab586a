//! What `xp=` may be: an array namespace, or the name of one.

use pyo3::exceptions::{PyModuleNotFoundError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyModule, PyString, PyType};

use crate::python::answers::answer;
use crate::python::capsule;
use crate::python::package::package;

/// `xp=`: an array namespace, or the name of the module that is one, which is imported.
///
/// # Errors
/// `ValueError` where no module has the name; what its import raises.
pub(in crate::python) fn namespace<'py>(xp: Option<&Bound<'py, PyAny>>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Some(xp) = xp else { return Ok(None) };
    let Ok(name) = xp.cast::<PyString>() else { return Ok(Some(xp.clone())) };
    let (py, name) = (xp.py(), name.to_str()?);
    let unknown = || {
        PyValueError::new_err(format!(
            "xp={name:?}: no module of this name is installed; pass an array namespace, or the name of one, such as \
             \"numpy\", \"torch\", \"jax\" or \"cupy\""
        ))
    };
    // Where a package is no namespace itself, its module that is one.
    let module = match name {
        "jax" => "jax.numpy",
        "mlx" => "mlx.core",
        name => name,
    };
    if module.is_empty() || module.starts_with('.') {
        return Err(unknown());
    }
    let import = py.import("importlib")?.getattr("import_module")?;
    capsule::call(&import, (module,), None).map(Some).map_err(|error| {
        // A module that lacks one of its own requirements is another matter.
        let missing = match answer(py, error.value(py).getattr("name").and_then(|missing| missing.extract::<String>()))
        {
            Ok(missing) => missing,
            Err(ended) => return ended,
        };
        let is_unknown = error.is_instance_of::<PyModuleNotFoundError>(py)
            && missing.is_some_and(|missing| module == missing || module.starts_with(&format!("{missing}.")));
        if !is_unknown {
            return error;
        }
        let unknown = unknown();
        unknown.set_cause(py, Some(error));
        unknown
    })
}

/// What ends the error for an `xp=` that is no array namespace: the one that was meant, where that can be told.
pub(super) fn remedy(xp: &Bound<'_, PyAny>) -> PyResult<String> {
    Ok(match answer(xp.py(), meant(xp))?.flatten() {
        Some(meant) => format!("; pass xp={meant}"),
        None => "; pass numpy, torch, jax.numpy, cupy or another module with from_dlpack".to_owned(),
    })
}

/// The namespace beneath a package, or that of an array or a class.
fn meant(xp: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    let py = xp.py();
    let has_from_dlpack = |module: &Bound<'_, PyAny>| module.hasattr(intern!(py, "from_dlpack"));
    if xp.is_instance_of::<PyModule>() {
        for below in ["numpy", "core"] {
            if let Some(module) = xp.getattr_opt(below)?
                && module.is_instance_of::<PyModule>()
                && has_from_dlpack(&module)?
            {
                return Ok(Some(module.getattr(intern!(py, "__name__"))?.extract()?));
            }
        }
        return Ok(None);
    }
    let class = if xp.is_instance_of::<PyType>() { xp.clone() } else { xp.get_type().into_any() };
    let library = match package(&class)?.as_str() {
        "jax" | "jaxlib" => "jax.numpy".to_owned(),
        library => library.to_owned(),
    };
    let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
    let Some(module) = answer(py, modules.get_item(&library))? else { return Ok(None) };
    Ok(has_from_dlpack(&module)?.then_some(library))
}
