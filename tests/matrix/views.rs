//! What lies in the order asked for already.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, Float32Array, Int32Array, StructArray, make_array};
use arrow_dlpack::{Chunks, Conversion, CopyLog, CopyMode, DType, ErrorKind, MemoryOrder, NullPolicy, Scalar};
use arrow_schema::{DataType, Field};

use crate::support::arrow::{address_of_values, child_of, extension, field, import_edited, set_buffer, shared};
use crate::support::reference::read;
use crate::{matrix_of, of_one_buffer};

#[test]
fn columns_that_lie_as_a_matrix_are_a_view_of_it() {
    let never = Conversion::default().copy(CopyMode::Never);
    for (rows, columns, stride) in [
        (4, 3, 4),
        (4, 3, 6),
        (5, 2, 5),
        (4, 1, 4),
        (1, 3, 7),
        (1, 3, 1),
        if cfg!(miri) { (60, 2, 70) } else { (600, 2, 700) },
    ] {
        let batch = of_one_buffer(rows, columns, stride);
        for order in [MemoryOrder::F, MemoryOrder::A] {
            let view = matrix_of(&batch, &never.clone().memory_order(order)).unwrap();
            assert!(!view.is_copied() && !view.is_writable());
            assert_eq!(view.shape(), [rows as i64, columns as i64]);
            let expected: Vec<Vec<u8>> = (0..rows)
                .flat_map(|row| (0..columns).map(move |column| ((column * stride + row) as f64).to_ne_bytes().to_vec()))
                .collect();
            assert_eq!(read(&view), expected, "{rows} {columns} {stride}");
        }
        let row_major = matrix_of(&batch, &never);
        assert_eq!(row_major.is_ok(), columns == 1 || (rows == 1 && stride == 1), "{rows} {columns} {stride}");
        let private = matrix_of(&batch, &Conversion::default().memory_order(MemoryOrder::F).writable(true)).unwrap();
        assert!(private.is_copied() && private.is_writable());
    }
}

#[test]
fn columns_that_lie_otherwise_are_copied() {
    let never = Conversion::default().copy(CopyMode::Never).memory_order(MemoryOrder::F);
    // More than a page between columns: a consumer that copies all that the view spans might leave somebody's memory.
    assert_eq!(matrix_of(&of_one_buffer(4, 2, 600), &never).unwrap_err().kind(), ErrorKind::Copy);
    // Columns that overlap, in another order, and at different distances.
    assert!(matrix_of(&of_one_buffer(4, 3, 3), &never).is_err());
    let batch = of_one_buffer(4, 3, 4);
    for (columns, is_view) in [(["c0", "c1", "c2"], true), (["c2", "c1", "c0"], false), (["c0", "c2", "c1"], false)] {
        assert_eq!(matrix_of(&batch, &never.clone().columns(columns)).is_ok(), is_view);
    }
    assert!(matrix_of(&batch, &never.clone().columns(["c0", "c2"])).is_ok());
    assert!(matrix_of(&of_one_buffer(4, 4, 4), &never.clone().columns(["c0", "c1", "c3"])).is_err());
    assert!(matrix_of(&batch, &never.clone().dtype(DType::Float32)).is_err());
    let two = [batch.clone(), batch.clone()];
    assert!(never.to_tensor(Chunks::new(batch.field(), &two)).is_err());
}

#[test]
fn columns_between_the_places_of_elements_are_copied() {
    let batch = of_one_buffer(4, 2, 4).to_arrow().unwrap();
    let starts = batch.as_struct().columns().iter().map(|column| address_of_values(column)).collect::<Vec<_>>();
    let bytes: Vec<u8> = (0..16).flat_map(|value| f64::from(value).to_ne_bytes()).collect();
    // With one column moved, the distance is no multiple of an element; with both, no element is aligned.
    for moved in [[0, 4], [4, 4]] {
        let (batch, _) = import_edited(&batch, &field("", batch.data_type().clone()), |batch| {
            for (column, (start, moved)) in starts.iter().zip(moved).enumerate() {
                set_buffer(child_of(batch, column), 1, start.wrapping_add(moved).cast());
            }
        });
        let (batch, matrix) = (batch.unwrap(), Conversion::default().memory_order(MemoryOrder::F));
        let error = matrix_of(&batch, &matrix.clone().copy(CopyMode::Never)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Copy, "{error}");
        let copy = matrix_of(&batch, &matrix).unwrap();
        assert!(copy.is_copied() && copy.as_ptr().addr().is_multiple_of(8));
        let places = (0..4).flat_map(|row| [0, 1].map(|column| column * 32 + row * 8 + moved[column]));
        assert_eq!(read(&copy), places.map(|at| bytes[at..at + 8].to_vec()).collect::<Vec<_>>());
    }
}

