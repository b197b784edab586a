//! Does each column share the memory of polars, chunk by chunk, whatever the chunks of its neighbours?

use arrow_dlpack::{Conversion, CopyLog, CopyMode, DType, MemoryOrder, NullPolicy, Selection};
use arrow_dlpack_polars::{Convert, chunked, chunks, numbers};
use polars_core::prelude::*;

fn view() -> Conversion {
    Conversion::default().copy(CopyMode::Never)
}

#[test]
fn a_series_is_a_view_of_its_own_memory() {
    let series = Series::new("x".into(), [1.5_f64, 2.5, 3.5]);
    let tensor = view().tensor(&series).unwrap();
    assert_eq!(tensor.as_ptr().cast_const().cast(), series.f64().unwrap().cont_slice().unwrap().as_ptr());
    assert_eq!((tensor.dtype(), tensor.shape(), tensor.is_writable()), (DType::Float64, &[3_i64][..], false));
    assert_eq!(tensor.field().unwrap().name(), "x");
    let array = view().tensor(series.f64().unwrap()).unwrap();
    assert_eq!(array.as_ptr(), tensor.as_ptr());
    // Whatever is left of the series, the tensor keeps its memory.
    drop((series, array));
    assert_eq!(tensor.as_slice::<f64>().unwrap(), [1.5, 2.5, 3.5]);
}

#[test]
fn a_slice_of_a_series_is_a_view_of_its_rows() {
    for values in [vec![Some(1_i32), Some(2), Some(3), Some(4)], vec![Some(1), None, Some(3), Some(4)]] {
        let series = Series::new("x".into(), &values).slice(2, 2);
        let tensor = view().nulls(NullPolicy::Keep).tensor(&series).unwrap();
        let chunk = series.i32().unwrap().downcast_iter().next().unwrap();
        assert_eq!(tensor.as_ptr().cast_const().cast(), chunk.values().as_ptr());
        assert_eq!(tensor.as_slice::<i32>().unwrap(), [3, 4]);
    }
}

#[test]
fn each_chunk_of_a_series_is_an_array_over_its_memory() {
    let series = chunked("x", &[&[1.0, 2.0], &[3.0]]);
    let chunks = chunks(&series).unwrap();
    assert_eq!(chunks.arrays().len(), 2);
    for (array, chunk) in chunks.arrays().iter().zip(series.f32().unwrap().downcast_iter()) {
        let tensor = view().tensor(array).unwrap();
        assert_eq!(tensor.as_slice::<f32>().unwrap(), chunk.values().as_slice());
        assert_eq!(tensor.as_ptr().cast_const().cast(), chunk.values().as_ptr());
    }
    // Joined, they are a copy, which is refused where none is allowed.
    assert!(view().tensor(&series).unwrap_err().reason().contains("copy"));
    let log = CopyLog::new();
    let joined = log.track(|| Conversion::default().tensor(&series)).unwrap();
    assert_eq!((joined.as_slice::<f32>().unwrap(), log.entries().len()), (&[1.0, 2.0, 3.0][..], 1));
}

#[test]
fn the_columns_of_a_frame_are_views() {
    let frame = df!("a" => [1_i8, 2], "b" => [0.5_f32, 1.5]).unwrap();
    let tensors = view().select(Selection::Each(None)).tensors(&frame).unwrap();
    let names: Vec<&str> = tensors.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let own = frame.column("b").unwrap().f32().unwrap().cont_slice().unwrap().as_ptr();
    assert_eq!(tensors[1].1.as_ptr().cast_const().cast(), own);
}

#[test]
fn a_frame_is_a_matrix_in_either_order() {
    let frame = numbers(5, 7);
    for order in [MemoryOrder::C, MemoryOrder::F] {
        let matrix = Conversion::default().memory_order(order).tensor(&frame).unwrap();
        assert_eq!(matrix.shape(), [7, 5]);
        let expected = if order == MemoryOrder::C { [5, 1] } else { [1, 7] };
        assert_eq!(matrix.strides(), expected);
    }
    let matrix = Conversion::default().tensor(&frame).unwrap();
    assert_eq!(matrix.as_slice::<f32>().unwrap()[5..10], [1.0, 1001.0, 2001.0, 3001.0, 4001.0]);
}

#[test]
fn chunks_that_end_in_different_rows_are_cut_without_a_copy() {
    let a = chunked("a", &[&[0.0, 1.0], &[2.0, 3.0, 4.0]]);
    let b = chunked("b", &[&[0.0, 1.0, 2.0, 3.0], &[4.0]]);
    let frame = DataFrame::new_infer_height(vec![a.clone().into_column(), b.clone().into_column()]).unwrap();
    let chunks = chunks(&frame).unwrap();
    let lengths: Vec<usize> = chunks.arrays().iter().map(|batch| batch.len()).collect();
    assert_eq!(lengths, [2, 2, 1]);
    let start = |series: &Series, chunk: usize| series.f32().unwrap().downcast_get(chunk).unwrap().values().as_ptr();
    for (index, batch) in chunks.arrays().iter().enumerate() {
        let tensors = view().select(Selection::Each(None)).tensors(batch).unwrap();
        let expected = [
            [start(&a, 0), start(&a, 1), start(&a, 1).wrapping_add(2)][index],
            [start(&b, 0), start(&b, 0).wrapping_add(2), start(&b, 1)][index],
        ];
        for ((_, tensor), expected) in tensors.iter().zip(expected) {
            assert_eq!(tensor.as_ptr().cast_const().cast(), expected);
        }
    }
    let log = CopyLog::new();
    let matrix = log.track(|| Conversion::default().tensor(&frame)).unwrap();
    assert_eq!(matrix.as_slice::<f32>().unwrap(), [0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]);
    assert_eq!(log.entries().len(), 1, "the matrix alone: {:?}", log.entries());
}

