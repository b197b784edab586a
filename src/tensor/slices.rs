//! Views the elements of a host tensor as slices.

use super::Tensor;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};

impl Tensor {
    /// Returns the elements of a row-major, aligned host tensor whose memory nobody writes to: Arrow data, or our own
    /// memory.
    ///
    /// # Errors
    /// If `T` is not the dtype's Rust type, the layout or the device allows no slice, or the memory is lent: another
    /// library may write to it, as to an imported DLPack tensor. See [`Tensor::lent_slice`].
    pub fn as_slice<T: Native>(&self) -> Result<&[T]> {
        self.require_dense()?;
        self.require_unlent()?;
        self.peek()
    }

    /// Like [`Tensor::as_slice`], for lent memory too.
    ///
    /// # Errors
    /// If `T` is not the dtype's Rust type, or the layout or the device allows no slice.
    ///
    /// # Safety
    /// Nobody writes to the memory while the slice is alive: neither the library that lent it, nor a consumer that it was
    /// exported to.
    pub unsafe fn lent_slice<T: Native>(&self) -> Result<&[T]> {
        self.peek()
    }

    /// Returns the elements of a row-major host tensor of bools.
    ///
    /// # Errors
    /// If the dtype is not bool, a byte is neither 0 nor 1, or as [`Tensor::as_slice`]: [`Tensor::to_bools`] copies lent
    /// memory.
    pub fn as_bools(&self) -> Result<&[bool]> {
        self.require_dtype(DType::Bool)?;
        let bytes = self.as_bytes()?;
        if let Some((index, byte)) = bytes.iter().enumerate().find(|(_, byte)| **byte > 1) {
            return Err(Error::invalid(format!("element {index} of a bool tensor has the byte {byte}, not 0 or 1")));
        }
        // SAFETY: bytes that were just seen to be 0 or 1, which `bool` has the size and the values of. Nobody writes to them
        // while the slice is alive: the memory is not lent, as `as_bytes` checked, so this is what `# Safety` of `from_parts` asks.
        Ok(unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) })
    }

    /// Returns the bytes of a row-major, aligned host tensor.
    ///
    /// # Errors
    /// If the layout or the device allows no slice, or the memory is lent, as for [`Tensor::as_slice`].
    pub fn as_bytes(&self) -> Result<&[u8]> {
        self.require_dense()?;
        self.require_unlent()?;
        self.peek_bytes()
    }

    /// Like [`Tensor::as_bytes`], for lent memory too.
    ///
    /// # Errors
    /// If the layout or the device allows no slice.
    ///
    /// # Safety
    /// As [`Tensor::lent_slice`].
    pub unsafe fn lent_bytes(&self) -> Result<&[u8]> {
        self.peek_bytes()
    }

    /// Refuses to read the elements as those of another dtype.
    #[inline]
    pub(crate) fn require_dtype(&self, asked: DType) -> Result<()> {
        if asked == self.dtype { Ok(()) } else { Err(other_dtype(self.dtype, asked)) }
    }

    /// Like [`Tensor::as_slice`], for lent memory that others may change during the read: read each element once, and
    /// index nothing unchecked by it.
    pub(crate) fn peek<T: Native>(&self) -> Result<&[T]> {
        self.require_dtype(T::DTYPE)?;
        self.require_dense()?;
        if self.is_empty() {
            return Ok(&[]);
        }
        // SAFETY: `from_parts` promises `len` initialised elements that live as long as the owner in `self`; they are
        // dense (row-major) and in host memory. `Native` gives `T` the size and the alignment of the dtype, so they are
        // aligned for `T` too, and its values are all bit patterns. Nobody writes to them while the slice is alive: by
        // `# Safety` of `from_parts`, of `lent_slice` or of `lent_bytes`. A caller inside the crate reads lent memory as the
        // protocols allow it that lent it, whose users order writes and conversions; a thread that writes all the same
        // changes numbers, all of whose bit patterns are values, and nothing is indexed by them unchecked.
        Ok(unsafe { std::slice::from_raw_parts(self.data.cast::<T>(), self.len) })
    }

    /// Like [`Tensor::as_bytes`], for lent memory too; see [`Tensor::peek`].
    pub(crate) fn peek_bytes(&self) -> Result<&[u8]> {
        self.require_dense()?;
        if self.is_empty() {
            return Ok(&[]);
        }
        // SAFETY: dense, so `nbytes` bytes from `data` on; each is initialised, and is written by nobody, or only as
        // `peek` allows of lent memory.
        Ok(unsafe { std::slice::from_raw_parts(self.data, self.nbytes()) })
    }

    /// Refuses memory that another library may write to.
    pub(crate) fn require_unlent(&self) -> Result<()> {
        if !self.lent {
            return Ok(());
        }
        let reason = "the memory is lent: another library may write to it while the slice is alive";
        Err(Error::new(ErrorKind::Unsupported, reason)
            .remedy_is("copy the elements: Tensor::to_vec; or use the unsafe Tensor::lent_slice"))
    }

    fn require_dense(&self) -> Result<()> {
        if !self.device.is_cpu() {
            return Err(Error::new(ErrorKind::Device, format!("the elements are on {}", self.device))
                .remedy_is(self.device.host_remedy()));
        }
        if !self.is_row_major() || !self.is_aligned() {
            return Err(Error::new(ErrorKind::Unsupported, "the elements are strided or misaligned")
                .remedy_is("copy them first: Tensor::contiguous, or Tensor::to_vec"));
        }
        Ok(())
    }
}

