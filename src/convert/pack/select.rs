//! One value or another by a bit: nulls filled, and bits as numbers. 64 of them at a time.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use super::CHUNK;
use super::isa::{Isa, Kernel};
use super::stream::{LINE, prefetch};

/// A bitmap from one of its bits on.
#[derive(Clone, Copy, Debug)]
pub(in crate::convert) struct Bits<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Bits<'a> {
    pub(in crate::convert) fn new(bytes: &'a [u8], offset: usize) -> Self {
        Self { bytes, offset }
    }

    /// 64 bits from bit `at` on, the first one lowest; what lies beyond the bitmap is 0.
    #[inline(always)]
    pub(in crate::convert) fn word(&self, at: usize) -> u64 {
        let at = self.offset + at;
        let shift = at % 8;
        let bytes = self.bytes.get(at / 8..).unwrap_or(&[]);
        let (low, high) = match bytes.first_chunk::<9>() {
            Some([a, b, c, d, e, f, g, h, high]) => (u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]), *high),
            None => {
                let mut low = [0; 8];
                for (byte, source) in low.iter_mut().zip(bytes) {
                    *byte = *source;
                }
                (u64::from_le_bytes(low), 0)
            }
        };
        // In two steps, as a shift by 64 is none.
        low >> shift | u64::from(high) << 1 << (63 - shift)
    }

    /// The same bits without the first ones.
    pub(in crate::convert) fn after(self, bits: usize) -> Self {
        Self { offset: self.offset + bits, ..self }
    }

    /// As [`Self::word`], where the words behind it are read soon.
    #[inline(always)]
    pub(in crate::convert) fn ahead(&self, at: usize) -> u64 {
        prefetch(self.bytes.as_ptr().wrapping_add((self.offset + at) / 8 + LINE));
        self.word(at)
    }
}

/// The bytes of an element, and what fills up the sixteen.
pub(in crate::convert) type Bytes = [u8; 16];

/// What to do with 64 elements: each becomes `clear` where its bit is not set.
#[derive(Clone, Copy)]
pub(in crate::convert) struct Select {
    pub(in crate::convert) bits: u64,
    pub(in crate::convert) clear: Bytes,
    /// Where the elements are whose bit is set: 64, of any alignment.
    pub(in crate::convert) source: *const u8,
    /// Room for 64, aligned for them, and apart from `source`.
    pub(in crate::convert) out: *mut u8,
}

/// Writes 64 elements as a [`Select`] says.
pub(in crate::convert) type SelectElements = unsafe fn(Select);

/// Writes 64 elements of this size, chosen by their bits. The processor that runs it has `isa`.
pub(in crate::convert) fn selecting(isa: Isa, size: usize) -> SelectElements {
    match size {
        1 => isa.compiled::<Selecting<u8>>(),
        2 => isa.compiled::<Selecting<u16>>(),
        4 => isa.compiled::<Selecting<u32>>(),
        8 => isa.compiled::<Selecting<u64>>(),
        _ => isa.compiled::<Selecting<u128>>(),
    }
}

struct Selecting<T>(PhantomData<T>);

impl<T: Copy> Kernel for Selecting<T> {
    type Input = Select;
    type Output = ();

    /// # Safety
    /// As the fields of [`Select`] say; `T` is an unsigned integer of the elements' size.
    #[inline(always)]
    unsafe fn run(Select { bits, clear, source, out }: Select) {
        // SAFETY: any bytes are an integer, and there are enough of them.
        let clear = unsafe { clear.as_ptr().cast::<T>().read_unaligned() };
        for index in 0..CHUNK {
            // SAFETY: the contract: `source` has 64 elements.
            let element = unsafe { source.cast::<T>().wrapping_add(index).read_unaligned() };
            let element = if bits >> index & 1 == 1 { element } else { clear };
            // SAFETY: the contract: `out` has room for 64 elements.
            unsafe { out.cast::<T>().wrapping_add(index).write(element) };
        }
    }
}

/// 64 elements, each `one` where its bit is set, else zero.
#[derive(Clone, Copy)]
pub(in crate::convert) struct Spread {
    pub(in crate::convert) bits: u64,
    pub(in crate::convert) one: Bytes,
    /// Room for 64 elements, aligned for them.
    pub(in crate::convert) out: *mut u8,
}

/// Writes 64 elements as a [`Spread`] says.
pub(in crate::convert) type SpreadBits = unsafe fn(Spread);

/// Writes 64 elements of this size, one for each bit. The processor that runs it has `isa`.
pub(in crate::convert) fn spreading(isa: Isa, size: usize) -> SpreadBits {
    match size {
        1 => isa.compiled::<Spreading<u8>>(),
        2 => isa.compiled::<Spreading<u16>>(),
        4 => isa.compiled::<Spreading<u32>>(),
        8 => isa.compiled::<Spreading<u64>>(),
        _ => isa.compiled::<Spreading<u128>>(),
    }
}

struct Spreading<T>(PhantomData<T>);

impl<T: Copy + Default> Kernel for Spreading<T> {
    type Input = Spread;
    type Output = ();

    /// # Safety
    /// As the fields of [`Spread`] say; `T` is an unsigned integer of the elements' size.
    #[inline(always)]
    unsafe fn run(Spread { bits, one, out }: Spread) {
        // SAFETY: any bytes are an integer, and there are enough of them.
        let one = unsafe { one.as_ptr().cast::<T>().read_unaligned() };
        for index in 0..CHUNK {
            let element = if bits >> index & 1 == 1 { one } else { T::default() };
            // SAFETY: the contract: `out` has room for 64 elements.
            unsafe { out.cast::<T>().wrapping_add(index).write(element) };
        }
    }
}

/// Writes a byte, 0 or 1, for each bit.
///
/// # Safety
/// The lines are aligned if `stream`: then they are written past the cache. The processor has `isa`.
pub(in crate::convert) unsafe fn spread_lines(
    isa: Isa,
    bits: Bits<'_>,
    out: &mut [[MaybeUninit<u8>; LINE]],
    stream: bool,
) {
    match isa {
        // SAFETY: the contract: the processor has the instructions.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { super::avx512::spread_lines(bits, out, stream) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { super::avx2::spread_lines(bits, out, stream) },
        _ => {
            for (number, line) in out.iter_mut().enumerate() {
                let (eights, _) = line.as_chunks_mut::<8>();
                for (eight, packed) in eights.iter_mut().zip(bits.word(number * LINE).to_le_bytes()) {
                    *eight = eight_bits(packed).map(MaybeUninit::new);
                }
            }
        }
    }
}

/// The bits of a byte, lowest first, as bytes.
fn eight_bits(packed: u8) -> [u8; 8] {
    // Copies of the byte, seven bits apart, have bit n at the start of byte n: no two of them meet there.
    let copies = u64::from(packed & 0x7f).wrapping_mul(0x0002_0408_1020_4081) & 0x0101_0101_0101_0101;
    (copies | u64::from(packed >> 7) << 56).to_le_bytes()
}
