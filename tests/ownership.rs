//! Is everything released exactly once, whichever way it went, and never before its last reader is done?

#![allow(unsafe_code, reason = "imports, moves and releases C structs as other libraries do")]

mod support;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, Int32Array, RecordBatch, StructArray};
use arrow_dlpack::arrow::{
    DeviceArrayStream, export_device_array, export_device_stream, export_schema, export_stream, release_directly,
};
use arrow_dlpack::dlpack::{export_legacy, export_versioned, import_legacy, import_versioned};
use arrow_dlpack::ffi::arrow_device::{ArrowArray, ArrowArrayStream, ArrowDeviceArray, ArrowSchema};
use arrow_dlpack::ffi::dlpack::{DLDeviceType, DLPACK_FLAG_BITMASK_IS_COPIED, DLPACK_FLAG_BITMASK_READ_ONLY, DLTensor};
use arrow_dlpack::{
    CopyMode, DType, DeviceArray, ErrorKind, NullPolicy, Options, Result, Scalar, Tensor, request_field, to_arrow,
    to_tensor, to_tensors, validity,
};
use arrow_schema::{DataType, Field};
use support::arrow::{counted, field, import_edited, import_guarded, release};
use support::dlpack::Memory;
use support::reference::read;
use support::{Count, CountsDrop};

fn column() -> ArrayRef {
    Arc::new(Int32Array::from(vec![Some(1), None, Some(3), Some(4)]))
}

fn imported() -> (DeviceArray, Count) {
    let (array, released) = import_edited(&column(), &field("x", DataType::Int32), |_| ());
    (array.unwrap(), released)
}

fn batch() -> StructArray {
    let columns: Vec<(Arc<Field>, ArrayRef)> = vec![
        (field("a", DataType::Int32), column()),
        (field("b", DataType::Int32), Arc::new(Int32Array::from(vec![5, 6, 7, 8]))),
    ];
    StructArray::from(columns)
}

fn four() -> Tensor {
    Memory::four().import().0.unwrap()
}

// Managed tensors in.

#[test]
fn an_imported_tensor_is_deleted_after_its_last_clone() {
    for legacy in [false, true] {
        let (tensor, released) = if legacy { Memory::four().import_legacy(|_| ()) } else { Memory::four().import() };
        let tensor = tensor.unwrap();
        assert_eq!(tensor.is_writable(), !legacy);
        let clone = tensor.clone();
        drop(tensor);
        assert_eq!(released.get(), 0);
        assert_eq!(clone.as_slice::<i32>().unwrap(), [1, 2, 3, 4]);
        std::thread::spawn(move || drop(clone)).join().unwrap();
        assert_eq!(released.get(), 1);
    }
}

#[test]
fn a_refused_tensor_is_deleted_too() {
    let (refused, released) = Memory::four().import_edited(|managed| managed.version.major = 2);
    assert!(refused.is_err());
    assert_eq!(released.get(), 1);
    for edit in [
        |tensor: &mut DLTensor| tensor.ndim = -1,
        |tensor: &mut DLTensor| tensor.shape = std::ptr::null_mut(),
        |tensor: &mut DLTensor| tensor.data = std::ptr::null_mut(),
        |tensor: &mut DLTensor| tensor.byte_offset = u64::MAX,
        |tensor: &mut DLTensor| tensor.dtype.lanes = 2,
    ] {
        let (refused, released) = Memory::four().import_edited(|managed| edit(&mut managed.dl_tensor));
        assert!(refused.is_err());
        assert_eq!(released.get(), 1);
        let (refused, released) = Memory::four().import_legacy(|managed| edit(&mut managed.dl_tensor));
        assert!(refused.is_err());
        assert_eq!(released.get(), 1);
    }
}

#[test]
fn a_tensor_without_a_deleter_is_used_and_left_alone() {
    let (managed, released) = Memory::four().versioned(|managed| managed.deleter = None);
    // SAFETY: made by the helper; without a deleter it stays alive.
    let tensor = unsafe { import_versioned(managed, release_directly) }.unwrap();
    assert_eq!(tensor.as_slice::<i32>().unwrap(), [1, 2, 3, 4]);
    drop(tensor);
    let (managed, _) = Memory::four().legacy(|managed| managed.deleter = None);
    // SAFETY: as above.
    assert!(unsafe { import_legacy(managed, release_directly) }.is_ok());
    assert_eq!(released.get(), 0);
}

