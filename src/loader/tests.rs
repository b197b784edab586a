//! Tests the batches, the order of rows and resuming, against docs/loader.md.

mod bytes;
mod hashes;
mod selected;
mod shards;
mod varied;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use arrow_array::{ArrayRef, DictionaryArray, FixedSizeListArray, Float32Array, Int32Array, Int64Array, RecordBatch};
use arrow_buffer::{Buffer, ScalarBuffer};
use arrow_schema::{DataType, Field, FieldRef};
use proptest::prelude::*;

use std::num::NonZero;

use super::draws::Draws;
use super::shuffle::SEGMENT;
use super::*;
use crate::arrow::DeviceArray;
use crate::dtype::DType;
use crate::error::ErrorKind;
use crate::ffi::dlpack::DLDeviceType;
use crate::spec::{Group, NullPolicy, Pad, PandasIndex, PerColumn, Scalar, Selection};

/// A batch of one column, which names its rows by number.
fn rows(from: usize, count: usize) -> DeviceArray {
    let numbers = (from..from + count).map(|row| i64::try_from(row).unwrap());
    batch(Int64Array::from_iter_values(numbers))
}

fn batch(column: Int64Array) -> DeviceArray {
    let column: ArrayRef = Arc::new(column);
    DeviceArray::from_record_batch(&RecordBatch::try_from_iter_with_nullable([("row", column, true)]).unwrap()).unwrap()
}

fn stream_of(arrays: Vec<DeviceArray>) -> DeviceArrayStream {
    let field = arrays.first().map_or_else(|| rows(0, 0).field().clone(), |array| array.field().clone());
    stream(field, arrays.into_iter().map(Ok))
}

fn stream(field: FieldRef, arrays: impl Iterator<Item = Result<DeviceArray>> + Send + 'static) -> DeviceArrayStream {
    DeviceArrayStream::new(field, DLDeviceType::CPU, arrays)
}

/// Rows 0, 1, 2, … in chunks of these lengths.
fn chunked(lengths: &[usize]) -> DeviceArrayStream {
    let mut from = 0;
    let arrays = lengths.iter().map(|length| {
        from += length;
        rows(from - length, *length)
    });
    stream_of(arrays.collect())
}

fn open(stream: DeviceArrayStream, options: &LoadOptions) -> Batches {
    Batches::new(stream, &Conversion::default(), options, &Place::start(0)).unwrap()
}

fn numbers(batch: &Batch) -> Vec<usize> {
    let column = batch.tensors[0].as_slice::<i64>().unwrap();
    assert_eq!(column.len(), batch.rows);
    column.iter().map(|row| usize::try_from(*row).unwrap()).collect()
}

fn all(batches: Batches) -> Vec<Vec<usize>> {
    batches.map(|batch| numbers(&batch.unwrap())).collect()
}

fn split(batch_size: usize) -> Sharding {
    Sharding::new(batch_size, false, 0, 1).unwrap()
}

