//! [`Tensor`]: strided n-d data with an owner that keeps it alive.
#![allow(unsafe_code, reason = "hands out slices of memory that an owner keeps alive")]

#[cfg(feature = "python")]
mod bytes;
mod codes;
mod column;
mod construct;
#[cfg(feature = "python")]
mod origin;
mod output;
mod shape;
mod slices;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use arrow_schema::FieldRef;
use smallvec::SmallVec;

#[cfg(feature = "cuda")]
pub(crate) use construct::dims_of;
pub use output::Output;
pub use slices::Native;

pub use crate::alloc::Owner;
use crate::alloc::{HostBuffer, is_addressable};
use crate::arrow::DeviceArray;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::spec::{Dims, TensorField, has_codes};
use crate::stream_order::Readiness;

/// Strided n-dimensional data of one dtype on one device.
///
/// Clones share the memory. A tensor made from Arrow keeps the [`arrow_schema::Field`] it came from, and returns to its
/// type, as long as its elements are what that field says.
#[derive(Clone)]
pub struct Tensor {
    data: *mut u8,
    device: Device,
    dtype: DType,
    shape: Dims,
    strides: Dims,
    len: usize,
    owner: Owner,
    /// `None` for ordinary host memory.
    readiness: Option<Readiness>,
    read_only: bool,
    /// Whether other libraries may write to the memory at any time.
    lent: bool,
    copied: bool,
    field: Option<FieldRef>,
    // Boxed, because most tensors have none, and small tensors move faster.
    codes: Option<Box<DictionaryOfCodes>>,
}

/// The dictionary that codes refer to.
#[derive(Clone)]
struct DictionaryOfCodes {
    dictionary: DeviceArray,
    /// Whether every element was a code of the dictionary when the tensor was made; slots of nulls can hold any value.
    all_valid: bool,
}

// SAFETY: the memory behind `data` is kept alive by `owner`, which is Send and Sync. A reference to it is given out by
// `slices.rs` and the room `ndarray` alone: of memory that nobody writes to by `# Safety` of `from_parts`, or where the caller vouches for that.
unsafe impl Send for Tensor {}
// SAFETY: no method changes a Tensor, or the memory behind `data`, through a shared reference; `owner` is Sync.
unsafe impl Sync for Tensor {}

/// The parts of a tensor over foreign memory, for [`Tensor::from_parts`].
pub(crate) struct TensorParts {
    /// Address of the first element; any value if the tensor has no elements.
    pub(crate) data: *mut u8,
    pub(crate) device: Device,
    pub(crate) dtype: DType,
    /// Extents, none negative.
    pub(crate) shape: Dims,
    /// Strides in elements.
    pub(crate) strides: Dims,
    pub(crate) owner: Owner,
    pub(crate) read_only: bool,
    pub(crate) copied: bool,
    /// When the memory is written: the owner's readiness. Not needed for ordinary host memory.
    pub(crate) readiness: Option<Readiness>,
    /// The field that the elements came from. Its type must describe this dtype and shape.
    pub(crate) field: Option<FieldRef>,
}

impl TensorParts {
    /// Returns the parts of a read-only view of host memory, without a field; for other memory, callers set what differs.
    #[inline]
    pub(crate) fn of_host(data: *mut u8, dtype: DType, (shape, strides): (Dims, Dims), owner: Owner) -> Self {
        let (device, read_only, copied, readiness, field) = (Device::CPU, true, false, None, None);
        Self { data, device, dtype, shape, strides, owner, read_only, copied, readiness, field }
    }

    /// Returns the parts of a read-only view of an array's memory without a field.
    pub(crate) fn of_array(array: &DeviceArray, data: *const u8, dtype: DType, layout: (Dims, Dims)) -> Self {
        let (device, readiness) = (array.device(), array.readiness().cloned());
        Self { device, readiness, ..Self::of_host(data.cast_mut(), dtype, layout, array.owner()) }
    }
}

