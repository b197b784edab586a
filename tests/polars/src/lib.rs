//! Columns and owners for the tests of the features `polars` and `ndarray`, which lie in `tests/` of this package.

mod convert;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use convert::{Chunks, Convert, Source, chunks, to_frame, to_series};
use polars_arrow::array::PrimitiveArray;
use polars_arrow::datatypes::ArrowDataType;
use polars_buffer::{Buffer, SharedStorage};
use polars_core::prelude::{DataFrame, Float32Chunked, IntoColumn, IntoSeries, NamedFrom, Series};

/// Memory that counts how often it was released.
#[derive(Debug)]
pub struct Counted {
    values: Vec<f32>,
    releases: Arc<AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.releases.fetch_add(1, Ordering::SeqCst);
    }
}

/// Returns a series over counted memory, and its count of releases.
#[must_use]
pub fn counted(name: &str, values: &[f32]) -> (Series, Arc<AtomicUsize>) {
    let releases = Arc::new(AtomicUsize::new(0));
    let owner = Counted { values: values.to_vec(), releases: releases.clone() };
    // SAFETY: the bytes of a vector that nobody changes, which the owner keeps and which do not move with it.
    let storage = unsafe {
        let slice = std::slice::from_raw_parts(owner.values.as_ptr(), owner.values.len());
        SharedStorage::from_slice_with_owner(slice, owner)
    };
    let array = PrimitiveArray::new(ArrowDataType::Float32, Buffer::from_storage(storage), None);
    (Float32Chunked::with_chunk(name.into(), array).into_series(), releases)
}

/// Returns a series of one chunk for each slice.
///
/// # Panics
/// Never: the chunks have one dtype.
#[must_use]
pub fn chunked(name: &str, chunks: &[&[f32]]) -> Series {
    let mut series = Series::new_empty(name.into(), &polars_core::prelude::DataType::Float32);
    for (index, chunk) in chunks.iter().enumerate() {
        let chunk = Series::new(name.into(), *chunk);
        if index == 0 {
            series = chunk;
        } else {
            series.append(&chunk).expect("one dtype");
        }
    }
    series
}

/// Returns a frame of float32 columns whose elements tell their column and row.
///
/// # Panics
/// Never: the columns have one length.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "small numbers")]
pub fn numbers(columns: usize, rows: usize) -> DataFrame {
    let column = |column: usize| {
        let values: Vec<f32> = (0..rows).map(|row| (column * 1_000 + row % 1_000) as f32).collect();
        Float32Chunked::from_vec(format!("c{column}").into(), values).into_column()
    };
    DataFrame::new_infer_height((0..columns).map(column).collect()).expect("one length")
}
