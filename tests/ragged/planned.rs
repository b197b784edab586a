//! A plan of lists and strings says what `explain` says, and does what the conversion without a plan does.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{Array, Int32Array, ListArray, ListViewArray, RunArray, StringArray, StringViewArray, make_array};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_dlpack::{
    Chunks, Conversion, ConversionPlan, CopyLog, CopyMode, DType, DeviceArray, Error, ErrorKind, NullPolicy, Pad,
    Ragged, Report, Scalar, Selection, Side, Tensor,
};
use arrow_schema::DataType;

use crate::support::Random;
use crate::support::arrow::{field, shared};
use crate::{KINDS, fill, keep, lists, one, random_lists};

/// All tensors of the rows: name, dtype, shape, whether copied, and bytes.
type Parts = Vec<(&'static str, DType, Vec<i64>, bool, Vec<u8>)>;

fn part(name: &'static str, tensor: &Tensor) -> (&'static str, DType, Vec<i64>, bool, Vec<u8>) {
    let bytes = tensor.as_bytes().unwrap().to_vec();
    (name, tensor.dtype(), tensor.shape().to_vec(), tensor.is_copied(), bytes)
}

fn parts(ragged: &Ragged) -> Parts {
    let own = [
        ("offsets", Some(ragged.offsets())),
        ("lengths", ragged.lengths()),
        ("shapes", ragged.shapes()),
        ("validity", ragged.validity()),
        ("values", ragged.values().as_tensor()),
    ];
    let mut parts: Parts = own.into_iter().filter_map(|(name, tensor)| Some(part(name, tensor?))).collect();
    parts.extend(ragged.values().as_ragged().map(self::parts).unwrap_or_default());
    parts
}

/// Asserts that a plan says what `explained` says, and does what `converted` does.
fn assert_planned<R>(
    planned: impl FnOnce() -> Result<ConversionPlan<R>, Error>,
    explained: &Report,
    converted: impl FnOnce() -> Result<R, Error>,
    parts: impl Fn(&R) -> Parts,
) {
    let (log, planning, running) = (CopyLog::new(), CopyLog::new(), CopyLog::new());
    let expected = log.track(converted);
    let refused = explained.rows.iter().find_map(|row| row.error.clone());
    let plan = match planning.track(planned) {
        Ok(plan) => plan,
        Err(error) => {
            assert_eq!((Some(&error), expected.map(|_| ()).err().as_ref()), (refused.as_ref(), Some(&error)));
            return;
        }
    };
    assert!(planning.entries().is_empty(), "planning copies nothing");
    assert_eq!(plan.report().to_string(), explained.to_string());
    assert_eq!(plan.bytes(), explained.bytes());
    match (running.track(|| plan.run()), expected) {
        (Ok(made), Ok(expected)) => {
            assert!(refused.is_none(), "{explained}");
            assert_eq!(parts(&made), parts(&expected));
            assert_eq!(running.entries(), log.entries());
            assert_eq!(running.bytes(), explained.bytes(), "{explained} {:?}", running.entries());
        }
        (Err(error), Err(expected)) => {
            assert_eq!(error, expected);
            assert!(error.kind() == ErrorKind::Cast || refused.as_ref() == Some(&error), "{error}\n{explained}");
        }
        (made, expected) => panic!("{:?}, not {:?}", made.err(), expected.err()),
    }
}

fn assert_ragged(conversion: &Conversion, column: &DeviceArray) {
    let chunks = std::slice::from_ref(column);
    let data = || Chunks::new(column.field(), chunks);
    let explained = conversion.clone().select(Selection::Each(None)).explain(data()).unwrap();
    assert_planned(|| conversion.plan_ragged(data()), &explained, || conversion.ragged(data()), parts);
}

fn assert_padded(conversion: &Conversion, column: &DeviceArray, pad: Pad) {
    let explained = conversion.explain_padded(column, pad).unwrap();
    let both = |(matrix, valid): &(Tensor, Tensor)| vec![part("values", matrix), part("validity", valid)];
    assert_planned(|| conversion.plan_padded(column, pad), &explained, || conversion.padded(column, pad), both);
}

fn options() -> Vec<Conversion> {
    let nan = Conversion::default().nulls(NullPolicy::Nan).dtype(DType::Float64);
    let (int64, float32) = (DType::Int64, DType::Float32);
    let mut all = Vec::new();
    for (own, wider) in [(Conversion::default(), int64), (keep(), int64), (fill(7), int64), (nan, float32)] {
        all.extend([
            own.clone(),
            own.clone().copy(CopyMode::Never),
            own.clone().copy(CopyMode::Always),
            own.clone().writable(true),
            own.clone().dtype(wider),
            own.clone().dtype(wider).copy(CopyMode::Never),
            own.dtype(DType::UInt8),
        ]);
    }
    // Each policy and each other option, not all pairs.
    all.into_iter().step_by(if cfg!(miri) { 9 } else { 1 }).collect()
}

fn pads() -> impl Iterator<Item = Pad> {
    let pad = Pad::new(Scalar::Int(3));
    let all =
        [pad, pad.length(2).truncate(Side::Left).side(Side::Left), pad.length(3), pad.length(0).truncate(Side::Right)];
    // Every other one: without and with a length that is given.
    all.into_iter().step_by(if cfg!(miri) { 2 } else { 1 })
}

#[test]
fn of_random_lists() {
    let mut random = Random(23);
    for round in 0..if cfg!(miri) { 4 } else { 32 } {
        let (array, _) = random_lists(KINDS[round % 4], round % 9, round % 3, &mut random);
        let column = one(&array.slice(array.len() / 3, array.len() - array.len() / 3));
        for conversion in options() {
            assert_ragged(&conversion, &column);
            pads().for_each(|pad| assert_padded(&conversion, &column, pad));
        }
    }
}

#[test]
fn of_nested_lists_and_strings() {
    let mut random = Random(5);
    for round in 0..if cfg!(miri) { 1 } else { 12 } {
        let (inner, _) = random_lists(KINDS[round % 4], 7, round % 3, &mut random);
        let item = field("item", inner.data_type().clone());
        let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0_i32, 2, 2, 5, 7]));
        let nested = ListArray::new(item, offsets, Arc::new(inner), None);
        let text = [Some("to"), None, Some("longer than twelve bytes"), Some("")];
        let columns: [Arc<dyn Array>; 3] = [
            Arc::new(nested.slice(1, 3)),
            Arc::new(StringViewArray::from_iter(text).slice(round % 3, 2)),
            Arc::new(StringArray::from_iter(text).slice(round % 3, 2)),
        ];
        for column in &columns {
            let column = one(column);
            for conversion in options() {
                assert_ragged(&conversion, &column);
                pads().for_each(|pad| assert_padded(&conversion, &column, pad));
            }
        }
    }
}

