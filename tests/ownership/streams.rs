//! Streams, in and out.

use std::ffi::{CStr, c_char, c_int, c_void};

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_dlpack::arrow::{DeviceArrayStream, export_device_stream, export_schema, export_stream};
use arrow_dlpack::ffi::arrow_device::{ArrowArray, ArrowArrayStream, ArrowSchema};
use arrow_dlpack::ffi::dlpack::DLDeviceType;
use arrow_dlpack::{Device, DeviceArray, ErrorKind, Result};
use arrow_schema::{DataType, FieldRef};

use crate::support::arrow::{counted, field, import_edited, shared};
use crate::support::{Count, CountsDrop, left_alive};
use crate::{batch, column};

/// A stream of three batches whose arrays and iterator count their release; the item `failure` is an error.
fn stream(failure: Option<usize>) -> (DeviceArrayStream, Count, Count) {
    let (arrays, dropped) = (Count::default(), Count::default());
    let (made, guard) = (arrays.clone(), CountsDrop(dropped.clone()));
    let own = field("", batch().data_type().clone());
    let next = {
        let own = own.clone();
        move |index: usize| -> Result<DeviceArray> {
            let _ = &guard;
            if failure == Some(index) {
                // Any error of the crate will do.
                return "no such device".parse::<Device>().map(|_| unreachable!("no device"));
            }
            let array = import_edited(&batch(), &own, |_| ()).0;
            made.add();
            array
        }
    };
    (DeviceArrayStream::new(own, DLDeviceType::CPU, (0..3).map(next)), arrays, dropped)
}

#[test]
fn a_stream_is_released_at_its_end_an_error_or_an_early_drop() {
    for (failure, taken, arrays) in [(None, 9, 3), (Some(1), 9, 1), (None, 2, 2), (None, 0, 0)] {
        let (source, made, dropped) = stream(failure);
        let mut exported = export_stream(source).unwrap().into_raw();
        // SAFETY: our export, moved.
        let mut imported = unsafe { DeviceArrayStream::import(&raw mut exported) }.unwrap();
        assert!(exported.release.is_none(), "a moved stream counts as released");
        let items: Vec<_> = imported.by_ref().take(taken).collect();
        assert_eq!(made.get(), arrays, "nothing is asked for before it is wanted");
        assert_eq!(items.iter().filter(|item| item.is_ok()).count(), arrays);
        if let Some(error) = items.iter().find_map(|item| item.as_ref().err()) {
            assert_eq!(error.kind(), ErrorKind::Producer);
            assert!(error.reason().contains("get_next") && error.reason().contains("no such device"), "{error}");
        }
        assert_eq!(dropped.get(), usize::from(taken == 9), "the end and an error release at once");
        assert!(taken < 9 || imported.next().is_none());
        drop(imported);
        assert_eq!(dropped.get(), 1);
    }
}

#[test]
fn an_exported_stream_nobody_reads_is_released_once() {
    let (source, made, dropped) = stream(None);
    let mut exported = export_device_stream(source).into_raw();
    let release = exported.release.unwrap();
    // SAFETY: our export, released once.
    unsafe { release(&raw mut exported) };
    assert!(exported.release.is_none());
    // SAFETY: our callback on a struct that says it is released.
    unsafe { release(&raw mut exported) };
    assert_eq!((made.get(), dropped.get()), (0, 1));
}

#[test]
fn arrays_outlive_their_stream() {
    let (source, _, dropped) = stream(None);
    let mut exported = export_device_stream(source).into_raw();
    // SAFETY: our export, moved.
    let mut imported = unsafe { DeviceArrayStream::import_device(&raw mut exported) }.unwrap();
    let first = imported.next().unwrap().unwrap();
    drop(imported);
    assert_eq!(dropped.get(), 1);
    assert_eq!(
        first.to_arrow().unwrap().as_struct().column(1).as_primitive::<arrow_array::types::Int32Type>().value(3),
        8
    );
}

#[test]
fn a_panic_of_the_iterator_is_an_error_of_the_stream() {
    let own = field("x", DataType::Int32);
    let arrays = std::iter::from_fn(|| -> Option<Result<DeviceArray>> { panic!("on purpose") });
    let mut exported = export_stream(DeviceArrayStream::new(own, DLDeviceType::CPU, arrays)).unwrap().into_raw();
    let mut array = ArrowArray::empty();
    // SAFETY: a live stream, and a struct to fill.
    let code = unsafe { (exported.get_next.unwrap())(&raw mut exported, &raw mut array) };
    assert!(code != 0 && array.release.is_none());
    // SAFETY: a live stream whose last call failed.
    let message = unsafe { (exported.get_last_error.unwrap())(&raw mut exported) };
    // SAFETY: a failure of ours comes with a message, valid until the next call.
    assert!(unsafe { CStr::from_ptr(message) }.to_string_lossy().contains("on purpose"));
    // SAFETY: our export, released once.
    unsafe { (exported.release.unwrap())(&raw mut exported) };
}

