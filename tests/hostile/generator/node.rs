//! A field and its array as plain data: what a producer would put into its two structs, and the bytes of every buffer.

use std::ffi::{CStr, c_void};

use arrow_array::Array;
use arrow_data::ffi::FFI_ArrowArray;
use arrow_dlpack::ffi::arrow_device::{ArrowArray, ArrowSchema};
use arrow_schema::Field;
use arrow_schema::ffi::FFI_ArrowSchema;

use super::kind::{Kind, Size};

/// What a pointer of a struct is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pointer {
    #[default]
    Right,
    Null,
    /// A byte further than it should be; the buffer's bytes lie there.
    Misaligned,
    /// At the very end of the address space.
    Wild,
    /// An address of a device, where the host cannot read.
    Device,
}

/// What both structs of a node have: children, a dictionary, a release callback.
#[derive(Clone, Debug, Default)]
pub(crate) struct Links {
    /// `n_children`, where it is not the number of children.
    pub(crate) count: Option<i64>,
    pub(crate) children: Pointer,
    /// The entry of the last child.
    pub(crate) child: Pointer,
    pub(crate) dictionary: Pointer,
    /// Whether a dictionary is given although the node has none.
    pub(crate) stray_dictionary: bool,
    /// Whether `release` is NULL.
    pub(crate) released: bool,
}

/// A field and its array.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) format: Option<Vec<u8>>,
    pub(crate) name: Option<Vec<u8>>,
    pub(crate) metadata: Option<Vec<u8>>,
    pub(crate) flags: i64,
    pub(crate) schema: Links,
    pub(crate) length: i64,
    pub(crate) null_count: i64,
    pub(crate) offset: i64,
    /// `n_buffers`, where it is not the number of buffers.
    pub(crate) buffer_count: Option<i64>,
    pub(crate) buffers_pointer: Pointer,
    pub(crate) buffers: Vec<Buffer>,
    pub(crate) array: Links,
    pub(crate) children: Vec<Node>,
    pub(crate) dictionary: Option<Box<Node>>,
    /// Whether it is a child or a dictionary.
    is_part: bool,
}

/// A buffer's bytes, and what its pointer is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Buffer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) pointer: Pointer,
}

/// Larger buffers are not made: a struct that claims one is either refused by anyone, or no test.
const LARGEST: usize = 1 << 16;
/// No buffer can have as many bytes: no processor has user addresses of more bits.
const IMPOSSIBLE: usize = 1 << 56;

/// The struct claims a buffer that does not exist, in a way that nobody could tell from one that does.
#[derive(Debug)]
pub(crate) struct Untellable;

impl Node {
    /// The node of an array.
    pub(crate) fn of(field: &Field, array: &dyn Array) -> Self {
        let schema = FFI_ArrowSchema::try_from(field).expect("a field that the C data interface can hold");
        let array = FFI_ArrowArray::new(&array.to_data());
        // SAFETY: both are `struct ArrowSchema` of the C data interface; borrowed.
        let schema = unsafe { &*(&raw const schema).cast::<ArrowSchema>() };
        // SAFETY: both are `struct ArrowArray` of the C data interface; borrowed.
        let array = unsafe { &*(&raw const array).cast::<ArrowArray>() };
        // SAFETY: live structs of arrow-rs that belong together.
        unsafe { Self::read(schema, array) }
    }

