//! Describes an exported array over other owners' memory, and makes the C structs that free it.

use std::ffi::c_void;
use std::ptr::null_mut;

use arrow_schema::DataType;
use smallvec::SmallVec;

use super::check::{Buffer, buffers_of};
use super::foreign::{buffer, child};
use super::view::ArrayView;
use crate::alloc::{Owner, fallible};
use crate::callback;
use crate::error::{Error, Result};
use crate::ffi::arrow_device::ArrowArray;
use crate::spec::signed;

/// The addresses of buffers, without an allocation of their own for up to three: batches may have thousands of columns.
pub(crate) type BufferStarts = SmallVec<[*const u8; 3]>;

/// The contents of an exported `ArrowArray`. Its pointers lead into memory that the owner keeps alive.
#[derive(Debug, Default)]
pub(crate) struct ArrayNode {
    pub(crate) length: usize,
    /// `None` where it was not counted.
    pub(crate) null_count: Option<usize>,
    pub(crate) offset: usize,
    pub(crate) buffers: BufferStarts,
    pub(crate) children: Vec<ArrayNode>,
    pub(crate) dictionary: Option<Box<ArrayNode>>,
}

/// The owner of an exported struct. Consumers may move children out of their parent, so each child has its own owner.
struct PrivateData {
    buffers: BufferStarts,
    /// The addresses of the first structs of `arrays`.
    _children: Vec<*mut ArrowArray>,
    /// Those of the children, and that of the dictionary.
    arrays: Vec<ArrowArray>,
    owner: Owner,
}

impl ArrayNode {
    /// Returns the C struct, which shares `owner` until its release.
    ///
    /// # Errors
    /// If a count exceeds 64 bits signed. Nothing leaks then.
    pub(crate) fn export(self, owner: &Owner) -> Result<ArrowArray> {
        // pyarrow 26 gives an array without rows buffers of no bytes, and cannot join it with others if it has an offset.
        let (length, offset) = (signed(self.length)?, signed(if self.length == 0 { 0 } else { self.offset })?);
        let null_count = self.null_count.map_or(Ok(-1), signed)?;
        let (n_buffers, n_children) = (signed(self.buffers.len())?, signed(self.children.len())?);
        // From here on, a failure drops the guard, which releases what exists so far.
        let mut parts = Children(fallible::with_room(self.children.len() + usize::from(self.dictionary.is_some()))?);
        let mut children = fallible::with_room(self.children.len())?;
        let start = parts.0.as_mut_ptr();
        children.extend((0..self.children.len()).map(|index| start.wrapping_add(index)));
        let dictionary = if self.dictionary.is_some() { start.wrapping_add(children.len()) } else { null_mut() };
        for node in self.children.into_iter().chain(self.dictionary.map(|node| *node)) {
            parts.0.push(node.export(owner)?);
        }
        let arrays = std::mem::take(&mut parts.0);
        // The structs and their addresses do not move with their vectors.
        let first_child = children.as_mut_ptr();
        let private_data = PrivateData { buffers: self.buffers, _children: children, arrays, owner: owner.clone() };
        let private_data = Box::into_raw(Box::new(private_data));
        // SAFETY: a box of ours that nobody else knows. Consumers read the buffers' starts by this pointer, and nothing else uses the box before
        // it is freed.
        let buffers = unsafe { &mut (*private_data).buffers }.as_mut_ptr().cast::<*const c_void>();
        Ok(ArrowArray {
            length,
            null_count,
            offset,
            n_buffers,
            n_children,
            buffers,
            children: first_child,
            dictionary,
            release: Some(release_array),
            private_data: private_data.cast(),
        })
    }

    /// Returns a node over all buffers of an imported array.
    pub(super) fn whole(array: &ArrowArray) -> Result<Self> {
        let children = (0..unsigned(array.n_children)?).map(|index| Self::whole(child(array, index)?));
        // SAFETY: import checked the dictionary: NULL or a live array, owned by its parent.
        let dictionary = unsafe { array.dictionary.as_ref() }.map(Self::whole).transpose()?.map(Box::new);
        Ok(Self { children: children.collect::<Result<_>>()?, dictionary, ..Self::alone(array)? })
    }

    /// Returns a node over the array's own buffers, without children.
    fn alone(array: &ArrowArray) -> Result<Self> {
        Ok(Self {
            length: unsigned(array.length)?,
            null_count: usize::try_from(array.null_count).ok(),
            offset: unsigned(array.offset)?,
            buffers: (0..unsigned(array.n_buffers)?).filter_map(|index| buffer(array, index)).collect(),
            ..Self::default()
        })
    }

    /// Returns a node over a range of an imported array.
    pub(super) fn range(view: &ArrayView<'_>) -> Result<Self> {
        Ok(Self::whole(view.array)?.of_rows(view))
    }

