//! [`Output`]: the caller's memory that a conversion writes into.

use std::marker::PhantomData;
use std::ops::Range;

use smallvec::SmallVec;

use super::{Native, Tensor};
use crate::cuda::is_cuda;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::spec::{Dims, row_major_strides};
use crate::stream_order::Readiness;

/// Memory that a conversion writes its result to: a strided tensor without overlapping elements, which nobody else uses
/// for `'a`. On CUDA, this thread's stream writes it.
#[derive(Debug)]
pub struct Output<'a> {
    data: *mut u8,
    device: Device,
    /// When the memory is written, if it is on a device.
    readiness: Option<Readiness>,
    dtype: DType,
    shape: Dims,
    strides: Dims,
    bytes: usize,
    memory: PhantomData<&'a mut [u8]>,
}

// SAFETY: the memory is borrowed exclusively, and holds plain numbers.
unsafe impl Send for Output<'_> {}
// SAFETY: a shared reference only gives its address.
unsafe impl Sync for Output<'_> {}

impl<'a> Output<'a> {
    /// Returns a slice as a row-major tensor of this shape.
    ///
    /// # Errors
    /// If the slice and the shape differ in their number of elements.
    ///
    /// ```
    /// use arrow_dlpack::Output;
    ///
    /// let mut memory = [0_f32; 6];
    /// assert_eq!(Output::from_slice(&mut memory, &[2, 3])?.shape(), [2, 3]);
    /// assert!(Output::from_slice(&mut memory, &[2, 4]).is_err());
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn from_slice<T: Native>(out: &'a mut [T], shape: &[usize]) -> Result<Self> {
        Self::of_elements(out, T::DTYPE, shape)
    }

    /// Like [`Output::from_slice`], for a result of bools. All that is written is true or false, even if the conversion fails.
    ///
    /// # Errors
    /// As [`Output::from_slice`].
    pub fn from_bools(out: &'a mut [bool], shape: &[usize]) -> Result<Self> {
        Self::of_elements(out, DType::Bool, shape)
    }

    /// Returns a slice of this dtype's elements as a row-major tensor.
    fn of_elements<T>(out: &'a mut [T], dtype: DType, shape: &[usize]) -> Result<Self> {
        let elements = shape.iter().try_fold(1_usize, |product, extent| product.checked_mul(*extent));
        let extents = shape.iter().map(|extent| i64::try_from(*extent).ok()).collect::<Option<Dims>>();
        let (Some(shape), true) = (extents, elements == Some(out.len())) else {
            return Err(Error::argument(format!("a slice of {} elements for shape {shape:?}", out.len())));
        };
        let strides = row_major_strides(&shape)?;
        let (bytes, data) = (size_of_val(out), out.as_mut_ptr().cast());
        let device = Device::CPU;
        Ok(Self { data, device, readiness: None, dtype, shape, strides, bytes, memory: PhantomData })
    }

    /// Returns the memory of a tensor.
    ///
    /// # Errors
    /// If the tensor is read-only, not aligned, or neither in host nor in CUDA device memory; or if its elements may
    /// overlap: a stride is 0, negative, or smaller than the extent inside it.
    ///
    /// # Safety
    /// For `'a`, nobody else reads or writes the tensor's elements, and they stay alive; on a device, but for work that the
    /// tensor's order knows of.
    pub unsafe fn from_tensor(tensor: &'a Tensor) -> Result<Self> {
        if !tensor.is_writable() {
            return Err(Error::argument("out is read-only, or cannot say that it is not")
                .remedy_is("pass a writable tensor of a library that speaks DLPack 1.0"));
        }
        let device = tensor.device();
        if !matches!(device.device_type(), DLDeviceType::CPU | DLDeviceType::CUDA | DLDeviceType::CUDA_MANAGED) {
            return Err(Error::new(ErrorKind::Device, format!("out is on {device}, where nothing is written"))
                .remedy_is("pass an output in host memory, or in that of the CUDA device that the data is on"));
        }
        if !tensor.is_aligned() {
            return Err(Error::argument(format!("out is not aligned for {}", tensor.dtype()))
                .remedy_is("pass memory that its library allocated for the dtype"));
        }
        let (shape, strides) = (tensor.shape(), tensor.strides());
        // Most outputs are one block of rows, and need no stride check.
        let is_block = tensor.is_row_major();
        if !is_block && !lie_apart(shape, strides) {
            return Err(Error::argument(format!(
                "out has strides {strides:?} for shape {shape:?}: its elements may overlap, or lie backwards"
            ))
            .remedy_is("pass a tensor without negative or zero strides"));
        }
        // Strides are positive, so no element is before the first.
        let bytes = if is_block { tensor.nbytes() } else { tensor.span().map_or(0, |(_, bytes)| bytes) };
        let (shape, strides) = (Dims::from_slice(shape), Dims::from_slice(strides));
        let (data, dtype, readiness) = (tensor.as_ptr(), tensor.dtype(), tensor.readiness().cloned());
        Ok(Self { data, device, readiness, dtype, shape, strides, bytes, memory: PhantomData })
    }

