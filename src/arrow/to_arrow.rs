//! Converts an array to arrow-rs: exports it with aligned buffers, and validates its contents.

use std::sync::Arc;

use arrow_array::{ArrayRef, make_array, new_empty_array};
use arrow_data::ffi::FFI_ArrowArray;
use arrow_schema::DataType;

use super::check::check_sizes;
use super::codes_beyond;
use super::export::export_joined;
use super::import::DeviceArray;
use super::null_slots::blanked;
use super::offsets::push_down;
use super::validate::{prepare, validate, validate_new};
use super::validated::Validated;
use crate::alloc::Owner;
use crate::error::{Error, Result, catch_panic};
use crate::ffi::arrow_device::ArrowArray;

impl DeviceArray {
    /// Returns the array as arrow-rs data over the same memory. Buffers that are not aligned for their type are copied.
    ///
    /// # Errors
    /// If the memory is not the host's, or the contents break the Arrow format, such as decreasing offsets.
    pub fn to_arrow(&self) -> Result<ArrayRef> {
        self.read_arrow(true, &Validated::default())
    }

    /// Like [`DeviceArray::to_arrow`], for a conversion that logs its own copy.
    pub(crate) fn to_arrow_unlogged(&self) -> Result<ArrayRef> {
        self.read_arrow(false, &Validated::default())
    }

    /// Like [`DeviceArray::to_arrow_unlogged`], for a conversion of several chunks, which may be slices of one array: validates what
    /// is not `known`, and adds it.
    pub(crate) fn to_arrow_of_many(&self, known: &Validated) -> Result<ArrayRef> {
        self.read_arrow(false, known)
    }

    fn read_arrow(&self, is_copy: bool, known: &Validated) -> Result<ArrayRef> {
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
            data.validate().map_err(broken)?;
            // Of a slice only its own slots are looked at.
            let data = push_down(data);
            let Err(error) = validate_new(&data, known) else { return Ok(make_array(data)) };
            // It may be of what lies under a null.
            let data = blanked(&data)?;
            validate(&data).map_err(|_| codes_beyond::of_lowest_row(&data).unwrap_or_else(|| broken(error)))?;
            Ok(make_array(data))
        })
        .map_err(|error| error.in_column(self.field().name()))
    }
}

/// Converts our struct to arrow-rs' struct of the same C layout, which releases it.
fn to_arrow_rs(array: ArrowArray) -> FFI_ArrowArray {
    let array = std::mem::ManuallyDrop::new(array);
    // SAFETY: both are `struct ArrowArray` of the C data interface; ManuallyDrop makes this a move.
    unsafe { (&raw const array).cast::<FFI_ArrowArray>().read() }
}
