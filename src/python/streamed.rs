//! Converts a stream while reading it, so that its arrays are not held together.

use arrow_schema::FieldRef;
use pyo3::intern;
use pyo3::prelude::*;

use super::arrow_input::{Unread, has_length};
use super::sources::is_read_again;
use crate::spec::{Conversion, CopyMode, ResultKind, ResultSpec};

/// The results of a stream, and the conversion that they are of.
pub(super) struct Making {
    pub(super) conversion: Conversion,
    pub(super) results: Vec<ResultSpec>,
}

/// How a function's results are made of a stream whose type is known.
pub(super) type Makes<'a> = &'a dyn Fn(&Unread<'_>) -> PyResult<Making>;

impl Unread<'_> {
    /// A stream like this one, of the columns that a conversion reads of it.
    pub(super) fn of_type<'a>(&self, field: &'a FieldRef) -> Unread<'a> {
        Unread { field, index: self.index, device: self.device }
    }

    /// The conversion of this stream, where all columns are those that its source has.
    fn conversion(&self, conversion: &Conversion) -> Conversion {
        conversion.clone().index(self.index)
    }

    /// Refuses a conversion that no data of the stream makes possible: a stream that is read is lost.
    ///
    /// Where the object can be read again, the chunks decide whether a copy is refused.
    pub(super) fn check(&self, object: &Bound<'_, PyAny>, conversion: &Conversion) -> PyResult<()> {
        self.check_device(conversion)?;
        let of_this = self.conversion(conversion);
        match is_lost(object, conversion.copy)? {
            true => Ok(of_this.check_once(self.field)?),
            false => Ok(of_this.check(self.field)?),
        }
    }

    /// Refuses a stream whose results cannot come where they are asked for.
    pub(super) fn check_device(&self, conversion: &Conversion) -> PyResult<()> {
        Ok(self.device.map_or(Ok(()), |own| conversion.destination().check_stream(own))?)
    }

    /// Refuses what `validity()` would.
    pub(super) fn check_validity(&self, conversion: &Conversion, bits: bool) -> PyResult<()> {
        self.check_device(conversion)?;
        conversion.refuse_columns(self.field)?;
        match bits {
            true => crate::column::validity_bits(self.field, &[]).map(drop)?,
            false => self.conversion(conversion).validity_of(self.field).map(drop)?,
        }
        Ok(())
    }

    /// The results of the stream.
    pub(super) fn making(&self, conversion: &Conversion) -> PyResult<Making> {
        let conversion = self.conversion(conversion);
        // Rows of different lengths are converted together.
        let is_packed = conversion.selection.varied().next().is_none();
        let results = if is_packed { conversion.results(self.field, None)? } else { Vec::new() };
        Ok(Making { conversion, results })
    }

    /// The validity of several columns of the stream; no result for one column, or for bits.
    pub(super) fn making_validity(&self, conversion: &Conversion, bits: bool) -> PyResult<Making> {
        let conversion = self.conversion(conversion);
        let result = if bits { None } else { Some(conversion.validity_of(self.field)?) };
        let is_matrix = |result: &ResultSpec| matches!(result.kind, ResultKind::Validity(_));
        Ok(Making { conversion, results: result.into_iter().filter(is_matrix).collect() })
    }
}

/// Whether the rows of an object are lost where a copy is refused after they were read. Of data in hand the chunks decide.
pub(super) fn is_lost(object: &Bound<'_, PyAny>, copy: CopyMode) -> PyResult<bool> {
    Ok(copy == CopyMode::Never && !is_read_again(object)?)
}

/// Whether an object has its data in memory, whoever reads its stream: it tells how many bytes it has, as tables of pyarrow, arro3,
/// polars and pandas do. Nothing is saved by letting go of its arrays, and one pass over all of them is the fastest.
pub(super) fn is_in_memory(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let (kind, py) = (object.get_type(), object.py());
    let names = [intern!(py, "nbytes"), intern!(py, "estimated_size"), intern!(py, "memory_usage")];
    Ok(has_length(object)?
        && names.iter().map(|name| kind.hasattr(*name)).collect::<PyResult<Vec<_>>>()?.contains(&true))
}
