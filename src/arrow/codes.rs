//! Dictionary codes as nulls: a code that stands for a null value is a null.

use arrow_array::Array;
use arrow_schema::DataType;

use super::codes_beyond;
use super::import::DeviceArray;
use super::mask::Mask;
use super::validate::require_logical_nulls;
use super::view::{ArrayView, Leaf, LeafDictionary};
use crate::dtype::DType;
use crate::error::Result;
use crate::spec::Element;

impl<'a> Leaf<'a> {
    /// Returns which elements are null, like [`Leaf::host_mask`], including codes of null values in the dictionary.
    /// `owner` is the array of this leaf.
    ///
    /// # Errors
    /// If the memory is not the host's, a code is beyond the dictionary, the dictionary breaks the Arrow format, or an
    /// allocation fails.
    #[inline]
    pub(crate) fn logical_mask(&self, owner: &DeviceArray) -> Result<Option<Mask<'a>>> {
        owner.require_host()?;
        // SAFETY: host memory: checked.
        let own = unsafe { self.host_mask() }?;
        match self.innermost {
            Some((DataType::Dictionary(_, _), _)) => self.mask_of_codes(owner, own),
            _ => Ok(own),
        }
    }

    /// Like [`Leaf::logical_mask`], for codes in host memory whose bitmaps are `own`.
    fn mask_of_codes(&self, owner: &DeviceArray, own: Option<Mask<'a>>) -> Result<Option<Mask<'a>>> {
        let Some(LeafDictionary { codes, array, values }) = self.dictionary() else { return Ok(own) };
        let length = usize::try_from(array.length).unwrap_or(0);
        let offset = usize::try_from(array.offset).unwrap_or(0);
        let nulls = match values {
            DataType::Null => Mask::of_nulls(length)?,
            // Their nulls are the nulls of the values that they stand for.
            DataType::Dictionary(_, _) | DataType::RunEndEncoded(_, _) | DataType::Union(_, _) => {
                let values = owner.dictionary_of(self)?.map(|values| values.to_arrow()).transpose()?;
                values.as_ref().map_or(Ok(()), |values| require_logical_nulls(&values.to_data()))?;
                #[allow(clippy::disallowed_methods, reason = "the memory was asked for in the line above")]
                let nulls = values.and_then(|values| values.logical_nulls());
                match nulls {
                    Some(nulls) => Mask::of(length, |index| nulls.is_valid(index))?,
                    None => None,
                }
            }
            // SAFETY: import checked the dictionary's bitmap against its offset and length; it lives as long as the array
            // that is borrowed for 'a, and is where that is: in host memory, as `logical_mask` checked.
            _ => unsafe { Mask::combine(ArrayView::validity(values, array, offset, length, 1).as_slice(), length) }?,
        };
        let Some(nulls) = nulls else { return Ok(own) };
        let mut beyond = None;
        let mask = Mask::of(self.elements, |index| {
            if own.as_ref().is_some_and(|own| !own.is_valid(index)) {
                return false;
            }
            match self.code(codes, index).filter(|code| *code < length) {
                Some(code) => nulls.is_valid(code),
                None => {
                    beyond.get_or_insert(index);
                    false
                }
            }
        })?;
        match beyond {
            None => Ok(mask),
            Some(index) => {
                let row_elements = self.elements.checked_div(self.rows).unwrap_or(0);
                Err(codes_beyond::beyond(length).at_row(index.checked_div(row_elements).unwrap_or(0)))
            }
        }
    }

    /// Returns the code of an element; `None` if it is negative.
    fn code(&self, dtype: DType, index: usize) -> Option<usize> {
        let at = self.start(Element::Values(dtype)).wrapping_add(index.wrapping_mul(dtype.itemsize()));
        macro_rules! read {
            ($type:ty) => {{
                // SAFETY: the checked array has this many codes in host memory; they may be misaligned.
                let code = unsafe { at.cast::<$type>().read_unaligned() };
                usize::try_from(code).ok()
            }};
        }
        match dtype {
            DType::Int8 => read!(i8),
            DType::Int16 => read!(i16),
            DType::Int32 => read!(i32),
            DType::Int64 => read!(i64),
            DType::UInt8 => read!(u8),
            DType::UInt16 => read!(u16),
            DType::UInt32 => read!(u32),
            DType::UInt64 => read!(u64),
            _ => None,
        }
    }
}
