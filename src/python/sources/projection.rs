//! Which columns a call reads of a source, and what is read of it instead of all of them.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};

use crate::spec::{Conversion, PathColumns};

/// Which columns a call reads of its sources.
#[derive(Clone, Debug)]
pub(in crate::python) enum Projection<'a> {
    /// All columns.
    All,
    /// Those that a conversion names.
    Of(&'a Conversion),
    /// Those that a conversion names, for a stream that outlives the call.
    Shared(Arc<Conversion>),
}

impl<'a> Projection<'a> {
    /// The columns that a conversion names.
    pub(in crate::python) fn of(conversion: &'a Conversion) -> Self {
        if conversion.selection.columns().next().is_some() { Self::Of(conversion) } else { Self::All }
    }

    /// The same columns, for a stream that outlives the call.
    pub(in crate::python) fn shared(&self) -> Projection<'static> {
        match self {
            Self::All => Projection::All,
            Self::Of(conversion) => Projection::Shared(Arc::new((*conversion).clone())),
            Self::Shared(conversion) => Projection::Shared(conversion.clone()),
        }
    }

    /// Whether all columns are read of any source.
    pub(in crate::python) fn is_all(&self) -> bool {
        matches!(self, Self::All)
    }

    /// The columns that are read of data of this type; `None` for all.
    pub(in crate::python) fn columns(&self, field: &FieldRef) -> Option<PathColumns> {
        let conversion = match self {
            Self::All => return None,
            Self::Of(conversion) => *conversion,
            Self::Shared(conversion) => conversion,
        };
        PathColumns::of_columns(field, conversion.columns_read(field)?)
    }
}

/// The names of the columns of a struct type.
pub(super) fn names(field: &Field) -> Vec<&str> {
    let DataType::Struct(fields) = field.data_type() else { return Vec::new() };
    fields.iter().map(|field| field.name().as_str()).collect()
}
