//! Converts an array to arrow-rs: exports it with aligned buffers, and validates its contents.

use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, make_array, new_empty_array};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::DataType;

use super::check::check_sizes;
use super::export::export_joined;
use super::import::DeviceArray;
use super::offsets::push_down;
use super::validate::{prepare, validate};
use crate::alloc::{HostBuffer, Owner, fallible};
use crate::copy_log::{self, Copied};
use crate::error::{Error, Result, catch_panic};
use crate::ffi::arrow_device::ArrowArray;

impl DeviceArray {
    /// Returns the array as arrow-rs data over the same memory. Buffers that are not aligned for their type are copied,
    /// and so is the memory of a tensor that another library lent, or that Python may write to.
    ///
    /// # Errors
    /// If the memory is not the host's, or the contents break the Arrow format, such as decreasing offsets. If an allocation fails.
    pub fn to_arrow(&self) -> Result<ArrayRef> {
        self.read_arrow(true, self.is_lent())
    }

    /// Like [`DeviceArray::to_arrow`], for a conversion that logs its own copy: nothing that it returns is over this memory.
    pub(crate) fn to_arrow_unlogged(&self) -> Result<ArrayRef> {
        self.read_arrow(false, false)
    }

    fn read_arrow(&self, is_copy: bool, is_own: bool) -> Result<ArrayRef> {
        self.require_host()?;
        let prepared = |node: &mut _| {
            // SAFETY: `export_joined` makes the node of a range of this array, which import has checked, and which is in host
            // memory.
            let copies = unsafe { prepare(self.field().data_type(), node) };
            let copies = copies.map_err(|error| error.in_column(self.field().name()))?;
            Ok((!copies.is_empty()).then(|| Arc::new(copies) as Owner))
        };
        let exported = export_joined(self, is_copy, prepared)?;
        let broken = |error: arrow_schema::ArrowError| Error::invalid(error.to_string()).in_column(self.field().name());
        let array = to_arrow_rs(exported.array);
        // SAFETY: both are `struct ArrowArray` of the C data interface; borrowed from a local.
        let read = unsafe { &*(&raw const array).cast::<ArrowArray>() };
        // SAFETY: an export of an array that import has checked, in host memory.
        unsafe { check_sizes(self.field().data_type(), read) }.map_err(|error| error.in_column(self.field().name()))?;
        // Without rows nothing is read, whatever the children hold.
        if self.is_empty() && !matches!(self.field().data_type(), DataType::Dictionary(_, _)) {
            return catch_panic(|| Ok(new_empty_array(self.field().data_type())));
        }
        catch_panic(|| {
            // SAFETY: an export of an array that import has checked, so counts and pointers fit the type; what only the
            // contents show is validated next, before anyone reads by it.
            let data = unsafe { arrow_array::ffi::from_ffi_and_data_type(array, self.field().data_type().clone()) };
            let data = data.map_err(broken)?;
            let data = if is_own { copied(&data)? } else { data };
            validate(&data).map_err(broken)?;
            Ok(make_array(push_down(data)))
        })
        .inspect(|array| {
            if is_own {
                copy_log::record(|| Copied {
                    what: copy_log::rows_of(self.field().name(), self.len(), self.field().data_type()),
                    why: "another library may write to the memory".to_owned(),
                    bytes: array.get_buffer_memory_size(),
                });
            }
        })
        .map_err(|error| error.in_column(self.field().name()))
    }
}

/// Copies the memory of an array that others may write to, before its contents are validated.
fn copied(data: &ArrayData) -> Result<ArrayData> {
    let buffers = fallible::collected(data.buffers().iter().map(|buffer| copied_buffer(buffer)))?;
    let copied_bits = |nulls: &NullBuffer| -> Result<_> {
        let bits = copied_buffer(nulls.buffer())?;
        Ok(NullBuffer::new(BooleanBuffer::new(bits, nulls.offset(), nulls.len())))
    };
    let nulls = data.nulls().map(copied_bits);
    let children = fallible::collected(data.child_data().iter().map(copied))?;
    let copy = data.clone().into_builder().buffers(buffers).nulls(nulls.transpose()?).child_data(children);
    // SAFETY: of the same type, length and offset, over buffers of the same sizes.
    Ok(unsafe { copy.build_unchecked() })
}

fn copied_buffer(bytes: &[u8]) -> Result<Buffer> {
    let mut copy = HostBuffer::uninitialised(bytes.len())?;
    for (to, byte) in copy.as_uninit_mut().iter_mut().zip(bytes) {
        to.write(*byte);
    }
    let Some(start) = NonNull::new(copy.as_ptr()) else { return Ok(Buffer::default()) };
    // SAFETY: as many bytes, each written above, which the buffer that is handed over keeps.
    Ok(unsafe { Buffer::from_custom_allocation(start, bytes.len(), Arc::new(copy)) })
}

/// Converts our struct to arrow-rs' struct of the same C layout, which releases it.
fn to_arrow_rs(array: ArrowArray) -> FFI_ArrowArray {
    let array = std::mem::ManuallyDrop::new(array);
    // SAFETY: both are `struct ArrowArray` of the C data interface; ManuallyDrop makes this a move.
    unsafe { (&raw const array).cast::<FFI_ArrowArray>().read() }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int32Type;

    use crate::Conversion;
    use crate::column::to_arrow;
    use crate::copy_log::CopyLog;
    use crate::ragged::Ragged;
    use crate::spec::CopyMode;
    use crate::tensor::Tensor;

    #[test]
    fn arrow_rs_has_a_copy_of_memory_that_others_may_write_to() {
        let made = || Tensor::from_vec(vec![0, 1, 3], &[3]).unwrap();
        for lent in [false, true] {
            let tensor = if lent { made().into_lent() } else { made() };
            let address = tensor.as_ptr().addr();
            let array = to_arrow(&tensor, None, CopyMode::Never).unwrap();
            let log = CopyLog::new();
            let rows = log.track(|| array.slice(1, 2).unwrap().to_arrow()).unwrap();
            assert_eq!(rows.as_primitive::<Int32Type>().values(), &[1, 3]);
            let start = rows.as_primitive::<Int32Type>().values().as_ptr().addr();
            assert_eq!((start == address + 4, log.entries().len()), (!lent, usize::from(lent)));
            // A view of the array is lent as the tensor was.
            let view = Conversion::default().to_tensor(&array).unwrap();
            assert_eq!((view.as_ptr().addr(), view.as_slice::<i32>().is_ok()), (address, !lent));
            let lists = Ragged::new(Tensor::from_vec(vec![1, 2, 3], &[3]).unwrap(), tensor, None, None, None).unwrap();
            let lists = lists.to_arrow(CopyMode::Never).unwrap();
            let offsets = lists.to_arrow().unwrap().as_list::<i32>().offsets().as_ptr().addr();
            assert_eq!(offsets == address, !lent);
        }
    }
}
