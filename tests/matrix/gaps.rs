//! Is nothing written but the elements of an output: neither between two rows, or columns, nor around all of them?

use std::num::NonZero;
use std::ops::Range;

use arrow_array::{Array, StructArray};
use arrow_buffer::MutableBuffer;
use arrow_dlpack::{Chunks, Conversion, DType, DeviceArray, NullPolicy, Scalar, Tensor};
use arrow_schema::{DataType, FieldRef};

use crate::cases::{Case, Kind, expected};
use crate::support::Random;
use crate::support::arrow::{field, list, random_array, shared};
use crate::support::dlpack::{Memory, output};
use crate::support::reference::elements;

/// What nobody may write to.
const NOBODYS: u8 = 0xEE;
/// Bytes before the first element and behind the last.
const GUARD: usize = 256;
/// Elements between two rows, at most: more than a line of each width but bytes, and a step behind that.
const MOST_BETWEEN: usize = if cfg!(miri) { 2 } else { 33 };
/// A block of the kernels, and a rest.
const ROWS: usize = 70;
/// Of the sources, one in so many: no divisor of the kinds, counts and chunks of a width, so that each of them is among those.
const ONE_SOURCE_IN: usize = if cfg!(miri) { 7 } else { 1 };

/// Data, and the bytes of each of its rows.
struct Source {
    field: FieldRef,
    chunks: Vec<DeviceArray>,
    conversion: Conversion,
    dtype: DType,
    /// The extents behind the rows.
    inner: Vec<usize>,
    /// Nothing if a value does not fit: the elements are anything then.
    rows: Option<Vec<Vec<u8>>>,
}

impl Source {
    /// A matrix of columns of these kinds, without nulls or with many.
    fn of_kinds(kinds: &[Kind], count: usize, dtype: DType, has_nulls: bool, chunks: &[usize]) -> Self {
        let nulls = if has_nulls { NullPolicy::Fill(Scalar::Int(1)) } else { NullPolicy::Error };
        let case = Case {
            columns: kinds.iter().cycle().take(count).map(|kind| (*kind, nulls)).collect(),
            chunks: chunks.iter().map(|rows| (*rows, rows % 7, if has_nulls { 5 } else { 0 })).collect(),
            dtype: Some(dtype),
            order: arrow_dlpack::MemoryOrder::C,
            seed: count as u64,
        };
        let (data, conversion) = (case.data(), case.conversion());
        let rows =
            expected(&case, &data, dtype).ok().map(|elements| elements.chunks(count).map(<[_]>::concat).collect());
        Self { field: data.field, chunks: data.chunks, conversion, dtype, inner: vec![count], rows }
    }

    /// An array without nulls, whose rows have so many elements each.
    fn of_array(array: &dyn Array, dtype: DType, inner: Vec<usize>) -> Self {
        let of = field("x", array.data_type().clone());
        let all: Vec<Vec<u8>> = match array.as_any().downcast_ref::<StructArray>() {
            None => elements(&of, array).into_iter().flatten().collect(),
            Some(rows) => {
                let columns: Vec<Vec<Vec<u8>>> = std::iter::zip(rows.fields(), rows.columns())
                    .map(|(of, column)| elements(of, column.as_ref()).into_iter().flatten().collect())
                    .collect();
                let row = |row: usize| {
                    columns.iter().flat_map(move |column| {
                        column[row * column.len() / rows.len()..][..column.len() / rows.len()].to_vec()
                    })
                };
                (0..rows.len()).flat_map(row).collect()
            }
        };
        let per_row = inner.iter().product::<usize>();
        let rows = Some(all.chunks(per_row).map(<[_]>::concat).collect());
        let conversion = Conversion::default();
        Self { chunks: vec![shared(array, &of)], field: of, conversion, dtype, inner, rows }
    }

    fn count(&self) -> usize {
        self.chunks.iter().map(DeviceArray::len).sum()
    }

    /// Bytes of a row.
    fn width(&self) -> usize {
        self.inner.iter().product::<usize>() * self.dtype.itemsize()
    }

