//! Arrays and tensors as series and frames.
#![allow(unsafe_code, reason = "moves exported C structs to polars")]

use std::mem::ManuallyDrop;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array as _, ArrayRef, FixedSizeListArray};
use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::{DataType as ArrowType, Field, FieldRef};
use polars_arrow::array::{Array, new_empty_array};
use polars_arrow::datatypes::{ArrowDataType, Field as PolarsField};
use polars_arrow::ffi::ArrowArray as PolarsStruct;
use polars_core::prelude::{Column, DataFrame, IntoColumn, PolarsError, Series};

use super::caught::caught;
use super::readable::{has_codes, polars_field, readable};
use crate::alloc::fallible;
use crate::arrow::{DeviceArray, counts_in, same_layout};
use crate::column::to_arrow;
use crate::convert::{compact, copy_array, request_field};
use crate::copy_log::{self, Copied};
use crate::error::{Error, ErrorKind, Result};
use crate::matrix::{ColumnOptions, matrix_to_arrow};
use crate::plan::refused_copy;
use crate::spec::{CopyMode, FixedShapeTensor, casting, row_major_strides};
use crate::tensor::Tensor;

/// Returns the chunks of a column as the chunks of a series of the field's name, over the same memory if polars has the type. Strings
/// and binary become views, lists get offsets of 64 bits, times nanoseconds, decimals 128 bits; dictionaries of text become
/// categories. Each of those is a copy, which the [`CopyLog`](crate::CopyLog) records.
///
/// # Errors
/// If polars has no such type, or was built without the feature for it; if a copy is needed and not allowed, or a value does not
/// survive it; if a chunk is of another type than the field; if the memory is not the host's. Names the column.
///
/// ```
/// use arrow_array::Float32Array;
/// use arrow_dlpack::{CopyMode, DeviceArray, polars};
/// use arrow_schema::{DataType, Field};
///
/// let prices = Float32Array::from(vec![Some(0.5), None]);
/// let prices = DeviceArray::from_arrow(&prices, Field::new("price", DataType::Float32, true).into())?;
/// let series = polars::to_series(prices.field(), &[prices.clone()], CopyMode::Never)?;
/// assert_eq!((series.name().as_str(), series.f32().unwrap().get(0)), ("price", Some(0.5)));
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
pub fn to_series(field: &FieldRef, chunks: &[DeviceArray], copy: CopyMode) -> Result<Series> {
    let target = readable(field).map_err(|error| error.in_column(field.name()))?;
    let shape = FixedShapeTensor::of(field)?.map(|tensor| tensor.logical_shape()).transpose()?;
    let checked = chunks.iter().try_for_each(|chunk| chunk.require_type(field));
    checked.map_err(|error| error.in_column(field.name()))?;
    let mut before = 0_usize;
    let chunks = chunks.iter().map(|chunk| {
        let rows = read(chunk, &target, shape.as_deref(), copy).map_err(|error| error.behind(before));
        before = before.saturating_add(chunk.len());
        rows
    });
    let chunks = chunks.collect::<Result<Vec<ArrayRef>>>();
    let series = chunks.and_then(|chunks| {
        // Tensors are nested deeper than their flat storage.
        let data_type = chunks.first().map_or(target.data_type(), |chunk| chunk.data_type());
        let field = polars_field(&target.as_ref().clone().with_data_type(data_type.clone()))?;
        let arrays = chunks.iter().map(|chunk| import(chunk, field.dtype())).collect::<Result<Vec<_>>>()?;
        let series = join(&field, arrays, has_codes(target.data_type()))?;
        require_values(&series, &chunks)?;
        Ok(series)
    });
    series.map_err(|error| error.in_column(field.name()))
}

/// Refuses values that became nulls: those that are none of the categories which the metadata of an enum names.
fn require_values(series: &Series, chunks: &[ArrayRef]) -> Result<()> {
    // Rows of lists and structs have nulls of their own.
    if !chunks.iter().all(|chunk| matches!(chunk.data_type(), ArrowType::Dictionary(_, _))) {
        return Ok(());
    }
    let mut own = 0_usize;
    for chunk in chunks {
        fallible::require(chunk.len().div_ceil(8))?;
        own = own.saturating_add(chunk.logical_null_count());
    }
    if own >= series.null_count() {
        return Ok(());
    }
    let reason = "a value is none of the categories that the metadata of its field names, and would become null";
    Err(Error::new(ErrorKind::Cast, reason)
        .remedy_is("take polars' metadata off the field, or name each category there"))
}

