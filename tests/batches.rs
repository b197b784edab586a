//! Are the columns of a batch its columns, whatever the offsets and nulls of the batch, of its structs and of its columns?

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

mod support;

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, Int8Array, Int16Array, Int32Array, NullArray, RecordBatch, RunArray, StructArray, UnionArray,
};
use arrow_dlpack::arrow::export_device_array;
use arrow_dlpack::{
    Chunks, Conversion, CopyLog, DType, Device, DeviceArray, ErrorKind, NullPolicy, PerColumn, Scalar, Selection,
};
use arrow_schema::{DataType, Field, UnionFields};
use support::Random;
use support::arrow::{child_of, field, import_edited, list, random_array, release, shared};
use support::reference::{Element, elements, read, read_bools};

/// Rows 3 to 12 of a struct whose C struct says so with its own offset, as pyarrow's slices do.
fn sliced(rows: &StructArray) -> DeviceArray {
    let (imported, _released) = import_edited(rows, &field("", rows.data_type().clone()), |array| {
        (array.offset, array.length, array.null_count) = (3, 9, -1);
    });
    imported.unwrap()
}

/// Three columns of 14 rows with nulls, in rows some of which are null.
fn rows(row_nulls: bool) -> StructArray {
    let mut random = Random(21);
    let types = [DataType::Int32, list(DataType::Float32, 2), DataType::Boolean];
    let columns = types.iter().map(|data_type| random_array(data_type, 20, 4, &mut random).slice(5, 14)).collect();
    let fields: Vec<_> =
        ["a", "b", "c"].into_iter().zip(types).map(|(name, data_type)| field(name, data_type)).collect();
    let nulls = row_nulls.then(|| (0..14).map(|row| row % 4 != 1).collect::<Vec<bool>>().into());
    StructArray::new(fields.into(), columns, nulls)
}

/// The elements of a column in rows 3 to 12, those of null rows null.
fn expected(rows: &StructArray, column: usize) -> Vec<Element> {
    let rows = rows.slice(3, 9);
    let elements = elements(&rows.fields()[column], rows.column(column));
    let inner = elements.len() / rows.len();
    elements.into_iter().enumerate().map(|(index, element)| element.filter(|_| rows.is_valid(index / inner))).collect()
}

#[test]
fn columns_of_a_batch_with_an_offset_are_read_at_it() {
    for row_nulls in [false, true] {
        let rows = rows(row_nulls);
        let batch = sliced(&rows);
        for (index, name) in ["a", "b", "c"].into_iter().enumerate() {
            let expected = expected(&rows, index);
            let column = batch.column(index).unwrap();
            let valid = Conversion::default().validity(&column).unwrap();
            assert_eq!(read_bools(&valid), expected.iter().map(Option::is_some).collect::<Vec<_>>());
            let options = Conversion::default().nulls(NullPolicy::Fill(Scalar::Int(0)));
            let tensors = options.clone().select(Selection::Each(Some(vec![name.to_owned()]))).to_tensors(&batch);
            let tensor = &tensors.unwrap()[0].1;
            let zero = vec![0; tensor.dtype().itemsize()];
            let filled: Vec<_> = expected.into_iter().map(|element| element.unwrap_or_else(|| zero.clone())).collect();
            assert_eq!(read(tensor), filled, "column {name}, row nulls {row_nulls}");
            assert_eq!(read(&options.to_tensor(&column).unwrap()), filled);
        }
    }
}

#[test]
fn a_batch_with_an_offset_is_exported_as_it_is() {
    for row_nulls in [false, true] {
        let rows = rows(row_nulls);
        let batch = sliced(&rows);
        assert_eq!(batch.to_arrow().unwrap().to_data(), rows.slice(3, 9).to_data());
        let mut exported = export_device_array(&batch).unwrap().into_raw().array;
        assert_eq!((exported.length, exported.offset == 0), (9, !row_nulls), "batches have no offset at the top");
        assert_eq!(child_of(&mut exported, 0).length, if row_nulls { 14 } else { 9 });
        release(&mut exported);
        for index in 0..3 {
            let column = batch.column(index).unwrap().to_arrow().unwrap();
            assert_eq!(elements(&rows.fields()[index], &column), expected(&rows, index));
        }
    }
}

