//! Is a matrix its columns, value by value, for any schema, chunks, offsets, nulls, policies, dtypes and orders, and whatever it is
//! written to?

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "a helper that fails is a test that fails, and counts are small"
)]

mod support;

use std::sync::Arc;

use arrow_array::types::{Int8Type, Int16Type};
use arrow_array::{Array, ArrayRef, DictionaryArray, Int8Array, Int32Array, RunArray, StructArray, make_array};
use arrow_dlpack::{
    CopyLog, CopyMode, DType, DeviceArray, Error, ErrorKind, Group, MatrixOptions, NullPolicy, Options, Order, Scalar,
    Tensor, explain_matrix, groups_to_tensors, matrix_to_tensor, matrix_to_tensor_into,
};
use arrow_schema::{DataType, Field, FieldRef};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use support::Random;
use support::arrow::{
    address_of_values, child_of, extension, field, import_edited, list, random_array, set_buffer, shared,
};
use support::cast::{Value, is_nan, reference};
use support::dlpack::{Memory, byte, output};
use support::reference::{elements, read};

/// Column types: Arrow's own, and what has to be decoded.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Plain(DType),
    Bits,
    Bool8,
    Dictionary,
    Runs,
}

const KINDS: [Kind; 13] = [
    Kind::Plain(DType::Int8),
    Kind::Plain(DType::Int16),
    Kind::Plain(DType::Int32),
    Kind::Plain(DType::Int64),
    Kind::Plain(DType::UInt8),
    Kind::Plain(DType::UInt32),
    Kind::Plain(DType::Float16),
    Kind::Plain(DType::Float32),
    Kind::Plain(DType::Float64),
    Kind::Bits,
    Kind::Bool8,
    Kind::Dictionary,
    Kind::Runs,
];

impl Kind {
    /// The dtype of the values.
    fn dtype(self) -> DType {
        match self {
            Self::Plain(dtype) => dtype,
            Self::Bits | Self::Bool8 => DType::Bool,
            Self::Dictionary => DType::Float32,
            Self::Runs => DType::Int16,
        }
    }

    fn field(self, name: &str) -> FieldRef {
        match self {
            Self::Plain(dtype) => field(name, dtype.to_arrow().unwrap()),
            Self::Bits => field(name, DataType::Boolean),
            Self::Bool8 => extension(&field(name, DataType::Int8), "arrow.bool8", ""),
            Self::Dictionary => field(name, dictionary(&[0.5, -2.0], [None].into_iter()).data_type().clone()),
            Self::Runs => field(name, runs(1, 0, &mut Random(1)).0.data_type().clone()),
        }
    }

    /// Random rows, and the bytes of each value, `None` where it is null.
    fn rows(self, length: usize, one_null_in: usize, random: &mut Random) -> (ArrayRef, Vec<Option<Vec<u8>>>) {
        match self {
            Self::Dictionary => {
                let values = [0.5_f32, -2.0, 100.0];
                let is_null = |random: &mut Random| one_null_in > 0 && random.below(one_null_in) == 0;
                let codes: Vec<Option<usize>> =
                    (0..length).map(|_| (!is_null(random)).then(|| random.below(values.len()))).collect();
                let bytes = codes.iter().map(|code| code.map(|code| values[code].to_ne_bytes().to_vec())).collect();
                (dictionary(&values, codes.into_iter()), bytes)
            }
            Self::Runs => runs(length, one_null_in, random),
            _ => {
                let of = self.field("x");
                let array = random_array(of.data_type(), length, one_null_in, random);
                let bytes = elements(&of, array.as_ref());
                (array, bytes)
            }
        }
    }
}

fn dictionary(values: &[f32], codes: impl Iterator<Item = Option<usize>>) -> ArrayRef {
    let codes: Int8Array = codes.map(|code| code.map(|code| i8::try_from(code).unwrap())).collect();
    let values = Arc::new(arrow_array::Float32Array::from(values.to_vec()));
    Arc::new(DictionaryArray::<Int8Type>::try_new(codes, values).unwrap())
}

