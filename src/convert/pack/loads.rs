//! How the tiles of a group take its lanes: in place, as they are stored, or from the scratch.

use super::load::{LANES, Load};
use crate::convert::lane::Lane;

/// How a tile takes its lanes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loads<'a> {
    each: [Load<'a>; LANES],
    in_place: [bool; LANES],
    alike: bool,
    /// Where the first element of each lane is stored, and the bytes of one. Lanes themselves would crowd out what is packed.
    sources: [*const u8; LANES],
    stored: [usize; LANES],
    all_in_place: bool,
}

impl<'a> Loads<'a> {
    /// Every lane is made in the scratch.
    pub(super) const MADE: Self = Self {
        each: [Load::ALIKE; LANES],
        in_place: [false; LANES],
        alike: true,
        sources: [std::ptr::null(); LANES],
        stored: [0; LANES],
        all_in_place: false,
    };

    /// Lanes that have a load are read in place, unused ones as the first is.
    pub(super) fn new(lanes: &[Lane<'a>], load: impl Fn(&Lane<'a>) -> Option<Load<'a>>) -> Self {
        let mut loads = Self { all_in_place: true, ..Self::MADE };
        let taken = loads.each.iter_mut().zip(&mut loads.in_place);
        let sources = loads.sources.iter_mut().zip(&mut loads.stored);
        for ((lane, (each, in_place)), (source, stored)) in lanes.iter().zip(taken).zip(sources) {
            let load = load(lane);
            *each = load.unwrap_or(Load::ALIKE);
            *in_place = load.is_some();
            loads.alike &= each.is_alike();
            loads.all_in_place &= *in_place;
            (*source, *stored) = (lane.stored_at(0), lane.stored());
        }
        let ([first, ..], [source, ..], [stored, ..]) = (loads.each, loads.sources, loads.stored);
        loads.each.iter_mut().skip(lanes.len()).for_each(|unused| *unused = first);
        loads.sources.iter_mut().skip(lanes.len()).for_each(|unused| *unused = source);
        loads.stored.iter_mut().skip(lanes.len()).for_each(|unused| *unused = stored);
        loads
    }

    /// Where each lane's elements are from `row` on, if all are read in place.
    #[inline(always)]
    pub(super) fn all_in_place(&self, row: usize) -> Option<[*const u8; LANES]> {
        let mut starts = self.sources;
        for (start, stored) in starts.iter_mut().zip(&self.stored) {
            *start = start.wrapping_add(row * stored);
        }
        self.all_in_place.then_some(starts)
    }

    /// Which lanes are read in place.
    pub(super) fn in_place(&self) -> &[bool; LANES] {
        &self.in_place
    }

    /// `None` where all elements are the result's.
    pub(super) fn made(&self) -> Option<&[Load<'a>; LANES]> {
        (!self.alike).then_some(&self.each)
    }
}
