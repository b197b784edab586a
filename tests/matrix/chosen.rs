//! Chosen schemas: groups, many columns and none, dictionaries, and what is no matrix.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int32Array, RecordBatch, StringArray, StructArray};
use arrow_dlpack::{
    Chunks, Conversion, DType, DeviceArray, ErrorKind, Group, NullPolicy, PandasIndex, PerColumn, Scalar, Selection,
};
use arrow_schema::{DataType, Field};

use crate::cases::dictionary;
use crate::support::Random;
use crate::support::arrow::{child_of, extension, field, import_edited, list, random_array, set_buffer, shared};
use crate::support::reference::read;
use crate::{matrix_of, of_one_buffer};

#[test]
fn groups_are_matrices_and_columns() {
    let batch = of_one_buffer(4, 3, 4);
    let chunks = [batch.clone(), batch.clone()];
    let name = str::to_owned;
    let groups = [
        (name("x"), Group::matrix([name("c2"), name("c0")])),
        (name("y"), Group::column(name("c1"))),
        (name("z"), Group::matrix([name("c1")])),
    ];
    let options = Conversion::default();
    let tensors = options
        .clone()
        .select(Selection::Named(groups.to_vec()))
        .to_tensors(Chunks::new(batch.field(), &chunks))
        .unwrap();
    let shapes: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.shape())).collect();
    assert_eq!(shapes, [("x", &[8_i64, 2][..]), ("y", &[8]), ("z", &[8, 1])]);
    assert_eq!(tensors[0].1.as_slice::<f64>().unwrap()[..4], [8.0, 0.0, 9.0, 1.0]);
    let twice = [groups[0].clone(), groups[0].clone()];
    assert!(
        options
            .clone()
            .select(Selection::Named(twice.to_vec()))
            .to_tensors(Chunks::new(batch.field(), &chunks))
            .is_err()
    );
    let none = [(name("x"), Group::matrix([] as [&str; 0]))];
    let error = options
        .clone()
        .select(Selection::Named(none.to_vec()))
        .to_tensors(Chunks::new(batch.field(), &chunks))
        .unwrap_err();
    assert!(error.reason().contains("\"x\"") && error.remedy().is_some(), "{error}");
    let typed = options.dtype(DType::Float32);
    let empty = typed.select(Selection::Named(none.to_vec())).to_tensors(Chunks::new(batch.field(), &chunks)).unwrap();
    assert_eq!((empty[0].1.shape(), empty[0].1.dtype()), (&[8_i64, 0][..], DType::Float32));
}

#[test]
fn groups_have_options_of_their_own() {
    let columns: [ArrayRef; 2] =
        [Arc::new(Int32Array::from(vec![Some(1), None])), Arc::new(Int32Array::from(vec![None, Some(4)]))];
    let batch = RecordBatch::try_from_iter(["a", "b"].into_iter().zip(columns)).unwrap();
    let named = |groups: &[(&str, Group)]| {
        let groups = groups.iter().map(|(name, group)| ((*name).to_owned(), group.clone()));
        Conversion::default().select(Selection::Named(groups.collect()))
    };
    let fill = |value: i128| NullPolicy::Fill(Scalar::Int(value));
    let x = Group::matrix(["a", "b"]).dtype(DType::Float32).nulls(fill(-1)).validity("valid");
    let y = Group::column("b").nulls(fill(0)).validity("y valid");
    let conversion = named(&[("x", x.clone()), ("y", y)]).nulls(PerColumn::named([("a", fill(7))]));
    let tensors = conversion.to_tensors(&batch).unwrap();
    let names: Vec<&str> = tensors.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["x", "valid", "y", "y valid"]);
    assert_eq!(names, conversion.selection.names().collect::<Vec<_>>());
    assert_eq!(tensors[0].1.as_slice::<f32>().unwrap(), [1.0, -1.0, 7.0, 4.0]);
    assert_eq!((tensors[1].1.shape(), tensors[1].1.as_bytes().unwrap()), (&[2_i64, 2][..], &[1_u8, 0, 0, 1][..]));
    assert_eq!((tensors[3].1.shape(), tensors[3].1.as_bytes().unwrap()), (&[2_i64][..], &[0_u8, 1][..]));
    let report = conversion.explain(&batch).unwrap();
    let rows: Vec<_> = report.rows.iter().map(|row| (row.column.as_str(), row.bytes)).collect();
    assert_eq!(rows, [("a", 8), ("b", 8), ("valid", 4), ("y", 8), ("y valid", 2)]);

    for (wrong, column) in [
        (named(&[("x", x.clone())]).dtype(PerColumn::named([("x", Some(DType::Int8))])), None),
        (named(&[("x", x.clone())]).dtype(PerColumn::named([("a", Some(DType::Int8))])), Some("a")),
        (named(&[("x", x.clone())]).nulls(PerColumn::named([("x", fill(0))])), None),
        (named(&[("a", x.clone().validity("b"))]).nulls(PerColumn::named([("b", fill(0))])), None),
        (named(&[("b", Group::column("a"))]).nulls(PerColumn::named([("b", fill(0))])), None),
        (named(&[("x", x.clone()), ("valid", Group::column("a"))]), None),
    ] {
        let found = wrong.to_tensors(&batch).map(drop);
        if wrong.selection.names().eq(["a", "b"]) {
            // The validity may be called as a column is.
            found.unwrap();
            continue;
        }
        let error = found.unwrap_err();
        assert_eq!((error.kind(), error.column()), (ErrorKind::Argument, column), "{error}");
        assert!(error.remedy().is_some(), "{error}");
    }
}