fn runs(length: usize, one_null_in: usize, random: &mut Random) -> (ArrayRef, Vec<Option<Vec<u8>>>) {
    let mut ends = Vec::new();
    let mut bytes = Vec::new();
    let mut values = Vec::new();
    while bytes.len() < length {
        let value = (one_null_in == 0 || random.below(one_null_in) != 0).then(|| random.below(1000) as i16 - 500);
        let end = length.min(bytes.len() + 1 + random.below(5));
        bytes.resize(end, value.map(|value| value.to_ne_bytes().to_vec()));
        ends.push(i16::try_from(end).unwrap());
        values.push(value);
    }
    let (ends, values) = (arrow_array::Int16Array::from(ends), arrow_array::Int16Array::from(values));
    (Arc::new(RunArray::<Int16Type>::try_new(&ends, &values).unwrap()), bytes)
}

/// What a case is made of.
#[derive(Clone, Debug)]
struct Case {
    columns: Vec<(Kind, NullPolicy)>,
    /// Rows of each chunk, those before its offset, and one null in so many slots, or none.
    chunks: Vec<(usize, usize, usize)>,
    dtype: Option<DType>,
    order: Order,
    seed: u64,
}

fn cases() -> impl Strategy<Value = Case> {
    let policies = [
        NullPolicy::Error,
        NullPolicy::Fill(Scalar::Int(1)),
        NullPolicy::Fill(Scalar::Int(0)),
        NullPolicy::Fill(Scalar::Bool(true)),
        NullPolicy::Keep,
    ];
    let columns = prop_oneof![
        8 => vec((select(&KINDS[..]), select(policies.to_vec())), 1..7),
        2 => (select(&KINDS[..]), select(policies.to_vec()), 1..40_usize).prop_map(|(kind, nulls, count)| vec![(kind, nulls); count]),
    ];
    let rows = prop_oneof![6 => 0..40_usize, 1 => 500..1500_usize];
    let chunks = vec((rows, 0..11_usize, select(vec![0, 0, 2, 9])), 0..4);
    let dtypes = vec![
        None,
        None,
        None,
        Some(DType::Float64),
        Some(DType::Float32),
        Some(DType::Float16),
        Some(DType::BFloat16),
        Some(DType::Int64),
        Some(DType::Int16),
        Some(DType::Bool),
    ];
    let orders = select(vec![Order::C, Order::F, Order::A]);
    (columns, chunks, select(dtypes), orders, any::<u64>()).prop_map(|(columns, chunks, dtype, order, seed)| Case {
        columns,
        chunks,
        dtype,
        order,
        seed,
    })
}

/// The rows of all columns: `values[row][column]`, `None` for a null.
struct Data {
    field: FieldRef,
    chunks: Vec<DeviceArray>,
    values: Vec<Vec<Option<Vec<u8>>>>,
}

impl Case {
    fn data(&self) -> Data {
        let mut random = Random(self.seed);
        let fields: Vec<FieldRef> =
            self.columns.iter().enumerate().map(|(index, (kind, _))| kind.field(&format!("c{index}"))).collect();
        let of = field("", DataType::Struct(fields.clone().into()));
        let (mut chunks, mut values) = (Vec::new(), Vec::new());
        for (rows, before, one_null_in) in &self.chunks {
            let length = before + rows + 3;
            // Columns have offsets of their own, too.
            let inner = random.below(4);
            let made: Vec<_> =
                self.columns.iter().map(|(kind, _)| kind.rows(length + inner, *one_null_in, &mut random)).collect();
            let arrays: Vec<ArrayRef> = made.iter().map(|(array, _)| array.slice(inner, length)).collect();
            let row_nulls: Option<Vec<bool>> =
                (*one_null_in > 0 && random.below(3) == 0).then(|| (0..length).map(|_| random.below(6) != 0).collect());
            let of_row = |row: usize| {
                let shown = row_nulls.as_ref().is_none_or(|valid| valid[row]);
                made.iter().map(|(_, bytes)| bytes[inner + row].clone().filter(|_| shown)).collect::<Vec<_>>()
            };
            values.extend((*before..before + rows).map(of_row));
            let array = StructArray::new(fields.clone().into(), arrays, row_nulls.clone().map(Into::into));
            let (imported, _) = import_edited(&array, &of, |array| {
                (array.offset, array.length) = (*before as i64, *rows as i64);
                array.null_count = if row_nulls.is_some() { -1 } else { 0 };
            });
            chunks.push(imported.unwrap());
        }
        Data { field: of, chunks, values }
    }

