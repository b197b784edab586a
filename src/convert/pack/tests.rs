//! Tests packed rows against their definition, element by element: any columns, rows, offsets, strides, alignments and
//! nulls, on every instruction set.

mod bit_rows;
mod complex;
mod lanes;
mod last_columns;
mod shared_lines;

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, FixedSizeListArray, Float32Array, Float64Array, Int32Array, Int64Array};
use arrow_buffer::NullBuffer;
use arrow_cast::cast;
use arrow_schema::{DataType, Field};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::arrow::DeviceArray;
use crate::convert::ColumnChunk;
use crate::dtype::DType;
use crate::spec::{NullPolicy, Options, Pattern, Scalar, Spec};

const TYPES: [DataType; 13] = [
    DataType::Boolean,
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::UInt8,
    DataType::UInt16,
    DataType::UInt32,
    DataType::UInt64,
    DataType::Float16,
    DataType::Float32,
    DataType::Float64,
    DataType::Decimal128(12, 2),
];

/// Miri takes seconds for a case.
fn cases(count: u32) -> ProptestConfig {
    ProptestConfig::with_cases(if cfg!(miri) { 1 } else { count })
}

/// So many columns; for Miri, those of a line and a rest.
const fn most_columns(count: usize) -> usize {
    if cfg!(miri) { 18 } else { count }
}

/// So many rows; for Miri, a block and a rest.
const fn most(rows: usize) -> usize {
    if cfg!(miri) { 70 } else { rows }
}

/// One column: its type, how many slots stand before its first row, whether it has nulls, how far it is misaligned.
type Column = (DataType, usize, bool, usize);

fn columns(types: &'static [DataType], count: usize) -> impl Strategy<Value = Vec<Column>> {
    vec((select(types), prop_oneof![Just(0), 0..70_usize], any::<bool>(), prop_oneof![Just(0), 0..3_usize]), count)
}

/// Where rows go: bytes before the first one, bytes between two, and whether they are written past the cache.
#[derive(Clone, Copy, Debug)]
struct Place {
    before: usize,
    between: usize,
    stream: bool,
    threads: usize,
}

impl Place {
    fn memory(self) -> RowMemory {
        RowMemory { stream: self.stream, huge_pages: false }
    }
}

fn places() -> impl Strategy<Value = Place> {
    (prop_oneof![Just(0), 0..9_usize], prop_oneof![Just(0), Just(0), 0..5_usize, Just(64)], any::<bool>(), 1..4_usize)
        .prop_map(|(before, between, stream, threads)| Place { before, between, stream, threads })
}

/// A column's array, and each row's number, `None` where it is null.
fn array(column: &Column, rows: usize, seed: u64) -> (ArrayRef, Vec<Option<i64>>) {
    let (data_type, offset, nulls, _) = column;
    let mut state = seed | 1;
    let mut numbers = || {
        (0..offset + rows)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let number = (state >> 40).cast_signed() % if *data_type == DataType::Boolean { 2 } else { 100 };
                (!nulls || state >> 60 != 0).then_some(number)
            })
            .collect::<Vec<_>>()
    };
    let values = numbers();
    let stored: ArrayRef = Arc::new(Int64Array::from(values.clone()));
    let array = match data_type {
        // A complex number: its second part is zero.
        DataType::FixedSizeList(part, 2) => {
            let parts = Int64Array::from_iter_values(values.iter().flat_map(|value| [value.unwrap_or(7), 0]));
            let parts = cast(&parts, part.data_type()).unwrap();
            Arc::new(FixedSizeListArray::new(part.clone(), 2, parts, stored.nulls().cloned()))
        }
        _ => cast(&stored, data_type).unwrap(),
    };
    (array.slice(*offset, rows), values[*offset..].to_vec())
}

