//! Reads the slots of an array of strings, binary values or integers, whatever its layout.

use arrow_buffer::{ArrowNativeType, Buffer};
use arrow_data::{ArrayData, ByteView};
use arrow_schema::DataType;

use super::marks::SHORT;
use super::short_texts::{Finder, TextWords};
use super::value_kind::Key;

/// The values of an array by slot; null slots have any value.
pub(crate) trait Slots<'a>: Copy {
    /// Whether [`Slots::block`] returns any.
    const HAS_BLOCKS: bool = true;

    /// Returns the value of a slot; `None` if the array does not have it.
    fn key(self, slot: usize) -> Option<Key<'a>>;

    /// Returns the sixteen bytes from the start of a value on, the first one lowest, and the length of the value, which may be less or more
    /// than sixteen. `None` for integers, and where the buffer ends before the sixteenth byte.
    fn block(self, slot: usize) -> Option<(u128, usize)>;

    /// Returns the block of each slot from `first` on, up to the array's last slot or beyond.
    #[inline(always)]
    fn blocks(self, first: usize) -> impl Iterator<Item = Option<(u128, usize)>> {
        (first..).map(move |slot| self.block(slot))
    }

    /// Writes the positions of the values from this slot on, up to one that is none of these short texts. Returns how many it wrote.
    #[inline(never)]
    fn find_short<W: TextWords>(self, texts: Finder<'_>, first: usize, positions: &mut [i32]) -> usize {
        let mut written = 0;
        for (position, block) in positions.iter_mut().zip(self.blocks(first)) {
            let Some(found) = block.and_then(|(block, bytes)| texts.find::<W>(block, bytes)) else { break };
            *position = found;
            written += 1;
        }
        written
    }
}

/// What is done with the slots of an array: compiled for each layout.
pub(crate) trait Visit {
    /// What it returns.
    type Out;

    /// Does it.
    fn visit<'a>(self, slots: impl Slots<'a>) -> Self::Out;
}

/// Calls `visit` with the slots of a valid array; `None` if its values cannot be categories.
pub(crate) fn visit<V: Visit>(data: &ArrayData, visit: V) -> Option<V::Out> {
    let bytes = |index: usize| data.buffers().get(index).map_or(&[][..], |buffer| buffer.as_slice());
    Some(match data.data_type() {
        DataType::Utf8 | DataType::Binary => visit.visit(TextSlots::<i32>::of(data, bytes(1))),
        DataType::LargeUtf8 | DataType::LargeBinary => visit.visit(TextSlots::<i64>::of(data, bytes(1))),
        DataType::Utf8View | DataType::BinaryView => visit.visit(ViewSlots::of(data)),
        DataType::FixedSizeBinary(width) => {
            let width = usize::try_from(*width).ok()?;
            visit.visit(FixedSlots { bytes: bytes(0), width, offset: data.offset() })
        }
        DataType::Int8 => visit.visit(IntSlots::<i8>::of(data)),
        DataType::Int16 => visit.visit(IntSlots::<i16>::of(data)),
        DataType::Int32 => visit.visit(IntSlots::<i32>::of(data)),
        DataType::Int64 => visit.visit(IntSlots::<i64>::of(data)),
        DataType::UInt8 => visit.visit(IntSlots::<u8>::of(data)),
        DataType::UInt16 => visit.visit(IntSlots::<u16>::of(data)),
        DataType::UInt32 => visit.visit(IntSlots::<u32>::of(data)),
        DataType::UInt64 => visit.visit(IntSlots::<u64>::of(data)),
        _ => return None,
    })
}

/// The elements of a buffer from an array's first slot on, `more` beside those of its slots.
fn elements<T: ArrowNativeType>(data: &ArrayData, more: usize) -> &[T] {
    let end = data.offset().saturating_add(data.len()).saturating_add(more);
    data.buffers().first().and_then(|buffer| buffer.typed_data().get(data.offset()..end)).unwrap_or(&[])
}

#[derive(Clone, Copy)]
struct IntSlots<'a, T>(&'a [T]);

impl<'a, T: ArrowNativeType> IntSlots<'a, T> {
    fn of(data: &'a ArrayData) -> Self {
        Self(elements(data, 0))
    }
}

impl<'a, T: ArrowNativeType + Into<i128>> Slots<'a> for IntSlots<'a, T> {
    const HAS_BLOCKS: bool = false;

    #[inline(always)]
    fn key(self, slot: usize) -> Option<Key<'a>> {
        self.0.get(slot).map(|value| Key::Int((*value).into()))
    }

    #[inline(always)]
    fn block(self, _: usize) -> Option<(u128, usize)> {
        None
    }
}

/// Offsets of 32 or 64 bits.
trait TextOffset: ArrowNativeType {
    /// Returns the offset without its sign, which a valid one does not have.
    fn place(self) -> usize;
}

