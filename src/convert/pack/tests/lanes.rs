//! Tests of lanes that skip the first elements of their column.

use super::*;

/// All elements of a lane from `row` on that the column has.
fn written(lane: &Lane<'_>, row: usize, elements: usize) -> Vec<u8> {
    // Words of 64 bits are aligned for any element.
    let mut out = vec![0_u64; elements];
    // SAFETY: as many bytes as the vector has, borrowed exclusively.
    let bytes = unsafe { std::slice::from_raw_parts_mut(out.as_mut_ptr().cast(), elements * lane.size()) };
    // SAFETY: the caller's elements; the vector is aligned, and apart from the column; the processor has the instructions.
    unsafe { lane.write(row, bytes) }.unwrap();
    out.iter().flat_map(|word| word.to_ne_bytes()).take(elements * lane.size()).collect()
}

#[test]
fn a_lane_without_its_first_elements_is_the_rest_of_the_column() {
    // More than the last case skips, and a rest.
    let rows = if cfg!(miri) { 135 } else { 200 };
    let made = [DType::Bool, DType::UInt8, DType::Float32, DType::Float64];
    for (data_type, dtype) in
        TYPES.iter().step_by(if cfg!(miri) { 6 } else { 1 }).flat_map(|data_type| made.map(|dtype| (data_type, dtype)))
    {
        if dtype == DType::Bool && *data_type != DataType::Boolean {
            continue;
        }
        for has_nulls in [false, true] {
            let column = array(&(data_type.clone(), 3, has_nulls, 0), rows, 11).0;
            let options = Options::default().dtype(dtype).nulls(NullPolicy::Fill(Scalar::Int(1)));
            with_columns(&[column], &options, |packed| {
                for isa in Isa::available() {
                    let lane = Lane::new(*isa, packed[0].spec, packed[0].chunk).unwrap();
                    let all = written(&lane, 0, rows);
                    for (first, then, row) in [(0, 0, 5), (1, 0, 0), (3, 70, 0), (64, 1, 9), (0, 63, 64)] {
                        let (rest, skipped) = (lane.after(first).after(then), first + then);
                        let found = written(&rest, row, rows - skipped - row);
                        assert!(found == all[(skipped + row) * lane.size()..], "{isa:?} {data_type} {dtype}");
                        let words = |lane: &Lane<'_>, row| lane.load().map(|load| load.bits.map(|bits| bits.word(row)));
                        assert_eq!(words(&rest, row), words(&lane, skipped + row), "{isa:?} {data_type} {dtype}");
                    }
                }
            });
        }
    }
}
