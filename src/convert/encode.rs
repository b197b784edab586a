//! Writes the codes of values that are categories: one look-up for each slot.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, bit_util};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field};

use super::repeat::RowMap;
use super::rounds::{LOOK_UP, in_rounds};
#[cfg(target_arch = "x86_64")]
use super::text_register::TextRegister as BestWords;
use crate::alloc::fallible;
use crate::arrow::DeviceArray;
#[cfg(not(target_arch = "x86_64"))]
use crate::categories::WordPair as BestWords;
use crate::categories::{Categories, Lookup, Slots, Visit, visit};
use crate::error::{Error, Result};
use crate::spec::Spec;

/// Returns the values that a spec's codes stand for; `None` if they are those of no categories.
///
/// # Errors
/// If an allocation fails.
pub(crate) fn vocabulary(spec: &Spec) -> Result<Option<DeviceArray>> {
    let field = |values: &ArrayRef| Arc::new(Field::new("", values.data_type().clone(), false));
    let array = |categories: &Categories| DeviceArray::from_arrow(categories.values(), field(categories.values()));
    spec.categories().map(array).transpose()
}

/// Returns the int32 codes of a valid array's values, 0 for nulls. A value that is no category has a negative code, if such values
/// are an error.
///
/// # Errors
/// If the values are of no type that categories can have; if an allocation fails.
pub(super) fn encoded(data: &ArrayData, categories: &Categories) -> Result<ArrayData> {
    struct All<'a>(&'a ArrayData, &'a Categories);
    impl Visit for All<'_> {
        type Out = Result<Vec<i32>>;
        fn visit<'a>(self, slots: impl Slots<'a>) -> Result<Vec<i32>> {
            let Self(data, categories) = self;
            codes_of(data, categories.lookup(data.len()), slots)
        }
    }
    let codes = visit(data, All(data, categories)).ok_or_else(|| no_categories(data))??;
    built(codes, data.nulls().cloned())
}

/// The codes of an array's slots, 0 for nulls; an error if it does not have the value of one.
fn codes_of<'a>(data: &ArrayData, look: Lookup<'_>, slots: impl Slots<'a>) -> Result<Vec<i32>> {
    let mut codes = fallible::filled(data.len(), 0_i32)?;
    in_rounds(data.len(), LOOK_UP, |rows| {
        let mut write = |start, end| look.write_codes::<BestWords>(slots, start, codes.get_mut(start..end)?);
        let is_whole = match data.nulls() {
            None => write(rows.start, rows.end),
            Some(nulls) => {
                let nulls = nulls.slice(rows.start, rows.len());
                nulls.valid_slices().try_for_each(|(start, end)| write(rows.start + start, rows.start + end))
            }
        };
        is_whole.ok_or_else(lead_out)
    })?;
    Ok(codes)
}

/// As [`encoded`], of the rows that `rows` maps to values, such as the codes of a dictionary.
///
/// # Errors
/// As [`encoded`]; if a row leads out of the values.
pub(super) fn encoded_rows(values: &ArrayData, rows: &impl RowMap, categories: &Categories) -> Result<ArrayData> {
    struct Mapped<'a, R>(&'a ArrayData, &'a R, &'a Categories);
    impl<R: RowMap> Visit for Mapped<'_, R> {
        type Out = Result<ArrayData>;
        fn visit<'a>(self, slots: impl Slots<'a>) -> Result<ArrayData> {
            let Self(values, rows, categories) = self;
            let look = categories.lookup(rows.len());
            let mut codes = fallible::with_room(rows.len())?;
            let mut valid = fallible::zeroed(rows.len().div_ceil(8))?;
            in_rounds(rows.len(), LOOK_UP, |part| {
                let mut is_whole = true;
                rows.for_each(&part, |slot, count| {
                    let slot = slot.filter(|slot| {
                        values.nulls().is_none_or(|nulls| *slot >= nulls.len() || nulls.is_valid(*slot))
                    });
                    let code = slot.map(|slot| look.code_at(slots, slot));
                    is_whole &= code != Some(None);
                    for _ in 0..count.min(part.end.saturating_sub(codes.len())) {
                        if code.is_some() {
                            bit_util::set_bit(&mut valid, codes.len());
                        }
                        codes.push(code.flatten().unwrap_or(0));
                    }
                });
                (is_whole && codes.len() == part.end).then_some(()).ok_or_else(lead_out)
            })?;
            let nulls = NullBuffer::new(BooleanBuffer::new(Buffer::from_vec(valid), 0, codes.len()));
            built(codes, Some(nulls).filter(|nulls| nulls.null_count() > 0))
        }
    }
    visit(values, Mapped(values, rows, categories)).ok_or_else(|| no_categories(values))?
}

/// The array of these codes.
fn built(codes: Vec<i32>, nulls: Option<NullBuffer>) -> Result<ArrayData> {
    let array = ArrayData::builder(DataType::Int32).len(codes.len()).nulls(nulls);
    // Checks lengths alone, as any bytes are integers.
    array.add_buffer(Buffer::from_vec(codes)).build().map_err(|error| Error::internal(error.to_string()))
}

fn lead_out() -> Error {
    Error::invalid("offsets, views or codes lead out of the values")
}

