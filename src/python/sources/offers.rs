//! What objects offer, as far as their attributes tell, and what errors call them.

use pyo3::prelude::*;

/// Whether an object has a dunder of Arrow data.
///
/// # Errors
/// What looking for one raises.
pub(in crate::python) fn has_dunder(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    const DUNDERS: [&str; 4] =
        ["__arrow_c_device_array__", "__arrow_c_array__", "__arrow_c_device_stream__", "__arrow_c_stream__"];
    for dunder in DUNDERS {
        if object.hasattr(dunder)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether an object is a data set: it has formats, and is read in parts of some rows each.
pub(super) fn is_dataset(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let has = |name: &str| object.getattr_opt(name).map(|found| found.is_some_and(|method| method.is_callable()));
    Ok(has("with_format")? && has("iter")?)
}

/// What begins the error for an object that is no source.
pub(super) fn expected(object: &Bound<'_, PyAny>) -> String {
    format!(
        "expected Arrow data (with __arrow_c_array__, __arrow_c_stream__ or a device form of them), a tensor (with \
         __dlpack__) or an iterable of Arrow data, got {}",
        name_of(object)
    )
}

/// The name of an object's type.
pub(in crate::python) fn name_of(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string())
}