    /// Writes the rows to memory that starts there, `strides` elements apart.
    fn write(&self, start: *mut u8, strides: &[usize], threads: usize) -> bool {
        let signed = |extents: &[usize]| extents.iter().map(|extent| *extent as i64).collect::<Vec<_>>();
        let shape = signed(&[&[self.count()], &*self.inner].concat());
        let memory = Memory::new(&[], self.dtype, &shape, &signed(strides), 0);
        let imported: Tensor = memory.import_edited(|managed| managed.dl_tensor.data = start.cast()).0.unwrap();
        let mut out = output(&imported).unwrap();
        let conversion = self.conversion.clone().threads(NonZero::new(threads).unwrap());
        conversion.write(Chunks::new(&self.field, &self.chunks), &mut out).is_ok()
    }

    /// Writes rows so many elements apart, so many behind a line, and looks at every byte.
    fn check_rows(&self, between: usize, before: usize, threads: usize) {
        let (size, stride) = (self.dtype.itemsize(), self.width() + between * self.dtype.itemsize());
        let mut strides = vec![stride / size];
        strides.extend((0..self.inner.len()).map(|axis| self.inner[axis + 1..].iter().product::<usize>()));
        let mut expected = vec![NOBODYS; self.count() * stride];
        for (line, row) in expected.chunks_mut(stride).zip(self.rows.iter().flatten()) {
            line[..row.len()].copy_from_slice(row);
        }
        let of_row = |row: usize| row * stride..row * stride + self.width();
        self.check(&strides, before * size, expected, (0..self.count()).map(of_row), threads);
    }

    /// As [`Self::check_rows`], columns of a matrix.
    fn check_columns(&self, between: usize, before: usize, threads: usize) {
        let (size, stride) = (self.dtype.itemsize(), self.count() + between);
        let mut expected = vec![NOBODYS; self.inner[0] * stride * size];
        for (number, row) in self.rows.iter().flatten().enumerate() {
            for (column, element) in expected.chunks_mut(stride * size).zip(row.chunks(size)) {
                column[number * size..][..size].copy_from_slice(element);
            }
        }
        let of_column = |column: usize| column * stride * size..(column * stride + self.count()) * size;
        self.check(&[1, stride], before * size, expected, (0..self.inner[0]).map(of_column), threads);
    }

    /// `expected` is what the memory holds afterwards, and `lines` its bytes that may be anything if a value does not fit.
    fn check(
        &self,
        strides: &[usize],
        before: usize,
        expected: Vec<u8>,
        lines: impl Iterator<Item = Range<usize>>,
        threads: usize,
    ) {
        // On a line of the cache, as an allocation and not by its address: Miri takes any other for an accident.
        let mut block = MutableBuffer::new(0);
        block.resize(GUARD + before + expected.len() + GUARD, NOBODYS);
        let start = GUARD + before;
        let is_written = self.write(block[start..].as_mut_ptr(), strides, threads);
        let what = format!("{} {strides:?} {before} {threads} {}", self.dtype, self.field.data_type());
        assert_eq!(is_written, self.rows.is_some(), "{what}");
        if !is_written {
            lines.for_each(|line| block[start + line.start..start + line.end].fill(NOBODYS));
        }
        let (head, rest) = block.split_at(start);
        let (found, tail) = rest.split_at(expected.len());
        let differs = || std::iter::zip(found, &expected).position(|(found, expected)| found != expected);
        assert!(found == expected, "byte {:?} is not what it should be: {what}", differs());
        let around = [NOBODYS; GUARD + 64 * 16];
        assert!(around.starts_with(head) && around.starts_with(tail), "written around all rows: {what}");
    }
}

/// What becomes elements of each width: as it lies, cast, from bits, and decoded.
const WIDTHS: [(DType, &[&[Kind]]); 4] = [
    (
        DType::UInt8,
        &[&[Kind::Plain(DType::UInt8)], &[Kind::Bits], &[Kind::Plain(DType::UInt8), Kind::Bits, Kind::Bool8]],
    ),
    (
        DType::Int16,
        &[
            &[Kind::Plain(DType::Int16)],
            &[Kind::Plain(DType::Int8), Kind::Plain(DType::UInt8)],
            &[Kind::Plain(DType::Int16), Kind::Runs, Kind::Bits, Kind::Plain(DType::Int8)],
        ],
    ),
    (
        DType::Float32,
        &[
            &[Kind::Plain(DType::Float32)],
            &[Kind::Plain(DType::Float64)],
            &[Kind::Plain(DType::Int16), Kind::Dictionary, Kind::Plain(DType::Float32), Kind::Bits, Kind::Bool8],
        ],
    ),
    (
        DType::Float64,
        &[
            &[Kind::Plain(DType::Float64)],
            &[Kind::Plain(DType::Float32), Kind::Plain(DType::Int32)],
            &[Kind::Plain(DType::Float64), Kind::Runs, Kind::Plain(DType::Int64), Kind::Bits],
        ],
    ),
];