    /// Returns the dtype of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The extents.
    #[must_use]
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// Returns the strides, in elements; none is negative.
    #[must_use]
    pub fn strides(&self) -> &[i64] {
        &self.strides
    }

    /// Refuses memory that is not host memory.
    pub(crate) fn require_host(&self) -> Result<()> {
        if self.device.is_cpu() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Device, format!("out is on {}, and the data on the CPU", self.device))
            .remedy_is("pass an output in host memory, and copy it to the device afterwards"))
    }

    /// Returns when the memory is written, if it is on the device of `data`.
    ///
    /// # Errors
    /// If it is on another device, or starts between two complex elements, where kernels do not write.
    pub(crate) fn require_device(&self, data: Device) -> Result<&Readiness> {
        let itemsize = self.dtype.itemsize();
        if !self.shape.contains(&0) && !self.data.addr().is_multiple_of(itemsize) {
            return Err(Error::argument(format!("out is not aligned to the {itemsize} bytes of a {}", self.dtype))
                .remedy_is("pass an output whose memory starts at a whole element"));
        }
        match &self.readiness {
            Some(readiness) if is_cuda(data) && self.device.id() == data.id() => Ok(readiness),
            _ => Err(Error::new(ErrorKind::Device, format!("out is on {}, and the data on {data}", self.device))
                .remedy_is(
                    "pass an output on the device of the data, or copy the data to the device of the output first",
                )),
        }
    }

    /// Returns whether this is a matrix with dense columns but strided rows. A single row or column counts as either.
    pub(crate) fn is_column_major(&self) -> bool {
        matches!((&*self.shape, &*self.strides), (&[rows, columns], &[row, column])
            if (columns <= 1 || column != 1) && (rows <= 1 || row == 1))
    }

    /// Refuses another dtype or shape.
    pub(crate) fn require(&self, dtype: DType, shape: &[i64]) -> Result<()> {
        if self.dtype != dtype {
            return Err(Error::argument(format!("out is of {}, and the result of {dtype}", self.dtype))
                .remedy_is(Remedy::OutputDtype));
        }
        if *self.shape != *shape {
            return Err(Error::argument(format!(
                "out has shape {:?}, and the result {shape:?}",
                self.shape.as_slice()
            ))
            .remedy_is(Remedy::OutputShape));
        }
        Ok(())
    }

    /// Returns the address of the first element in host memory; see [`Output::require_host`].
    pub(crate) fn start(&mut self) -> *mut u8 {
        self.data
    }

    /// Returns the addresses from the first element to the end of the last.
    pub(crate) fn span(&self) -> Range<usize> {
        let start = self.data.addr();
        start..start.saturating_add(self.bytes)
    }
}

/// Returns whether each stride exceeds the reach of all smaller strides.
fn lie_apart(shape: &[i64], strides: &[i64]) -> bool {
    let axes = strides.iter().copied().zip(shape.iter().copied());
    let mut axes: SmallVec<[(i64, i64); 4]> = axes.filter(|(_, extent)| *extent > 1).collect();
    axes.sort_unstable();
    let mut reach = 1_i64;
    axes.into_iter().all(|(stride, extent)| {
        let apart = stride >= reach;
        reach = stride.saturating_mul(extent);
        apart
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::tensor::TensorParts;

    fn tensor(data: &mut [i32], at: usize, shape: &[i64], strides: &[i64], read_only: bool) -> Tensor {
        let (data, layout) = (data.as_mut_ptr().cast::<u8>(), (Dims::from_slice(shape), Dims::from_slice(strides)));
        let parts = TensorParts::of_host(data.wrapping_add(at), DType::Int32, layout, Arc::new(()));
        let parts = TensorParts { read_only, ..parts };
        // SAFETY: the tests read and write no elements.
        unsafe { Tensor::from_parts(parts) }.unwrap()
    }

    fn is_output(tensor: &Tensor) -> bool {
        // SAFETY: nobody else uses the test's memory.
        unsafe { Output::from_tensor(tensor) }.is_ok()
    }

    #[test]
    fn elements_that_lie_apart_can_be_written() {
        let mut data = [0; 32];
        for (shape, strides) in [
            (&[2, 3][..], &[3, 1][..]),
            (&[2, 3], &[1, 2]),
            (&[2, 3], &[8, 2]),
            (&[4], &[7]),
            (&[0, 4], &[0, 0]),
            (&[], &[]),
        ] {
            assert!(is_output(&tensor(&mut data, 0, shape, strides, false)), "{shape:?} {strides:?}");
        }
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        let mut data = [0; 32];
        for (shape, strides) in
            [(&[2, 3][..], &[2, 1][..]), (&[2, 3], &[0, 1]), (&[2, 2], &[1, 1]), (&[2, 3, 2], &[6, 2, 2])]
        {
            assert!(!is_output(&tensor(&mut data, 0, shape, strides, false)), "{shape:?} {strides:?}");
        }
        assert!(!is_output(&tensor(&mut data, 64, &[4], &[-1], false)));
        assert!(!is_output(&tensor(&mut data, 0, &[4], &[1], true)));
        assert!(!is_output(&tensor(&mut data, 1, &[4], &[1], false)));
    }
}
