//! What happens when several threads use one object at once? Each value is read right, each row comes once, and everything is
//! released once. `make tsan` and `make miri` look for data races in the same tests.

#![allow(unsafe_code, reason = "imports and releases C structs as other libraries do")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]

mod support;

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread::scope;
use std::time::Duration;

use arrow_array::{ArrayRef, Int32Array, Int64Array, StringArray};
use arrow_dlpack::arrow::{export_array, export_device_array, export_schema, export_stream, read_field};
use arrow_dlpack::dlpack::{export_legacy, export_versioned, import_legacy, import_versioned};
use arrow_dlpack::loader::{Batches, LoadOptions, Next, Place, Sharding, Shards, Shuffle};
use arrow_dlpack::{
    Categories, Conversion, CopyMode, DType, Device, DeviceArray, DeviceArrayStream, NullPolicy, Scalar, Tensor,
};
use arrow_schema::{DataType, Field, FieldRef};
use support::arrow::{field, import_edited};
use support::dlpack::Memory;
use support::{Count, CountsDrop};

const THREADS: usize = 4;
/// How often each thread does its work.
const ROUNDS: usize = if cfg!(miri) { 3 } else { 300 };
/// Rows of a double that take a block of huge pages: 4 MiB, and 8 KiB where Miri interprets it.
const LARGE: usize = if cfg!(miri) { 1 << 10 } else { 1 << 19 };

/// Runs `work` on several threads that start at once. It gets the number of its thread.
fn at_once(work: impl Fn(usize) + Sync) {
    let start = Barrier::new(THREADS);
    scope(|scope| {
        for thread in 0..THREADS {
            let (start, work) = (&start, &work);
            scope.spawn(move || {
                start.wait();
                work(thread);
            });
        }
    });
}

/// Gives each thread a clone of an object; none is left elsewhere, so that any thread may drop the last.
fn of_each<T: Clone + Send>(shared: T, work: impl Fn(&T) + Sync) {
    let clones: [Mutex<Option<T>>; THREADS] = std::array::from_fn(|_| Mutex::new(Some(shared.clone())));
    drop(shared);
    at_once(|thread| {
        let own = clones[thread].lock().unwrap().take().unwrap();
        work(&own);
    });
}

#[test]
fn a_tensor_is_exported_and_dropped_by_several_threads_and_released_once() {
    let (tensor, released) = Memory::four().import();
    of_each(tensor.unwrap(), |tensor| {
        (0..ROUNDS).for_each(|_| exchange(tensor));
        assert_eq!(released.get(), 0);
    });
    assert_eq!(released.get(), 1);
}

/// Exports a tensor both ways, imports it, and reads it.
fn exchange(tensor: &Tensor) {
    let versioned = export_versioned(tensor, false).unwrap().into_raw();
    let legacy = export_legacy(tensor).unwrap().into_raw();
    // SAFETY: exported just now, and imported once.
    let versioned = unsafe { import_versioned(versioned) }.unwrap();
    // SAFETY: exported just now, and imported once.
    let legacy = unsafe { import_legacy(legacy) }.unwrap();
    assert_eq!(
        (support::dlpack::int32s(&versioned), support::dlpack::int32s(&legacy)),
        (vec![1, 2, 3, 4], vec![1, 2, 3, 4])
    );
}

#[test]
fn an_array_and_its_type_are_exported_by_several_threads_and_released_once() {
    let own = field("x", DataType::List(field("item", DataType::Int32)));
    let lists = arrow_array::ListArray::from_iter_primitive::<arrow_array::types::Int32Type, _, _>([
        Some(vec![Some(1), Some(2)]),
        Some(vec![]),
        Some(vec![Some(3)]),
    ]);
    let (array, released) = import_edited(&lists, &own, |_| ());
    of_each(array.unwrap(), |mine| {
        for _ in 0..ROUNDS {
            let mut schema = export_schema(mine.field()).unwrap().into_raw();
            // SAFETY: exported just now, and released below.
            let told = unsafe { read_field(&schema) }.unwrap();
            assert_eq!(told, own);
            let mut host = export_array(mine).unwrap().into_raw();
            // SAFETY: exported just now, of this type, and moved by the import.
            let host = unsafe { DeviceArray::import(&raw mut host, told.clone()) }.unwrap();
            let mut device = export_device_array(&host).unwrap().into_raw();
            // SAFETY: exported just now, of this type, and moved by the import.
            let device = unsafe { DeviceArray::import_device(&raw mut device, told) }.unwrap();
            let rows = Conversion::default().copy(CopyMode::Never).ragged(&device).unwrap();
            drop((mine.clone(), host, device));
            assert_eq!(rows.values().len(), 3);
            // SAFETY: exported above, released once.
            unsafe { (schema.release.unwrap())(&raw mut schema) };
        }
        assert_eq!(released.get(), 0);
    });
    assert_eq!(released.get(), 1);
}

