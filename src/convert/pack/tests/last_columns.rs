//! The columns behind the last whole line of a row, which are written as vectors.

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
            let columns: Vec<Column> =
                (0..count).map(|i| (TYPES[alike].clone(), i % 5, i % 4 == 0, i % 7 / 6)).collect();
            check(&columns, dtype, rows, 1, Place { before: 1, between, stream: false, threads: 1 }, 29);
        }
    }
}
