//! What lists of every kind become: views where offsets allow it, nulls by policy, nested ones ragged again.

use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder, StringBuilder};
use arrow_array::types::Float32Type;
use arrow_array::{Array, ArrayRef, Int32Array, Int64Array, ListArray, StringArray, make_array};
use arrow_buffer::NullBuffer;
use arrow_data::ArrayData;
use arrow_dlpack::{Chunks, Conversion, CopyLog, CopyMode, DType, ErrorKind, NullPolicy, Scalar, Values};
use arrow_schema::{DataType, Field};

use crate::support::Random;
use crate::support::arrow::{field, import_edited, list, shared};
use crate::{KINDS, Kind, PAD, fill, ints, keep, lists, one, positions, random_lists, values};

#[test]
fn lists_of_every_kind_are_views() {
    for kind in KINDS {
        let (array, expected) = random_lists(kind, 20, 0, &mut Random(7));
        // Offsets of a list start at 0 here.
        let array = if kind.is_view() { array } else { lists(kind, &expected) };
        let log = CopyLog::new();
        let ragged = log.track(|| Conversion::default().copy(CopyMode::Never).ragged(&one(&array))).unwrap();
        assert!(log.entries().is_empty());
        let data = array.to_data();
        assert_eq!(ragged.offsets().as_ptr().cast_const(), data.buffers()[0].as_ptr());
        assert_eq!(values(&ragged).as_ptr().cast_const(), data.child_data()[0].buffers()[0].as_ptr());
        assert_eq!(ragged.offsets().dtype(), if kind.is_wide() { DType::Int64 } else { DType::Int32 });
        assert_eq!(ragged.lengths().is_some(), kind.is_view());
        assert!(ragged.validity().is_none() && !ragged.offsets().is_writable());
        let back = ragged.to_arrow(CopyMode::Never).unwrap();
        assert_eq!(back.to_arrow().unwrap().to_data(), data);
    }
}

#[test]
fn the_offsets_of_a_slice_are_rebased_and_accounted_for() {
    let list = lists(Kind::List, &[Some(vec![Some(1), Some(2)]), Some(vec![]), Some(vec![Some(3)])]);
    let tail = list.slice(1, 2);
    let log = CopyLog::new();
    let ragged = log.track(|| Conversion::default().ragged(&one(&tail))).unwrap();
    assert_eq!((positions(ragged.offsets()), values(&ragged).as_slice::<i16>().unwrap()), (vec![0, 0, 1], &[3][..]));
    assert!(!values(&ragged).is_copied());
    assert_eq!(log.entries().len(), 1);
    assert_eq!((log.entries()[0].bytes, log.entries()[0].why.as_str()), (12, "offsets of a slice rebased"));
    let error = Conversion::default().copy(CopyMode::Never).ragged(&one(&tail)).unwrap_err();
    assert_eq!((error.kind(), error.column()), (ErrorKind::Copy, Some("x")));
    assert!(error.reason().contains("rebased") && error.remedy().is_some(), "{error}");
    // The head starts at 0 and needs none.
    let head = Conversion::default().copy(CopyMode::Never).ragged(&one(&list.slice(0, 1))).unwrap();
    assert_eq!((positions(head.offsets()), values(&head).len()), (vec![0, 2], 2));
}

#[test]
fn without_rows_the_parts_are_of_the_same_types() {
    for kind in KINDS {
        let field = field("x", kind.of(DataType::Float32));
        let none = keep().copy(CopyMode::Never).ragged(Chunks::new(&field, &[])).unwrap();
        let empty = arrow_array::new_empty_array(field.data_type());
        let empty = keep().copy(CopyMode::Never).ragged(&shared(&empty, &field)).unwrap();
        for ragged in [none, empty] {
            assert_eq!((ragged.len(), values(&ragged).shape(), values(&ragged).dtype()), (0, &[0][..], DType::Float32));
            assert_eq!(positions(ragged.offsets()), if kind.is_view() { vec![] } else { vec![0] });
            assert_eq!(ragged.validity().unwrap().shape(), [0]);
            assert_eq!(ragged.to_arrow(CopyMode::Never).unwrap().field().data_type(), field.data_type());
        }
    }
    for data_type in [DataType::Utf8, DataType::LargeBinary, DataType::Utf8View] {
        let ragged = Conversion::default().writable(true).ragged(Chunks::new(&field("x", data_type), &[])).unwrap();
        assert_eq!((positions(ragged.offsets()), values(&ragged).dtype()), (vec![0], DType::UInt8));
        assert!(ragged.offsets().is_writable());
    }
}