/// The order of rows, by the words of docs/loader.md.
fn shuffled(rows: usize, shuffle: Option<Shuffle>, epoch: u64) -> Vec<usize> {
    let Some(Shuffle { buffer, seed, .. }) = shuffle else { return (0..rows).collect() };
    let mut draws = Draws::of_rows(seed, 0, epoch);
    let mut coming = 0..rows;
    let mut waiting: Vec<usize> = coming.by_ref().take(buffer.get()).collect();
    let mut left = Vec::new();
    for row in coming {
        let pick = draws.below(waiting.len());
        left.push(std::mem::replace(&mut waiting[pick], row));
    }
    while !waiting.is_empty() {
        left.push(waiting.swap_remove(draws.below(waiting.len())));
    }
    left
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 300 }))]
    #[test]
    fn the_order_is_the_documents_whatever_the_chunks_and_threads(
        lengths in proptest::collection::vec(0_usize..if cfg!(miri) { 20 } else { 60 }, 0..8),
        size in 1_usize..40,
        drop_last: bool,
        (world, rank) in (1_usize..4).prop_flat_map(|world| (Just(world), 0..world)),
        (buffer, seed, epoch) in (0_usize..300, any::<u64>(), 0_u64..3),
        prefetch in 0_usize..4,
        (start, told, saved) in (0_usize..200, any::<bool>(), 1_usize..40),
    ) {
        let sharding = Sharding::new(size, drop_last, rank, world).unwrap();
        let shuffle = NonZero::new(buffer).map(|buffer| Shuffle::new(buffer, seed));
        let total = lengths.iter().sum();
        let rows = shuffled(total, shuffle, epoch);
        let mut batches: Vec<Vec<usize>> = rows[start.min(total)..].chunks(size).map(<[usize]>::to_vec).collect();
        batches.retain(|batch| !drop_last || batch.len() == size);
        batches.truncate(batches.len() / world * world);
        let in_batches: usize = batches.iter().map(Vec::len).sum();
        let mine: Vec<Vec<usize>> = batches.into_iter().skip(rank).step_by(world).collect();
        let options = LoadOptions { shuffle, prefetch, ..LoadOptions::new(sharding) };
        let mut whole = Batches::new(chunked(&lengths), &Conversion::default(), &options, &Place::start(epoch)).unwrap();
        for batch in whole.by_ref() {
            batch.unwrap();
        }
        let digests = whole.log().digests(|_| Some(usize::MAX));
        // Each row is in the hashes, whichever rank takes it and however it is passed.
        let known = KnownState { batch_size: saved, of_others: Some(OfOthers::default()), rows: told.then_some(total), had: None, digests: digests.clone(), dictionaries: DictionaryHashes::default(), all: false };
        let place = Place::after(epoch, vec![start], 0).unwrap();
        let mut found = Batches::resume(
            &Shards::of_stream(None), (0, chunked(&lengths)), &Conversion::default(), &options, &place, &known,
        ).unwrap();
        if start < total + saved {
            prop_assert_eq!(found.by_ref().map(|batch| numbers(&batch.unwrap())).collect::<Vec<_>>(), mine);
            prop_assert_eq!(found.left_out(), Some(total.saturating_sub(start) - in_batches));
            prop_assert_eq!(found.log().digests(|_| Some(usize::MAX)), digests);
        } else {
            let error = found.map(|batch| batch.map(|_| ())).collect::<Result<Vec<_>>>().unwrap_err();
            prop_assert_eq!(error.kind(), ErrorKind::Argument);
        }
    }
}

#[test]
fn buffers_larger_than_a_segment_keep_every_row() {
    // A segment has four rows.
    let width = SEGMENT / 4 / size_of::<f32>();
    let field = Arc::new(Field::new("item", DataType::Float32, false));
    let lists = |from: usize| -> ArrayRef {
        let values = (from..from + 10).flat_map(|row| std::iter::repeat_n(row as f32, width));
        let values = Arc::new(Float32Array::from_iter_values(values));
        Arc::new(FixedSizeListArray::new(field.clone(), i32::try_from(width).unwrap(), values, None))
    };
    let arrays: Vec<_> = [0, 10]
        .map(|from| DeviceArray::from_record_batch(&RecordBatch::try_from_iter([("x", lists(from))]).unwrap()).unwrap())
        .into();
    let shuffle = Some(Shuffle::new(NonZero::new(11).unwrap(), 3));
    let options = LoadOptions { shuffle, ..LoadOptions::new(split(3)) };
    let named = Selection::Named(vec![("x".to_owned(), Group::column("x".to_owned()))]);
    let named = Conversion::default().select(named);
    let found = Batches::new(stream_of(arrays), &named, &options, &Place::start(1)).unwrap();
    let found: Vec<f32> = found
        .flat_map(|batch| {
            let rows = batch.unwrap().tensors.remove(0);
            let rows: Vec<f32> = rows
                .as_slice::<f32>()
                .unwrap()
                .chunks(width)
                .map(|row| {
                    assert!(row.iter().all(|value| *value == row[0]));
                    row[0]
                })
                .collect();
            rows
        })
        .collect();
    let expected: Vec<f32> = shuffled(20, shuffle, 1).into_iter().map(|row| row as f32).collect();
    assert_eq!(found, expected);
}

