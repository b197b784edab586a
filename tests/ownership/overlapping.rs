//! Exported streams whose consumers call within or beside another call, or after the release.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};

use arrow_dlpack::DeviceArray;
use arrow_dlpack::arrow::{DeviceArrayStream, export_device_stream, export_stream};
use arrow_dlpack::ffi::arrow_device::{
    ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowDeviceArrayStream, ArrowSchema,
};
use arrow_dlpack::ffi::dlpack::DLDeviceType;
use arrow_schema::DataType;

use crate::column;
use crate::support::arrow::{field, import_edited, release};
use crate::support::{Count, CountsDrop};

const EINVAL: c_int = 22;

/// A consumer that calls a stream's callbacks whenever it likes, from any thread. It read them before the first call.
struct Consumer<S, A> {
    stream: *mut S,
    get_schema: unsafe extern "C" fn(*mut S, *mut ArrowSchema) -> c_int,
    get_next: unsafe extern "C" fn(*mut S, *mut A) -> c_int,
    get_last_error: unsafe extern "C" fn(*mut S) -> *const c_char,
    release: unsafe extern "C" fn(*mut S),
    array_of: fn(&mut A) -> &mut ArrowArray,
}

impl<S, A> Clone for Consumer<S, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S, A> Copy for Consumer<S, A> {}

// SAFETY: the callbacks of an exported stream may be called from any thread at any time: what these tests are about.
unsafe impl<S, A> Send for Consumer<S, A> {}
// SAFETY: the callbacks of an exported stream may be called by several threads at once.
unsafe impl<S, A> Sync for Consumer<S, A> {}

type Host = Consumer<ArrowArrayStream, ArrowArray>;
type OnDevice = Consumer<ArrowDeviceArrayStream, ArrowDeviceArray>;

impl Host {
    fn of(stream: &mut ArrowArrayStream) -> Self {
        let ArrowArrayStream { get_schema, get_next, get_last_error, release, .. } = *stream;
        let (get_schema, get_next) = (get_schema.unwrap(), get_next.unwrap());
        let (get_last_error, release) = (get_last_error.unwrap(), release.unwrap());
        Self { stream, get_schema, get_next, get_last_error, release, array_of: |array| array }
    }
}

impl OnDevice {
    fn of_device(stream: &mut ArrowDeviceArrayStream) -> Self {
        let ArrowDeviceArrayStream { get_schema, get_next, get_last_error, release, .. } = *stream;
        let (get_schema, get_next) = (get_schema.unwrap(), get_next.unwrap());
        let (get_last_error, release) = (get_last_error.unwrap(), release.unwrap());
        Self { stream, get_schema, get_next, get_last_error, release, array_of: |array| &mut array.array }
    }
}

impl<S, A> Consumer<S, A> {
    /// The next array, released at once: whether there was one, or the code and the message of a failure.
    fn next(&self) -> Result<bool, (c_int, String)> {
        // SAFETY: zeros are a released array.
        let mut array: A = unsafe { std::mem::zeroed() };
        // SAFETY: a struct of ours, and one to fill.
        let code = unsafe { (self.get_next)(self.stream, &raw mut array) };
        let array = (self.array_of)(&mut array);
        let filled = array.release.is_some();
        if filled {
            release(array);
        }
        if code == 0 {
            return Ok(filled);
        }
        assert!(!filled, "a call that fails fills nothing");
        Err((code, self.message().expect("a failure comes with a message").to_string_lossy().into_owned()))
    }

    fn schema(&self) -> c_int {
        // SAFETY: zeros are a released schema.
        let mut schema: ArrowSchema = unsafe { std::mem::zeroed() };
        // SAFETY: a struct of ours, and one to fill.
        let code = unsafe { (self.get_schema)(self.stream, &raw mut schema) };
        if let Some(release) = schema.release {
            // SAFETY: filled for us.
            unsafe { release(&raw mut schema) };
        }
        code
    }

    fn message(&self) -> Option<&CStr> {
        // SAFETY: a struct of ours.
        let message = unsafe { (self.get_last_error)(self.stream) };
        // SAFETY: NULL, or a message that lives until this thread's next call that fails.
        (!message.is_null()).then(|| unsafe { CStr::from_ptr(message) })
    }

    fn release(&self) {
        // SAFETY: a struct of ours, released perhaps.
        unsafe { (self.release)(self.stream) };
    }
}

/// A stream of `batches` arrays, which calls `within` before each; and counts of what was released: arrays, iterator.
fn stream(batches: usize, mut within: impl FnMut() + Send + 'static) -> (DeviceArrayStream, Arc<AtomicUsize>, Count) {
    let (arrays, dropped) = (Arc::new(AtomicUsize::new(0)), Count::default());
    let (made, guard) = (arrays.clone(), CountsDrop(dropped.clone()));
    let own = field("x", DataType::Int32);
    let next = {
        let own = own.clone();
        move |_| -> arrow_dlpack::Result<DeviceArray> {
            let _ = &guard;
            within();
            made.fetch_add(1, Ordering::Relaxed);
            import_edited(&column(), &own, |_| ()).0
        }
    };
    (DeviceArrayStream::new(own, DLDeviceType::CPU, (0..batches).map(next)), arrays, dropped)
}

