//! Rust code of callers that panics, at each of its calls and in its drop: an error or the panic itself, and one release of everything.

use std::ffi::CStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use arrow_array::Array;
use arrow_dlpack::arrow::{export_array, export_device_array, export_stream};
use arrow_dlpack::dlpack::{export_legacy, export_versioned};
use arrow_dlpack::ffi::arrow_device::ArrowArray;
use arrow_dlpack::ffi::dlpack::DLDeviceType;
use arrow_dlpack::loader::{Batches, LoadOptions, Place, Sharding, Shards, Statistic, Statistics};
use arrow_dlpack::{
    Conversion, CopyMode, DeviceArray, DeviceArrayStream, Error, ErrorKind, NullPolicy, Result, Scalar, Tensor,
    to_arrow,
};
use arrow_schema::DataType;

use crate::support::arrow::{field, import_edited, shared};
use crate::support::dlpack::Memory;
use crate::support::{Count, CountsDrop};
use crate::{batch, column};

const BATCHES: usize = 3;

/// What `work` panics with.
fn panic_of<T>(work: impl FnOnce() -> T) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(work)).err()?;
    Some(panic.downcast_ref::<&str>().map_or_else(|| "another payload".to_owned(), |text| (*text).to_owned()))
}

/// What a stream made, and what of it was released.
#[derive(Clone, Default)]
struct Seen {
    arrays: Vec<Count>,
    iterators: Count,
}

impl Seen {
    /// Asserts that the stream and what it gave were released once.
    fn assert_released(shared: &Arc<Mutex<Self>>, arrays: usize, case: &str) {
        let seen = shared.lock().unwrap();
        assert_eq!(seen.iterators.get(), 1, "{case}");
        let released: Vec<usize> = seen.arrays.iter().map(Count::get).collect();
        assert_eq!(released, vec![1; arrays], "{case}");
    }
}

/// A stream whose call of this number panics, the one after the last array among them.
fn stream(panics_at: usize) -> (DeviceArrayStream, Arc<Mutex<Seen>>) {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let own = field("", batch().data_type().clone());
    let guard = CountsDrop(seen.lock().unwrap().iterators.clone());
    let (mut call, of_arrays, told) = (0, own.clone(), seen.clone());
    let arrays = std::iter::from_fn(move || {
        let _ = &guard;
        call += 1;
        assert!(call - 1 != panics_at, "on purpose");
        (call <= BATCHES).then(|| {
            let (array, released) = import_edited(&batch(), &of_arrays, |_| ());
            told.lock().unwrap().arrays.push(released);
            array
        })
    });
    (DeviceArrayStream::new(own, DLDeviceType::CPU, arrays), seen)
}

/// Reads a stream to its end, and returns how many things it made.
type Read = fn(&mut DeviceArrayStream) -> Result<usize>;

#[test]
fn a_conversion_passes_the_panic_on() {
    let reads: [(&str, Read); 4] = [
        ("matrix", |stream| Conversion::default().nulls(fill()).read_tensor(stream).map(|made| made.len())),
        ("each", |stream| Conversion::default().nulls(fill()).read_tensors(stream).map(|made| made.len())),
        ("arrays", |stream| stream.collect::<Result<Vec<_>>>().map(|made| made.len())),
        ("statistics", |stream| {
            let modes = [("b".to_owned(), Statistic::of_name("mean").unwrap())];
            let mut found = Statistics::new(stream.field(), &modes, usize::MAX)?;
            for array in stream {
                found.add(&array?)?;
            }
            found.finish().map(|found| found.len())
        }),
    ];
    for (name, read) in reads {
        for call in 0..=BATCHES {
            let (mut source, seen) = stream(call);
            assert_eq!(panic_of(|| read(&mut source)).as_deref(), Some("on purpose"), "{name}, {call}");
            drop(source);
            Seen::assert_released(&seen, call, name);
            // Nothing of the failure is left for the next one.
            let (mut source, seen) = stream(usize::MAX);
            assert!(read(&mut source).unwrap() > 0, "{name}");
            drop(source);
            Seen::assert_released(&seen, BATCHES, name);
        }
    }
}

fn fill() -> NullPolicy {
    NullPolicy::Fill(Scalar::Int(0))
}

#[test]
fn an_exported_stream_is_over_after_a_panic() {
    for call in 0..=BATCHES {
        let (source, seen) = stream(call);
        let mut exported = export_stream(source).unwrap().into_raw();
        let mut next = || {
            let mut array = ArrowArray::empty();
            // SAFETY: a live stream, and a struct to fill.
            let code = unsafe { (exported.get_next.unwrap())(&raw mut exported, &raw mut array) };
            // SAFETY: a live stream.
            let message = unsafe { (exported.get_last_error.unwrap())(&raw mut exported) };
            // SAFETY: NULL, or a message that is valid until the next call.
            let message =
                (!message.is_null()).then(|| unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned());
            (code, array, message.unwrap_or_default())
        };
        for _ in 0..call {
            let (code, mut array, _) = next();
            assert_eq!((code, array.length), (0, 4));
            // SAFETY: our export, released once.
            unsafe { (array.release.unwrap())(&raw mut array) };
        }
        // What follows would not be the array that the panic has cost.
        for _ in 0..2 {
            let (code, array, message) = next();
            assert!(code != 0 && array.release.is_none() && message.contains("panicked"), "{call}: {message}");
        }
        // SAFETY: our export, released once.
        unsafe { (exported.release.unwrap())(&raw mut exported) };
        Seen::assert_released(&seen, call, "exported");
    }
}

