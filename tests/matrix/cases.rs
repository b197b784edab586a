//! Columns of any type in chunks of any shape, and what their matrix is by definition.

use std::sync::Arc;

use arrow_array::types::{Int8Type, Int16Type};
use arrow_array::{Array, ArrayRef, DictionaryArray, Int8Array, RunArray, StructArray};
use arrow_dlpack::{
    Conversion, DType, DeviceArray, Error, ErrorKind, MemoryOrder, NullPolicy, PerColumn, Scalar, Tensor,
};
use arrow_schema::{DataType, FieldRef};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::support::Random;
use crate::support::arrow::{extension, field, import_edited, random_array};
use crate::support::cast::{Value, is_nan, reference};
use crate::support::dlpack::Memory;
use crate::support::reference::elements;

/// Column types: Arrow's own, and what has to be decoded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Plain(DType),
    Bits,
    Bool8,
    Dictionary,
    Runs,
}

pub(crate) const KINDS: [Kind; 13] = [
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
    pub(crate) fn dtype(self) -> DType {
        match self {
            Self::Plain(dtype) => dtype,
            Self::Bits | Self::Bool8 => DType::Bool,
            Self::Dictionary => DType::Float32,
            Self::Runs => DType::Int16,
        }
    }

    pub(crate) fn field(self, name: &str) -> FieldRef {
        match self {
            Self::Plain(dtype) => field(name, dtype.to_arrow().unwrap()),
            Self::Bits => field(name, DataType::Boolean),
            Self::Bool8 => extension(&field(name, DataType::Int8), "arrow.bool8", ""),
            Self::Dictionary => field(name, dictionary(&[0.5, -2.0], [None].into_iter()).data_type().clone()),
            Self::Runs => field(name, runs(1, 0, &mut Random(1)).0.data_type().clone()),
        }
    }

    /// Random rows, and the bytes of each value, `None` where it is null.
    pub(crate) fn rows(
        self,
        length: usize,
        one_null_in: usize,
        random: &mut Random,
    ) -> (ArrayRef, Vec<Option<Vec<u8>>>) {
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

pub(crate) fn dictionary(values: &[f32], codes: impl Iterator<Item = Option<usize>>) -> ArrayRef {
    let codes: Int8Array = codes.map(|code| code.map(|code| i8::try_from(code).unwrap())).collect();
    let values = Arc::new(arrow_array::Float32Array::from(values.to_vec()));
    Arc::new(DictionaryArray::<Int8Type>::try_new(codes, values).unwrap())
}

pub(crate) fn runs(length: usize, one_null_in: usize, random: &mut Random) -> (ArrayRef, Vec<Option<Vec<u8>>>) {
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
pub(crate) struct Case {
    pub(crate) columns: Vec<(Kind, NullPolicy)>,
    /// Rows of each chunk, those before its offset, and one null in so many slots, or none.
    pub(crate) chunks: Vec<(usize, usize, usize)>,
    pub(crate) dtype: Option<DType>,
    pub(crate) order: MemoryOrder,
    pub(crate) seed: u64,
}

pub(crate) fn cases() -> impl Strategy<Value = Case> {
    let policies = [
        NullPolicy::Error,
        NullPolicy::Fill(Scalar::Int(1)),
        NullPolicy::Fill(Scalar::Int(0)),
        NullPolicy::Fill(Scalar::Bool(true)),
        NullPolicy::Keep,
    ];
    let columns = prop_oneof![
        8 => vec((select(&KINDS[..]), select(policies.to_vec())), 1..7),
        2 => (select(&KINDS[..]), select(policies.to_vec()), 1..if cfg!(miri) { 10 } else { 40_usize }).prop_map(|(kind, nulls, count)| vec![(kind, nulls); count]),
    ];
    let rows = prop_oneof![6 => 0..if cfg!(miri) { 9 } else { 40_usize }, 1 => if cfg!(miri) { 65..90 } else { 500..1500_usize }];
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
    let orders = select(vec![MemoryOrder::C, MemoryOrder::F, MemoryOrder::A]);
    (columns, chunks, select(dtypes), orders, any::<u64>()).prop_map(|(columns, chunks, dtype, order, seed)| Case {
        columns,
        chunks,
        dtype,
        order,
        seed,
    })
}

/// The rows of all columns: `values[row][column]`, `None` for a null.
pub(crate) struct Data {
    pub(crate) field: FieldRef,
    pub(crate) chunks: Vec<DeviceArray>,
    pub(crate) values: Vec<Vec<Option<Vec<u8>>>>,
}

impl Case {
    pub(crate) fn data(&self) -> Data {
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

    pub(crate) fn conversion(&self) -> Conversion {
        let nulls = self.columns.iter().enumerate().map(|(index, (_, nulls))| (format!("c{index}"), *nulls));
        // Runs, and dictionaries whose values are asked for, are decoded.
        let conversion = Conversion::default().dictionary(arrow_dlpack::DictionaryMode::Values);
        conversion.memory_order(self.order).nulls(PerColumn::named(nulls)).dtype(PerColumn::All(self.dtype))
    }
}

/// The bytes that a fill value has in a dtype, if it is exact there: that of 0, 1 and true.
pub(crate) fn filled(value: Scalar, dtype: DType) -> Vec<u8> {
    let value = match value {
        Scalar::Bool(value) => i128::from(value),
        Scalar::Int(value) => value,
        _ => unreachable!("no such case"),
    };
    reference(Value::Int(value), dtype).unwrap()
}

/// What each element is, or the error: kind, column and row, the lowest one that any column has.
pub(crate) fn expected(case: &Case, data: &Data, dtype: DType) -> Result<Vec<Vec<u8>>, (ErrorKind, String, usize)> {
    let mut all = Vec::new();
    for (number, row) in data.values.iter().enumerate() {
        for (column, value) in row.iter().enumerate() {
            let (kind, nulls) = case.columns[column];
            all.push(match (value, nulls) {
                (Some(bytes), _) => reference(Value::of(kind.dtype(), bytes), dtype)
                    .ok_or_else(|| (ErrorKind::Cast, format!("c{column}"), number))?,
                (None, NullPolicy::Error) => return Err((ErrorKind::Null, format!("c{column}"), number)),
                (None, NullPolicy::Fill(value)) => filled(value, dtype),
                (None, _) => vec![0; dtype.itemsize()],
            });
        }
    }
    Ok(all)
}

pub(crate) fn assert_same(dtype: DType, found: &[Vec<u8>], expected: &[Vec<u8>]) {
    assert_eq!(found.len(), expected.len());
    for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!(
            found == expected || (is_nan(dtype, found) && is_nan(dtype, expected)),
            "element {index}: {found:?}, expected {expected:?}"
        );
    }
}

pub(crate) fn assert_error(error: &Error, expected: &(ErrorKind, String, usize)) {
    let found = (error.kind(), error.column().unwrap_or("").to_owned(), error.row().unwrap_or(usize::MAX));
    assert_eq!(&found, expected, "{error}");
}

/// The memory of a tensor to write to, of this shape and strides, with gaps that must stay as they are.
pub(crate) fn memory_of(dtype: DType, shape: &[i64], strides: &[i64]) -> Tensor {
    let reach: i64 = shape.iter().zip(strides).map(|(extent, stride)| (extent - 1).max(0) * stride).sum();
    let bytes = vec![0xEE; (usize::try_from(reach).unwrap() + 1) * dtype.itemsize()];
    Memory::new(&bytes, dtype, shape, strides, 0).import().0.unwrap()
}
