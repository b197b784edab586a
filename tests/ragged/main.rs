//! Lists and strings as values and offsets, padded, and back, against rows that are read one by one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a helper that fails is a test that fails"
)]

mod changing;
mod explained;
mod hostile;
mod items;
mod lists;
mod padded;
mod planned;
mod properties;
#[path = "../support/mod.rs"]
mod support;
mod tensors;
mod text;

use arrow_array::{Array, ArrayRef, ListArray, make_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_dlpack::{Conversion, DType, DeviceArray, NullPolicy, Pad, Ragged, Scalar, Tensor};
use arrow_schema::DataType;
use support::Random;
use support::arrow::{field, shared};

/// A row of a column of int16: null, or its elements, null or not.
pub(crate) type Row = Option<Vec<Option<i16>>>;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    List,
    LargeList,
    ListView,
    LargeListView,
}

pub(crate) const KINDS: [Kind; 4] = [Kind::List, Kind::LargeList, Kind::ListView, Kind::LargeListView];

impl Kind {
    fn of(self, item: DataType) -> DataType {
        let item = field("item", item);
        match self {
            Self::List => DataType::List(item),
            Self::LargeList => DataType::LargeList(item),
            Self::ListView => DataType::ListView(item),
            Self::LargeListView => DataType::LargeListView(item),
        }
    }

    fn is_view(self) -> bool {
        matches!(self, Self::ListView | Self::LargeListView)
    }

    fn is_wide(self) -> bool {
        matches!(self, Self::LargeList | Self::LargeListView)
    }
}

pub(crate) fn ints(wide: bool, values: &[usize]) -> Buffer {
    if wide {
        Buffer::from_iter(values.iter().map(|value| *value as i64))
    } else {
        Buffer::from_iter(values.iter().map(|value| *value as i32))
    }
}

/// Random rows over random elements. Null rows span elements; views overlap, leave gaps, and stand in any order.
pub(crate) fn random_lists(kind: Kind, rows: usize, one_null_in: usize, random: &mut Random) -> (ArrayRef, Vec<Row>) {
    let count = rows * 2 + random.below(4);
    let is_null = |random: &mut Random| one_null_in > 0 && random.below(one_null_in) == 0;
    let items: Vec<Option<i16>> =
        (0..count).map(|_| if is_null(random) { None } else { Some(random.next() as i16) }).collect();
    let valid: Vec<bool> = (0..rows).map(|_| !is_null(random)).collect();
    let (mut offsets, mut lengths) = (Vec::new(), Vec::new());
    if kind.is_view() {
        for _ in 0..rows {
            let start = random.below(count + 1);
            offsets.push(start);
            lengths.push(random.below((count - start).min(4) + 1));
        }
    } else {
        let mut ends: Vec<usize> = (0..=rows).map(|_| random.below(count + 1)).collect();
        ends.sort_unstable();
        lengths = ends.windows(2).map(|ends| ends[1] - ends[0]).collect();
        offsets = ends;
    }
    let expected =
        (0..rows).map(|row| valid[row].then(|| items[offsets[row]..offsets[row] + lengths[row]].to_vec())).collect();
    let child = arrow_array::Int16Array::from(items);
    let mut data = ArrayData::builder(kind.of(DataType::Int16))
        .len(rows)
        .nulls(Some(NullBuffer::new(BooleanBuffer::from(valid))).filter(|nulls| nulls.null_count() > 0))
        .add_buffer(ints(kind.is_wide(), &offsets))
        .add_child_data(child.to_data());
    if kind.is_view() {
        data = data.add_buffer(ints(kind.is_wide(), &lengths));
    }
    (make_array(data.build().unwrap()), expected)
}

pub(crate) fn positions(tensor: &Tensor) -> Vec<usize> {
    match tensor.dtype() {
        DType::Int32 => tensor.as_slice::<i32>().unwrap().iter().map(|value| *value as usize).collect(),
        _ => tensor.as_slice::<i64>().unwrap().iter().map(|value| *value as usize).collect(),
    }
}

/// The elements of each row, as the definition says.
pub(crate) fn ranges(ragged: &Ragged) -> Vec<std::ops::Range<usize>> {
    let offsets = positions(ragged.offsets());
    match ragged.lengths() {
        None => offsets.windows(2).map(|ends| ends[0]..ends[1]).collect(),
        Some(lengths) => offsets.iter().zip(positions(lengths)).map(|(start, length)| *start..start + length).collect(),
    }
}

pub(crate) fn values(ragged: &Ragged) -> &Tensor {
    ragged.values().as_tensor().expect("values are a tensor")
}

pub(crate) fn one(array: &dyn Array) -> DeviceArray {
    shared(array, &field("x", array.data_type().clone()))
}

pub(crate) fn keep() -> Conversion {
    Conversion::default().nulls(NullPolicy::Keep)
}

pub(crate) fn fill(value: i128) -> Conversion {
    Conversion::default().nulls(NullPolicy::Fill(Scalar::Int(value)))
}
/// A list array whose offsets start at 0.
pub(crate) fn lists(kind: Kind, rows: &[Row]) -> ArrayRef {
    let list = ListArray::from_iter_primitive::<arrow_array::types::Int16Type, _, _>(rows.iter().cloned());
    arrow_cast::cast(&list, &kind.of(DataType::Int16)).unwrap()
}

/// Padding that no test's rows hold, up to the longest row.
pub(crate) const PAD: Pad = Pad::new(Scalar::Int(-1));
