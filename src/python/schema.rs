//! Which Arrow type does an object say it has?

use arrow_schema::FieldRef;
use pyo3::intern;
use pyo3::prelude::*;

use super::capsule::{call, call_if_present, schema_from_capsule};
use super::objects::field_of;

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
    capsule.map(|capsule| field_of(object, schema_from_capsule(&capsule)?)).transpose()
}

/// The type of an object's rows, as far as it is known without running a query: by `collect_schema()`, as queries of polars
/// have it, by a method `schema()`, or as [`schema`] tells it.
///
/// # Errors
/// As [`schema`], and what these methods raise.
pub(super) fn schema_of_query(object: &Bound<'_, PyAny>) -> PyResult<Option<FieldRef>> {
    let py = object.py();
    for name in [intern!(py, "collect_schema"), intern!(py, "schema")] {
        let Some(method) = object.get_type().getattr_opt(name)?.filter(|method| method.is_callable()) else { continue };
        if let Some(field) = schema(&call(&method, (object,), None)?)? {
            return Ok(Some(field));
        }
    }
    schema(object)
}
