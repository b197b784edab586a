//! Slices of the crate cudarc as tensors, and tensors as its views.

use std::sync::Arc;

use arrow_dlpack::cuda::Stream;
use arrow_dlpack::ffi::dlpack::DLDeviceType;
use arrow_dlpack::stream_order::{current_stream, stream_scope};
use arrow_dlpack::transfer::{Transfer, tensor_to_device};
use arrow_dlpack::{DType, Device, ErrorKind, Tensor};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream};

use crate::support::cuda;

fn context() -> Arc<CudaContext> {
    CudaContext::new(0).unwrap()
}

/// The host's copy of a tensor's elements.
fn values(tensor: &Tensor) -> Vec<f32> {
    let host = tensor_to_device(tensor, &Transfer::to(Device::CPU, "a test reads it")).unwrap();
    host.to_vec::<f32>().unwrap()
}

/// A tensor in memory of our pool.
fn to_device(tensor: &Tensor) -> Tensor {
    let device = Device::new(DLDeviceType::CUDA, 0);
    tensor_to_device(tensor, &Transfer::to(device, "a test needs it there")).unwrap()
}

/// Six numbers, whose write `stream` has just been given.
fn six(stream: &Arc<CudaStream>) -> CudaSlice<f32> {
    stream.clone_htod(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap()
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn the_default_streams_of_cudarc_are_ours() {
    let context = context();
    let streams = [context.default_stream(), context.per_thread_stream(), context.new_stream().unwrap()];
    let [legacy, per_thread, own] = streams.each_ref().map(|stream| {
        // SAFETY: alive until the end of the test.
        unsafe { Stream::of_cudarc(stream) }
    });
    assert_eq!((legacy, per_thread), (Stream::LEGACY, Stream::PER_THREAD));
    assert_eq!(own.number(), streams[2].cu_stream().addr());
    let _scope = stream_scope(own);
    assert_eq!(current_stream(), own);
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn a_slice_is_a_tensor_over_its_memory_behind_its_writes() {
    let context = context();
    for stream in [context.default_stream(), context.new_stream().unwrap()] {
        let slice = six(&stream);
        let tensor = Tensor::from_cuda_slice(slice, &[2, 3]).unwrap();
        assert_eq!((tensor.dtype(), tensor.shape(), tensor.is_writable()), (DType::Float32, &[2, 3][..], true));
        assert_eq!(values(&tensor.slice(1, 1).unwrap()), [4.0, 5.0, 6.0]);
        drop(tensor);
        stream.synchronize().unwrap();
    }
    context.check_err().unwrap();
    cuda::expect_no_races();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn a_slice_that_another_stream_writes_is_waited_for() {
    let context = context();
    let (owner, writer) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let mut slice = six(&owner);
    writer.memcpy_htod(&[6.0_f32, 5.0, 4.0, 3.0, 2.0, 1.0], &mut slice).unwrap();
    let tensor = Tensor::from_cuda_slice(slice, &[6]).unwrap();
    assert_eq!(values(&tensor), [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
    drop(tensor);
    cuda::expect_no_races();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn a_tensor_is_lent_to_cudarc_and_freed_behind_its_work() {
    let context = context();
    let [producer, consumer, other] = [(); 3].map(|()| context.new_stream().unwrap());
    let column = to_device(&Tensor::from_vec(vec![1.0_f32, 2.0, 3.0, 4.0], &[4]).unwrap());
    let tensors = [Tensor::from_cuda_slice(six(&producer), &[6]).unwrap(), column];
    for tensor in tensors {
        let guard = tensor.as_cuda_slice::<f32>(&consumer).unwrap();
        assert_eq!(guard.view().len(), tensor.len());
        drop(tensor);
        // On the named stream, then on one that only cudarc knows of, and that has not waited for the producer's: the last
        // read is the one that cudarc keeps the event of.
        let second = consumer.clone_dtod(&guard.view().slice(1..3)).unwrap();
        let first = other.clone_dtod(&guard.view()).unwrap();
        // Both copies may still run, and the memory is nobody's from here on.
        drop(guard);
        assert_eq!(other.clone_dtoh(&first).unwrap()[..4], [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(consumer.clone_dtoh(&second).unwrap(), [2.0, 3.0]);
    }
    context.check_err().unwrap();
    cuda::expect_no_races();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn what_cudarc_lent_returns_to_cudarc() {
    let context = context();
    let stream = context.new_stream().unwrap();
    let tensor = Tensor::from_cuda_slice(six(&stream), &[6]).unwrap();
    let guard = tensor.as_cuda_slice::<f32>(&stream).unwrap();
    let copy = stream.clone_dtod(&guard.view()).unwrap();
    drop((guard, tensor));
    assert_eq!(stream.clone_dtoh(&copy).unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    cuda::expect_no_races();
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn slices_and_streams_of_other_contexts_are_refused() {
    let primary = context();
    let slice = six(&primary.default_stream());
    let tensor = Tensor::from_cuda_slice(slice, &[6]).unwrap();
    let (other, slice) = cuda::in_another_context(|| {
        // SAFETY: the context that was just made of device 0; nobody destroys it.
        let other = unsafe { CudaContext::from_raw_context(0, 0, cuda::current_context().cast()) }.unwrap();
        let slice = six(&other.default_stream());
        other.synchronize().unwrap();
        (other, slice)
    });
    // Whether a driver destroys a context that has memory is not what is asked here.
    std::mem::forget(other.clone());
    let refusals = [
        tensor.as_cuda_slice::<f32>(&other.default_stream()).map(drop).unwrap_err(),
        Tensor::from_cuda_slice(slice, &[6]).unwrap_err(),
    ];
    for error in refusals {
        assert_eq!(error.kind(), ErrorKind::Device);
        assert!(error.to_string().contains("not the primary one of cuda:0"), "{error}");
    }
}

#[test]
#[ignore = "needs a CUDA driver: make test-cuda"]
fn what_does_not_fit_is_refused_and_freed() {
    let context = context();
    let stream = context.default_stream();
    assert_eq!(Tensor::from_cuda_slice(six(&stream), &[7]).unwrap_err().kind(), ErrorKind::Argument);
    let tensor = Tensor::from_cuda_slice(six(&stream), &[2, 3]).unwrap();
    assert_eq!(tensor.as_cuda_slice::<i32>(&stream).map(drop).unwrap_err().kind(), ErrorKind::Argument);
    let host = Tensor::from_vec(vec![1.0_f32], &[1]).unwrap();
    let error = host.as_cuda_slice::<f32>(&stream).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Device);
    assert!(error.to_string().contains("the tensor is on cpu, and the stream of cuda:0"), "{error}");
    context.check_err().unwrap();
}
