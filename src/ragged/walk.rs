//! The walk over the levels of ragged rows: decides what is done to make each part, and has that run or reported.

use arrow_schema::{DataType, FieldRef};

use super::device_offsets::DeviceLevel;
use super::elements::{RaggedPart, item_field, struct_column, unsupported};
use super::level::{Level, RaggedRows, null_row, shares_memory, validity_part};
use super::part::{Part, PartValues, RaggedParts, Use};
use super::variable_shape::{self, VariableShape};
use crate::alloc::fallible;
use crate::arrow::{DeviceArray, ViewChunk};
use crate::column::ColumnRef;
use crate::convert::{bytes_of_views, collect_bools, collect_ints, zero};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::plan::Action;
use crate::spec::{NullPolicy, Options, Spec};

/// Goes through the rows of these chunks, outermost level first, and uses the plan of each part.
///
/// # Errors
/// What `plans` refuses; when rows lie outside their elements, or a null is refused.
pub(super) fn walk<U: Use>(
    field: &FieldRef,
    parts: &[RaggedPart],
    options: &Options,
    plans: &U,
) -> Result<RaggedParts<U::Made>> {
    if DeviceArray::readiness_of(parts.iter().map(|part| &part.array)).is_some() {
        let (rows, item) = DeviceLevel::new(field, parts, options)?;
        return lists(field, &item, &rows, options, plans);
    }
    if let Some(tensor) = VariableShape::of(field)? {
        return tensors(field, &tensor, parts, options, plans);
    }
    match (field.data_type(), item_field(field)) {
        (DataType::Utf8View | DataType::BinaryView, Some(item)) => views(field, &item, parts, options, plans),
        (_, Some(item)) => lists(field, &item, &Level::new(field, parts, options)?, options, plans),
        (other, None) => Err(unsupported(other)),
    }
}

fn lists<U: Use>(
    field: &FieldRef,
    item: &FieldRef,
    rows: &impl RaggedRows,
    options: &Options,
    plans: &U,
) -> Result<RaggedParts<U::Made>> {
    let validity = rows.validity_part().map(|part| plans.part(part, |_| rows.validity())).transpose()?;
    let offsets = plans.part(rows.offsets_part(), |plan| rows.offsets(plan))?;
    let lengths = rows.lengths_part().map(|part| plans.part(part, |plan| rows.lengths(plan))).transpose()?;
    let items = rows.items(item)?;
    let values = if item_field(item).is_some() {
        walk(item, &items, options, plans).map(|rows| PartValues::Rows(Box::new(rows)))
    } else {
        let column = |(spec, arrays, options): (Spec, Vec<DeviceArray>, Options)| {
            plans.column("values", &spec, &arrays, &options)
        };
        rows.column(item, &items).and_then(column).map(PartValues::Elements)
    };
    let values = values.map_err(|error| rows.at_row(item, error))?;
    Ok(RaggedParts { field: field.clone(), offsets, lengths, shapes: None, validity, values })
}

/// Views of strings are gathered: they lie in any order, some of them inside the views themselves.
fn views<U: Use>(
    field: &FieldRef,
    item: &FieldRef,
    parts: &[RaggedPart],
    options: &Options,
    plans: &U,
) -> Result<RaggedParts<U::Made>> {
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
    let validity = (options.nulls == NullPolicy::Keep).then(|| {
        let flags = || collect_bools(rows, lengths.iter().map(Option::is_some));
        plans.part(validity_part(field, rows), |_| flags())
    });
    let validity = validity.transpose()?;
    let total = lengths.iter().flatten().try_fold(0_usize, |total, length| total.checked_add(*length));
    let total = total.ok_or_else(|| Error::new(ErrorKind::Memory, "the strings are larger than memory can be"))?;
    let gathered = (rows > 0).then_some(Action::GatherViews);
    let offsets = Part::new("offsets", field, (DType::Int64, rows + 1), gathered, options.copy);
    let offsets = plans.part(offsets, |_| {
        let mut end = 0;
        let ends = lengths.iter().map(|length| {
            end += length.unwrap_or(0);
            end
        });
        if rows == 0 && shares_memory(options) {
            return zero(DType::Int64);
        }
        collect_ints(DType::Int64, rows + 1, std::iter::once(0).chain(ends))
    })?;
    let values = Part::new("values", item, (DType::UInt8, total), [Action::GatherViews], options.copy);
    let values = plans.part(values, |_| {
        let mut at = 0;
        let bytes = chunks.iter().enumerate().flat_map(|(number, chunk)| {
            (0..chunk.rows()).map(move |row| if shown(number, row) { chunk.bytes(row) } else { Ok(None) })
        });
        let bytes = bytes.map(|bytes| {
            at += 1;
            bytes.map_err(|error| error.at_row(at - 1))
        });
        bytes_of_views(total, bytes)
    })?;
    let values = if Spec::new(item, options)?.is_cast() { plans.cast(values, item, options)? } else { values };
    Ok(RaggedParts {
        field: field.clone(),
        offsets,
        lengths: None,
        shapes: None,
        validity,
        values: PartValues::Elements(values),
    })
}

/// `arrow.variable_shape_tensor`: a list of elements and a shape in each row.
fn tensors<U: Use>(
    field: &FieldRef,
    tensor: &VariableShape<'_>,
    parts: &[RaggedPart],
    options: &Options,
    plans: &U,
) -> Result<RaggedParts<U::Made>> {
    let (data_field, data) = struct_column(field, tensor.data, parts)?;
    let item = item_field(&data_field).ok_or_else(|| unsupported(data_field.data_type()))?;
    let rows = lists(&data_field, &item, &Level::new(&data_field, &data, options)?, options, plans)?;
    let (shape_field, shape) = struct_column(field, tensor.shape, parts)?;
    let arrays: Vec<_> = shape.into_iter().map(|part| part.array).collect();
    let own = Options::default().copy(options.copy).writable(options.writable).nulls(NullPolicy::Keep);
    let spec = Spec::new(&shape_field, &own)?;
    let shapes = plans.column("shapes", &spec, &arrays, &own)?;
    let shown = shown_tensors(&data, &arrays, &spec, options)?;
    let rows = RaggedParts { field: field.clone(), shapes: Some(shapes), ..rows };
    plans.check(&rows, |rows| {
        let is_shown = |row: usize| shown.get(row).copied().unwrap_or(false);
        let Some(shapes) = &rows.shapes else { return Ok(()) };
        variable_shape::check_rows(shapes, &rows.offsets, is_shown)?;
        variable_shape::check_uniform(shapes, &tensor.uniform, is_shown)
    })?;
    Ok(rows)
}

/// Which rows have elements and a shape to speak of: neither null nor under a null row.
fn shown_tensors(data: &[RaggedPart], shapes: &[DeviceArray], spec: &Spec, options: &Options) -> Result<Vec<bool>> {
    let mut shown = fallible::with_room(data.iter().map(|part| part.array.len()).sum())?;
    for (part, array) in data.iter().zip(shapes) {
        let list = part.array.lists()?;
        let mask = ColumnRef::whole(array).chunk(spec)?.mask;
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
    Ok(shown)
}