#[test]
fn nulls_of_structs_in_structs_are_nulls_of_their_columns() {
    let inner = rows(true);
    let outer = StructArray::new(
        vec![field("inner", inner.data_type().clone())].into(),
        vec![Arc::new(inner.clone())],
        Some((0..14).map(|row| row != 4).collect::<Vec<bool>>().into()),
    );
    let column = sliced(&outer).column(0).unwrap().column(0).unwrap();
    let valid: Vec<bool> =
        (3..12).map(|row| row != 4 && inner.is_valid(row) && inner.column(0).is_valid(row)).collect();
    assert_eq!(read_bools(&Conversion::default().validity(&column).unwrap()), valid);
    let arrow = column.to_arrow().unwrap();
    assert_eq!((0..9).map(|row| arrow.is_valid(row)).collect::<Vec<_>>(), valid);
}

#[test]
fn nulls_of_a_struct_are_not_written_over_the_buffers_of_columns_without_a_bitmap() {
    let union = UnionArray::try_new(
        UnionFields::try_new([0, 1], [Field::new("a", DataType::Int32, true), Field::new("b", DataType::Int8, true)])
            .unwrap(),
        vec![0_i8, 1, 0].into(),
        None,
        vec![Arc::new(Int32Array::from(vec![1, 2, 3])), Arc::new(Int8Array::from(vec![4, 5, 6]))],
    )
    .unwrap();
    let runs = RunArray::<Int32Type>::try_new(&Int32Array::from(vec![1, 3]), &Int16Array::from(vec![7, 8])).unwrap();
    let nothing = NullArray::new(3);
    for (column, refused) in [(&union as &dyn Array, true), (&runs, true), (&nothing, false)] {
        let rows = |nulls: Option<Vec<bool>>| {
            let fields = vec![field("u", column.data_type().clone())].into();
            StructArray::new(fields, vec![column.slice(0, 3)], nulls.map(Into::into))
        };
        let of = |rows: &StructArray| shared(rows, &field("", rows.data_type().clone())).column(0).unwrap();
        let with_nulls = rows(Some(vec![true, false, true]));
        match of(&with_nulls).to_arrow() {
            Ok(arrow) => {
                assert!(!refused, "{}", column.data_type());
                assert_eq!(arrow.to_data(), column.to_data());
            }
            Err(error) => {
                assert!(refused, "{error}");
                assert_eq!((error.kind(), error.column()), (ErrorKind::Unsupported, Some("u")), "{error}");
                assert!(error.remedy().is_some(), "{error}");
            }
        }
        assert_eq!(of(&with_nulls.slice(2, 1)).to_arrow().unwrap().to_data(), column.slice(2, 1).to_data());
        assert_eq!(of(&rows(None)).to_arrow().unwrap().to_data(), column.to_data());
    }
    // A union has no bitmap, counted nulls or not: its first buffer is another.
    let (imported, _released) =
        import_edited(&union, &field("u", union.data_type().clone()), |array| array.null_count = -1);
    let mut exported = export_device_array(&imported.unwrap()).unwrap().into_raw();
    assert_eq!(exported.array.null_count, 0);
    release(&mut exported.array);
    let (imported, _released) = import_edited(&nothing, &field("n", DataType::Null), |array| array.null_count = -1);
    let mut exported = export_device_array(&imported.unwrap()).unwrap().into_raw();
    assert_eq!(exported.array.null_count, 3);
    release(&mut exported.array);
}

#[test]
fn the_bitmap_that_joins_nulls_is_logged() {
    let rows = rows(true);
    let column = shared(&rows, &field("", rows.data_type().clone())).column(0).unwrap();
    let log = CopyLog::new();
    let mut exported = log.track(|| export_device_array(&column)).unwrap().into_raw();
    release(&mut exported.array);
    assert_eq!(log.bytes(), 2, "{:?}", log.entries());
    assert!(log.entries()[0].what.contains("\"a\""), "{:?}", log.entries());
}

fn batch() -> RecordBatch {
    let x: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let y: ArrayRef = Arc::new(Int16Array::from(vec![Some(3), None]));
    RecordBatch::try_from_iter([("x", x), ("y", y)]).unwrap()
}

