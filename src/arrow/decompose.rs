//! Decomposes an array into the bytes that its rows need, and rebuilds it over a copy of them. Reads the structs, and
//! of the buffers only those that tell the length of others.

use std::collections::VecDeque;
use std::ops::Range;

use arrow_schema::{DataType, UnionMode};
use smallvec::SmallVec;

use super::check::{Buffer, buffers_of, children_of, has_validity};
use super::foreign::{buffer, child, foreign, slot};
use super::import::DeviceArray;
use super::narrowed::{self, ReadAddresses};
use super::node::{ArrayNode, BufferStarts};
use super::piece::{Piece, bytes, exposed, range};
use crate::alloc::Owner;
use crate::alloc::fallible;
use crate::error::{Error, Result};
use crate::ffi::arrow_device::ArrowArray;

/// An array taken apart.
#[derive(Debug)]
pub(crate) struct Decomposed {
    /// The buffers' bytes.
    pub(crate) pieces: Vec<Piece>,
    nodes: Vec<Node>,
    /// What the host reads on every device: the sizes of view buffers.
    sizes: Vec<Box<[i64]>>,
}

#[derive(Debug, Default)]
struct Node {
    length: usize,
    null_count: Option<usize>,
    offset: usize,
    buffers: SmallVec<[ArrayPart; 3]>,
    /// Their nodes follow one another.
    children: Range<usize>,
    dictionary: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
enum ArrayPart {
    Missing,
    Piece(usize),
    Sizes(usize),
}

/// An array that is not decomposed yet.
struct Pending<'a> {
    array: &'a ArrowArray,
    data_type: &'a DataType,
    offset: usize,
    length: usize,
    /// Where its node is.
    node: usize,
}

/// Where buffer sizes are read: in memory of the array's device, or wherever the driver finds the address. Producers
/// put the sizes of view buffers in either.
pub(crate) enum Wanted {
    OnDevice(Range<usize>),
    Anywhere(Range<usize>),
}

/// Reads the bytes of each range.
pub(crate) type ReadRanges<'a> = dyn FnMut(&[Wanted]) -> Result<Vec<Vec<u8>>> + 'a;

