//! Slices of device memory of the crate `cudarc` as tensors, and tensors as its views.
//!
//! cudarc's safe layer is used here alone, under our guard of the current context. It knows one kind of memory, which its
//! `CudaSlice` owns: a tensor lends a slice that is never freed by cudarc.
#![allow(unsafe_code, reason = "hands device memory from one owner to another")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, CudaView, DevicePtr, DevicePtrMut};

use crate::cuda::{CudaDevice, Stream, require_primary};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result, catch_panic};
use crate::ffi::dlpack::DLDeviceType;
use crate::stream_order::Wait;
use crate::tensor::{Native, Tensor, dims_of};

impl Tensor {
    /// Returns a row-major, writable tensor over a slice of cudarc, without a copy. It is written when the work is done
    /// that the slice's stream has now, and work that cudarc has recorded for the slice on others. The slice is dropped
    /// behind the work that uses the tensor.
    ///
    /// # Errors
    /// If the shape does not have as many elements as the slice, the slice is of another context than its device's
    /// primary one, or the driver fails. The slice is dropped then.
    pub fn from_cuda_slice<T: Native>(slice: CudaSlice<T>, shape: &[usize]) -> Result<Self> {
        let device = require_primary(slice.context())?;
        let shape = dims_of(shape, slice.len())?;
        let current = device.enter()?;
        let stream = slice.stream().clone();
        let (start, read) = slice.device_ptr(&stream);
        drop(read);
        slice.context().check_err().map_err(failed)?;
        let data = usize::try_from(start).map_err(|_| Error::internal("an address beyond the address space"))?;
        let owner = Arc::new(SliceOwner { device, slice: Some(slice) });
        let (data, of) = (std::ptr::without_provenance_mut(data), Device::new(DLDeviceType::CUDA, device.ordinal()));
        // SAFETY: the slice has the shape's elements, of the dtype of `T`, in memory of the device, which is allocated when
        // the event below is complete. `owner` has the slice, so that nobody else writes to it.
        let tensor = unsafe { Self::from_raw_parts(data, of, T::DTYPE, &shape, None, owner, true) }?;
        if let Some(readiness) = tensor.readiness() {
            // SAFETY: a stream that is alive during the call, which keeps an event of it alone.
            readiness.record_written(unsafe { Stream::of_cudarc(&stream) })?;
        }
        drop(current);
        Ok(tensor)
    }

    /// Returns the elements of a row-major tensor as a slice of cudarc for work on `stream`, which waits until they are
    /// written. The tensor's memory is freed behind that work, and behind the last read on another stream: cudarc keeps
    /// one event for reads. Have `stream` join each further stream that reads the slice, or take a guard for each.
    ///
    /// # Errors
    /// If `T` is not the dtype's Rust type, the elements are strided or misaligned, not in memory of the stream's device,
    /// the stream is of another context than the device's primary one, or the driver fails.
    pub fn as_cuda_slice<T: Native>(&self, stream: &Arc<CudaStream>) -> Result<CudaSliceGuard<T>> {
        self.require_dtype(T::DTYPE)?;
        let device = require_primary(stream.context())?;
        let of_stream = Device::new(DLDeviceType::CUDA, device.ordinal());
        let readiness = self.readiness().filter(|_| self.device() == of_stream).ok_or_else(|| {
            let reason = format!("the tensor is on {}, and the stream of {of_stream}", self.device());
            Error::new(ErrorKind::Device, reason)
                .remedy_is("copy the tensor with transfer::tensor_to_device, or pass a stream of its device")
        })?;
        if !self.is_row_major() || !self.is_aligned() {
            return Err(Error::unsupported("the elements are strided or misaligned")
                .remedy_is("pass what Tensor::contiguous returns"));
        }
        let address = u64::try_from(self.as_ptr().addr()).map_err(|_| Error::internal("an address beyond 64 bits"))?;
        let _current = device.enter()?;
        // SAFETY: a stream that is alive during the call, which keeps nothing of it.
        readiness.wait_on_stream(of_stream, unsafe { Stream::of_cudarc(stream) }, Wait::DlpackStream)?;
        // cudarc panics if the driver refuses an event.
        let mut slice = catch_panic(|| {
            // SAFETY: `len` elements from the address on, of the type of the dtype, which the guard's tensor keeps alive.
            Ok(ManuallyDrop::new(unsafe { stream.upgrade_device_ptr::<T>(address, self.len()) }))
        })?;
        // Other streams wait for this event of cudarc's, because they do not know ours.
        drop(slice.device_ptr_mut(stream));
        let guard = CudaSliceGuard { slice, tensor: self.clone(), device };
        stream.context().check_err().map_err(failed)?;
        Ok(guard)
    }
}

/// A tensor's elements as a slice of cudarc. It keeps the tensor, and ends the use of its memory when it is dropped.
pub struct CudaSliceGuard<T> {
    /// Never dropped: that would free memory that is the tensor's.
    slice: ManuallyDrop<CudaSlice<T>>,
    /// Not a borrow: a guard that is forgotten keeps the memory, which work may still use.
    tensor: Tensor,
    device: &'static CudaDevice,
}

impl<T> CudaSliceGuard<T> {
    /// Returns the elements, to be read.
    #[must_use]
    pub fn view(&self) -> CudaView<'_, T> {
        self.slice.as_view()
    }
}

impl<T> Drop for CudaSliceGuard<T> {
    fn drop(&mut self) {
        // SAFETY: taken once, here.
        let slice = unsafe { ManuallyDrop::take(&mut self.slice) };
        let stream = slice.stream().clone();
        let (Ok(current), Some(readiness)) = (self.device.enter(), self.tensor.readiness()) else {
            // The driver is shutting down, or the memory is another process's: nothing is freed any more.
            std::mem::forget((slice, self.tensor.clone()));
            return;
        };
        // Makes the slice's stream wait for the work that cudarc has recorded on others, and leaves the memory.
        let _ = slice.leak();
        // SAFETY: a stream that is alive during the call, which keeps an event of it alone.
        let used = readiness.used_by(&current, unsafe { Stream::of_cudarc(&stream) });
        // If no event could be recorded, the memory is never freed: see `used_by`.
        drop(used);
    }
}

impl<T> fmt::Debug for CudaSliceGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaSliceGuard").field("tensor", &self.tensor).finish_non_exhaustive()
    }
}

/// A slice that is dropped under our guard of its context, on whichever thread that is.
struct SliceOwner<T> {
    device: &'static CudaDevice,
    slice: Option<CudaSlice<T>>,
}

impl<T> Drop for SliceOwner<T> {
    fn drop(&mut self) {
        match self.device.enter() {
            Ok(_current) => drop(self.slice.take()),
            // The driver is shutting down, or the memory is another process's.
            Err(_) => std::mem::forget(self.slice.take()),
        }
    }
}

/// Returns the error of a call that cudarc made for us, or kept from an earlier one.
fn failed(error: cudarc::driver::DriverError) -> Error {
    Error::new(ErrorKind::Device, format!("cudarc reports that a call of the driver failed: {error}"))
        .caused_by(Arc::new(error))
}
