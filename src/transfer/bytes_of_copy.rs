//! How many bytes does a copy of an array from or to the host take?

use super::arena::Arena;
use super::path::elsewhere;
use super::to_device::read_where_it_is;
use crate::arrow::{Decomposed, DeviceArray, ListInts, Wanted};
use crate::device::Device;
use crate::dtype::DType;

/// Rows before a slice whose bits share a byte with its own are copied with it.
const BITS: usize = u8::BITS as usize;

/// Lists that are said to have one length each, which tells how far their offsets are apart.
pub(crate) struct EvenLists {
    pub(crate) offsets: ListInts,
    pub(crate) length: usize,
}

impl EvenLists {
    /// Returns which of the offsets is at an address, counted from the first one of lists that may be copied; `None` of other addresses.
    fn place(&self, wanted: &Wanted) -> Option<usize> {
        let Wanted::OnDevice(range) = wanted else { return None };
        let width = self.offsets.dtype().itemsize();
        let first = self.offsets.start().addr().checked_sub(BITS * width)?;
        let place = range.start.checked_sub(first)?.checked_div(width)?;
        (place < self.offsets.len().saturating_add(BITS)).then_some(place)
    }

    /// Returns the bytes of one of the offsets that are wanted, counted from the first of them.
    fn offset(&self, one: &Wanted, wanted: &[Wanted]) -> Option<Vec<u8>> {
        let (place, first) = (self.place(one)?, wanted.iter().find_map(|wanted| self.place(wanted))?);
        let value = place.checked_sub(first)?.checked_mul(self.length)?;
        Some(match self.offsets.dtype() {
            DType::Int32 => i32::try_from(value).ok()?.to_ne_bytes().into(),
            _ => i64::try_from(value).ok()?.to_ne_bytes().into(),
        })
    }
}

/// Returns the bytes of a copy of an array; `None` if only its offsets tell, and the host does not read them. `lists` are those in it that are
/// said to have one length: a copy of others takes other bytes.
pub(crate) fn bytes_of_copy(array: &DeviceArray, lists: &[EvenLists]) -> Option<usize> {
    let mut read = |wanted: &[Wanted]| {
        if array.device().is_cpu() {
            return read_where_it_is(array, wanted);
        }
        let known = |one: &Wanted| lists.iter().find_map(|lists| lists.offset(one, wanted));
        let known: Option<Vec<_>> = wanted.iter().map(known).collect();
        known.ok_or_else(|| elsewhere(array.device(), Device::CPU))
    };
    let apart = Decomposed::new(array, true, &mut read).ok()?;
    let mut arena = Arena::default();
    apart.pieces.iter().try_for_each(|piece| arena.place(piece.len()).map(drop)).ok()?;
    Some(arena.bytes())
}