    /// # Safety
    /// Live, valid structs, the array being of the schema's type, in host memory.
    pub(crate) unsafe fn read(schema: &ArrowSchema, array: &ArrowArray) -> Self {
        let children = (0..array.n_children as usize).map(|index| {
            // SAFETY: both have a child with this index.
            let schema = unsafe { schema.children.wrapping_add(index).read() };
            // SAFETY: both have a child with this index.
            let array = unsafe { array.children.wrapping_add(index).read() };
            // SAFETY: NULL or a live struct.
            let schema = unsafe { schema.as_ref() }.expect("a child");
            // SAFETY: NULL or a live struct.
            let array = unsafe { array.as_ref() }.expect("a child");
            // SAFETY: live, valid structs, as their parents are.
            unsafe { Self::read(schema, array) }
        });
        // SAFETY: NULL or a live struct.
        let values = unsafe { array.dictionary.as_ref() };
        // SAFETY: NULL or a live struct.
        let dictionary = unsafe { schema.dictionary.as_ref() }.zip(values);
        // SAFETY: live, valid structs, as their parents are.
        let dictionary = dictionary.map(|(schema, array)| Box::new(unsafe { Self::read(schema, array) }));
        let text = |text: *const std::ffi::c_char| {
            // SAFETY: NUL-terminated, if it is not NULL.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes().to_vec())
        };
        let mut node = Self {
            format: text(schema.format),
            name: text(schema.name),
            // SAFETY: NULL or key-value pairs.
            metadata: unsafe { read_metadata(schema.metadata.cast()) },
            flags: schema.flags,
            length: array.length,
            null_count: array.null_count,
            offset: array.offset,
            children: children.collect(),
            dictionary,
            ..Self::default()
        };
        // SAFETY: as many buffers as the struct says, which may be none.
        let pointer = |index: usize| unsafe { array.buffers.wrapping_add(index).read() }.cast::<u8>();
        let count = array.n_buffers as usize;
        node.buffers = (0..count).map(|_| Buffer::default()).collect();
        // Last to first for the sizes of views, first to last for the offsets of strings.
        let order = (0..2.min(count)).chain((2..count).rev());
        for index in order {
            let start = pointer(index);
            let bytes = node.claim(index).expect("a valid array").unwrap_or(0);
            node.buffers[index] = if start.is_null() {
                Buffer { bytes: Vec::new(), pointer: Pointer::Null }
            } else if bytes == 0 {
                Buffer::default()
            } else {
                // SAFETY: a valid array has buffers of this size.
                Buffer { bytes: unsafe { std::slice::from_raw_parts(start, bytes) }.to_vec(), ..Buffer::default() }
            };
        }
        node
    }

    /// The kind of the type that the format claims.
    pub(crate) fn kind(&self) -> Option<Kind> {
        Kind::of(self.format.as_deref()?)
    }

    /// The bytes that the struct claims for a buffer; `None` where the claim cannot be right, so that nobody may read.
    pub(crate) fn claim(&self, index: usize) -> Result<Option<usize>, Untellable> {
        let Some(kind) = self.kind() else { return Ok(None) };
        let sizes = kind.sizes();
        let count = self.buffer_count.unwrap_or(self.buffers.len() as i64);
        let Ok(count) = usize::try_from(count) else { return Ok(None) };
        let (Ok(offset), Ok(length)) = (usize::try_from(self.offset), usize::try_from(self.length)) else {
            return Ok(None);
        };
        let end = offset.saturating_add(length);
        let bytes = match sizes.get(index) {
            Some(Size::Bits) => Some(end.div_ceil(8)),
            Some(Size::Slots(width)) => end.checked_mul(*width),
            Some(Size::Offsets(width)) => end.checked_add(1).and_then(|slots| slots.checked_mul(*width)),
            // Nobody needs the data of an array without slots.
            Some(Size::Data(_)) if length == 0 => Some(0),
            Some(Size::Data(width)) => return self.claimed_data(index - 1, end, *width),
            None if kind == Kind::View && index + 1 == count => count.checked_sub(3).and_then(|n| n.checked_mul(8)),
            None if kind == Kind::View && index + 1 < count => self
                .buffers
                .get(count - 1)
                .and_then(|sizes| int(&sizes.bytes, index - 2, 8))
                .map_or(Some(0), |size| usize::try_from(size).ok()),
            None => Some(0),
        };
        match bytes.filter(|bytes| *bytes < IMPOSSIBLE) {
            Some(bytes) if bytes > LARGEST => Err(Untellable),
            bytes => Ok(bytes),
        }
    }