/// Packs the rows behind the first `skipped` ones, and compares them with the definition; what stands around them stays.
fn check(columns: &[Column], dtype: DType, rows: usize, skipped: usize, place: Place, seed: u64) {
    let made: Vec<_> = columns.iter().zip(seed..).map(|(column, seed)| array(column, rows, seed)).collect();
    let nulls =
        if dtype.kind() == crate::dtype::Kind::Float { NullPolicy::Nan } else { NullPolicy::Fill(Scalar::Int(1)) };
    let options = Options::default().dtype(dtype).nulls(nulls);
    let clear = match nulls {
        NullPolicy::Nan => Pattern::nan(dtype).unwrap(),
        _ => Pattern::of(Scalar::Int(1), dtype).unwrap(),
    };
    let arrays: Vec<DeviceArray> = made
        .iter()
        .map(|(array, _)| {
            let field = Arc::new(Field::new("x", array.data_type().clone(), true));
            DeviceArray::from_arrow(array, field).unwrap()
        })
        .collect();
    let specs: Vec<Spec> = arrays.iter().map(|array| Spec::new(array.field(), &options).unwrap()).collect();
    // Copies of the values, on a cache line or so many bytes behind one.
    let mut moved: Vec<Vec<u8>> = Vec::new();
    let chunks: Vec<ColumnChunk<'_>> = arrays
        .iter()
        .zip(&specs)
        .zip(columns)
        .map(|((array, spec), (_, _, _, shift))| {
            let mut leaf = array.view().leaf(spec).unwrap();
            // SAFETY: an array of arrow-rs: host memory.
            let mask = unsafe { leaf.host_mask() }.unwrap();
            let stored = spec.element().stored_bytes();
            let bytes = if stored == 0 || spec.element() == crate::spec::Element::Bits {
                (leaf.offset + leaf.elements).div_ceil(8)
            } else {
                leaf.offset * spec.element().stored_size() + leaf.elements * stored
            };
            // SAFETY: the array has these bytes.
            let bytes = unsafe { std::slice::from_raw_parts(leaf.values, bytes) };
            let mut memory = vec![0; 64 + shift + bytes.len()];
            let start = memory.as_ptr().addr().wrapping_neg() % 64 + shift;
            memory[start..][..bytes.len()].copy_from_slice(bytes);
            moved.push(memory);
            leaf.values = moved.last().unwrap()[start..].as_ptr();
            ColumnChunk { leaf, mask, array }
        })
        .collect();
    let packed: Vec<PackedColumn<'_>> =
        specs.iter().zip(&chunks).map(|(spec, chunk)| PackedColumn { spec, chunk }).collect();
    let (size, count) = (dtype.itemsize(), rows - skipped);
    let (before, between) = (place.before * size, place.between * size);
    let stride = columns.len() * size + between;
    let mut expected = vec![0xa5_u8; 64 + before + count * stride + 64];
    let start = expected.as_ptr().addr().wrapping_neg() % 64;
    // Each number once, because Miri takes long for one.
    let most = if dtype == DType::Bool { 2 } else { 100 };
    let numbers: Vec<Pattern> = (0..most).map(|number| Pattern::of(Scalar::Int(number), dtype).unwrap()).collect();
    for row in 0..count {
        for (column, (_, values)) in made.iter().enumerate() {
            let element = values[skipped + row].map_or(clear, |value| numbers[usize::try_from(value).unwrap()]);
            expected[before + row * stride + column * size..][..size].copy_from_slice(element.bytes());
        }
    }
    for isa in Isa::available() {
        let mut memory = vec![0xa5_u8; start + 64 + expected.len()];
        let start = memory.as_ptr().addr().wrapping_neg() % 64;
        let out = Target::new(memory[start + before..].as_mut_ptr(), stride, count);
        // SAFETY: the columns have these rows, and the memory room for them.
        let result = unsafe { pack(*isa, place.threads, &packed, skipped, out, place.memory()) };
        assert!(matches!(result, Ok(Ok(()))));
        let found = &memory[start..][..expected.len()];
        if found != expected {
            let at = (0..expected.len()).find(|at| found[*at] != expected[*at]).unwrap();
            let (row, byte) = (at.wrapping_sub(before) / stride, at.wrapping_sub(before) % stride);
            panic!("{isa:?}: byte {at}, row {row}, column {}: {} not {}", byte / size, found[at], expected[at]);
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
#[cfg_attr(miri, ignore = "Miri has none of the sets that /proc/cpuinfo names")]
fn every_set_that_the_processor_has_is_available() {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let flags: Vec<&str> =
        text.lines().filter(|line| line.starts_with("flags")).take(1).flat_map(str::split_whitespace).collect();
    let has = |names: &[&str]| names.iter().all(|name| flags.contains(name));
    // Emulators show the processor that they run on.
    let avx2 = cfg!(target_arch = "x86_64") && has(&["avx2", "f16c"]);
    let avx512 = avx2 && has(&["avx512f", "avx512bw", "avx512dq", "avx512vl"]);
    let neon = cfg!(target_arch = "aarch64");
    let expected = [(Isa::Portable, true), (Isa::Neon, neon), (Isa::Avx2, avx2), (Isa::Avx512, avx512)];
    let expected: Vec<Isa> = expected.into_iter().filter(|(_, has)| *has).map(|(isa, _)| isa).collect();
    assert_eq!(Isa::available(), expected);
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn rows_are_the_columns_values(
        columns in prop_oneof![1..8_usize, 1..most_columns(40), most_columns(60)..most_columns(69) + 1, select(vec![4, 16, most_columns(64)])].prop_flat_map(|count| columns(&TYPES, count)),
        dtype in select(&[DType::Float32, DType::Float32, DType::Float64, DType::Int64, DType::Int16, DType::UInt8,
            DType::Float16, DType::BFloat16, DType::Int32][..]),
        (rows, skipped) in (prop_oneof![0..70_usize, 0..most(300)]).prop_flat_map(|rows| (Just(rows), 0..=rows)),
        place in places(),
        seed in any::<u64>(),
    ) {
        check(&columns, dtype, rows, skipped, place, seed);
    }

    #[test]
    fn rows_of_views_are_the_columns_values(
        (data_type, dtype) in select(&[(DataType::Float32, DType::Float32), (DataType::Int8, DType::Int8),
            (DataType::Float64, DType::Float64), (DataType::UInt16, DType::UInt16)][..]),
        shape in prop_oneof![1..most_columns(20), 1..most_columns(140)]
            .prop_flat_map(|count| vec((prop_oneof![Just(0), 0..70_usize], any::<bool>(), 0..3_usize), count)),
        rows in 0..most(200),
        place in places(),
        seed in any::<u64>(),
    ) {
        let columns: Vec<Column> =
            shape.into_iter().map(|(offset, nulls, shift)| (data_type.clone(), offset, nulls, shift)).collect();
        check(&columns, dtype, rows, 0, place, seed);
    }
}

#[test]
fn complex_numbers_are_packed_in_pairs() {
    let pairs = |part: DataType| DataType::FixedSizeList(Arc::new(Field::new("item", part, true)), 2);
    let place = Place { before: 1, between: 0, stream: true, threads: 1 };
    for dtype in [DType::Complex64, DType::Complex128] {
        for count in if cfg!(miri) { &[1, 5][..] } else { &[1, 3, 4, 5, 9] }.iter().copied() {
            let types = [pairs(DataType::Float32), pairs(DataType::Float64)];
            let columns: Vec<Column> = types
                .iter()
                .cycle()
                .take(count)
                .cloned()
                .zip(0..)
                .map(|(part, i)| (part, i, i % 3 == 0, i % 2))
                .collect();
            let rows = if cfg!(miri) { 68 } else { 150 };
            check(&columns, dtype, rows, 3, place, 7);
            check(&columns, dtype, rows, 3, Place { between: 1, ..place }, 7);
        }
    }
}

#[test]
fn many_columns_and_long_runs_of_rows() {
    let place = Place { before: 3, between: 0, stream: true, threads: 2 };
    let shapes = if cfg!(miri) {
        // Runs are of 64 rows then.
        &[(17, 66), (4, 66)][..]
    } else {
        &[(4096, 65), (1025, 130), (16, 5000), (17, 5000), (10, 5000), (4, 5000), (3, 5000), (1, 5000)]
    };
    for &(count, rows) in shapes {
        let columns: Vec<Column> =
            (0..count).map(|index| (TYPES[index % 13].clone(), index % 9, index % 4 == 0, 0)).collect();
        check(&columns, DType::Float32, rows, 1, place, 11);
        check(&columns, DType::Float32, rows, 1, Place { before: 0, ..place }, 11);
    }
}

#[test]
fn rows_that_share_their_lines_with_the_next() {
    let dtypes = [DType::Float32, DType::Float64, DType::Int16, DType::UInt8];
    for (dtype, alike) in
        dtypes.into_iter().zip([10, 11, 2, 5]).skip(if cfg!(miri) { 1 } else { 0 }).take(if cfg!(miri) { 2 } else { 4 })
    {
        let line = 64 / dtype.itemsize();
        // Sources of every width between those that are the result's: each is fetched at a pace of its own.
        let of = |index: usize| TYPES[if index.is_multiple_of(3) { index % 13 } else { alike }].clone();
        for count in [line + 1, 2 * line - 1, 3 * line + line / 2].into_iter().take(if cfg!(miri) { 1 } else { 3 }) {
            let columns: Vec<Column> = (0..count).map(|i| (of(i), i % 5, i % 4 == 0, i % 7 / 6)).collect();
            // No whole chunk, one, a few with a tail of each kind: the last line's rest is no line.
            let parts = if cfg!(miri) { &[(1, 1), (66, 2)][..] } else { &[(1, 1), (64, 1), (129, 1), (200, 2)] };
            for &(rows, threads) in parts {
                for before in [0, 1, line - 1].into_iter().skip(if cfg!(miri) { 2 } else { 0 }) {
                    let place = Place { before, between: 0, stream: true, threads };
                    check(&columns, dtype, rows, 0, place, 19);
                }
            }
        }
    }
}

#[test]
fn columns_of_the_results_own_values() {
    for (dtype, alike) in [(DType::Float32, 10), (DType::Float64, 11)].into_iter().skip(usize::from(cfg!(miri))) {
        let line = 64 / dtype.itemsize();
        for count in [line, line + 1, 2 * line].into_iter().take(if cfg!(miri) { 2 } else { 3 }) {
            let columns: Vec<Column> = (0..count).map(|i| (TYPES[alike].clone(), i % 5, false, 0)).collect();
            for rows in if cfg!(miri) { &[65][..] } else { &[64, 129, 200] }.iter().copied() {
                for (before, stream) in [(0, false), (0, true), (1, true)].into_iter().skip(usize::from(cfg!(miri))) {
                    let place = Place { before, between: 0, stream, threads: 1 };
                    check(&columns, dtype, rows, 0, place, 23);
                    check(&columns, dtype, rows, 3, Place { between: line, ..place }, 23);
                }
            }
        }
    }
}

#[test]
fn few_columns_of_rows_that_have_room_for_four() {
    let place = Place { before: 0, between: 0, stream: false, threads: 1 };
    for count in 1..=4 {
        let types = [DataType::Float32, DataType::Float64, DataType::Boolean, DataType::Int32];
        let columns: Vec<Column> = types.iter().take(count).map(|of| (of.clone(), 0, true, 0)).collect();
        check(&columns, DType::Float32, 130, 0, Place { between: 4 - count, ..place }, 17);
    }
}

#[test]
fn rows_over_several_huge_pages() {
    let place = Place { before: 0, between: 0, stream: true, threads: 1 };
    // As many times fewer rows as there are fewer bytes in a page.
    let fewer = (2 << 20) / HUGE_PAGE;
    // Whole lines, lines of two rows, and rows of no whole lines.
    for (count, rows, before) in [
        (16, 70_000, 0),
        (16, 70_000, 3),
        (16, 70_016, 3),
        (17, 70_000, 3),
        (4, 300_000, 0),
        (32, 20_000, 0),
        (32, 20_000, 3),
    ]
    .into_iter()
    .step_by(if cfg!(miri) { 3 } else { 1 })
    {
        let types = [DataType::Int32, DataType::Float64, DataType::Float32];
        let columns: Vec<Column> = (0..count).map(|index| (types[index % 3].clone(), 0, index % 4 == 0, 0)).collect();
        check(&columns, DType::Float32, rows / fewer, 0, Place { before, ..place }, 13);
    }
}

/// Columns of values of one type, and each one's validity.
fn with_columns(columns: &[ArrayRef], options: &Options, work: impl FnOnce(&[PackedColumn<'_>])) {
    let device = |array: &ArrayRef| {
        let field = Arc::new(Field::new("x", array.data_type().clone(), true));
        DeviceArray::from_arrow(array, field).unwrap()
    };
    let arrays: Vec<DeviceArray> = columns.iter().map(device).collect();
    let specs: Vec<Spec> = arrays.iter().map(|array| Spec::new(array.field(), options).unwrap()).collect();
    let chunks: Vec<ColumnChunk<'_>> = arrays
        .iter()
        .zip(&specs)
        .map(|(array, spec)| {
            let leaf = array.view().leaf(spec).unwrap();
            // SAFETY: an array of arrow-rs: host memory.
            let mask = unsafe { leaf.host_mask() }.unwrap();
            ColumnChunk { mask, leaf, array }
        })
        .collect();
    let packed: Vec<_> = specs.iter().zip(&chunks).map(|(spec, chunk)| PackedColumn { spec, chunk }).collect();
    work(&packed);
}

/// How many bits and nulls columns take turns with.
const TURN: usize = if cfg!(miri) { 70 } else { 200 };

/// A column of these bits, read as floats, as single ones, or as integers.
fn of_bits(data_type: &DataType, bits: &[u64], valid: Vec<bool>) -> ArrayRef {
    let valid = Some(NullBuffer::from(valid));
    let bits = bits.iter().copied();
    match data_type {
        DataType::Int32 => {
            let values: Vec<i32> = bits.map(|bits| (bits >> 32) as i32).collect();
            Arc::new(Int32Array::new(values.into(), valid))
        }
        DataType::Int64 => {
            let values: Vec<i64> = bits.map(u64::cast_signed).collect();
            Arc::new(Int64Array::new(values.into(), valid))
        }
        DataType::Float32 => {
            let values: Vec<f32> = bits.map(|bits| f32::from_bits((bits >> 32) as u32)).collect();
            Arc::new(Float32Array::new(values.into(), valid))
        }
        _ => Arc::new(Float64Array::new(bits.map(f64::from_bits).collect::<Vec<_>>().into(), valid)),
    }
}

proptest! {
    #![proptest_config(cases(60))]

    #[test]
    fn every_set_of_instructions_rounds_alike(
        (data_type, dtype) in select(&[(DataType::Int32, DType::Float32), (DataType::Int64, DType::Float32),
            (DataType::Float64, DType::Float32), (DataType::Int32, DType::Float64), (DataType::Int64, DType::Float64),
            (DataType::Float32, DType::Float64)][..]),
        (count, rows) in (select(if cfg!(miri) { &[2_usize, 5, 9][..] } else { &[2, 4, 5, 16, 21, 32] }), 60..TURN),
        // Any bits, those of infinities, and of doubles that singles nearly hold.
        bits in vec(prop_oneof![any::<u64>(), Just(f64::INFINITY.to_bits()), Just(f64::NEG_INFINITY.to_bits()),
            (0x3690_u64..0x47ef, 0_u64..1 << 48).prop_map(|(high, low)| high << 48 | low)], TURN),
        valid in vec(any::<bool>(), TURN),
        place in places(),
    ) {
        let columns: Vec<ArrayRef> = (0..count)
            .map(|column| {
                let turned = |index: usize| (index + column * 7) % TURN;
                let bits: Vec<u64> = (0..rows).map(|row| bits[turned(row)]).collect();
                let valid = (0..rows).map(|row| valid[turned(row)] && fits(&data_type, dtype, bits[row])).collect();
                of_bits(&data_type, &bits, valid)
            })
            .collect();
        with_columns(&columns, &Options::default().dtype(dtype).nulls(NullPolicy::Fill(Scalar::Int(1))), |packed| {
            let stride = (count + place.between) * dtype.itemsize();
            let mut found: Vec<Vec<u8>> = Vec::new();
            for isa in Isa::available() {
                let mut memory = vec![0_u8; 64 + place.before * 8 + stride * rows];
                let start = memory.as_ptr().addr().wrapping_neg() % 64 + place.before * dtype.itemsize();
                let out = Target::new(memory[start..].as_mut_ptr(), stride, rows);
                // SAFETY: the columns have these rows, and the memory room for them.
                assert!(matches!(unsafe { pack(*isa, place.threads, packed, 0, out, place.memory()) }, Ok(Ok(()))));
                found.push(memory[start..][..stride * rows].to_vec());
            }
            assert!(found.iter().all(|rows| *rows == found[0]));
        });
    }

    #[test]
    fn the_lowest_row_that_does_not_fit_is_named_and_its_first_column(
        (data_type, dtype) in select(&[(DataType::Int64, DType::Int8), (DataType::Float64, DType::Float32)][..]),
        (count, rows) in prop_oneof![(1..6_usize, 1..most(300)), (most_columns(60)..most_columns(139) + 1, 1..most(300)),
            (select(vec![4, 16, most_columns(64)]), 1..most(300)), (1..4_usize, if cfg!(miri) { 260..300_usize } else { 9000..20_000 })],
        places in vec((any::<Index>(), any::<Index>(), any::<bool>()), 0..6),
        place in places(),
    ) {
        let too_large = if data_type == DataType::Int64 { 1000 } else { f64::MAX.to_bits() };
        let fine = if data_type == DataType::Int64 { 7 } else { f64::INFINITY.to_bits() };
        let mut misfits: Vec<(usize, usize, bool)> =
            places.iter().map(|(row, column, null)| (row.index(rows), column.index(count), *null)).collect();
        misfits.sort_unstable();
        misfits.dedup_by_key(|(row, column, _)| (*row, *column));
        let columns: Vec<ArrayRef> = (0..count)
            .map(|column| {
                let (mut bits, mut valid) = (vec![fine; rows], vec![true; rows]);
                for (row, _, is_null) in misfits.iter().filter(|(_, at, _)| *at == column) {
                    (bits[*row], valid[*row]) = (too_large, !is_null);
                }
                of_bits(&data_type, &bits, valid)
            })
            .collect();
        let expected = misfits.iter().find(|(_, _, is_null)| !is_null).map(|(row, column, _)| (*row, *column));
        with_columns(&columns, &Options::default().dtype(dtype).nulls(NullPolicy::Keep), |packed| {
            let stride = (count + place.between) * dtype.itemsize();
            for isa in Isa::available() {
                let mut memory = vec![0_u8; 64 + place.before * 4 + stride * rows];
                let start = memory.as_ptr().addr().wrapping_neg() % 64 + place.before * dtype.itemsize();
                let out = Target::new(memory[start..].as_mut_ptr(), stride, rows);
                // SAFETY: the columns have these rows, and the memory room for them.
                let result = unsafe { pack(*isa, place.threads, packed, 0, out, place.memory()) }.unwrap();
                let found = result.err().map(|found| (found.misfit.index, found.column));
                assert_eq!(found, expected, "{isa:?}");
            }
        });
    }
}

/// Whether the cast of these bits is no misfit.
fn fits(data_type: &DataType, dtype: DType, bits: u64) -> bool {
    // From half a step beyond the largest float32 on, doubles round to infinity.
    let overflows = (3.402_823_567_797_336_6e38..f64::INFINITY).contains(&f64::from_bits(bits).abs());
    *data_type != DataType::Float64 || dtype != DType::Float32 || !overflows
}
