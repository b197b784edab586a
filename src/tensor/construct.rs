//! Makes tensors of a caller's memory: a vector, a slice with its owner, or raw parts.

use std::sync::Arc;

use super::{Native, Owner, Tensor, TensorParts};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::spec::{Dims, row_major_strides};
use crate::stream_order::Readiness;

impl Tensor {
    /// Returns a row-major tensor over the vector's memory, without a copy. It is writable.
    ///
    /// # Errors
    /// If the shape does not have as many elements as the vector. The vector is dropped then.
    ///
    /// ```
    /// use arrow_dlpack::{DType, Tensor};
    ///
    /// let tensor = Tensor::from_vec(vec![1_f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
    /// assert_eq!((tensor.dtype(), tensor.shape()), (DType::Float32, &[2, 3][..]));
    /// assert!(Tensor::from_vec(vec![1_f32, 2.0], &[3]).is_err());
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn from_vec<T: Native>(values: Vec<T>, shape: &[usize]) -> Result<Self> {
        // SAFETY: by `# Safety` of `Native`, all bytes of a `T` are initialised, and every value is an element of `T::DTYPE`.
        unsafe { of_vec(values, T::DTYPE, shape) }
    }

    /// Like [`Tensor::from_vec`], for a tensor of bools.
    ///
    /// # Errors
    /// As [`Tensor::from_vec`].
    pub fn from_bools(values: Vec<bool>, shape: &[usize]) -> Result<Self> {
        // SAFETY: initialised bools are bytes that are 0 or 1, which are elements of that dtype.
        unsafe { of_vec(values, DType::Bool, shape) }
    }

    /// Returns a row-major tensor over the owner's slice, without a copy. It is read-only, and keeps the owner alive.
    ///
    /// # Errors
    /// If the shape does not have as many elements as the slice. The owner is dropped then.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use arrow_dlpack::Tensor;
    ///
    /// let shared: Arc<[i64]> = Arc::from([1, 2, 3]);
    /// let tensor = Tensor::from_owner(shared.clone(), &[3])?;
    /// assert_eq!(tensor.as_slice::<i64>()?.as_ptr(), shared.as_ptr());
    /// assert!(!tensor.is_writable());
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn from_owner<T: Native, O: AsRef<[T]> + Send + Sync + 'static>(owner: O, shape: &[usize]) -> Result<Self> {
        let owner = Arc::new(owner);
        // The owner is asked once, where it stays: a second answer could be another slice.
        let values: &[T] = (*owner).as_ref();
        let (data, len) = (values.as_ptr().cast_mut().cast(), values.len());
        // SAFETY: initialised elements of `T::DTYPE`, as `# Safety` of `Native` says. The slice borrows from `*owner`, which
        // is neither moved nor borrowed exclusively before its release, so that safe code can neither free nor write to it.
        unsafe { row_major(data, T::DTYPE, len, shape, owner, true) }
    }

    /// Returns a tensor over memory that `owner` keeps alive. `data` is the address of the first element. `strides` are
    /// in elements; `None` is row-major. A tensor of no elements may have any address.
    ///
    /// On a device, the memory counts as written, unless [`Readiness::record_written`] names a stream that still writes
    /// it, and `owner` is dropped behind the work that uses the memory.
    ///
    /// # Errors
    /// If an extent is negative, there are not as many strides as extents, `data` is NULL, or the elements reach beyond
    /// the address space. `owner` is dropped then.
    ///
    /// # Safety
    /// - Every element that shape and strides reach from `data` is initialised memory of `device`, and valid until
    ///   `owner` is dropped. Bools are bytes that are 0 or 1.
    /// - Nobody writes to the memory while a slice of it, such as that of [`Tensor::as_slice`], is alive.
    /// - If `writable`, consumers may write to it.
    pub unsafe fn from_raw_parts(
        data: *mut u8,
        device: Device,
        dtype: DType,
        shape: &[i64],
        strides: Option<&[i64]>,
        owner: Owner,
        writable: bool,
    ) -> Result<Self> {
        let shape = Dims::from_slice(shape);
        if shape.iter().any(|extent| *extent < 0) {
            return Err(Error::argument(format!("shape {shape:?} has a negative extent")));
        }
        let strides = strides.map_or_else(|| row_major_strides(&shape), |strides| Ok(Dims::from_slice(strides)))?;
        let readiness = Readiness::written(device);
        let owner = match &readiness {
            None => owner,
            Some(readiness) => Arc::new(Ordered { owner: Some(owner), readiness: readiness.clone() }),
        };
        let parts = TensorParts::of_host(data, dtype, (shape, strides), owner);
        let parts = TensorParts { device, read_only: !writable, readiness, ..parts };
        // SAFETY: the caller promises initialised elements that live as long as the owner, and that nobody writes to them
        // while a slice is alive.
        unsafe { Self::from_parts(parts) }
    }
}

/// # Safety
/// Every value has the bytes of an element of `dtype`.
unsafe fn of_vec<T: Send + Sync + 'static>(mut values: Vec<T>, dtype: DType, shape: &[usize]) -> Result<Tensor> {
    // A pointer of `as_mut_ptr` stays valid while the vector is neither changed nor dropped.
    let (data, len) = (values.as_mut_ptr().cast(), values.len());
    // SAFETY: the vector's `len` values are elements of `dtype` (a clause of `# Safety`). It is not touched before it is dropped.
    unsafe { row_major(data, dtype, len, shape, Arc::new(values), false) }
}

/// # Safety
/// `data` is the address of `len` initialised elements of `dtype`, which live as long as `owner`. Safe code cannot write
/// to them; if not `read_only`, their consumers may.
unsafe fn row_major(
    data: *mut u8,
    dtype: DType,
    len: usize,
    shape: &[usize],
    owner: Owner,
    read_only: bool,
) -> Result<Tensor> {
    let shape = dims_of(shape, len)?;
    let strides = row_major_strides(&shape)?;
    let parts = TensorParts { read_only, ..TensorParts::of_host(data, dtype, (shape, strides), owner) };
    // SAFETY: the shape has `len` elements, which row-major strides reach; the rest is promised.
    unsafe { Tensor::from_parts(parts) }
}

/// Returns a shape's extents, if it has `len` elements.
pub(crate) fn dims_of(shape: &[usize], len: usize) -> Result<Dims> {
    let elements = shape.iter().try_fold(1_usize, |product, extent| product.checked_mul(*extent));
    // The product of extents around a 0 may be more than there can be.
    let elements = if shape.contains(&0) { Some(0) } else { elements };
    let extents = shape.iter().map(|extent| i64::try_from(*extent).ok()).collect::<Option<Dims>>();
    match extents {
        Some(extents) if elements == Some(len) => Ok(extents),
        _ => Err(Error::argument(format!("{len} elements for shape {shape:?}"))
            .remedy_is("pass a shape whose extents have that product")),
    }
}

/// The owner of memory on a device, which is dropped behind the work that uses the memory.
struct Ordered {
    owner: Option<Owner>,
    readiness: Readiness,
}

impl Drop for Ordered {
    fn drop(&mut self) {
        let owner = self.owner.take();
        self.readiness.release(move || drop(owner));
    }
}
