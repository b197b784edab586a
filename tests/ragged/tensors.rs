//! Rows with a shape each: `arrow.variable_shape_tensor`.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, FixedSizeListArray, ListArray, StructArray};
use arrow_dlpack::{Chunks, Conversion, CopyMode, DType, ErrorKind, Ragged};
use arrow_schema::{Field, FieldRef};

use crate::support::arrow::{extension, field, shared};
use crate::{fill, keep, positions, values};

/// A column of `arrow.variable_shape_tensor`: the data and the shapes of its rows.
pub(crate) fn tensors(data: &ArrayRef, shapes: &[[i32; 2]], metadata: &str) -> (ArrayRef, FieldRef) {
    let shape =
        FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(shapes.iter().map(|shape| Some(shape.map(Some))), 2);
    let fields =
        vec![Field::new("data", data.data_type().clone(), true), Field::new("shape", shape.data_type().clone(), true)];
    let array = StructArray::new(fields.into(), vec![data.clone(), Arc::new(shape)], None);
    let field = extension(&field("x", array.data_type().clone()), "arrow.variable_shape_tensor", metadata);
    (Arc::new(array), field)
}

#[test]
fn tensors_of_variable_shape_have_shapes() {
    let rows = [Some(vec![Some(1); 6]), Some(vec![]), Some(vec![Some(2), Some(3)])];
    let data: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(rows));
    let (array, field) = tensors(&data, &[[2, 3], [0, 7], [1, 2]], r#"{"permutation":[1,0]}"#);
    let ragged = Conversion::default().copy(CopyMode::Never).ragged(&shared(&array, &field)).unwrap();
    assert_eq!(ragged.shapes().unwrap().as_slice::<i32>().unwrap(), [2, 3, 0, 7, 1, 2]);
    assert_eq!((ragged.shapes().unwrap().shape(), positions(ragged.offsets())), (&[3_i64, 2][..], vec![0, 6, 6, 8]));
    let back = ragged.to_arrow(CopyMode::Never).unwrap();
    assert_eq!((back.field(), back.to_arrow().unwrap().to_data()), (&field, array.to_data()));
    // Values of another type are not the field's, and lie in its order all the same.
    let cast = Conversion::default().dtype(DType::Float32).ragged(&shared(&array, &field)).unwrap();
    let back = cast.to_arrow(CopyMode::Never).unwrap();
    assert_eq!(back.field().metadata(), field.metadata());
    let own = Ragged::new(values(&ragged).clone(), ragged.offsets().clone(), None, ragged.shapes().cloned(), None);
    let own = own.unwrap().to_arrow(CopyMode::Never).unwrap();
    assert_eq!(own.field().extension_type_name(), Some("arrow.variable_shape_tensor"));
    assert_eq!(Conversion::default().ragged(&own).unwrap().shapes().unwrap().len(), 6);

    for (shapes, metadata) in [
        ([[2, 3], [0, 7], [1, 3]], ""),
        ([[2, 3], [0, 7], [-1, -2]], ""),
        ([[2, 3], [1, 7], [1, 2]], ""),
        ([[2, 3], [0, 7], [1, 2]], r#"{"uniform_shape":[2,null]}"#),
        ([[2, 3], [0, 7], [1, 2]], r#"{"permutation":[1,1]}"#),
    ] {
        let (array, field) = tensors(&data, &shapes, metadata);
        let error = Conversion::default().ragged(&shared(&array, &field)).unwrap_err();
        assert_eq!((error.kind(), error.column()), (ErrorKind::Invalid, Some("x")), "{error}");
    }
}

#[test]
fn a_null_tensor_is_kept_or_refused() {
    let data: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1); 2]), None]));
    let (array, field) = tensors(&data, &[[2, 1], [5, 5]], "{}");
    let column = shared(&array, &field);
    let kept = keep().ragged(&column).unwrap();
    assert_eq!(kept.validity().unwrap().as_bytes().unwrap(), [1, 0]);
    let back = kept.to_arrow(CopyMode::Never).unwrap().to_arrow().unwrap();
    assert_eq!((back.null_count(), back.len()), (1, 2));
    for options in [Conversion::default(), fill(0)] {
        let error = options.ragged(&column).unwrap_err();
        assert_eq!((error.kind(), error.row()), (ErrorKind::Null, Some(1)), "{error}");
        assert!(error.remedy().is_some_and(|remedy| remedy.contains("NullPolicy::Keep")));
    }
    // A shape that is null where the tensor is not.
    let shape = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(2), None]), None], 2);
    let fields =
        vec![Field::new("data", data.data_type().clone(), true), Field::new("shape", shape.data_type().clone(), true)];
    let array = StructArray::new(fields.into(), vec![data, Arc::new(shape)], None);
    let error = keep().ragged(&shared(&array, &field)).unwrap_err();
    assert_eq!((error.kind(), error.row()), (ErrorKind::Invalid, Some(0)), "{error}");
}

#[test]
fn the_shape_may_come_before_the_data() {
    let data: ArrayRef =
        Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1); 2]), Some(vec![])]));
    let (array, own) = tensors(&data, &[[2, 1], [0, 5]], "{}");
    let rows = array.as_struct();
    let fields = [rows.fields()[1].clone(), rows.fields()[0].clone()];
    let rows = StructArray::new(fields.into(), vec![rows.column(1).clone(), data], None);
    let own = Arc::new(own.as_ref().clone().with_data_type(rows.data_type().clone()));
    let ragged = Conversion::default().ragged(&shared(&rows, &own)).unwrap();
    assert_eq!(ragged.shapes().unwrap().as_slice::<i32>().unwrap(), [2, 1, 0, 5]);
    let back = ragged.to_arrow(CopyMode::Never).unwrap();
    assert_eq!((back.field(), back.to_arrow().unwrap().to_data()), (&own, rows.to_data()));
}

#[test]
fn rows_without_a_shape_count_over_chunks() {
    let chunk = |rows: [Option<i32>; 2]| {
        let data = ListArray::from_iter_primitive::<Int64Type, _, _>(rows.map(|_| Some([Some(1)])));
        let shape = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(rows.map(|row| Some([row, Some(1)])), 2);
        (Arc::new(data) as ArrayRef, Arc::new(shape) as ArrayRef)
    };
    let column = |(data, shape): (ArrayRef, ArrayRef), valid: [bool; 2]| {
        let fields = vec![field("data", data.data_type().clone()), field("shape", shape.data_type().clone())];
        let rows = StructArray::new(fields.into(), vec![data, shape], Some(valid.to_vec().into()));
        shared(&rows, &extension(&field("x", rows.data_type().clone()), "arrow.variable_shape_tensor", "{}"))
    };
    let (whole, broken) = (|| chunk([Some(1); 2]), || chunk([Some(1), None]));
    for (chunks, options, expected) in [
        ([column(whole(), [true; 2]), column(broken(), [true; 2])], keep(), Some((ErrorKind::Invalid, 3))),
        // The null row of the first chunk hides no row of the second one.
        ([column(broken(), [true, false]), column(broken(), [true; 2])], keep(), Some((ErrorKind::Invalid, 3))),
        ([column(whole(), [true; 2]), column(broken(), [true, false])], keep(), None),
        ([column(whole(), [true; 2]), column(whole(), [true, false])], fill(0), Some((ErrorKind::Null, 3))),
    ] {
        let error = options.ragged(Chunks::new(chunks[0].field(), &chunks)).err();
        assert_eq!(error.map(|error| (error.kind(), error.row())), expected.map(|(kind, row)| (kind, Some(row))));
    }
}
