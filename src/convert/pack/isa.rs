//! The instruction sets that kernels are written for, chosen at run time.

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
    /// The best set that this processor has.
    pub(crate) fn detect() -> Self {
        *Self::available().last().unwrap_or(&Self::Portable)
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
