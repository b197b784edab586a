//! Copies strided tensors on their device: into row-major memory, or into dense columns.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{LINE, device_of};
use crate::convert::compact;
use crate::cuda::{StridedAxis, is_cuda};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::TransferStep;
use crate::spec::{Dims, row_major_strides};
use crate::stream_order::{self, Wait, allocate};
use crate::tensor::{Tensor, TensorParts};
use crate::transfer::{OwnBuffer, device_address, host_address, require_free, written};

impl Tensor {
    /// Returns the tensor itself if its elements are row-major and aligned, else a copy that is: in host memory, or on the CUDA device that
    /// the memory belongs to, also that of page-locked and managed memory, where a kernel on this thread's stream makes it.
    ///
    /// # Errors
    /// If elements are strided on a device that CUDA does not reach, or the copy cannot be allocated or made.
    ///
    /// ```
    /// use arrow_dlpack::Tensor;
    ///
    /// let tensor = Tensor::from_vec(vec![1.0, 2.0, 3.0, 4.0], &[4])?;
    /// assert_eq!(tensor.contiguous()?.as_ptr(), tensor.as_ptr());
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn contiguous(&self) -> Result<Self> {
        if self.is_row_major() && self.is_aligned() {
            return Ok(self.clone());
        }
        moved(self, "strided elements made contiguous")
    }
}

/// Copies a tensor of any strides into new memory of the host or of its CUDA device, row-major. `why` goes to the copy log.
///
/// # Errors
/// As [`gather`], or if an allocation on the host fails.
pub(crate) fn moved(tensor: &Tensor, why: &str) -> Result<Tensor> {
    if tensor.device().is_cpu() { compact(tensor, why) } else { gather(tensor, why) }
}

/// Copies a tensor of any strides and alignment into new memory of its device, row-major, on this thread's stream. `why` goes to the
/// copy log.
///
/// # Errors
/// If CUDA does not reach the device, the stream is another device's or under capture, the tensor has more than 10 dimensions that are
/// not contiguous, its memory is not the device's, or the driver fails or is out of memory.
fn gather(tensor: &Tensor, why: &str) -> Result<Tensor> {
    let strides = row_major_strides(&Dims::from_slice(tensor.shape()))?;
    copied(tensor, strides, tensor.nbytes(), why)
}

/// Copies a matrix into new memory of its device in which each column is dense and starts on a cache line.
///
/// # Errors
/// As [`gather`], and if the tensor has other dimensions.
pub(crate) fn split_columns(matrix: &Tensor, why: &str) -> Result<Tensor> {
    let &[rows, columns] = matrix.shape() else {
        return Err(Error::internal(format!("a matrix of shape {:?}", matrix.shape())));
    };
    let itemsize = matrix.dtype().itemsize();
    let count = |extent: i64| usize::try_from(extent).ok();
    let pitch = count(rows).and_then(|rows| rows.checked_mul(itemsize)?.checked_next_multiple_of(LINE));
    let bytes = pitch.zip(count(columns)).and_then(|(pitch, columns)| pitch.checked_mul(columns));
    let stride = pitch.and_then(|pitch| i64::try_from(pitch.checked_div(itemsize)?).ok());
    let (Some(bytes), Some(stride)) = (bytes, stride) else {
        let reason = format!("a copy of shape {:?} is larger than memory can be", matrix.shape());
        return Err(Error::new(ErrorKind::Memory, reason));
    };
    copied(matrix, Dims::from_slice(&[1, stride]), bytes, why)
}

/// Copies a tensor into `bytes` bytes of new memory, with these strides in elements.
fn copied(tensor: &Tensor, strides: Dims, bytes: usize, why: &str) -> Result<Tensor> {
    let Some(source) = tensor.readiness().filter(|_| is_cuda(tensor.device())) else {
        let error =
            Error::new(ErrorKind::Device, format!("the elements are on {}, where none are gathered", tensor.device()));
        return Err(error.remedy_is(tensor.device().host_remedy()));
    };
    if tensor.is_empty() {
        return Ok(tensor.clone());
    }
    let (axes, itemsize) = (axes(tensor, &strides)?, tensor.dtype().itemsize() as u64);
    let (before, span) = tensor.span().ok_or_else(|| Error::internal("the tensor is larger than memory can be"))?;
    let stream = stream_order::current_stream();
    let current = stream_order::enter(tensor.device())?;
    require_free(&current, stream)?;
    stream_order::load_kernels(&current)?;
    let start = tensor.as_ptr().addr();
    current.check_memory(start.wrapping_sub(before), span, tensor.device())?;
    let buffer = allocate(&current, bytes, stream)?;
    let out = buffer.start();
    source.wait_in(&current, stream, Wait::KernelSource)?;
    // SAFETY: `check_memory` has checked the span of all elements, whose memory is freed behind the kernel in stream order; the output is
    // new memory with room for the elements at its strides, which the callers chose so that none overlap.
    let started = unsafe { current.copy_strided(&axes, itemsize, (device_address(start)?, out), stream) };
    // Recorded after an error as well: a kernel that was launched reads the elements.
    let used = source.used_by(&current, stream);
    started.and(used)?;
    let made = written(device_of(&current), &current, stream, Wait::KernelWritten)?;
    TransferStep::within(tensor.device()).record(
        || format!("tensor of {} {:?}", tensor.dtype(), tensor.shape()),
        why,
        tensor.nbytes(),
    );
    let parts = TensorParts {
        data: std::ptr::without_provenance_mut(host_address(out)?),
        device: made.device(),
        strides,
        owner: Arc::new(OwnBuffer::new(buffer, made.clone())),
        readiness: Some(made),
        read_only: false,
        copied: true,
        ..tensor.parts()
    };
    // SAFETY: the kernel writes every element at its stride, and readers wait for it by `readiness`.
    let copy = unsafe { Tensor::from_parts(parts) }?;
    Ok(copy.with_codes_of(tensor))
}

/// Returns the tensor's dimensions, with their strides in bytes in the tensor and in the copy.
fn axes(tensor: &Tensor, strides: &[i64]) -> Result<SmallVec<[StridedAxis; 4]>> {
    let itemsize = i64::try_from(tensor.dtype().itemsize()).unwrap_or(1);
    let axis = |((extent, step), out_step): ((&i64, &i64), &i64)| {
        let bytes = |stride: &i64| stride.checked_mul(itemsize);
        let (step, out_step) = bytes(step).zip(bytes(out_step))?;
        Some(StridedAxis { extent: u64::try_from(*extent).ok()?, step, out_step })
    };
    let axes = tensor.shape().iter().zip(tensor.strides()).zip(strides).map(axis);
    axes.collect::<Option<_>>().ok_or_else(|| Error::internal("a stride beyond the address space"))
}