    fn options(&self, name: &str) -> Options {
        let index: usize = name[1..].parse().unwrap();
        let mut options = Options::default().nulls(self.columns[index].1);
        // Runs, and dictionaries whose values are asked for, are decoded.
        options.dictionary = Some(arrow_dlpack::DictionaryMode::Values);
        options.dtype = self.dtype;
        options
    }

    fn matrix(&self) -> MatrixOptions {
        let mut options = MatrixOptions::default().order(self.order);
        options.dtype = self.dtype;
        options
    }
}

/// The bytes that a fill value has in a dtype, if it is exact there: that of 0, 1 and true.
fn filled(value: Scalar, dtype: DType) -> Vec<u8> {
    let value = match value {
        Scalar::Bool(value) => i128::from(value),
        Scalar::Int(value) => value,
        Scalar::Float(_) => unreachable!("no such case"),
    };
    reference(Value::Int(value), dtype).unwrap()
}

/// What each element is, or the error: kind, column and row.
fn expected(case: &Case, data: &Data, dtype: DType) -> Result<Vec<Vec<u8>>, (ErrorKind, String, usize)> {
    for (column, (_, nulls)) in case.columns.iter().enumerate() {
        if *nulls == NullPolicy::Error
            && let Some(row) = data.values.iter().position(|row| row[column].is_none())
        {
            return Err((ErrorKind::Null, format!("c{column}"), row));
        }
    }
    let mut all = Vec::new();
    for (number, row) in data.values.iter().enumerate() {
        for (column, value) in row.iter().enumerate() {
            let (kind, nulls) = case.columns[column];
            all.push(match (value, nulls) {
                (Some(bytes), _) => reference(Value::of(kind.dtype(), bytes), dtype)
                    .ok_or_else(|| (ErrorKind::Cast, format!("c{column}"), number))?,
                (None, NullPolicy::Fill(value)) => filled(value, dtype),
                (None, _) => vec![0; dtype.itemsize()],
            });
        }
    }
    Ok(all)
}

fn assert_same(dtype: DType, found: &[Vec<u8>], expected: &[Vec<u8>]) {
    assert_eq!(found.len(), expected.len());
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            found == expected || (is_nan(dtype, found) && is_nan(dtype, expected)),
            "element {index}: {found:?}, expected {expected:?}"
        );
    }
}

fn assert_error(error: &Error, expected: &(ErrorKind, String, usize)) {
    let found = (error.kind(), error.column().unwrap_or("").to_owned(), error.row().unwrap_or(usize::MAX));
    assert_eq!(&found, expected, "{error}");
}

