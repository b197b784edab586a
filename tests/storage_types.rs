//! Do the types that are stored as something else hold for any data: dictionaries, runs, binary, decimals, complex
//! numbers, in lists, sliced and in chunks? Random columns against a reference that goes scalar by scalar.

#![allow(unsafe_code, reason = "edits C structs to leave null counts out, and to break run ends")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a helper that fails is a test that fails, and the numbers of a test are small"
)]

mod support;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int32Type, Int64Type, RunEndIndexType};
use arrow_array::{Array, ArrayRef, make_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_dlpack::{
    Chunks, Conversion, CopyLog, CopyMode, DType, DecimalMode, DeviceArray, DictionaryMode, ErrorKind, NullPolicy,
    Scalar, Selection, Tensor, to_arrow,
};
use arrow_schema::{DataType, Field, FieldRef};
use proptest::prelude::*;
use proptest::sample::select;
use support::Random;
use support::arrow::{child_of, extension, field, import_edited, list, random_array, set_buffer, shared};
use support::reference::{Element, read, read_bools};

fn dictionary(codes: DataType, values: DataType) -> DataType {
    DataType::Dictionary(Box::new(codes), Box::new(values))
}

fn runs(ends: DataType, values: DataType) -> DataType {
    DataType::RunEndEncoded(Arc::new(Field::new("run_ends", ends, false)), field("values", values))
}

/// Columns of every type that is stored as something else; those in the second list hold codes.
fn types() -> (Vec<DataType>, Vec<DataType>) {
    let binary = DataType::FixedSizeBinary(3);
    let plain = vec![
        binary.clone(),
        DataType::FixedSizeBinary(1),
        DataType::Decimal32(9, 2),
        DataType::Decimal64(18, -3),
        runs(DataType::Int16, DataType::Int16),
        runs(DataType::Int32, DataType::Boolean),
        runs(DataType::Int64, binary.clone()),
        runs(DataType::Int32, DataType::Decimal64(18, 2)),
        runs(DataType::Int32, list(DataType::Float32, 2)),
        list(runs(DataType::Int16, DataType::Float64), 2),
        list(binary.clone(), 2),
        list(list(binary, 2), 3),
        list(list(DataType::Decimal32(9, 0), 3), 1),
    ];
    let numbers = [DataType::Int64, DataType::Boolean, DataType::Date32, DataType::Float16];
    let mut coded: Vec<DataType> = numbers.into_iter().map(|values| dictionary(DataType::Int8, values)).collect();
    coded.extend([
        dictionary(DataType::UInt64, DataType::FixedSizeBinary(2)),
        dictionary(DataType::Int64, list(DataType::Int16, 2)),
        dictionary(DataType::UInt16, DataType::Decimal32(9, 2)),
        dictionary(DataType::Int32, dictionary(DataType::UInt8, DataType::Int32)),
        dictionary(DataType::Int16, runs(DataType::Int32, DataType::Int8)),
        runs(DataType::Int32, dictionary(DataType::Int8, DataType::Int64)),
        list(dictionary(DataType::UInt32, DataType::Float64), 3),
        list(runs(DataType::Int32, dictionary(DataType::Int8, DataType::Boolean)), 2),
    ]);
    (plain, coded)
}

/// A column of random data that begins at an offset on every level. Slots of nulls hold junk, codes among it.
fn random_column(data_type: &DataType, length: usize, one_null_in: usize, random: &mut Random) -> ArrayRef {
    let (skipped, more) = (random.below(5), random.below(3));
    let total = skipped + length + more;
    let nulls = (one_null_in > 0)
        .then(|| NullBuffer::new(BooleanBuffer::collect_bool(total, |_| random.below(one_null_in) != 0)));
    let builder = ArrayData::builder(data_type.clone()).len(total);
    let data = match data_type {
        DataType::FixedSizeList(item, size) => {
            let items = random_column(item.data_type(), total * *size as usize, one_null_in, random);
            builder.nulls(nulls).add_child_data(items.to_data())
        }
        DataType::FixedSizeBinary(width) => {
            let bytes: Vec<u8> = (0..total * *width as usize).map(|_| random.next() as u8).collect();
            // Aligned for every dtype whose bytes these are.
            builder.nulls(nulls).add_buffer(Buffer::from_slice_ref(&bytes))
        }
        DataType::Dictionary(codes, values) => {
            let count = 1 + random.below(6);
            let dictionary = random_column(values, count, one_null_in, random);
            let valid = |index: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(index));
            let width = codes.primitive_width().unwrap();
            let code = |index| if valid(index) { random.below(count) as u64 } else { 0x7777_7777_7777_7777 };
            let bytes: Vec<u8> = (0..total).map(code).flat_map(|code| code.to_le_bytes()[..width].to_vec()).collect();
            // Aligned for every width.
            let buffer = Buffer::from_slice_ref(&bytes);
            builder.nulls(nulls).add_buffer(buffer).add_child_data(dictionary.to_data())
        }
        DataType::RunEndEncoded(ends, values) => {
            let mut run_ends = Vec::new();
            while run_ends.last().is_none_or(|end| *end < total) {
                run_ends.push(run_ends.last().unwrap_or(&0) + 1 + random.below(4));
            }
            let values = random_column(values.data_type(), run_ends.len(), one_null_in, random);
            let width = ends.data_type().primitive_width().unwrap();
            let bytes: Vec<u8> = run_ends.iter().flat_map(|end| end.to_le_bytes()[..width].to_vec()).collect();
            let ends = ArrayData::builder(ends.data_type().clone()).len(run_ends.len());
            let ends = ends.add_buffer(Buffer::from_slice_ref(&bytes)).build().unwrap();
            builder.add_child_data(ends).add_child_data(values.to_data())
        }
        other => return random_array(other, total, one_null_in, random).slice(skipped, length),
    };
    make_array(data.build().expect("a valid array")).slice(skipped, length)
}

