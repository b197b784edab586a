//! Checked casts: a value out of range is an error, rounding to a float is not. Null slots may hold anything.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "each cast is paired with the check that decides whether its result is used"
)]

use std::mem::MaybeUninit;

use half::{bf16, f16};

use super::pack::Isa;
use crate::arrow::Mask;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind};
use crate::spec::Spec;

/// The first valid value that does not fit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misfit {
    /// Its position among the elements.
    pub(super) index: usize,
    /// The value, for the message.
    pub(super) value: String,
}

impl Misfit {
    /// The error, for a chunk whose first row is number `row` of its column.
    pub(super) fn error(self, spec: &Spec, row: usize) -> Error {
        Error::new(ErrorKind::Cast, format!("the value {} does not fit {}", self.value, spec.dtype()))
            .at_row(row + self.index / spec.row_elements().max(1))
            .remedy_is("ask for a dtype that holds it, or change the value first")
    }
}

/// A byte that is a bool: any but 0 is true.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub(super) struct Truth(pub(super) u8);

/// Casts `out.len() / to.itemsize()` elements from `source`, which may be misaligned. Elements that are null in `mask`,
/// whose first element is number `first` of the mask, may misfit.
///
/// # Errors
/// The first valid element that does not fit. All of `out` is written all the same.
///
/// # Safety
/// `source` has as many readable elements of `from`; both dtypes are castable; `out` is aligned for `to`.
pub(super) unsafe fn cast(
    from: DType,
    to: DType,
    source: *const u8,
    mask: Option<&Mask<'_>>,
    first: usize,
    out: &mut [MaybeUninit<u8>],
) -> Result<(), Misfit> {
    macro_rules! dispatch {
        ($($dtype:ident => $type:ty),+) => {
            match from {
                // SAFETY: the contract.
                $(DType::$dtype => unsafe { cast_from::<$type>(to, source, mask, first, out) },)+
                // Not castable, so `Spec` has refused it.
                _ => Ok(()),
            }
        };
    }
    dispatch!(
        Bool => Truth, Int8 => i8, Int16 => i16, Int32 => i32, Int64 => i64, UInt8 => u8, UInt16 => u16,
        UInt32 => u32, UInt64 => u64, Float16 => f16, BFloat16 => bf16, Float32 => f32, Float64 => f64
    )
}

/// As [`cast`], for the parts of complex numbers: `mask` has a bit for each two of them.
///
/// # Errors
/// As [`cast`], with the position among the complex numbers.
///
/// # Safety
/// As [`cast`].
pub(super) unsafe fn cast_parts(
    from: DType,
    to: DType,
    source: *const u8,
    mask: Option<&Mask<'_>>,
    first: usize,
    out: &mut [MaybeUninit<u8>],
) -> Result<(), Misfit> {
    let size = to.itemsize().saturating_mul(2);
    for (number, out) in out.chunks_mut(size).enumerate() {
        let part = source.wrapping_add(number.saturating_mul(from.itemsize().saturating_mul(2)));
        // SAFETY: the contract; `number` is below the number of pairs.
        let cast = unsafe { cast(from, to, part, None, 0, out) };
        if let Err(misfit) = cast
            && mask.is_none_or(|mask| mask.is_valid(first + number))
        {
            return Err(Misfit { index: first + number, ..misfit });
        }
    }
    Ok(())
}

/// # Safety
/// As [`cast`], for elements of `S`.
unsafe fn cast_from<S: Source>(
    to: DType,
    source: *const u8,
    mask: Option<&Mask<'_>>,
    first: usize,
    out: &mut [MaybeUninit<u8>],
) -> Result<(), Misfit> {
    macro_rules! dispatch {
        ($($dtype:ident => $type:ty),+) => {
            match to {
                // SAFETY: the contract.
                $(DType::$dtype => unsafe { kernel::<S, $type>(source, mask, first, out) },)+
                // Not castable, so `Spec` has refused it.
                _ => Ok(()),
            }
        };
    }
    dispatch!(
        Bool => Truth, Int8 => i8, Int16 => i16, Int32 => i32, Int64 => i64, UInt8 => u8, UInt16 => u16,
        UInt32 => u32, UInt64 => u64, Float16 => f16, BFloat16 => bf16, Float32 => f32, Float64 => f64
    )
}

