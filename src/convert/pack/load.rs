//! How a tile loads the elements of a lane: casts and null fills in registers.

use super::isa::Isa;
use super::select::UnalignedBits;
use crate::dtype::DType;

/// The most lanes that a line has.
pub(super) const LANES: usize = 16;

/// The stored type of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::convert) enum Stored {
    /// As in the result.
    Alike,
    Int32,
    Int64,
    Float32,
    Float64,
    /// Bits: set bits become `element` in the result, others zero.
    Bits,
}

impl Stored {
    /// Returns the bytes of a stored element, given those of the result's; 0 for bits.
    pub(super) fn bytes(self, size: usize) -> usize {
        match self {
            Self::Alike => size,
            Self::Int32 | Self::Float32 => 4,
            Self::Int64 | Self::Float64 => 8,
            Self::Bits => 0,
        }
    }

    /// `None` if registers do not cast them.
    pub(in crate::convert) fn of(isa: Isa, from: DType, to: DType) -> Option<Self> {
        match (isa, from, to) {
            (Isa::Avx2 | Isa::Avx512, DType::Int32, DType::Float32 | DType::Float64) => Some(Self::Int32),
            // Of these two, only AVX-512 casts integers of 8 bytes.
            (Isa::Avx512, DType::Int64, DType::Float32 | DType::Float64) => Some(Self::Int64),
            (Isa::Avx2 | Isa::Avx512, DType::Float32, DType::Float64) => Some(Self::Float32),
            (Isa::Avx2 | Isa::Avx512, DType::Float64, DType::Float32) => Some(Self::Float64),
            _ => None,
        }
    }
}

/// How a tile loads the elements of a lane.
#[derive(Clone, Copy, Debug)]
pub(in crate::convert) struct Load<'a> {
    pub(in crate::convert) stored: Stored,
    /// A bit for each element, the bits themselves or validity: where it is not set, the result has `element`.
    pub(in crate::convert) bits: Option<UnalignedBits<'a>>,
    /// The bytes of an element of the result, the first ones lowest.
    pub(in crate::convert) element: u64,
}

impl Load<'_> {
    /// Elements in the result's dtype already.
    pub(in crate::convert) const ALIKE: Self = Self { stored: Stored::Alike, bits: None, element: 0 };

    pub(super) fn is_alike(&self) -> bool {
        self.stored == Stored::Alike && self.bits.is_none()
    }

    /// Whether tiles of this instruction set load such lanes in place: AVX2 does so with all but bits, which become numbers in a buffer first.
    pub(super) fn is_in_place(&self, isa: Isa) -> bool {
        match isa {
            Isa::Avx512 => true,
            Isa::Avx2 => self.stored != Stored::Bits,
            _ => self.is_alike(),
        }
    }
}

/// An array of what is made of each of 4, 8 or 16 lanes, in registers: a loop with branches in it is not unrolled.
#[cfg(target_arch = "x86_64")]
macro_rules! each_lane {
    (4, $lane:ident => $made:expr) => { each_lane!(@ $lane => $made; 0 1 2 3) };
    (8, $lane:ident => $made:expr) => { each_lane!(@ $lane => $made; 0 1 2 3 4 5 6 7) };
    (16, $lane:ident => $made:expr) => { each_lane!(@ $lane => $made; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15) };
    (@ $lane:ident => $made:expr; $($number:literal)+) => {
        [$({
            let $lane: usize = $number;
            $made
        }),+]
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use each_lane;