/// Where the value of a row of runs is.
fn run_of(array: &dyn Array, row: usize) -> (ArrayRef, usize) {
    fn find<E: RunEndIndexType>(array: &dyn Array, row: usize) -> (ArrayRef, usize)
    where
        E::Native: Into<i64>,
    {
        let runs = array.as_run::<E>();
        let position = (row + runs.offset()) as i64;
        let ends = runs.run_ends().values().iter().map(|end| (*end).into());
        (runs.values().clone(), ends.take_while(|end: &i64| *end <= position).count())
    }
    match array.data_type() {
        DataType::RunEndEncoded(ends, _) if *ends.data_type() == DataType::Int16 => find::<Int16Type>(array, row),
        DataType::RunEndEncoded(ends, _) if *ends.data_type() == DataType::Int32 => find::<Int32Type>(array, row),
        _ => find::<Int64Type>(array, row),
    }
}

/// Whether a row stands for a null, whatever it goes through.
fn is_null(array: &dyn Array, row: usize) -> bool {
    match array.data_type() {
        DataType::RunEndEncoded(_, _) => {
            let (values, run) = run_of(array, row);
            is_null(values.as_ref(), run)
        }
        DataType::Dictionary(_, _) if array.is_valid(row) => {
            let codes = array.as_any_dictionary();
            is_null(codes.values().as_ref(), codes.normalized_keys()[row])
        }
        _ => array.is_null(row),
    }
}

/// Elements of a row of a type.
fn width(data_type: &DataType, values: bool) -> usize {
    match data_type {
        DataType::FixedSizeList(item, size) => *size as usize * width(item.data_type(), values),
        DataType::FixedSizeBinary(size) => *size as usize,
        DataType::RunEndEncoded(_, item) => width(item.data_type(), values),
        DataType::Dictionary(_, item) if values => width(item, values),
        _ => 1,
    }
}

