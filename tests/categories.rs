//! Do columns become the codes of categories, whatever their layout, and are other values errors of their row?

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

use std::sync::Arc;

use arrow_array::types::{Int8Type, Int16Type, Int32Type, UInt64Type};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, FixedSizeListArray, Float32Array, Int8Array, Int32Array, Int64Array,
    LargeStringArray, RecordBatch, RunArray, StringArray, StringViewArray, StructArray,
};
use arrow_dlpack::loader::{Batches, LoadOptions, Place, Sharding};
use arrow_dlpack::{
    Categories, Chunks, Conversion, CopyLog, CopyMode, DType, Device, DeviceArray, DeviceArrayStream, ErrorKind, Group,
    NullPolicy, Output, Pad, PerColumn, Scalar, Selection, to_arrow,
};
use arrow_schema::{DataType, Field};

fn shared(array: impl Array + 'static) -> ArrayRef {
    Arc::new(array)
}

fn letters() -> Categories {
    Categories::new(shared(StringArray::from(vec!["a", "b", "c"]))).unwrap()
}

fn encode() -> Conversion {
    Conversion::default().categories(letters())
}

fn fill(code: i128) -> NullPolicy {
    NullPolicy::Fill(Scalar::Int(code))
}

/// The same rows, "b", null, "a", "c", "b", in each layout of strings.
fn layouts() -> Vec<ArrayRef> {
    let rows = [Some("b"), None, Some("a"), Some("c"), Some("b")];
    let small: DictionaryArray<Int8Type> = rows.into_iter().collect();
    let values = StringArray::from(vec![Some("c"), Some("unused"), None, Some("b"), Some("more"), Some("a"), Some("")]);
    let codes = arrow_array::UInt64Array::from(vec![Some(3), Some(2), Some(5), Some(0), Some(3)]);
    let large = DictionaryArray::<UInt64Type>::try_new(codes, shared(values)).unwrap();
    let ends = Int16Array(&[1, 2, 3, 4, 5]);
    let runs = RunArray::<Int16Type>::try_new(&ends.array(), &StringArray::from(rows.to_vec())).unwrap();
    vec![
        shared(StringArray::from(rows.to_vec())),
        shared(LargeStringArray::from(rows.to_vec())),
        shared(StringViewArray::from(rows.to_vec())),
        shared(small),
        shared(large),
        shared(runs),
    ]
}

struct Int16Array<'a>(&'a [i16]);

impl Int16Array<'_> {
    fn array(&self) -> arrow_array::Int16Array {
        arrow_array::Int16Array::from(self.0.to_vec())
    }
}

#[test]
fn strings_of_every_layout_become_the_same_codes() {
    for column in layouts() {
        let data_type = column.data_type().clone();
        let codes = encode().nulls(fill(9)).to_tensor(&*column).unwrap();
        assert_eq!(codes.as_slice::<i32>().unwrap(), [1, 9, 0, 2, 1], "{data_type}");
        let part = encode().nulls(fill(-1)).to_tensor(&*column.slice(1, 3)).unwrap();
        assert_eq!(part.as_slice::<i32>().unwrap(), [-1, 0, 2], "{data_type}");
        let values = codes.dictionary().unwrap().to_arrow().unwrap();
        assert_eq!(values.as_ref(), letters().values().as_ref());
        let error = encode().to_tensor(&*column).unwrap_err();
        assert_eq!((error.kind(), error.row()), (ErrorKind::Null, Some(1)), "{data_type}");
        let kept = encode().nulls(NullPolicy::Keep).dtype(DType::Float64).to_tensor(&*column).unwrap();
        assert_eq!(kept.as_slice::<f64>().unwrap(), [1.0, 0.0, 0.0, 2.0, 1.0]);
        let none = encode().to_tensor(&*column.slice(0, 0)).unwrap();
        assert_eq!((none.shape(), none.dtype()), (&[0_i64][..], DType::Int32));
    }
}

#[test]
fn integers_and_dictionaries_of_integers_become_codes() {
    let flights = Categories::new(shared(Int64Array::from(vec![700, 5, -1]))).unwrap().unknown(3);
    let conversion = Conversion::default().categories(flights).nulls(fill(4));
    let rows = [Some(5), Some(700), None, Some(6), Some(-1)];
    let plain = Int32Array::from(rows.to_vec());
    let values = Int32Array::from(vec![6, 5, 700, -1]);
    let codes = Int8Array::from(vec![Some(1), Some(2), None, Some(0), Some(3)]);
    let encoded = DictionaryArray::<Int8Type>::try_new(codes, shared(values)).unwrap();
    for column in [shared(plain), shared(encoded)] {
        assert_eq!(conversion.to_tensor(&*column).unwrap().as_slice::<i32>().unwrap(), [1, 0, 4, 3, 2]);
    }
    // Plain columns without nulls take no short cut past the categories.
    let column: ArrayRef = shared(Int64Array::from(vec![5, -1]));
    assert_eq!(conversion.to_tensor(&*column).unwrap().as_slice::<i32>().unwrap(), [1, 2]);
    let batch = RecordBatch::try_from_iter([("a", column.clone()), ("b", column)]).unwrap();
    assert_eq!(conversion.to_tensor(&batch).unwrap().as_slice::<i32>().unwrap(), [1, 1, 2, 2]);
}

