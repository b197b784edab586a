//! Locates the elements of each row of host lists and strings. Checks every offset before anyone reads by it.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};
use smallvec::smallvec;

use super::bitmaps::ValidityBits;
use super::check::{has_validity, view_sizes};
use super::device_lists::ListInts;
use super::foreign::{buffer, child};
use super::import::{DeviceArray, host_array};
use super::mask::{Mask, clear_bits};
use super::node::ArrayNode;
use super::view::ArrayView;
use crate::alloc::fallible;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::ffi::arrow_device::ArrowArray;

/// Integers in a buffer, of 32 or 64 bits, aligned or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ints<'a> {
    start: *const u8,
    wide: bool,
    len: usize,
    buffer: PhantomData<&'a [u8]>,
}

// SAFETY: a shared borrow of memory that is read as numbers, all of whose bit patterns are values.
unsafe impl Send for Ints<'_> {}
// SAFETY: shared references read numbers only, as [`Ints::get`] does.
unsafe impl Sync for Ints<'_> {}

impl Ints<'_> {
    /// # Safety
    /// `start` is followed by `len` integers that live for the lifetime of the result. They may change: each is read by its
    /// address, and what it was before is not relied on.
    unsafe fn new(start: *const u8, wide: bool, len: usize) -> Self {
        Self { start, wide, len, buffer: PhantomData }
    }

    /// The address of the first one.
    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.start
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Int32 or int64.
    pub(crate) fn dtype(&self) -> DType {
        if self.wide { DType::Int64 } else { DType::Int32 }
    }

    fn is_aligned(&self) -> bool {
        self.start.addr().is_multiple_of(if self.wide { 8 } else { 4 })
    }

    /// Returns the integer at a position, which must exist.
    fn get(&self, index: usize) -> i64 {
        if index >= self.len {
            return 0;
        }
        let start = self.start;
        if self.wide {
            // SAFETY: below `len`, so inside the buffer; no alignment is assumed.
            unsafe { start.cast::<i64>().wrapping_add(index).read_unaligned() }
        } else {
            // SAFETY: `index < len`, so inside the buffer; no alignment is assumed.
            i64::from(unsafe { start.cast::<i32>().wrapping_add(index).read_unaligned() })
        }
    }

    /// Like [`Ints::get`], for integers that are known not to be negative.
    fn position(&self, index: usize) -> usize {
        usize::try_from(self.get(index)).unwrap_or(0)
    }

    /// Returns whether the integers never decrease.
    fn ascend(&self) -> bool {
        fn ascend<T: Copy + PartialOrd>(at: impl Fn(usize) -> T, len: usize) -> bool {
            let (mut last, mut ascends) = (at(0), true);
            for index in 1..len {
                let next = at(index);
                ascends &= last <= next;
                last = next;
            }
            ascends
        }
        let start = self.start;
        match (self.len, self.wide) {
            (0, _) => true,
            // SAFETY: positions below `len`; no alignment is assumed.
            (len, true) => ascend(|at| unsafe { start.cast::<i64>().wrapping_add(at).read_unaligned() }, len),
            // SAFETY: positions below `len`; no alignment is assumed.
            (len, false) => ascend(|at| unsafe { start.cast::<i32>().wrapping_add(at).read_unaligned() }, len),
        }
    }
}

/// The rows of an array of lists or strings, with checked offsets.
#[derive(Debug)]
pub(crate) struct ListChunk<'a> {
    array: &'a DeviceArray,
    /// One more than rows; none without rows.
    offsets: Ints<'a>,
    /// The lengths of list views, which have one offset per row.
    lengths: Option<Ints<'a>>,
    /// How many rows.
    pub(crate) rows: usize,
    /// All elements that offsets can refer to: the child, or the bytes of strings.
    pub(crate) items: DeviceArray,
    /// Which rows are null; `None` if none is.
    pub(crate) valid: Option<Mask<'a>>,
}