/// The elements of a row, by definition: codes of dictionaries, or their values.
fn row(array: &dyn Array, index: usize, values: bool) -> Vec<Element> {
    let data_type = array.data_type();
    match data_type {
        DataType::FixedSizeList(_, _) if array.is_valid(index) => {
            let items = array.as_fixed_size_list().value(index);
            (0..items.len()).flat_map(|item| row(items.as_ref(), item, values)).collect()
        }
        DataType::RunEndEncoded(_, _) => {
            let (items, run) = run_of(array, index);
            row(items.as_ref(), run, values)
        }
        _ if array.is_null(index) => vec![None; width(data_type, values)],
        DataType::Dictionary(codes, _) => {
            let dictionary = array.as_any_dictionary();
            let code = dictionary.normalized_keys()[index];
            if values {
                return row(dictionary.values().as_ref(), code, values);
            }
            let null = is_null(dictionary.values().as_ref(), code);
            vec![(!null).then(|| code.to_le_bytes()[..codes.primitive_width().unwrap()].to_vec())]
        }
        DataType::FixedSizeBinary(_) => {
            array.as_fixed_size_binary().value(index).iter().map(|byte| Some(vec![*byte])).collect()
        }
        DataType::Boolean => vec![Some(vec![u8::from(array.as_boolean().value(index))])],
        other => {
            let (width, data) = (other.primitive_width().unwrap(), array.to_data());
            let start = (data.offset() + index) * width;
            vec![Some(data.buffers()[0].as_slice()[start..start + width].to_vec())]
        }
    }
}

fn rows(array: &dyn Array, values: bool) -> Vec<Element> {
    (0..array.len()).flat_map(|index| row(array, index, values)).collect()
}

/// The bytes that a fill of 1 has, by the type of the elements.
fn one(tensor: &Tensor) -> Vec<u8> {
    match tensor.dtype() {
        DType::Float16 => half::f16::ONE.to_ne_bytes().into(),
        DType::Float32 => 1_f32.to_ne_bytes().into(),
        DType::Float64 => 1_f64.to_ne_bytes().into(),
        dtype => 1_u64.to_le_bytes()[..dtype.itemsize()].into(),
    }
}

/// Converts chunks under a log, and checks that `explain` and the log tell what happened.
fn convert(field: &FieldRef, chunks: &[DeviceArray], options: &Conversion) -> arrow_dlpack::Result<Tensor> {
    let log = CopyLog::new();
    let tensor = log.track(|| options.to_tensor(Chunks::new(field, chunks)));
    let report = options.clone().select(Selection::Each(None)).explain(Chunks::new(field, chunks)).unwrap();
    let row = &report.rows[0];
    match &tensor {
        Ok(tensor) => {
            assert_eq!(row.error, None, "{report}");
            assert_eq!(row.dtype, Some(tensor.dtype()));
            assert_eq!(row.shape, tensor.shape().iter().copied().map(Some).collect::<Vec<_>>());
            assert_eq!((log.bytes(), tensor.is_copied()), (row.bytes, !row.view), "{report}\n{log:?}");
        }
        Err(error) => assert_eq!((row.error.as_ref(), log.bytes()), (Some(error), 0), "{report}"),
    }
    tensor
}

/// The null counts of an array and of all below it, left out.
fn forget_null_counts(array: &mut arrow_dlpack::ffi::arrow_device::ArrowArray, data_type: &DataType) {
    if !matches!(data_type, DataType::RunEndEncoded(_, _)) {
        array.null_count = -1;
    }
    match data_type {
        DataType::FixedSizeList(item, _) => forget_null_counts(child_of(array, 0), item.data_type()),
        DataType::RunEndEncoded(_, values) => forget_null_counts(child_of(array, 1), values.data_type()),
        DataType::Dictionary(_, values) => {
            // SAFETY: arrow-rs gives a dictionary where the type has one.
            forget_null_counts(unsafe { &mut *array.dictionary }, values);
        }
        _ => {}
    }
}

