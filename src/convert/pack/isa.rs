//! The instruction sets that kernels are written for, chosen at run time.

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
            let allowed = Self::available().iter().filter(|isa| **isa <= limit);
            *allowed.last().unwrap_or(&Self::Portable)
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
}
