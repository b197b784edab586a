//! Do matrices have the values of polars' own `to_ndarray`?

use arrow_dlpack::{Conversion, DType, MemoryOrder, NullPolicy};
use arrow_dlpack_polars::{Convert, numbers};
use polars_core::prelude::*;

fn compare(frame: &DataFrame) {
    for (order, own_order) in [(MemoryOrder::C, IndexOrder::C), (MemoryOrder::F, IndexOrder::Fortran)] {
        let expected = frame.to_ndarray::<Float64Type>(own_order).unwrap();
        let conversion = Conversion::default().dtype(DType::Float64).nulls(NullPolicy::Nan).memory_order(order);
        let tensor = conversion.tensor(frame).unwrap();
        let found = tensor.as_ndarray::<f64>().unwrap().into_dimensionality::<ndarray::Ix2>().unwrap();
        assert_eq!(found.shape(), expected.shape());
        let same = |(a, b): (&f64, &f64)| a == b || (a.is_nan() && b.is_nan());
        assert!(found.iter().zip(&expected).all(same), "{order:?}: {found:?}\n{expected:?}");
    }
}

#[test]
fn matrices_are_those_of_to_ndarray() {
    for (columns, rows) in [(1, 1), (3, 5), (64, 1000), (65, 257), (200, 33)] {
        compare(&numbers(columns, rows));
    }
}

#[test]
fn so_are_matrices_of_mixed_columns_with_nulls_in_chunks() {
    let piece = |start: i32| {
        df!(
            "a" => (start..start + 70).map(|x| if x % 7 == 0 { None } else { Some(f64::from(x)) }).collect::<Vec<_>>(),
            "b" => (start..start + 70).map(|x| f64::from(x) / 3.0).collect::<Vec<_>>(),
            "c" => (start..start + 70).map(|x| if x % 5 == 0 { None } else { Some(x as f32) }).collect::<Vec<_>>(),
            "d" => (start..start + 70).map(|x| x as i8).collect::<Vec<_>>(),
            "e" => (start..start + 70).map(|x| x as u16).collect::<Vec<_>>(),
            "f" => (start..start + 70).collect::<Vec<i32>>(),
        )
        .unwrap()
    };
    let mut frame = piece(-20);
    frame.vstack_mut_owned(piece(60)).unwrap();
    compare(&frame);
    compare(&frame.slice(3, 100));
}