#[test]
fn epochs_hand_on_their_memory() {
    for buffer in [0, 700, 10_000] {
        let shuffle = NonZero::new(buffer).map(|buffer| Shuffle::new(buffer, 1));
        let options = LoadOptions { shuffle, prefetch: 0, ..LoadOptions::new(split(100)) };
        let epoch = |epoch| {
            let batches = Batches::new(chunked(&[300; 4]), &Conversion::default(), &options, &Place::start(epoch));
            let mut rows: Vec<usize> = all(batches.unwrap()).concat();
            rows.sort_unstable();
            assert_eq!(rows, (0..1200).collect::<Vec<_>>());
            options.memory.addresses()
        };
        let left = epoch(0);
        // One batch at a time, and one block of the buffer.
        assert_eq!(left.len(), if buffer == 0 { 1 } else { 2 });
        assert_eq!(epoch(1), left);
        assert_eq!(options.clone().memory.addresses(), left);
        assert!(LoadOptions::new(split(100)).memory.addresses().is_empty());
    }
}

#[test]
fn a_batch_that_is_held_is_never_written_and_others_share_few_blocks() {
    let lengths = vec![7; if cfg!(miri) { 10 } else { 300 }];
    for prefetch in [0, 1, 2, 5] {
        let options = LoadOptions { prefetch, ..LoadOptions::new(split(10)) };
        let mut addresses = HashSet::new();
        let mut held = Vec::new();
        for (index, batch) in open(chunked(&lengths), &options).enumerate() {
            let batch = batch.unwrap();
            assert_eq!(numbers(&batch), (index * 10..index * 10 + 10).collect::<Vec<_>>());
            addresses.insert(batch.tensors[0].as_ptr());
            if index % 50 == 3 {
                held.push((index, batch));
            }
        }
        for (index, batch) in &held {
            assert_eq!(numbers(batch), (index * 10..index * 10 + 10).collect::<Vec<_>>());
        }
        assert!(addresses.len() <= prefetch + 2 + held.len(), "{} blocks at prefetch={prefetch}", addresses.len());
    }
}

/// The buffers of arrays, by which it is seen how many of these are alive.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<Buffer>>>);

impl Seen {
    fn rows(&self, from: usize, count: usize) -> DeviceArray {
        let numbers: Vec<i64> = (from..from + count).map(|row| i64::try_from(row).unwrap()).collect();
        let buffer = Buffer::from_vec(numbers);
        self.0.lock().unwrap().push(buffer.clone());
        batch(Int64Array::new(ScalarBuffer::new(buffer, 0, count), None))
    }

    fn alive(&self) -> usize {
        self.0.lock().unwrap().iter().filter(|buffer| buffer.strong_count() > 1).count()
    }
}

#[test]
fn one_array_of_the_source_is_held_at_a_time() {
    let count = if cfg!(miri) { 8 } else { 40 };
    for shuffle in [None, Some(Shuffle::new(NonZero::new(25).unwrap(), 0))] {
        let seen = Seen::default();
        let arrays = {
            let seen = seen.clone();
            (0..count).map(move |index| {
                let array = seen.rows(index * 10, 10);
                assert_eq!(seen.alive(), 1);
                Ok(array)
            })
        };
        let options = LoadOptions { shuffle, ..LoadOptions::new(split(15)) };
        assert_eq!(all(open(stream(rows(0, 0).field().clone(), arrays), &options)).concat().len(), count * 10);
        assert_eq!(seen.alive(), 0);
    }
}

type Failure = fn() -> Result<DeviceArray>;

/// A stream of ten rows an array that fails instead of giving array number `fail`.
fn failing(fail: usize, seen: &Seen, failure: Failure) -> DeviceArrayStream {
    let seen = seen.clone();
    let arrays = (0..).map(move |index| if index == fail { failure() } else { Ok(seen.rows(index * 10, 10)) });
    stream(rows(0, 0).field().clone(), arrays)
}

