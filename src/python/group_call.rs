//! The call that makes a group: its `repr`, where rows differ in length or are passed through, and what pickles it.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::pickle::rebuild;
use crate::spec::{Group as Core, GroupForm, Side};

/// A group, and what was passed to make it.
pub(super) struct Passed<'a> {
    pub(super) core: &'a Core,
    pub(super) value: Option<&'a Py<PyAny>>,
    pub(super) dtype: Option<&'static str>,
    pub(super) nulls: Option<&'a Py<PyAny>>,
}

/// What the constructor of a group takes: its name, the columns, and the keywords that are not defaults.
fn arguments<'py>(
    py: Python<'py>,
    group: &Passed<'_>,
) -> PyResult<(&'static str, Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
    let (core, keywords) = (group.core, PyDict::new(py));
    let name = match core.form() {
        GroupForm::Padded(pad) => {
            let side = |side| if side == Side::Left { "left" } else { "right" };
            keywords.set_item("value", group.value)?;
            if let Some(length) = pad.length {
                keywords.set_item("length", length)?;
            }
            if pad.multiple_of.get() > 1 {
                keywords.set_item("multiple_of", pad.multiple_of.get())?;
            }
            if let Some(truncate) = pad.truncate {
                keywords.set_item("truncate", side(truncate))?;
            }
            if pad.side == Side::Left {
                keywords.set_item("side", "left")?;
            }
            "padded"
        }
        GroupForm::Ragged => "ragged",
        GroupForm::Arrow => "arrow",
        GroupForm::Column | GroupForm::Matrix => "group",
    };
    for (name, value) in [("lengths", core.lengths_name()), ("validity", core.validity_name()), ("dtype", group.dtype)]
    {
        value.map_or(Ok(()), |value| keywords.set_item(name, value))?;
    }
    if let Some(nulls) = group.nulls {
        keywords.set_item("nulls", nulls)?;
    }
    let columns = match core.form() {
        GroupForm::Matrix => PyTuple::new(py, [core.columns()])?,
        _ => PyTuple::new(py, core.columns())?,
    };
    Ok((name, columns, keywords))
}

/// The call that makes the group.
pub(super) fn repr(py: Python<'_>, group: &Passed<'_>) -> PyResult<String> {
    let (name, columns, keywords) = arguments(py, group)?;
    let columns = columns.iter().map(|column| Ok(column.repr()?.to_string()));
    let keywords = keywords.iter().map(|(name, value)| Ok(format!("{name}={}", value.repr()?)));
    Ok(format!("{name}({})", columns.chain(keywords).collect::<PyResult<Vec<_>>>()?.join(", ")))
}

/// `__reduce__` of the group.
pub(super) fn reduce<'py>(py: Python<'py>, group: &Passed<'_>) -> PyResult<Bound<'py, PyTuple>> {
    (rebuild(py, "_unpickle_group")?, arguments(py, group)?).into_pyobject(py)
}
