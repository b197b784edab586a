//! Converts lists and strings to values and offsets.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};

use super::level::{Level, RaggedPart, null_row, record_or_refuse, row_validity};
#[cfg(feature = "python")]
use super::pad::Pad;
use super::variable_shape::{self, VariableShape};
#[cfg(feature = "python")]
use super::{PartPlan, plan_padded, plan_schema};
use super::{Ragged, Values, on_device};
use crate::alloc::fallible;
use crate::arrow::{DeviceArray, Mask, ViewChunk};
use crate::column::{ColumnRef, check_types, convert_chunks, require_host, run_here, to_arrow};
use crate::convert::{bytes_of_views, collect_ints, decode, zero};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::spec::{CopyMode, NullPolicy, Options, Spec};
use crate::tensor::Tensor;

/// Converts an array of lists, strings or `arrow.variable_shape_tensor` into values and offsets: views where layout and
/// options allow it.
///
/// `options` apply to the elements. Nulls of rows are an error, are told by [`Ragged::validity`] when they are kept, and
/// are empty rows when null elements are filled.
///
/// # Errors
/// With the column's name, the reason and a remedy, as [`crate::to_tensor`]; when offsets lead out of the elements.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{ListArray, types::Float32Type};
/// use arrow_dlpack::{DeviceArray, Options, to_ragged};
/// use arrow_schema::{DataType, Field};
///
/// let rows = [vec![Some(1.0), Some(2.0)], vec![], vec![Some(3.0)]].map(Some);
/// let lists = ListArray::from_iter_primitive::<Float32Type, _, _>(rows);
/// let field = Arc::new(Field::new("x", arrow_array::Array::data_type(&lists).clone(), true));
/// let ragged = to_ragged(&DeviceArray::from_arrow(&lists, field)?, &Options::default())?;
/// assert_eq!(ragged.values().as_tensor().unwrap().as_slice::<f32>()?, [1.0, 2.0, 3.0]);
/// assert_eq!(ragged.offsets().as_slice::<i32>()?, [0, 2, 2, 3]);
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
pub fn to_ragged(array: &DeviceArray, options: &Options) -> Result<Ragged> {
    chunks_to_ragged(array.field(), std::slice::from_ref(array), options)
}

/// As [`to_ragged`], for the chunks of a column, whose values and offsets are joined by a copy.
///
/// # Errors
/// When a chunk's field is of another type than `field`, or as [`to_ragged`].
pub fn chunks_to_ragged(field: &FieldRef, chunks: &[DeviceArray], options: &Options) -> Result<Ragged> {
    let convert = || {
        // What no data could make possible fails before any is looked at.
        leaf_spec(field, options)?;
        if let Some(readiness) = DeviceArray::readiness_of(chunks) {
            check_types(field, chunks)?;
            return on_device::convert(field, chunks, options, readiness);
        }
        convert(field, &parts(field, chunks)?, options)
    };
    convert().map_err(|error| error.in_column(field.name()))
}

/// Refuses what no data of this field could make possible: rows, or with `pad` rows of one length.
///
/// # Errors
/// Names the column.
#[cfg(feature = "python")]
pub(crate) fn check_ragged(field: &FieldRef, pad: Option<Pad>, options: &Options) -> Result<()> {
    let check = || match pad {
        Some(pad) => refused_part(plan_padded(field, None, pad, options)?),
        None if options.copy == CopyMode::Never => refused_part(plan_schema(field, options, true)?),
        None => leaf_spec(field, options).map(drop),
    };
    check().map_err(|error| error.in_column(field.name()))
}

#[cfg(feature = "python")]
fn refused_part(parts: Vec<PartPlan>) -> Result<()> {
    parts.into_iter().try_for_each(|part| part.error.map_or(Ok(()), Err))
}

/// The chunks of a column, in host memory and of its type.
pub(super) fn parts(field: &FieldRef, chunks: &[DeviceArray]) -> Result<Vec<RaggedPart>> {
    check_types(field, chunks)?;
    let part = |chunk: &DeviceArray| {
        require_host(chunk.device(), field.name())?;
        Ok(RaggedPart { array: chunk.clone(), hidden: None })
    };
    chunks.iter().map(part).collect()
}

/// The field of a row's elements, under the column's name; `None` where the type has no rows of different lengths.
pub(super) fn item_field(field: &FieldRef) -> Option<FieldRef> {
    let item = match field.data_type() {
        DataType::List(item) | DataType::LargeList(item) | DataType::ListView(item) | DataType::LargeListView(item) => {
            item.as_ref().clone().with_name(field.name())
        }
        DataType::Utf8
        | DataType::LargeUtf8
        | DataType::Utf8View
        | DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView => Field::new(field.name(), DataType::UInt8, false),
        _ => return None,
    };
    Some(Arc::new(item))
}

