//! Tensors as arrays of ndarray and back: views with any strides, and owned arrays without a copy.
#![allow(unsafe_code, reason = "hands out views of memory that an owner keeps alive")]

use std::ptr::NonNull;
use std::sync::Arc;

use ndarray::{Array, ArrayBase, ArrayD, ArrayViewD, Axis, Data, Dimension, ShapeBuilder};
use smallvec::SmallVec;

use crate::alloc::fallible;
use crate::copy_log::{self, Copied};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::Dims;
use crate::tensor::{Native, Tensor};

/// Four dimensions without an allocation, as many as ndarray has without one.
type Extents = SmallVec<[usize; 4]>;

impl Tensor {
    /// Returns a view of a host tensor with its shape and strides, also where they are negative, or 0: then the view repeats
    /// elements, as those of `ArrayBase::broadcast` do. Only with the feature `ndarray`.
    ///
    /// # Errors
    /// If `T` is not the dtype's Rust type, the elements are misaligned or on a device, the shape has more elements than ndarray can
    /// count, or the memory is lent: another library may write to it. See [`Tensor::lent_ndarray`].
    ///
    /// ```
    /// use arrow_dlpack::Tensor;
    ///
    /// let tensor = Tensor::from_vec(vec![1_f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
    /// let view = tensor.as_ndarray::<f32>()?;
    /// assert_eq!(view, ndarray::arr2(&[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).into_dyn());
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn as_ndarray<T: Native>(&self) -> Result<ArrayViewD<'_, T>> {
        self.require_unlent()?;
        self.view()
    }

    /// Like [`Tensor::as_ndarray`], for lent memory too.
    ///
    /// # Errors
    /// As [`Tensor::as_ndarray`], except for lent memory.
    ///
    /// # Safety
    /// As [`Tensor::lent_slice`], while the view is alive.
    pub unsafe fn lent_ndarray<T: Native>(&self) -> Result<ArrayViewD<'_, T>> {
        self.view()
    }

    fn view<T: Native>(&self) -> Result<ArrayViewD<'_, T>> {
        self.require_dtype(T::DTYPE)?;
        if !self.device().is_cpu() {
            return Err(Error::new(ErrorKind::Device, format!("the elements are on {}", self.device()))
                .remedy_is(self.device().host_remedy()));
        }
        if !self.is_aligned() {
            return Err(
                Error::unsupported("the elements are misaligned").remedy_is("copy them to a vector: Tensor::to_vec")
            );
        }
        let extents = self.extents()?;
        if self.is_empty() {
            let start = NonNull::<T>::dangling().as_ptr().cast_const();
            // SAFETY: no elements, so that any aligned address that is not NULL will do, and no stride leads away from it; the product
            // of the extents that are not 0 was checked to fit `isize`.
            return Ok(unsafe { ArrayViewD::from_shape_ptr(extents.as_slice(), start) });
        }
        // ndarray asks for the lowest address and strides that are not negative; axes are turned round afterwards.
        let (mut start, mut strides) = (self.as_ptr().cast_const().cast::<T>(), Extents::new());
        for (extent, stride) in self.shape().iter().zip(self.strides()) {
            let uncounted = || Error::internal("strides beyond the address space");
            if *stride < 0 {
                let elements =
                    stride.checked_mul(extent.saturating_sub(1)).and_then(|elements| isize::try_from(elements).ok());
                start = start.wrapping_offset(elements.ok_or_else(uncounted)?);
            }
            strides.push(usize::try_from(stride.unsigned_abs()).map_err(|_| uncounted())?);
        }
        // SAFETY: `from_parts` checked that all elements that shape and strides reach lie in the address space, and its caller promises
        // that they are initialised and live as long as the owner in `self`; `start` is the lowest of them. It is not NULL, as there are
        // elements, and aligned, as strides count whole elements. The offsets fit `isize`, as do the elements' addresses, and the
        // product of the extents was checked. `T` is their type as `# Safety` of `Native` says. Nobody writes to them while the view is
        // alive: the memory is not lent, or by `# Safety` of `lent_ndarray`.
        let mut view = unsafe { ArrayViewD::from_shape_ptr(extents.as_slice().strides(strides.as_slice()), start) };
        for (axis, stride) in self.strides().iter().enumerate() {
            if *stride < 0 {
                view.invert_axis(Axis(axis));
            }
        }
        Ok(view)
    }

    /// Returns the shape, of whose extents those that are not 0 have a product that fits `isize`, as ndarray asks.
    fn extents(&self) -> Result<Extents> {
        let counted = || {
            let extents =
                self.shape().iter().map(|extent| usize::try_from(*extent).ok()).collect::<Option<Extents>>()?;
            let product = extents
                .iter()
                .filter(|extent| **extent > 0)
                .try_fold(1_usize, |all, extent| all.checked_mul(*extent))?;
            isize::try_from(product).ok().map(|_| extents)
        };
        counted()
            .ok_or_else(|| Error::unsupported(format!("ndarray cannot count the elements of shape {:?}", self.shape())))
    }

    /// Returns a copy of the elements of a host tensor as an owned, row-major array. Only with the feature `ndarray`.
    ///
    /// # Errors
    /// As [`Tensor::to_vec`].
    ///
    /// ```
    /// use arrow_dlpack::Tensor;
    ///
    /// let tensor = Tensor::from_vec(vec![1_i64, 2, 3, 4], &[2, 2])?;
    /// let mut array = tensor.to_ndarray::<i64>()?;
    /// array += 1;
    /// assert_eq!(array.into_raw_vec_and_offset().0, [2, 3, 4, 5]);
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn to_ndarray<T: Native>(&self) -> Result<ArrayD<T>> {
        let extents = self.extents()?;
        ArrayD::from_shape_vec(extents.as_slice(), self.to_vec()?)
            .map_err(|error| Error::unsupported(error.to_string()))
    }

    /// Returns a tensor over the memory of an owned array, without a copy: with its shape and strides, and writable. Of a view,
    /// [`Tensor::copy_ndarray`] makes one. Only with the feature `ndarray`.
    ///
    /// # Errors
    /// If the shape has more elements than 64 bits can count. The array is dropped then.
    ///
    /// ```
    /// use arrow_dlpack::Tensor;
    /// use ndarray::arr2;
    ///
    /// let array = arr2(&[[1_f32, 2.0], [3.0, 4.0]]).reversed_axes();
    /// let start = array.as_ptr();
    /// let tensor = Tensor::from_ndarray(array)?;
    /// assert_eq!(tensor.as_ptr().cast_const().cast(), start);
    /// assert_eq!((tensor.shape(), tensor.strides()), (&[2_i64, 2][..], &[1_i64, 2][..]));
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn from_ndarray<T: Native, D: Dimension>(array: Array<T, D>) -> Result<Self> {
        let shape = extents_of(array.shape())?;
        let strides: Dims = array.strides().iter().map(|stride| i64::try_from(*stride).unwrap_or(i64::MAX)).collect();
        let (mut vector, offset) = array.into_raw_vec_and_offset();
        // The address of the first element in logical order; there is none without elements.
        let data = vector.as_mut_ptr().wrapping_add(offset.unwrap_or(0)).cast();
        let owner = Arc::new(vector);
        // SAFETY: an owned array reaches only initialised elements of its vector, all of which are of the dtype as `# Safety` of `Native` says
        // of `T`; the owner keeps the vector, and nobody else has it.
        unsafe { Self::from_raw_parts(data, Device::CPU, T::DTYPE, &shape, Some(&strides), owner, true) }
    }

    /// Returns a copy of the elements of any array, row-major and writable, which the [`CopyLog`](crate::CopyLog) records. Only with
    /// the feature `ndarray`.
    ///
    /// # Errors
    /// If the allocation fails.
    ///
    /// ```
    /// use arrow_dlpack::Tensor;
    /// use ndarray::{arr1, s};
    ///
    /// let row = arr1(&[1_i32, 2, 3]);
    /// let repeated = row.broadcast((2, 3)).unwrap();
    /// let tensor = Tensor::copy_ndarray(&repeated.slice(s![.., ..;-1]))?;
    /// assert_eq!(tensor.as_slice::<i32>()?, [3, 2, 1, 3, 2, 1]);
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn copy_ndarray<T: Native, S: Data<Elem = T>, D: Dimension>(array: &ArrayBase<S, D>) -> Result<Self> {
        let values = match array.as_slice() {
            Some(values) => fallible::copied(values)?,
            None => {
                let mut values = fallible::with_room(array.len())?;
                values.extend(array.iter().copied());
                values
            }
        };
        copy_log::record(|| Copied {
            what: format!("ndarray of shape {:?}", array.shape()),
            why: "copied into a tensor of its own".to_owned(),
            bytes: size_of_val(values.as_slice()),
        });
        Self::from_vec(values, array.shape())
    }
}

fn extents_of(shape: &[usize]) -> Result<Dims> {
    let extents = shape.iter().map(|extent| i64::try_from(*extent).ok()).collect::<Option<Dims>>();
    extents.ok_or_else(|| Error::unsupported(format!("the shape {shape:?} has more elements than 64 bits can count")))
}
