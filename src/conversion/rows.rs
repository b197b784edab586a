//! Runs a [`Conversion`] into rows of different lengths, padded or not, and into the bitmap of a column.

use arrow_schema::FieldRef;

use super::converted::{both_tensors, only_rows};
use super::planned::ResultForm;
use super::run::Run;
use crate::arrow::{Chunks, DeviceArray};
use crate::column::{Bits, run_here, validity_bits};
use crate::error::{Error, Remedy, Result};
use crate::ragged::Ragged;
use crate::spec::{Conversion, Pad, PerColumn};
use crate::tensor::Tensor;

impl Conversion {
    /// Converts lists, strings or `arrow.variable_shape_tensor` into values and offsets: views where layout and options allow it.
    /// Chunks are joined by a copy.
    ///
    /// Options apply to the elements. Nulls of rows are an error, are told by [`Ragged::validity`] when they are kept, and are empty rows
    /// when null elements are filled. That validity is a copy of the bitmap, and made also where no other copy is allowed.
    ///
    /// # Errors
    /// As [`Conversion::to_tensor`]; when columns are selected, the type has no ragged form, or offsets lead out of the elements.
    ///
    /// ```
    /// use arrow_array::{ListArray, types::Float32Type};
    /// use arrow_dlpack::Conversion;
    ///
    /// let rows = [vec![Some(1.0), Some(2.0)], vec![], vec![Some(3.0)]].map(Some);
    /// let lists = ListArray::from_iter_primitive::<Float32Type, _, _>(rows);
    /// let ragged = Conversion::default().ragged(&lists)?;
    /// assert_eq!(ragged.values().as_tensor().unwrap().as_slice::<f32>()?, [1.0, 2.0, 3.0]);
    /// assert_eq!(ragged.offsets().as_slice::<i32>()?, [0, 2, 2, 3]);
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn ragged<'a>(&self, data: impl TryInto<Chunks<'a>, Error: Into<Error>>) -> Result<Ragged> {
        let chunks = Chunks::of(data)?;
        self.check_rows(chunks.field())?;
        self.convert_ragged(chunks.field(), chunks.arrays(), false)
    }

    /// Converts lists or strings into a matrix of shape (rows, length, *inner), padded at the end of each row or at its start, and a bool
    /// for each of its items, of shape (rows, length), true where a valid row has a valid element. One pass.
    ///
    /// Null rows are an error, or all padding where null elements are kept (they are padding then) or filled.
    ///
    /// # Errors
    /// When a row is longer than `pad.length` and not truncated, when `pad` contradicts itself (to truncate without a length, or a
    /// length that is no multiple of `pad.multiple_of`), lists are nested, a copy is not allowed, or as [`Conversion::ragged`].
    ///
    /// ```
    /// use arrow_array::StringArray;
    /// use arrow_dlpack::{Conversion, Pad, Scalar};
    ///
    /// let text = StringArray::from(vec!["to", "be"]);
    /// let (matrix, validity) = Conversion::default().padded(&text, Pad::new(Scalar::Int(0)).length(3))?;
    /// assert_eq!(matrix.as_slice::<u8>()?, b"to\0be\0");
    /// assert_eq!(validity.shape(), [2, 3]);
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn padded<'a>(&self, data: impl TryInto<Chunks<'a>, Error: Into<Error>>, pad: Pad) -> Result<(Tensor, Tensor)> {
        let chunks = Chunks::of(data)?;
        self.check_rows(chunks.field())?;
        self.refuse_length()?;
        self.convert_padded(chunks.field(), chunks.arrays(), pad, false)
    }

    /// Refuses options of columns that do not exist: rows are one column.
    pub(super) fn check_rows(&self, field: &FieldRef) -> Result<()> {
        self.check_columns(field)?;
        self.refuse_columns(field)
    }

    /// Refuses a length of lists, beside that of the padding.
    pub(super) fn refuse_length(&self) -> Result<()> {
        if self.length == PerColumn::default() {
            return Ok(());
        }
        Err(Error::argument("a length is for lists that become rows of one shape, and these are padded")
            .remedy_is(Remedy::NoLength))
    }

    /// The validity bitmap of the rows over the same memory, on any device; `None` where the array says that no row is null. Nulls
    /// inside a row, and codes that stand for nulls, are not in it.
    ///
    /// # Errors
    /// When the type has no bitmap, or is a struct, which has one for each of its columns; when bitmaps of enclosing structs or of several
    /// chunks would have to be joined, or the memory is not what the array says; when a copy is asked for.
    ///
    /// ```
    /// use arrow_array::Int32Array;
    /// use arrow_dlpack::Conversion;
    ///
    /// let bits = Conversion::default().validity_bits(&Int32Array::from(vec![Some(1), None, Some(3)]))?;
    /// let bits = bits.expect("there is a null");
    /// assert_eq!((bits.bytes.as_slice::<u8>()?[0] & 0b111, bits.offset), (0b101, 0));
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn validity_bits<'a>(&self, data: impl TryInto<Chunks<'a>, Error: Into<Error>>) -> Result<Option<Bits>> {
        let chunks = Chunks::of(data)?;
        self.refuse_columns(chunks.field())?;
        self.require_bitmap()?;
        self.bits_of(chunks.field(), chunks.arrays())
    }

    /// Refuses what a bitmap is not: a copy, and a bit for each element.
    pub(crate) fn require_bitmap(&self) -> Result<()> {
        if self.copy.asks_for_own(self.writable) {
            let error = Error::argument("a validity bitmap is a view, and a copy is asked for");
            return Err(error.remedy_is("allow views, or ask for validity as bools"));
        }
        if self.length != PerColumn::default() {
            let error = Error::argument("a bitmap has a bit for each row, and none for the elements of lists");
            return Err(error.remedy_is(Remedy::NoLengthOrBools));
        }
        Ok(())
    }

    /// As [`Conversion::validity_bits`], for columns that were checked.
    pub(crate) fn bits_of(&self, field: &FieldRef, chunks: &[DeviceArray]) -> Result<Option<Bits>> {
        let there = self.bring(chunks, Run::default())?;
        let Some(Bits { bytes, offset }) = validity_bits(field, &there.chunks)? else { return Ok(None) };
        Ok(Some(Bits { bytes: self.send_one(bytes, &run_here)?, offset }))
    }

    /// As [`Conversion::ragged`], for options whose names were checked. `is_own`: all memory was copied for this conversion alone.
    pub(crate) fn convert_ragged(&self, field: &FieldRef, chunks: &[DeviceArray], is_own: bool) -> Result<Ragged> {
        only_rows(self.convert_asked(field, chunks, ResultForm::Ragged, Run { is_own, ..Run::default() })?)
    }

    /// As [`Conversion::padded`], for options whose names were checked; `is_own` as for [`Conversion::convert_ragged`].
    pub(crate) fn convert_padded(
        &self,
        field: &FieldRef,
        chunks: &[DeviceArray],
        pad: Pad,
        is_own: bool,
    ) -> Result<(Tensor, Tensor)> {
        both_tensors(self.convert_asked(field, chunks, ResultForm::Padded(pad), Run { is_own, ..Run::default() })?)
    }
}
