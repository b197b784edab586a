//! Any options over any columns: does the plan say what happens, and is every name and number of the options checked?

use std::num::NonZero;
use std::sync::{Arc, LazyLock};

use arrow_array::{Array, ArrayRef, Int32Array, StringArray, StructArray};
use arrow_dlpack::{
    Categories, Chunks, Conversion, CopyMode, DType, DecimalMode, Device, DeviceArray, DictionaryMode, Group,
    MemoryOrder, NullPolicy, Pad, PerColumn, Scalar, Selection, Side,
};
use arrow_schema::{DataType, Field, FieldRef, TimeUnit};

use super::choices::Choices;
use crate::generator::base;
use crate::generator::tensors::touch;
use crate::support::plan::assert_planned;
use crate::support::reference::read;

/// Names of columns, two of which no data has.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "", "a.z"];
/// Columns of a batch, at most.
const COLUMNS: usize = 3;
const TEXTS: [&str; 12] =
    ["cpu", "cuda", "cuda:1", "cuda_host:0", "rocm", ":", "int8", "torch.bfloat16", "float8_e4m3", ".", "bool", "x:-1"];

static COLUMN_BASES: LazyLock<Vec<(FieldRef, ArrayRef)>> =
    LazyLock::new(|| base::all().into_iter().map(|(_, field, array)| (field, array)).collect());

/// Options over a batch or a column of valid data.
pub(super) fn options(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    texts(&mut choices);
    let (field, array) = data(&mut choices);
    let conversion = conversion(&mut choices);
    let Ok(array) = DeviceArray::from_arrow(&array, field.clone()) else { return };
    let chunks = match choices.byte() % 4 {
        0 => vec![],
        1 => vec![array.clone(), array.clone()],
        _ => vec![array.clone()],
    };
    let is_possible = conversion.check(&field);
    let typed = conversion.explain_type(&field, Device::CPU);
    assert!(is_possible.is_ok() || conversion.to_results(Chunks::new(&field, &chunks)).is_err(), "{is_possible:?}");
    if let Ok(report) = typed {
        assert!(!report.to_string().is_empty());
    }
    let has_one_shape = match &conversion.selection {
        Selection::Named(groups) => groups.iter().all(|(name, _)| name.starts_with('t')),
        // `explain` of one array reports it as its only column, and a conversion refuses it.
        Selection::Each(_) => matches!(field.data_type(), DataType::Struct(_)),
        _ => true,
    };
    if has_one_shape {
        assert_planned(&conversion, &field, &chunks, read);
    } else if let Ok(made) = conversion.to_results(Chunks::new(&field, &chunks)) {
        made.iter().filter_map(|(_, made)| made.as_tensor()).for_each(touch);
    }
}

/// Texts that name a dtype or a device.
fn texts(choices: &mut Choices<'_>) {
    let mut text = choices.of(&TEXTS).as_bytes().to_vec();
    if choices.chance(2) {
        let place = choices.below(text.len());
        text[place] = choices.byte();
    }
    let text = String::from_utf8_lossy(&text);
    if let Ok(dtype) = text.parse::<DType>() {
        assert!(text.ends_with(dtype.name()));
    }
    if let Ok(device) = text.parse::<Device>() {
        assert_eq!(device.to_string().parse::<Device>(), Ok(device));
    }
}

fn data(choices: &mut Choices<'_>) -> (FieldRef, ArrayRef) {
    let columns: Vec<(FieldRef, ArrayRef)> = (0..1 + choices.below(COLUMNS))
        .map(|index| {
            let (field, array) = choices.of(&COLUMN_BASES);
            // A batch may have two columns of one name.
            let name = if choices.chance(16) { "a" } else { NAMES[index] };
            (Arc::new(field.as_ref().clone().with_name(name)), array.clone())
        })
        .collect();
    if columns.len() == 1 && choices.chance(2) {
        return columns.into_iter().next().expect("one");
    }
    let rows = columns[0].1.len();
    let columns: Vec<_> = columns.into_iter().filter(|(_, array)| array.len() == rows).collect();
    let (fields, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    let array: ArrayRef = Arc::new(StructArray::new(fields.into(), arrays, None));
    (Arc::new(Field::new("", array.data_type().clone(), false)), array)
}

fn names(choices: &mut Choices<'_>) -> Vec<String> {
    (0..1 + choices.below(3)).map(|_| (*choices.of(&NAMES)).to_owned()).collect()
}

/// An option of all columns, or of some by name.
fn per<T>(choices: &mut Choices<'_>, mut one: impl FnMut(&mut Choices<'_>) -> T) -> PerColumn<T> {
    if choices.chance(4) {
        let names = names(choices);
        PerColumn::named(names.into_iter().map(|name| (name, one(choices))))
    } else {
        PerColumn::All(one(choices))
    }
}

