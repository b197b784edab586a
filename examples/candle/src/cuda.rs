//! The same on a GPU: `cargo run --locked --features cuda`, on a machine with nvcc, which candle's kernels are compiled by.
//!
//! Each library frees the device memory that it allocated, and candle takes only a `CudaSlice` of its own: so each direction is one
//! copy on the device. `as_cuda_slice` makes candle's stream wait for the values, and dropping its guard frees the memory behind
//! the copy; `from_cuda_slice` records when the slice is written. Nothing waits on the host.

use arrow_dlpack::arrow_array::RecordBatch;
use arrow_dlpack::transfer::{Transfer, tensor_to_device};
use arrow_dlpack::{Conversion, DType, Device, NullPolicy, Scalar, Tensor};
use candle_core::op::BackpropOp;
use candle_core::{CudaDevice, CudaStorage, Storage};

use crate::Result;

/// Returns a float32 tensor of our own in device memory as a candle tensor.
fn to_candle(tensor: &Tensor, device: &CudaDevice) -> Result<candle_core::Tensor> {
    let shape =
        tensor.shape().iter().map(|&extent| usize::try_from(extent)).collect::<std::result::Result<Vec<_>, _>>()?;
    let lent = tensor.as_cuda_slice::<f32>(&device.cuda_stream())?;
    let mut owned = device.alloc_zeros::<f32>(tensor.len())?;
    device.memcpy_dtod(&lent.view(), &mut owned)?;
    // Freed behind the copy.
    drop(lent);
    let storage = Storage::Cuda(CudaStorage::wrap_cuda_slice(owned, device.clone()));
    Ok(candle_core::Tensor::from_storage(storage, shape, BackpropOp::none(), false))
}

/// Returns a float32 candle tensor in device memory as a tensor of our own.
fn from_candle(tensor: &candle_core::Tensor) -> Result<Tensor> {
    let tensor = tensor.contiguous()?;
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cuda(values) = &*storage else { return Err("the tensor is not on a GPU".into()) };
    let (start, len) = (layout.start_offset(), layout.shape().elem_count());
    let device = values.device.clone();
    let view = values.as_cuda_slice::<f32>()?.slice(start..start + len);
    let mut owned = device.alloc_zeros::<f32>(len)?;
    device.memcpy_dtod(&view, &mut owned)?;
    Ok(Tensor::from_cuda_slice(owned, layout.dims())?)
}

/// Packs a batch on the first GPU, computes with candle, and reads the result on the host.
pub(crate) fn round_trip(batch: &RecordBatch) -> Result<()> {
    let candle = candle_core::Device::new_cuda(0)?;
    let device = candle.as_cuda_device()?;
    let conversion = Conversion::default().dtype(DType::Float32).nulls(NullPolicy::Fill(Scalar::Float(0.0)));
    let matrix = conversion.device("cuda:0".parse::<Device>()?).to_tensor(batch)?;
    let doubled = (to_candle(&matrix, device)? * 2.0)?;
    let back = tensor_to_device(&from_candle(&doubled)?, &Transfer::to(Device::CPU, "the example reads it"))?;
    assert_eq!(back.as_slice::<f32>()?, [3.0, 6.0, 5.0, 0.0, 8.0, 10.0]);
    Ok(())
}
