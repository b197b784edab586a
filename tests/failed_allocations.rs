//! Does each allocation that data sizes become an error when it fails, and is everything usable afterwards?

#![allow(unsafe_code, reason = "an allocator that fails when it is told to")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails is a test that fails"
)]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    reason = "the numbers of a test are small"
)]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::num::NonZero;
use std::sync::Arc;

use arrow_array::builder::{Int32Builder, ListBuilder, StringViewBuilder};
use arrow_array::types::{Int16Type, Int32Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, DictionaryArray, FixedSizeListArray, Float32Array, Int8Array,
    Int16Array, Int32Array, Int64Array, ListArray, RunArray, StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow_dlpack::loader::{Batches, DistinctValues, LoadOptions, Place, Sharding, Shuffle, Statistic, Statistics};
use arrow_dlpack::{
    Categories, Chunks, Conversion, Converted, CopyMode, DType, DecimalMode, DeviceArray, DeviceArrayStream,
    DictionaryMode, ErrorKind, Group, MemoryOrder, NullPolicy, Pad, Result, Scalar, Selection, Tensor, matrix_to_arrow,
    to_arrow,
};
use arrow_schema::{DataType, FieldRef, TimeUnit};
use support::arrow::{field, shared};
use support::reference::read;

/// Smaller allocations are of types, names and structs, which no data sizes: they do not fail here.
const LARGE: usize = 4096;
/// The loader has a table of lanes, of which each node takes 12 KB.
const LARGE_IN_LOADER: usize = 16 << 10;
/// So many that a bit of each is large.
const ROWS: usize = 33_000;

/// Fails large allocations of the thread that tells it to.
struct Failing;

thread_local! {
    static LIMIT: Cell<usize> = const { Cell::new(LARGE) };
    /// How many large allocations succeed before one fails; `None` where none does.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    /// Whether those after it fail too.
    static FOR_GOOD: Cell<bool> = const { Cell::new(false) };
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

fn fails(size: usize) -> bool {
    if size < LIMIT.get() {
        return false;
    }
    COUNT.set(COUNT.get() + 1);
    match LEFT.get() {
        None => false,
        Some(0) => {
            LEFT.set(FOR_GOOD.get().then_some(0));
            true
        }
        Some(left) => {
            LEFT.set(Some(left - 1));
            false
        }
    }
}

// SAFETY: memory is that of the system's allocator, to which each call is handed as it is; a failure is NULL, as the trait has it.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if fails(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the layout is the caller's, of which the trait asks what the system's allocator asks.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if fails(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the layout is the caller's, of which the trait asks what the system's allocator asks.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if fails(size) {
            return std::ptr::null_mut();
        }
        // SAFETY: the block is of the system's allocator, with this layout, as the caller promises.
        unsafe { System.realloc(start, layout, size) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the block is of the system's allocator, with this layout, as the caller promises.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Failing = Failing;

/// Runs a piece of work in which large allocations fail after this many.
fn within<T>(left: Option<usize>, for_good: bool, work: impl FnOnce() -> T) -> (T, usize) {
    LEFT.set(left);
    FOR_GOOD.set(for_good);
    COUNT.set(0);
    let made = work();
    LEFT.set(None);
    (made, COUNT.get())
}

/// Fails each large allocation of a piece of work that returns tensors.
fn each_fails(name: &str, work: impl Fn() -> Result<Vec<Tensor>>) {
    each_fails_of(name, work, |made| made.iter().map(read).collect::<Vec<_>>());
}

/// Fails each large allocation of a piece of work, alone and with all after it, and asserts that the work then succeeds as it did.
fn each_fails_of<T, C: PartialEq + std::fmt::Debug>(
    name: &str,
    work: impl Fn() -> Result<T>,
    contents: impl Fn(T) -> C,
) {
    let (expected, count) = within(None, false, &work);
    let expected = contents(expected.unwrap_or_else(|error| panic!("{name}: {error}")));
    // Blocks that a conversion leaves for the next one are allocated once.
    assert!(count > 0, "{name} allocates nothing large");
    let mut refused = 0;
    for for_good in [false, true] {
        for left in 0..count {
            match within(Some(left), for_good, &work).0 {
                Ok(made) => drop(made),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Memory, "{name}, allocation {left}: {error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 0, "{name}: no allocation of {count} matters");
    assert_eq!(contents(work().unwrap()), expected, "{name}");
}

fn each(row: usize) -> bool {
    row % 7 != 3
}

fn numbers() -> ArrayRef {
    Arc::new((0..ROWS).map(|row| each(row).then_some((row % 100) as i32)).collect::<Int32Array>())
}

fn floats() -> ArrayRef {
    Arc::new((0..ROWS).map(|row| Some(row as f32)).collect::<Float32Array>())
}

fn bits() -> ArrayRef {
    Arc::new((0..ROWS).map(|row| each(row).then_some(row % 3 == 0)).collect::<BooleanArray>())
}

fn one(name: &str, array: ArrayRef, options: Conversion) {
    let array = shared(array.as_ref(), &field("x", array.data_type().clone()));
    each_fails(name, || options.to_tensor(&array).map(|tensor| vec![tensor]));
}

fn batch(columns: Vec<(&str, ArrayRef)>) -> DeviceArray {
    let fields: Vec<FieldRef> = columns.iter().map(|(name, array)| field(name, array.data_type().clone())).collect();
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let rows = StructArray::new(fields.into(), arrays, None);
    shared(&rows, &field("", rows.data_type().clone()))
}

fn lists() -> ListArray {
    ListArray::from_iter_primitive::<Int32Type, _, _>(
        (0..ROWS).map(|row| each(row).then(|| (0..row % 3).map(|item| Some(item as i32)).collect::<Vec<_>>())),
    )
}

fn filled() -> Conversion {
    Conversion::default().nulls(NullPolicy::Fill(Scalar::Int(0))).threads(NonZero::new(1))
}

#[test]
fn of_numbers() {
    one("fill", numbers(), filled());
    one("cast", numbers(), filled().dtype(DType::Float64));
    one("bfloat16", floats(), filled().dtype(DType::BFloat16));
    one("bits", bits(), filled());
    one("copy", floats(), filled().copy(CopyMode::Always));
    one("nan", numbers(), filled().dtype(DType::Float32).nulls(NullPolicy::Nan));
}

#[test]
fn of_columns_that_are_stored_as_something_else() {
    let codes: Int8Array = (0..ROWS).map(|row| each(row).then_some((row % 3) as i8)).collect();
    let dictionary = DictionaryArray::new(codes, Arc::new(Float32Array::from(vec![0.5, 1.5, 2.5])));
    one("dictionary", Arc::new(dictionary), filled().dictionary(DictionaryMode::Values));
    let ends = Int16Array::from_iter_values((1..=3300).map(|run| run * 9));
    let values = Int64Array::from_iter_values(0..3300);
    let runs = RunArray::<Int16Type>::try_new(&ends, &values).unwrap();
    one("runs", Arc::new(runs), filled());
    let decimals = Decimal128Array::from_iter_values((0..ROWS).map(|row| row as i128)).with_precision_and_scale(20, 2);
    let decimals: ArrayRef = Arc::new(decimals.unwrap());
    one("decimals", decimals.clone(), filled().dtype(DType::Float64));
    one("unscaled", decimals, filled().decimal(DecimalMode::Unscaled).dtype(DType::Int64));
    let times: ArrayRef =
        Arc::new(TimestampMicrosecondArray::from_iter_values((0..ROWS).map(|row| row as i64 * 1_000_000)));
    one("unit", times, filled().unit(TimeUnit::Second));
    let words = ["ab", "c", ""];
    let text: ArrayRef = Arc::new(StringArray::from_iter_values((0..ROWS).map(|row| words[row % 3])));
    let categories = Categories::new(Arc::new(StringArray::from(words.to_vec()))).unwrap();
    one("categories", text, filled().categories(categories));
    let pairs = FixedSizeListArray::new(field("item", DataType::Int32), 3, numbers(), None);
    one("lists", Arc::new(pairs), filled());
    let mut same = ListBuilder::new(Int32Builder::new());
    (0..ROWS / 2).for_each(|row| same.append_value([Some(row as i32), None]));
    one("length", Arc::new(same.finish()), filled().length(2));
}

#[test]
fn of_matrices_and_groups() {
    let rows = batch(vec![("a", numbers()), ("b", floats()), ("c", bits())]);
    for order in [MemoryOrder::C, MemoryOrder::F] {
        let options = filled().memory_order(order);
        each_fails("matrix", || options.to_tensor(&rows).map(|tensor| vec![tensor]));
        let chunks = [rows.clone(), rows.clone()];
        each_fails("chunks", || options.to_tensor(Chunks::new(rows.field(), &chunks)).map(|tensor| vec![tensor]));
    }
    each_fails("validity", || Conversion::default().validity(&rows).map(|tensor| vec![tensor]));
    let all = filled().select(Selection::Each(None));
    let tensors = |made: Vec<(String, Tensor)>| made.into_iter().map(|(_, tensor)| tensor).collect();
    each_fails("each", || all.to_tensors(&rows).map(tensors));
    let x = Group::matrix(["a", "b"]).dtype(DType::Float32).validity("valid");
    let groups = filled().select(Selection::Named(vec![("x".to_owned(), x), ("y".to_owned(), Group::column("c"))]));
    each_fails("groups", || groups.to_tensors(&rows).map(tensors));
}

#[test]
fn of_rows_with_different_lengths() {
    let own = lists();
    let column = shared(&own, &field("x", own.data_type().clone()));
    let ragged = |array: &DeviceArray, options: &Conversion| {
        let made = options.ragged(array)?;
        Ok(made.values().as_tensor().into_iter().chain([made.offsets()]).cloned().collect())
    };
    each_fails("ragged", || ragged(&column, &filled().copy(CopyMode::Always)));
    let text: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..ROWS).map(|row| if row % 2 == 0 { "ab" } else { "c" })));
    let text = shared(&text, &field("x", DataType::Utf8));
    each_fails("text", || ragged(&text, &filled().copy(CopyMode::Always)));
    let mut views = StringViewBuilder::new();
    (0..ROWS).for_each(|row| views.append_value(if row % 2 == 0 { "ab" } else { "a string that is not inlined" }));
    let views: ArrayRef = Arc::new(views.finish());
    let views = shared(&views, &field("x", DataType::Utf8View));
    each_fails("views", || ragged(&views, &filled()));
    for length in [Some(3), None] {
        let pad = Pad::new(Scalar::Int(0)).length(length);
        each_fails("padded", || filled().padded(&column, pad).map(|(matrix, valid)| vec![matrix, valid]));
    }
}

#[test]
fn of_the_way_back() {
    let matrix = filled().to_tensor(&batch(vec![("a", numbers()), ("b", numbers())])).unwrap();
    let as_tensor = |array: DeviceArray| Conversion::default().to_tensor(&array).map(|tensor| vec![tensor]);
    each_fails("to_arrow", || as_tensor(to_arrow(&matrix, None, CopyMode::Always)?));
    let options = arrow_dlpack::ColumnOptions::default();
    each_fails("columns", || as_tensor(matrix_to_arrow(&matrix, &["a", "b"], &options)?));
}

#[test]
fn of_batches() {
    LIMIT.set(LARGE_IN_LOADER);
    let rows = batch(vec![("a", numbers()), ("b", floats())]);
    for shuffle in [None, Some(Shuffle::new(NonZero::new(9000).unwrap(), 1))] {
        each_fails("loader", || {
            let device = rows.device().device_type();
            let stream = DeviceArrayStream::new(rows.field().clone(), device, [Ok(rows.clone())].into_iter());
            let mut load = LoadOptions::new(Sharding::new(5000, false, 0, 1)?);
            (load.prefetch, load.shuffle) = (0, shuffle);
            let batches = Batches::new(stream, &filled(), &load, &Place::start(0))?;
            let batches = batches.collect::<Result<Vec<_>>>()?;
            Ok(batches.into_iter().flat_map(|batch| batch.tensors).collect())
        });
    }
}

#[test]
fn of_batches_of_rows_with_different_lengths() {
    let own: ArrayRef = Arc::new(lists());
    let rows = batch(vec![("a", own), ("b", floats())]);
    varied_batches("varied", &rows, 4, 20_000);
}

#[test]
fn of_batches_of_long_rows() {
    // The hashes of rows read each of them whole.
    let long = ListArray::from_iter_primitive::<Int32Type, _, _>(
        (0..12).map(|row| Some((0..9000).map(|item| Some(item + row)).collect::<Vec<_>>())),
    );
    let texts = StringArray::from_iter_values((0..12).map(|row| format!("{row:>60000}")));
    let rows = batch(vec![("a", Arc::new(long)), ("b", Arc::new(texts))]);
    varied_batches("long rows", &rows, 9000, 4);
}

/// Fails each large allocation of a loader of a list `a`, padded to `length` and ragged, and of a column `b` that is passed through. Rows are not
/// shuffled: arrow-rs joins those, in memory that was asked for just before, and its own allocations end the process.
fn varied_batches(name: &str, rows: &DeviceArray, length: usize, batch_size: usize) {
    LIMIT.set(LARGE_IN_LOADER);
    let groups = vec![
        ("p".to_owned(), Group::padded("a", Pad::new(Scalar::Int(0)).length(length)).lengths("n")),
        ("r".to_owned(), Group::ragged("a")),
        ("w".to_owned(), Group::arrow(["b"])),
    ];
    let options = filled().select(Selection::Named(groups));
    each_fails(name, || {
        let device = rows.device().device_type();
        let stream = DeviceArrayStream::new(rows.field().clone(), device, [Ok(rows.clone())].into_iter());
        let mut load = LoadOptions::new(Sharding::new(batch_size, false, 0, 1)?);
        load.prefetch = 0;
        let batches = Batches::new(stream, &options, &load, &Place::start(0))?.collect::<Result<Vec<_>>>()?;
        let tensors = |made: &Converted| match made.as_ragged() {
            Some(ragged) => vec![ragged.offsets().clone()],
            None => made.as_tensor().cloned().into_iter().collect(),
        };
        Ok(batches.iter().flat_map(|batch| batch.varied.iter().flat_map(tensors)).collect())
    });
}

#[test]
fn of_what_is_computed_before_training() {
    let distinct: ArrayRef = Arc::new(Int64Array::from_iter_values((0..ROWS as i64).map(|row| row % 9000)));
    let rows = batch(vec![("a", distinct), ("b", floats())]);
    let made = || {
        let mut values = DistinctValues::new(rows.field(), &["a".to_owned()], usize::MAX)?;
        values.add(&rows)?;
        values.finish()
    };
    each_fails_of("vocabulary", made, |found| found[0].1.values().len());
    let modes =
        [("a".to_owned(), Statistic::of_name("mode").unwrap()), ("b".to_owned(), Statistic::of_name("mean").unwrap())];
    let made = || {
        let mut found = Statistics::new(rows.field(), &modes, usize::MAX)?;
        found.add(&rows)?;
        found.finish()
    };
    each_fails_of("statistics", made, |found| found);
    let words: ArrayRef = Arc::new(StringArray::from_iter_values((0..9000).map(|word| format!("word {word}"))));
    each_fails_of("categories", || Categories::new(words.clone()), |found| found.values().len());
}