impl Decomposed {
    /// Decomposes the rows of an array that no struct with nulls encloses. For each level of nesting, one call of
    /// `read` reads what is needed. With `rebase`, the first offset of lists and strings is subtracted from all of
    /// them; otherwise the elements before it become part of the copy. Of host memory that is rebased, what a slice of
    /// runs and views shows is looked up, and the rest left out.
    ///
    /// # Errors
    /// If offsets or sizes are impossible, and the errors of `read`.
    pub(crate) fn new(array: &DeviceArray, rebase: bool, read: &mut ReadRanges<'_>) -> Result<Self> {
        let view = array.view();
        let mut apart = Self { pieces: Vec::new(), nodes: vec![Node::default()], sizes: Vec::new() };
        let (offset, length) = (view.offset, view.length);
        let top = Pending { array: view.array, data_type: array.field().data_type(), offset, length, node: 0 };
        let mut level = vec![top];
        while !level.is_empty() {
            let mut wanted = Vec::new();
            for pending in &level {
                wanted.extend(pending.wanted()?);
            }
            fallible::reserve(&mut apart.pieces, level.len())?;
            let mut found: VecDeque<Vec<u8>> = if wanted.is_empty() { VecDeque::new() } else { read(&wanted)?.into() };
            let mut one = |range| Ok(read(&[Wanted::OnDevice(range)])?.pop().unwrap_or_default());
            let mut next = Vec::new();
            for pending in level {
                let narrow = (rebase && array.device().is_cpu()).then_some(&mut one as &mut ReadAddresses<'_>);
                next.extend(apart.take(&pending, rebase, &mut found, narrow)?);
            }
            level = next;
        }
        if let (Some(node), Some(nulls)) = (apart.nodes.first_mut(), array.counted()) {
            node.null_count = Some(nulls);
        }
        Ok(apart)
    }

    /// Decomposes one array with what was read for it; returns its children.
    fn take<'a>(
        &mut self,
        pending: &Pending<'a>,
        rebase: bool,
        found: &mut VecDeque<Vec<u8>>,
        narrow: Option<&mut ReadAddresses<'_>>,
    ) -> Result<Vec<Pending<'a>>> {
        let Pending { data_type, length, .. } = *pending;
        let (offset, null_count) = (pending.start().0, pending.null_count());
        let mut node = Node { length, offset, null_count, ..Node::default() };
        let mut span = self.take_buffers(&mut node, pending, rebase, found)?;
        let mut runs = None;
        match (data_type, narrow) {
            (DataType::Utf8View | DataType::BinaryView, narrow) => {
                self.take_views(&mut node, pending, found, narrow)?
            }
            (DataType::ListView(_) | DataType::LargeListView(_), narrow) => {
                span = self.take_items(&node, pending, narrow)?;
            }
            (DataType::RunEndEncoded(_, _), Some(narrow)) => runs = self.take_runs(&mut node, pending, narrow)?,
            _ => {}
        }
        let below = match runs {
            Some(values) => vec![values],
            None => self.take_children(&mut node, pending, &span)?,
        };
        if let Some(place) = self.nodes.get_mut(pending.node) {
            *place = node;
        }
        Ok(below)
    }

    /// Takes the buffers whose sizes the rows tell. Returns the elements of lists and strings that are copied.
    fn take_buffers(
        &mut self,
        node: &mut Node,
        pending: &Pending<'_>,
        rebase: bool,
        found: &mut VecDeque<Vec<u8>>,
    ) -> Result<Range<usize>> {
        let Pending { array, data_type, length, .. } = *pending;
        let (keep, skip) = pending.start();
        let slots = keep.saturating_add(length);
        let mut span = 0..0;
        for (index, kind) in buffers_of(data_type).into_iter().enumerate() {
            let start = exposed(array, index);
            let piece = match kind {
                Buffer::Validity if start == 0 || array.null_count == 0 => None,
                Buffer::Validity | Buffer::Bits => bytes(start, skip / 8, slots.div_ceil(8), 1)?,
                Buffer::Width(width) => bytes(start, skip, slots, width)?,
                Buffer::Offsets(width) if slots == 0 => Some(Piece::Made(fallible::filled(width, 0)?)),
                Buffer::Offsets(width) => {
                    let (first, last) = (offset(found)?, offset(found)?);
                    span = ends(first, last, data_type)?;
                    let range = range(start, skip, slots.saturating_add(1), width)?;
                    if rebase && first != 0 {
                        Some(Piece::Offsets { range, wide: width == 8, first })
                    } else {
                        span.start = 0;
                        Some(Piece::OfArray(range))
                    }
                }
                Buffer::Data => bytes(start, span.start, span.len(), 1)?,
            };
            let part = self.part(piece);
            node.buffers.push(part);
        }
        Ok(span)
    }

    /// Returns the children, and the dictionary, with the rows of them that the rows refer to; `span` is that of lists.
    fn take_children<'a>(
        &mut self,
        node: &mut Node,
        pending: &Pending<'a>,
        span: &Range<usize>,
    ) -> Result<Vec<Pending<'a>>> {
        let Pending { array, data_type, length, .. } = *pending;
        let (keep, skip) = pending.start();
        let slots = keep.saturating_add(length);
        let children = children_of(data_type);
        let mut below = fallible::with_room(children.len())?;
        fallible::reserve(&mut self.nodes, children.len())?;
        node.children.start = self.nodes.len();
        for (index, field) in children.into_iter().enumerate() {
            let array = child(array, index)?;
            let (first, whole) = (slot(array)?, usize::try_from(array.length).unwrap_or(0));
            let rows = match data_type {
                DataType::Struct(_) | DataType::Union(_, UnionMode::Sparse) => skip..skip.saturating_add(slots),
                DataType::FixedSizeList(_, size) => {
                    let size = usize::try_from(*size).unwrap_or(0);
                    skip.saturating_mul(size)..skip.saturating_add(slots).saturating_mul(size)
                }
                DataType::List(_) | DataType::LargeList(_) | DataType::Map(_, _) => span.clone(),
                DataType::ListView(_) | DataType::LargeListView(_) => span.clone(),
                // Rows of dense unions and of runs can refer to any element.
                _ => 0..whole,
            };
            if rows.end > whole {
                return Err(Error::invalid(format!(
                    "{data_type} has {whole} elements, and its rows name {}",
                    rows.end
                )));
            }
            let node_below = self.node();
            node.children.end = node_below + 1;
            let offset = first.saturating_add(rows.start);
            below.push(Pending { array, data_type: field.data_type(), offset, length: rows.len(), node: node_below });
        }
        if let DataType::Dictionary(_, values) = data_type {
            // SAFETY: import has checked that there is one, alive as long as its parent.
            let array = unsafe { foreign(array.dictionary.cast_const(), "ArrowArray.dictionary") }?;
            let (offset, length) = (slot(array)?, usize::try_from(array.length).unwrap_or(0));
            let node_below = self.node();
            node.dictionary = Some(node_below);
            below.push(Pending { array, data_type: values, offset, length, node: node_below });
        }
        Ok(below)
    }

    /// Takes the buffers that views refer to, whose sizes only the last buffer tells, and that last buffer.
    fn take_views(
        &mut self,
        node: &mut Node,
        pending: &Pending<'_>,
        found: &mut VecDeque<Vec<u8>>,
        narrow: Option<&mut ReadAddresses<'_>>,
    ) -> Result<()> {
        let array = pending.array;
        let count = if pending.length == 0 { 0 } else { variadic(array) };
        let read = if count == 0 { Vec::new() } else { found.pop_front().ok_or_else(not_read)? };
        let size = |size: &[u8; 8]| usize::try_from(i64::from_ne_bytes(*size));
        let size = |bytes| size(bytes).map_err(|_| Error::invalid("a view buffer has a negative size"));
        let sizes = fallible::collected(read.as_chunks().0.iter().map(size))?;
        let mut spans = fallible::collected(sizes.iter().map(|size| Ok(0..*size)))?;
        if let Some(narrow) = narrow.filter(|_| count > 0)
            && let Some((views, shown)) = narrowed::views(pending.slots(1, 16)?, pending.start().0, &sizes, narrow)?
        {
            self.replace(node, 1, views);
            spans = shown;
        }
        for (index, span) in spans.iter().enumerate() {
            let part = self.part(bytes(exposed(array, index + 2), span.start, span.len(), 1)?);
            node.buffers.push(part);
        }
        node.buffers.push(ArrayPart::Sizes(self.sizes.len()));
        self.sizes.push(spans.iter().map(|span| i64::try_from(span.len()).unwrap_or(i64::MAX)).collect());
        Ok(())
    }

    /// Returns the items of list views that are copied; their offsets count from the first of these.
    fn take_items(
        &mut self,
        node: &Node,
        pending: &Pending<'_>,
        narrow: Option<&mut ReadAddresses<'_>>,
    ) -> Result<Range<usize>> {
        let items = usize::try_from(child(pending.array, 0)?.length).unwrap_or(0);
        let width = if matches!(pending.data_type, DataType::ListView(_)) { 4 } else { 8 };
        if pending.length == 0 {
            return Ok(0..0);
        }
        let Some(narrow) = narrow else { return Ok(0..items) };
        let places = [pending.slots(1, width)?, pending.slots(2, width)?];
        let Some((offsets, shown)) = narrowed::lists(places, width, pending.start().0, items, narrow)? else {
            return Ok(0..items);
        };
        self.replace(node, 1, offsets);
        Ok(shown)
    }

    /// Takes the ends of the runs that rows show, and returns the values; `None` if these are all.
    fn take_runs<'a>(
        &mut self,
        node: &mut Node,
        pending: &Pending<'a>,
        narrow: &mut ReadAddresses<'_>,
    ) -> Result<Option<Pending<'a>>> {
        let DataType::RunEndEncoded(ends_field, values_field) = pending.data_type else { return Ok(None) };
        let (ends, values) = (child(pending.array, 0)?, child(pending.array, 1)?);
        let (width, count) =
            (ends_field.data_type().primitive_width().unwrap_or(0), usize::try_from(ends.length).unwrap_or(0));
        let (start, whole) = (exposed(ends, 1), usize::try_from(values.length).unwrap_or(0));
        if start == 0 {
            return Ok(None);
        }
        let rows = pending.offset..pending.offset.saturating_add(pending.length);
        let found = narrowed::runs(&range(start, slot(ends)?, count, width)?, width, rows, narrow)?;
        let Some((made, runs)) = found.filter(|(_, runs)| runs.end <= whole) else { return Ok(None) };
        let (ends_node, values_node) = (self.node(), self.node());
        let part = self.part(Some(Piece::Made(made)));
        if let Some(place) = self.nodes.get_mut(ends_node) {
            let buffers = [ArrayPart::Missing, part].into_iter().collect();
            *place = Node { length: runs.len(), null_count: Some(0), buffers, ..Node::default() };
        }
        (node.offset, node.children) = (0, ends_node..values_node + 1);
        let offset = slot(values)?.saturating_add(runs.start);
        let (array, data_type) = (values, values_field.data_type());
        Ok(Some(Pending { array, data_type, offset, length: runs.len(), node: values_node }))
    }

    /// Puts bytes in the place of what a buffer would be copied from.
    fn replace(&mut self, node: &Node, buffer: usize, bytes: Vec<u8>) {
        if let Some(ArrayPart::Piece(index)) = node.buffers.get(buffer)
            && let Some(piece) = self.pieces.get_mut(*index)
        {
            *piece = Piece::Made(bytes);
        }
    }

    fn node(&mut self) -> usize {
        self.nodes.push(Node::default());
        self.nodes.len() - 1
    }

    fn part(&mut self, piece: Option<Piece>) -> ArrayPart {
        let Some(piece) = piece else { return ArrayPart::Missing };
        self.pieces.push(piece);
        ArrayPart::Piece(self.pieces.len() - 1)
    }

    /// Rebuilds the array over a copy of the pieces at the addresses `starts`, kept alive by `owner`.
    ///
    /// # Errors
    /// If the number of addresses differs from the number of pieces.
    pub(crate) fn together(self, starts: &[*const u8], owner: Owner) -> Result<(ArrayNode, Owner)> {
        let node = self.built(0, starts)?;
        if self.sizes.is_empty() {
            return Ok((node, owner));
        }
        Ok((node, std::sync::Arc::new((self.sizes, owner))))
    }

    fn built(&self, node: usize, starts: &[*const u8]) -> Result<ArrayNode> {
        let missing = || Error::internal("an array that was not taken apart whole");
        let node = self.nodes.get(node).ok_or_else(missing)?;
        let start = |part: &ArrayPart| match part {
            ArrayPart::Missing => Ok(std::ptr::null()),
            ArrayPart::Piece(index) => starts.get(*index).copied().ok_or_else(missing),
            ArrayPart::Sizes(index) => self.sizes.get(*index).map(|sizes| sizes.as_ptr().cast()).ok_or_else(missing),
        };
        let (mut buffers, room) = (BufferStarts::new(), node.buffers.len());
        let no_room = |_| fallible::out_of_memory(room.saturating_mul(size_of::<*const u8>()));
        buffers.try_reserve(room).map_err(no_room)?;
        for part in &node.buffers {
            buffers.push(start(part)?);
        }
        let children = fallible::collected(node.children.clone().map(|child| self.built(child, starts)))?;
        let dictionary = node.dictionary.map(|dictionary| self.built(dictionary, starts)).transpose()?;
        Ok(ArrayNode {
            length: node.length,
            null_count: node.null_count,
            offset: node.offset,
            buffers,
            children,
            dictionary: dictionary.map(Box::new),
        })
    }
}

