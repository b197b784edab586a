//! Returns the validity bitmap of a column as a view.

use super::check_types;
use crate::arrow::DeviceArray;
use crate::convert;
use crate::error::{Error, Remedy, Result};
use crate::stream_order;
use crate::tensor::Tensor;
use arrow_schema::{DataType, FieldRef};

/// A validity bitmap as it lies in memory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Bits {
    /// The bytes that hold the bits, lowest bit first: uint8, of one dimension.
    pub bytes: Tensor,
    /// The position of the first row's bit in the first byte, 0 to 7.
    pub offset: usize,
}

/// The validity bitmap of the rows over the same memory, on any device; `None` where the array says that no row is null. Nulls
/// inside a row, and codes that stand for nulls, are not in it.
///
/// # Errors
/// When the type has no bitmap, or is a struct, which has one for each of its columns; when bitmaps of enclosing structs or of several
/// chunks would have to be joined, or the memory is not what the array says.
pub(crate) fn validity_bits(field: &FieldRef, chunks: &[DeviceArray]) -> Result<Option<Bits>> {
    check_types(field, chunks)?;
    let made = || {
        if let DataType::Struct(_) = field.data_type() {
            return Err(Error::unsupported("the rows of several columns have a bitmap for each of them")
                .remedy_is(Remedy::BitmapOfEachColumn));
        }
        let mut found = None;
        for array in chunks.iter().filter(|chunk| !chunk.is_empty()) {
            found = found.or(array.view().bitmap()?.map(|bitmap| (array, bitmap)));
        }
        let Some((array, bitmap)) = found else { return Ok(None) };
        if chunks.iter().filter(|chunk| !chunk.is_empty()).count() > 1 {
            return Err(Error::unsupported("the bitmaps of several chunks are joined by a copy")
                .remedy_is(Remedy::BitmapOfEachChunk));
        }
        stream_order::check_memory(array.device(), bitmap.start().addr(), bitmap.len())?;
        Ok(Some(Bits { bytes: convert::bytes_view(array, bitmap)?, offset: bitmap.first_bit() }))
    };
    made().map_err(|error: Error| error.in_column(field.name()))
}
