//! Tests of rows of bits as bytes: every count of columns around a group's, gaps between rows, and ways to the memory.

use super::*;

/// Columns of bits, which start at every place of a byte, behind up to two words, and in memory of every alignment.
fn columns_of_bits(count: usize) -> Vec<Column> {
    (0..count).map(|index| (DataType::Boolean, index * 11 % 131, false, index % 3)).collect()
}

#[test]
fn rows_of_bits_are_the_columns_bits() {
    let counts = if cfg!(miri) { &[9, 65][..] } else { &[2, 8, 9, 16, 17, 33, 63, 64, 65, 128, 130] };
    // Less than a block, one, one and a rest, and several, less and more than are read together: the lines of the last rows
    // reach behind all rows.
    let rows = if cfg!(miri) { &[66][..] } else { &[1, 63, 64, 65, 128, 197, 512, 600] };
    for (number, (&count, &rows)) in
        counts.iter().flat_map(|count| rows.iter().map(move |rows| (count, rows))).enumerate()
    {
        let ways = [(0, true), (1, false), (0, false), (1, true)];
        for (between, stream) in ways.into_iter().take(if cfg!(miri) { 2 } else { 4 }) {
            // Each dtype is written by both ways, from a line on and from between two.
            let places = [(DType::UInt8, 5), (DType::Bool, 63), (DType::UInt8, 0), (DType::Bool, 0)];
            for (dtype, before) in places.into_iter().take(if cfg!(miri) { 1 } else { 4 }) {
                let place = Place { before, between, stream, threads: 1 + number % 2 };
                check(&columns_of_bits(count), dtype, rows, number % 2 * rows.min(5), place, 47);
            }
        }
    }
}

#[test]
fn groups_of_bits_and_of_others_are_written_beside_each_other() {
    let columns: Vec<Column> = columns_of_bits(if cfg!(miri) { 70 } else { 135 })
        .into_iter()
        .enumerate()
        .map(|(index, bits)| if index == 64 { (DataType::UInt8, 3, true, 1) } else { bits })
        .collect();
    for (between, stream) in [(0, false), (0, true), (1, false)] {
        let place = Place { before: 1, between, stream, threads: 1 };
        check(&columns, DType::UInt8, most(150), 2, place, 53);
    }
}