/// What a callback fails with: no code of ours.
const ENOSYS: c_int = 38;

/// A C stream of another library: `get_schema` gives an error or a schema, the first `get_next` an array, later ones the
/// end.
struct Foreign {
    schema: Option<FieldRef>,
    schemas_released: Count,
    next: Option<ArrowArray>,
    released: Count,
}

fn foreign(state: Foreign) -> ArrowArrayStream {
    unsafe extern "C" fn get_schema(stream: *mut ArrowArrayStream, out: *mut ArrowSchema) -> c_int {
        // SAFETY: the C stream interface: a live stream.
        let state = unsafe { (*stream).private_data }.cast::<Foreign>();
        // SAFETY: the box of `foreign`; calls on a stream do not overlap.
        let state = unsafe { &mut *state };
        let Some(field) = &state.schema else { return ENOSYS };
        let mut schema = export_schema(field).unwrap().into_raw();
        // Whoever reads the schema releases it: count that.
        let counted = Box::new((schema.private_data, schema.release, state.schemas_released.clone()));
        schema.private_data = Box::into_raw(counted).cast();
        schema.release = Some(release_schema);
        // SAFETY: the C stream interface: a struct to fill.
        unsafe { out.write(schema) };
        0
    }
    type Counted = (*mut c_void, Option<unsafe extern "C" fn(*mut ArrowSchema)>, Count);
    unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
        // SAFETY: a live schema of `get_schema`.
        let schema = unsafe { &mut *schema };
        // SAFETY: the box of `get_schema`; a schema is released once.
        let (private_data, release, count) = *unsafe { Box::from_raw(schema.private_data.cast::<Counted>()) };
        (schema.private_data, schema.release) = (private_data, release);
        // SAFETY: as its producer left it.
        unsafe { (release.unwrap())(schema) };
        count.add();
    }
    unsafe extern "C" fn get_next(stream: *mut ArrowArrayStream, out: *mut ArrowArray) -> c_int {
        // SAFETY: the C stream interface: a live stream.
        let state = unsafe { (*stream).private_data }.cast::<Foreign>();
        // SAFETY: the box of `foreign`; calls on a stream do not overlap.
        let state = unsafe { &mut *state };
        // SAFETY: the C stream interface: a struct to fill.
        unsafe { out.write(state.next.take().unwrap_or(ArrowArray::empty())) };
        0
    }
    unsafe extern "C" fn get_last_error(_: *mut ArrowArrayStream) -> *const c_char {
        std::ptr::null()
    }
    unsafe extern "C" fn release(stream: *mut ArrowArrayStream) {
        // SAFETY: the C stream interface: a live stream.
        let stream = unsafe { &mut *stream };
        stream.release = None;
        // SAFETY: the box of `foreign`; a stream is released once.
        let state = unsafe { Box::from_raw(stream.private_data.cast::<Foreign>()) };
        state.next.into_iter().for_each(|mut array| crate::support::arrow::release(&mut array));
        state.released.add();
    }
    ArrowArrayStream {
        get_schema: Some(get_schema),
        get_next: Some(get_next),
        get_last_error: Some(get_last_error),
        release: Some(release),
        private_data: Box::into_raw(Box::new(state)).cast(),
    }
}

fn import_foreign(edit: impl FnOnce(&mut Foreign, &mut ArrowArray)) -> (Result<Vec<Result<DeviceArray>>>, [Count; 3]) {
    let (mut array, arrays) = counted(&column());
    let counts = [Count::default(), Count::default(), arrays];
    let schema = Some(field("x", DataType::Int32));
    let mut state = Foreign { schema, schemas_released: counts[0].clone(), next: None, released: counts[1].clone() };
    edit(&mut state, &mut array);
    state.next = Some(array);
    let mut stream = foreign(state);
    // SAFETY: a valid stream, but for what `edit` breaks on purpose.
    let imported = unsafe { DeviceArrayStream::import(&raw mut stream) };
    (imported.map(Iterator::collect), counts)
}

#[test]
fn a_foreign_stream_its_schema_and_its_arrays_are_each_released_once() {
    let (items, [schemas, streams, arrays]) = import_foreign(|_, _| ());
    let items = items.unwrap();
    assert!(items.len() == 1 && items[0].is_ok());
    assert_eq!((schemas.get(), streams.get(), arrays.get()), (1, 1, 0));
    drop(items);
    assert_eq!(arrays.get(), 1);
}