#[test]
fn of_elements_that_are_decoded() {
    let runs = RunArray::<Int32Type>::try_new(
        &Int32Array::from(vec![2, 3, 6]),
        &Int32Array::from(vec![Some(300), None, Some(4)]),
    );
    let runs = Arc::new(runs.unwrap());
    let item = field("item", runs.data_type().clone());
    let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0_i32, 1, 4, 6]));
    let lists = ListArray::new(item, offsets, runs, None);
    let columns = [one(&lists), one(&lists.slice(0, 1)), one(&lists.slice(2, 1))];
    for column in columns.into_iter().take(if cfg!(miri) { 1 } else { 3 }) {
        for conversion in options() {
            assert_ragged(&conversion, &column);
            pads().for_each(|pad| assert_padded(&conversion, &column, pad));
        }
    }
}

#[test]
fn of_rows_that_are_tensors() {
    let rows = |first: i16| lists(crate::Kind::List, &[Some(vec![Some(first); 6]), None, Some(vec![Some(1), None])]);
    let cases = [(rows(300), [[2, 3], [0, 0], [1, 2]]), (rows(4), [[2, 3], [7, 7], [2, 2]])];
    for (data, shapes) in cases {
        let (array, field) = crate::tensors::tensors(&data, &shapes, "{}");
        let column = shared(&array, &field);
        for conversion in options() {
            let explained = conversion.clone().select(Selection::Each(None)).explain(&column).unwrap();
            let is_wrong = shapes[2] == [2, 2] && conversion.ragged(&column).is_err_and(|error| error.row() == Some(2));
            if is_wrong {
                // A shape is compared with its row once both are made.
                let planned = conversion.plan_ragged(&column).and_then(ConversionPlan::run);
                assert_eq!(planned.err(), conversion.ragged(&column).err());
                continue;
            }
            assert_planned(|| conversion.plan_ragged(&column), &explained, || conversion.ragged(&column), parts);
        }
    }
}