/// The memory of a tensor to write to, of this shape and strides, with gaps that must stay as they are.
fn memory_of(dtype: DType, shape: &[i64], strides: &[i64]) -> Tensor {
    let reach: i64 = shape.iter().zip(strides).map(|(extent, stride)| (extent - 1).max(0) * stride).sum();
    let bytes = vec![0xEE; (usize::try_from(reach).unwrap() + 1) * dtype.itemsize()];
    Memory::new(&bytes, dtype, shape, strides, 0).import().0.unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn a_matrix_is_its_columns(case in cases()) {
        let data = case.data();
        let (options, matrix) = (|name: &str| case.options(name), case.matrix());
        let log = CopyLog::new();
        let made = log.track(|| matrix_to_tensor(&data.field, &data.chunks, &matrix, options));
        // No dtype, no matrix: shown for chosen schemas.
        let Some(dtype) = case.dtype.or_else(|| made.as_ref().ok().map(Tensor::dtype)) else {
            let error = made.unwrap_err();
            if error.kind() == ErrorKind::Null {
                let row = data.values.iter().position(|row| row.iter().any(Option::is_none));
                prop_assert!(row.is_some());
            } else {
                prop_assert_eq!(error.kind(), ErrorKind::Unsupported);
            }
            return Ok(());
        };
        let (rows, columns) = (data.values.len(), case.columns.len());
        match expected(&case, &data, dtype) {
            Err(refusal) => assert_error(&made.unwrap_err(), &refusal),
            Ok(expected) => {
                let made = made.unwrap();
                prop_assert_eq!(made.shape(), [rows as i64, columns as i64]);
                prop_assert_eq!(made.dtype(), dtype);
                let found = read(&made);
                // What kept nulls hold in a view is anything.
                let kept = |index: usize| data.values[index / columns][index % columns].is_none();
                let expected: Vec<_> = expected
                    .into_iter()
                    .enumerate()
                    .map(|(index, value)| if !made.is_copied() && kept(index) { found[index].clone() } else { value })
                    .collect();
                assert_same(dtype, &found, &expected);
                prop_assert_eq!(made.is_copied(), !log.entries().is_empty());
                let report = explain_matrix(&data.field, &data.chunks, &matrix, options).unwrap();
                prop_assert_eq!(report.matrices[0].dtype, Some(dtype));
                if made.is_copied() {
                    let entry = &log.entries()[0];
                    prop_assert_eq!(report.matrices[0].bytes, entry.bytes);
                    prop_assert_eq!(report.bytes(), entry.bytes);
                    prop_assert_eq!(report.matrices[0].steps.join(", "), entry.why.replace(" at most", ""));
                    let never = matrix.clone().copy(CopyMode::Never);
                    let error = matrix_to_tensor(&data.field, &data.chunks, &never, options).unwrap_err();
                    prop_assert_eq!(error.kind(), ErrorKind::Copy);
                }
                let strides = if made.is_copied() && case.order == Order::F { [1, rows as i64] } else { [columns as i64, 1] };
                if rows > 1 && columns > 1 && made.is_copied() {
                    prop_assert_eq!(made.strides(), strides);
                }
            }
        }
    }

    #[test]
    fn what_is_written_to_an_output_is_what_a_matrix_is(case in cases(), gap in 0..5_i64, by_column: bool, threads in 1..4_usize) {
        let data = case.data();
        let options = |name: &str| case.options(name);
        let (rows, columns) = (data.values.len() as i64, case.columns.len() as i64);
        let Ok(made) = matrix_to_tensor(&data.field, &data.chunks, &case.matrix(), options) else {
            // Errors are those of a fresh matrix.
            let Some(dtype) = case.dtype else { return Ok(()) };
            let memory = memory_of(dtype, &[rows, columns], &[columns, 1]);
            let mut out = output(&memory).unwrap();
            let error = matrix_to_tensor_into(&data.field, &data.chunks, &case.matrix(), options, &mut out).unwrap_err();
            assert_error(&error, &expected(&case, &data, dtype).unwrap_err());
            return Ok(());
        };
        let dtype = made.dtype();
        let strides = if by_column { [1, (rows + gap).max(1)] } else { [(columns + gap).max(1), 1] };
        let memory = memory_of(dtype, &[rows, columns], &strides);
        let threads = std::num::NonZero::new(threads).unwrap();
        {
            let mut out = output(&memory).unwrap();
            let matrix = case.matrix().threads(threads);
            matrix_to_tensor_into(&data.field, &data.chunks, &matrix, options, &mut out).unwrap();
        }
        assert_same(dtype, &read(&memory), &expected(&case, &data, dtype).unwrap());
        if made.is_empty() {
            return Ok(());
        }
        // Gaps are nobody's.
        let (outer, inner) = if by_column { (columns, rows) } else { (rows, columns) };
        for line in 0..outer - 1 {
            for slot in inner..inner + gap {
                let at = usize::try_from(line * (inner + gap) + slot).unwrap() * dtype.itemsize();
                prop_assert_eq!(byte(&memory, at), 0xEE);
            }
        }
    }
}

/// The columns of a column-major matrix of doubles, `stride` elements apart, as a batch over one buffer.
fn of_one_buffer(rows: usize, columns: usize, stride: usize) -> DeviceArray {
    let values: arrow_buffer::Buffer = (0..columns * stride + 8).map(|value| value as f64).collect();
    let column = |index: usize| {
        let data = arrow_data::ArrayData::builder(DataType::Float64).len(rows).offset(index * stride);
        make_array(data.add_buffer(values.clone()).build().unwrap())
    };
    let named =
        (0..columns).map(|index| (Arc::new(Field::new(format!("c{index}"), DataType::Float64, true)), column(index)));
    let array = StructArray::from(named.collect::<Vec<_>>());
    shared(&array, &field("", array.data_type().clone()))
}

