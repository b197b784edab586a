//! The function `to_arrow`.

use std::collections::HashMap;

use arrow_schema::{DataType, FieldRef};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};

use super::answers::{answer, mapping};
use super::arrow_input;
use super::exchange::memory;
use super::input::{self, InputChunks};
use super::options::{copy_mode, key};
use super::sources::{Reads, name_of, remedy};
use super::stream::wrap;
use super::{Ragged, counts, device, tensor_input};
use crate::column::{check_row_bools, row_bools};
use crate::conversion::ArrowConversion;
use crate::device::Device;
use crate::error::{Counted, Error};
use crate::explain::Report;
use crate::matrix::ColumnOptions;
use crate::spec::CopyMode;
use crate::tensor::Tensor;

/// Converts a tensor or a Ragged to an Arrow array; with names, a matrix to a record batch of its columns.
///
/// Rows of n-dimensional tensors become arrow.fixed_shape_tensor, a 0-dimensional tensor one row, bools
/// arrow.bool8. The result is a view if the layout allows it: the columns of a matrix must be dense, as those of a
/// column-major one are. One pass splits a row-major matrix.
///
/// A tensor that came from Arrow returns to the type of its column, but for these: lists with `length=` become
/// fixed-size lists, runs and dictionaries with dictionary="values" their values, and values in another dtype or
/// `unit=` that dtype's type. Bools are packed to bits again, which is a copy. Nulls that nulls="keep" kept return as
/// values, unless `validity` is passed: `to_arrow(x, validity=ad.validity(column))`. Of values that were written to it
/// since, only codes are compared with what their type allows.
///
/// x: an object with `__dlpack__`, or a Ragged, which becomes a list array.
/// type: the Arrow type or field of the result; a value that it cannot hold exactly is an error, such as 0.1 of
///     float64 as float32. With names it is that of every column, or a schema with these names, a dict by name, or a
///     list, in which None keeps a column's own type.
/// validity: a bool per row, True where it is valid, which becomes the validity bitmap, also under copy=False. With
///     names also of shape (rows, columns): a bitmap for each column.
/// names: the names of the matrix's columns, all different. If it has more dimensions, the rows of a column
///     have the rest.
/// copy: None copies if needed, False never (an error instead), True always.
/// device: the device of the result. The data is moved there.
/// allocator: as for `to_tensor`.
/// threads: the number of threads that split a matrix; None is ARROW_DLPACK_THREADS, or one per core.
///
/// Raises ConversionError (a BufferError and a ValueError), which names reason and remedy, and column and row where
/// one is at fault; TypeError for an object that is not a tensor.
#[pyfunction]
#[pyo3(signature = (x, *, r#type=None, validity=None, names=None, copy=None, device=None, allocator=None, threads=None), text_signature = "(x, *, type=None, validity=None, names=None, copy=None, device=None, allocator=None, threads=None)")]
#[allow(clippy::too_many_arguments, reason = "one Python keyword each")]
pub(super) fn to_arrow<'py>(
    py: Python<'py>,
    x: &Bound<'py, PyAny>,
    r#type: Option<&Bound<'py, PyAny>>,
    validity: Option<&Bound<'py, PyAny>>,
    names: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
    device: Option<&Bound<'py, PyAny>>,
    allocator: Option<&Bound<'py, PyAny>>,
    threads: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let _source = memory::scope(allocator, None)?;
    let device = device.map(device::extract).transpose()?;
    let mut conversion = conversion_of(r#type, names, copy, device)?;
    conversion.options.threads = threads.map(counts::threads).transpose()?;
    if let Ok(ragged) = x.cast_exact::<Ragged>() {
        return super::ragged::to_arrow(ragged, &conversion, validity.is_some());
    }
    let (host, copy) = (conversion.reads_on(), conversion.options.copy);
    // Misaligned elements of a matrix, and of what goes to the host, are moved once, with the others.
    let tensor = match conversion.names.is_some() || host.is_some() {
        true => tensor_input::dlpack_unmoved(x, host, copy)?,
        false => tensor_input::dlpack_to_convert(x, copy.once())?,
    };
    let tensor = tensor.map_or_else(|| Err(no_tensor(x)), Ok)?;
    // Read last: it may be a stream, which a wrong option must not consume.
    if let Some(validity) = validity {
        conversion.check_before_validity(&tensor)?;
        conversion.options.validity = Some(validity_tensor(validity)?);
    }
    wrap(py, py.detach(|| conversion.convert(&tensor))?)
}

