//! The columns behind the last whole line of a row, which tiles write as a part of a line.

use super::*;

#[test]
fn every_number_of_columns_behind_a_line() {
    let rows = most(130);
    for (dtype, alike) in
        [(DType::UInt8, 5), (DType::Int16, 2), (DType::Float32, 10), (DType::Float64, 11), (DType::Bool, 0)]
    {
        let line = 64 / dtype.itemsize();
        // For Miri one of whole vectors, and one that is not.
        let rest = if cfg!(miri) { line / 2 - 1..line / 2 + 1 } else { 1..line };
        for (count, between) in rest.flat_map(|rest| [(line + rest, 0), (line + rest, 1), (rest, line)]) {
            // Columns of no nulls are read in place.
            for every in [4, usize::MAX].into_iter().skip(usize::from(cfg!(miri))) {
                let column = |i: usize| (TYPES[alike].clone(), i % 5, i % every == every - 1, i % 7 / 6);
                let columns: Vec<Column> = (0..count).map(column).collect();
                check(&columns, dtype, rows, 1, Place { before: 1, between, stream: false, threads: 1 }, 29);
            }
        }
    }
}

#[test]
fn dense_rows_of_views_that_stay_in_the_cache() {
    let counts = if cfg!(miri) { vec![18] } else { (17..33).chain([47, 48, 49, 63, 64, 65]).collect() };
    for count in counts {
        let columns: Vec<Column> = (0..count).map(|i| (TYPES[10].clone(), i % 5, false, i % 7 / 6)).collect();
        for (rows, skipped, threads) in [(67, 4, 1), (68, 3, 1), (130, 0, 2), (259, 3, 2)] {
            let rows = most(rows);
            for before in [0, 1] {
                check(
                    &columns,
                    DType::Float32,
                    rows,
                    skipped,
                    Place { before, between: 0, stream: false, threads },
                    31,
                );
            }
        }
    }
}

#[test]
fn dense_rows_that_are_shorter_than_a_line() {
    for (dtype, alike) in [(DType::Float32, 10), (DType::Float64, 11)] {
        let counts = if cfg!(miri) { 3..4 } else { 1..64 / dtype.itemsize() };
        let nulls = if cfg!(miri) { &[false][..] } else { &[false, true] };
        for (count, has_nulls) in counts.flat_map(|count| nulls.iter().map(move |nulls| (count, *nulls))) {
            let column = |i: usize| (TYPES[alike].clone(), i % 5, has_nulls && i % 3 == 1, i % 7 / 6);
            let columns: Vec<Column> = (0..count).map(column).collect();
            // The last row of 64 is written with nothing too much: behind it is no other, or one of another thread.
            let cases = [(65, 0, 1), (64, 0, 1), (63, 1, 1), (128, 3, 2), (129, 0, 2), (259, 3, 2)];
            for (rows, skipped, threads) in cases.into_iter().take(if cfg!(miri) { 1 } else { 6 }) {
                let rows = most(rows);
                for before in [1, 0].into_iter().take(if cfg!(miri) { 1 } else { 2 }) {
                    check(&columns, dtype, rows, skipped, Place { before, between: 0, stream: false, threads }, 37);
                }
            }
        }
    }
}

#[test]
fn the_last_group_has_the_fewest_columns_that_tiles_write() {
    let columns = [(DataType::Float32, 0, false, 0)];
    let (made, _) = array(&columns[0], 1, 1);
    with_columns(&[made], &Options::default(), |packed| {
        let lane = Lane::new(Isa::Portable, packed[0].spec, packed[0].chunk).map_err(drop).unwrap();
        let starts = |isa, size, count| {
            let lanes = vec![lane; count];
            let memory = RowMemory { stream: false, huge_pages: false };
            Packer { isa, lanes: &lanes, size, memory }.group_starts().collect::<Vec<_>>()
        };
        for (size, count, vectors, masks) in [
            (4, 16, &[0][..], &[0][..]),
            (4, 18, &[0, 14], &[0, 16]),
            (4, 20, &[0, 16], &[0, 16]),
            (4, 3, &[0], &[0]),
            (8, 17, &[0, 8, 15], &[0, 8, 16]),
            (1, 70, &[0, 54], &[0, 62]),
            (2, 33, &[0, 25], &[0, 31]),
            (16, 5, &[0, 4], &[0, 4]),
        ] {
            assert_eq!(starts(Isa::Portable, size, count), vectors, "{size} {count}");
            assert_eq!(starts(Isa::Avx512, size, count), masks, "{size} {count}");
        }
    });
}