#[test]
fn a_guard_decides_whether_the_callback_runs() {
    let (managed, released) = Memory::four().versioned(|_| ());
    // SAFETY: made by the helper; the guard leaks it.
    drop(unsafe { import_versioned(managed, |_| ()) }.unwrap());
    assert_eq!(released.get(), 0);

    let (array, released) = import_guarded(&column(), &field("x", DataType::Int32), |_| (), |_| ());
    drop(array.unwrap());
    assert_eq!(released.get(), 0);
    let (refused, released) =
        import_guarded(&column(), &field("x", DataType::Int32), |array| array.length = -1, |_| ());
    assert!(refused.is_err());
    assert_eq!(released.get(), 0);

    let eager: fn(&mut dyn FnMut()) = |callback| callback();
    let (array, released) = import_guarded(&column(), &field("x", DataType::Int32), |_| (), eager);
    drop(array.unwrap());
    assert_eq!(released.get(), 1);
}

// Managed tensors out.

#[test]
fn an_exported_tensor_keeps_its_source_until_its_deleter_runs_on_any_thread() {
    let (tensor, released) = Memory::four().import();
    let tensor = tensor.unwrap();
    let versioned = export_versioned(&tensor, false).unwrap();
    let legacy = export_legacy(&tensor).unwrap();
    drop(tensor);
    assert_eq!(released.get(), 0);

    let addresses = (versioned.as_ptr() as usize, legacy.as_ptr() as usize);
    let back = std::thread::spawn(move || {
        let (versioned, legacy) = addresses;
        let versioned = std::ptr::NonNull::new(std::ptr::with_exposed_provenance_mut(versioned)).unwrap();
        let legacy = std::ptr::NonNull::new(std::ptr::with_exposed_provenance_mut(legacy)).unwrap();
        // SAFETY: exported above, imported once.
        let versioned = unsafe { import_versioned(versioned, release_directly) }.unwrap();
        // SAFETY: as above.
        let legacy = unsafe { import_legacy(legacy, release_directly) }.unwrap();
        assert_eq!(legacy.as_slice::<i32>().unwrap(), [1, 2, 3, 4]);
        drop(legacy);
        versioned
    });
    let versioned = back.join().unwrap();
    assert_eq!(released.get(), 0);
    assert_eq!(versioned.as_slice::<i32>().unwrap(), [1, 2, 3, 4]);
    drop(versioned);
    assert_eq!(released.get(), 1);
}

#[test]
fn the_deleter_frees_what_it_allocated_whatever_the_consumer_wrote() {
    let (tensor, released) = Memory::four().import();
    let mut managed = export_versioned(&tensor.unwrap(), true).unwrap();
    // SAFETY: a live struct that this test owns.
    let managed = unsafe { managed.as_mut() };
    let flags = managed.flags;
    assert_eq!(flags, DLPACK_FLAG_BITMASK_IS_COPIED);
    managed.dl_tensor.ndim = 7;
    managed.dl_tensor.shape = std::ptr::null_mut();
    managed.manager_ctx = std::ptr::dangling_mut();
    // SAFETY: exported above, deleted once.
    unsafe { (managed.deleter.unwrap())(managed) };
    assert_eq!(released.get(), 1);
}

#[test]
fn deleters_take_null() {
    let managed = export_versioned(&four(), false).unwrap();
    // SAFETY: a live struct; NULL is what a careless consumer passes, and nothing happens.
    let deleter = unsafe { managed.as_ref() }.deleter.unwrap();
    // SAFETY: as above.
    unsafe { deleter(std::ptr::null_mut()) };
    // SAFETY: exported above, deleted once.
    unsafe { deleter(managed.as_ptr()) };
}

#[test]
fn flags_travel_with_the_memory() {
    for (flags, writable, copied) in
        [(0, true, false), (DLPACK_FLAG_BITMASK_READ_ONLY, false, false), (DLPACK_FLAG_BITMASK_IS_COPIED, true, true)]
    {
        let (tensor, _) = Memory::four().import_edited(|managed| managed.flags = flags);
        let tensor = tensor.unwrap();
        assert_eq!((tensor.is_writable(), tensor.is_copied()), (writable, copied));
        let managed = export_versioned(&tensor, copied).unwrap();
        // SAFETY: a live struct.
        assert_eq!(unsafe { managed.as_ref() }.flags, flags);
        // SAFETY: exported above, imported once.
        drop(unsafe { import_versioned(managed, release_directly) });
    }
}