#[test]
fn large_results_are_freed_by_other_threads_while_more_are_made() {
    let rounds = if cfg!(miri) { 2 } else { 12 };
    let numbers =
        |thread: usize| Int32Array::from_iter_values((0..LARGE).map(move |row| i32::try_from(row ^ thread).unwrap()));
    at_once(|thread| {
        let (column, doubles) = (numbers(thread), Conversion::default().dtype(DType::Float64));
        let (send, receive) = sync_channel::<Tensor>(1);
        scope(|scope| {
            scope.spawn(move || {
                for tensor in receive {
                    let values = tensor.as_slice::<f64>().unwrap();
                    let places = (0..LARGE).step_by(if cfg!(miri) { 100 } else { 1000 });
                    assert!(
                        places.into_iter().all(|row| values[row] == (row ^ thread) as f64),
                        "a block of two owners"
                    );
                }
            });
            for _ in 0..rounds {
                send.send(doubles.to_tensor(&column).unwrap()).unwrap();
            }
            drop(send);
        });
    });
}

#[test]
fn one_conversion_with_a_vocabulary_serves_several_threads() {
    let letters = Categories::new(Arc::new(StringArray::from(vec!["a", "b", "c"]))).unwrap();
    let conversion = Conversion::default()
        .categories(letters)
        .nulls(NullPolicy::Fill(Scalar::Int(-1)))
        .threads(NonZero::new(2).unwrap());
    let column: ArrayRef = Arc::new(StringArray::from(vec![Some("c"), None, Some("a"), Some("b")]));
    at_once(|_| {
        for _ in 0..ROUNDS {
            let codes = conversion.to_tensor(&*column).unwrap();
            assert_eq!((codes.shape(), codes.dtype()), (&[4_i64][..], DType::Int32));
            assert_eq!(codes.dictionary().unwrap().to_arrow().unwrap().len(), 3);
        }
    });
}

/// A stream of batches of ten rows, numbered from `first`. Counts its drop.
fn numbered(first: i64, batches: i64, dropped: &Count) -> DeviceArrayStream {
    let own: FieldRef = Arc::new(Field::new("x", DataType::Int64, false));
    let (of, guard) = (own.clone(), CountsDrop(dropped.clone()));
    let arrays = (0..batches).map(move |batch| {
        let _ = &guard;
        std::thread::yield_now();
        let start = first + batch * 10;
        DeviceArray::from_arrow(&Int64Array::from_iter_values(start..start + 10), of.clone())
    });
    DeviceArrayStream::new(own, Device::CPU.device_type(), arrays)
}

/// Takes what a loader makes until it has ended, and returns the rows. Keeps each batch for a while, during which nobody may
/// write to it.
fn drain(batches: &Batches) -> Vec<i64> {
    let (mut rows, mut held) = (Vec::new(), Vec::new());
    loop {
        match batches.next_within(Duration::from_millis(50)).unwrap() {
            Next::Batch(batch) => {
                let tensor = batch.tensors[0].clone();
                rows.extend_from_slice(tensor.as_slice::<i64>().unwrap());
                held.push((rows.len() - batch.rows..rows.len(), tensor));
                if held.len() > 3 {
                    let (place, tensor) = held.remove(0);
                    assert_eq!(tensor.as_slice::<i64>().unwrap(), &rows[place], "a batch changed while it was held");
                }
            }
            Next::NotYet => {}
            _ => return rows,
        }
    }
}

