//! Tests of rows of views that share cache lines: every width of the last tile, every place in a line, and several blocks.

use super::*;

/// Columns of the result's own values, that start at different places of their lines.
fn views(count: usize) -> Vec<Column> {
    (0..count).map(|index| (DataType::Int32, index % 7, false, index % 3)).collect()
}

#[test]
fn rows_of_every_width_and_place() {
    let widths: Vec<usize> =
        if cfg!(miri) { vec![17] } else { (17..49).chain([50, 63]).chain(79..97).chain([155]).collect() };
    for (number, count) in widths.into_iter().enumerate() {
        // One row less than `views` takes, the fewest that it takes, and rows behind the last tile.
        for rows in if cfg!(miri) { &[80][..] } else { &[79, 80, 103] }.iter().copied() {
            let place = Place { before: number % 16, between: 0, stream: true, threads: 1 };
            check(&views(count), DType::Int32, rows, 0, place, 29);
            check(&views(count), DType::Int32, rows, 3, Place { before: 15 - number % 16, ..place }, 31);
        }
    }
    for before in if cfg!(miri) { 1..2 } else { 0..16 } {
        for count in if cfg!(miri) { &[21][..] } else { &[20, 21, 81] }.iter().copied() {
            check(&views(count), DType::Int32, 96, 0, Place { before, between: 0, stream: true, threads: 1 }, 37);
        }
    }
}

#[test]
fn rows_of_several_blocks_and_threads() {
    let rows = if cfg!(miri) { 150 } else { 3300 };
    for (count, before, threads) in [(17, 0, 1), (20, 3, 2), (37, 9, 1), (50, 4, 3), (82, 3, 2), (90, 9, 1), (97, 4, 3)]
        .into_iter()
        .take(if cfg!(miri) { 1 } else { 7 })
    {
        check(&views(count), DType::Int32, rows, 1, Place { before, between: 0, stream: true, threads }, 41);
    }
}

#[test]
fn one_column_that_is_no_view_among_views() {
    for index in if cfg!(miri) { &[16][..] } else { &[0, 20, 36] }.iter().copied() {
        let mut columns = views(37);
        columns[index] = (DataType::Int64, 2, true, 0);
        let place = Place { before: 5, between: 0, stream: true, threads: 1 };
        check(&columns, DType::Int32, if cfg!(miri) { 80 } else { 200 }, 0, place, 43);
    }
}