impl ListChunk<'_> {
    /// Returns the elements of a row, clipped to the items, even if another library has changed the offsets since the
    /// check.
    pub(crate) fn row(&self, row: usize) -> Range<usize> {
        let start = self.offsets.position(row);
        self.bounded(match &self.lengths {
            None => start..self.offsets.position(row + 1),
            Some(lengths) => start..start.saturating_add(lengths.position(row)),
        })
    }

    /// Returns the elements that the rows span: for list views, all of them.
    pub(crate) fn span(&self) -> Range<usize> {
        match (&self.lengths, self.rows) {
            (Some(_), _) => 0..self.items.len(),
            (None, 0) => 0..0,
            (None, rows) => self.bounded(self.offsets.position(0)..self.offsets.position(rows)),
        }
    }

    fn bounded(&self, range: Range<usize>) -> Range<usize> {
        let start = range.start.min(self.items.len());
        start..range.end.clamp(start, self.items.len())
    }

    /// Whether a row is null.
    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.valid.as_ref().is_some_and(|valid| !valid.is_valid(row))
    }

    /// Returns whether typed access to offsets and lengths is aligned.
    pub(crate) fn is_aligned(&self) -> bool {
        std::iter::once(&self.offsets).chain(&self.lengths).all(Ints::is_aligned)
    }

    /// The offsets.
    pub(crate) fn offsets(&self) -> Ints<'_> {
        self.offsets
    }

    /// The lengths of list views.
    pub(crate) fn lengths(&self) -> Option<Ints<'_>> {
        self.lengths
    }

    /// Returns the array of the rows, which keeps offsets and lengths alive.
    pub(crate) fn array(&self) -> &DeviceArray {
        self.array
    }

    fn check(&self) -> Result<()> {
        let limit = self.items.len();
        let invalid = |row: usize| {
            let (offset, what) = (self.offsets.get(row), self.items.len());
            let reason = match &self.lengths {
                None => format!("offsets from {offset} to {} of {what} elements", self.offsets.get(row + 1)),
                Some(lengths) => format!("offset {offset} and length {} of {what} elements", lengths.get(row)),
            };
            Error::invalid(reason).at_row(row)
        };
        let Some(lengths) = &self.lengths else {
            let bounded = |at: usize| usize::try_from(self.offsets.get(at)).is_ok_and(|offset| offset <= limit);
            if self.rows == 0 || (bounded(0) && bounded(self.rows) && self.offsets.ascend()) {
                return Ok(());
            }
            let fits =
                |row: usize| bounded(row) && bounded(row + 1) && self.offsets.get(row) <= self.offsets.get(row + 1);
            return Err(invalid((0..self.rows).find(|row| !fits(*row)).unwrap_or(0)));
        };
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let fits = |row: usize| {
            let (offset, length) = (self.offsets.get(row), lengths.get(row));
            (offset >= 0) & (offset <= limit) & (length >= 0) & (length <= limit.wrapping_sub(offset))
        };
        let all = (0..self.rows).fold(true, |all, row| all & fits(row));
        if all { Ok(()) } else { Err(invalid((0..self.rows).find(|row| !fits(*row)).unwrap_or(0))) }
    }
}

/// The rows of an array of string or binary views.
#[derive(Debug)]
pub(crate) struct ViewChunk<'a> {
    /// The address of the array's struct.
    array: usize,
    views: &'a [u8],
    /// What the views refer to, shared by chunks of one array.
    buffers: Arc<Vec<&'a [u8]>>,
    /// Which rows are null; `None` if none is.
    pub(crate) valid: Option<Mask<'a>>,
}

impl<'a> ViewChunk<'a> {
    /// How many rows.
    pub(crate) fn rows(&self) -> usize {
        self.views.len() / 16
    }

    /// Returns the bytes of a row, unless it is null.
    ///
    /// # Errors
    /// If they are not inside one of the array's buffers.
    pub(crate) fn bytes(&self, row: usize) -> Result<Option<&'a [u8]>> {
        if self.valid.as_ref().is_some_and(|valid| !valid.is_valid(row)) {
            return Ok(None);
        }
        let view = self.view(row).unwrap_or(&[]);
        let length = int(view, 0).unwrap_or(0);
        let length =
            usize::try_from(length).map_err(|_| Error::invalid(format!("a view of length {length}")).at_row(row))?;
        if let Some(inline) = view.get(4..4 + length.min(12)).filter(|_| length <= 12) {
            return Ok(Some(inline));
        }
        let (index, offset) = (int(view, 8).unwrap_or(-1), int(view, 12).unwrap_or(-1));
        let buffer = usize::try_from(index).ok().and_then(|index| self.buffers.get(index));
        let start = usize::try_from(offset).ok();
        let bytes = buffer.and_then(|bytes| bytes.get(start?..start?.checked_add(length)?));
        bytes.map(Some).ok_or_else(|| {
            let reason = format!("a view of {length} bytes at {offset} of buffer {index}, which has fewer");
            Error::invalid(reason).at_row(row)
        })
    }

    fn view(&self, row: usize) -> Option<&'a [u8]> {
        self.views.get(row.checked_mul(16)?..)?.get(..16)
    }
}