    /// What the offsets of strings claim of their data: as much as the largest one that can be meant.
    fn claimed_data(&self, offsets: usize, end: usize, width: usize) -> Result<Option<usize>, Untellable> {
        let offsets = self.buffers.get(offsets).map_or(&[][..], |offsets| &offsets.bytes);
        let entry = |slot| int(offsets, slot, width).map_or(Some(0), |entry| usize::try_from(entry).ok());
        let Some(last) = entry(end).filter(|last| *last < IMPOSSIBLE) else { return Ok(None) };
        let largest = (0..end.min(offsets.len() / width))
            .filter_map(entry)
            .filter(|entry| *entry < IMPOSSIBLE)
            .fold(last, usize::max);
        // A column ends before its array does: where it ends the offset may be any.
        if last > LARGEST || largest > LARGEST && self.is_part {
            Err(Untellable)
        } else {
            Ok(Some(largest.min(LARGEST)))
        }
    }

    /// Makes every buffer as large as the struct claims, so that whoever reads more is caught.
    pub(crate) fn settle(&mut self) -> Result<(), Untellable> {
        self.drop_what_both_lack();
        // What takes no memory may have any number of rows; as other types they would take all that there is.
        if (1 << 20..1 << 46).contains(&self.length) {
            return Err(Untellable);
        }
        // Views have any number of buffers that an int32 can name.
        if self.kind() == Some(Kind::View) && (17..1 << 31).contains(&self.buffer_count.unwrap_or(0)) {
            return Err(Untellable);
        }
        let count = self.buffer_count.unwrap_or(0).clamp(0, 16) as usize;
        while self.buffers.len() < count {
            self.buffers.push(Buffer { bytes: Vec::new(), pointer: Pointer::Null });
        }
        let count = self.buffers.len();
        for index in (0..2.min(count)).chain((2..count).rev()) {
            if let Some(bytes) = self.claim(index)? {
                self.buffers[index].bytes.resize(bytes, 0);
            }
        }
        if let Some(metadata) = &mut self.metadata {
            settle_metadata(metadata)?;
        }
        self.children.iter_mut().chain(self.dictionary.as_deref_mut()).try_for_each(|part| {
            part.is_part = true;
            part.settle()
        })
    }

    /// Removes the dictionary if neither the schema nor the array leads to it, and the children that neither of them counts: a right
    /// structure without them.
    fn drop_what_both_lack(&mut self) {
        if [self.schema.dictionary, self.array.dictionary] == [Pointer::Null; 2] {
            self.dictionary = None;
        }
        if let (Some(count), true) = (self.schema.count, self.schema.count == self.array.count) {
            self.children.truncate(usize::try_from(count).unwrap_or(usize::MAX));
        }
    }

    /// Makes the metadata as large as it claims; of the rest of a schema, nothing claims a size.
    pub(crate) fn settle_type(&mut self) -> Result<(), Untellable> {
        if let Some(metadata) = &mut self.metadata {
            settle_metadata(metadata)?;
        }
        self.children.iter_mut().chain(self.dictionary.as_deref_mut()).try_for_each(Self::settle_type)
    }

    /// The node at the end of a path of children; one beyond the last child is the dictionary.
    pub(crate) fn at(&mut self, path: &[usize]) -> &mut Self {
        let Some((step, rest)) = path.split_first() else { return self };
        let count = self.children.len();
        let next =
            if *step < count { &mut self.children[*step] } else { self.dictionary.as_deref_mut().expect("a path") };
        next.at(rest)
    }

    /// The paths of all nodes.
    pub(crate) fn paths(&self) -> Vec<Vec<usize>> {
        let parts = self.children.iter().chain(self.dictionary.as_deref()).enumerate();
        let below = parts.flat_map(|(index, part)| {
            part.paths().into_iter().map(move |path| [vec![index], path].concat()).collect::<Vec<_>>()
        });
        std::iter::once(Vec::new()).chain(below).collect()
    }

    /// Gives the array the types of another node, as the arrays of a stream have those of its schema.
    pub(crate) fn take_types(&mut self, schema: &Self) {
        self.format.clone_from(&schema.format);
        (self.schema.dictionary, self.schema.count) = (schema.schema.dictionary, schema.schema.count);
        for (own, other) in self.children.iter_mut().zip(&schema.children) {
            own.take_types(other);
        }
        if let (Some(own), Some(other)) = (&mut self.dictionary, &schema.dictionary) {
            own.take_types(other);
        }
    }

