//! [`Lane`]: makes a column's elements in the result's dtype, 64 at a time: casts, unpacks and fills them in the
//! first-level cache.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::cast::Cast;
use super::chunk::ColumnChunk;
use super::decimal::cast_decimals;
use super::misfit::Misfit;
use super::pack::{
    BLOCK_ROWS, Bytes, Compiled, Isa, LINE, LinePrefetch, Load, NON_TEMPORAL_FROM, Stored, UnalignedBits,
    copy_past_the_cache, fence, selecting, spreading,
};
use super::unpack::unpack_bits;
use crate::arrow::{Leaf, Mask};
use crate::dtype::DType;
use crate::spec::{Element, Pattern, Scalar, Spec};

/// The largest elements: stored decimals of 256 bits, and complex128 in the result.
const MOST_STORED: usize = 32;
pub(super) const MOST_WRITTEN: usize = 16;

/// The elements of one chunk of a column.
#[derive(Clone, Copy)]
pub(super) struct Lane<'a> {
    isa: Isa,
    make: Make<'a>,
    /// The one kernel that does all steps, with its parameters; `None` if it takes several.
    step: Option<LaneStep<'a>>,
    /// How tiles load the stored elements; `None` if they cannot.
    load: Option<Stored>,
    /// The stored element 0, of any alignment; nothing if elements are bits.
    source: *const u8,
    /// Bytes of a stored element; 0 for bits.
    stored: usize,
    /// Bytes of an element of the result.
    size: usize,
    /// Chunk index of this lane's first element.
    first: usize,
    /// The nulls, whose slots may hold values that do not fit.
    mask: Option<&'a Mask<'a>>,
    /// The fill value of nulls.
    fill: Option<LaneStep<'a>>,
}

/// How elements are made, nulls too.
#[derive(Clone, Copy)]
enum Make<'a> {
    AsTheyLie,
    OfBits(LaneStep<'a>),
    Cast(Cast),
    /// The parts of complex numbers, two for each.
    CastParts(Cast),
    OfDecimals {
        bytes: usize,
        scale: i8,
        to: DType,
    },
}

/// A kernel with its parameters beside the source.
#[derive(Clone, Copy)]
struct LaneStep<'a> {
    kernel: Compiled,
    bits: Option<UnalignedBits<'a>>,
    element: Bytes,
}

// SAFETY: the source is host memory that the chunk keeps alive for `'a`; a lane only reads it. Arrow's buffers are immutable, and who makes an
// array of lent memory vouches for that (docs/decisions.md, "Foreign memory").
unsafe impl Send for Lane<'_> {}
// SAFETY: a shared lane only reads the same memory, which is immutable by Arrow's specification.
unsafe impl Sync for Lane<'_> {}

impl<'a> Lane<'a> {
    /// # Errors
    /// If no cast from the elements to the spec's dtype exists, which no spec allows.
    pub(super) fn new(isa: Isa, spec: &Spec, chunk: &'a ColumnChunk<'a>) -> Result<Self, Misfit> {
        Self::of(isa, spec, &chunk.leaf, chunk.mask.as_ref())
    }

