//! Complex numbers in memory that is aligned for their parts: rows may start between two elements of a cache line.

use std::mem::MaybeUninit;

use super::*;
use crate::convert::column::write_range;

#[test]
fn rows_of_complex_numbers_may_start_where_a_part_does() {
    /// Two blocks, and a few rows; for Miri one block.
    const ROWS: usize = if cfg!(miri) { 66 } else { 130 };
    for (part, dtype, counts) in
        [(DataType::Float32, DType::Complex64, [3, 8, 16]), (DataType::Float64, DType::Complex128, [3, 4, 8])]
    {
        // Part of a line, a line, and two; for Miri no two.
        let counts = if cfg!(miri) { &counts[..2] } else { &counts };
        let pair = DataType::FixedSizeList(Arc::new(Field::new("part", part, false)), 2);
        for (count, nulls, stream) in counts.iter().copied().chain([1]).flat_map(|count| {
            [(false, false), (false, true), (true, true)].map(|(nulls, stream)| (count, nulls, stream))
        }) {
            let made: Vec<_> = (0..count).map(|seed| array(&(pair.clone(), 0, nulls, 0), ROWS, seed).0).collect();
            let options = Options::default().dtype(dtype).nulls(NullPolicy::Fill(Scalar::Int(1)));
            with_columns(&made, &options, |packed| {
                let bytes = made.len() * dtype.itemsize() * ROWS;
                let rows_at = |isa: Isa, shift: usize| {
                    let mut memory = vec![0xa5_u8; 128 + bytes];
                    let start = memory.as_ptr().addr().wrapping_neg() % 64 + shift;
                    let out = Target::new(memory[start..].as_mut_ptr(), made.len() * dtype.itemsize(), ROWS);
                    // SAFETY: the columns have these rows, and the memory room for them from `start` on; a part is aligned there.
                    let result = unsafe { pack(isa, 1, packed, 0, out, RowMemory { stream, huge_pages: false }) };
                    assert!(matches!(result, Ok(Ok(()))));
                    assert!(memory[..start].iter().chain(&memory[start + bytes..]).all(|byte| *byte == 0xa5));
                    memory[start..][..bytes].to_vec()
                };
                let expected = rows_at(Isa::Portable, 0);
                for isa in Isa::available() {
                    assert_eq!(rows_at(*isa, dtype.alignment()), expected, "{isa:?} {dtype} {count} {nulls} {stream}");
                }
            });
        }
    }
}

#[test]
fn complex_numbers_are_filled_where_a_part_is_aligned() {
    const ROWS: usize = 130;
    for (part, dtype) in [(DataType::Float32, DType::Complex64), (DataType::Float64, DType::Complex128)] {
        let pair = DataType::FixedSizeList(Arc::new(Field::new("part", part, false)), 2);
        let (made, _) = array(&(pair, 0, true, 0), ROWS, 5);
        let options = Options::default().dtype(dtype).nulls(NullPolicy::Fill(Scalar::Int(1)));
        with_columns(&[made], &options, |packed| {
            let written_at = |isa: Isa, shift: usize| {
                let mut memory = vec![MaybeUninit::new(0xa5_u8); 64 + shift + ROWS * dtype.itemsize()];
                let start = memory.as_ptr().addr().wrapping_neg() % 64 + shift;
                let out = &mut memory[start..][..ROWS * dtype.itemsize()];
                // SAFETY: the column has these rows; `out` is aligned for a part.
                assert!(unsafe { write_range(isa, packed[0].spec, packed[0].chunk, 0, out) }.is_ok());
                // SAFETY: `write_range` wrote every byte.
                out.iter().map(|byte| unsafe { byte.assume_init() }).collect::<Vec<u8>>()
            };
            let expected = written_at(Isa::Portable, 0);
            for isa in Isa::available() {
                assert_eq!(written_at(*isa, dtype.alignment()), expected, "{isa:?} {dtype}");
            }
        });
    }
}
