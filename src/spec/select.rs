//! Columns of a struct type, by name.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use arrow_schema::{DataType, FieldRef, Fields};

use crate::error::{Error, Result};

/// The columns of a struct type by name, each with its position; all of them if `columns` is `None`.
///
/// # Errors
/// When the type is no struct, or a name does not exist or is not unique.
pub(crate) fn select<'a>(field: &'a FieldRef, columns: Option<&[String]>) -> Result<Vec<(usize, &'a FieldRef)>> {
    let fields = struct_fields(field)?;
    // The position of each name; `None` where several columns have it.
    let mut positions: HashMap<&str, Option<usize>> = HashMap::with_capacity(fields.len());
    for (index, field) in fields.iter().enumerate() {
        match positions.entry(field.name()) {
            Entry::Vacant(entry) => drop(entry.insert(Some(index))),
            Entry::Occupied(mut entry) => drop(entry.insert(None)),
        }
    }
    let find = |name: &str| match positions.get(name) {
        Some(Some(index)) => fields.get(*index).map(|field| (*index, field)).ok_or_else(|| missing(name, fields)),
        Some(None) => {
            Err(Error::argument("more than one column has this name").remedy_is("rename one of them").in_column(name))
        }
        None => Err(missing(name, fields)),
    };
    match columns {
        Some(names) => names.iter().map(|name| find(name)).collect(),
        None => fields.iter().map(|field| find(field.name())).collect(),
    }
}

fn missing(name: &str, fields: &Fields) -> Error {
    let names: Vec<&str> = fields.iter().map(|field| field.name().as_str()).collect();
    Error::argument(format!("there is no column {name:?}; the columns are {names:?}"))
}

fn struct_fields(field: &FieldRef) -> Result<&Fields> {
    match field.data_type() {
        DataType::Struct(fields) => Ok(fields),
        other => Err(Error::argument(format!("an array of {other} has no columns")).remedy_is("pass it to to_tensor")),
    }
}
