//! Gathers the values that dictionary codes stand for. Each code is bounded where it is used, as others may write to it.

use std::mem::MaybeUninit;
use std::ops::Range;

use arrow_buffer::{ArrowNativeType, BooleanBuffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;

use super::pack::{BLOCK_ROWS, UnalignedBits};
use super::repeat::{RowMap, slots};

/// Codes that are gathered in one step: enough for the loop itself to cost little.
const STEP: usize = 4;

/// The rows that the codes of a valid dictionary array stand for.
pub(super) struct Codes<'a>(pub(super) &'a ArrayData);

/// Evaluates an expression on the codes of a dictionary array, by the type that they are stored in.
macro_rules! with_codes {
    ($data:expr, $codes:ident => $result:expr) => {{
        let code = match $data.data_type() {
            DataType::Dictionary(code, _) => code.as_ref(),
            other => other,
        };
        match code {
            DataType::Int8 => with_codes!($data, i8, $codes => $result),
            DataType::Int16 => with_codes!($data, i16, $codes => $result),
            DataType::Int32 => with_codes!($data, i32, $codes => $result),
            DataType::Int64 => with_codes!($data, i64, $codes => $result),
            DataType::UInt8 => with_codes!($data, u8, $codes => $result),
            DataType::UInt16 => with_codes!($data, u16, $codes => $result),
            DataType::UInt32 => with_codes!($data, u32, $codes => $result),
            _ => with_codes!($data, u64, $codes => $result),
        }
    }};
    ($data:expr, $type:ty, $codes:ident => $result:expr) => {{
        let $codes = slots::<$type>($data);
        $result
    }};
}

impl RowMap for Codes<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn nulls(&self) -> Option<&NullBuffer> {
        self.0.nulls().filter(|nulls| nulls.null_count() > 0)
    }

    fn for_each(&self, rows: &Range<usize>, mut take: impl FnMut(Option<usize>, usize)) {
        with_codes!(self.0, codes => {
            let codes = some(codes, rows).iter().map(|code| code.to_usize());
            match self.nulls_of(rows) {
                None => codes.for_each(|code| take(code, 1)),
                Some(nulls) => codes.zip(&nulls).for_each(|(code, valid)| take(code.filter(|_| valid), 1)),
            }
        });
    }

    fn write<const N: usize>(&self, rows: &Range<usize>, source: &[[u8; N]], out: &mut [[MaybeUninit<u8>; N]]) -> bool {
        let Some(nulls) = self.nulls_of(rows) else {
            return with_codes!(self.0, codes => gather(some(codes, rows), source, out, |_| false));
        };
        let is_null = |row| row < nulls.len() && nulls.is_null(row);
        if !with_codes!(self.0, codes => gather(some(codes, rows), source, out, is_null)) {
            return false;
        }
        for (word, out) in words(&nulls).zip(out.chunks_mut(BLOCK_ROWS)) {
            let mut clear = !word;
            while let Some(slot) = usize::try_from(clear.trailing_zeros()).ok().and_then(|row| out.get_mut(row)) {
                *slot = [MaybeUninit::new(0); N];
                clear &= clear - 1;
            }
        }
        true
    }

    fn write_bits(&self, rows: &Range<usize>, source: &BooleanBuffer, out: &mut [u8]) -> bool {
        let Some(nulls) = self.nulls_of(rows) else {
            return with_codes!(self.0, codes => gather_bits(some(codes, rows), source, out, |_| false));
        };
        let is_null = |row| row < nulls.len() && nulls.is_null(row);
        if !with_codes!(self.0, codes => gather_bits(some(codes, rows), source, out, is_null)) {
            return false;
        }
        for (word, out) in words(&nulls).zip(out.chunks_mut(size_of::<u64>())) {
            out.iter_mut().zip(word.to_le_bytes()).for_each(|(byte, valid)| *byte &= valid);
        }
        true
    }
}

impl Codes<'_> {
    /// Returns the validity of some rows; `None` if no row of the array is null.
    fn nulls_of(&self, rows: &Range<usize>) -> Option<NullBuffer> {
        let nulls = self.nulls().filter(|nulls| rows.start <= rows.end && rows.end <= nulls.len())?;
        Some(nulls.slice(rows.start, rows.len()))
    }
}

/// The codes of some rows.
fn some<'a, T>(codes: &'a [T], rows: &Range<usize>) -> &'a [T] {
    codes.get(rows.clone()).unwrap_or(&[])
}