/// The spec of the innermost elements.
pub(super) fn leaf_spec(field: &FieldRef, options: &Options) -> Result<Spec> {
    let tensor = VariableShape::of(field)?;
    let rows = tensor.as_ref().map_or(field, |tensor| tensor.data.1);
    let item = item_field(rows).ok_or_else(|| unsupported(rows.data_type()))?;
    let is_nested = item_field(&item).is_some();
    let spec = if is_nested { leaf_spec(&item, options) } else { Spec::new(&item, options) }?;
    if tensor.is_some() && (is_nested || !spec.inner_shape().is_empty()) {
        let reason = format!("{} of {}", variable_shape::NAME, item.data_type());
        return Err(Error::unsupported(reason).remedy_is("pass the field data of its storage"));
    }
    Ok(spec)
}

pub(super) fn unsupported(data_type: &DataType) -> Error {
    let remedy = match data_type {
        DataType::Struct(_) => "pick one of its columns",
        DataType::Dictionary(_, _) => "cast the column to the dictionary's value type first",
        DataType::Map(_, _) | DataType::Union(_, _) => "extract the children that hold lists first",
        _ => "its rows have one length: pass it to to_tensor",
    };
    Error::unsupported(format!("Arrow type {data_type} has no ragged form")).remedy_is(remedy)
}

fn convert(field: &FieldRef, parts: &[RaggedPart], options: &Options) -> Result<Ragged> {
    if let Some(tensor) = VariableShape::of(field)? {
        return with_shapes(field, &tensor, parts, options);
    }
    match (field.data_type(), item_field(field)) {
        (DataType::Utf8View | DataType::BinaryView, _) => views(field, parts, options),
        (_, Some(item)) => lists(field, &item, parts, options),
        (other, None) => Err(unsupported(other)),
    }
}

fn lists(field: &FieldRef, item: &FieldRef, parts: &[RaggedPart], options: &Options) -> Result<Ragged> {
    let level = Level::new(field, parts, options)?;
    let validity = if options.nulls == NullPolicy::Keep { Some(level.validity()?) } else { None };
    let (offsets, lengths) = (level.offsets()?, level.lengths()?);
    let items = level.items(item, |array| hiding_matters(item, array, options))?;
    let values = if item_field(item).is_some() {
        convert(item, &items, options).map(Values::from)
    } else {
        leaf(item, &items, options).map(Values::from)
    };
    let values = values.map_err(|error| in_row(&level, item, options, error))?;
    Ok(Ragged { values, offsets, lengths, shapes: None, validity, field: Some(field.clone()) })
}

/// The error of an element, at the row that has it.
pub(super) fn in_row(level: &Level<'_>, item: &FieldRef, options: &Options, error: Error) -> Error {
    // Rows of list views stand in any order: the first null is not that of the first row that has one.
    let has_null =
        |row: &[RaggedPart]| leaf_column(item, row, options).is_err_and(|error| error.kind() == ErrorKind::Null);
    let is_null_anywhere = error.kind() == ErrorKind::Null && level.has_lengths();
    let first = if is_null_anywhere { level.first_row(item, has_null) } else { None };
    match first.or_else(|| error.row().and_then(|element| level.row_of(element))) {
        Some(row) => error.at_row(row),
        None => error,
    }
}

/// Converts elements that are no rows themselves. Nulls that no row shows count as none.
fn leaf(item: &FieldRef, parts: &[RaggedPart], options: &Options) -> Result<Tensor> {
    let (spec, arrays, options) = leaf_column(item, parts, options)?;
    let chunks: Vec<_> = arrays.iter().map(ColumnRef::whole).collect();
    convert_chunks(&spec, &chunks, &options, &run_here)
}

/// Whether anything depends on which elements are hidden: rows do, and of leaves nulls and what a cast may refuse.
pub(super) fn hiding_matters(item: &FieldRef, array: &DeviceArray, options: &Options) -> Result<bool> {
    if item_field(item).is_some() {
        return Ok(true);
    }
    let spec = Spec::new(item, options)?;
    Ok(spec.is_cast() || with_nulls(array, &spec, |nulls| nulls.is_some())?)
}