/// Returns the chunks of a table as a frame, as [`to_series`] does for each of its columns.
///
/// # Errors
/// If the data has no columns, or two of one name; if a chunk has other columns than the field; and as [`to_series`].
pub fn to_frame(field: &FieldRef, chunks: &[DeviceArray], copy: CopyMode) -> Result<DataFrame> {
    let ArrowType::Struct(fields) = field.data_type() else {
        let reason = format!("a frame has columns, and the data is one array of {}", field.data_type());
        return Err(Error::argument(reason).remedy_is("make a series of it: polars::to_series"));
    };
    chunks.iter().try_for_each(|chunk| chunk.require_type(field))?;
    let rows = chunks.iter().map(DeviceArray::len).fold(0, usize::saturating_add);
    let column = |(index, field): (usize, &FieldRef)| {
        let chunks = chunks.iter().map(|chunk| chunk.column(index)).collect::<Result<Vec<_>>>()?;
        to_series(field, &chunks, copy).map(IntoColumn::into_column)
    };
    let columns = fields.iter().enumerate().map(column).collect::<Result<Vec<Column>>>()?;
    DataFrame::new(rows, columns).map_err(|error| of_polars(error, ""))
}

/// Returns a tensor as a series: numbers over the same memory if they are dense, bools as bits, and the rows of more dimensions as
/// arrays of their shape.
///
/// # Errors
/// As [`to_series`]. A tensor without dimensions is one row.
///
/// ```
/// use arrow_array::Int64Array;
/// use arrow_dlpack::{CopyMode, polars, to_tensor};
///
/// let tensor = to_tensor(&Int64Array::from(vec![1, 2, 3]))?;
/// let series = polars::tensor_to_series("count", &tensor, CopyMode::Never)?;
/// assert_eq!(series.i64().unwrap().cont_slice().unwrap(), [1, 2, 3]);
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
pub fn tensor_to_series(name: &str, tensor: &Tensor, copy: CopyMode) -> Result<Series> {
    let array = rows_of(tensor, copy).map_err(|error| error.in_column(name))?;
    let field = array.field().as_ref().clone().with_name(name);
    let array = array.relabel(Arc::new(field))?;
    to_series(array.field(), std::slice::from_ref(&array), copy.once())
}

/// Returns a tensor as an array whose rows polars can hold: their dimensions in one order.
fn rows_of(tensor: &Tensor, copy: CopyMode) -> Result<DeviceArray> {
    let rows = tensor.shape().get(1..).unwrap_or(&[]);
    let is_ordered = tensor.strides().get(1..) == Some(row_major_strides(rows)?.as_slice());
    if is_ordered || rows.is_empty() || tensor.is_empty() {
        return to_arrow(tensor, None, copy);
    }
    const WHY: &str = "polars has the dimensions of a row in one order alone";
    if copy == CopyMode::Never {
        return Err(refused_copy(WHY));
    }
    to_arrow(&compact(tensor, WHY)?, None, CopyMode::IfNeeded)
}

/// Returns a matrix of shape (rows, columns) as a frame of these columns, over the same memory if it is column-major.
///
/// # Errors
/// If there are not as many names as columns, or two of one name; and as [`to_series`].
///
/// ```
/// use arrow_dlpack::{Chunks, Conversion, CopyMode, MemoryOrder, polars};
/// use polars_core::df;
///
/// let frame = df!("x" => [1.0, 2.0], "y" => [3.0, 4.0]).unwrap();
/// let (field, batches) = polars::from_frame(&frame)?;
/// let matrix = Conversion::default().memory_order(MemoryOrder::F).to_tensor(Chunks::new(&field, &batches))?;
/// assert_eq!(polars::matrix_to_frame(&matrix, &["x", "y"], CopyMode::Never)?, frame);
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
pub fn matrix_to_frame(matrix: &Tensor, names: &[&str], copy: CopyMode) -> Result<DataFrame> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let batch = matrix_to_arrow(matrix, &names, &ColumnOptions::default().copy(copy))?;
    to_frame(batch.field(), std::slice::from_ref(&batch), copy.once())
}

