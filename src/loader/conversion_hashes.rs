//! Hashes how rows are converted. The loader compares hashes of rows only if this hash is equal to that of the state. An option that has
//! no effect, and most defaults, add nothing to the hash: states without the option stay comparable. So do the names of masks and lengths.
//! What is hashed is written out here: the names of our types may change, and states last longer.

use arrow_schema::DataType;

use super::row_hashes::fold_bytes;
use super::texts::{fold_tick_types, has_ticks};
use crate::categories::leaf_of;
use crate::conversion::VariedGroup;
use crate::error::Result;
use crate::spec::{DecimalMode, DictionaryMode, Element, GroupForm, NullPolicy, Nulls, Pad, Scalar, Side, Spec};

/// Returns a hash that goes on with what a column of a packed group becomes.
///
/// # Errors
/// When an allocation fails.
pub(super) fn fold_column(hash: u64, spec: &Spec) -> Result<u64> {
    let text = format!("{} {} {} {}", spec.dtype(), spec.has_codes(), spec.field().name(), nulls_text(spec.nulls()));
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
    let dtype = options.dtype.map_or_else(|| "own".to_owned(), |dtype| dtype.to_string());
    let form = group.group.form();
    let text = format!("{} {} {dtype} {}", group.name, form_text(form), policy_text(options.nulls));
    let columns = group.group.columns().iter();
    let mut hash = columns.fold(fold_bytes(hash, text.as_bytes()), |hash, column| fold_bytes(hash, column.as_bytes()));
    let data_type = group.field.data_type();
    if form == GroupForm::Arrow {
        return fold_tick_types(hash, data_type);
    }
    if let Some(unit) = options.unit.filter(|_| has_ticks(data_type)) {
        hash = fold_bytes(hash, format!("unit {}", unit.value).as_bytes());
    }
    if options.decimal != DecimalMode::Value {
        hash = fold_bytes(hash, b"unscaled");
    }
    let default = if options.dtype.is_some() { DictionaryMode::Values } else { DictionaryMode::Codes };
    if let Some(dictionary) = options.dictionary.filter(|dictionary| *dictionary != default) {
        hash = fold_bytes(hash, dictionary_text(dictionary).as_bytes());
    }
    hash
}

/// Returns how a group's rows are made. Names of results say nothing of the rows.
fn form_text(form: GroupForm) -> String {
    match form {
        GroupForm::Column => "column".to_owned(),
        GroupForm::Matrix => "matrix".to_owned(),
        GroupForm::Ragged => "ragged".to_owned(),
        GroupForm::Arrow => "arrow".to_owned(),
        GroupForm::Padded(Pad { value, length, multiple_of, truncate, side }) => {
            let length = length.map_or_else(|| "longest".to_owned(), |length| length.to_string());
            let truncate = truncate.map_or("error", side_text);
            format!("padded {} {length} {multiple_of} {truncate} {}", scalar_text(value), side_text(side))
        }
    }
}

fn side_text(side: Side) -> &'static str {
    match side {
        Side::Left => "left",
        Side::Right => "right",
    }
}

fn dictionary_text(dictionary: DictionaryMode) -> &'static str {
    match dictionary {
        DictionaryMode::Codes => "codes",
        DictionaryMode::Values => "values",
    }
}

fn policy_text(policy: NullPolicy) -> String {
    match policy {
        NullPolicy::Error => "error".to_owned(),
        NullPolicy::Nan => "nan".to_owned(),
        NullPolicy::Keep => "keep".to_owned(),
        NullPolicy::Fill(value) => format!("fill {}", scalar_text(value)),
    }
}

/// Floats by their bits: 0.0 and -0.0 are other fills.
fn scalar_text(value: Scalar) -> String {
    match value {
        Scalar::Bool(value) => value.to_string(),
        Scalar::Int(value) => value.to_string(),
        Scalar::Float(value) => format!("float {:016x}", value.to_bits()),
        Scalar::Rounded(value) => format!("rounded {:016x}", value.to_bits()),
    }
}

fn nulls_text(nulls: Nulls) -> String {
    match nulls {
        Nulls::Refused => "error".to_owned(),
        Nulls::Kept => "keep".to_owned(),
        Nulls::Filled(pattern) => {
            pattern.bytes().iter().fold("fill ".to_owned(), |text, byte| text + &format!("{byte:02x}"))
        }
    }
}
