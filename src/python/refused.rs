//! What the type of a stream tells to be wrong with the options, before anything of it is read: a stream that is read is lost.

use arrow_schema::FieldRef;
use pyo3::prelude::*;

use super::input::Unread;
use super::matrix::{Columns, MatrixKeywords, is_matrix, no_columns, request, spec};
use super::moving::Asked;
use super::options::ConversionOptions;
use crate::column::{require_copy, validity_bits};
use crate::convert::{matrix_stride, row_stride};
use crate::device::Device;
use crate::error::Error;
use crate::matrix::group_specs;
use crate::ragged::{Pad, check_ragged};
use crate::spec::{MatrixOptions, MatrixSpec, Spec, all_or_errors};
use crate::tensor::Output;

/// Refuses what [`to_tensor`](super::functions) would.
pub(super) fn as_one(
    &Unread { field, index, .. }: &Unread<'_>,
    columns: Option<&Vec<String>>,
    options: &ConversionOptions,
) -> PyResult<()> {
    if !is_matrix(field) && columns.is_some() {
        return Err(no_columns(field).into());
    }
    options.check_columns(field, columns.into_iter().flatten().map(String::as_str))?;
    if is_matrix(field) {
        spec(field, columns, index, options, None)?;
    } else {
        Spec::new(field, &options.of(field.name()))?;
    }
    Ok(())
}

/// As [`as_one`], for a result that is written into the memory of `out=`: of which only the number of rows is left to the data.
pub(super) fn as_output(
    &Unread { field, index, device }: &Unread<'_>,
    columns: Option<&Vec<String>>,
    options: &ConversionOptions,
    memory: &Output<'_>,
    asked: Asked,
) -> PyResult<()> {
    if !is_matrix(field) && columns.is_some() {
        return Err(no_columns(field).into());
    }
    options.check_columns(field, columns.into_iter().flatten().map(String::as_str))?;
    require_copy(options.copy())?;
    if device.is_some_and(Device::is_cpu) {
        memory.require_host()?;
        asked.require(Device::CPU)?;
    }
    let Some(rows) = memory.shape().first() else {
        let error = Error::argument("out has no dimension, and the result has one for its rows");
        return Err(error.remedy_is("pass an out of the result's shape").in_column(field.name()).into());
    };
    let rows = usize::try_from(*rows).unwrap_or_default();
    if is_matrix(field) {
        let made = spec(field, columns, index, options, Some(memory.dtype()))?;
        matrix_stride(&made.spec, rows, memory)?;
    } else {
        let mut options = options.of(field.name());
        options.dtype = options.dtype.or(Some(memory.dtype()));
        row_stride(&Spec::new(field, &options)?, rows, memory).map_err(|error| error.in_column(field.name()))?;
    }
    Ok(())
}

/// Refuses what [`to_ragged`](super::ragged) would.
pub(super) fn as_ragged(field: &FieldRef, pad: Option<Pad>, options: &ConversionOptions) -> PyResult<()> {
    options.check_columns(field, [])?;
    Ok(check_ragged(field, pad, &options.of(field.name()))?)
}

/// Refuses what [`to_tensors`](super::functions) would.
pub(super) fn as_named(
    &Unread { field, index, .. }: &Unread<'_>,
    columns: Option<&Columns>,
    matrix: &MatrixKeywords,
    options: &ConversionOptions,
) -> PyResult<()> {
    options.check_columns(field, columns.into_iter().flat_map(Columns::names))?;
    let columns = match columns {
        Some(Columns::Groups(groups)) => {
            group_specs(field, groups, &request(None, matrix, options), |name| options.of(name))?;
            return Ok(());
        }
        Some(Columns::Each(columns)) => columns.as_deref(),
        None => None,
    };
    let selected = index.select(field, columns)?.into_iter();
    Ok(all_or_errors(selected.map(|(_, column)| Spec::new(column, &options.of(column.name())))).map(drop)?)
}

/// Refuses what [`validity`](super::functions) would.
pub(super) fn as_validity(&Unread { field, .. }: &Unread<'_>, matrix: &MatrixOptions, bits: bool) -> PyResult<()> {
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