fn check_against_the_reference(data_type: &DataType, values: bool, lengths: &[usize], one_null_in: usize, seed: u64) {
    let mut random = Random(seed);
    let field = field("x", data_type.clone());
    // Codes of several chunks need one dictionary: slices of one column.
    let whole = random_column(data_type, lengths.iter().sum(), one_null_in, &mut random);
    let mut start = 0;
    let mut chunks = Vec::new();
    for length in lengths {
        let part = whole.slice(start, *length);
        start += length;
        let forgetful = import_edited(&part, &field, |array| forget_null_counts(array, data_type)).0.unwrap();
        chunks.push(if random.below(2) == 0 { shared(&part, &field) } else { forgetful });
    }
    let expected = rows(&whole, values);
    let mode = if values { DictionaryMode::Values } else { DictionaryMode::Codes };
    let options = Conversion::default().decimal(DecimalMode::Unscaled).dictionary(mode);
    let first = expected.iter().position(Option::is_none);
    match (convert(&field, &chunks, &options), first) {
        (Ok(tensor), None) => assert_eq!(read(&tensor), expected.iter().flatten().cloned().collect::<Vec<_>>()),
        (Err(error), Some(first)) => {
            let row = first / (expected.len() / whole.len());
            assert_eq!((error.kind(), error.column(), error.row()), (ErrorKind::Null, Some("x"), Some(row)));
        }
        (result, first) => panic!("{result:?}, and the first null is {first:?}"),
    }
    let filled = convert(&field, &chunks, &options.clone().nulls(NullPolicy::Fill(Scalar::Int(1)))).unwrap();
    let fill = one(&filled);
    let with = |fill: &Vec<u8>| expected.iter().map(|e| e.clone().unwrap_or(fill.clone())).collect::<Vec<_>>();
    assert_eq!(read(&filled), with(&fill));
    let keep = options.clone().nulls(NullPolicy::Keep);
    let copied = convert(&field, &chunks, &keep.clone().copy(CopyMode::Always)).unwrap();
    assert_eq!(read(&copied), with(&vec![0; fill.len()]));
    for (kept, expected) in read(&convert(&field, &chunks, &keep).unwrap()).iter().zip(&expected) {
        assert!(expected.as_ref().is_none_or(|expected| expected == kept));
    }
    let never = convert(&field, &chunks, &keep.copy(CopyMode::Never));
    let rewritten = width(data_type, false) != width(data_type, true) || data_type.to_string().contains("RunEnd");
    match &never {
        Ok(tensor) => {
            assert!(!tensor.is_copied() && (chunks.len() <= 1 || lengths.iter().filter(|n| **n > 0).count() <= 1))
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Copy),
    }
    assert!(never.is_err() || whole.is_empty() || !(rewritten && values));
    // Validity asks for codes alone.
    let valid: Vec<bool> = rows(&whole, false).iter().map(Option::is_some).collect();
    assert_eq!(read_bools(&Conversion::default().validity(Chunks::new(&field, &chunks)).unwrap()), valid);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 6 } else { 400 }))]

    #[test]
    fn any_column_holds_what_the_definition_says(
        data_type in select([types().0, types().1].concat()),
        values: bool,
        lengths in proptest::collection::vec(0..20_usize, 0..4),
        one_null_in in 0..5_usize,
        seed: u64,
    ) {
        // 1 in 1 is a column of nulls.
        check_against_the_reference(&data_type, values, &lengths, one_null_in, seed);
    }

    #[test]
    fn codes_return_as_what_they_stood_for(
        data_type in select(types().1),
        length in 0..20_usize,
        seed: u64,
    ) {
        let mut random = Random(seed);
        let column = random_column(&data_type, length, 0, &mut random);
        let tensor = Conversion::default().to_tensor(&column).unwrap();
        let log = CopyLog::new();
        let back = log.track(|| to_arrow(&tensor, None, CopyMode::Never)).unwrap();
        prop_assert_eq!(log.bytes(), 0);
        let again = Conversion::default().copy(CopyMode::Never).to_tensor(&back).unwrap();
        prop_assert_eq!(again.as_ptr(), tensor.as_ptr());
        let arrow = back.to_arrow().unwrap();
        prop_assert_eq!(rows(&arrow, true), rows(&column, true));
        if !data_type.to_string().contains("RunEnd") || matches!(data_type, DataType::Dictionary(_, _)) {
            prop_assert_eq!(arrow.data_type(), &data_type);
        }
    }

    #[test]
    fn complex_numbers_are_pairs(rows in 0..12_usize, offset in 0..4_usize, one_null_in in 0..6_usize, wide: bool, nested: bool, seed: u64) {
        let mut random = Random(seed);
        let (part, dtype, other) = match wide {
            true => (DataType::Float64, DType::Complex128, DType::Complex64),
            false => (DataType::Float32, DType::Complex64, DType::Complex128),
        };
        let data_type = if nested { list(list(part, 2), 3) } else { list(part, 2) };
        let column = random_column(&data_type, rows + offset, one_null_in, &mut random).slice(offset, rows);
        let parts = self::rows(&column, false);
        let numbers: Vec<Element> = parts.chunks(2).map(|pair| Some([pair[0].clone()?, pair[1].clone()?].concat())).collect();
        let field = field("z", column.data_type().clone());
        let chunks = [shared(&column, &field)];
        let fill = Conversion::default().nulls(NullPolicy::Fill(Scalar::Int(0)));
        let tensor = convert(&field, &chunks, &fill.clone().dtype(dtype)).unwrap();
        prop_assert_eq!(tensor.shape(), &[rows as i64, 3][..1 + usize::from(nested)]);
        let zero = vec![0; dtype.itemsize()];
        prop_assert_eq!(read(&tensor), numbers.iter().map(|number| number.clone().unwrap_or(zero.clone())).collect::<Vec<_>>());
        prop_assert_eq!(tensor.is_copied(), numbers.contains(&None));
        let cast = convert(&field, &chunks, &fill.dtype(other)).unwrap();
        let doubles = |tensor: &Tensor| -> Vec<f64> {
            let size = tensor.dtype().itemsize() / 2;
            let bytes = read(tensor).concat();
            bytes.chunks(size).map(|part| match size {
                4 => f64::from(f32::from_ne_bytes(part.try_into().unwrap())),
                _ => f64::from_ne_bytes(part.try_into().unwrap()),
            }).collect()
        };
        let narrow = |value: &f64| f64::from(*value as f32);
        let close = doubles(&tensor).iter().zip(doubles(&cast)).all(|(one, other)| narrow(one) == narrow(&other));
        prop_assert!(close);
    }
}

