//! Converts a stream while reading it, so that its arrays are not held together.

use arrow_schema::FieldRef;
use pyo3::intern;
use pyo3::prelude::*;

use super::input::{Unread, has_length};
use super::matrix::{Columns, MatrixKeywords, is_matrix, request, spec};
use super::options::ConversionOptions;
use crate::matrix::{StreamPart, group_specs};
use crate::spec::{MatrixOptions, MatrixSpec, PandasIndex, Spec};

/// The results of a stream, and how matrices among them are made.
pub(super) struct Making {
    pub(super) parts: Vec<StreamPart>,
    pub(super) options: MatrixOptions,
}

/// How a function's results are made of a stream whose type is known.
pub(super) type Makes<'a> = &'a dyn Fn(&Unread<'_>) -> PyResult<Making>;

/// Whether an object has its data in memory, whoever reads its stream: it tells how many bytes it has, as tables of pyarrow, arro3,
/// polars and pandas do. Nothing is saved by letting go of its arrays, and one pass over all of them is the fastest.
pub(super) fn is_in_memory(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let (kind, py) = (object.get_type(), object.py());
    let names = [intern!(py, "nbytes"), intern!(py, "estimated_size"), intern!(py, "memory_usage")];
    Ok(has_length(object)?
        && names.iter().map(|name| kind.hasattr(*name)).collect::<PyResult<Vec<_>>>()?.contains(&true))
}

/// What [`to_tensor`](super::functions) makes.
pub(super) fn as_one(
    &Unread { field, index, .. }: &Unread<'_>,
    columns: Option<&Vec<String>>,
    keywords: &MatrixKeywords,
    options: &ConversionOptions,
) -> PyResult<Making> {
    let part = if is_matrix(field) {
        StreamPart::Matrix(spec(field, columns, index, options, None)?.spec.clone())
    } else {
        let options = options.of(field.name());
        StreamPart::Column(None, Spec::new(field, &options)?, options)
    };
    Ok(Making { parts: vec![part], options: request(None, keywords, options) })
}

/// What [`to_tensors`](super::functions) makes.
pub(super) fn as_named(
    &Unread { field, index, .. }: &Unread<'_>,
    columns: Option<&Columns>,
    keywords: &MatrixKeywords,
    options: &ConversionOptions,
) -> PyResult<Making> {
    let matrix = request(None, keywords, options);
    let columns = match columns {
        Some(Columns::Groups(groups)) => {
            let specs = group_specs(field, groups, &matrix, |name| options.of(name))?;
            let parts = specs.into_iter().map(|(name, spec)| StreamPart::of_group(name, spec)).collect();
            return Ok(Making { parts, options: matrix });
        }
        Some(Columns::Each(columns)) => columns.as_deref(),
        None => None,
    };
    let column = |(position, column): (usize, &FieldRef)| {
        let options = options.of(column.name());
        Ok(StreamPart::Column(Some(position), Spec::new(column, &options)?, options))
    };
    let parts = index.select(field, columns)?.into_iter().map(column).collect::<crate::error::Result<_>>()?;
    Ok(Making { parts, options: matrix })
}

/// What [`validity`](super::functions) makes of several columns; nothing of one.
pub(super) fn as_validity(&Unread { field, .. }: &Unread<'_>, matrix: &MatrixOptions, bits: bool) -> PyResult<Making> {
    let mut parts = Vec::new();
    if is_matrix(field) && !bits {
        parts.push(StreamPart::Validity(MatrixSpec::of_validity(field, matrix.columns_of(field).as_deref())?));
    }
    Ok(Making { parts, options: matrix.clone() })
}

/// The names of what [`as_named`] makes.
pub(super) fn names<'a>(
    field: &'a FieldRef,
    index: PandasIndex,
    columns: Option<&'a Columns>,
) -> PyResult<Vec<&'a str>> {
    let columns = match columns {
        Some(Columns::Groups(groups)) => return Ok(groups.iter().map(|(name, _)| name.as_str()).collect()),
        Some(Columns::Each(columns)) => columns.as_deref(),
        None => None,
    };
    Ok(index.select(field, columns)?.into_iter().map(|(_, column)| column.name().as_str()).collect())
}