#[test]
fn a_single_column_of_lists_is_a_matrix_of_their_items() {
    let items: Vec<f32> = (0..12_i16).map(f32::from).collect();
    let lists = FixedSizeListArray::new(field("item", DataType::Float32), 3, Arc::new(Float32Array::from(items)), None);
    let array = StructArray::from(vec![(field("a", lists.data_type().clone()), Arc::new(lists) as ArrayRef)]);
    let batch = shared(&array, &field("", array.data_type().clone()));
    for order in [MemoryOrder::C, MemoryOrder::F, MemoryOrder::A] {
        let matrix = matrix_of(&batch, &Conversion::default().memory_order(order)).unwrap();
        assert_eq!(matrix.shape(), [4, 3]);
        assert_eq!(read(&matrix), (0..12_i16).map(|value| f32::from(value).to_ne_bytes()).collect::<Vec<_>>());
    }
}

#[test]
fn nulls_that_are_filled_make_a_view_a_copy_and_kept_ones_do_not() {
    let values: arrow_buffer::Buffer = (0..8).map(f64::from).collect();
    let column = |offset: usize, nulls: Option<Vec<bool>>| -> ArrayRef {
        let data = arrow_data::ArrayData::builder(DataType::Float64).len(4).add_buffer(values.slice(offset * 8));
        make_array(data.nulls(nulls.map(Into::into)).build().unwrap())
    };
    let of = |name: &str| Arc::new(Field::new(name, DataType::Float64, true));
    let second = column(4, Some(vec![true, false, true, true]));
    let array = StructArray::from(vec![(of("a"), column(0, None)), (of("b"), second)]);
    let batch = shared(&array, &field("", array.data_type().clone()));
    let matrix = Conversion::default().memory_order(MemoryOrder::F);
    for (nulls, copied, value) in [(NullPolicy::Keep, false, 5.0_f64), (NullPolicy::Fill(Scalar::Int(9)), true, 9.0)] {
        let chunks = std::slice::from_ref(&batch);
        let log = CopyLog::new();
        let made = log.track(|| matrix.clone().nulls(nulls).to_tensor(Chunks::new(batch.field(), chunks))).unwrap();
        assert_eq!((made.is_copied(), made.strides()), (copied, &[1_i64, 4][..]));
        assert_eq!(read(&made)[3], value.to_ne_bytes());
        assert_eq!(log.entries().iter().any(|entry| entry.why.contains("1 null filled")), copied);
    }
}

#[test]
fn a_view_keeps_the_columns_alive_and_a_copy_does_not() {
    let array = StructArray::from(vec![(
        Arc::new(Field::new("a", DataType::Int32, true)),
        Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef,
    )]);
    for (order, is_view) in [(MemoryOrder::F, true), (MemoryOrder::C, true)] {
        let (batch, released) = import_edited(&array, &field("", array.data_type().clone()), |_| {});
        let batch = batch.unwrap();
        let view = matrix_of(&batch, &Conversion::default().memory_order(order)).unwrap();
        assert_eq!(view.as_ptr().cast_const(), address_of_values(array.column(0)));
        drop(batch);
        assert_eq!(released.get(), usize::from(!is_view));
        drop(view);
        assert_eq!(released.get(), 1);
        let (batch, released) = import_edited(&array, &field("", array.data_type().clone()), |_| {});
        let copy =
            matrix_of(&batch.unwrap(), &Conversion::default().memory_order(order).copy(CopyMode::Always)).unwrap();
        assert_eq!((released.get(), copy.is_copied()), (1, true));
    }
}

#[test]
fn bytes_that_are_no_booleans_make_a_view_a_copy() {
    for (bytes, is_view) in [([0_i8, 1, 1, 0], true), ([0, 1, 2, 0], false)] {
        let values: arrow_buffer::Buffer = bytes.into_iter().collect();
        let of = extension(&field("a", DataType::Int8), "arrow.bool8", "");
        let column = |offset| {
            let data = arrow_data::ArrayData::builder(DataType::Int8).len(2).offset(offset).add_buffer(values.clone());
            make_array(data.build().unwrap())
        };
        let b = Arc::new(of.as_ref().clone().with_name("b"));
        let array = StructArray::from(vec![(of, column(0)), (b, column(2))]);
        let batch = shared(&array, &field("", array.data_type().clone()));
        let matrix = matrix_of(&batch, &Conversion::default().memory_order(MemoryOrder::F)).unwrap();
        assert_eq!((matrix.dtype(), matrix.is_copied(), matrix.strides()), (DType::Bool, !is_view, &[1_i64, 2][..]));
        assert!(read(&matrix).iter().all(|byte| byte[0] <= 1));
        let never = matrix_of(&batch, &Conversion::default().memory_order(MemoryOrder::F).copy(CopyMode::Never));
        assert_eq!(never.map_err(|error| error.kind()).err(), (!is_view).then_some(ErrorKind::Copy));
    }
}