#[test]
fn what_fails_is_told_after_the_good_batches_and_then_there_is_nothing() {
    let failures: [(Failure, &str); 2] =
        [(|| Err(Error::invalid("lost")), "lost"), (|| panic!("on purpose"), "on purpose")];
    for prefetch in [0, 1, 2, 9] {
        for (failure, text) in failures {
            for size in [3, 10, 25, 100].into_iter().step_by(if cfg!(miri) { 2 } else { 1 }) {
                let seen = Seen::default();
                let options = LoadOptions { prefetch, ..LoadOptions::new(split(size)) };
                let mut found = open(failing(5, &seen, failure), &options);
                for index in 0..50 / size {
                    let batch = found.next().unwrap().unwrap();
                    assert_eq!(numbers(&batch), (index * size..(index + 1) * size).collect::<Vec<_>>());
                }
                let error = found.next().unwrap().unwrap_err();
                assert!(error.reason().ends_with(text), "{error}");
                assert!(found.next().is_none() && found.next().is_none());
                assert_eq!(seen.alive(), 0);
            }
        }
    }
}

#[test]
fn nulls_and_misfits_are_told_by_the_row_of_the_source_at_their_batch() {
    let nulls = |from: i64| batch(Int64Array::from_iter((from..from + 10).map(|row| (row != 27).then_some(row))));
    let source = || stream_of([0, 10, 20, 30].map(nulls).into());
    let options = LoadOptions::new(split(6));
    let mut found = open(source(), &options);
    for _ in 0..4 {
        found.next().unwrap().unwrap();
    }
    let error = found.next().unwrap().unwrap_err();
    assert_eq!((error.kind(), error.column(), error.row()), (ErrorKind::Null, Some("row"), Some(27)));
    let to_int8 = Conversion::default().dtype(DType::Int8);
    let large = batch(Int64Array::from_iter_values(120..140));
    let selection = Selection::Named(vec![("n".to_owned(), Group::column("row".to_owned()))]);
    for selection in [Selection::Whole(None), selection] {
        let mut found = Batches::new(
            stream_of(vec![nulls(0), large.clone()]),
            &to_int8.clone().select(selection),
            &options,
            &Place::start(0),
        )
        .unwrap();
        for _ in 0..3 {
            found.next().unwrap().unwrap();
        }
        let error = found.next().unwrap().unwrap_err();
        assert_eq!((error.kind(), error.column(), error.row()), (ErrorKind::Cast, Some("row"), Some(18)));
    }
}

#[test]
fn dropping_at_any_moment_releases_everything() {
    for prefetch in [0, 1, 3] {
        for taken in [0, 1, 4] {
            let seen = Seen::default();
            let shuffle = Some(Shuffle::new(NonZero::new(12).unwrap(), 0));
            let options = LoadOptions { prefetch, shuffle, ..LoadOptions::new(split(4)) };
            let mut found = open(failing(usize::MAX, &seen, || Err(Error::invalid("never"))), &options);
            for _ in 0..taken {
                found.next().unwrap().unwrap();
            }
            match taken {
                4 => found.close(),
                _ => drop(found),
            }
            assert_eq!(seen.alive(), 0);
        }
    }
}

#[test]
fn a_closed_iteration_is_at_its_end() {
    for prefetch in [0, 2] {
        let options = LoadOptions { prefetch, ..LoadOptions::new(split(4)) };
        let mut found = open(chunked(&[100]), &options);
        found.next().unwrap().unwrap();
        assert!(found.stop(Duration::from_secs(60)));
        assert!(found.next().is_none());
    }
}