#[test]
fn a_foreign_stream_with_a_broken_array_ends_there() {
    let (items, [_, streams, arrays]) = import_foreign(|_, array| array.n_buffers = 0);
    let items = items.unwrap();
    assert_eq!(items.len(), 1);
    assert!(items[0].as_ref().unwrap_err().reason().contains("n_buffers"));
    assert_eq!((streams.get(), arrays.get()), (1, 1));
}

#[test]
fn a_foreign_stream_without_a_schema_is_released() {
    let (refused, [schemas, streams, _]) = import_foreign(|state, _| state.schema = None);
    let error = refused.unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Producer, Some(ENOSYS)));
    assert!(error.reason().contains("get_schema failed with code 38"), "{error}");
    assert_eq!((schemas.get(), streams.get()), (0, 1));
}

#[test]
fn a_producers_code_reaches_the_consumer_of_an_exported_stream() {
    let own = field("x", DataType::Int32);
    let no_schema =
        Foreign { schema: None, schemas_released: Count::default(), next: None, released: Count::default() };
    let mut stream = foreign(no_schema);
    // SAFETY: a valid stream whose first callback fails.
    let error = unsafe { DeviceArrayStream::import(&raw mut stream) }.unwrap_err();
    let failing = DeviceArrayStream::new(own, DLDeviceType::CPU, std::iter::once(Err(error)));
    let mut exported = export_stream(failing).unwrap().into_raw();
    let mut array = ArrowArray::empty();
    // SAFETY: our export, and a struct to fill.
    let code = unsafe { (exported.get_next.unwrap())(&raw mut exported, &raw mut array) };
    assert_eq!(code, ENOSYS);
    // SAFETY: our export, released once.
    unsafe { (exported.release.unwrap())(&raw mut exported) };
}

#[test]
fn a_stream_that_lacks_callbacks_is_refused_and_released() {
    for (callback, cut) in [
        ("get_schema", (|stream| stream.get_schema = None) as fn(&mut ArrowArrayStream)),
        ("get_next", |stream| stream.get_next = None),
        ("released", |stream| stream.release = None),
    ] {
        let released = Count::default();
        let schema = Some(field("x", DataType::Int32));
        let state = Foreign { schema, schemas_released: Count::default(), next: None, released: released.clone() };
        let mut stream = foreign(state);
        cut(&mut stream);
        if stream.release.is_none() {
            left_alive(stream.private_data);
        }
        // SAFETY: a stream without a callback, which import has to find.
        let error = match unsafe { DeviceArrayStream::import(&raw mut stream) } {
            Ok(mut stream) => stream.next().unwrap().unwrap_err(),
            Err(error) => error,
        };
        assert!(error.reason().contains(callback), "{error}");
        assert_eq!(released.get(), usize::from(callback != "released"));
    }
}

#[test]
fn a_stream_gives_only_arrays_of_its_own_type_and_device() {
    let wide = field("x", DataType::Int64);
    let narrow = || shared(&column(), &field("x", DataType::Int32));
    let mut exported =
        export_stream(DeviceArrayStream::new(wide, DLDeviceType::CPU, std::iter::once_with(move || Ok(narrow()))))
            .unwrap()
            .into_raw();
    let mut array = ArrowArray::empty();
    // SAFETY: a live stream, and a struct to fill.
    let code = unsafe { (exported.get_next.unwrap())(&raw mut exported, &raw mut array) };
    assert!(code != 0 && array.release.is_none(), "a consumer would read int32 as int64");
    // SAFETY: our export, released once.
    unsafe { (exported.release.unwrap())(&raw mut exported) };

    let own = field("x", DataType::Int32);
    let item = shared(&column(), &own);
    let mut stream = DeviceArrayStream::new(own, DLDeviceType::CUDA, std::iter::once(Ok(item)));
    assert_eq!(stream.next().unwrap().unwrap_err().kind(), ErrorKind::Device);
}

#[test]
fn record_batches_go_through_streams_unchanged() {
    let rows = RecordBatch::from(batch());
    let item = DeviceArray::from_record_batch(&rows).unwrap();
    let own = item.field().clone();
    assert_eq!(item.columns(), rows.schema().fields().as_ref() as &[FieldRef]);
    let mut exported =
        export_device_stream(DeviceArrayStream::new(own, DLDeviceType::CPU, std::iter::once(Ok(item)))).into_raw();
    // SAFETY: our export, moved.
    let imported = unsafe { DeviceArrayStream::import_device(&raw mut exported) }.unwrap();
    let items: Vec<_> = imported.map(|item| RecordBatch::from(item.unwrap().to_arrow().unwrap().as_struct())).collect();
    assert_eq!(items, [rows]);
}