fn no_categories(data: &ArrayData) -> Error {
    Error::unsupported(format!("values of {} are no categories", data.data_type()))
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Int32Type, UInt8Type};
    use arrow_array::{
        DictionaryArray, Int32Array, Int64Array, LargeStringArray, StringArray, StringViewArray, make_array,
    };

    use super::super::codes::Codes;
    use super::*;

    fn carriers() -> Categories {
        Categories::new(Arc::new(StringArray::from(vec!["AA", "DL", "a carrier of a long name"]))).unwrap()
    }

    fn read(data: Result<ArrayData>) -> Vec<Option<i32>> {
        let data = data.unwrap();
        data.validate_full().unwrap();
        make_array(data).as_primitive::<Int32Type>().iter().collect()
    }

    #[test]
    fn slices_and_nulls_are_read_at_their_place() {
        let texts = vec![Some("DL"), None, Some("XX"), Some("AA"), Some("a carrier of a long name"), Some("YY")];
        let expected = [Some(1), None, Some(9), Some(0), Some(2), Some(9)];
        let (categories, strict) = (carriers().unknown(9), carriers());
        let arrays = [StringArray::from(texts.clone()).to_data(), StringViewArray::from(texts).to_data()];
        for (sought, whole) in [(0, &arrays[0]), (0, &arrays[1]), (1000, &arrays[0]), (1000, &arrays[1])] {
            for categories in [&categories, &strict] {
                categories.lookup(sought);
            }
            for (start, length) in [(0, 6), (1, 4), (3, 2), (6, 0)] {
                let part = whole.slice(start, length);
                assert_eq!(read(encoded(&part, &categories)), expected[start..start + length]);
            }
            assert_eq!(read(encoded(&whole.slice(2, 4), &strict)), [Some(-1), Some(0), Some(2), Some(-2)]);
        }
    }

    #[test]
    fn arrays_of_any_length_have_the_codes_of_plain_look_ups() {
        let rows = if cfg!(miri) { 90 } else { 3000 };
        let word = |number: usize| "word".repeat(number % 5) + &number.to_string();
        let known: Vec<String> = (0..30).map(word).collect();
        let valid = [|_: usize| true, |row: usize| !row.is_multiple_of(7), |row: usize| row > 60];
        for valid in valid {
            let texts: Vec<Option<String>> = (0..rows).map(|row| valid(row).then(|| word(row * row % 31))).collect();
            let position = |text: &String| known.iter().position(|known| known == text).unwrap_or(99);
            let expected: Vec<Option<i32>> =
                texts.iter().map(|text| text.as_ref().map(|text| i32::try_from(position(text)).unwrap())).collect();
            let arrays = [
                StringArray::from(texts.clone()).to_data(),
                LargeStringArray::from(texts.clone()).to_data(),
                StringViewArray::from_iter(&texts).to_data(),
            ];
            for data in arrays {
                let categories = Categories::new(Arc::new(StringArray::from(known.clone()))).unwrap().unknown(99);
                // By buckets first, then by a perfect hash.
                for sought in [0, rows * rows] {
                    categories.lookup(sought);
                    for first in [0, 5, rows / 2] {
                        let part = data.slice(first, rows - first);
                        assert_eq!(read(encoded(&part, &categories)), expected[first..]);
                    }
                }
            }
        }
    }

    #[test]
    fn a_large_dictionary_is_looked_up_row_by_row_with_the_same_result() {
        let values = StringArray::from(vec![Some("DL"), None, Some("XX"), Some("AA"), Some("unused")]);
        let codes = Int32Array::from(vec![Some(3), None, Some(1), Some(0), Some(2), Some(3)]);
        let whole = DictionaryArray::<Int32Type>::try_new(codes, Arc::new(values.clone())).unwrap().to_data();
        let expected = [Some(0), None, None, Some(1), Some(5), Some(0)];
        for (start, length) in [(0, 6), (2, 3), (1, 1), (0, 0)] {
            let part = whole.slice(start, length);
            let found = read(encoded_rows(&values.to_data(), &Codes(&part), &carriers().unknown(5)));
            assert_eq!(found, expected[start..start + length]);
        }
        // What no row uses is not looked up.
        let strict = carriers();
        assert_eq!(read(encoded_rows(&values.to_data(), &Codes(&whole.slice(3, 1)), &strict)), [Some(1)]);
        assert!(!strict.has_unknown());
    }

    #[test]
    fn codes_that_lead_out_of_the_values_are_errors() {
        let categories = Categories::new(Arc::new(Int64Array::from(vec![7, 8]))).unwrap();
        for values in [Int64Array::from(vec![7, 8]), Int64Array::from(vec![Some(7), None])] {
            let codes = arrow_array::UInt8Array::from(vec![0, 2]);
            let data = codes.into_data().into_builder();
            let to = DataType::Dictionary(Box::new(DataType::UInt8), Box::new(DataType::Int64));
            let data = data.data_type(to).child_data(vec![values.to_data()]);
            // SAFETY: the codes have the type that the dictionary says; `encoded_rows` alone reads what they refer to.
            let data = unsafe { data.build_unchecked() };
            let error = encoded_rows(&values.to_data(), &Codes(&data), &categories).unwrap_err();
            assert_eq!(error.kind(), crate::error::ErrorKind::Invalid);
        }
        let valid: DictionaryArray<UInt8Type> = ["AA"].into_iter().collect();
        assert!(encoded(&valid.to_data(), &categories).is_err());
    }
}
