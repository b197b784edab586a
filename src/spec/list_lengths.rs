//! Which columns `length=` fits: lists that all have one length.

use arrow_schema::{DataType, Field, FieldRef};

use super::Options;
use crate::error::{Counted, Error, Remedy, Result};

/// Returns the items of lists of any length; `None` for other types.
pub(crate) fn item_of_lists(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) | DataType::ListView(item) | DataType::LargeListView(item) => {
            Some(item)
        }
        _ => None,
    }
}

/// Returns whether rows of a type are lists of any length.
pub(crate) fn is_list(data_type: &DataType) -> bool {
    item_of_lists(data_type).is_some()
}

fn is_list_below(data_type: &DataType, options: &Options) -> bool {
    match of_rows(data_type, options) {
        DataType::FixedSizeList(item, _) => is_list_below(item.data_type(), options),
        other => is_list(other),
    }
}

/// Refuses a length for an array that is all there is, and has no lists: of a batch it is for the columns that have some.
pub(super) fn require_lists(field: &Field) -> Result<()> {
    fn has_lists(data_type: &DataType) -> bool {
        match data_type {
            DataType::FixedSizeList(..) => true,
            DataType::Dictionary(_, values) => has_lists(values),
            DataType::RunEndEncoded(_, values) => has_lists(values.data_type()),
            other => is_list(other),
        }
    }
    if has_lists(field.data_type()) {
        return Ok(());
    }
    let reason = format!("the length is one of lists, and the data is an array of {}", field.data_type());
    Err(Error::argument(reason).remedy_is(Remedy::NoLength).in_column(field.name()))
}

/// Returns the type of the rows that a column becomes: that of the values of runs, and of a dictionary that is decoded.
fn of_rows<'a>(data_type: &'a DataType, options: &Options) -> &'a DataType {
    match data_type {
        DataType::RunEndEncoded(_, values) => of_rows(values.data_type(), options),
        DataType::Dictionary(_, values) if options.decode(values) => of_rows(values, options),
        other => other,
    }
}

/// Refuses `length=` for lists of another fixed size, but for lists of lists, and for a column that it names and that has no lists.
///
/// # Errors
/// For these columns, and if the length is beyond that of fixed-size lists.
pub(super) fn check_length(data_type: &DataType, options: &Options) -> Result<()> {
    let Some(length) = options.length else { return Ok(()) };
    let rows = of_rows(data_type, options);
    let is_list = is_list(rows);
    match rows {
        _ if is_list && i32::try_from(length.value).is_err() => {
            Err(Error::argument(format!("the length {} is beyond 2^31 - 1", length.value))
                .remedy_is("pass a shorter one"))
        }
        // Below lists of a fixed size it is the length of the lists.
        DataType::FixedSizeList(..) if is_list_below(rows, options) && !length.by_name => Ok(()),
        DataType::FixedSizeList(_, size) if usize::try_from(*size) != Ok(length.value) => {
            let count = Counted(usize::try_from(*size).unwrap_or_default(), "element");
            let reason = format!("its lists have {count}, and not the {} of the length", length.value);
            let remedy = if length.by_name { Remedy::LeaveOutOfLength } else { Remedy::LengthOfOthers };
            Err(Error::argument(reason).remedy_is(remedy))
        }
        DataType::FixedSizeList(..) => Ok(()),
        _ if is_list || !length.by_name => Ok(()),
        _ => {
            let reason = format!("the length {} is for columns of lists, and this one is of {data_type}", length.value);
            Err(Error::argument(reason).remedy_is(Remedy::LeaveOutOfLength))
        }
    }
}
