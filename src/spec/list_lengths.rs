//! Which columns `length=` fits: lists that all have one length.

use arrow_schema::DataType;

use super::Options;
use crate::error::{Error, Remedy, Result};

/// Returns whether rows of a type are lists of any length.
pub(super) fn is_list(data_type: &DataType) -> bool {
    matches!(data_type, DataType::List(_) | DataType::LargeList(_) | DataType::ListView(_) | DataType::LargeListView(_))
}

/// Refuses `length=` for a column that it names and that has no lists, or lists of another fixed size.
///
/// # Errors
/// If the length is beyond that of fixed-size lists.
pub(super) fn check_length(data_type: &DataType, options: &Options) -> Result<()> {
    let Some(length) = options.length else { return Ok(()) };
    let is_list = is_list(data_type);
    match data_type {
        _ if is_list && i32::try_from(length.value).is_err() => {
            Err(Error::argument(format!("the length {} is beyond 2^31 - 1", length.value))
                .remedy_is("pass a shorter one"))
        }
        _ if is_list || !length.by_name => Ok(()),
        DataType::FixedSizeList(_, size) if usize::try_from(*size) == Ok(length.value) => Ok(()),
        _ => {
            let reason = format!("the length {} is for columns of lists, and this one is of {data_type}", length.value);
            Err(Error::argument(reason).remedy_is(Remedy::LeaveOutOfLength))
        }
    }
}
