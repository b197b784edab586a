//! Whether the parts of one source have one schema, and which fields of two types hold the same values.

use std::sync::Arc;

use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field, FieldRef, Fields, UnionFields};

use super::check::same_layout;
use super::import::DeviceArray;
use crate::error::{Error, Result};
use crate::spec::item_of_lists;

/// Returns what a part of a source has, and what the first part has instead; `None` if both have the same columns, which may
/// differ in nullability, and in what they call the items of lists and the entries of maps.
pub(crate) fn difference(found: &FieldRef, first: &FieldRef) -> Option<(String, String)> {
    match (found.data_type(), first.data_type()) {
        (DataType::Struct(found), DataType::Struct(first)) => {
            let names = |fields: &[FieldRef]| fields.iter().map(|field| field.name().clone()).collect::<Vec<_>>();
            if names(found) != names(first) {
                return Some((format!("the columns {:?}", names(found)), format!("{:?}", names(first))));
            }
            let (found, first) = found.iter().zip(first).find(|(found, first)| !is_same(found, first))?;
            let [own, other] = types_of(found, first);
            Some((format!("column {:?} of type {own}", found.name()), other))
        }
        _ if is_same(found, first) => None,
        _ => {
            let [own, other] = types_of(found, first);
            Some((format!("the type {own}"), other))
        }
    }
}

impl DeviceArray {
    /// Refuses an array of other columns, or of another type, than this field's, as [`difference`] says.
    ///
    /// # Errors
    /// Names both.
    pub(crate) fn require_type(&self, field: &FieldRef) -> Result<()> {
        let Some((found, expected)) = difference(self.field(), field) else { return Ok(()) };
        let reason = format!("an array has {found}, and its field {expected}");
        Err(Error::invalid(reason).remedy_is("give all arrays one schema"))
    }

    /// Returns the array under the field of the data that it is a part of, if both have the same columns as [`difference`] says, and that field
    /// says of no column that it has no nulls where the array's may have some; else as it is.
    ///
    /// # Errors
    /// If the layouts differ all the same.
    pub(super) fn part_of(self, field: &FieldRef) -> Result<Self> {
        let (own, other) = (self.field().data_type(), field.data_type());
        let stays = own == other || difference(self.field(), field).is_some() || !may_have_nulls_of(own, other);
        if stays { Ok(self) } else { self.relabel(field.clone()) }
    }
}

/// Whether each field below the second type may have nulls where its counterpart below the first one may.
fn may_have_nulls_of(one: &DataType, other: &DataType) -> bool {
    match counterparts(one, other) {
        Counterparts::Pairs(pairs) => pairs.iter().all(|(one, other)| {
            (other.is_nullable() || !one.is_nullable()) && may_have_nulls_of(one.data_type(), other.data_type())
        }),
        Counterparts::OtherNames(_, _) => false,
    }
}

/// Returns the first of two fields of structs, with the columns nullable that are nullable in either, if both have the same columns as
/// [`difference`] says; else the first.
pub(super) fn nullable_in_either(one: FieldRef, other: &FieldRef) -> FieldRef {
    let (DataType::Struct(fields), DataType::Struct(others), None) =
        (one.data_type(), other.data_type(), difference(other, &one))
    else {
        return one;
    };
    let column = |(one, other): (&FieldRef, &FieldRef)| match other.is_nullable() && !one.is_nullable() {
        true => Arc::new(one.as_ref().clone().with_nullable(true)),
        false => one.clone(),
    };
    let columns = DataType::Struct(fields.iter().zip(others).map(column).collect());
    Arc::new(one.as_ref().clone().with_data_type(columns))
}

/// Whether both have, at any level, structs of the same columns in another order, which by position would be taken for each other.
pub(super) fn is_reordered(one: &DataType, other: &DataType) -> bool {
    let names = |fields| {
        let mut names = struct_names(fields);
        names.sort_unstable();
        names
    };
    let any = |mut pairs: std::slice::Iter<'_, (&FieldRef, &FieldRef)>| {
        pairs.any(|(one, other)| is_reordered(one.data_type(), other.data_type()))
    };
    match (one, other) {
        (DataType::Struct(one), DataType::Struct(other)) => {
            let pairs: Vec<_> = one.iter().zip(other).collect();
            struct_names(one) != struct_names(other) && names(one) == names(other) || any(pairs.iter())
        }
        _ => match counterparts(one, other) {
            Counterparts::Pairs(pairs) => any(pairs.iter()),
            Counterparts::OtherNames(_, _) => false,
        },
    }
}