// Arrow arrays in.

#[test]
fn an_imported_array_is_released_after_its_last_view() {
    let (array, released) = imported();
    let keep = Options::default().nulls(NullPolicy::Keep).copy(CopyMode::Never);
    let view = to_tensor(&array, &keep).unwrap();
    let copy = to_tensor(&array, &Options::default().nulls(NullPolicy::Fill(Scalar::Int(2)))).unwrap();
    let valid = validity(array.field(), std::slice::from_ref(&array)).unwrap();
    let arrow = array.to_arrow().unwrap();
    drop(array);
    drop((copy.clone(), valid.clone()));
    assert_eq!(released.get(), 0);
    drop(arrow);
    assert_eq!(released.get(), 0, "the view is left");
    drop(view);
    assert_eq!(released.get(), 1);
    assert_eq!(copy.as_slice::<i32>().unwrap(), [1, 2, 3, 4]);
    assert_eq!(read(&valid).concat(), [1, 0, 1, 1]);
}

#[test]
fn a_refused_array_is_released_too() {
    for edit in [|array: &mut ArrowArray| array.n_buffers = 9, |array: &mut ArrowArray| array.length = i64::MIN] {
        let (refused, released) = import_edited(&column(), &field("x", DataType::Int32), edit);
        assert!(refused.is_err());
        assert_eq!(released.get(), 1);
    }
}

#[test]
fn what_was_released_or_moved_is_refused_and_left_alone() {
    let (mut array, released) = counted(&column());
    release(&mut array);
    let x = field("x", DataType::Int32);
    // SAFETY: a released struct, which says so.
    let again = unsafe { DeviceArray::import(&raw mut array, x.clone(), release_directly) };
    assert!(again.unwrap_err().reason().contains("ArrowArray was released"));
    let mut device =
        ArrowDeviceArray { array, device_id: -1, device_type: 1, sync_event: std::ptr::null_mut(), reserved: [0; 3] };
    // SAFETY: as above.
    let again = unsafe { DeviceArray::import_device(&raw mut device, x, release_directly) };
    assert!(again.unwrap_err().reason().contains("ArrowDeviceArray was released"));
    assert_eq!(released.get(), 1);
}

#[test]
fn columns_share_their_batch() {
    let (imported, released) = import_edited(&batch(), &field("", batch().data_type().clone()), |_| ());
    let rows = imported.unwrap();
    let b = rows.column(1).unwrap();
    let tensors =
        to_tensors(rows.field(), std::slice::from_ref(&rows), Some(&["b".to_owned()]), |_| Options::default());
    let tensors = tensors.unwrap();
    assert!(rows.column(2).is_err());
    drop(rows);
    let tensor = to_tensor(&b, &Options::default()).unwrap();
    drop(b);
    assert_eq!(released.get(), 0);
    assert_eq!(tensor.as_slice::<i32>().unwrap(), [5, 6, 7, 8]);
    drop(tensor);
    assert_eq!(released.get(), 0);
    drop(tensors);
    assert_eq!(released.get(), 1);
}

#[test]
fn a_request_shares_memory_or_lets_go_of_it() {
    let (array, released) = imported();
    let renamed = request_field(&array, &field("y", DataType::Int32)).unwrap();
    let cast = request_field(&array, &field("x", DataType::Int64)).unwrap();
    assert!(request_field(&array, &field("x", DataType::Utf8View)).is_ok());
    assert!(request_field(&array, &Arc::new(Field::new("x", DataType::Int32, false))).is_err());
    assert!(request_field(&array, &field("x", DataType::Null)).is_err());
    drop(array);
    assert_eq!(released.get(), 0);
    assert_eq!(renamed.field().name(), "y");
    drop(renamed);
    assert_eq!(cast.to_arrow().unwrap().null_count(), 1);
    drop(cast);
    assert_eq!(released.get(), 1);
}

