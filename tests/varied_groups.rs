//! What do groups of padded rows, ragged rows and Arrow columns become, and what do they refuse?
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that fails loudly")]
#![allow(clippy::cast_possible_wrap, reason = "the numbers of a test are small")]

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, ListArray, RecordBatch, StringArray};
use arrow_dlpack::{
    Chunks, Conversion, Converted, CopyLog, CopyMode, DType, DeviceArray, ErrorKind, Group, NullPolicy, Pad, Scalar,
    Selection, Side, Tensor,
};
use arrow_schema::FieldRef;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

fn batch() -> RecordBatch {
    let ids = [Some(vec![Some(1), Some(2), Some(3)]), None, Some(vec![]), Some(vec![Some(4), None])];
    let ids: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(ids));
    let text: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), Some("bcd"), None, Some("")]));
    let y: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 4]));
    RecordBatch::try_from_iter_with_nullable([("ids", ids, true), ("text", text, true), ("y", y, false)]).unwrap()
}

fn named<const N: usize>(groups: [(&str, Group); N]) -> Conversion {
    let groups = groups.into_iter().map(|(name, group)| (name.to_owned(), group)).collect();
    Conversion::default().select(Selection::Named(groups))
}

fn everything() -> Conversion {
    let pad = Pad::new(Scalar::Int(-1)).length(2).truncate(Side::Left).side(Side::Left);
    let x = Group::padded("ids", pad).nulls(NullPolicy::Keep).validity("mask").lengths("n");
    let r = Group::ragged("text").nulls(NullPolicy::Keep).dtype(DType::Int16);
    named([("x", x), ("y", Group::column("y")), ("r", r), ("a", Group::arrow(["text", "ids"]))])
}

#[test]
fn results_of_every_form_come_in_the_order_of_the_groups() {
    let batch = batch();
    let results = everything().to_results(&batch).unwrap();
    let names: Vec<_> = results.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["x", "mask", "n", "y", "r", "a"]);
    let tensor = |at: usize| results[at].1.as_tensor().unwrap();
    assert_eq!(tensor(0).as_slice::<i32>().unwrap(), [2, 3, -1, -1, -1, -1, 4, -1]);
    assert_eq!(tensor(1).as_bytes().unwrap(), [1, 1, 0, 0, 0, 0, 1, 0]);
    assert_eq!(tensor(2).as_slice::<i64>().unwrap(), [2, 0, 0, 2]);
    assert_eq!(tensor(3).as_slice::<i64>().unwrap(), [1, 2, 3, 4]);
    let rows = results[4].1.as_ragged().unwrap();
    assert_eq!(rows.offsets().as_slice::<i32>().unwrap(), [0, 1, 4, 4, 4]);
    assert_eq!(rows.validity().unwrap().as_bytes().unwrap(), [1, 1, 0, 1]);
    assert_eq!(rows.values().as_tensor().unwrap().as_slice::<i16>().unwrap(), [97, 98, 99, 100]);
    let passed = results[5].1.as_arrow().unwrap().to_record_batch().unwrap();
    assert_eq!(passed, batch.project(&[1, 0]).unwrap());
    assert!(results[5].1.as_tensor().is_none() && results[5].1.as_ragged().is_none());
}

#[test]
fn arrow_columns_are_copied_where_a_copy_is_asked_for() {
    let batch = batch();
    let values = |batch: &RecordBatch| batch.column_by_name("y").unwrap().to_data().buffers()[0].as_ptr();
    for (copy, is_shared) in [(CopyMode::IfNeeded, true), (CopyMode::Always, false)] {
        let results = named([("a", Group::arrow(["y"]))]).copy(copy).to_results(&batch).unwrap();
        let passed = results[0].1.as_arrow().unwrap().to_record_batch().unwrap();
        assert_eq!(passed, batch.project(&[2]).unwrap());
        assert_eq!(values(&passed) == values(&batch), is_shared, "{copy:?}");
    }
}

#[test]
fn tensors_alone_are_refused_where_a_result_is_none() {
    let error = everything().to_tensors(&batch()).unwrap_err();
    assert!(error.to_string().contains("group \"x\"") && error.remedy().is_some(), "{error}");
}

/// Name, layout and contents of each result.
fn contents(results: Vec<(String, Converted)>) -> Vec<String> {
    let tensor = |tensor: &Tensor| {
        let layout = (tensor.dtype(), tensor.shape(), tensor.is_copied(), tensor.is_writable());
        format!("{layout:?} {:?}", tensor.as_bytes().unwrap())
    };
    let text = |(name, made): (String, Converted)| match made {
        Converted::Tensor(made) => format!("{name} {}", tensor(&made)),
        Converted::Ragged(rows) => {
            let parts = [Some(rows.offsets()), rows.lengths(), rows.validity(), rows.values().as_tensor()];
            format!("{name} {:?}", parts.map(|part| part.map(tensor)))
        }
        Converted::Arrow(batch) => format!("{name} {:?}", batch.to_record_batch().unwrap()),
        _ => panic!("another form"),
    };
    results.into_iter().map(text).collect()
}