fn matrix_of(batch: &DeviceArray, matrix: &MatrixOptions) -> arrow_dlpack::Result<Tensor> {
    matrix_to_tensor(batch.field(), std::slice::from_ref(batch), matrix, |_| Options::default())
}

#[test]
fn columns_that_lie_as_a_matrix_are_a_view_of_it() {
    let never = MatrixOptions::default().copy(CopyMode::Never);
    for (rows, columns, stride) in [(4, 3, 4), (4, 3, 6), (5, 2, 5), (4, 1, 4), (1, 3, 7), (1, 3, 1), (600, 2, 700)] {
        let batch = of_one_buffer(rows, columns, stride);
        for order in [Order::F, Order::A] {
            let view = matrix_of(&batch, &never.clone().order(order)).unwrap();
            assert!(!view.is_copied() && !view.is_writable());
            assert_eq!(view.shape(), [rows as i64, columns as i64]);
            let expected: Vec<Vec<u8>> = (0..rows)
                .flat_map(|row| (0..columns).map(move |column| ((column * stride + row) as f64).to_ne_bytes().to_vec()))
                .collect();
            assert_eq!(read(&view), expected, "{rows} {columns} {stride}");
        }
        let row_major = matrix_of(&batch, &never);
        assert_eq!(row_major.is_ok(), columns == 1 || (rows == 1 && stride == 1), "{rows} {columns} {stride}");
        let private = matrix_of(&batch, &MatrixOptions::default().order(Order::F).writable(true)).unwrap();
        assert!(private.is_copied() && private.is_writable());
    }
}

#[test]
fn columns_that_lie_otherwise_are_copied() {
    let never = MatrixOptions::default().copy(CopyMode::Never).order(Order::F);
    // More than a page between columns: a consumer that copies all that the view spans might leave somebody's memory.
    assert_eq!(matrix_of(&of_one_buffer(4, 2, 600), &never).unwrap_err().kind(), ErrorKind::Copy);
    // Columns that overlap, in another order, and at different distances.
    assert!(matrix_of(&of_one_buffer(4, 3, 3), &never).is_err());
    let batch = of_one_buffer(4, 3, 4);
    for (columns, is_view) in [(["c0", "c1", "c2"], true), (["c2", "c1", "c0"], false), (["c0", "c2", "c1"], false)] {
        assert_eq!(matrix_of(&batch, &never.clone().columns(columns)).is_ok(), is_view);
    }
    assert!(matrix_of(&batch, &never.clone().columns(["c0", "c2"])).is_ok());
    assert!(matrix_of(&batch, &never.clone().dtype(DType::Float32)).is_err());
    let two = [batch.clone(), batch.clone()];
    assert!(matrix_to_tensor(batch.field(), &two, &never, |_| Options::default()).is_err());
}

#[test]
fn a_view_keeps_the_columns_alive_and_a_copy_does_not() {
    let array = StructArray::from(vec![(
        Arc::new(Field::new("a", DataType::Int32, true)),
        Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef,
    )]);
    for (order, is_view) in [(Order::F, true), (Order::C, true)] {
        let (batch, released) = import_edited(&array, &field("", array.data_type().clone()), |_| {});
        let batch = batch.unwrap();
        let view = matrix_of(&batch, &MatrixOptions::default().order(order)).unwrap();
        assert_eq!(view.as_ptr().cast_const(), address_of_values(array.column(0)));
        drop(batch);
        assert_eq!(released.get(), usize::from(!is_view));
        drop(view);
        assert_eq!(released.get(), 1);
        let (batch, released) = import_edited(&array, &field("", array.data_type().clone()), |_| {});
        let copy = matrix_of(&batch.unwrap(), &MatrixOptions::default().order(order).copy(CopyMode::Always)).unwrap();
        assert_eq!((released.get(), copy.is_copied()), (1, true));
    }
}