fn int(view: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(*view.get(at..)?.first_chunk()?))
}

/// Elements that no row shows, which may hold any value.
#[derive(Clone, Debug)]
pub(crate) struct Hidden {
    bits: Vec<u8>,
    length: usize,
}

impl Hidden {
    /// All of so many.
    ///
    /// # Errors
    /// If a bit per element cannot be allocated.
    pub(crate) fn all(length: usize) -> Result<Self> {
        let mut bits = fallible::filled(length.div_ceil(8), u8::MAX)?;
        let unused = bits.len() * 8 - length;
        if unused > 0 {
            clear_bits(&mut bits, length, unused);
        }
        Ok(Self { bits, length })
    }

    /// Shows some of them.
    pub(crate) fn show(&mut self, range: &Range<usize>) {
        if !range.is_empty() && range.end <= self.length {
            clear_bits(&mut self.bits, range.start, range.len());
        }
    }

    /// Whether one is hidden.
    pub(crate) fn contains(&self, index: usize) -> bool {
        index < self.length && arrow_buffer::bit_util::get_bit(&self.bits, index)
    }

    /// Returns a bit for each element, set unless it is hidden.
    ///
    /// # Errors
    /// If a bit per element cannot be allocated.
    pub(crate) fn shown(&self) -> Result<Vec<u8>> {
        fallible::collected(self.bits.iter().map(|byte| Ok(!byte)))
    }

    /// Whether any is hidden.
    pub(crate) fn is_any(&self) -> bool {
        self.bits.iter().any(|byte| *byte != 0)
    }
}