/// # Safety
/// As [`cast`], for elements of `S` and `D`.
unsafe fn kernel<S: CastTo<D> + Source, D>(
    source: *const u8,
    mask: Option<&Mask<'_>>,
    first: usize,
    out: &mut [MaybeUninit<u8>],
) -> Result<(), Misfit> {
    match Isa::detect() {
        // SAFETY: the contract; the processor has these instructions.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { kernel_avx512::<S, D>(source, mask, first, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { kernel_avx2::<S, D>(source, mask, first, out) },
        // SAFETY: the contract.
        _ => unsafe { kernel_body::<S, D>(source, mask, first, out) },
    }
}

/// [`kernel_body`], compiled for wide vectors.
///
/// # Safety
/// As [`kernel`]; the processor has the instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
unsafe fn kernel_avx512<S: CastTo<D> + Source, D>(
    source: *const u8,
    mask: Option<&Mask<'_>>,
    first: usize,
    out: &mut [MaybeUninit<u8>],
) -> Result<(), Misfit> {
    // SAFETY: the contract.
    unsafe { kernel_body::<S, D>(source, mask, first, out) }
}

/// [`kernel_body`], compiled for 256-bit vectors.
///
/// # Safety
/// As [`kernel`]; the processor has the instructions.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
unsafe fn kernel_avx2<S: CastTo<D> + Source, D>(
    source: *const u8,
    mask: Option<&Mask<'_>>,
    first: usize,
    out: &mut [MaybeUninit<u8>],
) -> Result<(), Misfit> {
    // SAFETY: the contract.
    unsafe { kernel_body::<S, D>(source, mask, first, out) }
}

/// # Safety
/// As [`kernel`].
#[inline(always)]
unsafe fn kernel_body<S: CastTo<D> + Source, D>(
    source: *const u8,
    mask: Option<&Mask<'_>>,
    first: usize,
    out: &mut [MaybeUninit<u8>],
) -> Result<(), Misfit> {
    /// Values between two looks at whether all fitted: enough for the inner loop to be vectorised.
    const BLOCK: usize = 1024;
    // SAFETY: any bytes are valid as MaybeUninit<D>.
    let (_, out, _) = unsafe { out.align_to_mut::<MaybeUninit<D>>() };
    let source = source.cast::<S>();
    // SAFETY: the contract; `index` is below the number of elements.
    let read = |index: usize| unsafe { source.wrapping_add(index).read_unaligned() };
    for (number, block) in out.chunks_mut(BLOCK).enumerate() {
        let start = number * BLOCK;
        let mut fits = true;
        for (index, slot) in block.iter_mut().enumerate() {
            let (value, fit) = read(start + index).cast_to();
            slot.write(value);
            fits &= fit;
        }
        if !fits {
            let misfits = |index: &usize| {
                let (_, fit): (D, bool) = read(*index).cast_to();
                !fit && mask.is_none_or(|mask| mask.is_valid(first + index))
            };
            let misfit = (start..start + block.len()).find(misfits);
            if let Some(index) = misfit {
                return Err(Misfit { index: first + index, value: read(index).text() });
            }
        }
    }
    Ok(())
}

/// The value in another type, and whether it is the same, up to rounding in a float.
pub(super) trait CastTo<D>: Copy {
    fn cast_to(self) -> (D, bool);
}

/// A type that casts start from.
trait Source:
    CastTo<Truth>
    + CastTo<i8>
    + CastTo<i16>
    + CastTo<i32>
    + CastTo<i64>
    + CastTo<u8>
    + CastTo<u16>
    + CastTo<u32>
    + CastTo<u64>
    + CastTo<f16>
    + CastTo<bf16>
    + CastTo<f32>
    + CastTo<f64>
{
    fn text(self) -> String;
}

