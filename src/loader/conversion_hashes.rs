//! Hashes how rows are converted. The loader compares hashes of rows only if this hash is equal to that of the state. An option that has
//! no effect, and most defaults, add nothing to the hash: states without the option stay comparable.

use arrow_schema::DataType;

use super::row_hashes::fold_bytes;
use super::texts::{fold_tick_types, has_ticks};
use crate::categories::leaf_of;
use crate::conversion::VariedGroup;
use crate::error::Result;
use crate::spec::{DecimalMode, DictionaryMode, Element, GroupForm, Spec};

/// Returns a hash that goes on with what a column of a packed group becomes.
///
/// # Errors
/// When an allocation fails.
pub(super) fn fold_column(hash: u64, spec: &Spec) -> Result<u64> {
    let text = format!("{} {} {} {:?}", spec.dtype(), spec.has_codes(), spec.field().name(), spec.nulls());
    let mut hash = fold_bytes(hash, text.as_bytes());
    let stored = leaf_of(spec.field().data_type());
    match (spec.element(), stored) {
        (element @ Element::Ticks { .. }, _) => hash = fold_bytes(hash, element.to_string().as_bytes()),
        // Dates become seconds before they become another unit.
        (_, DataType::Date32) if spec.decoded().is_some_and(|field| *leaf_of(field.data_type()) != *stored) => {
            hash = fold_bytes(hash, b"seconds");
        }
        (
            element,
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale)
            | DataType::Decimal256(_, scale),
        ) if *scale != 0 && element.scaled().is_none_or(|(_, of_values)| of_values != *scale) => {
            hash = fold_bytes(hash, b"unscaled");
        }
        _ => {}
    }
    if spec.has_codes() {
        hash = fold_tick_types(hash, spec.field().data_type());
    }
    match spec.categories() {
        Some(categories) => Ok(fold_bytes(hash, &categories.content()?)),
        None => Ok(hash),
    }
}

/// Returns a hash that goes on with what a group of varied rows becomes.
pub(super) fn fold_group(hash: u64, group: &VariedGroup) -> u64 {
    let options = &group.options;
    let text = format!("{} {:?} {:?} {:?}", group.name, group.group, options.dtype, options.nulls);
    let mut hash = fold_bytes(hash, text.as_bytes());
    let data_type = group.field.data_type();
    if group.group.form() == GroupForm::Arrow {
        return fold_tick_types(hash, data_type);
    }
    if let Some(unit) = options.unit.filter(|_| has_ticks(data_type)) {
        hash = fold_bytes(hash, format!("unit {:?}", unit.value).as_bytes());
    }
    if options.decimal != DecimalMode::Value {
        hash = fold_bytes(hash, format!("decimal {:?}", options.decimal).as_bytes());
    }
    let default = if options.dtype.is_some() { DictionaryMode::Values } else { DictionaryMode::Codes };
    if let Some(dictionary) = options.dictionary.filter(|dictionary| *dictionary != default) {
        hash = fold_bytes(hash, format!("dictionary {dictionary:?}").as_bytes());
    }
    hash
}
