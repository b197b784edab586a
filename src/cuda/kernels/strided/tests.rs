//! Does the order that is chosen reach every word once, in tiles that are not mostly empty?

use super::super::axes::StridedAxis;
use super::{Strided, TILE_BITS};

fn axis(extent: u64, step: i64, out_step: i64) -> StridedAxis {
    StridedAxis { extent, step, out_step }
}

/// The bytes that a shape moves, as the kernel goes through them: from where, to where.
fn moved(shape: &Strided, tiles: u32) -> Vec<(i64, i64)> {
    let mut bytes = Vec::new();
    let bits = [shape.bits, TILE_BITS - shape.bits];
    for tile in 0..u64::from(tiles) {
        let (mut rest, mut source, mut target, mut left) = (tile, 0, 0, Vec::new());
        for (dimension, all) in shape.extents.iter().enumerate().take(shape.dimensions as usize) {
            let tile_bits = bits.get(dimension).copied().unwrap_or(0);
            let extent = all.div_ceil(1 << tile_bits);
            let place = (rest % extent) << tile_bits;
            rest /= extent;
            left.push((all - place).min(1 << tile_bits).cast_signed());
            source += place.cast_signed() * shape.steps[dimension];
            target += place.cast_signed() * shape.out_steps[dimension];
        }
        for y in 0..left[1] {
            for x in 0..left[0] {
                let from = source + x * shape.steps[0] + y * shape.steps[1];
                let to = target + x * shape.out_steps[0] + y * shape.out_steps[1];
                bytes.extend((0..i64::from(shape.size)).map(|byte| (from + byte, to + byte)));
            }
        }
    }
    bytes.sort_unstable();
    bytes
}

/// The same, element by element.
fn expected(axes: &[StridedAxis], itemsize: i64) -> Vec<(i64, i64)> {
    let mut places = vec![(0, 0)];
    for axis in axes {
        let steps = 0..axis.extent.cast_signed();
        let all =
            steps.flat_map(|n| places.iter().map(move |(from, to)| (from + n * axis.step, to + n * axis.out_step)));
        places = all.collect();
    }
    let mut bytes: Vec<_> =
        places.iter().flat_map(|(from, to)| (0..itemsize).map(move |n| (from + n, to + n))).collect();
    bytes.sort_unstable();
    bytes
}

/// Axes, bytes of an element, and what both addresses are multiples of.
fn cases() -> Vec<(Vec<StridedAxis>, u64, u64)> {
    vec![
        (vec![axis(1_000, 4, 4)], 4, 64),
        (vec![axis(7, 8, 4)], 4, 64),
        (vec![axis(3_001, -8, 8)], 8, 8),
        // A row-major matrix to columns that are apart, and with gaps between its rows.
        (vec![axis(300, 64, 4), axis(16, 4, 1_216)], 4, 64),
        (vec![axis(300, 12, 4), axis(3, 4, 1_216)], 4, 64),
        (vec![axis(65, 640, 8), axis(70, 8, 576)], 8, 64),
        // Rows to rows of other strides, and with bytes that no word of 4 is aligned for.
        (vec![axis(50, 31, 40), axis(31, 1, 1)], 1, 1),
        (vec![axis(50, 64, 80), axis(16, 4, 4)], 4, 16),
        // Transposed, permuted, repeated, of 16 bytes, and misaligned.
        (vec![axis(40, 4, 256), axis(64, 160, 4)], 4, 64),
        (vec![axis(100, 24, 24), axis(3, 4, 8), axis(2, 12, 4)], 4, 64),
        (vec![axis(30, 0, 160), axis(40, 4, 4)], 4, 64),
        (vec![axis(30, 4, 160), axis(40, 0, 4)], 4, 64),
        (vec![axis(2_000, 48, 16)], 16, 16),
        (vec![axis(40, 8, 8)], 8, 1),
        (vec![axis(9, 10_000, 960), axis(5, 70, 192), axis(4, 2, 48), axis(6, 8, 8), axis(2, 1_000, 4)], 2, 2),
    ]
}

#[test]
fn every_byte_is_moved_once_to_its_place() {
    for (axes, itemsize, aligned) in cases() {
        let (shape, tiles) = Strided::new(&axes, itemsize, (aligned, aligned)).unwrap();
        assert!(u64::from(shape.size) <= aligned, "{axes:?}: {shape:?}");
        assert_eq!(moved(&shape, tiles), expected(&axes, itemsize.cast_signed()), "{axes:?}: {shape:?}");
    }
}

#[test]
fn tiles_are_not_mostly_empty() {
    for (axes, itemsize, aligned) in cases() {
        let (shape, tiles) = Strided::new(&axes, itemsize, (aligned, aligned)).unwrap();
        let words: u64 = axes.iter().map(|axis| axis.extent).product::<u64>() * itemsize / u64::from(shape.size);
        let room = u64::from(tiles) << TILE_BITS;
        let are_short = axes.iter().all(|axis| axis.extent < 16);
        assert!(words * 4 >= room || tiles <= 4 || are_short, "{words} words in {tiles} tiles: {axes:?}, {shape:?}");
    }
}

#[test]
fn contiguous_elements_are_moved_by_words_of_eight_bytes() {
    for (axes, itemsize) in [(vec![axis(1_000, 1, 1)], 1), (vec![axis(10, 64, 80), axis(16, 4, 4)], 4)] {
        let (shape, _) = Strided::new(&axes, itemsize, (64, 64)).unwrap();
        assert_eq!((shape.size, shape.is_across), (8, 0), "{axes:?}");
    }
}

#[test]
fn no_elements_take_no_tiles_and_too_many_dimensions_are_refused() {
    let (_, tiles) = Strided::new(&[axis(0, 8, 4), axis(3, 4, 4)], 4, (64, 64)).unwrap();
    assert_eq!(tiles, 0);
    let apart = |number: u32| axis(2, 3_i64.pow(number), 8 << number);
    let axes: Vec<_> = (1..=11).map(apart).collect();
    let error = Strided::new(&axes, 1, (64, 64)).unwrap_err();
    assert!(error.to_string().contains("more than 10 dimensions"), "{error}");
    assert!(Strided::new(&axes[..10], 1, (64, 64)).is_ok());
    let huge = [axis(u64::MAX, 1, 1), axis(3, 0, 1)];
    assert!(Strided::new(&huge, 1, (64, 64)).is_err());
}