#[test]
fn a_type_without_such_values_is_refused_with_its_column() {
    let batch = RecordBatch::try_from_iter([("x", shared(Float32Array::from(vec![0.5])))]).unwrap();
    let error = encode().to_tensor(&batch).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Unsupported, Some("x")));
    assert!(error.to_string().contains("a Float32 column cannot be looked up in Utf8 categories"), "{error}");
    let none = PerColumn::named([("y", Some(letters()))]);
    let error = Conversion::default().categories(none).to_tensor(&batch).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Argument, Some("y")));
    let lists: ArrayRef = shared(StringArray::from(vec!["a"]));
    assert_eq!(encode().ragged(&*lists).unwrap_err().kind(), ErrorKind::Argument);
    let batch = RecordBatch::try_from_iter([("x", lists)]).unwrap();
    for group in [Group::ragged("x"), Group::padded("x", Pad::new(Scalar::Int(0)))] {
        let groups = Selection::Named(vec![("rows".to_owned(), group)]);
        assert_eq!(encode().select(groups).to_results(&batch).unwrap_err().kind(), ErrorKind::Argument);
    }
}

#[test]
fn an_unknown_value_is_an_error_of_the_first_row_that_has_it() {
    let chunks = |texts: [&[&str]; 2]| -> Vec<DeviceArray> {
        let chunk = |texts: &&[&str]| {
            let field = Arc::new(Field::new("carrier", DataType::Utf8, true));
            DeviceArray::from_arrow(&StringArray::from(texts.to_vec()), field).unwrap()
        };
        texts.iter().map(chunk).collect()
    };
    let arrays = chunks([&["a", "b"], &["c", "XX", "YY"]]);
    let error = encode().to_tensor(Chunks::new(arrays[0].field(), &arrays)).unwrap_err();
    assert_eq!((error.kind(), error.column(), error.row()), (ErrorKind::Cast, Some("carrier"), Some(3)));
    assert!(error.to_string().contains("the value \"XX\" is none of the 3 categories"), "{error}");
    assert!(error.remedy().unwrap().contains("Categories::unknown"));
    // A null before it comes first, and one behind it does not.
    for (rows, kind, row) in [
        (vec![Some("a"), None, Some("XX")], ErrorKind::Null, 1),
        (vec![Some("a"), Some("XX"), None], ErrorKind::Cast, 1),
    ] {
        let error = encode().to_tensor(&StringArray::from(rows)).unwrap_err();
        assert_eq!((error.kind(), error.row()), (kind, Some(row)));
    }
    // Of several columns, the lowest row counts.
    let a = shared(StringArray::from(vec!["a", "a", "XX"]));
    let b = shared(StringArray::from(vec!["a", "YY", "a"]));
    let x = shared(Int32Array::from(vec![Some(1), Some(2), None]));
    let batch = RecordBatch::try_from_iter([("a", a), ("b", b), ("x", x)]).unwrap();
    let own = PerColumn::named([("a", Some(letters())), ("b", Some(letters()))]);
    for selection in [Selection::Whole(None), Selection::Each(None)] {
        let conversion = Conversion::default().dtype(DType::Int32).categories(own.clone()).select(selection);
        let error = match conversion.selection {
            Selection::Whole(_) => conversion.to_tensor(&batch).unwrap_err(),
            _ => conversion.to_tensors(&batch).unwrap_err(),
        };
        assert_eq!((error.column(), error.row()), (Some("b"), Some(1)));
        assert!(error.to_string().contains("\"YY\""), "{error}");
    }
}

