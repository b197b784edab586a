//! Locates offsets, lengths and elements of lists and strings on any device. Reads only the structs.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};
use smallvec::smallvec;

use super::check::{Buffer, buffers_of, children_of, has_validity};
use super::foreign::{buffer, child, dictionary};
use super::import::{DeviceArray, array_ready_at};
use super::node::ArrayNode;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ffi::arrow_device::ArrowArray;

/// The offsets or the lengths of lists in their buffer, of 32 or 64 bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListInts {
    start: *const u8,
    wide: bool,
    count: usize,
}

// SAFETY: an address, which nothing here reads; whoever does holds the array, which keeps the memory.
unsafe impl Send for ListInts {}
// SAFETY: shared references give the address and the count only.
unsafe impl Sync for ListInts {}

impl ListInts {
    /// The address of the first one.
    pub(crate) fn start(&self) -> *const u8 {
        self.start
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Whether they have 64 bits.
    pub(super) fn is_wide(&self) -> bool {
        self.wide
    }

    /// Int32 or int64.
    pub(crate) fn dtype(&self) -> DType {
        if self.wide { DType::Int64 } else { DType::Int32 }
    }

    /// The addresses of all of them.
    pub(crate) fn bytes(&self) -> Range<usize> {
        let start = self.start.addr();
        start..start.saturating_add(self.count.saturating_mul(self.dtype().itemsize()))
    }

    /// The addresses of one of them.
    pub(crate) fn one(&self, index: usize) -> Range<usize> {
        let width = self.dtype().itemsize();
        let start = self.start.addr().saturating_add(index.saturating_mul(width));
        start..start.saturating_add(width)
    }

    /// Returns the value of the integer with this number, of the bytes of all.
    pub(super) fn at(&self, bytes: &[u8], index: usize) -> Option<i64> {
        self.value(bytes.get(index.checked_mul(self.dtype().itemsize())?..)?)
    }

    /// Returns the value of one integer's bytes.
    pub(crate) fn value(&self, bytes: &[u8]) -> Option<i64> {
        if self.wide {
            bytes.first_chunk().map(|bytes| i64::from_ne_bytes(*bytes))
        } else {
            bytes.first_chunk().map(|bytes| i64::from(i32::from_ne_bytes(*bytes)))
        }
    }
}

impl DeviceArray {
    /// Returns the name of the first field that may have nulls, but whose counterpart in `requested`, a field of the
    /// same structure, forbids them. Reads no bitmaps.
    pub(crate) fn may_have_nulls_of(&self, requested: &Field) -> Option<String> {
        let view = self.view();
        let inherited = !view.inherited.is_empty() && !requested.is_nullable();
        if inherited {
            Some(requested.name().clone())
        } else {
            let (own, requested_type) = (self.field().data_type(), requested.data_type());
            may_have_nulls(own, view.array, requested_type, requested.name(), !requested.is_nullable())
        }
    }

    /// Returns the offsets of lists or strings, one more than rows (none without rows), or the offsets and the lengths
    /// of list views.
    ///
    /// # Errors
    /// When the type is another one.
    pub(crate) fn list_ints(&self) -> Result<(ListInts, Option<ListInts>)> {
        let view = self.view();
        let data_type = self.field().data_type();
        let (width, has_lengths) = match *buffers_of(data_type) {
            [Buffer::Validity, Buffer::Offsets(width), ..] => (width, false),
            [Buffer::Validity, Buffer::Width(width), Buffer::Width(_)] => (width, true),
            _ => return Err(Error::internal(format!("an array of {data_type} has no lists"))),
        };
        let count = if has_lengths || view.length == 0 { view.length } else { view.length + 1 };
        let ints = |index| {
            let start = buffer(view.array, index).unwrap_or(std::ptr::null());
            // Import checked that all integers fit the address space.
            let start = start.wrapping_add(view.offset.saturating_mul(width));
            ListInts { start, wide: width == 8, count }
        };
        Ok((ints(1), has_lengths.then(|| ints(2))))
    }

    /// Returns the number of elements that rows can refer to; `None` for strings, which only their last offset tells.
    ///
    /// # Errors
    /// If the array lacks the child that import has checked.
    pub(crate) fn device_items_len(&self) -> Result<Option<usize>> {
        let view = self.view();
        if children_of(self.field().data_type()).is_empty() {
            return Ok(None);
        }
        let length = child(view.array, 0)?.length;
        usize::try_from(length).map(Some).map_err(|_| Error::invalid("a negative count"))
    }

    /// Returns the elements of the rows as the field `item`: slots of the child, or bytes of strings.
    ///
    /// # Errors
    /// If the child has fewer slots, or there are no bytes.
    pub(crate) fn device_items(&self, item: FieldRef, span: &Range<usize>) -> Result<Self> {
        let view = self.view();
        if children_of(self.field().data_type()).is_empty() {
            let data = buffer(view.array, 2).unwrap_or(std::ptr::null());
            if data.is_null() && !span.is_empty() {
                return Err(Error::invalid("the bytes of strings are NULL, and the offsets name some"));
            }
            let node = ArrayNode {
                length: span.len(),
                offset: span.start,
                null_count: Some(0),
                buffers: smallvec![std::ptr::null(), data],
                ..ArrayNode::default()
            };
            let field = Arc::new(Field::new(item.name(), DataType::UInt8, false));
            return array_ready_at(node.export(&self.owner())?, field, self.readiness().cloned());
        }
        let array = child(view.array, 0)?;
        let unsigned = |value: i64| usize::try_from(value).map_err(|_| Error::invalid("a negative count"));
        if span.end > unsigned(array.length)? {
            return Err(Error::invalid(format!("offsets to {} of {} elements", span.end, array.length)));
        }
        let offset = unsigned(array.offset)?.saturating_add(span.start);
        Ok(self.descendant(item, array, offset, span.len()))
    }
}

/// `name` is that of the field, and `is_strict` says that nulls of these values are nulls of a field that forbids them.
fn may_have_nulls(
    own: &DataType,
    array: &ArrowArray,
    requested: &DataType,
    name: &str,
    is_strict: bool,
) -> Option<String> {
    let has_bitmap = || buffer(array, 0).is_some_and(|bits| !bits.is_null());
    let has_own_nulls = has_validity(own);
    let may = match own {
        DataType::Null => array.length > 0,
        _ => has_own_nulls && array.null_count != 0 && has_bitmap(),
    };
    if may && is_strict {
        return Some(name.to_owned());
    }
    if let DataType::Dictionary(_, own) = own {
        // Codes of null values are nulls.
        let requested = if let DataType::Dictionary(_, values) = requested { values } else { requested };
        return may_have_nulls(own, dictionary(array)?, requested, name, is_strict);
    }
    // The nulls of runs and unions are those of their children.
    let is_strict = is_strict && !has_own_nulls;
    children_of(own).iter().zip(children_of(requested)).enumerate().find_map(|(index, (own, requested))| {
        let is_strict = is_strict || !requested.is_nullable();
        may_have_nulls(own.data_type(), child(array, index).ok()?, requested.data_type(), requested.name(), is_strict)
    })
}
