//! Dimensions of elements that are copied on the device: which of them are one?

use smallvec::SmallVec;

/// A dimension of elements that are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StridedAxis {
    pub(crate) extent: u64,
    /// Bytes from one index to the next in the source; any number.
    pub(crate) step: i64,
    /// The same in the output, where no two elements overlap.
    pub(crate) out_step: i64,
}

impl StridedAxis {
    /// The axis in place of a dimension that a shape does not have: one element.
    pub(super) const ONE: Self = Self { extent: 1, step: 0, out_step: 0 };

    /// Returns this axis and the one inside as one, if both step through the same bytes.
    fn merged(self, inner: Self) -> Option<Self> {
        let length = i64::try_from(inner.extent).ok()?;
        let follows = |outer: i64, inner: i64| inner.checked_mul(length) == Some(outer);
        if !follows(self.step, inner.step) || !follows(self.out_step, inner.out_step) {
            return None;
        }
        Some(Self { extent: self.extent.checked_mul(inner.extent)?, ..inner })
    }

    /// Returns the logarithm of the extent, rounded up.
    pub(super) fn bits(self) -> u32 {
        u64::BITS - self.extent.saturating_sub(1).leading_zeros()
    }
}

/// Returns the axes of words of `size` bytes, the nearest of the output first, with those merged that are one.
pub(super) fn merged_axes(axes: &[StridedAxis], itemsize: u64, size: u64) -> SmallVec<[StridedAxis; 4]> {
    let words = itemsize.checked_div(size).unwrap_or(1);
    let inside = StridedAxis { extent: words, step: size.cast_signed(), out_step: size.cast_signed() };
    let mut sorted: SmallVec<[StridedAxis; 4]> =
        axes.iter().copied().chain([inside]).filter(|axis| axis.extent != 1).collect();
    sorted.sort_by_key(|axis| axis.out_step.unsigned_abs());
    let mut merged: SmallVec<[StridedAxis; 4]> = SmallVec::new();
    for axis in sorted {
        match merged.last_mut().and_then(|inner| Some((axis.merged(*inner)?, inner))) {
            Some((both, inner)) => *inner = both,
            None => merged.push(axis),
        }
    }
    merged
}