#[test]
fn a_column_that_repeats_a_value_is_written_out_and_logged() {
    let scalar = Column::new_scalar("b".into(), Scalar::from(2.5_f32), 3);
    let frame = DataFrame::new_infer_height(vec![Column::new("a".into(), [1.0_f32, 2.0, 3.0]), scalar]).unwrap();
    let log = CopyLog::new();
    let matrix = log.track(|| Conversion::default().tensor(&frame)).unwrap();
    assert_eq!(matrix.as_slice::<f32>().unwrap(), [1.0, 2.5, 2.0, 2.5, 3.0, 2.5]);
    let entry = &log.entries()[0];
    assert_eq!((entry.why.as_str(), entry.bytes), ("polars stores one value for all rows", 12));
}

#[test]
fn nulls_follow_the_policy() {
    let frame = df!("a" => [Some(1.0_f32), None], "b" => [Some(3_i16), Some(4)]).unwrap();
    let error = Conversion::default().tensor(&frame).unwrap_err();
    assert_eq!((error.column(), error.row()), (Some("a"), Some(1)));
    let matrix = Conversion::default().nulls(NullPolicy::Nan).tensor(&frame).unwrap();
    let values = matrix.as_slice::<f32>().unwrap();
    assert!(values[2].is_nan() && values[0] == 1.0 && values[3] == 4.0);
    let valid = Conversion::default().valid(&frame).unwrap();
    assert_eq!(valid.as_bytes().unwrap(), [1, 1, 0, 1]);
}

#[test]
fn bitmaps_that_polars_moves_are_logged() {
    // The rows of a sliced list of fixed size start inside of a byte of its bitmap.
    let rows = Series::new("x".into(), (0..24).collect::<Vec<i32>>());
    let mut arrays = rows.reshape_array(&[ReshapeDimension::new(12), ReshapeDimension::new(2)]).unwrap();
    arrays.append(&Series::full_null("x".into(), 4, arrays.dtype())).unwrap();
    let sliced = arrays.rechunk().slice(3, 11);
    assert!(sliced.null_count() > 0);
    let log = CopyLog::new();
    let tensor = log.track(|| Conversion::default().nulls(NullPolicy::Keep).tensor(&sliced)).unwrap();
    assert_eq!((tensor.shape(), tensor.as_slice::<i32>().unwrap()[0]), (&[11_i64, 2][..], 6));
    let moved: Vec<_> = log.entries().into_iter().filter(|entry| entry.why.contains("polars moved")).collect();
    assert_eq!((moved.len(), moved[0].bytes), (1, 2), "{:?}", log.entries());
}

#[test]
fn an_empty_frame_is_an_empty_matrix() {
    for frame in [df!("a" => Vec::<f32>::new()).unwrap(), df!("a" => [1.0_f32]).unwrap().head(Some(0))] {
        assert_eq!(Conversion::default().tensor(&frame).unwrap().shape(), [0, 1]);
    }
    let columnless = DataFrame::new(3, Vec::new()).unwrap();
    assert_eq!(chunks(&columnless).unwrap().arrays()[0].len(), 3);
}

#[test]
fn a_conversion_takes_what_polars_has() {
    let frame = df!("a" => [1.5_f32, 2.5], "b" => [Some(3_i16), None]).unwrap();
    let column = frame.column("a").unwrap();
    let series = column.as_materialized_series();
    let own = series.f32().unwrap().cont_slice().unwrap().as_ptr();
    for tensor in [view().to_tensor(series), view().to_tensor(column), view().to_tensor(series.f32().unwrap())] {
        let tensor = tensor.unwrap();
        assert_eq!(tensor.as_ptr().cast_const().cast(), own);
        assert_eq!(tensor.field().unwrap().name(), "a");
    }
    let matrix = Conversion::default().nulls(NullPolicy::Nan).to_tensor(&frame).unwrap();
    assert_eq!((matrix.shape(), &matrix.as_slice::<f32>().unwrap()[..3]), (&[2_i64, 2][..], &[1.5, 3.0, 2.5][..]));
    let each = Conversion::default().nulls(NullPolicy::Keep).select(Selection::Each(None));
    assert_eq!(each.to_tensors(&frame).unwrap().len(), 2);
    assert_eq!(each.explain(&frame).unwrap().rows.len(), 2);
    // An error names the column, whichever of them was given.
    let b = frame.column("b").unwrap();
    for error in [view().to_tensor(b).unwrap_err(), view().to_tensor(b.as_materialized_series()).unwrap_err()] {
        assert_eq!(error.column(), Some("b"));
    }
}

#[test]
fn a_given_column_that_repeats_a_value_is_written_out_and_logged() {
    let column = Column::new_scalar("x".into(), Scalar::from(7_i32), 3);
    let log = CopyLog::new();
    let tensor = log.track(|| view().to_tensor(&column)).unwrap();
    assert_eq!(tensor.as_slice::<i32>().unwrap(), [7, 7, 7]);
    assert_eq!(log.entries()[0].why, "polars stores one value for all rows");
}
