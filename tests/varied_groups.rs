//! What do groups of padded rows, ragged rows and Arrow columns become, and what do they refuse?
#![allow(clippy::unwrap_used, reason = "a test that fails loudly")]

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{Array, ArrayRef, Int64Array, ListArray, RecordBatch, StringArray};
use arrow_dlpack::{
    Conversion, Converted, CopyMode, DType, DeviceArray, Group, NullPolicy, Pad, Scalar, Selection, Side,
};

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
fn tensors_alone_and_plans_are_refused_where_a_result_is_none() {
    let batch = batch();
    let error = everything().to_tensors(&batch).unwrap_err();
    assert!(error.to_string().contains("group \"x\"") && error.remedy().is_some(), "{error}");
    assert!(everything().plan(&batch).is_err());
}

#[test]
fn a_report_has_a_row_for_each_result() {
    let array = DeviceArray::from_record_batch(&batch()).unwrap();
    let chunks = [array.slice(0, 1).unwrap(), array.slice(1, 3).unwrap()];
    let chunks = arrow_dlpack::Chunks::new(array.field(), &chunks);
    let report = everything().explain(chunks.clone()).unwrap();
    let names: Vec<_> = report.rows.iter().map(|row| row.column.as_str()).collect();
    assert_eq!(names, ["x", "mask", "n", "y", "r.offsets", "r.validity", "r.values", "a"]);
    assert!(report.rows.iter().all(|row| row.error.is_none() && row.how() == "copy"), "{report}");
    let log = arrow_dlpack::CopyLog::new();
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