impl Tensor {
    /// Returns a tensor over memory that `owner` keeps alive. Checks the layout as far as integers allow: the extents,
    /// the byte span of the strides, the address range. NULL is allowed only at size 0.
    ///
    /// Replaces the strides of dimensions with at most one element by row-major ones: they are never used, and
    /// consumers treat odd values there differently.
    ///
    /// # Errors
    /// If a check fails; `parts.owner` is dropped then.
    ///
    /// # Safety
    /// Every element that shape and strides reach from `data` is initialised memory of the device, valid as long as
    /// `owner` lives. Nobody writes to it while a slice from [`Tensor::as_slice`] is alive, or the result is marked by
    /// [`Tensor::into_lent`] before anyone else sees it.
    pub(crate) unsafe fn from_parts(parts: TensorParts) -> Result<Self> {
        let TensorParts { data, device, dtype, shape, mut strides, owner, read_only, copied, readiness, field } = parts;
        if strides.len() != shape.len() {
            return Err(Error::invalid(format!("{} strides for {} dimensions", strides.len(), shape.len())));
        }
        let empty = shape.contains(&0);
        // The number of elements in the later dimensions: this dimension's row-major stride.
        let mut product = 1_i64;
        let mut row_major = true;
        for (extent, stride) in shape.iter().zip(&mut strides).rev() {
            if *extent < 0 {
                return Err(Error::invalid(format!("shape {shape:?} has a negative extent")));
            }
            if empty || *extent == 1 {
                *stride = product;
            }
            row_major &= *stride == product;
            product = product.checked_mul((*extent).max(1)).ok_or_else(|| {
                Error::invalid(format!("the shape {shape:?} has more elements than 64 bits can count"))
            })?;
        }
        let len = if empty { 0 } else { usize::try_from(product).unwrap_or(usize::MAX) };
        let tensor = Self {
            data,
            device,
            dtype,
            shape,
            strides,
            len,
            owner,
            readiness,
            read_only,
            lent: false,
            copied,
            field,
            codes: None,
        };
        // Most tensors are one block of bytes, and need no span check.
        let is_block = row_major && !data.is_null() && is_addressable(data.addr(), tensor.nbytes());
        if !is_block {
            tensor.check_span()?;
        }
        Ok(tensor)
    }

    /// Returns a tensor over our own memory, which no other object shares.
    ///
    /// # Errors
    /// If the buffer is too small for the shape.
    ///
    /// # Safety
    /// The buffer's bytes are initialised as elements of `dtype`.
    pub(crate) unsafe fn from_host_buffer(
        buffer: HostBuffer,
        dtype: DType,
        shape: Dims,
        strides: Dims,
        field: Option<FieldRef>,
    ) -> Result<Self> {
        let (data, bytes) = (buffer.as_ptr(), buffer.len());
        let parts = TensorParts::of_host(data, dtype, (shape, strides), Arc::new(buffer));
        let parts = TensorParts { read_only: false, copied: bytes > 0, field, ..parts };
        // SAFETY: the caller promises initialised elements; the size is checked below, before anyone reads.
        let tensor = unsafe { Self::from_parts(parts) }?;
        if tensor.nbytes() > bytes {
            return Err(Error::internal("a host buffer is smaller than its tensor"));
        }
        Ok(tensor)
    }

    /// Returns the tensor's parts, without the dictionary of its codes.
    pub(crate) fn parts(&self) -> TensorParts {
        TensorParts {
            data: self.data,
            device: self.device,
            dtype: self.dtype,
            shape: self.shape.clone(),
            strides: self.strides.clone(),
            owner: self.owner.clone(),
            read_only: self.read_only,
            copied: self.copied,
            readiness: self.readiness.clone(),
            field: self.field.clone(),
        }
    }

    /// Returns the same memory under another device that reaches it: written host-visible memory is also the CPU's, and
    /// managed memory is each device's.
    pub(crate) fn relabelled(&self, device: Device) -> Self {
        let readiness = self.readiness.as_ref().filter(|_| !device.is_cpu());
        Self { device, readiness: readiness.map(|readiness| readiness.relabelled(device)), ..self.clone() }
    }

