//! An Arrow array in memory of its own.

use arrow_array::make_array;
use arrow_data::transform::MutableArrayData;

use crate::arrow::DeviceArray;
use crate::copy_log::{self, Copied};
use crate::error::{Error, ErrorKind, Result};

/// The same array in memory that nobody else sees.
///
/// # Errors
/// When the memory is not the host's, the contents break the Arrow format, or the copy cannot be made.
pub fn copy_array(array: &DeviceArray) -> Result<DeviceArray> {
    let data = array.to_arrow()?.to_data();
    let mut copy = MutableArrayData::new(vec![&data], false, data.len());
    copy.try_extend(0, 0, data.len()).map_err(|error| Error::new(ErrorKind::Memory, error.to_string()))?;
    let copy = make_array(copy.freeze());
    copy_log::record(|| Copied {
        what: format!("column {:?}: {} rows of {}", array.field().name(), array.len(), array.field().data_type()),
        why: "copy=True".to_owned(),
        bytes: copy.get_buffer_memory_size(),
    });
    DeviceArray::from_arrow(copy.as_ref(), array.field().clone())
}
