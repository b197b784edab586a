//! The instruction sets that kernels are written or compiled for, chosen at run time.

use std::sync::OnceLock;

/// A set of kernels. Each gives the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Isa {
    /// Rust alone.
    Portable,
    /// 256-bit vectors.
    Avx2,
    /// 512-bit vectors, with masks.
    Avx512,
}

/// Work that the compiler turns into vectors itself, once for each set of instructions.
pub(in crate::convert) trait Kernel {
    type Input;
    type Output;

    /// Inlined into a function for each set.
    ///
    /// # Safety
    /// Each kernel says what its input must be.
    unsafe fn run(input: Self::Input) -> Self::Output;
}

impl Isa {
    /// The best set that this processor has, or the one that `ARROW_DLPACK_ISA` limits it to. The variable is read once.
    pub(crate) fn detect() -> Self {
        static DETECTED: OnceLock<Isa> = OnceLock::new();
        *DETECTED.get_or_init(|| {
            let limit = match std::env::var("ARROW_DLPACK_ISA").as_deref() {
                Ok("portable") => Self::Portable,
                Ok("avx2") => Self::Avx2,
                _ => Self::Avx512,
            };
            let allowed = Self::available().iter().rfind(|isa| **isa <= limit);
            *allowed.unwrap_or(&Self::Portable)
        })
    }

    /// Every set that this processor has, worst first.
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
        &[Self::Portable]
    }

    /// A kernel for this set. Whoever calls it keeps the kernel's contract, on a processor that has the set.
    pub(in crate::convert) fn compiled<K: Kernel>(self) -> unsafe fn(K::Input) -> K::Output {
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
/// As [`Kernel::run`]; the processor has [`Isa::Avx512`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
unsafe fn avx512<K: Kernel>(input: K::Input) -> K::Output {
    // SAFETY: the contract.
    unsafe { K::run(input) }
}

/// # Safety
/// As [`Kernel::run`]; the processor has [`Isa::Avx2`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
unsafe fn avx2<K: Kernel>(input: K::Input) -> K::Output {
    // SAFETY: the contract.
    unsafe { K::run(input) }
}
