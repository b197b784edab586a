//! What waits for what, and what is released when.

use std::ffi::c_void;
use std::ptr::null;

use arrow_dlpack::arrow::export_device_array;
use arrow_dlpack::dlpack::{export_versioned, import_versioned};
use arrow_dlpack::ffi::arrow_device::{ArrowArray, ArrowDeviceArray};
use arrow_dlpack::stream_order::host_waits;
use arrow_dlpack::transfer::copy_on_device;
use arrow_dlpack::{Conversion, CopyMode, DeviceArray, ErrorKind, Tensor, to_arrow};
use arrow_schema::DataType;

use crate::support::Count;
use crate::support::arrow::{field, release};
use crate::support::cuda::{self, Busy, Stream};

const ROWS: usize = 1 << 16;

/// A producer's column of bytes on the device, and the event that says when it is written.
struct Column {
    memory: u64,
    event: *mut c_void,
    /// What the C struct points to.
    buffers: [*const c_void; 2],
    released: Count,
}

impl Column {
    /// A column that `stream` fills with this value, behind what the stream has to do.
    fn new(value: u8, stream: Stream) -> Box<Self> {
        let memory = cuda::allocate(ROWS);
        cuda::fill(memory, value, ROWS, stream);
        let event = cuda::record(stream);
        let values: *const c_void = std::ptr::without_provenance(memory as usize);
        Box::new(Self { memory, event, buffers: [null(), values], released: Count::default() })
    }

    /// The column, lent until its release.
    fn import(&mut self) -> DeviceArray {
        unsafe extern "C" fn released(array: *mut ArrowArray) {
            // SAFETY: the struct is being released, by whoever owns it.
            let array = unsafe { &mut *array };
            array.release = None;
            // SAFETY: `private_data` is a count that was leaked for this call.
            unsafe { Box::from_raw(array.private_data.cast::<Count>()) }.add();
        }
        let array = ArrowArray {
            length: ROWS as i64,
            null_count: 0,
            n_buffers: 2,
            buffers: self.buffers.as_mut_ptr(),
            release: Some(released),
            private_data: Box::into_raw(Box::new(self.released.clone())).cast(),
            ..ArrowArray::empty()
        };
        let sync_event = (&raw mut self.event).cast();
        let mut device = ArrowDeviceArray { array, device_id: 0, device_type: 2, sync_event, reserved: [7; 3] };
        // SAFETY: a valid struct; the column outlives the array.
        unsafe { DeviceArray::import_device(&raw mut device, field("x", DataType::UInt8)) }.unwrap()
    }

    fn free(&self) {
        cuda::destroy(self.event);
        cuda::free(self.memory);
    }
}

fn expect(tensor: &Tensor, value: u8, stream: Stream) {
    let found = cuda::read(tensor.as_ptr().addr() as u64, ROWS, stream);
    assert!(found.iter().all(|byte| *byte == value), "another value than {value}");
    cuda::expect_no_races();
}