impl Pending<'_> {
    /// Returns the offset of the copy, and the number of slots before it that are left out: bits keep their place in a
    /// byte.
    fn start(&self) -> (usize, usize) {
        if self.length == 0 {
            return (0, self.offset);
        }
        let has_validity = has_validity(self.data_type)
            && self.array.null_count != 0
            && buffer(self.array, 0).is_some_and(|bits| !bits.is_null());
        let keep = match self.data_type {
            // Runs are counted from the start.
            DataType::RunEndEncoded(_, _) => self.offset,
            DataType::Boolean => self.offset % 8,
            _ if has_validity => self.offset % 8,
            _ => 0,
        };
        (keep, self.offset - keep)
    }

    /// Returns the addresses of the slots that are copied of a buffer, of `width` bytes each.
    fn slots(&self, buffer: usize, width: usize) -> Result<Range<usize>> {
        let (keep, skip) = self.start();
        range(exposed(self.array, buffer), skip, keep.saturating_add(self.length), width)
    }

    fn null_count(&self) -> Option<usize> {
        let first_buffer = buffer(self.array, 0).unwrap_or(std::ptr::null());
        match self.data_type {
            DataType::Null => Some(self.length),
            data_type if !has_validity(data_type) => Some(0),
            _ if first_buffer.is_null() || self.array.null_count == 0 || self.length == 0 => Some(0),
            _ => {
                let is_whole = usize::try_from(self.array.offset) == Ok(self.offset)
                    && usize::try_from(self.array.length) == Ok(self.length);
                usize::try_from(self.array.null_count).ok().filter(|_| is_whole)
            }
        }
    }

    /// Returns what must be read to know the length of the buffers.
    fn wanted(&self) -> Result<Vec<Wanted>> {
        let (keep, skip) = self.start();
        let slots = keep.saturating_add(self.length);
        let at = |index: usize| exposed(self.array, index);
        if slots == 0 {
            return Ok(Vec::new());
        }
        if let Some(Buffer::Offsets(width)) = buffers_of(self.data_type).get(1) {
            let one = |index: usize| range(at(1), index, 1, *width).map(Wanted::OnDevice);
            return Ok(vec![one(skip)?, one(skip.saturating_add(slots))?]);
        }
        let count = variadic(self.array);
        if matches!(self.data_type, DataType::Utf8View | DataType::BinaryView) && self.length > 0 && count > 0 {
            return Ok(vec![Wanted::Anywhere(range(at(count.saturating_add(2)), 0, count, 8)?)]);
        }
        Ok(Vec::new())
    }
}

