//! Is memory of several parts written when each part is?

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

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn memory_of_several_parts_is_written_when_each_is() {
    let current = CudaDevice::get(0).unwrap().enter().unwrap();
    let [first, second, reader] = [(); 3].map(|()| PooledStream::idle(&current).unwrap());
    let parts = [written(&current, &first), written(&current, &second)];
    let joined = Readiness::joined(parts.iter().map(|(_, _, readiness)| readiness.clone())).unwrap().unwrap();
    joined.wait_in(&current, reader.stream(), Wait::DlpackStream).unwrap();
    let target = allocate_scratch(&current, BYTES, reader.stream()).unwrap();
    for (_, block, _) in &parts {
        // SAFETY: both have so many bytes until the host has waited for the copy. The simulated driver reports a read
        // that nothing orders behind the write.
        unsafe { current.copy_on_device(target.start(), block.start(), BYTES, reader.stream()) }.unwrap();
    }
    settle(&current, reader.stream()).unwrap();
    assert_eq!(joined.0.parts.len(), 2);
}