fn scalar(choices: &mut Choices<'_>) -> Scalar {
    match choices.byte() % 5 {
        0 => Scalar::Int(0),
        1 => Scalar::Int(i128::from(choices.number())),
        2 => Scalar::Bool(choices.chance(2)),
        3 => Scalar::Float(f64::from_bits(choices.number() as u64)),
        _ => Scalar::Rounded(0.1),
    }
}

fn nulls(choices: &mut Choices<'_>) -> NullPolicy {
    match choices.byte() % 4 {
        0 => NullPolicy::Error,
        1 => NullPolicy::Nan,
        2 => NullPolicy::Fill(scalar(choices)),
        _ => NullPolicy::Keep,
    }
}

fn dtype(choices: &mut Choices<'_>) -> Option<DType> {
    choices.chance(3).then(|| *choices.of(DType::ALL))
}

fn length(choices: &mut Choices<'_>) -> Option<usize> {
    match choices.byte() % 8 {
        0 => Some(2),
        1 => Some(choices.below(8)),
        2 => Some(choices.number() as usize),
        _ => None,
    }
}

fn categories(choices: &mut Choices<'_>) -> Option<Categories> {
    let values: ArrayRef = match choices.byte() % 8 {
        0 => Arc::new(Int32Array::from(vec![1, 3, 4, 5])),
        1 => Arc::new(StringArray::from(vec!["ab", "", "ü"])),
        2 => Arc::new(StringArray::from(vec!["ab", "a string that is too long to be inlined", "", "ü", "entry"])),
        _ => return None,
    };
    let made = Categories::new(values).expect("distinct values");
    Some(if choices.chance(2) { made.unknown(choices.number() as i32) } else { made })
}

fn pad(choices: &mut Choices<'_>) -> Pad {
    let length = choices.chance(2).then(|| choices.below(12));
    let side = |choices: &mut Choices<'_>| *choices.of(&[Side::Left, Side::Right]);
    let multiple = NonZero::new(1 + choices.below(8)).expect("above 0");
    let truncate = choices.chance(2).then(|| side(choices));
    Pad::new(scalar(choices)).length(length).multiple_of(multiple).truncate(truncate).side(side(choices))
}

/// Named groups; the names of those that become tensors of one shape begin with a t.
fn groups(choices: &mut Choices<'_>) -> Vec<(String, Group)> {
    (0..1 + choices.below(3))
        .map(|number| {
            let column = *choices.of(&NAMES);
            let (kind, mut group) = match choices.byte() % 5 {
                0 => ("t", Group::matrix(names(choices))),
                1 => ("p", Group::padded(column, pad(choices)).lengths("n")),
                2 => ("r", Group::ragged(column)),
                3 => ("w", Group::arrow(names(choices))),
                _ => ("t", Group::column(column)),
            };
            if let Some(dtype) = dtype(choices) {
                group = group.dtype(dtype);
            }
            if choices.chance(3) {
                group = group.nulls(nulls(choices));
            }
            if choices.chance(3) {
                group = group.validity(if choices.chance(8) { "t0" } else { "v" });
            }
            (format!("{kind}{number}"), group)
        })
        .collect()
}

fn conversion(choices: &mut Choices<'_>) -> Conversion {
    let selection = match choices.byte() % 5 {
        0 => Selection::Whole(Some(names(choices))),
        1 => Selection::Each(None),
        2 => Selection::Each(Some(names(choices))),
        3 => Selection::Named(groups(choices)),
        _ => Selection::Whole(None),
    };
    let unit = |choices: &mut Choices<'_>| {
        let units = [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];
        choices.chance(4).then(|| *choices.of(&units))
    };
    let dictionary = |choices: &mut Choices<'_>| {
        choices.chance(3).then(|| *choices.of(&[DictionaryMode::Values, DictionaryMode::Codes]))
    };
    let decimal = |choices: &mut Choices<'_>| *choices.of(&[DecimalMode::Value, DecimalMode::Unscaled]);
    let mut made = Conversion::default().select(selection);
    made = made.dtype(per(choices, dtype)).nulls(per(choices, nulls)).decimal(per(choices, decimal));
    made = made.dictionary(per(choices, dictionary)).categories(per(choices, categories)).unit(per(choices, unit));
    made = made.length(per(choices, length));
    made = made.copy(*choices.of(&[CopyMode::IfNeeded, CopyMode::Never, CopyMode::Always]));
    made = made.memory_order(*choices.of(&[MemoryOrder::C, MemoryOrder::F, MemoryOrder::A]));
    made.writable(choices.chance(4)).threads(NonZero::new(choices.below(3)))
}