#[test]
fn chunks_of_different_dictionaries_are_refused_and_explained() {
    let mut random = Random(5);
    for data_type in types().1.into_iter().step_by(if cfg!(miri) { 5 } else { 1 }) {
        let field = field("x", data_type.clone());
        let chunks: Vec<DeviceArray> =
            (0..3).map(|_| shared(&random_column(&data_type, 6, 0, &mut random), &field)).collect();
        let error = convert(&field, &chunks, &Conversion::default()).unwrap_err();
        assert_eq!((error.kind(), error.column()), (ErrorKind::Unsupported, Some("x")), "{data_type}");
        assert!(error.remedy().unwrap().contains("DictionaryMode::Values"), "{error}");
        let values = Conversion::default().dictionary(DictionaryMode::Values).decimal(DecimalMode::Unscaled);
        convert(&field, &chunks, &values).unwrap();
        Conversion::default().validity(Chunks::new(&field, &chunks)).unwrap();
    }
}

#[test]
fn run_ends_that_break_the_format_are_errors() {
    let data_type = runs(DataType::Int32, DataType::Int64);
    let nested = list(data_type.clone(), 5);
    let good = ArrayData::builder(data_type.clone()).len(5);
    let ends =
        ArrayData::builder(DataType::Int32).len(3).add_buffer(Buffer::from_slice_ref([1_i32, 3, 5])).build().unwrap();
    let values = random_array(&DataType::Int64, 3, 0, &mut Random(1)).to_data();
    let good = good.add_child_data(ends).add_child_data(values).build().unwrap();
    let lists = ArrayData::builder(nested.clone()).len(1).add_child_data(good.clone()).build().unwrap();
    for bad in [[0_i32, 3, 5], [3, 1, 5], [3, 3, 5], [1, 3, 4], [-1, 3, 5], [1, 3, i32::MIN], [i32::MIN, i32::MAX, 5]] {
        for (array, field, levels) in
            [(&good, field("x", data_type.clone()), 0), (&lists, field("x", nested.clone()), 1)]
        {
            let edit = |top: &mut arrow_dlpack::ffi::arrow_device::ArrowArray| {
                let runs = if levels == 0 { top } else { child_of(top, 0) };
                set_buffer(child_of(runs, 0), 1, bad.as_ptr().cast());
            };
            let (imported, released) = import_edited(&make_array(array.clone()), &field, edit);
            let imported = imported.unwrap();
            for options in [Conversion::default(), Conversion::default().nulls(NullPolicy::Keep).dtype(DType::Float32)]
            {
                let error = options.to_tensor(&imported).unwrap_err();
                assert!(error.kind() != ErrorKind::Copy && error.column() == Some("x"), "{bad:?}: {error:?}");
            }
            assert!(Conversion::default().validity(&imported).is_err());
            drop(imported);
            assert_eq!(released.get(), 1);
        }
    }
}