#[test]
fn a_shared_arrow_rs_array_is_let_go() {
    let array = Int32Array::from(vec![1, 2, 3]);
    let shares = || array.values().inner().strong_count();
    let before = shares();
    let tensor = to_tensor(&support::arrow::shared(&array, &field("x", DataType::Int32)), &Options::default()).unwrap();
    assert_eq!(shares(), before + 1);
    drop(tensor);
    assert_eq!(shares(), before);
    let wrong = DeviceArray::from_arrow(&array, field("x", DataType::Int64)).unwrap_err();
    assert!(wrong.kind() == ErrorKind::Argument && shares() == before);
}

// Arrow arrays out.

#[test]
fn an_exported_array_keeps_its_memory_and_may_be_moved() {
    let (array, released) = imported();
    let mut exported = export_device_array(&array).unwrap().array;
    let mut second = export_device_array(&array).unwrap().array;
    drop(array);
    // The move of the C data interface.
    let mut moved = std::mem::replace(&mut exported, ArrowArray::empty());
    release(&mut second);
    assert_eq!(released.get(), 0);
    // SAFETY: a live struct; a released one is left alone by its own callback.
    let callback = moved.release.unwrap();
    release(&mut moved);
    assert_eq!(released.get(), 1);
    // SAFETY: our callback on a struct that says it is released.
    unsafe { callback(&raw mut moved) };
    // SAFETY: our callback on NULL.
    unsafe { callback(std::ptr::null_mut()) };
    assert_eq!(released.get(), 1);
}

#[test]
fn children_may_outlive_the_array_that_they_were_moved_out_of() {
    let (imported, released) = import_edited(&batch(), &field("", batch().data_type().clone()), |_| ());
    let mut parent = export_device_array(&imported.unwrap()).unwrap().array;
    let child = support::arrow::child_of(&mut parent, 1);
    let mut moved = std::mem::replace(child, ArrowArray::empty());
    release(&mut parent);
    assert_eq!(released.get(), 0);
    // SAFETY: a live child, moved as the C data interface describes it.
    let column = unsafe { DeviceArray::import(&raw mut moved, field("b", DataType::Int32), release_directly) }.unwrap();
    assert_eq!(to_tensor(&column, &Options::default()).unwrap().as_slice::<i32>().unwrap(), [5, 6, 7, 8]);
    drop(column);
    assert_eq!(released.get(), 1);
}

#[test]
fn an_exported_dictionary_is_released_with_its_array() {
    let dictionary: arrow_array::DictionaryArray<arrow_array::types::Int8Type> = ["a", "b", "a"].into_iter().collect();
    let own = field("d", dictionary.data_type().clone());
    let (imported, released) = import_edited(&dictionary, &own, |_| ());
    let mut exported = export_device_array(&imported.unwrap()).unwrap().array;
    assert!(!exported.dictionary.is_null());
    release(&mut exported);
    assert_eq!(released.get(), 1);
}

#[test]
fn a_tensor_lends_its_memory_to_the_array_it_becomes() {
    let (tensor, released) = Memory::four().import();
    let valid = Memory::new(&[1, 1, 0, 1], DType::Bool, &[4], &[1], 0).import().0.unwrap();
    let array = to_arrow(&tensor.unwrap(), Some(&valid), CopyMode::Never).unwrap();
    let mut exported = export_device_array(&array).unwrap().array;
    drop(array);
    assert_eq!((released.get(), exported.null_count), (0, 1));
    release(&mut exported);
    assert_eq!(released.get(), 1);

    let (tensor, released) = Memory::four().import();
    let copy = to_arrow(&tensor.unwrap(), None, CopyMode::Always).unwrap();
    assert_eq!(released.get(), 1, "a copy lets its source go");
    assert_eq!(copy.len(), 4);
}

// Streams.

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
                return "no such device".parse::<arrow_dlpack::Device>().map(|_| unreachable!("no device"));
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
        let mut exported = export_stream(source).unwrap();
        // SAFETY: our export, moved.
        let mut imported = unsafe { DeviceArrayStream::import(&raw mut exported, release_directly) }.unwrap();
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
    let mut exported = export_device_stream(source);
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
    let mut exported = export_device_stream(source);
    // SAFETY: our export, moved.
    let mut imported = unsafe { DeviceArrayStream::import_device(&raw mut exported, release_directly) }.unwrap();
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
    let mut exported = export_stream(DeviceArrayStream::new(own, DLDeviceType::CPU, arrays)).unwrap();
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