    /// As [`ArrayNode::range`], without children.
    pub(super) fn rows(view: &ArrayView<'_>) -> Result<Self> {
        Ok(Self::alone(view.array)?.of_rows(view))
    }

    fn of_rows(self, view: &ArrayView<'_>) -> Self {
        let mut node = self;
        if (node.offset, node.length) != (view.offset, view.length) {
            node.null_count = node.null_count.filter(|count| *count == 0);
        }
        (node.offset, node.length) = (view.offset, view.length);
        node
    }

    /// Sets another bitmap, which starts at bit `offset % 8`, on a node of this type. The other buffers and the
    /// children then start at a multiple of 8 slots.
    ///
    /// # Errors
    /// If a position overflows, which import has ruled out.
    pub(super) fn set_validity(&mut self, data_type: &DataType, bitmap: *const u8, nulls: usize) -> Result<()> {
        self.skip(data_type, self.offset - self.offset % 8)?;
        if let Some(validity) = self.buffers.first_mut() {
            *validity = bitmap;
        }
        self.null_count = Some(nulls);
        Ok(())
    }

    /// Moves the starts of the buffers, and of the children, behind so many of the slots before the first one. Bits then start in the byte of
    /// that slot.
    ///
    /// # Errors
    /// If a position overflows, which import has ruled out.
    pub(super) fn skip(&mut self, data_type: &DataType, slots: usize) -> Result<()> {
        let overflow = || Error::invalid("the array's positions overflow");
        for (start, kind) in self.buffers.iter_mut().zip(buffers_of(data_type)) {
            let bytes = match kind {
                Buffer::Validity | Buffer::Data => Some(0),
                Buffer::Bits => Some(slots / 8),
                Buffer::Width(width) | Buffer::Offsets(width) => slots.checked_mul(width),
            };
            if !start.is_null() {
                *start = start.wrapping_add(bytes.ok_or_else(overflow)?);
            }
        }
        let shared = match data_type {
            DataType::Struct(_) => Some(slots),
            DataType::FixedSizeList(_, size) => usize::try_from(*size).ok().and_then(|size| slots.checked_mul(size)),
            _ => Some(0),
        };
        let shared = shared.filter(|shared| self.children.iter().all(|child| child.length >= *shared));
        let shared = shared.ok_or_else(overflow)?;
        for child in self.children.iter_mut().filter(|_| shared > 0) {
            child.offset = child.offset.checked_add(shared).ok_or_else(overflow)?;
            child.length -= shared;
            child.null_count = child.null_count.filter(|count| *count == 0);
        }
        self.offset = self.offset.checked_sub(slots).ok_or_else(overflow)?;
        Ok(())
    }

    /// Moves a struct's offset into its children, because record batch consumers expect offset 0 at the top.
    pub(super) fn push_down_offset(&mut self) {
        for node in &mut self.children {
            node.offset += self.offset;
            if node.length != self.length {
                node.null_count = node.null_count.filter(|count| *count == 0);
            }
            node.length = self.length;
        }
        self.offset = 0;
    }
}

fn unsigned(value: i64) -> Result<usize> {
    usize::try_from(value).map_err(|_| Error::invalid("a negative count"))
}

/// Structs that are released if the export fails in the middle.
struct Children(Vec<ArrowArray>);

impl Drop for Children {
    fn drop(&mut self) {
        for array in &mut self.0 {
            // SAFETY: our own exports, not yet handed out.
            unsafe { release_array(array) };
        }
    }
}

/// # Safety
/// `array` is NULL or a struct that [`ArrayNode::export`] made, moved perhaps, not yet released.
unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // Nobody can be told of a panic in an owner's drop.
    callback::run(
        || {
            // SAFETY: NULL, or a struct of ours that nobody else uses now (a clause of `# Safety`).
            unsafe { free_array(array) }
        },
        |_| (),
    );
}

/// # Safety
/// As [`release_array`].
unsafe fn free_array(array: *mut ArrowArray) {
    // SAFETY: NULL, or a struct that nobody else uses now (a clause of `# Safety`).
    let Some(array) = (unsafe { array.as_mut() }) else { return };
    if array.release.take().is_none() {
        return;
    }
    // SAFETY: `private_data` is the box that `export` leaked; taking `release` made this its only use.
    let mut private_data = unsafe { Box::from_raw(array.private_data.cast::<PrivateData>()) };
    array.private_data = null_mut();
    for part in &mut private_data.arrays {
        // A consumer that moved the struct out left its `release` NULL.
        if let Some(release) = part.release {
            // SAFETY: not released yet, and owned by its parent.
            unsafe { release(part) };
        }
    }
    let PrivateData { owner, .. } = *private_data;
    callback::let_go(owner);
}