#[test]
fn groups_have_the_rows_of_each_other() {
    let item = Arc::new(Field::new("item", DataType::Int32, false));
    let pairs = |from: i32| -> ArrayRef {
        Arc::new(FixedSizeListArray::new(
            item.clone(),
            2,
            Arc::new(Int32Array::from_iter_values(from..from + 40)),
            None,
        ))
    };
    let column = |from: i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values(from..from + 20)) };
    let chunk = |from: i32| {
        let columns = [("a", column(from.into())), ("p", pairs(from * 2)), ("b", column(i64::from(from) + 1000))];
        DeviceArray::from_record_batch(&RecordBatch::try_from_iter(columns).unwrap()).unwrap()
    };
    let selection = Selection::Named(vec![
        ("x".to_owned(), Group::matrix(["b".to_owned(), "a".to_owned()])),
        ("y".to_owned(), Group::column("a".to_owned())),
        ("z".to_owned(), Group::column("p".to_owned())),
    ]);
    let shuffle = Some(Shuffle::new(NonZero::new(17).unwrap(), 5));
    let options = LoadOptions { shuffle, ..LoadOptions::new(split(7)) };
    let source = stream_of(vec![chunk(0), chunk(20), chunk(40)]);
    let mut seen = Vec::new();
    for batch in Batches::new(source, &Conversion::default().select(selection), &options, &Place::start(0)).unwrap() {
        let batch = batch.unwrap();
        let [x, y, z] = &batch.tensors[..] else { panic!("{batch:?}") };
        let count = i64::try_from(batch.rows).unwrap();
        assert_eq!((x.shape(), y.shape(), z.shape()), (&[count, 2][..], &[count][..], &[count, 2][..]));
        let rows = x.as_slice::<i64>().unwrap().chunks(2).zip(z.as_slice::<i32>().unwrap().chunks(2));
        for ((x, z), y) in rows.zip(y.as_slice::<i64>().unwrap()) {
            assert_eq!((x, z), (&[y + 1000, *y][..], &[2 * y, 2 * y + 1].map(|part| i32::try_from(part).unwrap())[..]));
            seen.push(usize::try_from(*y).unwrap());
        }
    }
    assert_eq!(seen, shuffled(60, shuffle, 0));
}

#[test]
fn validity_goes_with_its_rows() {
    let column = |skipped: i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter((0..50).map(|row| (row % skipped != 1).then_some(row))))
    };
    let chunk = RecordBatch::try_from_iter([("a", column(3)), ("b", column(7)), ("row", column(1))]).unwrap();
    let chunk = DeviceArray::from_record_batch(&chunk).unwrap();
    let selection = Selection::Named(vec![
        ("x".to_owned(), Group::matrix(["a", "b"]).nulls(NullPolicy::Keep).validity("valid")),
        ("row".to_owned(), Group::column("row").validity("row valid")),
    ]);
    let conversion = Conversion::default().select(selection);
    for shuffle in [None, Some(Shuffle::new(NonZero::new(9).unwrap(), 2))] {
        let options = LoadOptions { shuffle, ..LoadOptions::new(split(8)) };
        let source = stream_of(vec![chunk.clipped(&(0..13)), chunk.clipped(&(13..50))]);
        let mut count = 0;
        for batch in Batches::new(source, &conversion, &options, &Place::start(0)).unwrap() {
            let batch = batch.unwrap();
            let [x, valid, row, row_valid] = &batch.tensors[..] else { panic!("{batch:?}") };
            assert_eq!((x.shape(), valid.shape(), row_valid.shape()), (valid.shape(), x.shape(), row.shape()));
            assert!(row_valid.as_bytes().unwrap().iter().all(|flag| *flag == 1));
            let pairs = x.as_slice::<i64>().unwrap().chunks(2).zip(valid.as_bytes().unwrap().chunks(2));
            for ((x, valid), row) in pairs.zip(row.as_slice::<i64>().unwrap()) {
                let expected = [row % 3 != 1, row % 7 != 1];
                assert_eq!(valid, expected.map(u8::from), "{row}");
                assert_eq!(x, expected.map(|is_valid| if is_valid { *row } else { 0 }));
                count += 1;
            }
        }
        assert_eq!(count, 50);
    }
}