#[test]
fn null_rows_and_elements_go_by_the_policy() {
    // The null row spans two elements, one of them null.
    let items = Int32Array::from(vec![Some(1), Some(2), Some(1000), None, Some(5)]);
    let data = ArrayData::builder(Kind::List.of(DataType::Int32))
        .len(3)
        .nulls(Some(NullBuffer::from(vec![true, false, true])))
        .add_buffer(ints(false, &[0, 2, 4, 5]))
        .add_child_data(items.to_data());
    let array = make_array(data.build().unwrap());
    let column = one(&array);

    let error = Conversion::default().ragged(&column).unwrap_err();
    assert_eq!((error.kind(), error.column(), error.row()), (ErrorKind::Null, Some("x"), Some(1)));

    let kept = keep().copy(CopyMode::Never).ragged(&column).unwrap();
    assert_eq!(positions(kept.offsets()), [0, 2, 4, 5]);
    assert_eq!(kept.validity().unwrap().as_bytes().unwrap(), [1, 0, 1]);
    assert_eq!(kept.to_arrow(CopyMode::Never).unwrap().to_arrow().unwrap().null_count(), 1);
    // What lies under a null row does not stand in the way of a cast.
    assert_eq!(values(&keep().dtype(DType::Int8).ragged(&column).unwrap()).len(), 5);

    let log = CopyLog::new();
    let filled = log.track(|| fill(0).dtype(DType::Int8).ragged(&column)).unwrap();
    assert_eq!(
        (positions(filled.offsets()), values(&filled).as_slice::<i8>().unwrap()),
        (vec![0, 2, 2, 3], &[1, 2, 5][..])
    );
    assert!(filled.validity().is_none());
    assert!(log.entries().iter().any(|copy| copy.why.contains("null rows made empty")), "{:?}", log.entries());
    assert_eq!(fill(0).copy(CopyMode::Never).ragged(&column).unwrap_err().kind(), ErrorKind::Copy);
}

#[test]
fn an_empty_null_row_costs_nothing_when_filled() {
    let list = lists(Kind::List, &[Some(vec![Some(1)]), None, Some(vec![Some(2)])]);
    let ragged = fill(0).copy(CopyMode::Never).ragged(&one(&list)).unwrap();
    assert_eq!(positions(ragged.offsets()), [0, 1, 1, 2]);
}

#[test]
fn errors_name_the_row_of_the_list() {
    let list = lists(Kind::List, &[Some(vec![Some(1), Some(2)]), Some(vec![]), Some(vec![Some(3), None, Some(300)])]);
    let null = Conversion::default().ragged(&one(&list)).unwrap_err();
    assert_eq!((null.kind(), null.row()), (ErrorKind::Null, Some(2)));
    let misfit = keep().dtype(DType::Int8).ragged(&one(&list)).unwrap_err();
    assert_eq!((misfit.kind(), misfit.row(), misfit.column()), (ErrorKind::Cast, Some(2), Some("x")));
    let field = field("x", list.data_type().clone());
    let chunks = [shared(&list.slice(0, 2), &field), shared(&list.slice(1, 2), &field)];
    let error = Conversion::default().ragged(Chunks::new(&field, &chunks)).unwrap_err();
    assert_eq!(error.row(), Some(3));
    let narrow = keep().dtype(DType::Int8);
    let error = narrow.padded(Chunks::new(&field, &chunks), PAD).unwrap_err();
    assert_eq!((error.kind(), error.row()), (ErrorKind::Cast, Some(3)));
    let short = shared(&list.slice(0, 1), &field);
    for chunks in [chunks.to_vec(), vec![short.clone(), short, chunks[1].clone()]] {
        let error = narrow.ragged(Chunks::new(&field, &chunks)).unwrap_err();
        assert_eq!((error.kind(), error.row()), (ErrorKind::Cast, Some(3)), "{} chunks", chunks.len());
    }
}

