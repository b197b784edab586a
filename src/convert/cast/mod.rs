//! Checked casts: a value out of range is an error, rounding to a float is not. Null slots may hold any value.

mod halves;
mod values;

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use half::{bf16, f16};

use super::decimal::decimal_text;
use super::misfit::Misfit;
use super::pack::{BLOCK_ROWS, Bytes, Compiled, Isa, VectorKernel};
use crate::dtype::DType;
use crate::error::Error;
use crate::spec::Spec;
use values::{CastSource, OddSingle};
pub(super) use values::{CastTo, Truth};

/// Returns the error for element `index` of a column, which does not fit. `value` starts with its bytes.
pub(crate) fn misfit_error(spec: &Spec, index: usize, value: &[u8; 32]) -> Error {
    let text = match spec.element().scaled() {
        Some(scaled) => decimal_text(scaled, value),
        // SAFETY: `look` reads one element of any alignment, and no dtype has more than 16 of the 32 bytes.
        None => look(spec.element().dtype(), spec.dtype()).and_then(|look| unsafe { look(value.as_ptr()) }),
    };
    let misfit = Misfit { index, value: text.unwrap_or_else(|| "of an element".to_owned()) };
    misfit.error(spec, 0).in_column(spec.field().name())
}

/// The text of an element that does not fit.
type MisfitText = unsafe fn(*const u8) -> Option<String>;

/// How elements of one dtype become elements of another.
#[derive(Clone, Copy)]
pub(super) struct Cast {
    first: Compiled,
    /// The second step of casts by way of float32.
    then: Option<Compiled>,
    look: MisfitText,
    from: usize,
}

impl Cast {
    /// `None` if either dtype is not castable, which a spec has refused.
    pub(super) fn new(isa: Isa, from: DType, to: DType) -> Option<Self> {
        let look = look(from, to)?;
        let (first, then) = match (from, to) {
            (DType::Float16, DType::Float32) => (halves::WIDEN, None),
            (DType::Float16, _) => (halves::WIDEN, Some(kernel(isa, DType::Float32, to)?)),
            (DType::Float32, DType::Float16) => (halves::NARROW, None),
            (_, DType::Float16) => (to_odd_single(isa, from)?, Some(halves::NARROW)),
            _ => (kernel(isa, from, to)?, None),
        };
        Some(Self { first, then, look, from: from.itemsize() })
    }

    /// The kernel, where one is enough.
    pub(super) fn in_one_step(&self) -> Option<Compiled> {
        self.then.is_none().then_some(self.first)
    }

    /// Casts 64 elements, and writes all; returns whether all fit.
    ///
    /// # Safety
    /// `source` has 64 readable elements of any alignment, `out` room for 64, and is aligned for them; both are apart. The
    /// processor has the cast's instructions.
    pub(super) unsafe fn run(&self, source: *const u8, out: *mut u8) -> bool {
        const UNUSED: (u64, &Bytes) = (0, &[0; 16]);
        let Some(then) = self.then else {
            // SAFETY: `source` has 64 elements and `out` room for 64, aligned; the processor has the cast's
            // instructions.
            return unsafe { (self.first)(source, UNUSED.0, UNUSED.1, out) };
        };
        let mut singles = [const { MaybeUninit::<f32>::uninit() }; BLOCK_ROWS];
        let singles = singles.as_mut_ptr().cast::<u8>();
        // SAFETY: `source` has 64 elements; the first of two steps writes 64 floats of 4 bytes, for which `singles` has
        // room.
        let fits = unsafe { (self.first)(source, UNUSED.0, UNUSED.1, singles) };
        // SAFETY: `singles` has the 64 floats that were just written, and `out` room for 64 elements, aligned.
        fits & unsafe { then(singles, UNUSED.0, UNUSED.1, out) }
    }

    /// Returns the position and the text of the first valid element that does not fit.
    ///
    /// # Safety
    /// `source` has so many readable elements.
    #[cold]
    pub(super) unsafe fn misfit(
        &self,
        source: *const u8,
        elements: usize,
        counts: impl Fn(usize) -> bool,
    ) -> Option<(usize, String)> {
        (0..elements).filter(|index| counts(*index)).find_map(|index| {
            // SAFETY: `index < elements`, and `source` has as many.
            let text = unsafe { (self.look)(source.wrapping_add(index * self.from)) };
            text.map(|text| (index, text))
        })
    }
}

/// Runs a macro's code with the type of a castable dtype.
macro_rules! with_type {
    ($dtype:expr, $type:ident => $code:expr) => {
        with_type!($dtype, $type => $code; Bool => Truth, Int8 => i8, Int16 => i16, Int32 => i32, Int64 => i64,
            UInt8 => u8, UInt16 => u16, UInt32 => u32, UInt64 => u64, Float16 => f16, BFloat16 => bf16, Float32 => f32,
            Float64 => f64)
    };
    ($dtype:expr, $type:ident => $code:expr; $($name:ident => $of:ty),+) => {
        match $dtype {
            $(DType::$name => {
                type $type = $of;
                Some($code)
            })+
            _ => None,
        }
    };
}