macro_rules! source {
    ($format:literal => $($type:ty),+) => { $(impl Source for $type {
        fn text(self) -> String {
            format!($format, self)
        }
    })+ };
}
source!("{}" => i8, i16, i32, i64, u8, u16, u32, u64);
// With an exponent where there are many zeros.
source!("{:?}" => f16, bf16, f32, f64);

impl Source for Truth {
    fn text(self) -> String {
        (self.0 != 0).to_string()
    }
}

macro_rules! from_integer {
    ($source:ty) => {
        from_integer!(@integer $source => i8, i16, i32, i64, u8, u16, u32, u64);
        impl CastTo<Truth> for $source {
            fn cast_to(self) -> (Truth, bool) {
                (Truth(u8::from(self != 0)), self == 0 || self == 1)
            }
        }
        impl CastTo<f32> for $source {
            fn cast_to(self) -> (f32, bool) {
                (self as f32, true)
            }
        }
        impl CastTo<f64> for $source {
            fn cast_to(self) -> (f64, bool) {
                (self as f64, true)
            }
        }
        impl CastTo<f16> for $source {
            fn cast_to(self) -> (f16, bool) {
                from_integer!(@double $source, self).cast_to()
            }
        }
        impl CastTo<bf16> for $source {
            fn cast_to(self) -> (bf16, bool) {
                from_integer!(@double $source, self).cast_to()
            }
        }
    };
    // A double that rounds to 16 bits as the integer would: see `odd_single`.
    (@double $source:ty, $value:expr) => {{
        let near = $value as f64;
        let back = near as $source;
        let farther = (near > 0.0) == (back > $value);
        if back == $value { near } else { f64::from_bits((near.to_bits() - u64::from(farther)) | 1) }
    }};
    (@integer $source:ty => $($target:ty),+) => { $(impl CastTo<$target> for $source {
        fn cast_to(self) -> ($target, bool) {
            let value = self as $target;
            // The same bits can be another number when exactly one of the types is signed.
            #[allow(unused_comparisons, reason = "one of the types may be unsigned")]
            let same_sign = (self < 0) == (value < 0);
            (value, value as $source == self && same_sign)
        }
    })+ };
}
from_integer!(i8);
from_integer!(i16);
from_integer!(i32);
from_integer!(i64);
from_integer!(u8);
from_integer!(u16);
from_integer!(u32);
from_integer!(u64);

macro_rules! from_float {
    ($source:ty) => {
        from_float!(@integer $source => i8, i16, i32, i64, u8, u16, u32, u64);
        impl CastTo<Truth> for $source {
            fn cast_to(self) -> (Truth, bool) {
                (Truth(u8::from(self != 0.0)), self == 0.0 || self == 1.0)
            }
        }
    };
    (@integer $source:ty => $($target:ty),+) => { $(impl CastTo<$target> for $source {
        fn cast_to(self) -> ($target, bool) {
            // Powers of two, so exact in every float: the first value above the range, and the lowest in it.
            const ABOVE: $source = (<$target>::MAX / 2 + 1) as $source * 2.0;
            const LOWEST: $source = <$target>::MIN as $source;
            (self as $target, (LOWEST..ABOVE).contains(&self) && self.trunc() == self)
        }
    })+ };
}
from_float!(f32);
from_float!(f64);

/// A single that rounds to 16 bits as the double would: where it is not exact, it is cut off and its last bit is set, so
/// that the second rounding takes it for no tie. `half` rounds doubles twice, or loses their low bits.
fn odd_single(value: f64) -> f32 {
    let near = value as f32;
    let back = f64::from(near);
    if back == value || value.is_nan() {
        return near;
    }
    f32::from_bits((near.to_bits() - u32::from(back.abs() > value.abs())) | 1)
}