#[test]
fn many_columns_and_none_are_matrices() {
    const COLUMNS: usize = if cfg!(miri) { 50 } else { 5000 };
    let mut random = Random(5);
    let columns: Vec<ArrayRef> = (0..COLUMNS).map(|_| random_array(&DataType::Float32, 3, 0, &mut random)).collect();
    let fields = (0..COLUMNS).map(|index| Arc::new(Field::new(format!("c{index}"), DataType::Float32, true)));
    let array = StructArray::from(fields.zip(columns.clone()).collect::<Vec<_>>());
    let batch = shared(&array, &field("", array.data_type().clone()));
    let matrix = matrix_of(&batch, &Conversion::default()).unwrap();
    assert_eq!(matrix.shape(), [3, COLUMNS as i64]);
    let expected: Vec<Vec<u8>> = (0..3)
        .flat_map(|row| columns.iter().map(move |column| column.to_data().buffers()[0][row * 4..][..4].to_vec()))
        .collect();
    assert_eq!(read(&matrix), expected);
    let none: [&str; 0] = [];
    let empty = matrix_of(&batch, &Conversion::default().columns(none).dtype(DType::Int8)).unwrap();
    assert_eq!((empty.shape(), empty.is_copied()), (&[3_i64, 0][..], false));
    assert_eq!(matrix_of(&batch, &Conversion::default().columns(none)).unwrap_err().kind(), ErrorKind::Argument);
    let no_chunks = Conversion::default().to_tensor(Chunks::new(batch.field(), &[])).unwrap();
    assert_eq!(no_chunks.shape(), [0, COLUMNS as i64]);
}

#[test]
fn what_is_no_matrix_is_refused() {
    let values = Int32Array::from(vec![1, 2]);
    let column = shared(&values, &field("x", DataType::Int32));
    assert_eq!(matrix_of(&column, &Conversion::default().columns(["x"])).unwrap_err().kind(), ErrorKind::Argument);
    let names = StringArray::from(vec!["a", "b", "c"]);
    let texts = StructArray::from(vec![(Arc::new(Field::new("l", DataType::Utf8, true)), Arc::new(names) as ArrayRef)]);
    let batch = shared(&texts, &field("", texts.data_type().clone()));
    let error = matrix_of(&batch, &Conversion::default()).unwrap_err();
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
fn codes_of_different_dictionaries_do_not_make_a_matrix() {
    let chunk = |values: &[f32]| {
        let codes = dictionary(values, [Some(0), Some(1)].into_iter());
        let array = StructArray::from(vec![(Arc::new(Field::new("d", codes.data_type().clone(), true)), codes)]);
        shared(&array, &field("", array.data_type().clone()))
    };
    let (a, b) = (chunk(&[1.0, 2.0]), chunk(&[2.0, 1.0]));
    let matrix = |chunks: &[DeviceArray], options: Conversion| options.to_tensor(Chunks::new(a.field(), chunks));
    let same = matrix(&[a.clone(), a.clone()], Conversion::default()).unwrap();
    assert_eq!(same.as_slice::<i8>().unwrap(), [0, 1, 0, 1]);
    let error = matrix(&[a.clone(), b.clone()], Conversion::default()).unwrap_err();
    assert_eq!(error.column(), Some("d"));
    let values = matrix(&[a.clone(), b.clone()], Conversion::default().dtype(DType::Float64)).unwrap();
    assert_eq!(values.as_slice::<f64>().unwrap(), [1.0, 2.0, 2.0, 1.0]);
}

#[test]
fn an_index_of_pandas_is_left_out_where_that_is_asked_for() {
    let column = || Arc::new(Int32Array::from(vec![1, 2, 3])) as ArrayRef;
    let names = ["a", "id", "__index_level_1__"];
    let fields = names.iter().map(|name| Arc::new(Field::new(*name, DataType::Int32, true)));
    let array = StructArray::from(fields.map(|field| (field, column())).collect::<Vec<_>>());
    let listed = [("pandas".to_owned(), r#"{"index_columns": ["id", "__index_level_1__"]}"#.to_owned())];
    let field = Field::new("", array.data_type().clone(), true).with_metadata(listed.into());
    let batch = shared(&array, &Arc::new(field));
    for (index, count) in [(PandasIndex::Keep, 3), (PandasIndex::KeepNamed, 2), (PandasIndex::LeaveOut, 1)] {
        let options = Conversion::default().index(index);
        assert_eq!(matrix_of(&batch, &options).unwrap().shape(), [3, count]);
        let valid = options.validity(&batch).unwrap();
        assert_eq!(valid.shape(), [3, count]);
        assert_eq!(matrix_of(&batch, &options.columns(["__index_level_1__"])).unwrap().shape(), [3, 1]);
    }
    assert_eq!(Conversion::default().index, PandasIndex::Keep);
}

#[test]
fn rows_of_several_dimensions_are_columns_if_they_lie_in_row_major_order() {
    let tensors = list(DataType::Int16, 6);
    for (metadata, is_taken) in [(r#"{"shape":[2,3]}"#, true), (r#"{"shape":[2,3],"permutation":[1,0]}"#, false)] {
        let own = extension(&field("t", tensors.clone()), "arrow.fixed_shape_tensor", metadata);
        let columns =
            vec![random_array(&DataType::Int16, 2, 0, &mut Random(1)), random_array(&tensors, 2, 0, &mut Random(2))];
        let rows = StructArray::new(vec![field("a", DataType::Int16), own].into(), columns, None);
        let batch = shared(&rows, &field("", rows.data_type().clone()));
        match Conversion::default().to_tensor(&batch) {
            Ok(matrix) => assert!(is_taken && matrix.shape() == [2, 7], "{metadata}"),
            Err(error) => {
                assert_eq!(
                    (error.kind(), error.column(), is_taken),
                    (ErrorKind::Unsupported, Some("t"), false),
                    "{error}"
                );
            }
        }
    }
}