#[test]
fn values_under_a_null_are_never_looked_at() {
    let texts = StringArray::from(vec!["XX", "a", "b"]);
    let fields = vec![Field::new("t", DataType::Utf8, true)];
    let rows = StructArray::new(fields.into(), vec![shared(texts.clone())], Some(vec![false, true, true].into()));
    let codes = encode().nulls(fill(7)).to_tensor(&rows).unwrap();
    assert_eq!(codes.as_slice::<i32>().unwrap(), [7, 0, 1]);
    // Nor those in a null list of a fixed size.
    let item = Arc::new(Field::new("item", DataType::Utf8, true));
    let texts = StringArray::from(vec!["XX", "YY", "c", "a"]);
    let lists = FixedSizeListArray::new(item, 2, shared(texts), Some(vec![false, true].into()));
    let codes = encode().nulls(fill(7)).to_tensor(&lists).unwrap();
    assert_eq!((codes.shape(), codes.as_slice::<i32>().unwrap()), (&[2_i64, 2][..], &[7, 7, 2, 0][..]));
    let error = encode().to_tensor(&lists).unwrap_err();
    assert_eq!((error.kind(), error.row()), (ErrorKind::Null, Some(0)));
    assert_eq!(encode().to_tensor(&lists.slice(1, 1)).unwrap().as_slice::<i32>().unwrap(), [2, 0]);
}

#[test]
fn codes_of_categories_join_each_other_in_a_matrix_and_numbers_by_a_dtype() {
    let a = shared(StringArray::from(vec!["b", "a"]));
    let b: DictionaryArray<Int32Type> = ["c", "c"].into_iter().collect();
    let x = shared(Float32Array::from(vec![0.5, 1.5]));
    let batch = RecordBatch::try_from_iter([("a", a), ("b", shared(b)), ("x", x)]).unwrap();
    let own = PerColumn::named([("a", Some(letters())), ("b", Some(letters()))]);
    let conversion = Conversion::default().categories(own);
    let codes = conversion.clone().columns(["a", "b"]).to_tensor(&batch).unwrap();
    assert_eq!((codes.dtype(), codes.as_slice::<i32>().unwrap()), (DType::Int32, &[1, 2, 0, 2][..]));
    assert!(codes.dictionary().is_none());
    let error = conversion.to_tensor(&batch).unwrap_err().to_string();
    assert!(error.contains("do not mix with the codes of categories of column \"a\""), "{error}");
    let all = conversion.clone().dtype(DType::Float32).to_tensor(&batch).unwrap();
    assert_eq!(all.as_slice::<f32>().unwrap(), [1.0, 2.0, 0.5, 0.0, 2.0, 1.5]);
    let groups = vec![("ids".to_owned(), Group::matrix(["a", "b"]).validity("valid"))];
    let named = conversion.select(Selection::Named(groups)).to_tensors(&batch).unwrap();
    assert_eq!(
        (named[0].1.as_slice::<i32>().unwrap(), named[1].1.as_bytes().unwrap()),
        (&[1, 2, 0, 2][..], &[1; 4][..])
    );
}

#[test]
fn encoding_is_a_copy_that_is_planned_logged_and_refused() {
    let column = StringArray::from(vec!["b", "a"]);
    let plan = encode().plan(&column).unwrap();
    let report = plan.report();
    assert_eq!(
        (report.rows[0].how(), report.rows[0].steps.as_slice()),
        ("copy", &["encoded by 3 categories".to_owned()][..])
    );
    assert_eq!(
        (plan.bytes(), plan.run().unwrap()[0].1.as_tensor().unwrap().as_slice::<i32>().unwrap()),
        (8, &[1, 0][..])
    );
    let log = CopyLog::new();
    log.track(|| encode().to_tensor(&column)).unwrap();
    let entries = log.entries();
    assert_eq!((entries.len(), entries[0].why.as_str(), entries[0].bytes), (1, "encoded by 3 categories", 8));
    let error = encode().copy(CopyMode::Never).to_tensor(&column).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Copy);
    let field = Arc::new(Field::new("x", DataType::Utf8, true));
    let report = encode().explain_type(&field, Device::CPU).unwrap();
    assert_eq!(report.rows[0].steps, ["encoded by 3 categories"]);
    // A batch with an unknown value is reported with the error that its conversion gives.
    let unknown = StringArray::from(vec!["b", "XX"]);
    let report = encode().explain(&unknown).unwrap();
    assert!(report.rows[0].error.as_ref().is_some_and(|error| error.row() == Some(1)), "{report}");
}

#[test]
fn codes_are_written_to_the_callers_memory() {
    let mut memory = [0_i64; 3];
    let mut out = Output::from_slice(&mut memory, &[3]).unwrap();
    encode().write(&StringArray::from(vec!["c", "a", "b"]), &mut out).unwrap();
    drop(out);
    assert_eq!(memory, [2, 0, 1]);
}