#[test]
fn small_floats_are_their_bytes_by_name() {
    for (name, dtype) in [
        ("arrow_dlpack.bfloat16", DType::BFloat16),
        ("lance.bfloat16", DType::BFloat16),
        ("arrow_dlpack.float8_e4m3fn", DType::Float8E4M3Fn),
        ("arrow_dlpack.float8_e8m0fnu", DType::Float8E8M0Fnu),
    ] {
        let width = dtype.itemsize() as i32;
        let field = extension(&field("x", DataType::FixedSizeBinary(width)), name, "");
        let column = random_column(&DataType::FixedSizeBinary(width), 20, 4, &mut Random(3)).slice(3, 15);
        let keep = Conversion::default().nulls(NullPolicy::Keep).copy(CopyMode::Never);
        let tensor = convert(&field, &[shared(&column, &field)], &keep).unwrap();
        assert_eq!((tensor.dtype(), tensor.shape()), (dtype, &[15_i64][..]));
        let bytes = column.as_fixed_size_binary();
        let valid =
            read_bools(&Conversion::default().validity(Chunks::new(&field, &[shared(&column, &field)])).unwrap());
        for (row, element) in read(&tensor).iter().enumerate() {
            assert_eq!(valid[row], bytes.is_valid(row));
            assert!(bytes.is_null(row) || bytes.value(row) == element.as_slice());
        }
        assert_eq!(to_arrow(&tensor, None, CopyMode::Never).unwrap().field(), &field);
    }
}

#[test]
fn small_floats_of_another_width_than_their_name_says_are_refused() {
    for (name, width) in [("arrow_dlpack.bfloat16", 1), ("lance.bfloat16", 3), ("arrow_dlpack.float8_e4m3fn", 2)] {
        let data_type = DataType::FixedSizeBinary(width);
        let column = random_column(&data_type, 4, 0, &mut Random(3));
        let field = extension(&field("x", data_type), name, "");
        let error = convert(&field, &[shared(&column, &field)], &Conversion::default()).unwrap_err();
        assert_eq!((error.kind(), error.column()), (ErrorKind::Invalid, Some("x")), "{error}");
        assert!(error.reason().contains(&format!("of {width} bytes")), "{error}");
    }
}

#[test]
fn a_code_beyond_a_dictionary_with_nulls_is_an_error() {
    let values: ArrayRef = Arc::new(arrow_array::Int32Array::from(vec![Some(10), None, Some(30)]));
    for (codes, row) in
        [([0, 2, 1, 3], Some(3)), ([0, 2, 1, 2], None), ([-1, 0, 0, 0], Some(0)), ([0, 4, 3, 0], Some(1))]
    {
        let data = ArrayData::builder(dictionary(DataType::Int32, DataType::Int32))
            .len(4)
            .add_buffer(Buffer::from_slice_ref(codes))
            .add_child_data(values.to_data());
        // SAFETY: nobody reads a value by these codes but arrow-dlpack, which checks them.
        let array = make_array(unsafe { data.build_unchecked() });
        let column = shared(&array, &field("x", array.data_type().clone()));
        for options in [
            Conversion::default().nulls(NullPolicy::Keep),
            Conversion::default().nulls(NullPolicy::Fill(Scalar::Int(7))),
        ] {
            let made = options.dictionary(DictionaryMode::Codes).to_tensor(&column);
            match row {
                None => assert!(made.is_ok()),
                Some(row) => {
                    let error = made.unwrap_err();
                    assert_eq!((error.kind(), error.row()), (ErrorKind::Invalid, Some(row)), "{error}");
                }
            }
        }
    }
}