/// Calls `look` with the nulls of elements, those that runs or a dictionary stand for included; `None` where none is.
fn with_nulls<R>(array: &DeviceArray, spec: &Spec, look: impl FnOnce(Option<&Mask<'_>>) -> R) -> Result<R> {
    let decoded = spec.decoded().map(|field| decode(array, field)).transpose()?;
    let chunk = ColumnRef::whole(decoded.as_ref().unwrap_or(array)).chunk(spec)?;
    Ok(look(chunk.mask.as_ref()))
}

/// Elements as a column of their own, with the options that are left to it.
pub(super) fn leaf_column(
    item: &FieldRef,
    parts: &[RaggedPart],
    options: &Options,
) -> Result<(Spec, Vec<DeviceArray>, Options)> {
    let spec = Spec::new(item, options)?;
    let (mut nulls, mut first_null, mut first) = (0, None, 0);
    for part in parts {
        let count = |element: usize| {
            let index = element / spec.row_elements().max(1);
            if !part.is_hidden(index) {
                nulls += 1;
                first_null = first_null.or(Some(first + index));
            }
        };
        with_nulls(&part.array, &spec, |mask| mask.map_or((), |mask| mask.for_each_null(count)))?;
        first += part.array.len();
    }
    if let (Some(element), NullPolicy::Error) = (first_null, options.nulls) {
        return Err(null_elements(&spec, nulls).at_row(element));
    }
    let unfilled = options.nulls == NullPolicy::Error || nulls == 0;
    let options = if unfilled { options.clone().nulls(NullPolicy::Keep) } else { options.clone() };
    let spec = Spec::new(item, &options)?;
    // A cast must not fail for what no row shows.
    let visible = |part: &RaggedPart| match &part.hidden {
        Some(hidden) if spec.is_cast() => part.array.hiding(hidden),
        _ => Ok(part.array.clone()),
    };
    let arrays = parts.iter().map(visible).collect::<Result<Vec<_>>>()?;
    Ok((spec, arrays, options))
}

/// The error for null elements.
pub(super) fn null_elements(spec: &Spec, nulls: usize) -> Error {
    let reason = format!("{nulls} null element{}, the first one here", if nulls == 1 { "" } else { "s" });
    let is_float = spec.dtype().kind() == crate::dtype::Kind::Float;
    Error::new(ErrorKind::Null, reason).remedy_is(if is_float {
        Remedy::NanFillOrKeepElements
    } else {
        Remedy::FillOrKeepElements
    })
}

pub(super) const GATHERED: &str = "views gathered";

/// Views of strings are gathered: they lie in any order, some of them inside the views themselves.
fn views(field: &FieldRef, parts: &[RaggedPart], options: &Options) -> Result<Ragged> {
    let item = item_field(field).ok_or_else(|| unsupported(field.data_type()))?;
    let chunks = parts.iter().map(|part| part.array.views()).collect::<Result<Vec<ViewChunk<'_>>>>()?;
    let rows: usize = chunks.iter().map(ViewChunk::rows).sum();
    let shown = |chunk: usize, row: usize| !parts.get(chunk).is_some_and(|part| part.is_hidden(row));
    let mut lengths: Vec<Option<usize>> = fallible::with_room(rows)?;
    for (number, chunk) in chunks.iter().enumerate() {
        for row in 0..chunk.rows() {
            let at = lengths.len();
            let is_shown = shown(number, row);
            let bytes = if is_shown { chunk.bytes(row).map_err(|error| error.at_row(at))? } else { None };
            let length = bytes.map(<[u8]>::len);
            if is_shown && length.is_none() && options.nulls == NullPolicy::Error {
                return Err(null_row(at));
            }
            lengths.push(length);
        }
    }
    let flags = lengths.iter().map(Option::is_some);
    let validity = (options.nulls == NullPolicy::Keep).then(|| row_validity(field, rows, flags)).transpose()?;
    let total = lengths.iter().flatten().try_fold(0_usize, |total, length| total.checked_add(*length));
    let total = total.ok_or_else(|| Error::new(ErrorKind::Memory, "the strings are larger than memory can be"))?;
    let gathered = [GATHERED.to_owned()];
    let mut end = 0;
    let ends = lengths.iter().map(|length| {
        end += length.unwrap_or(0);
        end
    });
    let shared = options.copy != CopyMode::Always && !options.writable;
    let offsets = if rows == 0 && shared {
        zero(DType::Int64)?
    } else {
        let count = if rows == 0 { 0 } else { rows + 1 };
        record_or_refuse(field, options, "offsets", &gathered, count, DType::Int64)?;
        collect_ints(DType::Int64, rows + 1, std::iter::once(0).chain(ends))?
    };
    record_or_refuse(field, options, "values", &gathered, total, DType::UInt8)?;
    let mut at = 0;
    let bytes = chunks.iter().enumerate().flat_map(|(number, chunk)| {
        (0..chunk.rows()).map(move |row| if shown(number, row) { chunk.bytes(row) } else { Ok(None) })
    });
    let bytes = bytes.map(|bytes| {
        at += 1;
        bytes.map_err(|error| error.at_row(at - 1))
    });
    let values = bytes_of_views(total, bytes)?;
    let spec = Spec::new(&item, options)?;
    let values = if spec.is_cast() {
        let array = to_arrow(&values, None, CopyMode::IfNeeded)?.relabel(item)?;
        // The bytes are ours already.
        let options = options.clone().copy(CopyMode::IfNeeded).writable(false).nulls(NullPolicy::Keep);
        let spec = Spec::new(array.field(), &options)?;
        convert_chunks(&spec, &[ColumnRef::whole(&array)], &options, &run_here)?
    } else {
        values
    };
    Ok(Ragged { values: values.into(), offsets, lengths: None, shapes: None, validity, field: Some(field.clone()) })
}

/// `arrow.variable_shape_tensor`: a list of elements and a shape in each row.
fn with_shapes(
    field: &FieldRef,
    tensor: &VariableShape<'_>,
    parts: &[RaggedPart],
    options: &Options,
) -> Result<Ragged> {
    let (data_field, data) = struct_column(field, tensor.data, parts)?;
    let item = item_field(&data_field).ok_or_else(|| unsupported(data_field.data_type()))?;
    let ragged = lists(&data_field, &item, &data, options)?;
    let (shape_field, shape) = struct_column(field, tensor.shape, parts)?;
    let arrays: Vec<_> = shape.into_iter().map(|part| part.array).collect();
    let own = Options::default().copy(options.copy).writable(options.writable).nulls(NullPolicy::Keep);
    let shapes = crate::column::chunks_to_tensor(&shape_field, &arrays, &own)?;
    let ragged = Ragged { shapes: Some(shapes), field: Some(field.clone()), ..ragged };
    // Which rows have elements and a shape to speak of: neither null nor under a null row.
    let mut shown = fallible::with_room(ragged.len())?;
    let spec = Spec::new(&shape_field, &own)?;
    for (part, array) in data.iter().zip(&arrays) {
        let list = part.array.lists()?;
        let mask = ColumnRef::whole(array).chunk(&spec)?.mask;
        for row in 0..part.array.len() {
            let elements = row * spec.row_elements()..(row + 1) * spec.row_elements();
            let is_shown = !list.is_null(row) && !part.is_hidden(row);
            if !is_shown && options.nulls != NullPolicy::Keep {
                // An empty row has no place in a shape that is not.
                return Err(null_row(shown.len()).remedy_is(Remedy::KeepRows));
            }
            if is_shown && mask.as_ref().is_some_and(|mask| elements.into_iter().any(|at| !mask.is_valid(at))) {
                return Err(Error::invalid("the shape of a tensor is null").at_row(shown.len()));
            }
            shown.push(is_shown);
        }
    }
    let is_shown = |row: usize| shown.get(row).copied().unwrap_or(false);
    variable_shape::check_rows(&ragged, is_shown)?;
    check_uniform(&ragged, &tensor.uniform, is_shown)?;
    Ok(ragged)
}

/// A field of a struct as a column, under the struct's name.
pub(super) fn struct_column(
    field: &FieldRef,
    (index, own): (usize, &FieldRef),
    parts: &[RaggedPart],
) -> Result<(FieldRef, Vec<RaggedPart>)> {
    let field = Arc::new(own.as_ref().clone().with_name(field.name()));
    let part = |part: &RaggedPart| {
        let array = part.array.column(index)?.relabel(field.clone())?;
        Ok(RaggedPart { array, hidden: part.hidden.clone() })
    };
    parts.iter().map(part).collect::<Result<Vec<_>>>().map(|parts| (field.clone(), parts))
}

/// Checks the extents that the type says are those of every row.
fn check_uniform(ragged: &Ragged, uniform: &[Option<i64>], shown: impl Fn(usize) -> bool) -> Result<()> {
    let Some(shapes) = ragged.shapes.as_ref().filter(|_| !uniform.is_empty()) else { return Ok(()) };
    for (row, shape) in shapes.peek::<i32>()?.chunks(uniform.len()).enumerate().filter(|(row, _)| shown(*row)) {
        let fits = shape.iter().zip(uniform).all(|(own, all)| all.is_none_or(|all| all == i64::from(*own)));
        if !fits {
            let reason = format!("the shape {shape:?}, and the type's uniform_shape is {uniform:?}");
            return Err(Error::invalid(reason).at_row(row));
        }
    }
    Ok(())
}