#[test]
fn bytes_that_are_no_booleans_make_a_view_a_copy() {
    for (bytes, is_view) in [([0_i8, 1, 1, 0], true), ([0, 1, 2, 0], false)] {
        let values: arrow_buffer::Buffer = bytes.into_iter().collect();
        let of = extension(&field("a", DataType::Int8), "arrow.bool8", "");
        let column = |offset| {
            let data = arrow_data::ArrayData::builder(DataType::Int8).len(2).offset(offset).add_buffer(values.clone());
            make_array(data.build().unwrap())
        };
        let b = Arc::new(of.as_ref().clone().with_name("b"));
        let array = StructArray::from(vec![(of, column(0)), (b, column(2))]);
        let batch = shared(&array, &field("", array.data_type().clone()));
        let matrix = matrix_of(&batch, &MatrixOptions::default().order(Order::F)).unwrap();
        assert_eq!((matrix.dtype(), matrix.is_copied(), matrix.strides()), (DType::Bool, !is_view, &[1_i64, 2][..]));
        assert!(read(&matrix).iter().all(|byte| byte[0] <= 1));
        let never = matrix_of(&batch, &MatrixOptions::default().order(Order::F).copy(CopyMode::Never));
        assert_eq!(never.map_err(|error| error.kind()).err(), (!is_view).then_some(ErrorKind::Copy));
    }
}

#[test]
fn an_output_over_the_data_is_refused() {
    let batch = of_one_buffer(4, 2, 4);
    let view = batch.column(1).unwrap();
    let view = arrow_dlpack::to_tensor(&view, &Options::default()).unwrap();
    // The same memory, as a library gives it that does not know of the array.
    let memory = Memory::new(&[0; 64], DType::Float64, &[4, 2], &[2, 1], 0);
    let (memory, _) = memory.import_edited(|managed| managed.dl_tensor.data = view.as_ptr().wrapping_sub(32).cast());
    let memory = memory.unwrap();
    let mut out = output(&memory).unwrap();
    let options = MatrixOptions::default();
    let chunks = std::slice::from_ref(&batch);
    let error = matrix_to_tensor_into(batch.field(), chunks, &options, |_| Options::default(), &mut out).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Argument, Some("c0")));
    assert_eq!(read(&view)[0], 4_f64.to_ne_bytes());
    // Columns that are not read may be written over.
    let only = options.columns(["c0"]);
    let memory = Memory::new(&[0; 32], DType::Float64, &[4, 1], &[1, 1], 0);
    let (memory, _) = memory.import_edited(|managed| managed.dl_tensor.data = view.as_ptr().cast());
    let memory = memory.unwrap();
    let mut out = output(&memory).unwrap();
    matrix_to_tensor_into(batch.field(), chunks, &only, |_| Options::default(), &mut out).unwrap();
    drop(out);
    assert_eq!(read(&memory)[3], 3_f64.to_ne_bytes());
}

#[test]
fn outputs_that_do_not_fit_are_refused() {
    let batch = of_one_buffer(4, 2, 4);
    let chunks = std::slice::from_ref(&batch);
    for (dtype, shape, strides, fits) in [
        (DType::Float64, [4, 2], [2, 1], true),
        (DType::Float64, [4, 2], [1, 4], true),
        (DType::Float32, [4, 2], [2, 1], false),
        (DType::Float64, [2, 4], [4, 1], false),
        (DType::Float64, [4, 3], [3, 1], false),
        (DType::Float64, [4, 2], [4, 2], false),
        (DType::Float64, [4, 2], [2, 8], false),
    ] {
        let memory = memory_of(dtype, &shape, &strides);
        let mut out = output(&memory).unwrap();
        let options = MatrixOptions::default();
        let written = matrix_to_tensor_into(batch.field(), chunks, &options, |_| Options::default(), &mut out);
        assert_eq!(written.is_ok(), fits, "{dtype} {shape:?} {strides:?}");
        if let Err(error) = written {
            assert!(error.kind() == ErrorKind::Argument && error.remedy().is_some(), "{error}");
        }
    }
}