    /// As [`Self::new`], with these nulls alone.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(super) fn of(isa: Isa, spec: &Spec, leaf: &'a Leaf<'a>, mask: Option<&'a Mask<'a>>) -> Result<Self, Misfit> {
        let (element, to) = (spec.element(), spec.dtype());
        let no_cast = || Misfit { index: 0, value: format!("of type {element}") };
        let cast = |from, to| Cast::new(isa, from, to).ok_or_else(no_cast);
        let make = match element {
            Element::Bits => {
                // SAFETY: the checked array has offset + elements bits in host memory, alive while `leaf` is.
                let bits = unsafe { bytes_of_bits(leaf.values, leaf.offset + leaf.elements) };
                let one = Pattern::of(Scalar::Bool(true), to).map_err(|_| no_cast())?;
                let (kernel, bits) = (spreading(isa, to.itemsize()), Some(UnalignedBits::new(bits, leaf.offset)));
                Make::OfBits(LaneStep { kernel, bits, element: one.padded() })
            }
            Element::Decimal { .. } | Element::Ticks { .. } => {
                let (bytes, scale) = element.scaled().ok_or_else(no_cast)?;
                Make::OfDecimals { bytes, scale, to }
            }
            Element::Bool8 => Make::Cast(cast(DType::Bool, to)?),
            _ if !spec.is_cast() => Make::AsTheyLie,
            Element::Pairs(part) => Make::CastParts(cast(part, to.component().ok_or_else(no_cast)?)?),
            _ => Make::Cast(cast(element.dtype(), to)?),
        };
        let clear = spec.nulls().written();
        let select = selecting(isa, to.itemsize());
        let fill = mask.zip(clear).map(|(mask, element)| {
            let (bytes, offset) = mask.bits();
            LaneStep { kernel: select, bits: Some(UnalignedBits::new(bytes, offset)), element }
        });
        let without_bits = |kernel| LaneStep { kernel, bits: None, element: [0; 16] };
        let step = match (make, fill) {
            (Make::AsTheyLie, None) => Some(without_bits(select)),
            (Make::AsTheyLie, Some(fill)) => Some(fill),
            (Make::OfBits(step), None) => Some(step),
            (Make::Cast(cast), None) => cast.in_one_step().map(without_bits),
            _ => None,
        };
        let load = match make {
            Make::AsTheyLie => Some(Stored::Alike),
            Make::OfBits(_) => Some(Stored::Bits),
            Make::Cast(_) => Stored::of(isa, element.dtype(), to),
            _ => None,
        };
        let (source, stored) = match element {
            Element::Bits => (std::ptr::null(), 0),
            _ => (leaf.start(element), element.stored_bytes()),
        };
        Ok(Self { isa, make, step, load, source, stored, size: to.itemsize(), first: 0, mask, fill })
    }

    /// Returns the same elements without the first ones.
    pub(super) fn after(self, elements: usize) -> Self {
        Self { first: self.first + elements, ..self }
    }

    /// Bytes of an element of the result.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns whether the stored elements are the result's.
    #[inline(always)]
    pub(super) fn is_view(&self) -> bool {
        matches!(self.make, Make::AsTheyLie) && self.fill.is_none()
    }

    /// Returns how tiles of 4- or 8-byte elements load the stored elements; `None` if they cannot.
    pub(super) fn load(&self) -> Option<Load<'a>> {
        let mut load = Load { stored: self.load?, ..Load::ALIKE };
        let step = match (self.make, self.fill) {
            (Make::OfBits(_), Some(_)) => return None,
            (Make::OfBits(step), None) => Some(step),
            (_, fill) => fill,
        };
        if let Some(LaneStep { bits, element, .. }) = step {
            load.bits = bits.map(|bits| bits.after(self.first));
            load.element = u64::from_le_bytes(*element.first_chunk::<8>()?);
        }
        Some(load)
    }

    /// Returns the elements as bits, if each is to be a byte, 0 or 1; `None` for others.
    #[inline(always)]
    pub(super) fn bits(&self) -> Option<UnalignedBits<'a>> {
        match (&self.make, &self.fill, self.size) {
            (Make::OfBits(LaneStep { bits: Some(bits), element: [1, ..], .. }), None, 1) => {
                Some(bits.after(self.first))
            }
            _ => None,
        }
    }

    /// Where an element is stored.
    #[inline(always)]
    pub(super) fn stored_at(&self, row: usize) -> *const u8 {
        self.source.wrapping_add((self.first + row) * self.stored)
    }

    /// The sources of 64 elements from `row` on.
    pub(super) fn ahead(&self, row: usize) -> LinePrefetch {
        // Elements that span two lines: the first line is read with the elements before.
        LinePrefetch::new(self.stored_at(row).wrapping_add(LINE - 1), self.stored)
    }

    /// Bytes of a stored element; 0 for bits.
    #[inline(always)]
    pub(super) fn stored(&self) -> usize {
        self.stored
    }

    /// Writes all elements from `row` on that `out` has room for.
    ///
    /// # Errors
    /// The first valid element that does not fit.
    ///
    /// # Safety
    /// The chunk has that many elements; `out` is aligned for the dtype, and apart from the chunk. The processor has the
    /// lane's instructions.
    pub(super) unsafe fn write(&self, row: usize, out: &mut [MaybeUninit<u8>]) -> Result<(), Misfit> {
        if self.is_view() {
            // SAFETY: the chunk has the elements that `out` has room for, so `out.len()` bytes from `stored_at(row)`
            // on; `out` lies apart from it.
            unsafe { out.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(self.stored_at(row), out.len()) };
            return Ok(());
        }
        if let (Make::OfBits(LaneStep { bits: Some(bits), .. }), None, 1) = (&self.make, &self.fill, self.size) {
            // SAFETY: the processor has the lane's instructions, as promised.
            unsafe { unpack_bits(self.isa, bits.after(self.first + row), out) };
            return Ok(());
        }
        let large = out.len() >= NON_TEMPORAL_FROM;
        let mut block = LaneBlock([MaybeUninit::uninit(); BLOCK_ROWS * MOST_WRITTEN]);
        let block = block.0.as_mut_ptr().cast::<u8>();
        for (number, out) in out.chunks_mut(BLOCK_ROWS * self.size).enumerate() {
            let (row, elements) = (row + number * BLOCK_ROWS, out.len() / self.size);
            let target = out.as_mut_ptr().cast::<u8>();
            let in_place = elements == BLOCK_ROWS && !large;
            // SAFETY: the chunk has these elements, at most 64, and the processor the lane's instructions, as promised;
            // `block` has room for 64 of any size and is aligned for them, and `target` is a whole 64 of `out`, aligned
            // as `out` is.
            if !unsafe { self.chunk(row, elements, if in_place { target } else { block }) } {
                // SAFETY: the chunk has these elements, at most 64: those of `chunk` above.
                unsafe { self.find_misfit(row, elements) }?;
            }
            if !in_place {
                // SAFETY: as many bytes as `out` has were just written to `block`.
                unsafe { copy_past_the_cache(self.isa, block, target, out.len()) };
            }
        }
        fence();
        Ok(())
    }

    /// Writes `elements` from `row` on, up to 64, and then any values up to the 64th. Returns whether all valid
    /// elements fit.
    ///
    /// # Safety
    /// The chunk has these elements; `out` has room for 64, is aligned for the dtype, and apart from the chunk. The
    /// processor has the lane's instructions.
    #[inline(always)]
    pub(super) unsafe fn chunk(&self, row: usize, elements: usize, out: *mut u8) -> bool {
        if let (BLOCK_ROWS, Some(step)) = (elements, &self.step) {
            // SAFETY: the chunk has 64 elements from `row` on and `out` room for as many, as promised.
            let fits = unsafe { step.run(self.stored_at(row), self.first + row, out) };
            // The value that does not fit may be a null's, which is no misfit.
            // SAFETY: the chunk has the 64 elements from `row` on.
            return fits || unsafe { self.find_misfit(row, elements) }.is_ok();
        }
        // SAFETY: the elements, `out` and the instructions are as promised to us.
        unsafe { self.chunk_in_steps(row, elements, out) }
    }

    /// As [`Self::chunk`], of any lane.
    ///
    /// # Safety
    /// As [`Self::chunk`].
    #[inline(never)]
    unsafe fn chunk_in_steps(&self, row: usize, elements: usize, out: *mut u8) -> bool {
        let (at, mut source) = (self.first + row, self.stored_at(row));
        let mut copy = [const { MaybeUninit::<u8>::uninit() }; BLOCK_ROWS * MOST_STORED];
        if elements < BLOCK_ROWS {
            // Kernels read and write 64 elements, and the chunk may end before.
            let start = copy.as_mut_ptr().cast::<u8>();
            // SAFETY: the copy has room for 64 of the largest elements.
            unsafe { start.write_bytes(0, BLOCK_ROWS * self.stored) };
            // SAFETY: `elements < 64`, which the chunk has from `row` on; the copy has room for them.
            unsafe { start.copy_from_nonoverlapping(source, elements * self.stored) };
            // SAFETY: `out` has room for 64 elements, as promised.
            unsafe { out.write_bytes(0, BLOCK_ROWS * self.size) };
            source = start.cast_const();
        }
        let mut block = LaneBlock([MaybeUninit::uninit(); BLOCK_ROWS * MOST_WRITTEN]);
        let made = if self.fill.is_some() { block.0.as_mut_ptr().cast::<u8>() } else { out };
        let mut fits = true;
        match &self.make {
            Make::AsTheyLie => {
                // SAFETY: `source` has 64 elements, the chunk's or the copy's, and `made` room for them; stored and
                // result size agree in a view.
                unsafe { made.copy_from_nonoverlapping(source, BLOCK_ROWS * self.size) };
            }
            // SAFETY: `made` has room for 64 elements; a kernel of bits reads no source.
            Make::OfBits(step) => fits = unsafe { step.run(source, at, made) },
            // SAFETY: `source` has 64 elements, the chunk's or the copy's, and `made` room for 64 of the result.
            Make::Cast(cast) => fits = unsafe { cast.run(source, made) },
            Make::CastParts(cast) => {
                let half =
                    (source.wrapping_add(BLOCK_ROWS * self.stored / 2), made.wrapping_add(BLOCK_ROWS * self.size / 2));
                // SAFETY: `source` has 64 elements of two parts each: these are the first 64 of 128 parts, and `made`
                // has room for all.
                fits = unsafe { cast.run(source, made) };
                // SAFETY: the other 64 parts of both, in their second halves.
                fits &= unsafe { cast.run(half.0, half.1) };
            }
            Make::OfDecimals { bytes, scale, to } => {
                // SAFETY: `source` has `elements` decimals, `made` room for 64 of the result; `Spec` refused a `to`
                // that is not castable.
                fits = unsafe { cast_decimals((*bytes, *scale), *to, source, self.mask, at, elements, made) }.is_ok();
            }
        }
        if let Some(fill) = &self.fill {
            // SAFETY: `made` is `block`, in which 64 elements were just written, apart from `out`, which has room for
            // 64.
            unsafe { fill.run(made, at, out) };
        }
        // SAFETY: the chunk has these elements, at most 64.
        fits || unsafe { self.find_misfit(row, elements) }.is_ok()
    }

    /// Looks for what does not fit.
    ///
    /// # Errors
    /// The first element that is valid and does not fit.
    ///
    /// # Safety
    /// The chunk has these elements.
    pub(super) unsafe fn check(&self, rows: Range<usize>) -> Result<(), Misfit> {
        for row in rows.clone().step_by(BLOCK_ROWS) {
            // SAFETY: the chunk has `rows`, and these, at most 64, end with them.
            unsafe { self.find_misfit(row, BLOCK_ROWS.min(rows.end - row)) }?;
        }
        Ok(())
    }

    /// Looks closer at elements.
    ///
    /// # Errors
    /// The first one that is valid and does not fit.
    ///
    /// # Safety
    /// The chunk has these elements, at most 64.
    #[cold]
    unsafe fn find_misfit(&self, row: usize, elements: usize) -> Result<(), Misfit> {
        let (source, at) = (self.stored_at(row), self.first + row);
        let (cast, parts) = match &self.make {
            Make::AsTheyLie | Make::OfBits(_) => return Ok(()),
            Make::Cast(cast) => (cast, 1),
            Make::CastParts(cast) => (cast, 2),
            Make::OfDecimals { bytes, scale, to } => {
                let mut block = LaneBlock([MaybeUninit::uninit(); BLOCK_ROWS * MOST_WRITTEN]);
                let out = block.0.as_mut_ptr().cast::<u8>();
                // SAFETY: the chunk has `elements` decimals from `row` on; the block has room for 64 elements of any
                // size.
                return unsafe { cast_decimals((*bytes, *scale), *to, source, self.mask, at, elements, out) };
            }
        };
        let is_valid = |part: usize| self.mask.is_none_or(|mask| mask.is_valid(at + part / parts));
        // SAFETY: the chunk has `elements` elements from `row` on, of `parts` parts each.
        match unsafe { cast.misfit(source, elements * parts, is_valid) } {
            Some((part, value)) => Err(Misfit { index: at + part / parts, value }),
            None => Ok(()),
        }
    }
}

impl LaneStep<'_> {
    /// Writes 64 elements, the first of which is number `at` of the chunk.
    ///
    /// # Safety
    /// The kernel's own clauses hold for `source` and `out`; the processor has the instructions that it is compiled
    /// for.
    #[inline(always)]
    unsafe fn run(&self, source: *const u8, at: usize, out: *mut u8) -> bool {
        let bits = self.bits.as_ref().map_or(u64::MAX, |bits| bits.ahead(at));
        // SAFETY: the kernel's clauses for `source` and `out`, and its instructions, are promised by our caller.
        unsafe { (self.kernel)(source, bits, &self.element, out) }
    }
}

/// A block of 64 elements, aligned for any.
#[repr(C, align(64))]
struct LaneBlock([MaybeUninit<u8>; BLOCK_ROWS * MOST_WRITTEN]);

/// # Safety
/// So many bits of initialised memory start at `start`, and live for `'a`.
unsafe fn bytes_of_bits<'a>(start: *const u8, bits: usize) -> &'a [u8] {
    if start.is_null() {
        return &[];
    }
    // SAFETY: `start` is not NULL, and `bits` bits of initialised memory start there and live for `'a`.
    unsafe { std::slice::from_raw_parts(start, bits.div_ceil(8)) }
}
