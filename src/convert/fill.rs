//! Writes the slots of nulls.

use crate::arrow::Mask;

/// Writes `pattern` over each null element of `out`, whose elements have the pattern's length.
pub(super) fn fill_nulls(mask: &Mask<'_>, pattern: &[u8], out: &mut [u8]) {
    match pattern.len() {
        1 => fill::<1>(mask, pattern, out),
        2 => fill::<2>(mask, pattern, out),
        4 => fill::<4>(mask, pattern, out),
        8 => fill::<8>(mask, pattern, out),
        _ => fill::<16>(mask, pattern, out),
    }
}

fn fill<const N: usize>(mask: &Mask<'_>, pattern: &[u8], out: &mut [u8]) {
    let (Some(pattern), (elements, _)) = (pattern.first_chunk::<N>(), out.as_chunks_mut::<N>()) else { return };
    mask.for_each_null(|index| {
        if let Some(element) = elements.get_mut(index) {
            *element = *pattern;
        }
    });
}
