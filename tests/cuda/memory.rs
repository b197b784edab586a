//! Where the memory of results comes from, as callers in Rust say it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arrow_array::BooleanArray;
use arrow_dlpack::cuda::{Allocated, Allocator, AllocatorError, MemorySource, Stream as Named, allocate_from};
use arrow_dlpack::stream_order::{MemoryStatistics, collect, empty_cache, memory_stats};
use arrow_dlpack::transfer::{Transfer, array_to_device, tensor_to_device};
use arrow_dlpack::{Conversion, Device, DeviceArray, ErrorKind, Tensor};
use arrow_schema::DataType;

use crate::support::arrow::{field, shared};
use crate::support::cuda::{self, Busy, Stream};

const ROWS: usize = 1000;

/// An allocator whose memory is that of a stream of its own, which is still writing it.
#[derive(Debug)]
struct Own {
    stream: Named,
    given: Mutex<Vec<(usize, usize)>>,
    asked: AtomicUsize,
    /// Its answer instead of memory.
    error: Option<AllocatorError>,
}

// SAFETY: memory of the driver's, each given once; what writes it is on the stream that is returned.
unsafe impl Allocator for Own {
    fn allocate(&self, device: i32, bytes: usize, _: Named) -> Result<Allocated, AllocatorError> {
        assert_eq!(device, 0);
        self.asked.fetch_add(1, Ordering::Relaxed);
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let address = cuda::allocate(bytes) as usize;
        // Who had it before is still at it.
        let work = Stream(std::ptr::without_provenance_mut(self.stream.number()));
        cuda::fill(address as u64, 9, bytes, work);
        self.given.lock().unwrap().push((address, bytes));
        Ok(Allocated::new(address, self.stream))
    }

    fn deallocate(&self, device: i32, address: usize, bytes: usize) {
        assert_eq!(device, 0);
        let mut given = self.given.lock().unwrap();
        let place = given.iter().position(|given| *given == (address, bytes)).unwrap();
        given.swap_remove(place);
        cuda::free(address as u64);
    }
}

impl Own {
    fn new(stream: Stream, error: Option<AllocatorError>) -> Arc<Self> {
        Arc::new(Self { stream: stream.named(), given: Mutex::default(), asked: AtomicUsize::default(), error })
    }
}

/// A column of the device that a kernel has to unpack.
fn bools() -> DeviceArray {
    let bools: BooleanArray = (0..ROWS).map(|row| Some(row % 3 == 0)).collect();
    let array = shared(&bools, &field("x", DataType::Boolean));
    array_to_device(&array, &Transfer::to("cuda:0".parse().unwrap(), "a test")).unwrap()
}

fn expect(tensor: &Tensor) {
    let host = tensor_to_device(tensor, &Transfer::to(Device::CPU, "a test")).unwrap();
    // SAFETY: so many bytes of the host, which the tensor keeps.
    let found = unsafe { std::slice::from_raw_parts(host.as_ptr(), ROWS) };
    assert!(found.iter().enumerate().all(|(row, byte)| *byte == u8::from(row % 3 == 0)));
    cuda::expect_no_races();
}

/// What nothing uses any more goes back.
fn settle() -> MemoryStatistics {
    Stream::LEGACY.synchronize();
    // The reaper may be at it.
    collect();
    memory_stats().unwrap()
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn an_allocator_gives_results_and_gets_them_back() {
    cuda::use_device(0);
    let (array, work) = (bools(), Stream::new(false));
    let allocator = Own::new(work, None);
    let scope = allocate_from(MemorySource::Allocator(allocator.clone()));
    let tensor = Conversion::default().to_tensor(&array).unwrap();
    drop(scope);
    assert_eq!(*allocator.given.lock().unwrap(), [(tensor.as_ptr().addr(), ROWS)]);
    assert_eq!(memory_stats().unwrap().devices[0].allocators_used, ROWS as u64);
    expect(&tensor);
    drop(tensor);
    assert_eq!(settle().devices[0].allocators_used, 0);
    assert!(allocator.given.lock().unwrap().is_empty());
    // Without the scope nothing is asked for.
    expect(&Conversion::default().to_tensor(&array).unwrap());
    assert_eq!(allocator.asked.load(Ordering::Relaxed), 1);
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn work_on_the_stream_of_an_allocator_comes_first() {
    cuda::use_device(0);
    let (array, work) = (bools(), Stream::new(false));
    let allocator = Own::new(work, None);
    // So that kernels and memory are there: to load or to allocate them, a driver may wait for the device.
    expect(&Conversion::default().to_tensor(&array).unwrap());
    let busy = Busy::new(work);
    let _scope = allocate_from(MemorySource::Allocator(allocator));
    let tensor = Conversion::default().to_tensor(&array).unwrap();
    assert!(work.is_busy(), "the work has ended by now: the host waited, or it is too short");
    busy.end();
    expect(&tensor);
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn an_allocator_that_gives_nothing_is_an_error() {
    cuda::use_device(0);
    let (array, work) = (bools(), Stream::new(false));
    for (error, kind, asked) in [
        (AllocatorError::OutOfMemory("none".to_owned()), Some(ErrorKind::Memory), 2),
        (AllocatorError::Failed("none".to_owned()), Some(ErrorKind::Device), 1),
        (AllocatorError::Interrupted(Arc::new(std::io::Error::other("ended"))), Some(ErrorKind::Interrupted), 1),
        (AllocatorError::NotHere, None, 1),
    ] {
        let allocator = Own::new(work, Some(error));
        let _scope = allocate_from(MemorySource::Allocator(allocator.clone()));
        let made = Conversion::default().to_tensor(&array);
        assert_eq!(made.as_ref().err().map(arrow_dlpack::Error::kind), kind);
        let source = made.as_ref().err().and_then(std::error::Error::source).map(ToString::to_string);
        assert_eq!(source.is_some_and(|text| text == "ended"), kind == Some(ErrorKind::Interrupted));
        assert_eq!(allocator.asked.load(Ordering::Relaxed), asked);
        if let Ok(tensor) = made {
            expect(&tensor);
        }
    }
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn what_is_kept_is_given_back() {
    cuda::use_device(0);
    let array = bools();
    for source in [MemorySource::Pool, MemorySource::Unpooled] {
        let _scope = allocate_from(source);
        expect(&Conversion::default().to_tensor(&array).unwrap());
    }
    let found = settle();
    assert_eq!((found.devices[0].unpooled_used, found.page_locked.used), (0, 0));
    assert!(found.devices[0].unpooled_kept >= ROWS as u64 && found.page_locked.kept > 0);
    empty_cache().unwrap();
    let found = memory_stats().unwrap();
    assert_eq!((found.devices[0].unpooled_kept, found.page_locked.kept), (0, 0));
    drop(array);
    settle();
    empty_cache().unwrap();
    assert_eq!(memory_stats().unwrap().devices[0].pool_reserved, 0);
}
