//! Elements of every type that has a tensor form: as they are in a column of their own.

use std::sync::Arc;

use arrow_array::types::{Float32Type, Int8Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Decimal64Array, Decimal128Array, DictionaryArray, FixedSizeBinaryArray,
    FixedSizeListArray, Int32Array, ListArray, RunArray, StringArray, TimestampMillisecondArray, make_array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_data::ArrayData;
use arrow_dlpack::{
    Conversion, CopyLog, CopyMode, DType, DecimalMode, DictionaryMode, ErrorKind, Pad, Scalar, to_arrow,
};
use arrow_schema::Field;

use crate::support::reference::read;
use crate::{Kind, fill, ints, keep, one, positions, values};

/// Five items in rows of two, none and three.
fn rows_of(items: &dyn Array) -> ArrayRef {
    assert_eq!(items.len(), 5);
    let data = ArrayData::builder(Kind::List.of(items.data_type().clone()))
        .len(3)
        .add_buffer(ints(false, &[0, 2, 2, 5]))
        .add_child_data(items.to_data());
    make_array(data.build().unwrap())
}

fn items() -> Vec<(ArrayRef, Conversion)> {
    let options = Conversion::default;
    let numbers = || Int32Array::from(vec![3, 3, 1, 1, 2]);
    let runs =
        RunArray::<Int32Type>::try_new(&Int32Array::from(vec![2, 4, 5]), &Int32Array::from(vec![3, 1, 2])).unwrap();
    let codes: DictionaryArray<Int8Type> = vec!["b", "a", "a", "b", "c"].into_iter().collect();
    let keys = arrow_array::Int8Array::from(vec![0, 1, 1, 0, 2]);
    let lookup = DictionaryArray::new(keys, Arc::new(Int32Array::from(vec![10, 20, 30])));
    let pairs = (0..5).map(|item| Some([Some(item as f32), Some(-1.0)]));
    let pairs: ArrayRef = Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(pairs, 2));
    vec![
        (Arc::new(numbers()), options()),
        (Arc::new(numbers()), options().dtype(DType::Float64)),
        (Arc::new(BooleanArray::from(vec![true, false, false, true, true])), options()),
        (Arc::new(TimestampMillisecondArray::from(vec![1, 2, 3, 4, 5])), options()),
        (Arc::new(runs.clone()), options()),
        (Arc::new(runs), options().dtype(DType::Int64)),
        (Arc::new(codes), options()),
        (Arc::new(lookup.clone()), options().dictionary(DictionaryMode::Values)),
        (Arc::new(lookup), options().dtype(DType::Float32)),
        (Arc::new(Decimal64Array::from(vec![125, 250, 0, -125, 1])), options().decimal(DecimalMode::Unscaled)),
        (Arc::new(Decimal128Array::from(vec![125, 250, 0, -125, 1])), options().dtype(DType::Float64)),
        (Arc::new(FixedSizeBinaryArray::try_from_iter((0..5).map(|item| [item, 9, 8])).unwrap()), options()),
        (pairs.clone(), options()),
        (pairs, options().dtype(DType::Complex64)),
    ]
}

#[test]
fn values_are_those_of_a_column_of_the_items() {
    for (items, options) in items() {
        let what = format!("{} {options:?}", items.data_type());
        let list = rows_of(items.as_ref());
        let alone = options.to_tensor(&one(&items)).unwrap();
        let log = CopyLog::new();
        let ragged = log.track(|| options.ragged(&one(&list))).unwrap();
        assert_eq!((positions(ragged.offsets()), values(&ragged).dtype()), (vec![0, 2, 2, 5], alone.dtype()), "{what}");
        assert_eq!((values(&ragged).shape(), read(values(&ragged))), (alone.shape(), read(&alone)), "{what}");
        assert_eq!(values(&ragged).is_copied(), !log.entries().is_empty(), "{what}");
        assert_eq!(values(&ragged).is_copied(), alone.is_copied(), "{what}");
        let never = options.clone().copy(CopyMode::Never).ragged(&one(&list));
        assert_eq!(never.is_err(), alone.is_copied(), "{what}");
        // Values that are what the field says return to its type; others are those of a tensor.
        let back = ragged.to_arrow(CopyMode::IfNeeded).unwrap().to_arrow().unwrap();
        let item = to_arrow(&alone, None, CopyMode::IfNeeded).unwrap();
        assert_eq!(back.data_type(), &Kind::List.of(item.field().data_type().clone()), "{what}");
        assert_eq!(back.len(), 3, "{what}");
        if item.field().data_type() == items.data_type() {
            assert_eq!(&back, &list, "{what}");
        }
        // Rows of a slice, and the padded rows of both.
        let tail = list.slice(1, 2);
        let elements = |items: std::ops::Range<i64>| {
            let all = read(&alone);
            let per_item = all.len() / 5;
            all[usize::try_from(items.start).unwrap() * per_item..usize::try_from(items.end).unwrap() * per_item]
                .to_vec()
        };
        let sliced = options.ragged(&one(&tail)).unwrap();
        assert_eq!(read(values(&sliced)), elements(2..5), "{what}");
        let zero = Pad::new(Scalar::Int(0)).length(3);
        if alone.dtype() == DType::Complex64 {
            continue;
        }
        let (matrix, valid) = options.padded(&one(&tail), zero).unwrap();
        assert_eq!(&matrix.shape()[..2], [2, 3], "{what}");
        assert_eq!(matrix.shape()[2..], alone.shape()[1..], "{what}");
        let padded = read(&matrix);
        assert_eq!(padded[padded.len() / 2..], elements(2..5), "{what}");
        assert!(padded[..padded.len() / 2].iter().flatten().all(|byte| *byte == 0), "{what}");
        assert_eq!(valid.as_bytes().unwrap(), [0, 0, 0, 1, 1, 1], "{what}");
    }
}

