//! What does padding make of rows, as far as their type tells?

use std::fmt;

use arrow_schema::FieldRef;
use smallvec::smallvec;

use super::elements::{element_spec, item_field, refuse_categories, unsupported};
use super::part::Part;
use crate::dtype::DType;
use crate::error::{Counted, Error, Remedy, Result};
use crate::plan::{Action, Plan, not_allowed};
use crate::spec::{
    CopyMode, DICTIONARIES, NULLS, NullPolicy, Options, Pad, Pattern, PossibleStep, Spec, Undecided, VariableShape,
    may_be_null,
};

/// Returns the part for the lengths of padded rows, whose number a type does not tell.
pub(crate) fn lengths_of_type(field: &FieldRef, copy: CopyMode) -> Part {
    let counted = PossibleStep { text: Action::CountLengths.to_string(), only_if: None };
    let error = Undecided::new(std::slice::from_ref(&counted), copy).err().map(|error| error.in_column(field.name()));
    let undecided = Undecided { steps: vec![counted.text], at_most: false, refused_if: Vec::new() };
    let part = Part::of_plan("lengths", field, DType::Int64, smallvec![None], Plan::default(), copy);
    Part { undecided: Some(undecided), error, ..part }
}

/// Returns the spec of the items of padded rows, and the padding value in their dtype.
///
/// # Errors
/// If rows of this type cannot be padded so, whatever the data.
pub(super) fn item_spec(field: &FieldRef, pad: Pad, options: &Options) -> Result<(Spec, Pattern)> {
    pad.check()?;
    refuse_categories(options)?;
    if field.extension_type_name() == Some(VariableShape::NAME) {
        return Err(Error::unsupported(format!("rows of {} cannot be padded: each has a shape", VariableShape::NAME))
            .remedy_is("convert them without pad, or pass the field data of their storage"));
    }
    let item = item_field(field).ok_or_else(|| unsupported(field))?;
    if item_field(&item).is_some() {
        return Err(Error::unsupported(format!("nested lists ({}) cannot be padded", field.data_type()))
            .remedy_is("convert them without pad, or flatten one level first"));
    }
    let spec = element_spec(&item, options)?;
    let padding = Pattern::of(pad.value, spec.dtype())?;
    Ok((spec, padding))
}

/// Returns the error of an item that is part of no row, or only of null rows.
pub(super) fn outside_rows(item: usize, error: &Error) -> Error {
    Error::invalid(format!("item {item}, which no row spans: {}", error.reason()))
}

/// Returns the error for a row that is longer than `most`, the length that rows are padded to.
pub(super) fn longer_row(length: impl fmt::Display, most: usize) -> Error {
    let reason = format!("the row has {}, and is padded to {most}", Counted(&length, "element"));
    Error::argument(reason).remedy_is(Remedy::LongerRow { length: length.to_string() })
}

/// Plans the padding of any rows of this type.
pub(super) fn plan_schema(field: &FieldRef, spec: &Spec, pad: Pad, options: &Options) -> Vec<Part> {
    let longer = pad
        .length
        .filter(|_| pad.truncate.is_none())
        .map(|length| format!("rows have more than {}", Counted(length, "element")));
    let nulls = options.nulls == NullPolicy::Error && may_be_null(field);
    let refused_if = nulls.then(|| NULLS.to_owned()).into_iter().chain(longer);
    let refused_if: Vec<_> = refused_if.chain(spec.has_codes().then(|| DICTIONARIES.to_owned())).collect();
    let is_refused = pad.length != Some(0) && options.copy == CopyMode::Never;
    let error = is_refused.then(|| {
        not_allowed("a copy is needed of any rows (rows are padded)")
            .remedy_is(Remedy::AllowCopyOrNoPad)
            .in_column(field.name())
    });
    let of_values: Vec<_> = Plan::padding_actions(spec, pad.length).collect();
    let actions = [of_values, vec![Action::Pad { length: pad.length }]];
    let parts = both(field, spec, (None, pad.length), options.copy).into_iter().zip(actions);
    let part = |(part, actions): (Part, Vec<Action>)| {
        let steps = actions.iter().filter(|_| pad.length != Some(0)).map(Action::to_string).collect();
        let undecided = Undecided { steps, at_most: false, refused_if: refused_if.clone() };
        Part { undecided: Some(undecided), error: error.clone(), ..part }
    };
    parts.map(part).collect()
}

/// Returns the parts for the matrix and its validity, with their dtypes and shapes, and empty plans.
pub(super) fn both(
    field: &FieldRef,
    spec: &Spec,
    (rows, length): (Option<usize>, Option<usize>),
    copy: CopyMode,
) -> [Part; 2] {
    let extent = |extent: Option<usize>| extent.and_then(|extent| i64::try_from(extent).ok());
    let shape = smallvec![extent(rows), extent(length)];
    let inner = spec.inner_shape().iter().copied().map(Some);
    let matrix = [extent(rows), extent(length)].into_iter().chain(inner).collect();
    [
        Part::of_plan("values", field, spec.dtype(), matrix, Plan::default(), copy),
        Part::of_plan("validity", field, DType::Bool, shape, Plan::default(), copy),
    ]
}