/// A group of some form and its options: with validity and lengths or not, padded to a length or to that of the longest row.
type AnyGroup = (usize, NullPolicy, Option<DType>, [bool; 2], usize);

/// The group, whose results have this number in their names.
fn group_of(number: usize, (form, nulls, dtype, [validity, lengths], length): AnyGroup) -> Group {
    let pad = Pad::new(Scalar::Int(-1));
    let pad = if length > 0 { pad.length(length).truncate(Side::Right) } else { pad };
    let group = match form {
        0 => Group::padded("ids", pad),
        1 => Group::padded("text", pad),
        2 => Group::ragged("ids"),
        3 => Group::ragged("text"),
        4 => return Group::arrow(["text", "y"]),
        5 => Group::column("y"),
        _ => Group::matrix(["y", "z"]),
    };
    let group = if form < 2 && lengths { group.lengths(format!("{number} lengths")) } else { group };
    let is_ragged = matches!(form, 2 | 3);
    let group = if validity && !is_ragged { group.validity(format!("{number} valid")) } else { group };
    dtype.map_or(group.clone(), |dtype| group.dtype(dtype)).nulls(nulls)
}

/// Groups of each form, under some options.
fn any_groups() -> impl Strategy<Value = Conversion> {
    let policies = vec![NullPolicy::Keep, NullPolicy::Error, NullPolicy::Fill(Scalar::Int(9))];
    let dtypes = vec![None, Some(DType::Float32), Some(DType::Int8)];
    let group = (0..7_usize, select(policies), select(dtypes), any::<[bool; 2]>(), 0..4_usize);
    let copies = select(vec![CopyMode::IfNeeded, CopyMode::IfNeeded, CopyMode::Never, CopyMode::Always]);
    (vec(group, 1..4), copies).prop_map(|(groups, copy)| {
        let named = |(number, group)| (format!("{number} group"), group_of(number, group));
        let groups = groups.into_iter().enumerate().map(named).collect();
        Conversion::default().copy(copy).select(Selection::Named(groups))
    })
}

/// Rows of which some are null, in slices.
fn any_chunks() -> impl Strategy<Value = (FieldRef, Vec<DeviceArray>)> {
    let text = option::weighted(0.8, "[a-z]{0,4}");
    let ids = option::weighted(0.8, vec(option::weighted(0.9, -300..300_i32), 0..4));
    let rows = vec((ids, text, option::weighted(0.9, any::<i64>())), 0..12);
    let nullable = any::<bool>();
    (rows, nullable, vec(0..12_usize, 0..3)).prop_map(|(rows, has_nulls, mut cuts)| {
        let valid = |is_some: bool| is_some || has_nulls;
        let ids = rows.iter().map(|(ids, _, _)| if valid(ids.is_some()) { ids.clone() } else { Some(vec![Some(1)]) });
        let ids: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(ids));
        let text =
            rows.iter().map(|(_, text, _)| if valid(text.is_some()) { text.clone() } else { Some("x".to_owned()) });
        let text: ArrayRef = Arc::new(text.collect::<StringArray>());
        let numbers = rows.iter().map(|(_, _, y)| if valid(y.is_some()) { *y } else { Some(3) });
        let y: ArrayRef = Arc::new(numbers.collect::<Int64Array>());
        let z: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows.len() as i64));
        let columns = [("ids", ids, true), ("text", text, true), ("y", y, true), ("z", z, true)];
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let array = DeviceArray::from_record_batch(&batch).unwrap();
        cuts.iter_mut().for_each(|cut| *cut = (*cut).min(rows.len()));
        cuts.sort_unstable();
        let ends: Vec<_> = cuts.into_iter().chain([rows.len()]).collect();
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let chunks = starts.zip(&ends).map(|(start, end)| array.slice(start, end - start).unwrap()).collect();
        (array.field().clone(), chunks)
    })
}

