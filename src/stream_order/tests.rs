//! Is memory of several parts written when each part is, and who releases what is done?

use std::ffi::{CStr, c_char};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::cuda::DeviceBuffer;
use crate::ffi::dlpack::DLDeviceType;

const BYTES: usize = 1 << 12;

/// A block whose write `writer` has just started.
fn written(current: &Current, writer: &PooledStream) -> (DeviceBuffer, DeviceBuffer, Readiness) {
    let stream = writer.stream();
    let source = allocate_scratch(current, BYTES, stream).unwrap();
    let block = allocate_scratch(current, BYTES, stream).unwrap();
    // SAFETY: both have so many bytes, and are freed behind the copy.
    unsafe { current.copy_on_device(block.start(), source.start(), BYTES, stream) }.unwrap();
    let device = Device::new(DLDeviceType::CUDA, 0);
    let ready = Ready::Own(Event::record(current, stream).unwrap());
    (source, block, Readiness::new(device, Some(ready), Vec::new()))
}

/// Reads the blocks of parts behind the write of the whole. The simulated driver reports a read that nothing orders behind the write.
/// The caller waits for the reads, and keeps where they write to until then.
fn read_behind(
    current: &Current,
    whole: &Readiness,
    parts: &[(DeviceBuffer, DeviceBuffer, Readiness)],
    reader: Stream,
) -> DeviceBuffer {
    whole.wait_in(current, reader, Wait::DlpackStream).unwrap();
    let target = allocate_scratch(current, BYTES, reader).unwrap();
    for (_, block, _) in parts {
        // SAFETY: both have so many bytes until the host has waited for the copy.
        unsafe { current.copy_on_device(target.start(), block.start(), BYTES, reader) }.unwrap();
    }
    target
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn a_part_that_is_written_again_leaves_the_others_in_order() {
    let current = CudaDevice::get(0).unwrap().enter().unwrap();
    let [first, second, third, writer, reader] = [(); 5].map(|()| PooledStream::idle(&current).unwrap());
    let parts = [&first, &second, &third].map(|stream| written(&current, stream));
    let [one, two, three] = parts.each_ref().map(|(_, _, readiness)| readiness.clone());
    let pair = Readiness::joined([one.clone(), two]).unwrap().unwrap();
    let all = Readiness::joined([pair.clone(), three]).unwrap().unwrap();
    let (source, block, _) = &parts[0];
    one.wait_in(&current, writer.stream(), Wait::DlpackStream).unwrap();
    // SAFETY: both have so many bytes until the host has waited for the reads, which come after.
    unsafe { current.copy_on_device(block.start(), source.start(), BYTES, writer.stream()) }.unwrap();
    one.written_again(&current, writer.stream(), Wait::OutputWritten).unwrap();
    let readers = [reader, PooledStream::idle(&current).unwrap()];
    let _pair = read_behind(&current, &pair, &parts[..2], readers[0].stream());
    let _all = read_behind(&current, &all, &parts, readers[1].stream());
    readers.iter().for_each(|reader| settle(&current, reader.stream()).unwrap());
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn memory_of_several_parts_is_written_when_each_is() {
    let current = CudaDevice::get(0).unwrap().enter().unwrap();
    let [first, second, reader] = [(); 3].map(|()| PooledStream::idle(&current).unwrap());
    let parts = [written(&current, &first), written(&current, &second)];
    let joined = Readiness::joined(parts.iter().map(|(_, _, readiness)| readiness.clone())).unwrap().unwrap();
    let _target = read_behind(&current, &joined, &parts, reader.stream());
    settle(&current, reader.stream()).unwrap();
    assert_eq!(joined.0.parts.len(), 2);
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn threads_apart_from_the_interpreter_call_no_owner() {
    // SAFETY: each test of CUDA has a process of its own, which has no other thread yet.
    unsafe { std::env::set_var("ARROW_DLPACK_REAPER", "0") };
    let current = CudaDevice::get(0).unwrap().enter().unwrap();
    let stream = PooledStream::idle(&current).unwrap();
    let (_source, _block, readiness) = written(&current, &stream);
    let released = Arc::new(AtomicBool::new(false));
    let owner = Arc::clone(&released);
    readiness.used_by(&current, stream.stream()).unwrap();
    readiness.release(move || owner.store(true, Ordering::Release));
    settle(&current, stream.stream()).unwrap();
    let apart = std::thread::spawn(|| {
        stay_apart();
        drain();
        look();
    });
    apart.join().unwrap();
    assert!(!released.load(Ordering::Acquire));
    drain();
    assert!(released.load(Ordering::Acquire));
}

/// A driver that keeps callers of a function, the simulated one; `None` for another, which cannot be asked to.
struct Holds(libloading::Library);

impl Holds {
    fn of_driver() -> Option<Self> {
        // SAFETY: the driver's library may be loaded at any time.
        let library = unsafe { libloading::Library::new("libcuda.so.1") }.unwrap();
        // SAFETY: only looked for.
        let is_simulated = unsafe { library.get::<unsafe extern "C" fn()>(b"simulated_cuda_hold\0") }.is_ok();
        is_simulated.then_some(Self(library))
    }

    /// Keeps callers of this function in the driver; `None` lets them go.
    fn hold(&self, function: Option<&CStr>) {
        // SAFETY: the simulated driver has this function, of this type.
        let hold = unsafe { self.0.get::<unsafe extern "C" fn(*const c_char)>(b"simulated_cuda_hold\0") }.unwrap();
        // SAFETY: NULL, or a string that lives as long as the call.
        unsafe { hold(function.map_or(std::ptr::null(), CStr::as_ptr)) };
    }

    fn wait_for_caller(&self) {
        // SAFETY: the simulated driver has this function, of this type.
        let held = unsafe { self.0.get::<unsafe extern "C" fn() -> u64>(b"simulated_cuda_held\0") }.unwrap();
        // SAFETY: takes nothing.
        while unsafe { held() } == 0 {
            std::thread::yield_now();
        }
    }
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn a_record_before_is_not_taken_for_the_one_that_is_made() {
    let Some(driver) = Holds::of_driver() else { return };
    let current = CudaDevice::get(0).unwrap().enter().unwrap();
    let stream = PooledStream::idle(&current).unwrap();
    let event = Event::record(&current, stream.stream()).unwrap();
    settle(&current, stream.stream()).unwrap();
    driver.hold(Some(c"cuEventRecord"));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let current = CudaDevice::get(0).unwrap().enter().unwrap();
            event.record_again(&current, stream.stream()).unwrap();
        });
        driver.wait_for_caller();
        // The driver tells of the record before.
        let told = event.is_complete_here();
        driver.hold(None);
        assert_eq!(told, Ok(true));
    });
    assert!(!event.is_known_complete());
}