/// Returns an array as what polars reads.
fn read(array: &DeviceArray, target: &FieldRef, shape: Option<&[i64]>, copy: CopyMode) -> Result<ArrayRef> {
    let (own, wanted) = (array.field().data_type(), target.data_type());
    let is_cast = !same_layout(own, wanted) && !counts_in(own, wanted);
    let mapped = has_codes(wanted);
    if (is_cast || mapped) && copy == CopyMode::Never {
        let why = if is_cast { casting(own, wanted) } else { "polars maps categories itself".into() };
        return Err(refused_copy(&why));
    }
    if mapped {
        copy_log::record(|| Copied {
            what: format!("column {:?}: {} codes", array.field().name(), array.len()),
            why: "polars maps text to its own categories".to_owned(),
            bytes: array.len().saturating_mul(size_of::<u32>()),
        });
    }
    // A view under the target's name alone, so that no extension type is asked to be another.
    let plain = match is_cast {
        true => request_field(array, target)?,
        false if copy == CopyMode::Always && !mapped => copy_array(array)?.relabel(target.clone())?,
        false => array.relabel(target.clone())?,
    };
    let rows = plain.to_arrow()?;
    Ok(match shape {
        Some([_, _, ..]) => nested(&rows, shape.unwrap_or_default()),
        _ => rows,
    })
}

/// Returns flat rows of tensors with a list for each of their dimensions; as they are where a dimension is empty, as nobody could
/// count its rows.
fn nested(rows: &ArrayRef, shape: &[i64]) -> ArrayRef {
    let Some(flat) = rows.as_fixed_size_list_opt() else { return rows.clone() };
    let ArrowType::FixedSizeList(item, _) = rows.data_type() else { return rows.clone() };
    let (mut item, mut values) = (item.clone(), flat.values().clone());
    for (dimension, extent) in shape.iter().enumerate().rev() {
        let Some(extent) = i32::try_from(*extent).ok().filter(|extent| *extent > 0) else { return rows.clone() };
        let nulls = flat.nulls().filter(|_| dimension == 0).cloned();
        let Ok(list) = FixedSizeListArray::try_new(item, extent, values, nulls) else { return rows.clone() };
        item = Arc::new(Field::new("item", list.data_type().clone(), true));
        values = Arc::new(list);
    }
    values
}

/// Whether rows of a type have arrays of no items, at any level.
fn has_no_items(data_type: &ArrowType) -> bool {
    match data_type {
        ArrowType::FixedSizeList(_, 0) => true,
        ArrowType::FixedSizeList(item, _) | ArrowType::LargeList(item) => has_no_items(item.data_type()),
        ArrowType::Struct(fields) => fields.iter().any(|field| has_no_items(field.data_type())),
        _ => false,
    }
}

const _: () = assert!(size_of::<FFI_ArrowArray>() == size_of::<PolarsStruct>());

/// Moves an array to polars.
fn import(array: &ArrayRef, data_type: &ArrowDataType) -> Result<Box<dyn Array>> {
    // Polars reads the first offset of any list.
    if array.is_empty() {
        return caught(|| Ok(new_empty_array(data_type.clone())));
    }
    if has_no_items(array.data_type()) {
        return Err(Error::unsupported("arrays without items: polars takes no rows of them")
            .remedy_is("leave them out, or make lists of them"));
    }
    let exported = ManuallyDrop::new(FFI_ArrowArray::new(&array.to_data()));
    // SAFETY: both types are `struct ArrowArray` of the C data interface, `repr(C)`; ManuallyDrop makes this a move.
    let exported = unsafe { (&raw const exported).cast::<PolarsStruct>().read() };
    let import = || {
        // SAFETY: arrow-rs exports a valid array of its own, whose contents `DeviceArray::to_arrow` has validated; `polars_field` made
        // `data_type` of the same type. Nobody writes to its buffers while it is not released.
        unsafe { polars_arrow::ffi::import_array_from_c(exported, data_type.clone()) }
            .map_err(|error| of_polars(error, ""))
    };
    caught(import)
}

/// Makes a series of chunks of this field. `has_categories`: one after the other, as polars joins the categories of all chunks, and loses
/// lists behind those without items.
fn join(field: &PolarsField, mut chunks: Vec<Box<dyn Array>>, has_categories: bool) -> Result<Series> {
    if chunks.is_empty() {
        chunks.push(caught(|| Ok(new_empty_array(field.dtype().clone())))?);
    }
    let hint = "enable the dtype's feature of polars-core, such as dtype-datetime";
    let series = |chunks| caught(|| Series::try_from((field, chunks)).map_err(|error| of_polars(error, hint)));
    let later = if has_categories { chunks.split_off(1) } else { Vec::new() };
    let mut joined = series(chunks)?;
    for chunk in later {
        let own = series(vec![chunk])?;
        caught(|| joined.append_owned(own).map(drop).map_err(|error| of_polars(error, hint)))?;
    }
    Ok(joined)
}

fn of_polars(error: PolarsError, remedy: &'static str) -> Error {
    let made = Error::unsupported(format!("polars: {error}")).caused_by(Arc::new(error));
    if remedy.is_empty() { made } else { made.remedy_is(remedy) }
}