#[test]
fn nulls_that_no_row_shows_are_none() {
    // Views of the first and the last element of three, of which the second is null and does not fit int8.
    let data = ArrayData::builder(Kind::ListView.of(DataType::Int32))
        .len(2)
        .add_buffer(ints(false, &[2, 0]))
        .add_buffer(ints(false, &[2, 1]))
        .add_child_data(Int32Array::from(vec![Some(1), None, Some(3), Some(4), Some(1000)]).to_data());
    let array = make_array(data.build().unwrap());
    let options = Conversion::default();
    assert_eq!(values(&options.clone().copy(CopyMode::Never).ragged(&one(&array)).unwrap()).len(), 5);
    let nan = options.clone().nulls(NullPolicy::Fill(Scalar::Int(0))).copy(CopyMode::Never);
    assert!(!values(&nan.ragged(&one(&array)).unwrap()).is_copied());
    let narrow = options.dtype(DType::Int8).ragged(&one(&array)).unwrap();
    assert_eq!(values(&narrow).as_slice::<i8>().unwrap()[2..4], [3, 4]);
}

#[test]
fn nested_lists_are_ragged_values() {
    let mut builder = ListBuilder::new(ListBuilder::new(StringBuilder::new()));
    for outer in [vec![vec!["ab", "c"], vec![]], vec![], vec![vec!["def"]]] {
        for inner in outer {
            for text in inner {
                builder.values().values().append_value(text);
            }
            builder.values().append(true);
        }
        builder.append(true);
    }
    let array: ArrayRef = Arc::new(builder.finish());
    let ragged = Conversion::default().copy(CopyMode::Never).ragged(&one(&array)).unwrap();
    let Values::Ragged(inner) = ragged.values() else { panic!("nested lists have ragged values") };
    let text = inner.values().as_ragged().unwrap();
    assert_eq!((positions(ragged.offsets()), positions(inner.offsets())), (vec![0, 2, 2, 3], vec![0, 2, 2, 3]));
    assert_eq!((positions(text.offsets()), values(text).as_bytes().unwrap()), (vec![0, 2, 3, 6], &b"abcdef"[..]));
    assert_eq!(ragged.to_arrow(CopyMode::Never).unwrap().to_arrow().unwrap().to_data(), array.to_data());
    let tail = Conversion::default().ragged(&one(&array.slice(2, 1))).unwrap();
    assert_eq!(values(tail.values().as_ragged().unwrap().values().as_ragged().unwrap()).as_bytes().unwrap(), b"def");
    let error = Conversion::default().padded(&one(&array), PAD).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.remedy().is_some());
}

#[test]
fn nulls_under_nested_null_rows_stay_out_of_sight() {
    let mut builder = ListBuilder::new(ListBuilder::new(Int64Builder::new()));
    builder.values().values().append_value(1);
    builder.values().append(true);
    builder.append(true);
    // A null row that spans a null row and a row with a null.
    builder.values().append(false);
    builder.values().values().append_null();
    builder.values().append(true);
    builder.append(false);
    let array: ArrayRef = Arc::new(builder.finish());
    let ragged = fill(0).ragged(&one(&array)).unwrap();
    let inner = ragged.values().as_ragged().unwrap();
    assert_eq!((positions(ragged.offsets()), inner.len(), values(inner).len()), (vec![0, 1, 1], 1, 1));
    let kept = keep().dtype(DType::Int8).ragged(&one(&array)).unwrap();
    let inner = kept.values().as_ragged().unwrap();
    assert_eq!(inner.validity().unwrap().as_bytes().unwrap(), [1, 0, 0]);
    assert_eq!(kept.to_arrow(CopyMode::IfNeeded).unwrap().to_arrow().unwrap().null_count(), 1);
}

