//! Which package does a function or a class of another library say it is of?

use pyo3::intern;
use pyo3::prelude::*;

/// The package that a function or a class says it is of.
pub(super) fn package(object: &Bound<'_, PyAny>) -> PyResult<String> {
    let module = object.getattr(intern!(object.py(), "__module__"))?.extract::<String>()?;
    Ok(module.split('.').next().unwrap_or_default().to_owned())
}
