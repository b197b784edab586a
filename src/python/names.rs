//! Caches the column names of the last few schemas as Python strings. Batches of one schema come in series, and making
//! and hashing its strings costs as much as the rest of a view.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_schema::{DataType, FieldRef};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::spec::PandasIndex;

/// How many schemas are kept.
const MOST_SCHEMAS: usize = 8;

/// The names of all columns of a struct type but an index that is left out, no two of them the same.
pub(super) struct Names {
    field: FieldRef,
    index: PandasIndex,
    positions: Vec<usize>,
    names: Vec<Py<PyString>>,
}

/// Least recently made first. Nothing that can run Python code happens while this is locked.
static KEPT: Mutex<Vec<Arc<Names>>> = Mutex::new(Vec::new());

/// Empties the cache.
pub(super) fn forget() {
    let kept = std::mem::take(&mut *KEPT.lock().unwrap_or_else(PoisonError::into_inner));
    drop(kept);
}

impl Names {
    /// The names of a struct type's columns.
    ///
    /// # Errors
    /// When the type is no struct, or columns share a name.
    pub(super) fn of(py: Python<'_>, field: &FieldRef, index: PandasIndex) -> PyResult<Arc<Self>> {
        // The field that is kept cannot leave its address to another one.
        let is_field = |names: &&Arc<Self>| Arc::ptr_eq(&names.field, field) && names.index == index;
        if let Some(names) = KEPT.lock().unwrap_or_else(PoisonError::into_inner).iter().find(is_field) {
            return Ok(names.clone());
        }
        let columns = index.select(field, None)?;
        let names = columns.iter().map(|(_, column)| PyString::intern(py, column.name()).unbind()).collect();
        let positions = columns.iter().map(|(position, _)| *position).collect();
        let names = Arc::new(Self { field: field.clone(), index, positions, names });
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = (kept.len() >= MOST_SCHEMAS).then(|| kept.remove(0));
        kept.push(names.clone());
        drop(kept);
        drop(oldest);
        Ok(names)
    }

    /// The columns, with their positions.
    pub(super) fn columns(&self) -> impl Iterator<Item = (usize, &FieldRef)> + Clone {
        let fields = if let DataType::Struct(fields) = self.field.data_type() { fields.as_ref() } else { &[] };
        self.positions.iter().filter_map(|position| Some((*position, fields.get(*position)?)))
    }

    /// The names, in the order of the columns.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Py<PyString>> {
        self.names.iter()
    }
}