/// Rust types that hold a dtype's elements.
///
/// # Safety
/// - `Self` has the size of the dtype's element, and exactly the alignment of [`DType::alignment`].
/// - Each of its bytes is initialised in every value: it has no padding, and no `MaybeUninit`.
/// - Every bit pattern of it is a valid value of `Self`, and an element of the dtype. So the dtype is never bool, whose
///   bytes are only 0 and 1.
pub unsafe trait Native: Copy + Send + Sync + 'static {
    /// The dtype.
    const DTYPE: DType;
}

macro_rules! native {
    ($($type:ty = $dtype:ident),+) => {
        // SAFETY: plain numbers, so that all bytes are initialised and all bit patterns are values and elements. Their size
        // and alignment are the dtype's, as the assertion below checks.
        $(unsafe impl Native for $type {
            const DTYPE: DType = DType::$dtype;
        }
        const _: () = assert!(
            size_of::<$type>() == DType::$dtype.itemsize() && align_of::<$type>() == DType::$dtype.alignment()
        );)+
    };
}
native!(
    i8 = Int8,
    i16 = Int16,
    i32 = Int32,
    i64 = Int64,
    u8 = UInt8,
    u16 = UInt16,
    u32 = UInt32,
    u64 = UInt64,
    half::f16 = Float16,
    half::bf16 = BFloat16,
    f32 = Float32,
    f64 = Float64
);

/// The error of elements that are read as those of another dtype.
#[cold]
fn other_dtype(own: DType, asked: DType) -> Error {
    let article = if own.name().starts_with('i') { "an" } else { "a" };
    Error::argument(format!("{article} {own} tensor read as {asked}")).remedy_is(match own {
        DType::Bool => "read it by Tensor::as_bools or Tensor::to_bools".to_owned(),
        _ if own.is_castable() => {
            format!("cast it first: Conversion::default().dtype(DType::{asked:?}).convert_tensor(&tensor)")
        }
        _ => "read its bytes: Tensor::as_bytes".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tensor of int32 over an array that outlives it.
    fn tensor(data: *mut u8, shape: &[i64], strides: &[i64]) -> Tensor {
        crate::tensor::tests::tensor(data, shape, strides).unwrap()
    }

    #[test]
    fn slices_need_the_right_type_and_layout() {
        let mut data = [1_i32, 2, 3, 4];
        let start = data.as_mut_ptr().cast();
        assert_eq!(tensor(start, &[2, 2], &[2, 1]).as_slice::<i32>().unwrap(), data);
        assert!(tensor(start, &[2, 2], &[1, 2]).as_slice::<i32>().is_err());
        assert!(tensor(start, &[4], &[1]).as_slice::<f32>().is_err());
        assert!(tensor(start.wrapping_add(1), &[3], &[1]).as_slice::<i32>().is_err());
    }

    #[test]
    fn lent_memory_is_no_safe_slice() {
        let mut data = [1_i32, 2];
        let lent = tensor(data.as_mut_ptr().cast(), &[2], &[1]).into_lent();
        assert!(lent.as_slice::<i32>().unwrap_err().to_string().contains("lent"));
        assert!(lent.clone().as_bytes().is_err());
        // SAFETY: nobody writes to the array.
        assert_eq!(unsafe { lent.lent_slice::<i32>() }.unwrap(), [1, 2]);
    }

    #[test]
    fn elements_are_read_as_another_dtype_after_a_cast() {
        let tensor = Tensor::from_vec(vec![1_i32, 2], &[2]).unwrap();
        let error = tensor.as_slice::<f64>().unwrap_err();
        assert_eq!(error.reason(), "an int32 tensor read as float64");
        let remedy = "cast it first: Conversion::default().dtype(DType::Float64).convert_tensor(&tensor)";
        assert_eq!(error.remedy().as_deref(), Some(remedy));
        let cast = crate::Conversion::default().dtype(DType::Float64).convert_tensor(&tensor).unwrap();
        assert_eq!(cast.as_slice::<f64>().unwrap(), [1.0, 2.0]);
        let bools = Tensor::from_bools(vec![true], &[1]).unwrap();
        let error = bools.to_vec::<u8>().unwrap_err();
        assert_eq!(error.reason(), "a bool tensor read as uint8");
        assert_eq!(error.remedy().as_deref(), Some("read it by Tensor::as_bools or Tensor::to_bools"));
    }
}