/// Two streams that wait for nothing but what they are told.
fn streams() -> (Stream, Stream) {
    cuda::use_device(0);
    (Stream::new(false), Stream::new(false))
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn a_named_stream_waits_for_the_producers_event() {
    let (producer, consumer) = streams();
    let mut column = Column::new(3, producer);
    let before = cuda::host_waits();
    let tensor = Conversion::default().copy(CopyMode::Never).to_tensor(&column.import()).unwrap();
    assert_eq!(tensor.as_ptr().addr() as u64, column.memory);
    tensor.readiness().unwrap().make_stream_wait(Some(consumer.named())).unwrap();
    assert_eq!((cuda::host_waits(), host_waits()), (before, 0));
    expect(&tensor, 3, consumer);
    drop(tensor);
    producer.synchronize();
    column.free();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn an_exported_array_carries_the_event() {
    let (producer, consumer) = streams();
    let mut column = Column::new(4, producer);
    let tensor = Conversion::default().to_tensor(&column.import()).unwrap();
    let array = to_arrow(&tensor, None, CopyMode::Never).unwrap();
    let mut exported = export_device_array(&array).unwrap().into_raw();
    assert_eq!((exported.device_type, exported.device_id, exported.reserved), (2, 0, [0; 3]));
    consumer.wait(exported.sync_event);
    expect(&tensor, 4, consumer);
    release(&mut exported.array);
    drop((tensor, array));
    producer.synchronize();
    column.free();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn the_host_waits_where_it_is_asked_to() {
    let (producer, consumer) = streams();
    let mut column = Column::new(5, producer);
    let tensor = Conversion::default().to_tensor(&column.import()).unwrap();
    tensor.readiness().unwrap().synchronize().unwrap();
    expect(&tensor, 5, consumer);
    drop(tensor);
    column.free();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn a_tensor_of_dlpack_is_written_behind_the_stream_that_its_producer_was_given() {
    let (producer, consumer) = streams();
    let mut column = Column::new(6, producer);
    let lent = Conversion::default().to_tensor(&column.import()).unwrap();
    // The producer waits, on the stream that it is given, for what it has to do.
    let given = Stream::new(false);
    lent.readiness().unwrap().make_stream_wait(Some(given.named())).unwrap();
    let managed = export_versioned(&lent, false).unwrap().into_raw();
    // SAFETY: our own export.
    let tensor = unsafe { import_versioned(managed) }.unwrap();
    tensor.readiness().unwrap().record_written(given.named()).unwrap();
    tensor.readiness().unwrap().make_stream_wait(Some(consumer.named())).unwrap();
    expect(&tensor, 6, consumer);
    drop((tensor, lent));
    producer.synchronize();
    column.free();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn a_copy_on_the_device_is_written_behind_the_stream_that_makes_it() {
    let (producer, consumer) = streams();
    let mut column = Column::new(2, producer);
    let tensor = Conversion::default().to_tensor(&column.import()).unwrap();
    let copy = copy_on_device(&tensor, producer.named(), "wanted apart").unwrap();
    assert_ne!(copy.as_ptr().addr() as u64, column.memory);
    copy.readiness().unwrap().make_stream_wait(Some(consumer.named())).unwrap();
    expect(&copy, 2, consumer);
    drop((copy, tensor));
    producer.synchronize();
    column.free();
}

/// Lets go of a column that a stream still reads. What is lent is not released before that is done, and then when something
/// else is imported.
fn released_behind(consumer: Stream, name: bool, export: bool) {
    let producer = Stream::new(false);
    let mut column = Column::new(7, producer);
    producer.synchronize();
    let tensor = Conversion::default().to_tensor(&column.import()).unwrap();
    let managed = export.then(|| export_versioned(&tensor, false).unwrap().into_raw());
    tensor.readiness().unwrap().make_stream_wait(Some(consumer.named())).unwrap();
    let busy = Busy::new(consumer);
    let target = cuda::allocate(ROWS);
    if name {
        tensor.readiness().unwrap().record_stream(consumer.named()).unwrap();
    }
    cuda::copy(target, column.memory, ROWS, consumer);
    drop(tensor);
    if let Some(managed) = managed {
        // SAFETY: not deleted yet.
        let deleter = unsafe { managed.as_ref() }.deleter.unwrap();
        // SAFETY: not deleted yet; deleters may run anywhere.
        unsafe { deleter(managed.as_ptr()) };
    }
    let mut other = Column::new(8, producer);
    drop(Conversion::default().to_tensor(&other.import()).unwrap());
    assert_eq!(column.released.get(), 0, "released under a stream that reads it");
    busy.end();
    consumer.synchronize();
    for _ in 0..1000 {
        drop(Conversion::default().to_tensor(&other.import()).unwrap());
        if column.released.get() == 1 {
            break;
        }
    }
    assert_eq!(column.released.get(), 1, "not released");
    cuda::free(target);
    column.free();
    producer.synchronize();
    other.free();
    cuda::expect_no_races();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn what_was_lent_is_released_behind_blocking_streams() {
    cuda::use_device(0);
    released_behind(Stream::new(true), false, true);
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn what_a_stream_waits_for_is_released_behind_blocking_streams() {
    cuda::use_device(0);
    released_behind(Stream::new(true), false, false);
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn what_was_lent_is_released_behind_streams_that_were_named() {
    cuda::use_device(0);
    released_behind(Stream::new(false), true, true);
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn what_nobody_was_lent_is_released_at_once() {
    let (producer, _) = streams();
    let mut column = Column::new(9, producer);
    drop(Conversion::default().to_tensor(&column.import()).unwrap());
    assert_eq!(column.released.get(), 1);
    producer.synchronize();
    column.free();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn memory_that_is_not_what_it_is_said_to_be_is_refused() {
    let (producer, _) = streams();
    let mut column = Column::new(1, producer);
    let memory = column.memory;
    for (start, word) in [
        (std::ptr::from_ref(&memory).cast::<c_void>(), "said to be on cuda:0"),
        (std::ptr::without_provenance((memory as usize) + ROWS - 1), "beyond an allocation"),
    ] {
        column.buffers[1] = start;
        let error = Conversion::default().to_tensor(&column.import()).unwrap_err();
        assert_eq!((error.kind(), error.column()), (ErrorKind::Device, Some("x")));
        assert!(error.reason().contains(word), "{error}");
    }
    assert_eq!(column.released.get(), 2);
    producer.synchronize();
    column.free();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn streams_of_other_contexts_are_refused() {
    let (producer, _) = streams();
    let mut column = Column::new(1, producer);
    let tensor = Conversion::default().to_tensor(&column.import()).unwrap();
    let foreign = cuda::in_another_context(|| Stream::new(false));
    let error = tensor.readiness().unwrap().make_stream_wait(Some(foreign.named())).unwrap_err();
    assert!(error.reason().contains("primary context"), "{error}");
    // SAFETY: no handle.
    assert!(unsafe { arrow_dlpack::cuda::Stream::new(0) }.is_err());
    drop(tensor);
    producer.synchronize();
    column.free();
}
