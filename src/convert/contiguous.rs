//! Copies a tensor's elements out, into a vector.

use super::gather::gather_elements;
use crate::alloc::fallible;
use crate::copy_log::{self, Copied};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::{Native, Tensor};

impl Tensor {
    /// Returns a copy of the elements of a host tensor, in row-major order.
    ///
    /// # Errors
    /// If `T` is not the dtype's Rust type, the elements are on a device, or the allocation fails.
    ///
    /// ```
    /// use arrow_dlpack::Tensor;
    ///
    /// let tensor = Tensor::from_vec(vec![1_u8, 2, 3], &[3])?;
    /// assert_eq!(tensor.to_vec::<u8>()?, [1, 2, 3]);
    /// assert!(tensor.to_vec::<i8>().is_err());
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn to_vec<T: Native>(&self) -> Result<Vec<T>> {
        self.require_dtype(T::DTYPE)?;
        self.gathered()
    }

    /// Returns a copy of the elements of a host tensor of bools, in row-major order.
    ///
    /// # Errors
    /// If the dtype is not bool, a byte is neither 0 nor 1, the elements are on a device, or the allocation fails.
    pub fn to_bools(&self) -> Result<Vec<bool>> {
        self.require_dtype(DType::Bool)?;
        // Other libraries may write to lent memory, so a byte is checked where nobody else writes.
        let bytes: Vec<u8> = self.gathered()?;
        fallible::collected(bytes.into_iter().enumerate().map(|(index, byte)| match byte {
            0 | 1 => Ok(byte == 1),
            _ => Err(Error::invalid(format!("element {index} of a bool tensor has the byte {byte}, not 0 or 1"))),
        }))
    }

    fn gathered<T: Native>(&self) -> Result<Vec<T>> {
        debug_assert_eq!(size_of::<T>(), self.dtype().itemsize());
        self.require_host()?;
        let mut values = fallible::with_room(self.len())?;
        let spare = values.spare_capacity_mut().get_mut(..self.len()).unwrap_or_default();
        // SAFETY: any bytes are valid as MaybeUninit<u8>, and every type's size is a number of them.
        let (_, bytes, _) = unsafe { spare.align_to_mut() };
        gather_elements(self, bytes)?;
        // SAFETY: there is room for `len` values, and `gather_elements` wrote the bytes of each from an element, all bit
        // patterns of which are values (`Native`).
        unsafe { values.set_len(self.len()) };
        if !self.is_empty() {
            copy_log::record(|| {
                let what = format!("tensor of {} {:?}", self.dtype(), self.shape());
                Copied { what, why: "elements copied to a vector".to_owned(), bytes: self.nbytes() }
            });
        }
        Ok(values)
    }

    fn require_host(&self) -> Result<()> {
        if self.device().is_cpu() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Device, format!("the elements are on {}, where none are gathered", self.device()))
            .remedy_is(self.device().host_remedy()))
    }
}