#[test]
fn what_has_no_rows_of_different_lengths_is_refused_with_a_remedy() {
    let options = Conversion::default();
    for data_type in [
        DataType::Int32,
        list(DataType::Int32, 2),
        DataType::Struct(vec![Field::new("a", DataType::Int32, true)].into()),
        Kind::List.of(DataType::Struct(vec![Field::new("a", DataType::Int32, true)].into())),
        Kind::List.of(DataType::Null),
    ] {
        let error = options.ragged(Chunks::new(&field("x", data_type), &[])).unwrap_err();
        assert_eq!((error.kind(), error.column()), (ErrorKind::Unsupported, Some("x")), "{error}");
        assert!(error.remedy().is_some(), "{error}");
    }
    let text = options.nulls(NullPolicy::Nan).ragged(Chunks::new(&field("x", DataType::Utf8), &[]));
    assert_eq!(text.unwrap_err().kind(), ErrorKind::Null);
}

#[test]
fn memory_lives_as_long_as_any_part_and_is_released_once() {
    let list = lists(Kind::List, &[Some(vec![Some(1), Some(2)]), Some(vec![Some(3)])]);
    let (array, released) = import_edited(&list, &field("x", list.data_type().clone()), |_| ());
    let ragged = Conversion::default().ragged(&array.unwrap()).unwrap();
    assert_eq!(released.get(), 0);
    let (offsets, back) = (ragged.offsets().clone(), ragged.to_arrow(CopyMode::Never).unwrap());
    drop(ragged);
    assert_eq!((released.get(), positions(&offsets)), (0, vec![0, 2, 3]));
    drop(offsets);
    assert_eq!((released.get(), back.to_arrow().unwrap().len()), (0, 2));
    drop(back);
    assert_eq!(released.get(), 1);
    let text = StringArray::from(vec!["a", "b"]);
    let (array, released) = import_edited(&text, &field("x", DataType::Utf8), |_| ());
    let ragged = Conversion::default().ragged(&array.unwrap()).unwrap();
    let bytes = values(&ragged).clone();
    drop(ragged);
    assert_eq!((released.get(), bytes.as_bytes().unwrap()), (0, &b"ab"[..]));
    drop(bytes);
    assert_eq!(released.get(), 1);
}

#[test]
fn floats_are_joined_across_chunks() {
    let rows = |rows: &[&[f32]]| -> ArrayRef {
        Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(
            rows.iter().map(|row| Some(row.iter().map(|value| Some(*value)))),
        ))
    };
    let (one, two) = (rows(&[&[1.0], &[]]), rows(&[&[2.0, 3.0]]));
    let field = field("x", one.data_type().clone());
    let log = CopyLog::new();
    let chunks = [shared(&one, &field), shared(&two, &field)];
    let ragged = log.track(|| Conversion::default().ragged(Chunks::new(&field, &chunks))).unwrap();
    assert_eq!(
        (positions(ragged.offsets()), values(&ragged).as_slice::<f32>().unwrap()),
        (vec![0, 1, 1, 3], &[1.0, 2.0, 3.0][..])
    );
    assert_eq!(log.bytes(), 4 * 4 + 3 * 4);
    assert_eq!(
        Conversion::default().copy(CopyMode::Never).ragged(Chunks::new(&field, &chunks)).unwrap_err().kind(),
        ErrorKind::Copy
    );
    let ids = Int64Array::from(vec![1]);
    assert_eq!(Conversion::default().ragged(&crate::one(&ids)).unwrap_err().kind(), ErrorKind::Unsupported);
}