#[test]
fn nulls_that_codes_and_runs_stand_for_are_nulls() {
    let keys = arrow_array::Int8Array::from(vec![Some(0), Some(1), None, Some(0), Some(0)]);
    let words: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
    let codes: ArrayRef = Arc::new(DictionaryArray::new(keys, words));
    let runs: ArrayRef = Arc::new(
        RunArray::<Int32Type>::try_new(
            &Int32Array::from(vec![1, 3, 5]),
            &Int32Array::from(vec![Some(1), None, Some(2)]),
        )
        .unwrap(),
    );
    for items in [codes, runs] {
        let list = rows_of(items.as_ref());
        let error = Conversion::default().ragged(&one(&list)).unwrap_err();
        assert_eq!((error.kind(), error.row()), (ErrorKind::Null, Some(0)), "{error}");
        let error = Conversion::default().ragged(&one(&list.slice(1, 2))).unwrap_err();
        assert_eq!((error.kind(), error.row()), (ErrorKind::Null, Some(1)), "{error}");
        let zero = Pad::new(Scalar::Int(0));
        let (_, valid) = keep().padded(&one(&list), zero).unwrap();
        assert_eq!(valid.as_bytes().unwrap(), [1, 0, 0, 0, 0, 0, 0, 1, 1]);
        let filled = fill(7).ragged(&one(&list)).unwrap();
        assert_eq!(read(values(&filled)).iter().filter(|element| element[0] == 7).count(), 2);
    }
}

#[test]
fn hidden_runs_of_codes_do_not_count() {
    let item =
        |runs: &RunArray<Int32Type>, is_nullable| Arc::new(Field::new("item", runs.data_type().clone(), is_nullable));
    for (keys, valid, expected) in [
        // A null row hides the last code, the first one, and all of them.
        ([0, 1], [true, false], &[10_i8][..]),
        ([1, 0], [true, false], &[20]),
        ([1, 0], [false, true], &[10]),
        ([0, 1], [false, false], &[]),
    ] {
        let codes = DictionaryArray::new(Int32Array::from(keys.to_vec()), Arc::new(Int32Array::from(vec![10, 20])));
        let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![1, 2]), &codes).unwrap();
        for is_nullable in [true, false] {
            let nulls = Some(NullBuffer::from(valid.to_vec()));
            let offsets = OffsetBuffer::new(vec![0, 1, 2].into());
            let list: ArrayRef =
                Arc::new(ListArray::new(item(&runs, is_nullable), offsets, Arc::new(runs.clone()), nulls));
            let ragged = keep().dtype(DType::Int8).ragged(&list).unwrap();
            let elements = values(&ragged).to_vec::<i8>().unwrap();
            let shown: Vec<i8> =
                elements.iter().zip(valid).filter(|(_, valid)| *valid).map(|(value, _)| *value).collect();
            assert_eq!(shown, expected, "{keys:?} {valid:?}");
            assert_eq!(ragged.validity().unwrap().to_bools().unwrap(), valid);
        }
    }
}

#[test]
fn hidden_runs_of_a_slice_of_bools_do_not_count() {
    let bools = BooleanArray::from(vec![true; 24]).slice(12, 12);
    let ends = Int32Array::from((1..=12).collect::<Vec<_>>());
    let runs = RunArray::<Int32Type>::try_new(&ends, &bools).unwrap();
    let item = Arc::new(Field::new("item", runs.data_type().clone(), true));
    let offsets = OffsetBuffer::new(vec![0, 12].into());
    let list: ArrayRef = Arc::new(ListArray::new(item, offsets, Arc::new(runs), Some(NullBuffer::new_null(1))));
    let ragged = keep().dtype(DType::Int8).ragged(&list).unwrap();
    assert_eq!(ragged.validity().unwrap().to_bools().unwrap(), [false]);
}

#[test]
fn a_run_that_begins_in_a_null_row_is_refused_in_the_row_that_shows_it() {
    let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![3]), &Int32Array::from(vec![1000])).unwrap();
    let item = Arc::new(Field::new("item", runs.data_type().clone(), true));
    let offsets = OffsetBuffer::new(vec![0, 0, 1, 1, 3].into());
    let nulls = Some(NullBuffer::from(vec![true, false, true, true]));
    let list: ArrayRef = Arc::new(ListArray::new(item, offsets, Arc::new(runs), nulls));
    let error = keep().dtype(DType::Int8).ragged(&list).unwrap_err();
    assert_eq!((error.kind(), error.row()), (ErrorKind::Cast, Some(3)), "{error}");
}