    /// The same array with its buffers where nobody can read them.
    pub(crate) fn out_of_reach(mut self) -> Self {
        for buffer in self.buffers.iter_mut().filter(|buffer| buffer.pointer == Pointer::Right) {
            buffer.pointer = Pointer::Device;
        }
        self.children = self.children.into_iter().map(Self::out_of_reach).collect();
        self.dictionary = self.dictionary.map(|values| Box::new(values.out_of_reach()));
        self
    }

    /// The same array without its first slots, by its offset.
    pub(crate) fn sliced(mut self, skip: i64) -> Self {
        self.offset += skip;
        self.length -= skip;
        self.null_count = if self.null_count == 0 { 0 } else { -1 };
        self
    }
}

/// The little-endian integer that is the `index`-th entry of a buffer.
pub(crate) fn int(bytes: &[u8], index: usize, width: usize) -> Option<i64> {
    let start = index.checked_mul(width)?;
    let bytes = bytes.get(start..start.checked_add(width)?)?;
    Some(match width {
        1 => i64::from(i8::from_le_bytes(bytes.try_into().ok()?)),
        2 => i64::from(i16::from_le_bytes(bytes.try_into().ok()?)),
        4 => i64::from(i32::from_le_bytes(bytes.try_into().ok()?)),
        8 => i64::from_le_bytes(bytes.try_into().ok()?),
        _ => return None,
    })
}

/// Follows the lengths in metadata and appends zeros where they lead beyond its end. Negative ones end it.
fn settle_metadata(metadata: &mut Vec<u8>) -> Result<(), Untellable> {
    let mut position = 0;
    let mut next = |metadata: &mut Vec<u8>, skip: bool| -> Result<Option<usize>, Untellable> {
        if metadata.len() < position + 4 {
            metadata.resize(position + 4, 0);
        }
        let length = usize::try_from(int(&metadata[position..], 0, 4).unwrap_or(0)).ok();
        position += 4 + if skip { length.unwrap_or(0) } else { 0 };
        if position > LARGEST || metadata.len() > LARGEST {
            return Err(Untellable);
        }
        if metadata.len() < position {
            metadata.resize(position, 0);
        }
        Ok(length)
    };
    let Some(count) = next(metadata, false)? else { return Ok(()) };
    for _ in 0..count.saturating_mul(2) {
        if next(metadata, true)?.is_none() {
            return Ok(());
        }
    }
    Ok(())
}

/// # Safety
/// NULL, or metadata of the C data interface: a count and as many pairs of strings, each after its length.
unsafe fn read_metadata(start: *const u8) -> Option<Vec<u8>> {
    if start.is_null() {
        return None;
    }
    let mut bytes = Vec::new();
    let take = |count: usize, bytes: &mut Vec<u8>| {
        // SAFETY: each count that is taken is that of a part of the metadata, which is there.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(start.wrapping_add(bytes.len()), count) });
        let word = bytes.len().checked_sub(4).and_then(|at| bytes[at..].try_into().ok()).map_or(0, i32::from_ne_bytes);
        word as usize
    };
    let count = take(4, &mut bytes);
    for _ in 0..2 * count {
        let length = take(4, &mut bytes);
        take(length, &mut bytes);
    }
    Some(bytes)
}

/// A pointer of a struct to what lies at `right`.
pub(crate) fn aimed<T>(pointer: Pointer, right: *mut T) -> *mut T {
    match pointer {
        Pointer::Right => right,
        Pointer::Null => std::ptr::null_mut(),
        Pointer::Misaligned => right.wrapping_byte_add(1),
        Pointer::Device => std::ptr::without_provenance_mut::<c_void>(0x1000).cast(),
        Pointer::Wild => std::ptr::without_provenance_mut::<c_void>(usize::MAX - 7).cast(),
    }
}