#[test]
fn threads_that_read_one_loader_get_each_row_once() {
    for (shards, readers, shuffled) in [(1_i64, 1, false), (4, 2, true)] {
        let dropped = Count::default();
        let length = if cfg!(miri) { 4 } else { 60 };
        let counted = dropped.clone();
        let open = move |shard| Ok(numbered(i64::try_from(shard).unwrap() * length * 10, length, &counted));
        let rows = usize::try_from(length).unwrap() * 10;
        let source = Shards::new(vec![Some(rows); usize::try_from(shards).unwrap()], open);
        let mut load = LoadOptions::new(Sharding::new(7, false, 0, 1).unwrap());
        load.readers = readers;
        load.shuffle = shuffled.then(|| Shuffle::new(NonZero::new(20).unwrap(), 5));
        let lanes = usize::try_from(shards).unwrap();
        let place = Place::after(0, vec![0; lanes], 0).unwrap();
        let batches = Batches::of_shards(&source, &Conversion::default(), &load, &place).unwrap();
        let read = Mutex::new(Vec::new());
        at_once(|_| read.lock().unwrap().extend(drain(&batches)));
        drop(batches);
        let mut read = read.into_inner().unwrap();
        read.sort_unstable();
        assert_eq!(read, (0..shards * length * 10).collect::<Vec<_>>());
        assert_eq!(dropped.get(), lanes);
    }
}

#[test]
fn a_loader_ends_while_its_thread_makes_batches() {
    for round in 0..if cfg!(miri) { 4 } else { 120 } {
        let dropped = Count::default();
        let load = LoadOptions::new(Sharding::new(7, false, 0, 1).unwrap());
        // It does not end by itself, however slow this thread is.
        let stream = numbered(0, 1 << 40, &dropped);
        let batches = Batches::new(stream, &Conversion::default(), &load, &Place::start(0)).unwrap();
        let ended = AtomicBool::new(false);
        scope(|scope| {
            scope.spawn(|| {
                let rows = drain(&batches);
                assert!(ended.load(Ordering::SeqCst), "the loader ended by itself after {} rows", rows.len());
                let wrong = rows.iter().zip(0..).find(|(row, expected)| **row != *expected);
                assert_eq!(wrong, None, "of {} rows", rows.len());
            });
            (0..round % 7).for_each(|_| std::thread::yield_now());
            ended.store(true, Ordering::SeqCst);
            match round % 3 {
                0 => batches.abandon(),
                1 => batches.close(),
                _ => drop(batches.stop(Duration::from_millis(1))),
            }
        });
        drop(batches);
        assert_eq!(dropped.get(), 1);
    }
}

#[test]
fn batches_outlive_their_loader_on_other_threads() {
    let dropped = Count::default();
    let (send, receive) = sync_channel(2);
    let checked = AtomicUsize::new(0);
    scope(|scope| {
        scope.spawn(|| {
            for (first, tensor) in receive {
                let tensor: Tensor = tensor;
                std::thread::yield_now();
                assert_eq!(tensor.as_slice::<i64>().unwrap()[0], first);
                checked.fetch_add(1, Ordering::Relaxed);
            }
        });
        for _ in 0..if cfg!(miri) { 2 } else { 40 } {
            let load = LoadOptions::new(Sharding::new(10, false, 0, 1).unwrap());
            let stream = numbered(0, 6, &dropped);
            let batches = Batches::new(stream, &Conversion::default(), &load, &Place::start(0)).unwrap();
            for batch in batches {
                let tensor = batch.unwrap().tensors.remove(0);
                let first = tensor.as_slice::<i64>().unwrap()[0];
                send.send((first, tensor)).unwrap();
            }
        }
        drop(send);
    });
    assert_eq!(checked.into_inner(), dropped.get() * 6);
}

#[test]
fn exported_streams_are_made_read_and_released_on_many_threads() {
    let dropped = Count::default();
    at_once(|thread| {
        for _ in 0..ROUNDS {
            let first = i64::try_from(thread).unwrap() * 100;
            let mut exported = export_stream(numbered(first, 2, &dropped)).unwrap().into_raw();
            // SAFETY: exported just now, and moved by the import.
            let mut read = unsafe { DeviceArrayStream::import(&raw mut exported) }.unwrap();
            let array = read.next().unwrap().unwrap();
            // Another thread releases the stream, and this one what it has read.
            scope(|scope| scope.spawn(move || drop(read)).join().unwrap());
            let tensor = Conversion::default().copy(CopyMode::Never).to_tensor(&array).unwrap();
            drop(array);
            // SAFETY: the array of this test, which nobody writes to.
            assert_eq!(unsafe { tensor.lent_slice::<i64>() }.unwrap()[0], first);
        }
    });
    assert_eq!(dropped.get(), THREADS * ROUNDS);
}