/// The text of an element of `from` that does not fit `to`.
fn look(from: DType, to: DType) -> Option<MisfitText> {
    fn from_type<S: CastSource>(to: DType) -> Option<MisfitText> {
        with_type!(to, D => look_at::<S, D> as MisfitText)
    }
    with_type!(from, S => from_type::<S>(to)?)
}

/// # Safety
/// `source` is a readable element of `S`.
unsafe fn look_at<S: CastTo<D> + CastSource, D>(source: *const u8) -> Option<String> {
    // SAFETY: `source` is a readable element of `S`, of any alignment; each type of a dtype has any bytes as values.
    let value = unsafe { source.cast::<S>().read_unaligned() };
    let (_, fits): (D, bool) = value.cast_to();
    (!fits).then(|| value.text())
}

fn kernel(isa: Isa, from: DType, to: DType) -> Option<Compiled> {
    fn from_type<S: CastSource>(isa: Isa, to: DType) -> Option<Compiled> {
        with_type!(to, D => isa.compiled::<Casting<S, D>>())
    }
    with_type!(from, S => from_type::<S>(isa, to)?)
}

fn to_odd_single(isa: Isa, from: DType) -> Option<Compiled> {
    with_type!(from, S => isa.compiled::<Casting<S, OddSingle>>())
}

struct Casting<S, D>(PhantomData<(S, D)>);

impl<S: CastTo<D>, D> VectorKernel for Casting<S, D> {
    /// # Safety
    /// As [`Cast::run`], for elements of `S` and `D`.
    #[inline(always)]
    unsafe fn run(source: *const u8, _: u64, _: &Bytes, out: *mut u8) -> bool {
        let (source, out) = (source.cast::<S>(), out.cast::<D>());
        // SAFETY: `source` has 64 elements of `S`, of any alignment, and `index < 64`.
        let read = |index: usize| unsafe { source.wrapping_add(index).read_unaligned() };
        let mut fits = true;
        for index in 0..BLOCK_ROWS {
            let (value, fit) = read(index).cast_quickly();
            // SAFETY: `out` has room for 64 elements of `D`, aligned, and `index < 64`.
            unsafe { out.wrapping_add(index).write(value) };
            fits &= fit;
        }
        fits || (0..BLOCK_ROWS).fold(true, |fits, index| fits & read(index).cast_to().1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_of_instructions_gives_the_same_and_sees_what_does_not_fit() {
        let castable = || DType::ALL.iter().copied().filter(|dtype| dtype.is_castable());
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 24
        };
        let pairs = castable().flat_map(|from| castable().map(move |to| (from, to)));
        // Miri takes some pairs, each type among them both ways.
        for (from, to) in pairs.step_by(if cfg!(miri) { 12 } else { 1 }) {
            for round in 0..if cfg!(miri) { 2 } else { 60 } {
                // Small numbers, numbers around the ends of ranges, and any bits at all; at an odd address.
                let mut bytes = [0_u8; BLOCK_ROWS * 8 + 1];
                for element in bytes[1..].chunks_exact_mut(from.itemsize()) {
                    let bits = match (round % 3, random() % 4) {
                        (0, _) => random() % 2,
                        (1, 0) => (1_u64 << (random() % 64)).wrapping_sub(random() % 3),
                        (1, 1) => 0_u64.wrapping_sub(1 << (random() % 64)).wrapping_sub(random() % 3),
                        (1, 2) => (1.5 * f64::from(1_u32 << (random() % 31))).to_bits() + random() % 3,
                        _ => random() << 40 ^ random(),
                    };
                    element.copy_from_slice(&bits.to_le_bytes()[..from.itemsize()]);
                }
                let source = bytes[1..].as_ptr();
                let mut found: Vec<(Vec<u8>, bool)> = Vec::new();
                for isa in Isa::available() {
                    let cast = Cast::new(*isa, from, to).unwrap();
                    let mut out = [0_u64; BLOCK_ROWS];
                    // SAFETY: 64 elements of at most 8 bytes each way.
                    let fits = unsafe { cast.run(source, out.as_mut_ptr().cast()) };
                    // SAFETY: `source` has 64 elements.
                    let misfit = unsafe { cast.misfit(source, BLOCK_ROWS, |_| true) };
                    assert_eq!(fits, misfit.is_none(), "{isa:?} {from} {to} {misfit:?}");
                    let written = out.iter().flat_map(|word| word.to_ne_bytes()).take(BLOCK_ROWS * to.itemsize());
                    found.push((written.collect(), fits));
                }
                let (first, others) = found.split_first().unwrap();
                if first.1 {
                    assert!(others.iter().all(|other| other == first), "{from} {to}");
                }
            }
        }
    }
}