/// The validity of rows, 64 a word, the first one lowest.
fn words(nulls: &NullBuffer) -> impl Iterator<Item = u64> {
    let bits = UnalignedBits::new(nulls.validity(), nulls.offset());
    (0..nulls.len()).step_by(BLOCK_ROWS).map(move |row| bits.word(row))
}

/// Writes the value of each code, or zeros where a null's code leads out of the values. Returns false where a valid row's code
/// leads out of them, or there is not one code for each slot.
// Were it inlined for every type into one function, its loop would keep its pointers on the stack.
#[inline(never)]
fn gather<T: ArrowNativeType, const N: usize>(
    codes: &[T],
    source: &[[u8; N]],
    out: &mut [[MaybeUninit<u8>; N]],
    is_null: impl Fn(usize) -> bool,
) -> bool {
    if codes.len() != out.len() {
        return false;
    }
    let mut row = 0;
    let mut one = |slot: &mut [MaybeUninit<u8>; N], code: &T| {
        let value = match source.get(code.as_usize()) {
            Some(value) => *value,
            None if is_null(row) => [0; N],
            None => return false,
        };
        *slot = value.map(MaybeUninit::new);
        row += 1;
        true
    };
    let ((steps, codes), (slots, rest)) = (codes.as_chunks::<STEP>(), out.as_chunks_mut::<STEP>());
    slots.iter_mut().zip(steps).all(|(slots, codes)| slots.iter_mut().zip(codes).all(|(slot, code)| one(slot, code)))
        && rest.iter_mut().zip(codes).all(|(slot, code)| one(slot, code))
}

