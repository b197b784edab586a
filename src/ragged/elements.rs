//! The elements of rows: their fields and specs, and which of them no row shows.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields};

use crate::arrow::{DeviceArray, Hidden, Mask, Validated};
use crate::column::{ColumnRef, check_rows, check_types, columns};
use crate::convert::{decode, without_hidden};
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::spec::{
    NullPolicy, Options, Spec, VariableShape, is_text, item_of_lists, remedy_of_fixed_lists, remedy_of_items,
    require_values,
};

/// An array, and which of its slots no row of an enclosing list shows.
#[derive(Clone, Debug)]
pub(super) struct RaggedPart {
    pub(super) array: DeviceArray,
    pub(super) hidden: Option<Hidden>,
    /// Whether the part before is of the same array, so that the rows of both have the same items.
    pub(super) follows: bool,
}

impl RaggedPart {
    pub(super) fn is_hidden(&self, index: usize) -> bool {
        self.hidden.as_ref().is_some_and(|hidden| hidden.contains(index))
    }
}

/// The chunks of a column, of its type.
pub(super) fn parts(field: &FieldRef, chunks: &[DeviceArray]) -> Result<Vec<RaggedPart>> {
    check_types(field, chunks)?;
    Ok(chunks.iter().map(|chunk| RaggedPart { array: chunk.clone(), hidden: None, follows: false }).collect())
}

/// The field of a row's elements, under the column's name; `None` where the type has no rows of different lengths.
pub(super) fn item_field(field: &FieldRef) -> Option<FieldRef> {
    item_of(field.data_type()).map(|item| Arc::new(item.with_name(field.name())))
}

fn item_of(data_type: &DataType) -> Option<Field> {
    let bytes = || is_text(data_type).then(|| Field::new("", DataType::UInt8, false));
    item_of_lists(data_type).map(|item| item.as_ref().clone()).or_else(bytes)
}

/// Refuses categories, which ragged and padded rows have no codes of.
pub(super) fn refuse_categories(options: &Options) -> Result<()> {
    if options.categories.is_none() {
        return Ok(());
    }
    Err(Error::argument("categories do not support ragged or padded columns")
        .remedy_is("convert the column without categories"))
}

/// The spec of elements that are no rows themselves.
pub(super) fn element_spec(item: &FieldRef, options: &Options) -> Result<Spec> {
    Spec::new(item, options).map_err(|error| match (item.data_type(), remedy_of_items(item)) {
        (DataType::Struct(_), _) => error.remedy_is(Remedy::FieldsOfLists),
        (_, Some(remedy)) if error.kind() == ErrorKind::Unsupported => error.remedy_is(remedy),
        _ => error,
    })
}

/// The spec of the innermost elements.
pub(super) fn leaf_spec(field: &FieldRef, options: &Options) -> Result<Spec> {
    refuse_categories(options)?;
    let tensor = VariableShape::of(field)?;
    let rows = tensor.as_ref().map_or(field, |tensor| tensor.data.1);
    let item = item_field(rows).ok_or_else(|| unsupported(rows))?;
    let is_nested = item_field(&item).is_some();
    let spec = if is_nested { leaf_spec(&item, options) } else { element_spec(&item, options) }?;
    if tensor.is_some() && (is_nested || !spec.inner_shape().is_empty()) {
        let reason = format!("{} of {}", VariableShape::NAME, item.data_type());
        return Err(Error::unsupported(reason).remedy_is("pass the field data of its storage"));
    }
    Ok(spec)
}

/// Returns whether the innermost elements become codes of a dictionary.
///
/// # Errors
/// As [`leaf_spec`].
pub(crate) fn has_codes(field: &FieldRef, options: &Options) -> Result<bool> {
    Ok(leaf_spec(field, options)?.has_codes())
}

pub(super) fn unsupported(field: &Field) -> Error {
    if let Err(error) = require_values(field) {
        return error;
    }
    let data_type = field.data_type();
    let error = Error::unsupported(format!("Arrow type {data_type} has no ragged form"));
    if let Some(remedy) = remedy_of_fixed_lists(data_type) {
        return error.remedy_is(remedy);
    }
    match data_type {
        DataType::Null => error.remedy_is("cast the column to a list type first"),
        DataType::Struct(columns) => match path_of_rows(columns) {
            Some(path) => error.remedy_is(Remedy::RaggedColumn { column: format!("{path:?}") }),
            None => error.remedy_is(Remedy::RowsOfOneLength),
        },
        DataType::Interval(_) => error.remedy_is("leave it out"),
        DataType::Dictionary(_, values) if item_of(values).is_some() => {
            error.remedy_is("cast the column to the dictionary's value type first")
        }
        DataType::RunEndEncoded(_, values) if item_of(values.data_type()).is_some() => {
            error.remedy_is(Remedy::DecodeRuns)
        }
        DataType::Map(_, _) | DataType::Union(_, _) => error.remedy_is("extract the children that hold lists first"),
        _ => error.remedy_is(Remedy::RowsOfOneLength),
    }
}