#[test]
fn codes_have_to_be_of_one_dictionary() {
    let chunk = |words: [&str; 3]| {
        let codes: ArrayRef = Arc::new(words.into_iter().collect::<DictionaryArray<arrow_array::types::Int8Type>>());
        DeviceArray::from_record_batch(&RecordBatch::try_from_iter([("w", codes)]).unwrap()).unwrap()
    };
    let named = Selection::Named(vec![("w".to_owned(), Group::column("w".to_owned()))]);
    let options = LoadOptions::new(split(2));
    for selection in [named, Selection::Whole(None)] {
        let conversion = Conversion::default().select(selection);
        let open = |arrays| Batches::new(stream_of(arrays), &conversion, &options, &Place::start(0));
        let found: Vec<_> =
            open(vec![chunk(["a", "b", "a"]), chunk(["a", "b", "b"])]).unwrap().map(Result::unwrap).collect();
        assert_eq!(found.iter().map(|batch| batch.rows).collect::<Vec<_>>(), [2, 2, 2]);
        assert_eq!(found[2].tensors[0].as_slice::<i8>().unwrap(), [1, 1]);
        let dictionary = found[0].tensors[0].dictionary().map(DeviceArray::len);
        assert_eq!(dictionary, matches!(&conversion.selection, Selection::Named(_)).then_some(2));
        let mut found = open(vec![chunk(["a", "b", "a"]), chunk(["b", "a", "b"])]).unwrap();
        found.next().unwrap().unwrap();
        let error = found.next().unwrap().unwrap_err();
        assert_eq!((error.column(), error.kind()), (Some("w"), ErrorKind::Unsupported));
        assert!(error.remedy().is_some());
    }
}

#[test]
fn what_is_no_batch_is_refused_before_anything_is_read() {
    let selections = [
        Selection::Named(Vec::new()),
        Selection::Named(vec![("x".to_owned(), Group::column("none".to_owned()))]),
        Selection::Whole(Some(vec!["row".to_owned(), "row".to_owned()])),
    ];
    for selection in selections {
        let unread = stream(rows(0, 0).field().clone(), std::iter::from_fn(|| panic!("read")));
        let options = LoadOptions::new(split(2));
        assert!(Batches::new(unread, &Conversion::default().select(selection), &options, &Place::start(0)).is_err());
    }
    let named = |group| Conversion::default().select(Selection::Named(vec![("x".to_owned(), group)]));
    let conversions = [
        Conversion::default().nulls(NullPolicy::Keep),
        Conversion::default().nulls(PerColumn::named([("row", NullPolicy::Keep)])),
        named(Group::column("row")).nulls(NullPolicy::Keep),
        named(Group::padded("row", Pad::new(Scalar::Int(0))).nulls(NullPolicy::Keep)),
    ];
    for kept in conversions {
        let refused = Batches::new(chunked(&[3]), &kept, &LoadOptions::new(split(2)), &Place::start(0)).unwrap_err();
        assert!(refused.remedy().unwrap().contains("Group::validity"), "{refused}");
    }
    let huge = LoadOptions::new(split(usize::MAX));
    let refused = Batches::new(chunked(&[3]), &Conversion::default(), &huge, &Place::start(0));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Memory);
}

#[test]
fn a_batch_larger_than_the_source_takes_no_more_memory_than_that() {
    // 8 TiB, if it were full.
    let options = LoadOptions::new(split(1 << 40));
    let lengths = [100_000, 1, 200_000, 50_000].map(|length: usize| length.div_ceil(if cfg!(miri) { 1000 } else { 1 }));
    let found = all(open(chunked(&lengths), &options));
    assert_eq!(found, [(0..lengths.iter().sum()).collect::<Vec<_>>()]);
}

#[test]
fn an_index_of_pandas_is_a_column_unless_the_options_leave_it_out() {
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let batch = RecordBatch::try_from_iter([("row", column.clone()), ("__index_level_0__", column)]).unwrap();
    let options = LoadOptions::new(split(2));
    for (index, columns) in [(PandasIndex::Keep, 2), (PandasIndex::KeepNamed, 1)] {
        let conversion = Conversion::default().index(index);
        let stream = stream_of(vec![DeviceArray::from_record_batch(&batch).unwrap()]);
        let batch = Batches::new(stream, &conversion, &options, &Place::start(0)).unwrap().next().unwrap().unwrap();
        assert_eq!(batch.tensors[0].shape(), [2, columns]);
    }
}