macro_rules! float_to_float {
    ($($source:ty => $target:ty: $cast:expr;)+) => { $(impl CastTo<$target> for $source {
        fn cast_to(self) -> ($target, bool) {
            let value: $target = $cast(self);
            // Finite values must stay finite; NaN and infinities are what they were.
            (value, value.is_finite() || !self.is_finite())
        }
    })+ };
}
float_to_float!(
    f64 => f64: |value| value;
    f64 => f32: |value| value as f32;
    f64 => f16: |value| f16::from_f32(odd_single(value));
    f64 => bf16: |value| bf16::from_f32(odd_single(value));
    f32 => f64: f64::from;
    f32 => f32: |value| value;
    f32 => f16: f16::from_f32;
    f32 => bf16: bf16::from_f32;
);

macro_rules! by_way_of {
    ($source:ty, $way:expr => $($target:ty),+) => { $(impl CastTo<$target> for $source {
        fn cast_to(self) -> ($target, bool) {
            $way(self).cast_to()
        }
    })+ };
}
by_way_of!(f16, f16::to_f32 => Truth, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64);
by_way_of!(bf16, bf16::to_f32 => Truth, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64);
by_way_of!(Truth, |truth: Truth| u8::from(truth.0 != 0) => Truth, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64);

#[cfg(test)]
mod tests {
    use super::*;

    fn fits<S: CastTo<D>, D>(value: S) -> bool {
        value.cast_to().1
    }

    #[test]
    fn integers_fit_by_value_not_by_bits() {
        assert!(fits::<i64, i8>(-128) && !fits::<i64, i8>(-129) && !fits::<i64, i8>(128));
        assert!(!fits::<i64, u64>(-1) && !fits::<u64, i64>(u64::MAX) && fits::<u64, i64>(i64::MAX as u64));
        assert!(!fits::<i8, u8>(-1) && !fits::<u8, i8>(200) && fits::<u8, i8>(127));
        assert!(fits::<i32, Truth>(1) && fits::<i32, Truth>(0) && !fits::<i32, Truth>(2) && !fits::<i32, Truth>(-1));
    }

    #[test]
    fn floats_fit_integers_only_whole_and_in_range() {
        assert!(fits::<f64, i64>(-9_223_372_036_854_775_808.0) && !fits::<f64, i64>(9_223_372_036_854_775_808.0));
        assert!(fits::<f64, u64>(18_446_744_073_709_549_568.0) && !fits::<f64, u64>(18_446_744_073_709_551_616.0));
        assert!(fits::<f32, i32>(2_147_483_520.0) && !fits::<f32, i32>(2_147_483_648.0));
        assert!(
            !fits::<f64, i32>(1.5) && !fits::<f64, i32>(f64::NAN) && !fits::<f64, u8>(-1.0) && fits::<f64, u8>(-0.0)
        );
        assert!(!fits::<f32, u8>(f32::INFINITY) && fits::<f16, i8>(f16::from_f32(-128.0)));
    }

    #[test]
    fn floats_round_but_do_not_overflow() {
        assert!(fits::<f64, f32>(0.1) && !fits::<f64, f32>(1e300) && fits::<f64, f32>(f64::INFINITY));
        assert!(fits::<f64, f32>(f64::NAN) && fits::<f64, f32>(1e-300));
        assert!(fits::<i64, f32>(i64::MAX) && !fits::<i32, f16>(70_000) && fits::<i32, f16>(2049));
        assert!(fits::<f32, bf16>(3.0e38) && !fits::<f32, bf16>(f32::MAX) && !fits::<f32, f16>(65_520.0));
    }

    #[test]
    fn any_byte_but_zero_is_true() {
        let bools = [0_u8, 1, 2, 255];
        let mut out = [MaybeUninit::new(9); 4];
        // SAFETY: four bytes each way.
        unsafe { cast(DType::Bool, DType::Bool, bools.as_ptr(), None, 0, &mut out) }.unwrap();
        // SAFETY: written above.
        assert_eq!(out.map(|byte| unsafe { byte.assume_init() }), [0, 1, 1, 1]);
    }
}