#[test]
fn codes_go_back_to_arrow_as_a_dictionary_only_if_each_is_one_of_it() {
    let column = StringArray::from(vec![Some("c"), None, Some("a")]);
    let whole = encode().to_tensor(&column.slice(2, 1)).unwrap();
    let array = to_arrow(&whole, None, CopyMode::IfNeeded).unwrap();
    assert!(matches!(array.field().data_type(), DataType::Dictionary(_, _)));
    let filled = encode().nulls(fill(3)).to_tensor(&column).unwrap();
    let array = to_arrow(&filled, None, CopyMode::IfNeeded).unwrap();
    assert_eq!((array.field().data_type(), array.len()), (&DataType::Int32, 3));
    let unknown = Conversion::default().categories(letters().unknown(3)).to_tensor(&column.slice(2, 1)).unwrap();
    assert_eq!(to_arrow(&unknown, None, CopyMode::IfNeeded).unwrap().field().data_type(), &DataType::Int32);
    assert!(unknown.dictionary().is_some());
}

fn stream(parts: &[&[Option<&str>]]) -> DeviceArrayStream {
    let batch = |rows: &&[Option<&str>]| {
        RecordBatch::try_from_iter_with_nullable([("t", shared(StringArray::from(rows.to_vec())), true)]).unwrap()
    };
    let batches: Vec<_> = parts.iter().map(batch).collect();
    let schema = batches[0].schema();
    DeviceArrayStream::from_reader(arrow_array::RecordBatchIterator::new(batches.into_iter().map(Ok), schema))
}

#[test]
fn streams_become_codes_part_by_part() {
    let parts: [&[Option<&str>]; 3] = [&[Some("a"), None], &[], &[Some("c"), Some("b")]];
    let conversion = encode().nulls(fill(5)).select(Selection::Each(None));
    let codes = conversion.read_tensors(&mut stream(&parts)).unwrap().remove(0).1;
    assert_eq!(codes.as_slice::<i32>().unwrap(), [0, 5, 2, 1]);
    assert_eq!(codes.dictionary().unwrap().len(), 3);
    let matrix = encode().nulls(fill(5)).read_tensor(&mut stream(&parts)).unwrap();
    assert_eq!((matrix.shape(), matrix.as_slice::<i32>().unwrap()), (&[4_i64, 1][..], &[0, 5, 2, 1][..]));
    let bad: [&[Option<&str>]; 2] = [&[Some("a"), Some("b")], &[Some("a"), Some("XX")]];
    for conversion in [encode(), encode().select(Selection::Each(None))] {
        let error = match conversion.selection {
            Selection::Whole(_) => conversion.read_tensor(&mut stream(&bad)).map(drop),
            _ => conversion.read_tensors(&mut stream(&bad)).map(drop),
        };
        let error = error.unwrap_err();
        assert_eq!((error.column(), error.row()), (Some("t"), Some(3)));
        assert!(error.to_string().contains("\"XX\""), "{error}");
    }
}

#[test]
fn a_batch_with_an_unknown_value_fails_and_those_before_it_are_delivered() {
    let rows: Vec<Option<&str>> =
        (0..10).map(|row| Some(if row == 7 { "XX" } else { ["a", "b", "c"][row % 3] })).collect();
    for selection in [Selection::Whole(None), Selection::Named(vec![("t".to_owned(), Group::column("t"))])] {
        for parts in [vec![&rows[..]], vec![&rows[..4], &rows[4..9], &rows[9..]]] {
            let conversion = encode().select(selection.clone());
            let options = LoadOptions::new(Sharding::new(2, false, 0, 1).unwrap());
            let mut batches = Batches::new(stream(&parts), &conversion, &options, &Place::start(0)).unwrap();
            for first in [0, 2, 4] {
                let batch = batches.next().unwrap().unwrap();
                let codes: Vec<i32> = batch.tensors[0].to_vec().unwrap();
                assert_eq!(codes, [first % 3, (first + 1) % 3]);
            }
            let error = batches.next().unwrap().unwrap_err();
            assert_eq!((error.column(), error.row()), (Some("t"), Some(7)));
            assert!(error.to_string().contains("\"XX\" is none of the 3 categories"), "{error}");
            assert!(batches.next().is_none());
        }
        // Another rank has the batch: its error is none of this one.
        let options = LoadOptions::new(Sharding::new(1, false, 0, 2).unwrap());
        let conversion = encode().select(selection);
        let own: Vec<_> = Batches::new(stream(&[&rows]), &conversion, &options, &Place::start(0)).unwrap().collect();
        assert!(own.len() == 5 && own.iter().all(Result::is_ok));
        if let Selection::Named(_) = conversion.selection {
            let tensor = &own[0].as_ref().unwrap().tensors[0];
            assert_eq!(tensor.dictionary().unwrap().len(), 3);
        }
    }
}
