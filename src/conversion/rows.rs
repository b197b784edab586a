//! Runs a [`Conversion`] into rows of different lengths, padded or not, and into the bitmap of a column.

use arrow_schema::FieldRef;

use super::run::Run;
use crate::arrow::DeviceArray;
use crate::column::{Bits, validity_bits};
use crate::error::{Error, Result};
use crate::matrix::work_here;
use crate::ragged::{Pad, Ragged, chunks_to_padded, chunks_to_ragged};
use crate::spec::Conversion;
use crate::tensor::Tensor;

impl Conversion {
    /// Converts the chunks of a column of lists, strings or `arrow.variable_shape_tensor` into values and offsets: views where layout and
    /// options allow it. The options apply to the elements. Nulls of rows are an error, are told by [`Ragged::validity`] when they are
    /// kept, and are empty rows when null elements are filled.
    ///
    /// # Errors
    /// As [`Conversion::to_tensor`]; when offsets lead out of the elements.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use arrow_array::StringArray;
    /// use arrow_dlpack::{Conversion, DeviceArray};
    /// use arrow_schema::{DataType, Field};
    ///
    /// let field = Arc::new(Field::new("x", DataType::Utf8, true));
    /// let strings = DeviceArray::from_arrow(&StringArray::from(vec!["to", "be"]), field)?;
    /// let ragged = Conversion::default().ragged(strings.field(), &[strings.clone()])?;
    /// assert_eq!(ragged.offsets().as_slice::<i32>()?, [0, 2, 4]);
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn ragged(&self, field: &FieldRef, chunks: &[DeviceArray]) -> Result<Ragged> {
        self.check_columns(field)?;
        self.convert_ragged(field, chunks, false)
    }

    /// As [`Conversion::ragged`], into a matrix of shape `(rows, length, *inner)` that is padded at the ends of rows, and a bool for each
    /// of its items, true where a valid row has a valid element.
    ///
    /// # Errors
    /// As [`Conversion::ragged`]; when a row is longer than the length, or the value is none of the dtype.
    pub fn padded(&self, field: &FieldRef, chunks: &[DeviceArray], pad: Pad) -> Result<(Tensor, Tensor)> {
        self.check_columns(field)?;
        self.convert_padded(field, chunks, pad, false)
    }

    /// The validity bitmap of a column where it lies; `None` where no row is null.
    ///
    /// # Errors
    /// As [`validity_bits`](crate::validity_bits).
    pub fn validity_bits(&self, field: &FieldRef, chunks: &[DeviceArray]) -> Result<Option<Bits>> {
        let there = self.bring(chunks, Run::default())?;
        let Some(Bits { bytes, offset }) = validity_bits(field, &there.chunks)? else { return Ok(None) };
        Ok(Some(Bits { bytes: self.send_one(bytes, &work_here)?, offset }))
    }

    /// As [`Conversion::ragged`], for options whose names were checked. `is_own`: all memory was copied for this conversion alone.
    pub(crate) fn convert_ragged(&self, field: &FieldRef, chunks: &[DeviceArray], is_own: bool) -> Result<Ragged> {
        let there = self.bring(chunks, Run { is_own, ..Run::default() })?;
        let ragged = chunks_to_ragged(field, &there.chunks, &there.conversion.of(field.name()))?;
        self.send_rows(if there.is_own { ragged.into_own()? } else { ragged }, &work_here)
    }

    /// As [`Conversion::padded`], for options whose names were checked; `is_own` as for [`Conversion::convert_ragged`].
    pub(crate) fn convert_padded(
        &self,
        field: &FieldRef,
        chunks: &[DeviceArray],
        pad: Pad,
        is_own: bool,
    ) -> Result<(Tensor, Tensor)> {
        let there = self.bring(chunks, Run { is_own, ..Run::default() })?;
        let (matrix, valid) = chunks_to_padded(field, &there.chunks, pad, &there.conversion.of(field.name()))?;
        let sent = self.send(vec![matrix, valid], &work_here)?;
        <[Tensor; 2]>::try_from(sent).map(Into::into).map_err(|_| Error::internal("a part of padded rows was lost"))
    }
}