#[test]
fn columns_are_chosen_by_name_and_chunks_are_joined() {
    let chunk = DeviceArray::from_record_batch(&batch()).unwrap();
    let chunks = [chunk.clone(), chunk.clone()];
    let names = vec!["y".to_owned(), "x".to_owned()];
    let options = Conversion::default()
        .dtype(PerColumn::named([("y", Some(DType::Float32))]))
        .nulls(PerColumn::named([("y", NullPolicy::Fill(Scalar::Int(-1)))]))
        .select(Selection::Each(Some(names)));
    let tensors = options.to_tensors(Chunks::new(chunk.field(), &chunks)).unwrap();
    assert_eq!((tensors[0].0.as_str(), tensors[1].0.as_str()), ("y", "x"));
    assert_eq!(tensors[0].1.as_slice::<f32>().unwrap(), [3.0, -1.0, 3.0, -1.0]);
    assert_eq!(tensors[1].1.as_slice::<i32>().unwrap(), [1, 2, 1, 2]);
    let error = Conversion::default()
        .select(Selection::Each(None))
        .to_tensors(Chunks::new(chunk.field(), &chunks))
        .unwrap_err();
    assert_eq!((error.kind(), error.column(), error.row()), (ErrorKind::Null, Some("y"), Some(1)));
    assert_eq!(options.to_tensors(Chunks::new(chunk.field(), &[])).unwrap()[0].1.shape(), [0]);
}

#[test]
fn names_that_do_not_tell_one_column_are_refused() {
    let chunk = DeviceArray::from_record_batch(&batch()).unwrap();
    let error = Conversion::default()
        .select(Selection::Each(Some(vec!["z".to_owned()])))
        .to_tensors(Chunks::new(chunk.field(), &[]))
        .unwrap_err();
    assert!(error.kind() == ErrorKind::Argument && error.to_string().contains("\"x\", \"y\""), "{error}");
    let twice = DataType::Struct([field("x", DataType::Int8), field("x", DataType::Int8)].into());
    let error = Conversion::default()
        .select(Selection::Each(None))
        .to_tensors(Chunks::new(&field("", twice), &[]))
        .unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Argument, Some("x")));
    let scalar = field("x", DataType::Int8);
    assert_eq!(
        Conversion::default().select(Selection::Each(None)).to_tensors(Chunks::new(&scalar, &[])).unwrap_err().kind(),
        ErrorKind::Argument
    );
    let other = shared(&Int32Array::from(vec![1]), &field("x", DataType::Int32));
    let error = to_tensor_of(&scalar, &other).unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.reason().contains("chunk"), "{error}");
}

fn to_tensor_of(field: &Arc<Field>, chunk: &DeviceArray) -> arrow_dlpack::Result<arrow_dlpack::Tensor> {
    Conversion::default().to_tensor(Chunks::new(field, std::slice::from_ref(chunk)))
}

#[test]
fn a_report_has_a_row_for_each_column() {
    let chunk = DeviceArray::from_record_batch(&batch()).unwrap();
    let report = Conversion::default().select(Selection::Each(None)).explain(&chunk).unwrap();
    assert!(report.rows[0].view && report.rows[0].bytes == 0 && report.rows[0].shape == [Some(2)]);
    assert_eq!(report.rows[1].error.as_ref().unwrap().kind(), ErrorKind::Null);
    let nan = Conversion::default().dtype(DType::Float64).nulls(NullPolicy::Nan).select(Selection::Each(None));
    let report = nan.explain(Chunks::new(chunk.field(), &[chunk.clone(), chunk.clone()])).unwrap();
    assert_eq!((report.rows[1].bytes, report.bytes()), (32, 64));
    let text = report.to_string();
    for part in
        ["column", "Int16", "float64", "(4,)", "2 chunks joined", "cast from int16 to float64", "2 nulls filled"]
    {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
    let long = Field::new("x".repeat(usize::from(u16::MAX) + 1), DataType::Int8, false);
    let text = Conversion::default().explain_type(&Arc::new(long), Device::CPU).unwrap().to_string();
    assert!(text.lines().count() == 2 && text.len() < (1 << 16) + 400);
    let schema = nan.explain_type(chunk.field(), Device::CPU).unwrap();
    assert_eq!((&schema.rows[0].shape[..], schema.rows[0].dtype), (&[None][..], Some(DType::Float64)));
    assert!(schema.to_string().contains("(n,)"), "{schema}");
    assert!(schema.rows[1].steps.iter().any(|step| step.contains("nulls filled")));
}