impl TextOffset for i32 {
    #[inline(always)]
    fn place(self) -> usize {
        // Zeros in the upper half let the compiler leave out the check for an overflow of the block's end.
        usize::try_from(self.cast_unsigned()).unwrap_or(usize::MAX)
    }
}

impl TextOffset for i64 {
    #[inline(always)]
    fn place(self) -> usize {
        usize::try_from(self.cast_unsigned()).unwrap_or(usize::MAX)
    }
}

/// Values between offsets.
#[derive(Clone, Copy)]
struct TextSlots<'a, T> {
    offsets: &'a [T],
    bytes: &'a [u8],
}

impl<'a, T: TextOffset> TextSlots<'a, T> {
    fn of(data: &'a ArrayData, bytes: &'a [u8]) -> Self {
        Self { offsets: elements(data, 1), bytes }
    }

    /// Returns the block of the value between two offsets. If they decrease, the length is that of no value.
    #[inline(always)]
    fn block_between(self, start: T, end: T) -> Option<(u128, usize)> {
        let (start, end) = (start.place(), end.place());
        let block = self.bytes.get(start..start.checked_add(SHORT)?)?.first_chunk()?;
        Some((u128::from_le_bytes(*block), end.wrapping_sub(start)))
    }
}

impl<'a, T: TextOffset> Slots<'a> for TextSlots<'a, T> {
    #[inline(always)]
    fn key(self, slot: usize) -> Option<Key<'a>> {
        let ([start, end], _) = self.offsets.get(slot..)?.split_first_chunk()?;
        self.bytes.get(start.as_usize()..end.as_usize()).map(Key::Bytes)
    }

    #[inline(always)]
    fn block(self, slot: usize) -> Option<(u128, usize)> {
        let ([start, end], _) = self.offsets.get(slot..)?.split_first_chunk()?;
        self.block_between(*start, *end)
    }

    #[inline(always)]
    fn blocks(self, first: usize) -> impl Iterator<Item = Option<(u128, usize)>> {
        let from = self.offsets.get(first..).unwrap_or(&[]);
        from.iter().zip(from.iter().skip(1)).map(move |(start, end)| self.block_between(*start, *end))
    }
}

/// Bytes of a view.
const VIEW: usize = size_of::<u128>();
/// The longest value that a view holds itself, behind its length.
const INLINE: usize = 12;

#[derive(Clone, Copy)]
struct ViewSlots<'a> {
    views: &'a [[u8; VIEW]],
    /// The views and then the buffers that they refer to.
    buffers: &'a [Buffer],
}

impl<'a> ViewSlots<'a> {
    fn of(data: &'a ArrayData) -> Self {
        let buffers = data.buffers();
        let views = buffers.first().map_or(&[][..], |views| views.as_slice().as_chunks().0);
        Self { views: views.get(data.offset()..).unwrap_or(&[]), buffers }
    }
}

impl<'a> Slots<'a> for ViewSlots<'a> {
    #[inline(always)]
    fn block(self, slot: usize) -> Option<(u128, usize)> {
        block_of_view(self.views.get(slot)?)
    }

    #[inline(always)]
    fn blocks(self, first: usize) -> impl Iterator<Item = Option<(u128, usize)>> {
        self.views.get(first..).unwrap_or(&[]).iter().map(block_of_view)
    }

    fn key(self, slot: usize) -> Option<Key<'a>> {
        let view = self.views.get(slot)?;
        let place = ByteView::from(u128::from_le_bytes(*view));
        let length = usize::try_from(place.length).ok()?;
        if length <= INLINE {
            return view.get(4..length.checked_add(4)?).map(Key::Bytes);
        }
        let (index, start) = (usize::try_from(place.buffer_index).ok()?, usize::try_from(place.offset).ok()?);
        let text = self.buffers.get(index.checked_add(1)?)?.as_slice();
        text.get(start..start.checked_add(length)?).map(Key::Bytes)
    }
}

/// Returns the block of a value that its view holds behind the length, as short ones are.
#[inline(always)]
fn block_of_view(view: &[u8; VIEW]) -> Option<(u128, usize)> {
    let view = u128::from_le_bytes(*view);
    let length = usize::try_from(ByteView::from(view).length).ok()?;
    (length <= INLINE).then_some((view >> u32::BITS, length))
}

#[derive(Clone, Copy)]
struct FixedSlots<'a> {
    bytes: &'a [u8],
    width: usize,
    offset: usize,
}

impl<'a> Slots<'a> for FixedSlots<'a> {
    #[inline(always)]
    fn block(self, slot: usize) -> Option<(u128, usize)> {
        let start = self.offset.checked_add(slot)?.checked_mul(self.width)?;
        Some((u128::from_le_bytes(*self.bytes.get(start..)?.first_chunk()?), self.width))
    }

    fn key(self, slot: usize) -> Option<Key<'a>> {
        let start = self.offset.checked_add(slot)?.checked_mul(self.width)?;
        self.bytes.get(start..start.checked_add(self.width)?).map(Key::Bytes)
    }
}