impl DeviceArray {
    /// Returns the rows of an array of lists or strings in host memory, with every offset checked. The elements take
    /// the array's name.
    ///
    /// # Errors
    /// If the type is another one, or offsets decrease or exceed the elements.
    pub(crate) fn lists(&self) -> Result<ListChunk<'_>> {
        self.require_host()?;
        let view = self.view();
        let rows = view.length;
        let (offsets, lengths) = self.list_ints()?;
        // SAFETY: import checked the buffers: there are as many integers for `offset + length` slots, or no rows.
        let read = |ints: ListInts| unsafe { Ints::new(ints.start(), ints.is_wide(), ints.len()) };
        let (offsets, lengths) = (read(offsets), lengths.map(read));
        let items = match super::check::children_of(self.field().data_type()).first() {
            Some(item) => self.list_items(&view, item)?,
            None => self.bytes(view.array, &offsets)?,
        };
        // Elements that no row can refer to are no values: offsets of other chunks do not count them.
        let items = if rows == 0 { items.clipped(&(0..0)) } else { items };
        // SAFETY: host memory: `require_host`. What the view inherits is of the owner, which `self` holds.
        let valid = unsafe { view.host_mask() }?;
        let chunk = ListChunk { array: self, offsets, lengths, rows, items, valid };
        chunk.check().map_err(|error| error.in_column(self.field().name()))?;
        Ok(chunk)
    }

    fn list_items(&self, view: &ArrayView<'_>, item: &FieldRef) -> Result<Self> {
        let array = child(view.array, 0)?;
        let unsigned = |value: i64| usize::try_from(value).map_err(|_| Error::invalid("a negative count"));
        let field = Arc::new(item.as_ref().clone().with_name(self.field().name()));
        Ok(self.descendant(field, array, unsigned(array.offset)?, unsigned(array.length)?))
    }

    /// Returns the bytes of strings, up to the last offset.
    fn bytes(&self, array: &ArrowArray, offsets: &Ints<'_>) -> Result<Self> {
        let last = offsets.len.checked_sub(1).map_or(0, |last| offsets.get(last));
        let length = usize::try_from(last).map_err(|_| Error::invalid(format!("an offset of {last}")))?;
        let data = buffer(array, 2).filter(|data| !data.is_null() || length > 0).unwrap_or(std::ptr::dangling());
        let buffers = smallvec![std::ptr::null(), data];
        let node = ArrayNode { length, null_count: Some(0), buffers, ..ArrayNode::default() };
        let field = Field::new(self.field().name(), DataType::UInt8, false);
        host_array(node.export(&self.owner())?, Arc::new(field))
    }

    /// Returns the rows of an array of string or binary views in host memory.
    ///
    /// # Errors
    /// If the type is another one, or the sizes of the array's buffers are impossible.
    pub(crate) fn views(&self) -> Result<ViewChunk<'_>> {
        self.views_behind(None)
    }

    /// As [`DeviceArray::views`], behind a chunk that may be of the same array: the two share its buffers, which may be many.
    pub(crate) fn views_behind<'a>(&'a self, before: Option<&ViewChunk<'a>>) -> Result<ViewChunk<'a>> {
        self.require_host()?;
        let view = self.view();
        let data_type = self.field().data_type();
        if !matches!(data_type, DataType::Utf8View | DataType::BinaryView) {
            return Err(Error::internal(format!("an array of {data_type} has no views")));
        }
        let slice = |start: *const u8, length: usize| {
            if start.is_null() && length > 0 {
                return Err(Error::invalid("a data buffer of a view array is NULL").in_column(self.field().name()));
            }
            let start = if length == 0 { std::ptr::dangling() } else { start };
            // SAFETY: not NULL, addressable, and as long as the array says, which holds for its lifetime: a length is the
            // size that `view_sizes` checked, or what import checked that the views take.
            Ok(unsafe { std::slice::from_raw_parts(start, length) })
        };
        let buffers = match before.filter(|before| before.array == std::ptr::from_ref(view.array).addr()) {
            Some(before) => before.buffers.clone(),
            None => {
                // SAFETY: import has checked the array, and `require_host` that it is host memory.
                let sizes = unsafe { view_sizes(data_type, view.array) };
                let sizes = sizes.map_err(|error| error.in_column(self.field().name()))?;
                let start = |number: usize| buffer(view.array, number + 2).unwrap_or(std::ptr::null());
                let buffers = sizes.into_iter().enumerate().map(|(number, size)| slice(start(number), size));
                Arc::new(buffers.collect::<Result<Vec<_>>>()?)
            }
        };
        let start = buffer(view.array, 1).unwrap_or(std::ptr::null()).wrapping_add(view.offset.saturating_mul(16));
        // Import checked that the product fits the address space.
        let views = slice(start, view.length.saturating_mul(16))?;
        // SAFETY: host memory: `require_host`. What the view inherits is of the owner, which `self` holds.
        let valid = unsafe { view.host_mask() }?;
        Ok(ViewChunk { array: std::ptr::from_ref(view.array).addr(), views, buffers, valid })
    }

    /// Returns the same host array with its hidden elements as nulls, so that casts ignore their values.
    ///
    /// # Errors
    /// If the type has no bitmap, or a bit per element cannot be allocated.
    pub(crate) fn hiding(&self, hidden: &Hidden) -> Result<Self> {
        self.require_host()?;
        if !has_validity(self.field().data_type()) {
            let reason = format!("{} has no validity, and lies under null rows", self.field().data_type());
            return Err(Error::unsupported(reason).in_column(self.field().name()));
        }
        let shown = hidden.shown()?;
        let view = self.view();
        let length = view.length.min(hidden.length);
        let start = shown.as_ptr();
        let mut levels = view.validity_levels();
        levels.push(ValidityBits { start, offset: 0, length, repeat: 1, group: 1, nulls: None });
        // SAFETY: the array's own bitmaps were checked by import, live as long as `self`, and are host memory:
        // `require_host`. `shown` has `hidden.length` bits and outlives the mask.
        let mask = unsafe { Mask::combine(&levels, view.length) }?;
        let mut node = ArrayNode::range(&view)?;
        let mut owner = self.owner();
        if let Some(mask) = mask {
            let bitmap = mask.shifted(node.offset)?;
            node.set_validity(self.field().data_type(), bitmap.as_ptr(), mask.nulls())?;
            owner = Arc::new((bitmap, owner));
        }
        host_array(node.export(&owner)?, self.field().clone())
    }

    /// Returns the node of this array as the child of another one. The array must not be a column of a struct, because
    /// the struct's nulls would be lost.
    ///
    /// # Errors
    /// If counts are negative, which import has ruled out.
    pub(crate) fn node(&self) -> Result<ArrayNode> {
        ArrayNode::range(&self.view())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI32, Ordering};

    use super::*;

    #[test]
    fn integers_are_read_inside_their_number_alone() {
        let (narrow, wide) = ([1_i32, -2, 3, 4], [1_i64, -2, 3]);
        // SAFETY: two of four integers.
        let of_32_bits = unsafe { Ints::new(narrow.as_ptr().cast(), false, 2) };
        // SAFETY: two of three integers.
        let of_64_bits = unsafe { Ints::new(wide.as_ptr().cast(), true, 2) };
        for (ints, dtype) in [(of_32_bits, DType::Int32), (of_64_bits, DType::Int64)] {
            assert_eq!([0, 1, 2].map(|index| ints.get(index)), [1, -2, 0]);
            assert!(ints.dtype() == dtype && ints.is_aligned());
        }
        // Four bytes further, 32-bit integers are aligned and 64-bit integers are not.
        for (wide_ints, aligned) in [(false, true), (true, false)] {
            // SAFETY: one integer of 64 bits, or of 32, from the second half of the first one on.
            let ints = unsafe { Ints::new(wide.as_ptr().cast::<u8>().wrapping_add(4), wide_ints, 1) };
            assert_eq!(ints.is_aligned(), aligned);
        }
    }

    #[test]
    fn views_of_one_array_share_its_buffers() {
        let text = |number: usize| format!("a text of more than twelve bytes {number}");
        let views = |count: usize| arrow_array::StringViewArray::from_iter_values((0..count).map(text));
        let field = Arc::new(Field::new("x", DataType::Utf8View, true));
        let [one, other] = [4, 2].map(|count| DeviceArray::from_arrow(&views(count), field.clone()).unwrap());
        let [first, last] = [0..1, 2..4].map(|rows| one.clipped(&rows));
        let first = first.views().unwrap();
        for (array, is_shared, number) in [(&last, true, 3), (&other, false, 1)] {
            let chunk = array.views_behind(Some(&first)).unwrap();
            assert_eq!(Arc::ptr_eq(&chunk.buffers, &first.buffers), is_shared);
            assert_eq!(chunk.bytes(1).unwrap(), Some(text(number).as_bytes()));
        }
    }

    #[test]
    fn rows_stay_inside_the_items_whoever_changes_the_offsets() {
        for has_lengths in [false, true] {
            let (offsets, lengths) = ([0, 2, 3].map(AtomicI32::new), [2, 1].map(AtomicI32::new));
            let values = [1_i32, 2, 3];
            let mut buffers = smallvec![std::ptr::null(), offsets.as_ptr().cast()];
            buffers.extend(has_lengths.then(|| lengths.as_ptr().cast::<u8>()));
            let items = ArrayNode {
                length: 3,
                buffers: smallvec![std::ptr::null(), values.as_ptr().cast()],
                ..ArrayNode::default()
            };
            let node = ArrayNode { length: 2, buffers, children: vec![items], ..ArrayNode::default() };
            let item = Arc::new(Field::new("item", DataType::Int32, true));
            let data_type = if has_lengths { DataType::ListView(item) } else { DataType::List(item) };
            let owner: crate::alloc::Owner = Arc::new(());
            let array = host_array(node.export(&owner).unwrap(), Arc::new(Field::new("x", data_type, true))).unwrap();
            let list = array.lists().unwrap();
            assert_eq!((list.row(0), list.row(1), list.span()), (0..2, 2..3, 0..3));
            for (start, end) in [(1 << 30, (1 << 30) + 4), (0, 1 << 30), (-7, 3), (3, 1), (i32::MAX, i32::MAX)] {
                offsets[0].store(start, Ordering::Relaxed);
                (if has_lengths { &lengths[0] } else { &offsets[1] }).store(end, Ordering::Relaxed);
                let row = list.row(0);
                assert!(row.start <= row.end && row.end <= 3, "{row:?}");
                let span = list.span();
                assert!(span.start <= span.end && span.end <= 3, "{span:?}");
            }
        }
    }
}
