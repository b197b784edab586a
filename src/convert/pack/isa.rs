//! The instruction sets that kernels are written or compiled for, chosen at run time.

use std::sync::OnceLock;

use super::Baseline;
use super::vector::Vector;
use crate::error::{Error, Result};

/// An instruction set with its kernels. All sets give the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Isa {
    /// What every processor of the target has: SSE2 on x86-64, else Rust alone.
    Portable,
    /// 128-bit vectors of AArch64.
    Neon,
    /// 256-bit vectors.
    Avx2,
    /// 512-bit vectors, with masks.
    Avx512,
}

/// Names the best instruction set that is used.
const VARIABLE: &str = "ARROW_DLPACK_ISA";

/// The set in [`VARIABLE`], read once; the error is the variable's text.
fn limit() -> &'static Result<Isa, String> {
    static LIMIT: OnceLock<Result<Isa, String>> = OnceLock::new();
    LIMIT.get_or_init(|| {
        let text = std::env::var_os(VARIABLE).unwrap_or_default().to_string_lossy().into_owned();
        named(&text).ok_or(text)
    })
}

/// The set of this name; `None` for other texts.
fn named(text: &str) -> Option<Isa> {
    match text.trim() {
        "portable" => Some(Isa::Portable),
        "neon" => Some(Isa::Neon),
        "avx2" => Some(Isa::Avx2),
        "" | "avx512" => Some(Isa::Avx512),
        _ => None,
    }
}

/// The elements per kernel call: the bits of a word.
pub(in crate::convert) const BLOCK_ROWS: usize = 64;

/// The bytes of an element, and what fills up the sixteen.
pub(in crate::convert) type Bytes = [u8; 16];

/// Makes 64 elements of others, of bits, or of both with one more element; and tells whether all are what they should be.
/// Each kernel decides which of source, bits and element it uses.
pub(in crate::convert) type Compiled = unsafe fn(source: *const u8, bits: u64, element: &Bytes, out: *mut u8) -> bool;

/// Code that the compiler vectorises for each instruction set, as a [`Compiled`].
pub(in crate::convert) trait VectorKernel {
    /// Inlined into a function for each instruction set.
    ///
    /// # Safety
    /// As each kernel says. `out` has room for 64 elements, has their dtype's alignment (of complex numbers, that of a
    /// part), and lies apart from the source.
    unsafe fn run(source: *const u8, bits: u64, element: &Bytes, out: *mut u8) -> bool;
}

impl Isa {
    /// Returns the best set of this processor, or the one that `ARROW_DLPACK_ISA` limits it to. The variable is read
    /// once.
    pub(crate) fn detect() -> Self {
        static DETECTED: OnceLock<Isa> = OnceLock::new();
        *DETECTED.get_or_init(|| {
            let limit = limit().as_ref().unwrap_or(&Self::Avx512);
            let allowed = Self::available().iter().rfind(|isa| *isa <= limit);
            *allowed.unwrap_or(&Self::Portable)
        })
    }

    /// Refuses a name in `ARROW_DLPACK_ISA` that is of no instruction set.
    ///
    /// # Errors
    /// When the variable is neither empty nor one of the names, on any processor.
    pub(crate) fn check_environment() -> Result<()> {
        limit().as_ref().map(drop).map_err(|text| {
            Error::argument(format!("{VARIABLE} is {text:?}, not an instruction set"))
                .remedy_is("set it to portable, neon, avx2 or avx512, or leave it out for the best of the processor")
        })
    }

    /// Returns every set of this processor, worst first.
    pub(crate) fn available() -> &'static [Self] {
        #[cfg(target_arch = "x86_64")]
        {
            // The standard library asks the processor once, and remembers.
            let wide = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") {
                let all = &[Self::Portable, Self::Avx2, Self::Avx512];
                return if wide { all } else { &[Self::Portable, Self::Avx2] };
            }
        }
        // Every processor of the target has it.
        #[cfg(target_arch = "aarch64")]
        return &[Self::Portable, Self::Neon];
        #[cfg(not(target_arch = "aarch64"))]
        &[Self::Portable]
    }

    /// Returns whether it writes past the cache.
    pub(in crate::convert) fn streams(self) -> bool {
        match self {
            Self::Portable => Baseline::STREAMS,
            Self::Neon => false,
            Self::Avx2 | Self::Avx512 => true,
        }
    }

    /// A kernel for this set. Whoever calls it keeps the kernel's contract, on a processor that has the set.
    pub(in crate::convert) fn compiled<K: VectorKernel>(self) -> Compiled {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => avx512::<K>,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => avx2::<K>,
            _ => K::run,
        }
    }
}

/// # Safety
/// As [`VectorKernel::run`]; the processor has [`Isa::Avx512`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
unsafe fn avx512<K: VectorKernel>(source: *const u8, bits: u64, element: &Bytes, out: *mut u8) -> bool {
    // SAFETY: `source` and `out` are as `K::run` asks, as promised in the same words; the processor has the set that
    // this function is compiled for.
    unsafe { K::run(source, bits, element, out) }
}

/// # Safety
/// As [`VectorKernel::run`]; the processor has [`Isa::Avx2`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
unsafe fn avx2<K: VectorKernel>(source: *const u8, bits: u64, element: &Bytes, out: *mut u8) -> bool {
    // SAFETY: `source` and `out` are as `K::run` asks, as promised in the same words; the processor has the set that
    // this function is compiled for.
    unsafe { K::run(source, bits, element, out) }
}