/// Reports what [`to_arrow`] would do to a tensor; `has_validity`: with a bool for each row.
pub(super) fn explain_to_arrow(
    x: &Bound<'_, PyAny>,
    r#type: Option<&Bound<'_, PyAny>>,
    names: Option<&Bound<'_, PyAny>>,
    has_validity: bool,
    copy: Option<bool>,
    device: Option<Device>,
) -> PyResult<Report> {
    let conversion = conversion_of(r#type, names, copy, device)?;
    if let Ok(rows) = x.cast_exact::<Ragged>() {
        return super::ragged::explain_to_arrow(rows, &conversion, has_validity);
    }
    let tensor = tensor_input::dlpack_as_it_is(x, None, CopyMode::IfNeeded)?;
    let tensor = tensor.map_or_else(|| Err(no_tensor(x)), Ok)?;
    Ok(conversion.explain(&tensor, has_validity)?)
}

/// What is asked for; threads and validity come later.
fn conversion_of(
    r#type: Option<&Bound<'_, PyAny>>,
    names: Option<&Bound<'_, PyAny>>,
    copy: Option<bool>,
    device: Option<Device>,
) -> PyResult<ArrowConversion> {
    let mut options = ColumnOptions::default().copy(copy_mode(copy));
    let names = names.map(read_names).transpose()?;
    match (r#type, &names) {
        (Some(object), Some(names)) => (options.types, options.metadata) = read_types(object, names)?,
        (Some(object), None) => options.types = vec![Some(read_type(object)?)],
        (None, _) => {}
    }
    Ok(ArrowConversion { names, options, device })
}

/// The error for an object that is no tensor.
fn no_tensor(x: &Bound<'_, PyAny>) -> PyErr {
    let error = |remedy: String| {
        let found = name_of(x);
        PyTypeError::new_err(format!("to_arrow expects a tensor (with __dlpack__), got {found}{remedy}"))
    };
    remedy(x, Reads::TensorsForArrow).map_or_else(|ended| ended, error)
}

/// A validity argument as a bool tensor: a tensor of bools, or a boolean array.
fn validity_tensor(object: &Bound<'_, PyAny>) -> PyResult<Tensor> {
    if let Some(input) = arrow_input::arrow_unless(object, &|unread| Ok(check_row_bools(unread.field)?))? {
        let chunks = InputChunks::of_arrow(object.py(), input)?;
        return Ok(row_bools(chunks.field(), &chunks.arrays)?);
    }
    input::import_dlpack(object, None, CopyMode::IfNeeded)?.ok_or_else(|| {
        let error = |remedy| {
            let found = name_of(object);
            PyTypeError::new_err(format!("validity must be an array of a bool for each row, and is a {found}{remedy}"))
        };
        remedy(object, Reads::Arrow).map_or_else(|ended| ended, error)
    })
}

/// The names of columns: any iterable of them but a str, which is one of letters.
fn read_names(object: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let wrong = |what: &str| PyTypeError::new_err(format!("names must be a list of str, and {what}"));
    if object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>() {
        return Err(wrong(&format!("is {}", object.repr()?)));
    }
    let name = |name: PyResult<Bound<'_, PyAny>>| {
        let name = name?;
        match name.cast::<PyString>() {
            Ok(name) => Ok(name.to_str()?.to_owned()),
            Err(_) => Err(wrong(&format!("has {}", name.repr()?))),
        }
    };
    match answer(object.py(), object.try_iter())? {
        Some(names) => names.map(name).collect(),
        None => Err(wrong(&format!("is {}", object.repr()?))),
    }
}

fn read_type(object: &Bound<'_, PyAny>) -> PyResult<FieldRef> {
    input::schema(object)?
        .ok_or_else(|| PyTypeError::new_err("type must be an Arrow type or field, with __arrow_c_schema__"))
}

/// The type of each column, and the metadata of their schema.
type Types = (Vec<Option<FieldRef>>, HashMap<String, String>);

/// Reads the types of columns: one for all, a schema, a dict by name, or one each.
fn read_types(object: &Bound<'_, PyAny>, names: &[String]) -> PyResult<Types> {
    let or_own = |object: Bound<'_, PyAny>| match object.is_none() {
        true => Ok(None),
        false => read_type(&object).map(Some),
    };
    // A schema of polars is a dict, too.
    let is_schema = object.hasattr(intern!(object.py(), "__arrow_c_schema__"))?;
    if !is_schema && let Some(by_name) = mapping(object)? {
        let mut types: Vec<_> = names.iter().map(|_| None).collect();
        for (name, object) in by_name {
            let name = key("type", &name)?;
            let position = names.iter().position(|own| *own == name);
            let slot = position.and_then(|position| types.get_mut(position)).ok_or_else(|| {
                PyErr::from(Error::argument(format!("type names {name:?}, and the columns are {names:?}")))
            })?;
            *slot = or_own(object)?;
        }
        return Ok((types, HashMap::new()));
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        let types = object.try_iter()?.map(|object| or_own(object?)).collect::<PyResult<Vec<_>>>()?;
        if types.len() != names.len() {
            let reason = format!("{} for {}", Counted(types.len(), "type"), Counted(names.len(), "column"));
            return Err(Error::argument(reason).remedy_is("pass None for columns that keep their own type").into());
        }
        return Ok((types, HashMap::new()));
    }
    let field = read_type(object)?;
    let DataType::Struct(fields) = field.data_type() else {
        return Ok((names.iter().map(|_| Some(field.clone())).collect(), HashMap::new()));
    };
    if !fields.iter().map(|field| field.name()).eq(names) {
        let own: Vec<_> = fields.iter().map(|field| field.name()).collect();
        let error = Error::argument(format!("type has the fields {own:?}, and names are {names:?}"));
        return Err(error.remedy_is("pass a schema with the same names in the same order").into());
    }
    let metadata = field.metadata().iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    Ok((fields.iter().cloned().map(Some).collect(), metadata))
}
