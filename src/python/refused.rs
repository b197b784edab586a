//! What the type of a stream tells to be wrong with the options, before anything of it is read: a stream that is read is lost.

use arrow_schema::FieldRef;
use pyo3::prelude::*;

use super::matrix::{Columns, MatrixKeywords, is_matrix, no_columns, request, spec};
use super::options::ConversionOptions;
use crate::column::validity_bits;
use crate::matrix::group_specs;
use crate::spec::{MatrixOptions, MatrixSpec, PandasIndex, Spec, select};

/// Refuses what [`to_tensor`](super::functions) would. Without a dtype of its own, the memory of `out=` decides more.
pub(super) fn as_one(
    field: &FieldRef,
    index: PandasIndex,
    columns: Option<&Vec<String>>,
    options: &ConversionOptions,
    to_out: bool,
) -> PyResult<()> {
    if !is_matrix(field) && columns.is_some() {
        return Err(no_columns(field).into());
    }
    options.check_columns(field)?;
    if is_matrix(field) && to_out {
        select(field, columns.map(Vec::as_slice))?;
    } else if is_matrix(field) {
        spec(field, columns, index, options, None)?;
    } else if !to_out {
        Spec::new(field, &options.of(field.name()))?;
    }
    Ok(())
}

/// Refuses what [`to_tensors`](super::functions) would.
pub(super) fn as_named(
    field: &FieldRef,
    index: PandasIndex,
    columns: Option<&Columns>,
    matrix: &MatrixKeywords,
    options: &ConversionOptions,
) -> PyResult<()> {
    options.check_columns(field)?;
    let columns = match columns {
        Some(Columns::Groups(groups)) => {
            group_specs(field, groups, &request(None, matrix, options), |name| options.of(name))?;
            return Ok(());
        }
        Some(Columns::Each(columns)) => columns.as_deref(),
        None => None,
    };
    for (_, column) in index.select(field, columns)? {
        Spec::new(column, &options.of(column.name()))?;
    }
    Ok(())
}

/// Refuses what [`validity`](super::functions) would.
pub(super) fn as_validity(field: &FieldRef, matrix: &MatrixOptions, bits: bool) -> PyResult<()> {
    if !is_matrix(field) && matrix.columns.is_some() {
        return Err(no_columns(field).into());
    }
    if bits {
        validity_bits(field, &[])?;
    } else if is_matrix(field) {
        MatrixSpec::of_validity(field, matrix.columns_of(field).as_deref())?;
    } else {
        Spec::of_validity(field)?;
    }
    Ok(())
}
