//! An Arrow array in memory of its own.

use arrow_array::make_array;
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_data::transform::MutableArrayData;
use arrow_schema::{ArrowError, DataType};

use crate::arrow::DeviceArray;
use crate::copy_log::{self, Copied};
use crate::error::{Error, ErrorKind, Result, catch_panic};

/// The same array in memory that nobody else sees.
///
/// # Errors
/// When the memory is not the host's, the contents break the Arrow format, or the copy cannot be made.
pub fn copy_array(array: &DeviceArray) -> Result<DeviceArray> {
    if !array.device().is_cpu() {
        let reason = format!("copy=True needs memory on {}, where no copy of an array is made", array.device());
        return Err(Error::new(ErrorKind::Device, reason)
            .remedy_is("pass device= for a copy on another device, or copy=None")
            .in_column(array.field().name()));
    }
    let data = array.to_arrow()?.to_data();
    let copy =
        catch_panic(|| copy_data(&data).map(make_array)).map_err(|error| error.in_column(array.field().name()))?;
    copy_log::record(|| Copied {
        what: format!("column {:?}: {} rows of {}", array.field().name(), array.len(), array.field().data_type()),
        why: "copy=True".to_owned(),
        bytes: copy.get_buffer_memory_size(),
    });
    DeviceArray::from_arrow(copy.as_ref(), array.field().clone())
}

/// The slots of an array, in buffers that nobody else sees.
fn copy_data(data: &ArrayData) -> Result<ArrayData> {
    let mut copy = MutableArrayData::new(vec![data], false, data.len());
    copy.try_extend(0, 0, data.len()).map_err(refused)?;
    unshare(copy.freeze())
}

/// Copies what `MutableArrayData` shares with its source: dictionaries, and the data of view types.
fn unshare(data: ArrayData) -> Result<ArrayData> {
    let children = data.child_data().iter().map(|child| match data.data_type() {
        DataType::Dictionary(_, _) => copy_data(child),
        _ => unshare(child.clone()),
    });
    let children = children.collect::<Result<_>>()?;
    let views = matches!(data.data_type(), DataType::Utf8View | DataType::BinaryView);
    let buffers =
        data.buffers().iter().map(|buffer| if views { Buffer::from(buffer.as_slice()) } else { buffer.clone() });
    let buffers = buffers.collect();
    data.into_builder().buffers(buffers).child_data(children).build().map_err(refused)
}

fn refused(error: ArrowError) -> Error {
    Error::new(ErrorKind::Memory, error.to_string())
}
