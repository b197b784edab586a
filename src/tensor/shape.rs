//! Views a range of a tensor's rows, and its elements under another shape.

use super::construct::dims_of;
use super::{Tensor, TensorParts};
use crate::error::{Error, Result};
use crate::spec::Dims;

impl Tensor {
    /// Returns `length` rows from row `offset` on, over the same memory: a range of the first dimension.
    ///
    /// # Errors
    /// If the tensor has no dimension, or fewer rows.
    ///
    /// ```
    /// use arrow_dlpack::Tensor;
    ///
    /// let tensor = Tensor::from_vec(vec![1, 2, 3, 4, 5, 6], &[3, 2])?;
    /// assert_eq!(tensor.slice(1, 2)?.as_slice::<i32>()?, [3, 4, 5, 6]);
    /// assert!(tensor.slice(2, 2).is_err());
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn slice(&self, offset: usize, length: usize) -> Result<Self> {
        let (Some(&rows), Some(&stride)) = (self.shape.first(), self.strides.first()) else {
            return Err(Error::argument("a tensor without dimensions has no rows to slice"));
        };
        let wanted = i64::try_from(length).ok().zip(i64::try_from(offset).ok());
        let Some((extent, first)) =
            wanted.filter(|(extent, first)| first.checked_add(*extent).is_some_and(|end| end <= rows))
        else {
            return Err(Error::argument(format!("{length} rows from row {offset} on, of a tensor of {rows} rows")));
        };
        let mut shape = self.shape.clone();
        shape.iter_mut().take(1).for_each(|rows| *rows = extent);
        // The byte span of the elements fits the address space, and so does the distance to each of them; an empty result
        // refers to none.
        let reach = first.wrapping_mul(stride).wrapping_mul(i64::try_from(self.dtype.itemsize()).unwrap_or(1));
        let is_empty = self.is_empty() || length == 0;
        let data = match isize::try_from(reach) {
            Ok(reach) if !is_empty => self.data.wrapping_offset(reach),
            _ => self.data,
        };
        self.viewed(TensorParts { data, shape, ..self.parts() }, true)
    }

    /// Returns the elements under another shape, in row-major order, over the same memory. They keep their field if the
    /// dimensions after the first stay the same.
    ///
    /// # Errors
    /// If the shape has another number of elements, or no strides reach them in that order.
    ///
    /// ```
    /// use arrow_dlpack::Tensor;
    ///
    /// let tensor = Tensor::from_vec(vec![1, 2, 3, 4, 5, 6], &[6])?;
    /// assert_eq!(tensor.reshape(&[2, 3])?.strides(), [3, 1]);
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn reshape(&self, shape: &[usize]) -> Result<Self> {
        let shape = dims_of(shape, self.len)?;
        let strides = self.strides_under(&shape).ok_or_else(|| {
            let reason = format!(
                "the elements of shape {:?} with strides {:?} have no strides for shape {shape:?}",
                self.shape, self.strides
            );
            Error::unsupported(reason).remedy_is("reshape a row-major copy, the result of Tensor::contiguous")
        })?;
        let keeps_field =
            !self.shape.is_empty() && !shape.is_empty() && self.shape.iter().skip(1).eq(shape.iter().skip(1));
        let field = self.field.clone().filter(|_| keeps_field);
        self.viewed(TensorParts { shape, strides, field, ..self.parts() }, keeps_field)
    }

    /// Returns a tensor of these parts, which reach elements of this tensor alone.
    fn viewed(&self, parts: TensorParts, keeps_codes: bool) -> Result<Self> {
        // SAFETY: the elements are this tensor's, of the same owner, dtype and device.
        let view = unsafe { Self::from_parts(parts) }?;
        let codes = self.codes.clone().filter(|_| keeps_codes);
        Ok(Self { lent: self.lent, codes, ..view })
    }

    /// Returns the strides of the elements, in row-major order, under a shape of as many elements; `None` if there are
    /// none.
    fn strides_under(&self, shape: &Dims) -> Option<Dims> {
        let mut strides = Dims::from_elem(1, shape.len());
        if self.is_empty() {
            return Some(strides);
        }
        // The blocks of elements at one stride, the last one first: how many elements, and their stride.
        let mut blocks: Dims2 = Dims2::new();
        for (extent, stride) in self.shape.iter().copied().zip(self.strides.iter().copied()).rev() {
            match blocks.last_mut() {
                _ if extent == 1 => {}
                Some((elements, inner)) if elements.checked_mul(*inner) == Some(stride) => {
                    *elements = elements.checked_mul(extent)?;
                }
                _ => blocks.push((extent, stride)),
            }
        }
        let mut blocks = blocks.into_iter();
        let (mut left, mut next) = (1_i64, 0_i64);
        for (extent, stride) in shape.iter().zip(&mut strides).rev().filter(|(extent, _)| **extent != 1) {
            if left == 1 {
                (left, next) = blocks.next()?;
            }
            if left % extent != 0 {
                return None;
            }
            *stride = next;
            left /= extent;
            next = next.checked_mul(*extent).filter(|_| left > 1).unwrap_or_default();
        }
        Some(strides)
    }
}

/// Pairs of an extent and a stride.
type Dims2 = smallvec::SmallVec<[(i64, i64); 2]>;
