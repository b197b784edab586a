//! Batches of a loader, made on request, ahead by a thread, and by several readers of shards.

use std::num::NonZero;
use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, ListArray, StringArray};
use arrow_dlpack::loader::{Batches, LoadOptions, Place, Sharding, Shards, Shuffle};
use arrow_dlpack::{Conversion, Converted, DType, DeviceArray, Group, Pad, Result, Scalar, Selection, Tensor};

use crate::failing::{Alone, alone};
use crate::{ROWS, batch, filled, floats, lists, numbers, stream};

/// The loader has a table of lanes, of which each node takes 12 KB.
const LARGE_IN_LOADER: usize = 16 << 10;
/// More than arrow-rs allocates in these tests: memory that is asked for before it is called has a MiB more.
const BEYOND_ARROW_RS: usize = 1 << 20;

/// The rows of a batch, of one of rows with different lengths, and of a shuffle's window: a fraction of all rows, which is large here.
const ROWS_OF_A_BATCH: usize = if cfg!(miri) { 2_500 } else { 5000 };
const VARIED_ROWS: usize = if cfg!(miri) { 2_500 } else { 20_000 };
const WINDOW: usize = if cfg!(miri) { 3_000 } else { 9000 };

const NAMES: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];

/// The right to fail the allocations of a loader.
fn alone_with_loader() -> Alone {
    let mut alone = alone();
    alone.limit = LARGE_IN_LOADER;
    alone
}

fn rows_of_numbers() -> DeviceArray {
    batch(vec![("a", numbers()), ("b", floats())])
}

/// Options for batches of so many rows, of which so many are made ahead.
fn ahead(batch_size: usize, prefetch: usize) -> Result<LoadOptions> {
    let mut load = LoadOptions::new(Sharding::new(batch_size, false, 0, 1)?);
    load.prefetch = prefetch;
    Ok(load)
}

fn tensors(batches: Batches) -> Result<Vec<Tensor>> {
    let batches = batches.collect::<Result<Vec<_>>>()?;
    Ok(batches.into_iter().flat_map(|batch| batch.tensors).collect())
}

#[test]
fn of_batches() {
    let alone = alone_with_loader();
    let rows = rows_of_numbers();
    for prefetch in [0, 2] {
        for shuffle in [None, Some(Shuffle::new(NonZero::new(WINDOW).unwrap(), 1))] {
            alone.each_fails(&format!("{prefetch} ahead, {shuffle:?}"), || {
                let mut load = ahead(ROWS_OF_A_BATCH, prefetch)?;
                load.shuffle = shuffle;
                tensors(Batches::new(stream(vec![rows.clone()]), &filled(), &load, &Place::start(0))?)
            });
        }
    }
}

#[test]
fn of_readers_of_shards() {
    let alone = alone_with_loader();
    let rows = rows_of_numbers();
    for shuffle in [None, Some(Shuffle::new(NonZero::new(WINDOW).unwrap(), 1))] {
        alone.each_fails(&format!("readers, {shuffle:?}"), || {
            let (len, rows) = (rows.len(), rows.clone());
            let shards = Shards::new(vec![Some(len); 4], move |_| Ok(stream(vec![rows.clone()])));
            let mut load = ahead(WINDOW, 1)?;
            (load.readers, load.shuffle, load.shuffle_shards) = (2, shuffle, Some(3));
            tensors(Batches::of_shards(&shards, &filled(), &load, &Place::after(0, vec![0; 4], 0)?)?)
        });
    }
}

#[test]
fn of_threads_that_pack_a_batch() {
    let alone = alone_with_loader();
    // A thread for each MiB.
    let rows = batch(NAMES.map(|name| (name, numbers())).to_vec());
    let options = filled().threads(NonZero::new(3)).dtype(DType::Float64);
    alone.each_fails("threads", || {
        let chunks = vec![rows.clone(); 2];
        tensors(Batches::new(stream(chunks), &options, &ahead(2 * ROWS - 2 * ROWS / 11, 1)?, &Place::start(0))?)
    });
}

#[test]
fn of_batches_of_rows_with_different_lengths() {
    let alone = alone_with_loader();
    let own: ArrayRef = Arc::new(lists());
    let rows = batch(vec![("a", own), ("b", floats())]);
    varied_batches(&alone, "varied", &rows, 4, VARIED_ROWS);
}

#[test]
fn of_batches_of_long_rows() {
    let alone = alone_with_loader();
    let (count, length, bytes) = if cfg!(miri) { (4, 1_100, 4_200) } else { (12, 9000, 60_000) };
    // The hashes of rows read each of them whole.
    let long = ListArray::from_iter_primitive::<Int32Type, _, _>(
        (0..count).map(|row| Some((0..length as i32).map(|item| Some(item + row)).collect::<Vec<_>>())),
    );
    let texts = StringArray::from_iter_values((0..count).map(|row| format!("{row:>bytes$}")));
    let rows = batch(vec![("a", Arc::new(long)), ("b", Arc::new(texts))]);
    varied_batches(&alone, "long rows", &rows, length, 4);
}

#[test]
fn of_batches_of_shuffled_rows_with_different_lengths() {
    let mut alone = alone();
    alone.limit = BEYOND_ARROW_RS;
    let own: ArrayRef = Arc::new(lists());
    let rows = batch(vec![("a", own), ("b", floats())]);
    alone.each_fails("shuffled", || {
        let mut load = ahead(VARIED_ROWS, 0)?;
        load.shuffle = NonZero::new(WINDOW).map(|rows| Shuffle::new(rows, 1));
        varied(Batches::new(stream(vec![rows.clone()]), &varied_groups(4), &load, &Place::start(0))?)
    });
}

/// Fails each large allocation of a loader of a list `a`, padded to `length` and ragged, and of a column `b` that is passed through. Rows are
/// not shuffled: arrow-rs joins those, and its own allocations end the process.
fn varied_batches(alone: &Alone, name: &str, rows: &DeviceArray, length: usize, batch_size: usize) {
    for prefetch in [0, 1] {
        alone.each_fails(name, || {
            let load = ahead(batch_size, prefetch)?;
            varied(Batches::new(stream(vec![rows.clone()]), &varied_groups(length), &load, &Place::start(0))?)
        });
    }
}

fn varied_groups(length: usize) -> Conversion {
    filled().select(Selection::Named(vec![
        ("p".to_owned(), Group::padded("a", Pad::new(Scalar::Int(0)).length(length)).lengths("n")),
        ("r".to_owned(), Group::ragged("a")),
        ("w".to_owned(), Group::arrow(["b"])),
    ]))
}

fn varied(batches: Batches) -> Result<Vec<Tensor>> {
    let batches = batches.collect::<Result<Vec<_>>>()?;
    let tensors = |made: &Converted| match made.as_ragged() {
        Some(ragged) => vec![ragged.offsets().clone()],
        None => made.as_tensor().cloned().into_iter().collect(),
    };
    Ok(batches.iter().flat_map(|batch| batch.varied.iter().flat_map(tensors)).collect())
}