/// The path of the first column whose rows differ in length.
fn path_of_rows(columns: &Fields) -> Option<String> {
    columns.iter().find_map(|column| match column.data_type() {
        DataType::Struct(fields) => path_of_rows(fields).map(|path| format!("{}.{path}", column.name())),
        data_type => item_of(data_type).map(|_| column.name().clone()),
    })
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
        Ok(RaggedPart { array, ..part.clone() })
    };
    parts.iter().map(part).collect::<Result<Vec<_>>>().map(|parts| (field.clone(), parts))
}

/// Whether anything depends on which elements are hidden: rows do, and of leaves nulls and what a cast may refuse.
pub(super) fn hiding_matters(
    item: &FieldRef,
    array: &DeviceArray,
    options: &Options,
    known: &Validated,
) -> Result<bool> {
    if item_field(item).is_some() {
        return Ok(true);
    }
    let spec = Spec::new(item, options)?;
    Ok(spec.is_cast() || with_nulls(array, &spec, known, |nulls| nulls.is_some())?)
}

/// Calls `look` with the nulls of elements, those that runs or a dictionary stand for included; `None` where none is.
fn with_nulls<R>(
    array: &DeviceArray,
    spec: &Spec,
    known: &Validated,
    look: impl FnOnce(Option<&Mask<'_>>) -> R,
) -> Result<R> {
    let decoded = spec.decoded().map(|field| decode(array, spec, field, known)).transpose()?;
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
    let known = Validated::default();
    for part in parts {
        let count = |element: usize| {
            let index = element / spec.row_elements().max(1);
            if !part.is_hidden(index) {
                nulls += 1;
                first_null = first_null.or(Some(first + index));
            }
        };
        let counted = with_nulls(&part.array, &spec, &known, |mask| mask.map_or((), |mask| mask.for_each_null(count)));
        counted.map_err(|error| error.behind(first))?;
        first += part.array.len();
    }
    let refused = first_null.filter(|_| options.nulls == NullPolicy::Error);
    let refused = refused.map(|element| (element, null_elements(&spec, Some(nulls)).at_row(element)));
    let unfilled = options.nulls == NullPolicy::Error || nulls == 0;
    let options = if unfilled { options.clone().nulls(NullPolicy::Keep) } else { options.clone() };
    let spec = Spec::new(item, &options)?;
    // A cast must not fail for what no row shows.
    let visible = |part: &RaggedPart| match &part.hidden {
        Some(hidden) if spec.is_cast() => match item.data_type() {
            // Runs have no validity.
            DataType::RunEndEncoded(_, _) => without_hidden(&part.array, hidden),
            _ => part.array.hiding(hidden),
        },
        _ => Ok(part.array.clone()),
    };
    let arrays = parts.iter().map(visible).collect::<Result<Vec<_>>>()?;
    match refused {
        Some((element, error)) => Err(value_before(&spec, &arrays, element).unwrap_or(error)),
        None => Ok((spec, arrays, options)),
    }
}

/// The error of a value among the first elements that a cast refuses; `None` if it takes all of them.
fn value_before(spec: &Spec, arrays: &[DeviceArray], elements: usize) -> Option<Error> {
    if !spec.is_cast() {
        return None;
    }
    let before = DeviceArray::first_rows(arrays, elements);
    check_rows(spec, &columns(&before)).err()
}

/// The error for null elements, which somebody may have counted.
pub(super) fn null_elements(spec: &Spec, nulls: Option<usize>) -> Error {
    let reason = match nulls {
        Some(1) => "1 null element, the first one here".into(),
        Some(nulls) => format!("{nulls} null elements, the first one here"),
        None => "null elements, the first one here".into(),
    };
    let is_float = spec.dtype().kind() == crate::dtype::Kind::Float;
    Error::new(ErrorKind::Null, reason).remedy_is(if is_float {
        Remedy::NanFillOrKeepElements
    } else {
        Remedy::FillOrKeepElements
    })
}

/// Returns the elements from the first to the last one that rows show; none of empty rows.
pub(super) fn spanned(rows: impl Iterator<Item = Range<usize>>) -> Range<usize> {
    let shown = rows.filter(|row| !row.is_empty());
    shown.reduce(|all, row| all.start.min(row.start)..all.end.max(row.end)).unwrap_or(0..0)
}