/// Options for batches of two rows, of which so many are made ahead.
fn ahead(prefetch: usize, readers: usize) -> LoadOptions {
    let mut load = LoadOptions::new(Sharding::new(2, false, 0, 1).unwrap());
    (load.prefetch, load.readers) = (prefetch, readers);
    load
}

/// Reads to the end, and a little further: the rows before the failure, and the failure.
fn read_out(batches: &mut Batches) -> (usize, Option<Error>) {
    let (mut rows, mut failure) = (0, None);
    for batch in batches.by_ref() {
        match batch {
            Ok(batch) => rows += batch.rows,
            Err(error) => assert!(failure.replace(error).is_none(), "one error ends the epoch"),
        }
    }
    assert!(batches.next().is_none());
    (rows, failure)
}

/// The threads of loaders in this process.
fn assert_no_thread() {
    #[cfg(target_os = "linux")]
    for _ in 0..2000 {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().filter_map(std::result::Result::ok);
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        if !names.into_iter().any(|name| name.trim() == "dlpack-loader") {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    #[cfg(target_os = "linux")]
    panic!("a thread of a loader is left");
}

/// One test, because each asks for the threads of the process.
#[test]
fn a_loader_ends_by_an_error() {
    for prefetch in [0, 1, 3] {
        for call in 0..=BATCHES {
            let (source, seen) = stream(call);
            let options = Conversion::default().nulls(fill());
            let mut batches = Batches::new(source, &options, &ahead(prefetch, 1), &Place::start(0)).unwrap();
            let (rows, failure) = read_out(&mut batches);
            let failure = failure.unwrap();
            assert!(failure.reason().contains("on purpose"), "{failure}");
            assert_eq!((rows, failure.kind()), (4 * call, ErrorKind::Unsupported), "{prefetch}");
            drop(batches);
            Seen::assert_released(&seen, call, "loader");
        }
        // Dropped before anybody is told.
        let (source, seen) = stream(1);
        let options = Conversion::default().nulls(fill());
        drop(Batches::new(source, &options, &ahead(prefetch, 1), &Place::start(0)).unwrap());
        assert_eq!(seen.lock().unwrap().iterators.get(), 1);
    }
    for (prefetch, readers, lanes) in [(0, 1, 1), (1, 1, 1), (2, 1, 3), (2, 3, 3)] {
        for shard in 0..3 {
            let opened = Count::default();
            let (told, whole) = (opened.clone(), field("", batch().data_type().clone()));
            let shards = Shards::new(vec![Some(4); 3], move |number| {
                assert!(number != shard, "on purpose");
                told.add();
                let array = shared(&batch(), &whole);
                Ok(DeviceArrayStream::new(whole.clone(), DLDeviceType::CPU, std::iter::once(Ok(array))))
            });
            let place = Place::after(0, vec![0; lanes], 0).unwrap();
            let options = Conversion::default().nulls(fill());
            let made = catch_unwind(AssertUnwindSafe(|| {
                Batches::of_shards(&shards, &options, &ahead(prefetch, readers), &place)
            }));
            match made {
                // The first one is opened by the caller, who sees the panic itself.
                Err(panic) => assert!(shard == 0 && panic.downcast_ref::<&str>() == Some(&"on purpose")),
                Ok(batches) => {
                    let (_, failure) = read_out(&mut batches.unwrap());
                    assert!(shard > 0 && failure.unwrap().reason().contains("on purpose"), "{shard}");
                }
            }
            assert!(opened.get() < 3);
        }
    }
    // An iterator that panics when it is dropped, at the end or early.
    for (prefetch, taken) in [(0, 0), (0, 1), (0, 9), (1, 0), (1, 1), (1, 9)] {
        let (dropped, whole) = (Count::default(), field("", batch().data_type().clone()));
        let (guard, array) = (Panics(dropped.clone()), shared(&batch(), &whole));
        let arrays = std::iter::repeat_n((), BATCHES).map(move |()| {
            let _ = &guard;
            Ok(array.clone())
        });
        let source = DeviceArrayStream::new(whole, DLDeviceType::CPU, arrays);
        let options = Conversion::default().nulls(fill());
        let mut batches = Batches::new(source, &options, &ahead(prefetch, 1), &Place::start(0)).unwrap();
        _ = panic_of(|| batches.by_ref().take(taken).for_each(drop));
        _ = panic_of(|| drop(batches));
        assert_eq!(dropped.get(), 1, "{prefetch} ahead, {taken} taken");
    }
    assert_no_thread();
}

/// Counts its drop, and panics in it.
struct Panics(Count);

impl Drop for Panics {
    fn drop(&mut self) {
        self.0.add();
        // A second panic would end the process, whoever's it is.
        assert!(std::thread::panicking(), "in drop");
    }
}

/// Four numbers as memory of an owner that panics in its drop.
fn owned() -> (Tensor, Count) {
    struct Owner([i32; 4], #[expect(dead_code, reason = "for its drop")] Panics);
    impl AsRef<[i32]> for Owner {
        fn as_ref(&self) -> &[i32] {
            &self.0
        }
    }
    let dropped = Count::default();
    (Tensor::from_owner(Owner([1, 2, 3, 4], Panics(dropped.clone())), &[4]).unwrap(), dropped)
}

/// The same as a column.
fn owned_column() -> (DeviceArray, Count) {
    let (tensor, dropped) = owned();
    (to_arrow(&tensor, None, CopyMode::Never).unwrap(), dropped)
}

#[test]
fn an_owner_that_panics_in_its_drop_is_dropped_once() {
    let (tensor, dropped) = owned();
    let part = tensor.slice(1, 2).unwrap();
    drop(tensor);
    assert_eq!(panic_of(|| drop(part)).as_deref(), Some("in drop"));
    assert_eq!(dropped.get(), 1);

    // Nobody can be told of it by a deleter or a release.
    let (tensor, dropped) = owned();
    let managed = export_versioned(&tensor, false).unwrap().into_raw();
    drop(tensor);
    // SAFETY: our export, which is alive.
    let deleter = unsafe { managed.as_ref() }.deleter.unwrap();
    // SAFETY: our export, deleted once.
    unsafe { deleter(managed.as_ptr()) };
    assert_eq!(dropped.get(), 1);

    let (tensor, dropped) = owned();
    let managed = export_legacy(&tensor).map(|managed| (managed.as_ptr(), managed));
    drop(tensor);
    drop(managed);
    assert_eq!(dropped.get(), 1);

    let (array, dropped) = owned_column();
    let mut exported = export_array(&array).unwrap().into_raw();
    drop(array);
    // SAFETY: our export, released once.
    unsafe { (exported.release.unwrap())(&raw mut exported) };
    assert_eq!((dropped.get(), exported.release.is_none()), (1, true));
}

#[test]
fn owners_beside_one_that_panics_are_dropped_too() {
    let (other, released) = Memory::four().import();
    let other = other.unwrap();
    let (tensor, dropped) = owned();
    let (column, of_column) = owned_column();
    let (beside, of_array) = import_edited(&crate::column(), &field("b", DataType::Int32), |_| ());
    assert_eq!(panic_of(|| drop((column, tensor, other, beside.unwrap()))).as_deref(), Some("in drop"));
    assert_eq!([dropped, of_column, of_array, released].map(|count| count.get()), [1; 4]);
}

#[test]
fn an_owner_that_panics_in_its_answer_is_dropped_once() {
    struct Unable(#[expect(dead_code, reason = "for its drop")] CountsDrop);
    impl AsRef<[f32]> for Unable {
        fn as_ref(&self) -> &[f32] {
            panic!("on purpose")
        }
    }
    let dropped = Count::default();
    let owner = Unable(CountsDrop(dropped.clone()));
    assert_eq!(panic_of(|| Tensor::from_owner(owner, &[1])).as_deref(), Some("on purpose"));
    assert_eq!(dropped.get(), 1);
}

#[test]
fn an_exported_stream_is_released_whose_iterator_panics_in_its_drop() {
    for taken in [0, 1, BATCHES + 1] {
        let (dropped, whole) = (Count::default(), field("x", DataType::Int32));
        let (guard, array) = (Panics(dropped.clone()), shared(&column(), &whole));
        let arrays = std::iter::repeat_n((), BATCHES).map(move |()| {
            let _ = &guard;
            Ok(array.clone())
        });
        let mut exported = export_stream(DeviceArrayStream::new(whole, DLDeviceType::CPU, arrays)).unwrap().into_raw();
        // SAFETY: our export, moved.
        let mut imported = unsafe { DeviceArrayStream::import(&raw mut exported) }.unwrap();
        assert_eq!(imported.by_ref().take(taken).filter(Result::is_ok).count(), taken.min(BATCHES));
        drop(imported);
        assert_eq!(dropped.get(), 1, "{taken}");
    }
}

#[test]
fn a_struct_that_nobody_takes_is_released_whose_owner_panics() {
    let (array, dropped) = owned_column();
    let exported = export_device_array(&array).unwrap();
    drop(array);
    drop(exported);
    assert_eq!(dropped.get(), 1);
}