#[test]
fn groups_are_matrices_and_columns() {
    let batch = of_one_buffer(4, 3, 4);
    let chunks = [batch.clone(), batch.clone()];
    let name = str::to_owned;
    let groups = [
        (name("x"), Group::Matrix(vec![name("c2"), name("c0")])),
        (name("y"), Group::Column(name("c1"))),
        (name("z"), Group::Matrix(vec![name("c1")])),
    ];
    let options = MatrixOptions::default();
    let tensors = groups_to_tensors(batch.field(), &chunks, &groups, &options, |_| Options::default()).unwrap();
    let shapes: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.shape())).collect();
    assert_eq!(shapes, [("x", &[8_i64, 2][..]), ("y", &[8]), ("z", &[8, 1])]);
    assert_eq!(tensors[0].1.as_slice::<f64>().unwrap()[..4], [8.0, 0.0, 9.0, 1.0]);
    let twice = [groups[0].clone(), groups[0].clone()];
    assert!(groups_to_tensors(batch.field(), &chunks, &twice, &options, |_| Options::default()).is_err());
    let none = [(name("x"), Group::Matrix(Vec::new()))];
    let error = groups_to_tensors(batch.field(), &chunks, &none, &options, |_| Options::default()).unwrap_err();
    assert!(error.reason().contains("\"x\"") && error.remedy().is_some(), "{error}");
    let typed = options.dtype(DType::Float32);
    let empty = groups_to_tensors(batch.field(), &chunks, &none, &typed, |_| Options::default()).unwrap();
    assert_eq!((empty[0].1.shape(), empty[0].1.dtype()), (&[8_i64, 0][..], DType::Float32));
}

#[test]
fn many_columns_and_none_are_matrices() {
    let mut random = Random(5);
    let columns: Vec<ArrayRef> = (0..5000).map(|_| random_array(&DataType::Float32, 3, 0, &mut random)).collect();
    let fields = (0..5000).map(|index| Arc::new(Field::new(format!("c{index}"), DataType::Float32, true)));
    let array = StructArray::from(fields.zip(columns.clone()).collect::<Vec<_>>());
    let batch = shared(&array, &field("", array.data_type().clone()));
    let matrix = matrix_of(&batch, &MatrixOptions::default()).unwrap();
    assert_eq!(matrix.shape(), [3, 5000]);
    let expected: Vec<Vec<u8>> = (0..3)
        .flat_map(|row| columns.iter().map(move |column| column.to_data().buffers()[0][row * 4..][..4].to_vec()))
        .collect();
    assert_eq!(read(&matrix), expected);
    let none: [&str; 0] = [];
    let empty = matrix_of(&batch, &MatrixOptions::default().columns(none).dtype(DType::Int8)).unwrap();
    assert_eq!((empty.shape(), empty.is_copied()), (&[3_i64, 0][..], false));
    assert_eq!(matrix_of(&batch, &MatrixOptions::default().columns(none)).unwrap_err().kind(), ErrorKind::Argument);
    let no_chunks = matrix_to_tensor(batch.field(), &[], &MatrixOptions::default(), |_| Options::default()).unwrap();
    assert_eq!(no_chunks.shape(), [0, 5000]);
}

