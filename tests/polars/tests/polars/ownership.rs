//! Is the memory of polars released once, when its last user is gone, and that of tensors too?

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{Float32Array, RecordBatch};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_dlpack::{Conversion, CopyMode, MemoryOrder, Selection, polars};
use arrow_dlpack_polars::{Convert, chunks, counted, to_frame, to_series};
use polars_core::prelude::*;

fn count(releases: &Arc<AtomicUsize>) -> usize {
    releases.load(Ordering::SeqCst)
}

#[test]
fn a_view_of_a_series_keeps_its_memory() {
    let (series, releases) = counted("x", &[1.0, 2.0]);
    let tensor = Conversion::default().copy(CopyMode::Never).tensor(&series).unwrap();
    let other = tensor.clone();
    drop((series, tensor));
    assert_eq!(count(&releases), 0);
    std::thread::spawn(move || drop(other)).join().unwrap();
    assert_eq!(count(&releases), 1);
}

#[test]
fn a_column_of_a_frame_keeps_its_own_memory_while_the_batch_is_gone() {
    let (a, of_a) = counted("a", &[1.0, 2.0]);
    let (b, of_b) = counted("b", &[3.0, 4.0]);
    let frame = DataFrame::new_infer_height(vec![a.into_column(), b.into_column()]).unwrap();
    let mut tensors = Conversion::default().select(Selection::Each(None)).tensors(&frame).unwrap();
    drop(frame);
    assert_eq!((count(&of_a), count(&of_b)), (0, 0));
    tensors.clear();
    assert_eq!((count(&of_a), count(&of_b)), (1, 1));
}

#[test]
fn a_copy_releases_its_source_at_once() {
    let (a, releases) = counted("a", &[1.0, 2.0]);
    let frame = DataFrame::new_infer_height(vec![a.into_column(), Column::new("b".into(), [3.0_f32, 4.0])]).unwrap();
    let matrix = Conversion::default().memory_order(MemoryOrder::C).tensor(&frame).unwrap();
    drop(frame);
    assert_eq!(count(&releases), 1);
    assert_eq!(matrix.as_slice::<f32>().unwrap(), [1.0, 3.0, 2.0, 4.0]);
}

#[test]
fn chunks_release_each_array_by_itself() {
    let (mut series, first) = counted("x", &[1.0]);
    let (more, second) = counted("x", &[2.0]);
    series.append(&more).unwrap();
    let chunks = chunks(&series).unwrap();
    let last = chunks.arrays()[1].clone();
    drop((series, more, chunks));
    assert_eq!((count(&first), count(&second)), (1, 0));
    drop(last);
    assert_eq!(count(&second), 1);
}

/// Memory of arrow-rs that counts its release.
struct Owner(Arc<AtomicUsize>, Vec<f32>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn owned() -> (Float32Array, Arc<AtomicUsize>) {
    let releases = Arc::new(AtomicUsize::new(0));
    let owner = Arc::new(Owner(releases.clone(), vec![1.0, 2.0, 3.0]));
    let start = std::ptr::NonNull::from(owner.1.as_slice()).cast();
    // SAFETY: the vector's bytes, which the owner keeps and nobody changes.
    let buffer = unsafe { Buffer::from_custom_allocation(start, 12, owner) };
    (Float32Array::new(ScalarBuffer::new(buffer, 0, 3), None), releases)
}

#[test]
fn a_series_keeps_the_memory_of_its_array_or_tensor() {
    let (array, releases) = owned();
    let start = array.values().as_ptr();
    let series = to_series(&array, CopyMode::Never).unwrap();
    drop(array);
    assert_eq!((count(&releases), series.f32().unwrap().cont_slice().unwrap().as_ptr()), (0, start));
    drop(series);
    assert_eq!(count(&releases), 1);

    let (array, releases) = owned();
    let tensor = Conversion::default().tensor(&array).unwrap();
    let series = polars::tensor_to_series("x", &tensor, CopyMode::Never).unwrap();
    let slice = series.slice(1, 1);
    drop((array, tensor, series));
    assert_eq!(count(&releases), 0);
    assert_eq!(slice.f32().unwrap().get(0), Some(2.0));
    drop(slice);
    assert_eq!(count(&releases), 1);
}

#[test]
fn a_series_that_is_changed_does_not_write_to_the_array() {
    let (array, releases) = owned();
    let series = to_series(&array, CopyMode::Never).unwrap();
    let doubled = series.f32().unwrap().apply_values(|value| value * 2.0);
    drop(series);
    assert_eq!(array.values(), &[1.0, 2.0, 3.0]);
    assert_eq!(doubled.get(2), Some(6.0));
    drop((array, doubled));
    assert_eq!(count(&releases), 1);
}

#[test]
fn a_refused_frame_releases_its_batch() {
    let (array, releases) = owned();
    let columns: Vec<(&str, arrow_array::ArrayRef)> =
        vec![("a", Arc::new(array)), ("b", Arc::new(arrow_array::IntervalDayTimeArray::from(vec![None, None, None])))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let error = to_frame(&batch, CopyMode::IfNeeded).unwrap_err();
    assert_eq!(error.column(), Some("b"), "{error}");
    drop(batch);
    assert_eq!(count(&releases), 1);
}
