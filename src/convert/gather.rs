//! Gathers strided elements into contiguous memory.

use std::mem::MaybeUninit;

use smallvec::SmallVec;

use super::rounds::{in_rounds, look_for_signals};
use crate::alloc::HostBuffer;
use crate::copy_log::{self, Copied};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::{Dims, row_major_strides};
use crate::tensor::Tensor;

/// Copies a host tensor into new memory, row-major and aligned. `why` goes to the copy log.
///
/// # Errors
/// If the memory is not the host's, or the copy cannot be allocated.
pub(crate) fn compact(tensor: &Tensor, why: &str) -> Result<Tensor> {
    if tensor.device() != Device::CPU {
        return Err(Error::new(ErrorKind::Device, format!("the tensor is on {}", tensor.device())));
    }
    let itemsize = tensor.dtype().itemsize();
    let bytes = tensor.len().checked_mul(itemsize).ok_or_else(|| {
        Error::new(ErrorKind::Memory, format!("a copy of shape {:?} is larger than memory can be", tensor.shape()))
    })?;
    let mut buffer = HostBuffer::uninitialised(bytes)?;
    if !tensor.is_empty() {
        gather_elements(tensor, buffer.as_uninit_mut())?;
        copy_log::record(|| {
            let what = format!("tensor of {} {:?}", tensor.dtype(), tensor.shape());
            Copied { what, why: why.to_owned(), bytes }
        });
    }
    let shape = Dims::from_slice(tensor.shape());
    let strides = row_major_strides(&shape)?;
    // SAFETY: `gather_elements` wrote every element; an empty tensor has none.
    let copy = unsafe { Tensor::from_host_buffer(buffer, tensor.dtype(), shape, strides, tensor.field().cloned()) }?;
    Ok(copy.with_codes_of(tensor))
}

/// Copies the elements of a host tensor to `out`, which has room for all of them, in row-major order.
///
/// # Errors
/// [`crate::ErrorKind::Interrupted`] when a signal's handler raises.
pub(super) fn gather_elements(tensor: &Tensor, out: &mut [MaybeUninit<u8>]) -> Result<()> {
    if tensor.is_empty() {
        return Ok(());
    }
    let axes = merged_axes(tensor);
    match tensor.dtype().itemsize() {
        1 => gather::<1>(tensor, &axes, out),
        2 => gather::<2>(tensor, &axes, out),
        4 => gather::<4>(tensor, &axes, out),
        8 => gather::<8>(tensor, &axes, out),
        _ => gather::<16>(tensor, &axes, out),
    }
}

/// Elements of a run that is gathered in rounds; shorter runs are counted together.
const LONG: usize = 1 << 16;

/// An extent and the bytes from one index to the next.
#[derive(Clone, Copy)]
struct Axis {
    extent: usize,
    step: isize,
}

/// Returns the tensor's axes, slowest first, with contiguous neighbours merged.
fn merged_axes(tensor: &Tensor) -> SmallVec<[Axis; 4]> {
    let itemsize = isize::try_from(tensor.dtype().itemsize()).unwrap_or(1);
    let mut axes: SmallVec<[Axis; 4]> = SmallVec::new();
    for (extent, stride) in tensor.shape().iter().zip(tensor.strides()) {
        // A tensor's byte span fits the address space, and so does each step that it takes.
        let (Ok(extent), Ok(stride)) = (usize::try_from(*extent), isize::try_from(*stride)) else { continue };
        let axis = Axis { extent, step: stride.wrapping_mul(itemsize) };
        match axes.last_mut() {
            _ if extent == 1 => {}
            Some(outer) if isize::try_from(extent).is_ok_and(|n| axis.step.wrapping_mul(n) == outer.step) => {
                *outer = Axis { extent: outer.extent.saturating_mul(extent), step: axis.step };
            }
            _ => axes.push(axis),
        }
    }
    axes
}

/// Copies elements of `N` bytes in row-major order of the axes.
fn gather<const N: usize>(tensor: &Tensor, axes: &[Axis], out: &mut [MaybeUninit<u8>]) -> Result<()> {
    let element = Axis { extent: 1, step: 0 };
    let (inner, outer) = axes.split_last().map_or((element, axes), |(inner, outer)| (*inner, outer));
    let mut counters: SmallVec<[usize; 4]> = SmallVec::from_elem(0, outer.len());
    let mut row = tensor.as_ptr().cast_const();
    let (elements, _) = out.as_chunks_mut::<N>();
    let mut short = 0_usize;
    for written in elements.chunks_mut(inner.extent.max(1)) {
        if written.len() > LONG {
            in_rounds(written.len(), N, |part| {
                let source = row.wrapping_offset(inner.step.wrapping_mul(part.start.cast_signed()));
                // SAFETY: the innermost axis has these elements from `row` on, all inside the tensor, and the output is fresh memory with
                // room for as many.
                unsafe { gather_run(source, inner.step, written.get_mut(part).unwrap_or(&mut [])) };
                Ok(())
            })?;
        } else {
            // SAFETY: the innermost axis has `extent` elements from `row` on, all inside the tensor, and the output is fresh memory with
            // room for as many.
            unsafe { gather_run(row, inner.step, written) };
            short += written.len();
            if short > LONG {
                look_for_signals(short * N)?;
                short = 0;
            }
        }
        for (axis, counter) in outer.iter().zip(&mut counters).rev() {
            *counter += 1;
            row = row.wrapping_offset(axis.step);
            if *counter < axis.extent {
                break;
            }
            row = row.wrapping_offset(axis.step.wrapping_mul(axis.extent.cast_signed()).wrapping_neg());
            *counter = 0;
        }
    }
    Ok(())
}

/// Copies elements of `N` bytes that lie `step` bytes apart.
///
/// # Safety
/// From `source` on there are as many elements of `N` bytes, `step` apart, as `out` has room for, which overlaps none of them.
unsafe fn gather_run<const N: usize>(source: *const u8, step: isize, out: &mut [[MaybeUninit<u8>; N]]) {
    if usize::try_from(step) == Ok(N) {
        // SAFETY: the elements are dense, as many as `out` has room for, and lie apart from it (`# Safety`).
        unsafe { out.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(source, out.len() * N) };
        return;
    }
    let mut source = source;
    for slot in out {
        // SAFETY: an element of the source (`# Safety`), `N` bytes; no alignment is assumed.
        *slot = unsafe { source.cast::<[MaybeUninit<u8>; N]>().read_unaligned() };
        source = source.wrapping_offset(step);
    }
}
