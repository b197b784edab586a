//! How a tile loads the elements of a lane: casts and null fills in registers.

use super::Lane;
use super::isa::Isa;
use super::select::Bits;
use super::transpose::LANES;
use crate::dtype::DType;

/// What elements are stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::convert) enum Stored {
    /// As in the result.
    Alike,
    Int32,
    Int64,
    Float32,
    Float64,
    /// Bits: those that are set are `element` in the result, the others zero.
    Bits,
}

impl Stored {
    /// Bytes of an element, of which the result's has so many; 0 for bits.
    pub(super) fn bytes(self, size: usize) -> usize {
        match self {
            Self::Alike => size,
            Self::Int32 | Self::Float32 => 4,
            Self::Int64 | Self::Float64 => 8,
            Self::Bits => 0,
        }
    }

    /// `None` where registers do not cast them.
    pub(in crate::convert) fn of(isa: Isa, from: DType, to: DType) -> Option<Self> {
        match (isa, from, to) {
            (Isa::Avx512, DType::Int32, DType::Float32 | DType::Float64) => Some(Self::Int32),
            (Isa::Avx512, DType::Int64, DType::Float32 | DType::Float64) => Some(Self::Int64),
            (Isa::Avx512, DType::Float32, DType::Float64) => Some(Self::Float32),
            (Isa::Avx512, DType::Float64, DType::Float32) => Some(Self::Float64),
            _ => None,
        }
    }
}

/// How a tile takes the elements of a lane.
#[derive(Clone, Copy, Debug)]
pub(in crate::convert) struct Load<'a> {
    pub(in crate::convert) stored: Stored,
    /// A bit for each element, the bits themselves or validity: where it is not set, the result has `element`.
    pub(in crate::convert) bits: Option<Bits<'a>>,
    /// The bytes of an element of the result, the first ones lowest.
    pub(in crate::convert) element: u64,
}

impl Load<'_> {
    /// Of elements that are the result's.
    pub(in crate::convert) const ALIKE: Self = Self { stored: Stored::Alike, bits: None, element: 0 };

    pub(super) fn is_alike(&self) -> bool {
        self.stored == Stored::Alike && self.bits.is_none()
    }
}

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
        let [first, ..] = loads.each;
        loads.each.iter_mut().skip(lanes.len()).for_each(|unused| *unused = first);
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
