//! Validates options against the schema before a stream is consumed.

use arrow_schema::FieldRef;
use pyo3::prelude::*;

use super::device_request::DeviceRequest;
use super::input::Unread;
use super::matrix::{Columns, MatrixKeywords, is_matrix, no_columns, request, spec};
use super::options::ConversionOptions;
use super::sources::is_read_again;
use crate::column::{require_copy, validity_bits};
use crate::convert::{matrix_stride, row_stride};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::matrix::{GroupSpec, group_specs};
use crate::ragged::{Pad, check_ragged};
use crate::spec::{CopyMode, MatrixOptions, MatrixSpec, Spec, all_or_errors, require_view};
use crate::tensor::Output;

/// Refuses what [`to_tensor`](super::functions) would.
pub(super) fn as_one(
    object: &Bound<'_, PyAny>,
    &Unread { field, index, .. }: &Unread<'_>,
    columns: Option<&Vec<String>>,
    options: &ConversionOptions,
) -> PyResult<()> {
    if !is_matrix(field) && columns.is_some() {
        return Err(no_columns(field).into());
    }
    options.check_columns(field, columns.into_iter().flatten().map(String::as_str))?;
    let is_lost = is_lost(object, options)?;
    if is_matrix(field) {
        let made = spec(field, columns, index, options, None)?;
        return if is_lost { Ok(require_matrix_view(&made.spec, options)?) } else { Ok(()) };
    }
    let options = options.of(field.name());
    let spec = Spec::new(field, &options)?;
    if is_lost { Ok(require_view(&spec, &options)?) } else { Ok(()) }
}

/// Whether the rows of an object are lost where a copy is refused after they were read. Of data in hand the chunks decide.
fn is_lost(object: &Bound<'_, PyAny>, options: &ConversionOptions) -> PyResult<bool> {
    Ok(options.copy() == CopyMode::Never && !is_read_again(object)?)
}

/// Refuses a matrix whose columns are always copied, where no copy is allowed.
fn require_matrix_view(spec: &MatrixSpec, options: &ConversionOptions) -> Result<()> {
    let required = spec.columns().iter().map(|(_, column)| require_view(column, &options.of(column.field().name())));
    all_or_errors(required).map(drop)
}

/// As [`as_one`], for a result that is written into the memory of `out=`: of which only the number of rows is left to the data.
pub(super) fn as_output(
    &Unread { field, index, device }: &Unread<'_>,
    columns: Option<&Vec<String>>,
    options: &ConversionOptions,
    memory: &Output<'_>,
    asked: DeviceRequest,
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
pub(super) fn as_ragged(
    object: &Bound<'_, PyAny>,
    field: &FieldRef,
    pad: Option<Pad>,
    options: &ConversionOptions,
) -> PyResult<()> {
    options.check_columns(field, [])?;
    let copy = if is_lost(object, options)? { CopyMode::Never } else { CopyMode::IfNeeded };
    Ok(check_ragged(field, pad, &options.of(field.name()).copy(copy))?)
}

/// Refuses what [`to_tensors`](super::functions) would.
pub(super) fn as_named(
    object: &Bound<'_, PyAny>,
    &Unread { field, index, .. }: &Unread<'_>,
    columns: Option<&Columns>,
    matrix: &MatrixKeywords,
    options: &ConversionOptions,
) -> PyResult<()> {
    options.check_columns(field, columns.into_iter().flat_map(Columns::names))?;
    let is_lost = is_lost(object, options)?;
    let columns = match columns {
        Some(Columns::Groups(groups)) => {
            let specs = group_specs(field, groups, &request(None, matrix, options), |name| options.of(name))?;
            let required = specs.iter().map(|(name, spec)| {
                let required = match spec {
                    _ if !is_lost => Ok(()),
                    GroupSpec::Column(_, column, options) => require_view(column, options),
                    GroupSpec::Matrix(spec) => require_matrix_view(spec, options),
                };
                required.map_err(|error| error.in_group(name))
            });
            return Ok(all_or_errors(required).map(drop)?);
        }
        Some(Columns::Each(columns)) => columns.as_deref(),
        None => None,
    };
    let selected = index.select(field, columns)?.into_iter();
    let specs = selected.map(|(_, column)| {
        let options = options.of(column.name());
        Ok((Spec::new(column, &options)?, options))
    });
    let specs = all_or_errors(specs)?;
    let required = specs.iter().map(|(spec, options)| if is_lost { require_view(spec, options) } else { Ok(()) });
    Ok(all_or_errors(required).map(drop)?)
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