/// Counts of columns around the elements of half a line, a line, two, and a group of bits.
fn counts(dtype: DType) -> Vec<usize> {
    let line = 64 / dtype.itemsize();
    let mut counts = vec![1, 2, 3, 4, 5, line / 2 + 1, line - 1, line, line + 1, 2 * line + 3];
    counts.sort_unstable();
    counts.dedup();
    if cfg!(miri) { vec![3, line + 1] } else { counts }
}

/// Matrices of every width, source and count.
fn matrices() -> impl Iterator<Item = Source> {
    let sources = WIDTHS.iter().flat_map(|(dtype, sources)| sources.iter().map(move |kinds| (*dtype, *kinds)));
    let counted = sources.flat_map(|(dtype, kinds)| counts(dtype).into_iter().map(move |count| (dtype, kinds, count)));
    let all = counted.flat_map(|(dtype, kinds, count)| {
        [(false, &[ROWS][..]), (true, &[ROWS]), (true, &[37, 0, 33])]
            .into_iter()
            .map(move |(has_nulls, chunks)| (kinds, count, dtype, has_nulls, chunks))
    });
    let chosen = all.step_by(ONE_SOURCE_IN);
    chosen.map(|(kinds, count, dtype, has_nulls, chunks)| Source::of_kinds(kinds, count, dtype, has_nulls, chunks))
}

/// Columns with dimensions of their own: scalars, short rows and long ones.
fn columns() -> impl Iterator<Item = Source> {
    let types = [
        (DataType::UInt8, DType::UInt8),
        (DataType::Int16, DType::Int16),
        (DataType::Float32, DType::Float32),
        (DataType::Float64, DType::Float64),
    ];
    let all = types.into_iter().flat_map(|(of, dtype)| {
        [None, Some(1), Some(3), Some(20), Some(65)].into_iter().map(move |size| (of.clone(), dtype, size))
    });
    all.step_by(ONE_SOURCE_IN).map(|(of, dtype, size)| {
        let data_type = size.map_or_else(|| of.clone(), |size| list(of.clone(), size));
        let array = random_array(&data_type, ROWS, 0, &mut Random(7));
        Source::of_array(array.as_ref(), dtype, size.into_iter().map(|size| size as usize).collect())
    })
}

/// Matrices some columns of which are lists, between scalars.
fn wide() -> impl Iterator<Item = Source> {
    [[1, 3, 1, 20], [2, 1, 65, 1], [4, 4, 1, 1]].into_iter().map(|widths| {
        let column = |(index, width): (usize, usize)| {
            let of = if width == 1 { DataType::Float32 } else { list(DataType::Float32, width as i32) };
            let array = random_array(&of, ROWS, 0, &mut Random(index as u64 + 3));
            (field(&format!("c{index}"), of), array)
        };
        let array = StructArray::from(widths.into_iter().enumerate().map(column).collect::<Vec<_>>());
        Source::of_array(&array, DType::Float32, vec![widths.iter().sum()])
    })
}

#[test]
fn between_rows() {
    // Every distance for values without nulls, some for those with nulls.
    let some = matrices().enumerate().map(|(number, source)| (source, if number % 3 == 0 { 1 } else { 5 }));
    for (source, step) in some.chain(columns().chain(wide()).map(|source| (source, 1))) {
        for between in (step / 5..=MOST_BETWEEN).step_by(step) {
            // From a line on, and from between two; a thread has 64 rows or more.
            source.check_rows(between, between % 5 * (between % 2), 1 + between % 3);
        }
    }
}

#[test]
fn between_columns() {
    for source in matrices().chain(wide()).filter(|source| source.inner[0] > 1) {
        for between in [0, 1, 2, 7, 33].into_iter().take(MOST_BETWEEN) {
            source.check_columns(between, between % 2, 1 + between % 3);
        }
    }
}