/// As [`gather`], of bits: a byte of `out` has eight of them, the first one lowest.
#[inline(never)]
fn gather_bits<T: ArrowNativeType>(
    codes: &[T],
    source: &BooleanBuffer,
    out: &mut [u8],
    is_null: impl Fn(usize) -> bool,
) -> bool {
    let (bytes, offset, count) = (source.values(), source.offset(), source.len());
    if codes.len().div_ceil(8) != out.len() {
        return false;
    }
    for (step, (out, codes)) in out.iter_mut().zip(codes.chunks(8)).enumerate() {
        let mut byte = 0;
        for (index, code) in codes.iter().enumerate() {
            let code = code.as_usize();
            let at = if code < count { Some(offset + code) } else { None };
            match at.and_then(|at| bytes.get(at / 8).map(|byte| byte >> (at % 8) & 1)) {
                Some(bit) => byte |= bit << index,
                None if is_null(step * 8 + index) => {}
                None => return false,
            }
        }
        *out = byte;
    }
    true
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::{
        Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
    };
    use arrow_array::{
        Array, ArrayRef, ArrowPrimitiveType, BooleanArray, FixedSizeListArray, Int64Array, PrimitiveArray, make_array,
    };
    use arrow_cast::cast;
    use arrow_schema::Field;

    use super::super::repeat::repeated;
    use super::*;

    const VALUES: i64 = 100;

    /// Values of each width, one in seven of them null.
    fn values() -> impl Iterator<Item = ArrayRef> {
        let counted: Int64Array = (0..VALUES).map(|row| (row % 7 > 0).then_some(row)).collect();
        let types = [
            DataType::UInt8,
            DataType::Int16,
            DataType::Float32,
            DataType::Float64,
            DataType::Decimal128(38, 0),
            DataType::Decimal256(40, 0),
        ];
        let odd: BooleanArray = counted.iter().map(|row| row.map(|row| row % 3 == 1)).collect();
        let bits: ArrayRef = Arc::new(odd);
        // Miri takes a narrow one, a wide one and bits.
        let all = types.into_iter().map(move |to| cast(&counted, &to).unwrap()).chain([bits]);
        all.step_by(if cfg!(miri) { 3 } else { 1 })
    }

    /// A dictionary array whose codes nobody has checked.
    fn encoded<K: ArrowPrimitiveType>(codes: PrimitiveArray<K>, values: &ArrayRef) -> ArrayData {
        let to = DataType::Dictionary(Box::new(K::DATA_TYPE), Box::new(values.data_type().clone()));
        let data = codes.into_data().into_builder().data_type(to).child_data(vec![values.to_data()]);
        // SAFETY: the codes have the type that the dictionary's has, and a bitmap of as many; what they refer to is read by
        // `Codes` alone, which bounds each.
        unsafe { data.build_unchecked() }
    }

    fn equal_what_arrow_takes<K: ArrowPrimitiveType>()
    where
        K::Native: TryFrom<i64>,
    {
        let sizes = [(0, 1), (1, 2), (70, 5), (63, 5), (64, 64), (200, 3), (1000, 1), (1000, 2)];
        // Under Miri up to a word of the bitmap and beyond: each row takes long there.
        let sizes = if cfg!(miri) { &sizes[..3] } else { &sizes[..] };
        for values in values() {
            for (rows, every) in sizes.iter().copied() {
                let code = |row: i64| K::Native::try_from(row * 7 % VALUES).ok().unwrap();
                for codes in [
                    (0..rows).map(|row| Some(code(row))).collect::<PrimitiveArray<K>>(),
                    (0..rows).map(|row| (row % every > 0).then(|| code(row))).collect(),
                ] {
                    let whole = encoded(codes, &values);
                    for (offset, length) in [(0, whole.len()), (whole.len() / 3, whole.len() / 2)] {
                        let part = whole.slice(offset, length);
                        let found = repeated(&values.to_data(), &Codes(&part)).unwrap();
                        found.validate_full().unwrap();
                        let expected = cast(&make_array(part), values.data_type()).unwrap();
                        assert_eq!(make_array(found).as_ref(), expected.as_ref(), "{}", K::DATA_TYPE);
                    }
                }
            }
        }
    }

    #[test]
    fn values_of_codes_are_those_that_arrow_takes() {
        equal_what_arrow_takes::<Int8Type>();
        equal_what_arrow_takes::<UInt64Type>();
        if cfg!(miri) {
            return;
        }
        equal_what_arrow_takes::<Int16Type>();
        equal_what_arrow_takes::<Int32Type>();
        equal_what_arrow_takes::<Int64Type>();
        equal_what_arrow_takes::<UInt8Type>();
        equal_what_arrow_takes::<UInt16Type>();
        equal_what_arrow_takes::<UInt32Type>();
    }

    #[test]
    fn codes_that_lead_out_of_the_values_are_errors_where_they_are_valid() {
        let places = [0, 64, 100, 7, 8, 63, 99];
        let places = if cfg!(miri) { &places[1..3] } else { &places[..] };
        for values in values() {
            for bad in [VALUES, -1, i64::MAX, i64::MIN] {
                for at in places.iter().copied() {
                    let codes = |valid: bool| -> Int64Array {
                        let codes: Vec<i64> = (0..101).map(|row| if row == at { bad } else { row % VALUES }).collect();
                        let nulls = (0..101).map(|row| row != at || valid).collect::<NullBuffer>();
                        Int64Array::new(codes.into(), (!valid).then_some(nulls))
                    };
                    let valid = encoded(codes(true), &values);
                    let error = repeated(&values.to_data(), &Codes(&valid)).unwrap_err();
                    assert!(error.to_string().contains("lead out of the values"), "{error}");
                    // Bytes under a null have no meaning, and become zeros.
                    let null = encoded(codes(false), &values);
                    let found = repeated(&values.to_data(), &Codes(&null)).unwrap();
                    assert!(found.is_null(usize::try_from(at).unwrap()));
                    found.validate_full().unwrap();
                }
            }
        }
    }

    #[test]
    fn codes_that_lead_out_of_lists_of_bits_are_errors() {
        let items = (0..3 * VALUES).map(|at| Some(at % 5 < 2)).collect::<BooleanArray>();
        let item = Arc::new(Field::new("item", DataType::Boolean, true));
        let lists: ArrayRef = Arc::new(FixedSizeListArray::new(item, 3, Arc::new(items), None));
        let read = |code| repeated(&lists.to_data(), &Codes(&encoded(Int64Array::from(vec![7, code]), &lists)));
        let found = make_array(read(VALUES - 1).unwrap());
        assert_eq!((found.slice(0, 1), found.slice(1, 1)), (lists.slice(7, 1), lists.slice(99, 1)));
        for bad in [VALUES, VALUES + 1, i64::MAX] {
            let error = read(bad).unwrap_err();
            assert!(error.reason().contains("lead out of the values"), "{error}");
        }
    }

    #[test]
    fn no_codes_need_no_values() {
        for values in values() {
            let none = values.slice(0, 0);
            let nulls = encoded(PrimitiveArray::<Int32Type>::new_null(70), &none);
            let found = repeated(&none.to_data(), &Codes(&nulls)).unwrap();
            assert_eq!((found.len(), found.null_count()), (70, 70));
            let width = values.data_type().primitive_width();
            let bytes = found.buffers().first().unwrap().as_slice();
            assert!(width.is_none_or(|width| bytes.len() == 70 * width) && bytes.iter().all(|byte| *byte == 0));
        }
    }
}