#[test]
fn what_is_no_matrix_is_refused() {
    let values = Int32Array::from(vec![1, 2]);
    let column = shared(&values, &field("x", DataType::Int32));
    assert_eq!(matrix_of(&column, &MatrixOptions::default()).unwrap_err().kind(), ErrorKind::Argument);
    let nested = StructArray::from(vec![(
        Arc::new(Field::new("l", list(DataType::Int8, 2), true)),
        random_array(&list(DataType::Int8, 2), 3, 0, &mut Random(1)),
    )]);
    let batch = shared(&nested, &field("", nested.data_type().clone()));
    let error = matrix_of(&batch, &MatrixOptions::default()).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Unsupported, Some("l")));
    // A column that is shorter than its struct does not get past the import.
    let array =
        StructArray::from(vec![(Arc::new(Field::new("a", DataType::Int32, true)), Arc::new(values) as ArrayRef)]);
    let (short, released) =
        import_edited(&array, &field("", array.data_type().clone()), |array| child_of(array, 0).length = 1);
    assert_eq!((short.unwrap_err().kind(), released.get()), (ErrorKind::Invalid, 1));
    let (null, _) = import_edited(&array, &field("", array.data_type().clone()), |array| {
        set_buffer(child_of(array, 0), 1, std::ptr::null());
    });
    assert_eq!(null.unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn parts_on_several_threads_make_one_matrix() {
    let case = |order: Order, seed| Case {
        columns: [Kind::Plain(DType::Float32), Kind::Bits, Kind::Plain(DType::Int16), Kind::Plain(DType::Int64)]
            .into_iter()
            .map(|kind| (kind, NullPolicy::Fill(Scalar::Int(1))))
            .collect(),
        // Chunks end inside the parts of threads, and parts inside chunks.
        chunks: vec![(70_001, 3, 9), (0, 0, 0), (17, 1, 2), (120_000, 0, 0)],
        dtype: Some(DType::Float64),
        order,
        seed,
    };
    for order in [Order::C, Order::F] {
        let case = case(order, 7);
        let data = case.data();
        let options = |name: &str| case.options(name);
        let make = |threads: usize| {
            let matrix = case.matrix().threads(std::num::NonZero::new(threads).unwrap());
            matrix_to_tensor(&data.field, &data.chunks, &matrix, options)
        };
        assert_same(DType::Float64, &read(&make(5).unwrap()), &expected(&case, &data, DType::Float64).unwrap());
    }
}

#[test]
fn the_lowest_row_that_misfits_is_told_whichever_thread_finds_it() {
    let chunk = |misfits: &[usize]| {
        let column = |misfit: Option<&usize>| -> ArrayRef {
            let value = |row| if Some(&row) == misfit { i64::MAX } else { 1 };
            Arc::new(arrow_array::Int64Array::from_iter_values((0..200_000).map(value)))
        };
        let named = [("a", column(misfits.first())), ("b", column(misfits.get(1)))];
        let fields = named.map(|(name, column)| (Arc::new(Field::new(name, DataType::Int64, true)), column));
        let array = StructArray::from(fields.to_vec());
        shared(&array, &field("", array.data_type().clone()))
    };
    let misfitting = chunk(&[150_000, 60_000]);
    let fitting = chunk(&[]);
    for order in [Order::C, Order::F] {
        for (chunks, column, row) in [
            (vec![misfitting.clone()], "b", 60_000),
            (vec![fitting.clone(), misfitting.clone()], "b", 260_000),
            (vec![chunk(&[199_999]), misfitting.clone()], "a", 199_999),
        ] {
            let threads = std::num::NonZero::new(3).unwrap();
            let matrix = MatrixOptions::default().dtype(DType::Int32).order(order).threads(threads);
            let error = matrix_to_tensor(fitting.field(), &chunks, &matrix, |_| Options::default()).unwrap_err();
            assert_error(&error, &(ErrorKind::Cast, column.to_owned(), row));
        }
    }
}

#[test]
fn codes_of_different_dictionaries_do_not_make_a_matrix() {
    let chunk = |values: &[f32]| {
        let codes = dictionary(values, [Some(0), Some(1)].into_iter());
        let array = StructArray::from(vec![(Arc::new(Field::new("d", codes.data_type().clone(), true)), codes)]);
        shared(&array, &field("", array.data_type().clone()))
    };
    let (a, b) = (chunk(&[1.0, 2.0]), chunk(&[2.0, 1.0]));
    let matrix = |chunks: &[DeviceArray], options: Options| {
        matrix_to_tensor(a.field(), chunks, &MatrixOptions::default(), |_| options.clone())
    };
    let same = matrix(&[a.clone(), a.clone()], Options::default()).unwrap();
    assert_eq!(same.as_slice::<i8>().unwrap(), [0, 1, 0, 1]);
    let error = matrix(&[a.clone(), b.clone()], Options::default()).unwrap_err();
    assert_eq!(error.column(), Some("d"));
    let values = matrix(&[a.clone(), b.clone()], Options::default().dtype(DType::Float64)).unwrap();
    assert_eq!(values.as_slice::<f64>().unwrap(), [1.0, 2.0, 2.0, 1.0]);
}
