//! The dictionary of the first array, with which those of later arrays are compared.

use arrow_array::ArrayRef;

use crate::arrow::DeviceArray;
use crate::convert;
use crate::error::{Error, Remedy, Result};

/// Values from which on a dictionary that was compared is kept, with its whole array, to be recognised by its memory.
pub(super) const REMEMBERED_FROM: usize = 256;

/// The dictionary of codes.
pub(super) struct Dictionary {
    pub(super) array: DeviceArray,
    pub(super) values: ArrayRef,
}

impl Dictionary {
    /// Copied, so that it does not keep its whole array alive.
    pub(super) fn new(dictionary: &DeviceArray) -> Result<Self> {
        let array = convert::copy_array_for(dictionary, "dictionary kept apart")?;
        let values = array.to_arrow()?;
        Ok(Self { array, values })
    }
}

/// Returns the error of codes of another dictionary than the first array's, which would mean something else.
pub(super) fn other_dictionary(remedy: impl Into<Remedy>, column: &str) -> Error {
    let reason = "the arrays have different dictionaries, so their codes mean different things";
    Error::unsupported(reason).remedy_is(remedy).in_column(column)
}