proptest! {
    #[test]
    fn a_plan_of_groups_of_any_form_does_what_it_says(conversion in any_groups(), (field, chunks) in any_chunks()) {
        let data = || Chunks::new(&field, &chunks);
        let (log, planning, running) = (CopyLog::new(), CopyLog::new(), CopyLog::new());
        let expected = log.track(|| conversion.to_results(data()));
        let explained = conversion.explain(data()).unwrap();
        let refused = explained.rows.iter().chain(&explained.matrices).find_map(|row| row.error.clone());
        let plan = planning.track(|| conversion.plan(data()));
        prop_assert!(planning.entries().is_empty(), "planning copies nothing");
        let plan = match plan {
            Ok(plan) => plan,
            Err(error) => {
                prop_assert_eq!(expected.map(contents).unwrap_err(), error);
                prop_assert!(refused.is_some(), "{}", explained);
                return Ok(());
            }
        };
        prop_assert_eq!(plan.report().to_string(), explained.to_string());
        prop_assert_eq!(plan.bytes(), explained.bytes());
        match (running.track(|| plan.run()), expected) {
            (Ok(made), Ok(expected)) => {
                prop_assert!(refused.is_none(), "{}", explained);
                prop_assert_eq!(contents(made), contents(expected));
                prop_assert_eq!(running.entries(), log.entries());
                prop_assert_eq!(running.bytes(), explained.bytes(), "{} {:?}", explained, running.entries());
            }
            (Err(error), Err(expected)) => {
                prop_assert_eq!(&error, &expected);
                prop_assert!(refused.is_some() || error.kind() == ErrorKind::Cast, "{}\n{}", error, explained);
            }
            (made, expected) => panic!("{:?}, not {:?}", made.err(), expected.err()),
        }
    }
}

#[test]
fn what_a_plan_refuses_comes_before_a_null_of_another_result() {
    let nullable: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(1)]));
    let bits: ArrayRef = Arc::new(BooleanArray::from(vec![true, false]));
    let batch = RecordBatch::try_from_iter([("a", nullable), ("b", bits)]).unwrap();
    let each = Conversion::default().select(Selection::Each(None));
    let groups = named([("x", Group::column("a").validity("mask"))]);
    for conversion in [each, groups].map(|conversion| conversion.copy(CopyMode::Never)) {
        let planned = conversion.plan(&batch).map(drop).unwrap_err();
        assert_eq!(planned.kind(), ErrorKind::Copy, "{planned}");
        assert_eq!(conversion.to_results(&batch).map(drop).unwrap_err(), planned);
        assert_eq!(conversion.to_tensors(&batch).map(drop).unwrap_err(), planned);
    }
}

#[test]
fn a_report_has_a_row_for_each_result() {
    let array = DeviceArray::from_record_batch(&batch()).unwrap();
    let chunks = [array.slice(0, 1).unwrap(), array.slice(1, 3).unwrap()];
    let chunks = Chunks::new(array.field(), &chunks);
    let report = everything().explain(chunks.clone()).unwrap();
    let names: Vec<_> = report.rows.iter().map(|row| row.column.as_str()).collect();
    assert_eq!(names, ["x", "mask", "n", "y", "r.offsets", "r.validity", "r.values", "a"]);
    assert!(report.rows.iter().all(|row| row.error.is_none() && row.how() == "copy"), "{report}");
    let log = CopyLog::new();
    let made = log.track(|| everything().to_results(chunks).unwrap());
    assert_eq!(log.bytes(), report.bytes());
    assert!(matches!(made[5].1, Converted::Arrow(_)));
}

#[test]
fn what_no_data_makes_possible_is_told_of_all_groups() {
    let field = DeviceArray::from_record_batch(&batch()).unwrap().field().clone();
    let pad = Pad::new(Scalar::Int(0));
    let wrong = named([("a", Group::padded("y", pad)), ("b", Group::ragged("y")), ("c", Group::column("z"))]);
    let error = wrong.check(&field).unwrap_err();
    // Errors with the same words about the same column are told once.
    assert_eq!(error.others().len(), 1, "{error}");
    let twice = named([("a", Group::padded("ids", pad).lengths("b")), ("b", Group::ragged("ids"))]);
    let error = twice.check(&field).unwrap_err().to_string();
    assert!(error.contains("group \"b\"") && error.contains("the lengths of group \"a\""), "{error}");
    for group in
        [Group::ragged("ids").validity("v"), Group::arrow(["y"]).lengths("n"), Group::arrow(["y"]).dtype(DType::Int8)]
    {
        assert!(named([("a", group)]).check(&field).unwrap_err().remedy().is_some());
    }
    let refused = named([("a", Group::padded("ids", pad).nulls(NullPolicy::Keep))]).copy(CopyMode::Never);
    assert!(refused.to_results(&batch()).is_err());
}

#[test]
fn padded_rows_of_several_columns_do_not_mix() {
    let batch = batch();
    let other = named([
        ("a", Group::padded("ids", Pad::new(Scalar::Int(0))).nulls(NullPolicy::Fill(Scalar::Int(7)))),
        ("b", Group::padded("text", Pad::new(Scalar::Int(0))).nulls(NullPolicy::Keep).lengths("n")),
    ]);
    let results = other.to_results(&batch).unwrap();
    let tensor = |at: usize| results[at].1.as_tensor().unwrap();
    assert_eq!(tensor(0).as_slice::<i32>().unwrap(), [1, 2, 3, 0, 0, 0, 0, 0, 0, 4, 7, 0]);
    assert_eq!(tensor(1).shape(), [4, 3]);
    assert_eq!(tensor(2).as_slice::<i64>().unwrap(), [1, 3, 0, 0]);
    assert_eq!(batch.column(0).len(), 4);
}