#[test]
fn of_several_chunks() {
    let rows = |from: i16| lists(crate::Kind::List, &[Some(vec![Some(from), None]), None, Some(vec![Some(from)])]);
    let chunks = [one(&rows(1)), one(&rows(5).slice(1, 2)), one(&rows(9).slice(0, 0))];
    let data = || Chunks::new(chunks[0].field(), &chunks);
    for conversion in options() {
        let explained = conversion.clone().select(Selection::Each(None)).explain(data()).unwrap();
        assert_planned(|| conversion.plan_ragged(data()), &explained, || conversion.ragged(data()), parts);
        for pad in pads() {
            let both = |(matrix, valid): &(Tensor, Tensor)| vec![part("values", matrix), part("validity", valid)];
            let explained = conversion.explain_padded(data(), pad).unwrap();
            assert_planned(|| conversion.plan_padded(data(), pad), &explained, || conversion.padded(data(), pad), both);
        }
    }
}

#[test]
fn a_plan_outlives_its_data_and_goes_to_another_thread() {
    let plan = {
        let column = one(&lists(crate::Kind::LargeList, &[Some(vec![Some(1), Some(2)]), Some(vec![])]));
        keep().dtype(DType::Float32).plan_ragged(&column).unwrap()
    };
    assert_eq!(plan.bytes(), 8 + 2);
    let ragged = std::thread::spawn(move || plan.run()).join().unwrap().unwrap();
    assert_eq!(ragged.values().as_tensor().unwrap().as_slice::<f32>().unwrap(), [1.0, 2.0]);
    assert_eq!(ragged.validity().unwrap().as_bytes().unwrap(), [1, 1]);
}

#[test]
fn more_elements_than_int32_offsets_count_are_refused_before_they_are_joined() {
    const HALF: i32 = 1 << 30;
    let item = field("item", crate::support::arrow::list(DataType::Int32, 0));
    let empty = arrow_data::ArrayData::builder(item.data_type().clone()).len(HALF as usize);
    let items = make_array(empty.add_child_data(Int32Array::from(vec![0; 0]).to_data()).build().unwrap());
    let offsets = OffsetBuffer::new(vec![0, HALF].into());
    let lists = ListArray::new(item.clone(), offsets, items.clone(), None);
    let view = |start: i32| {
        ListViewArray::new(item.clone(), vec![start].into(), vec![HALF - start].into(), items.clone(), None)
    };
    // Rows of list views may reach beyond int32, as long as each of them starts below.
    for (array, is_planned) in [(&lists as &dyn Array, false), (&view(0), true), (&view(HALF), false)] {
        let chunks = [one(array), one(array)];
        let refused = Conversion::default().plan_ragged(Chunks::new(chunks[0].field(), &chunks)).err();
        assert_eq!(refused.map(|error| error.kind()), (!is_planned).then_some(ErrorKind::Unsupported));
    }
}