/// Returns the number of buffers that views refer to: all but the bitmap, the views and the sizes.
fn variadic(array: &ArrowArray) -> usize {
    usize::try_from(array.n_buffers).unwrap_or(0).saturating_sub(3)
}

/// Returns the next of the offsets that were read.
fn offset(found: &mut VecDeque<Vec<u8>>) -> Result<i64> {
    let read = found.pop_front().ok_or_else(not_read)?;
    let narrow = || read.first_chunk().map(|bytes| i64::from(i32::from_ne_bytes(*bytes)));
    read.first_chunk().map(|bytes| i64::from_ne_bytes(*bytes)).or_else(narrow).ok_or_else(not_read)
}

fn ends(first: i64, last: i64, data_type: &DataType) -> Result<Range<usize>> {
    match (usize::try_from(first), usize::try_from(last)) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..last),
        _ => Err(Error::invalid(format!("the offsets of {data_type} go from {first} to {last}"))),
    }
}

#[cold]
fn not_read() -> Error {
    Error::internal("bytes of an array that were not read")
}

/// Reads host memory in place.
///
/// # Errors
/// If memory for a copy cannot be allocated.
///
/// # Safety
/// The ranges are memory of the host that lives and does not change meanwhile.
pub(crate) unsafe fn read_host(wanted: &[Wanted]) -> Result<Vec<Vec<u8>>> {
    let read = |wanted: &Wanted| {
        let (Wanted::OnDevice(range) | Wanted::Anywhere(range)) = wanted;
        let start = std::ptr::with_exposed_provenance::<u8>(range.start);
        // SAFETY: the range is host memory that lives and does not change during the call.
        fallible::copied(unsafe { std::slice::from_raw_parts(start, range.len()) })
    };
    wanted.iter().map(read).collect()
}