    /// Marks the memory as lent: others may write to it at any time, whatever its flags say. A producer that lends its
    /// memory read-only may still write, and so may a consumer that received writable memory.
    pub(crate) fn into_lent(mut self) -> Self {
        self.lent = true;
        self
    }

    /// Returns whether the elements are Arrow data as produced, so that earlier checks of them still hold.
    pub(crate) fn is_untouched(&self) -> bool {
        self.read_only && !self.lent && !self.copied
    }

    /// Marks the tensor as the only owner of its memory, a copy made for it.
    pub(crate) fn into_own(self) -> Self {
        Self { read_only: false, lent: false, copied: self.copied || self.len > 0, ..self }
    }

    /// Refuses CUDA memory that contradicts its producer, on a thread in which the context of a device is current.
    ///
    /// # Errors
    /// If the memory differs, or the driver fails.
    #[cfg(feature = "python")]
    pub(crate) fn check_memory(&self, current: &crate::cuda::Current) -> Result<()> {
        let Some(readiness) = &self.readiness else { return Ok(()) };
        let (before, bytes) = self.span().unwrap_or((0, 0));
        let start = self.data.addr().wrapping_sub(before);
        readiness.check_part_in(current, &(start..start.saturating_add(bytes)))
    }

    /// Returns the bytes from the lowest element to the first, and from the lowest to the end of the highest; `None` if
    /// that exceeds the address space.
    pub(crate) fn span(&self) -> Option<(usize, usize)> {
        if self.is_empty() {
            return Some((0, 0));
        }
        let (mut low, mut high) = (0_i128, 0_i128);
        for (extent, stride) in self.shape.iter().zip(&self.strides) {
            // Each factor is below 2^63, so their product fits 128 bits; the sum of many may not.
            let reach = i128::from(extent - 1) * i128::from(*stride);
            let (end, reach) = if reach < 0 { (&mut low, -reach) } else { (&mut high, reach) };
            *end = end.checked_add(reach)?;
        }
        let bytes = |elements: i128| usize::try_from(elements).ok()?.checked_mul(self.dtype.itemsize());
        Some((bytes(low)?, bytes(low.checked_add(high)?.checked_add(1)?)?))
    }