/// Whether two columns have one type, whatever they are called.
fn is_same(one: &Field, other: &Field) -> bool {
    same_layout(one.data_type(), other.data_type()) && same_meaning(one, other)
}

/// Whether two columns of one layout have the same extension types and names of fields at all levels.
fn same_meaning(one: &Field, other: &Field) -> bool {
    let extension = |field: &Field| {
        let of = |key| field.metadata().get(key).cloned();
        (of(EXTENSION_TYPE_NAME_KEY), of(EXTENSION_TYPE_METADATA_KEY))
    };
    extension(one) == extension(other)
        && match counterparts(one.data_type(), other.data_type()) {
            Counterparts::Pairs(pairs) => pairs.iter().all(|(one, other)| same_meaning(one, other)),
            Counterparts::OtherNames(_, _) => false,
        }
}

/// The types of two fields that differ: with the parameters of extension types where nothing else tells them apart.
fn types_of(one: &Field, other: &Field) -> [String; 2] {
    let [own, theirs] = [one, other].map(type_of);
    if own != theirs {
        return [own, theirs];
    }
    let parameters = |field: &Field| field.metadata().get(EXTENSION_TYPE_METADATA_KEY).cloned().unwrap_or_default();
    [one, other].map(|field| format!("{} of {:?}", type_of(field), parameters(field)))
}

fn type_of(field: &Field) -> String {
    match field.extension_type_name() {
        Some(name) => format!("{name} ({})", field.data_type()),
        None => field.data_type().to_string(),
    }
}

/// The fields below two types that a conversion between them matches by position.
pub(crate) enum Counterparts<'a> {
    /// The fields, in pairs.
    Pairs(Vec<(&'a FieldRef, &'a FieldRef)>),
    /// The names of both types' fields, which differ in number, name, order or type id: a match by position would be wrong.
    OtherNames(Vec<String>, Vec<String>),
}

/// Returns the fields below two types that hold the same values: struct and union fields, the items of lists, the keys and
/// values of maps, whose names mean nothing, and the values of runs. Looks through dictionaries, and through runs and lists that
/// only one of the types has, as casts do.
pub(crate) fn counterparts<'a>(one: &'a DataType, other: &'a DataType) -> Counterparts<'a> {
    match (one, other) {
        (DataType::Dictionary(_, one), other) => counterparts(one, other),
        (one, DataType::Dictionary(_, other)) => counterparts(one, other),
        (DataType::RunEndEncoded(_, one), DataType::RunEndEncoded(_, other)) => Counterparts::Pairs(vec![(one, other)]),
        (DataType::RunEndEncoded(_, one), other) => counterparts(one.data_type(), other),
        (one, DataType::RunEndEncoded(_, other)) => counterparts(one, other.data_type()),
        (DataType::Struct(one), DataType::Struct(other)) => matched(struct_names(one), struct_names(other), one, other),
        (DataType::Union(one, _), DataType::Union(other, _)) => {
            let fields = |union: &'a UnionFields| union.iter().map(|(_, field)| field);
            matched(union_names(one), union_names(other), fields(one), fields(other))
        }
        (DataType::Map(one, _), DataType::Map(other, _)) => match (one.data_type(), other.data_type()) {
            (DataType::Struct(one), DataType::Struct(other)) => Counterparts::Pairs(one.iter().zip(other).collect()),
            (one, other) => counterparts(one, other),
        },
        _ => match (list_item(one), list_item(other)) {
            (Some(one), Some(other)) => Counterparts::Pairs(vec![(one, other)]),
            (Some(one), None) => counterparts(one.data_type(), other),
            (None, Some(other)) => counterparts(one, other.data_type()),
            (None, None) => Counterparts::Pairs(Vec::new()),
        },
    }
}

fn matched<'a>(
    names: Vec<String>,
    others: Vec<String>,
    one: impl IntoIterator<Item = &'a FieldRef>,
    other: impl IntoIterator<Item = &'a FieldRef>,
) -> Counterparts<'a> {
    if names != others {
        return Counterparts::OtherNames(names, others);
    }
    Counterparts::Pairs(one.into_iter().zip(other).collect())
}

fn struct_names(fields: &Fields) -> Vec<String> {
    fields.iter().map(|field| field.name().clone()).collect()
}

fn union_names(fields: &UnionFields) -> Vec<String> {
    fields.iter().map(|(id, field)| format!("{id}: {}", field.name())).collect()
}

/// Returns the items of a list type, of fixed size or not.
pub(crate) fn list_item(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::FixedSizeList(item, _) => Some(item),
        other => item_of_lists(other),
    }
}