#[test]
fn where_a_value_does_not_fit() {
    for (kind, dtype) in [
        (Kind::Plain(DType::Int32), DType::UInt8),
        (Kind::Plain(DType::Int64), DType::Int16),
        (Kind::Plain(DType::Float64), DType::Int16),
    ] {
        for count in counts(dtype) {
            let source = Source::of_kinds(&[kind], count, dtype, false, &[ROWS]);
            assert!(source.rows.is_none(), "random values fit");
            for between in 0..=MOST_BETWEEN {
                source.check_rows(between, 0, 1);
                source.check_columns(between, 0, 1);
            }
        }
    }
}

/// As much as is written past the cache, in rows of whole lines and in others.
#[test]
#[cfg_attr(miri, ignore = "Miri takes long for so many rows")]
fn past_the_cache() {
    for (of, dtype, count) in [(DataType::Float64, DType::Float64, 8), (DataType::Float32, DType::Float32, 32)] {
        let rows = (4 << 20) / count / dtype.itemsize() + 5;
        let column = |index: usize| {
            (field(&format!("c{index}"), of.clone()), random_array(&of, rows, 0, &mut Random(index as u64 + 3)))
        };
        let array = StructArray::from((0..count).map(column).collect::<Vec<_>>());
        let source = Source::of_array(&array, dtype, vec![count]);
        let line = 64 / dtype.itemsize();
        for (between, before) in [(0, 0), (0, 1), (1, 0), (line, 0), (line, 1), (2 * line, 0)] {
            source.check_rows(between, before, 2);
        }
        source.check_columns(line, 0, 2);
    }
}

/// Rows that end, or start, where memory that nobody can touch does: a gap is not even written with what it holds.
#[cfg(unix)]
#[expect(unsafe_code, reason = "changes what may be done with pages, and reads them")]
#[test]
#[cfg_attr(miri, ignore = "Miri has no mprotect")]
fn between_closed_pages() {
    // The largest page of any system that is tested.
    let page = 1 << 16;
    let length = (2 * ROWS + 1) * page;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: fresh memory, wherever the system has room; to touch it ends the process.
    let all = unsafe { libc::mmap(std::ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(all, libc::MAP_FAILED);
    let first = all.cast::<u8>().wrapping_add(page);
    for row in 0..ROWS {
        let open = first.wrapping_add(2 * row * page);
        // SAFETY: every second page of those.
        assert_eq!(unsafe { libc::mprotect(open.cast(), page, libc::PROT_READ | libc::PROT_WRITE) }, 0);
    }
    for source in matrices().chain(columns()).chain(wide()) {
        let inner = (0..source.inner.len()).map(|axis| source.inner[axis + 1..].iter().product::<usize>());
        let strides: Vec<usize> = std::iter::once(2 * page / source.dtype.itemsize()).chain(inner).collect();
        for start in [first, first.wrapping_add(page - source.width())] {
            assert_eq!(source.write(start, &strides, 1), source.rows.is_some());
            for (row, expected) in source.rows.iter().flatten().enumerate() {
                let row = start.wrapping_add(row * 2 * page).cast_const();
                // SAFETY: in an open page, which was written.
                assert_eq!(unsafe { std::slice::from_raw_parts(row, source.width()) }, expected);
            }
        }
    }
    // SAFETY: mapped above, and not used any more.
    unsafe { libc::munmap(all, length) };
}

/// The tests above run with the best set of this processor. Which one is read once, so that each other one has its own process.
#[cfg(target_arch = "x86_64")]
#[test]
#[cfg_attr(miri, ignore = "Miri starts no process")]
fn with_every_set_of_instructions() {
    for isa in ["portable", "avx2"] {
        let tests =
            ["between_rows", "between_columns", "where_a_value_does_not_fit", "past_the_cache", "between_closed_pages"];
        let ran = std::process::Command::new(std::env::current_exe().unwrap())
            .args(tests.map(|test| format!("gaps::{test}")))
            .arg("--exact")
            .env("ARROW_DLPACK_ISA", isa)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        let count = if cfg!(unix) { 5 } else { 4 };
        assert!(ran.status.success() && said.contains(&format!("{count} passed")), "{isa}: {said}");
    }
}
