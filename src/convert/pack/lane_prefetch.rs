//! Which lines of lanes are prefetched before their elements are cast or filled?

use super::isa::BLOCK_ROWS;
use super::load::LANES;
use super::stream::{LINE, prefetch};
use super::transpose::AHEAD;
use crate::convert::lane::Lane;

/// The shortest prefetch distance: writing that much takes as long as a load from memory.
const DISTANCE: usize = 512;
/// The most addresses that are prefetched for a group: one per column of single bytes, eight per column of decimals.
pub(super) const ADDRESSES: usize = 128;
/// How many lanes are read between a lane's prefetch and its use, without AVX-512. Large columns start at one place of their pages: the
/// first-level cache would lose lines of more lanes before they are used.
const LANES_AHEAD: usize = 4;

/// Prefetches 64 rows of the lane that is [`LANES_AHEAD`] lanes after number `number`, unless tiles read it in place: behind the last lane, the next
/// 64 rows of the first ones.
#[inline(always)]
pub(super) fn fetch_lane_ahead(lanes: &[Lane<'_>], in_place: &[bool; LANES], number: usize, first: usize) {
    let (lanes_ahead, count) = (number + LANES_AHEAD, lanes.len().max(1));
    let (Some(lane), Some(false)) = (lanes.get(lanes_ahead % count), in_place.get(lanes_ahead % count)) else { return };
    // If elements start inside a line, the rows before have prefetched that line.
    let start = lane.stored_at(first + lanes_ahead / count * BLOCK_ROWS).wrapping_add(LINE - 1);
    for line in 0..lane.stored() {
        prefetch(start.wrapping_add(line * LINE));
    }
}

/// Adds the addresses of a column that are read soon to the prefetch list. Returns the length of the list.
#[inline(always)]
pub(super) fn fetch_next(
    ahead: &mut [*const u8; ADDRESSES],
    mut filled: usize,
    lane: &Lane<'_>,
    first: usize,
) -> usize {
    // If the elements start inside a line, the previous elements have prefetched that line.
    let mut next = lane.stored_at(first).wrapping_add(DISTANCE.max(BLOCK_ROWS * lane.stored()) + LINE - 1);
    for _ in 0..lane.stored().div_ceil(AHEAD) {
        if let Some(slot) = ahead.get_mut(filled) {
            *slot = next;
            filled += 1;
            next = next.wrapping_add(AHEAD * LINE);
        }
    }
    filled
}