/// A C stream of another library: `get_schema` gives an error or a schema, the first `get_next` an array, later ones the
/// end.
struct Foreign {
    schema: Option<Arc<Field>>,
    schemas_released: Count,
    next: Option<ArrowArray>,
    released: Count,
}

fn foreign(state: Foreign) -> ArrowArrayStream {
    unsafe extern "C" fn get_schema(stream: *mut ArrowArrayStream, out: *mut ArrowSchema) -> c_int {
        // SAFETY: the C stream interface: a live stream.
        let state = unsafe { &mut *(*stream).private_data.cast::<Foreign>() };
        let Some(field) = &state.schema else { return 5 };
        let mut schema = export_schema(field).unwrap();
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
        let state = unsafe { &mut *(*stream).private_data.cast::<Foreign>() };
        // SAFETY: the C stream interface: a struct to fill.
        unsafe { out.write(state.next.take().unwrap_or(ArrowArray::empty())) };
        0
    }
    unsafe extern "C" fn get_last_error(_: *mut ArrowArrayStream) -> *const c_char {
        std::ptr::null()
    }
    unsafe extern "C" fn release(stream: *mut ArrowArrayStream) {
        // SAFETY: the C stream interface: a live stream, released once.
        let state = unsafe { Box::from_raw((*stream).private_data.cast::<Foreign>()) };
        state.released.add();
        // SAFETY: as above.
        unsafe { (*stream).release = None };
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
    let imported = unsafe { DeviceArrayStream::import(&raw mut stream, release_directly) };
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
    assert_eq!(error.kind(), ErrorKind::Producer);
    assert!(error.reason().contains("get_schema failed with code 5"), "{error}");
    assert_eq!((schemas.get(), streams.get()), (0, 1));
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
        // SAFETY: a stream without a callback, which import has to find.
        let error = match unsafe { DeviceArrayStream::import(&raw mut stream, release_directly) } {
            Ok(mut stream) => stream.next().unwrap().unwrap_err(),
            Err(error) => error,
        };
        assert!(error.reason().contains(callback), "{error}");
        assert_eq!(released.get(), usize::from(callback != "released"));
    }
}

#[test]
fn a_stream_gives_only_arrays_of_its_own_type_and_device() {
    let wide = Arc::new(Field::new("x", DataType::Int64, true));
    let narrow = || support::arrow::shared(&column(), &field("x", DataType::Int32));
    let mut exported =
        export_stream(DeviceArrayStream::new(wide, DLDeviceType::CPU, std::iter::once_with(move || Ok(narrow()))))
            .unwrap();
    let mut array = ArrowArray::empty();
    // SAFETY: a live stream, and a struct to fill.
    let code = unsafe { (exported.get_next.unwrap())(&raw mut exported, &raw mut array) };
    assert!(code != 0 && array.release.is_none(), "a consumer would read int32 as int64");
    // SAFETY: our export, released once.
    unsafe { (exported.release.unwrap())(&raw mut exported) };

    let own = field("x", DataType::Int32);
    let item = support::arrow::shared(&column(), &own);
    let mut stream = DeviceArrayStream::new(own, DLDeviceType::CUDA, std::iter::once(Ok(item)));
    assert_eq!(stream.next().unwrap().unwrap_err().kind(), ErrorKind::Device);
}

#[test]
fn record_batches_go_through_streams_unchanged() {
    let rows = RecordBatch::from(batch());
    let item = DeviceArray::from_record_batch(&rows).unwrap();
    let own = item.field().clone();
    assert_eq!(item.columns(), rows.schema().fields().as_ref() as &[Arc<Field>]);
    let mut exported = export_device_stream(DeviceArrayStream::new(own, DLDeviceType::CPU, std::iter::once(Ok(item))));
    // SAFETY: our export, moved.
    let imported = unsafe { DeviceArrayStream::import_device(&raw mut exported, release_directly) }.unwrap();
    let items: Vec<_> = imported.map(|item| RecordBatch::from(item.unwrap().to_arrow().unwrap().as_struct())).collect();
    assert_eq!(items, [rows]);
}