/// Reads a stream from several threads; whoever finds the end releases it beside the calls of the others, as pyarrow does.
fn read_by_threads<S, A>(consumer: Consumer<S, A>) -> usize {
    const THREADS: usize = 4;
    let (read, start) = (AtomicUsize::new(0), Barrier::new(THREADS));
    let consume = || {
        start.wait();
        loop {
            match consumer.next() {
                Ok(true) => read.fetch_add(1, Ordering::Relaxed),
                Ok(false) => return consumer.release(),
                Err((EINVAL, message)) if message.contains("another call on the stream") => continue,
                Err((EINVAL, message)) if message == "the stream was released already" => return,
                Err(other) => panic!("{other:?}"),
            };
        }
    };
    std::thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(consume))));
    read.into_inner()
}

#[test]
fn threads_that_read_one_stream_get_each_array_once_or_an_error() {
    const BATCHES: usize = if cfg!(miri) { 8 } else { 400 };
    for device in [false, true] {
        let (source, made, dropped) = stream(BATCHES, std::thread::yield_now);
        let read = if device {
            read_by_threads(OnDevice::of_device(&mut export_device_stream(source).into_raw()))
        } else {
            read_by_threads(Host::of(&mut export_stream(source).unwrap().into_raw()))
        };
        assert_eq!((read, made.load(Ordering::Relaxed), dropped.get()), (BATCHES, BATCHES, 1));
    }
}

/// Reads a stream of one array whose producer does something with the stream that it is read by: what the call returned,
/// what `within` did, and how often the producer was dropped.
fn read_with(within: fn(Host) -> String) -> (Result<bool, (c_int, String)>, String, Count) {
    let (shared, answer): (Arc<Mutex<Option<Host>>>, Arc<Mutex<String>>) = Default::default();
    let (own, told) = (shared.clone(), answer.clone());
    let (source, _, dropped) = stream(1, move || {
        let consumer = own.lock().unwrap().unwrap();
        *told.lock().unwrap() = within(consumer);
    });
    let mut exported = export_stream(source).unwrap().into_raw();
    let consumer = Host::of(&mut exported);
    *shared.lock().unwrap() = Some(consumer);
    let outcome = consumer.next();
    consumer.release();
    let answer = answer.lock().unwrap().clone();
    (outcome, answer, dropped)
}

#[test]
fn a_producer_that_reads_its_own_consumer_gets_an_error() {
    let (outcome, answer, dropped) = read_with(|consumer| format!("{:?}", consumer.next()));
    assert_eq!((outcome, dropped.get()), (Ok(true), 1), "the outer call goes on");
    assert!(answer.starts_with("Err((22, \"another call on the stream has not returned yet"), "{answer}");
}

#[test]
fn a_producer_can_ask_its_own_consumer_for_the_schema() {
    let (outcome, answer, _) = read_with(|consumer| consumer.schema().to_string());
    assert_eq!((outcome, answer.as_str()), (Ok(true), "0"));
}

#[test]
fn a_release_within_a_call_takes_effect_when_the_call_returns() {
    let (outcome, answer, dropped) = read_with(|consumer| {
        consumer.release();
        format!("{:?}", consumer.next())
    });
    assert_eq!((outcome, dropped.get()), (Ok(true), 1));
    assert_eq!(answer, "Err((22, \"the stream was released already\"))");
}

#[test]
fn calls_after_the_release_are_errors() {
    let (source, made, dropped) = stream(1, || ());
    let mut exported = export_stream(source).unwrap().into_raw();
    // A consumer that moves the struct and goes on using what it moved from.
    // SAFETY: the move of the C stream interface.
    let mut moved = unsafe { (&raw const exported).read() };
    let (stale, consumer) = (Host::of(&mut exported), Host::of(&mut moved));
    // SAFETY: a live struct of this test, which nobody else uses now.
    unsafe { (*stale.stream).release = None };
    consumer.release();
    assert_eq!(dropped.get(), 1);
    for consumer in [consumer, stale] {
        assert_eq!(consumer.next(), Err((EINVAL, "the stream was released already".to_owned())));
        assert_eq!(consumer.schema(), EINVAL);
        consumer.release();
    }
    assert!(moved.release.is_none());
    assert_eq!((made.load(Ordering::Relaxed), dropped.get()), (0, 1));
}

#[test]
fn a_message_outlives_calls_and_the_release_on_other_threads() {
    let (source, ..) = stream(2, || panic!("number one"));
    let mut exported = export_stream(source).unwrap().into_raw();
    let consumer = Host::of(&mut exported);
    assert!(consumer.message().is_none(), "no call has failed");
    assert!(consumer.next().is_err());
    let message = consumer.message().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            assert!(consumer.message().unwrap().to_string_lossy().contains("number one"));
            assert!(consumer.next().is_err());
            consumer.release();
        });
    });
    assert!(message.to_string_lossy().contains("number one"));
}
