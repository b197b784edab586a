//! Which Arrow type does an object say it has?

use arrow_schema::FieldRef;
use pyo3::intern;
use pyo3::prelude::*;

use super::capsule::{call_if_present, schema_from_capsule};

/// The type that an argument has, without consuming anything: from `__arrow_c_schema__`, or that of its `schema`
/// attribute. `None` where it has neither.
///
/// # Errors
/// What the dunder raises, or what is wrong with its capsule.
pub fn schema(object: &Bound<'_, PyAny>) -> PyResult<Option<FieldRef>> {
    if let Some(own) = own_schema(object)? {
        return Ok(Some(own));
    }
    match object.getattr_opt(intern!(object.py(), "schema"))? {
        Some(schema) => own_schema(&schema),
        None => Ok(None),
    }
}

/// The type by `__arrow_c_schema__` alone.
///
/// # Errors
/// As [`schema`].
pub(super) fn own_schema(object: &Bound<'_, PyAny>) -> PyResult<Option<FieldRef>> {
    let capsule = call_if_present(object, intern!(object.py(), "__arrow_c_schema__"))?;
    capsule.map(|capsule| schema_from_capsule(&capsule)).transpose()
}
