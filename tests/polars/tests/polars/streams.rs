//! Is any iterator of frames a source, of tensors and of the loader?

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_dlpack::loader::{Batches, LoadOptions, Place, Sharding};
use arrow_dlpack::{Conversion, ErrorKind, Group, NullPolicy, Selection, polars};
use arrow_dlpack_polars::{chunked, counted};
use polars_core::prelude::*;

fn frame(start: i32) -> DataFrame {
    df!("x" => [start, start + 1], "y" => [Some(0.5_f32), None]).unwrap()
}

#[test]
fn frames_are_read_as_a_matrix() {
    let mut stream = polars::stream((0..3).map(|index| frame(2 * index))).unwrap();
    let conversion = Conversion::default().columns(["x"]);
    let matrix = conversion.read_tensor(&mut stream).unwrap();
    assert_eq!(matrix.as_slice::<i32>().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn frames_are_made_when_they_are_read() {
    let made = Arc::new(AtomicUsize::new(0));
    let count = made.clone();
    let frames = (0..3).map(move |index| {
        count.fetch_add(1, Ordering::SeqCst);
        frame(index)
    });
    let mut stream = polars::stream(frames).unwrap();
    assert_eq!(made.load(Ordering::SeqCst), 1, "the first, for its schema");
    stream.next().unwrap().unwrap();
    assert_eq!(made.load(Ordering::SeqCst), 1);
    stream.next().unwrap().unwrap();
    assert_eq!(made.load(Ordering::SeqCst), 2);
}

#[test]
fn a_frame_is_as_many_batches_as_its_chunks_have_ends() {
    let chunks = DataFrame::new_infer_height(vec![chunked("x", &[&[1.0], &[2.0, 3.0]]).into_column()]).unwrap();
    let stream = polars::stream([chunks.clone(), chunks]).unwrap();
    let lengths: Vec<usize> = stream.map(|batch| batch.unwrap().len()).collect();
    assert_eq!(lengths, [1, 2, 1, 2]);
}

#[test]
fn frames_are_a_source_of_the_loader() {
    let frames = (0_u16..5).map(|index| df!("x" => [f32::from(index); 2], "y" => [Some(0.5_f32), None]).unwrap());
    let stream = polars::stream(frames).unwrap();
    let groups =
        vec![("x".to_owned(), Group::matrix(["x".to_owned()])), ("y".to_owned(), Group::column("y".to_owned()))];
    let conversion = Conversion::default().select(Selection::Named(groups)).nulls(NullPolicy::Nan);
    let options = LoadOptions::new(Sharding::new(4, false, 0, 1).unwrap());
    let batches = Batches::new(stream, &conversion, &options, &Place::start(0)).unwrap();
    let rows: Vec<i64> = batches.map(|batch| batch.unwrap().tensors[0].shape()[0]).collect();
    assert_eq!(rows, [4, 4, 2]);
}

#[test]
fn a_frame_of_another_schema_is_an_error_that_names_the_column() {
    let other = |frame: DataFrame| {
        let mut stream = polars::stream([df!("x" => [1_i32], "y" => [0.5_f32]).unwrap(), frame]).unwrap();
        stream.next().unwrap().unwrap();
        let error = stream.next().unwrap().unwrap_err();
        assert!(stream.next().is_none(), "an error ends the stream");
        error
    };
    let error = other(df!("x" => [1_i64], "y" => [0.5_f32]).unwrap());
    assert_eq!((error.column(), error.reason()), (Some("x"), "i64 in a stream of i32"));
    for frame in
        [df!("y" => [0.5_f32], "x" => [1_i32]), df!("x" => [1_i32]), df!("x" => [1_i32], "y" => [0.5_f32], "z" => [1])]
    {
        assert!(other(frame.unwrap()).reason().contains("a frame of the columns"));
    }
}

#[test]
fn frames_whose_categories_differ_are_an_error() {
    let column = |dtype: DataType| Series::new("x".into(), ["a", "b"]).cast(&dtype).unwrap().into_column();
    let enumeration =
        |names: [&'static str; 2]| DataType::from_frozen_categories(FrozenCategories::new(names).unwrap());
    let random = || DataType::from_categories(Categories::random("".into(), CategoricalPhysical::U32));
    for (first, second) in [(enumeration(["a", "b"]), enumeration(["b", "a"])), (random(), random())] {
        let [beside_first, beside_second] = [counted("y", &[1.0, 2.0]), counted("y", &[3.0, 4.0])];
        let releases = [beside_first.1, beside_second.1];
        let frames = [(first, beside_first.0), (second, beside_second.0)]
            .map(|(dtype, beside)| DataFrame::new_infer_height(vec![column(dtype), beside.into_column()]).unwrap());
        let mut stream = polars::stream(frames).unwrap();
        let conversion = Conversion::default().select(Selection::Each(None));
        let error = conversion.read_tensors(&mut stream).unwrap_err();
        assert_eq!(error.column(), Some("x"), "{error}");
        assert!(error.reason().contains("other categories"), "{error}");
        drop(stream);
        assert_eq!(releases.map(|count| count.load(Ordering::SeqCst)), [1, 1]);
    }
}

#[test]
fn frames_of_the_same_categories_share_their_codes() {
    let categories = DataType::from_categories(Categories::random("".into(), CategoricalPhysical::U32));
    let texts = [["b", "a"], ["a", "a"], ["b", "b"]];
    let frames = texts.map(|texts| {
        let column = Series::new("x".into(), texts).cast(&categories).unwrap();
        DataFrame::new_infer_height(vec![column.into_column()]).unwrap()
    });
    let conversion = Conversion::default().select(Selection::Each(None));
    let tensors = conversion.read_tensors(&mut polars::stream(frames).unwrap()).unwrap();
    assert_eq!(tensors[0].1.as_slice::<u32>().unwrap(), [0, 1, 1, 1, 0, 0]);
}

#[test]
fn the_error_of_a_query_is_the_streams_with_its_cause() {
    let schema = frame(0).schema().as_ref().clone();
    let (values, released) = counted("y", &[1.0, 2.0]);
    let first = DataFrame::new_infer_height(vec![Column::new("x".into(), [1_i32, 2]), values.into_column()]).unwrap();
    let frames = [Ok(first), Err(PolarsError::ComputeError("no such file".into())), Ok(frame(4))];
    let mut stream = polars::try_stream(&schema, frames).unwrap();
    let error = Conversion::default().columns(["x"]).read_tensor(&mut stream).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Producer, "{error}");
    assert!(error.reason().contains("no such file"), "{error}");
    let source = std::error::Error::source(&error).unwrap();
    assert!(source.downcast_ref::<PolarsError>().is_some());
    assert!(stream.next().is_none());
    drop(stream);
    assert_eq!(released.load(Ordering::SeqCst), 1);
}

#[test]
fn no_frames_have_no_schema_unless_it_is_passed() {
    let error = polars::stream(std::iter::empty::<DataFrame>()).unwrap_err();
    assert!(error.to_string().contains("polars::try_stream"), "{error}");
    let schema = frame(0).schema().as_ref().clone();
    let none = std::iter::empty::<PolarsResult<DataFrame>>();
    let mut stream = polars::try_stream(&schema, none).unwrap();
    let matrix = Conversion::default().columns(["x"]).read_tensor(&mut stream).unwrap();
    assert_eq!(matrix.shape(), [0, 1]);
}
