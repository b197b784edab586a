//! Which columns a call reads of a source, and what is read of it instead of all of them.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};

use crate::spec::{Conversion, PathColumns};

/// Which columns a call reads: those that its conversion names. Copies share the conversion.
#[derive(Clone, Debug)]
pub(in crate::python) struct Projection(Option<Arc<Conversion>>);

impl Projection {
    /// All columns.
    pub(in crate::python) fn all() -> Self {
        Self(None)
    }

    /// The columns that a conversion names.
    pub(in crate::python) fn of(conversion: &Conversion) -> Self {
        // Most calls name none, and need no copy of the options.
        let is_some = conversion.selection.columns().next().is_some();
        Self(is_some.then(|| Arc::new(conversion.clone())))
    }

    /// Whether all columns are read of any source.
    pub(in crate::python) fn is_all(&self) -> bool {
        self.0.is_none()
    }

    /// The columns that are read of data of this type; `None` for all.
    pub(in crate::python) fn columns(&self, field: &FieldRef) -> Option<PathColumns> {
        PathColumns::of_columns(field, self.0.as_ref()?.columns_read(field)?)
    }
}

/// The names of the columns of a struct type.
pub(super) fn names(field: &Field) -> Vec<&str> {
    let DataType::Struct(fields) = field.data_type() else { return Vec::new() };
    fields.iter().map(|field| field.name().as_str()).collect()
}