    /// Checks that the bytes between the lowest and the highest element are addressable.
    fn check_span(&self) -> Result<()> {
        if self.len == 0 {
            return Ok(());
        }
        if self.data.is_null() {
            return Err(Error::invalid(format!("data is NULL, and shape {:?} has elements", self.shape)));
        }
        let fits = self.span().is_some_and(|(before, bytes)| {
            self.data.addr().checked_sub(before).is_some_and(|first| is_addressable(first, bytes))
        });
        if fits {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "shape {:?} with strides {:?} of {} reaches beyond the address space",
            self.shape, self.strides, self.dtype
        )))
    }

    /// Returns the element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the extents.
    #[must_use]
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// Returns the strides, in elements.
    #[must_use]
    pub fn strides(&self) -> &[i64] {
        &self.strides
    }

    /// Returns the number of dimensions.
    #[must_use]
    pub fn ndim(&self) -> usize {
        self.shape.len()
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes of all elements, without gaps between them.
    #[must_use]
    pub fn nbytes(&self) -> usize {
        // A broadcast tensor can have more elements than memory has bytes.
        self.len.saturating_mul(self.dtype.itemsize())
    }

    /// Returns the memory's device.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// Returns whether the consumer may write: false for Arrow data, and for what a producer marked as read-only.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        !self.read_only
    }

    /// Returns the same tensor, marked as read-only for every consumer.
    #[must_use]
    pub fn into_read_only(self) -> Self {
        Self { read_only: true, ..self }
    }

    /// Returns whether the conversion that made this tensor copied its elements.
    #[must_use]
    pub fn is_copied(&self) -> bool {
        self.copied
    }

    /// Returns the Arrow field that the elements came from, if they still are what it says.
    #[must_use]
    pub fn field(&self) -> Option<&FieldRef> {
        self.field.as_ref()
    }

    /// Returns the dictionary of the elements, if the field says that they are codes; the categories of codes, also if other codes
    /// are among them, for nulls and unknown values.
    #[must_use]
    pub fn dictionary(&self) -> Option<&DeviceArray> {
        self.codes.as_ref().map(|codes| &codes.dictionary)
    }

    /// Returns the tensor's Arrow form: the type it came from, with its dictionary, if it still is that.
    ///
    /// # Errors
    /// If a row has more elements than a fixed-size list can.
    pub(crate) fn arrow_form(&self) -> Result<TensorField> {
        let codes_of_nothing = |field: &&FieldRef| has_codes(field.data_type()) && self.codes.is_none();
        let field = self.field.as_ref().filter(|field| !codes_of_nothing(field));
        TensorField::new(self.dtype, &self.shape, &self.strides, field)
    }

    /// Returns the same tensor with this dictionary of its codes, if the elements still are what its field says.
    /// `all_valid`: none of them is in the slot of a null.
    pub(crate) fn with_dictionary(self, dictionary: DeviceArray, all_valid: bool) -> Self {
        let codes = self.field.is_some().then(|| Box::new(DictionaryOfCodes { dictionary, all_valid }));
        Self { codes, ..self }
    }

    /// Returns the same tensor with the dictionary of `other`.
    pub(crate) fn with_codes_of(self, other: &Self) -> Self {
        Self { codes: other.codes.clone(), ..self }
    }

    /// Returns the same tensor, a copy of `other` that nobody else can write to: its codes need a comparison with their dictionary only
    /// if those of `other` do.
    pub(crate) fn with_trust_of(self, other: &Self) -> Self {
        Self { read_only: other.read_only, lent: other.lent, ..self }
    }

    /// Returns whether there is a dictionary that elements may not be codes of: those of nulls, or those that another library
    /// wrote.
    pub(crate) fn codes_may_be_beyond(&self) -> bool {
        self.codes.as_ref().is_some_and(|codes| !self.read_only || self.lent || !codes.all_valid)
    }

    /// Returns the owner, which keeps the memory alive.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Returns when the memory is written, and which work uses it; `None` for ordinary host memory.
    #[must_use]
    pub fn readiness(&self) -> Option<&Readiness> {
        self.readiness.as_ref()
    }

    /// Returns the address of the first element; NULL at size 0.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        if self.is_empty() { std::ptr::null_mut() } else { self.data }
    }

    /// Returns whether the elements are contiguous in row-major order.
    #[must_use]
    pub fn is_row_major(&self) -> bool {
        let mut expected = 1_i64;
        self.is_empty()
            || self.shape.iter().zip(&self.strides).rev().all(|(extent, stride)| {
                let dense = *extent == 1 || *stride == expected;
                expected = expected.saturating_mul(*extent);
                dense
            })
    }

    /// Returns the same elements as one dimension, in memory order; `None` if they are not dense.
    pub(crate) fn in_memory_order(&self) -> Option<Self> {
        let axes = self.strides.iter().copied().zip(self.shape.iter().copied());
        let mut axes: SmallVec<[(i64, i64); 4]> = axes.filter(|(_, extent)| *extent != 1).collect();
        axes.sort_unstable();
        let mut expected = 1_i64;
        for (stride, extent) in axes {
            if stride != expected {
                return None;
            }
            expected = expected.checked_mul(extent)?;
        }
        let shape = Dims::from_slice(&[i64::try_from(self.len).ok()?]);
        Some(Self { shape, strides: Dims::from_slice(&[1]), field: None, ..self.clone() })
    }

    /// Returns whether typed access to the elements is aligned.
    #[must_use]
    pub fn is_aligned(&self) -> bool {
        self.is_empty() || self.data.addr().is_multiple_of(self.dtype.alignment())
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("dtype", &self.dtype)
            .field("shape", &self.shape)
            .field("strides", &self.strides)
            .field("device", &self.device)
            .field("read_only", &self.read_only)
            .field("copied", &self.copied)
            .finish_non_exhaustive()
    }
}
