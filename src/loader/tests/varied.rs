//! Tests rows of different lengths in batches: which rows they are, and which row an error names.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int64Type};
use arrow_array::{ListArray, ListViewArray};

use super::shards::shards_of;
use super::*;
use crate::ragged::Ragged;

const TOTAL: usize = if cfg!(miri) { 60 } else { 6000 };

/// Rows of a number, which their list has as often as `times` says.
fn repeated(range: Range<usize>, times: impl Fn(usize) -> usize) -> RecordBatch {
    let number = |row| i64::try_from(row).unwrap();
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(range.clone().map(number)));
    let lists = range.map(|row| Some(vec![Some(number(row)); times(row)]));
    let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists));
    RecordBatch::try_from_iter([("row", numbers), ("ids", lists)]).unwrap()
}

fn named<const N: usize>(groups: [(&str, Group); N]) -> Conversion {
    Conversion::default().select(Selection::Named(groups.map(|(name, group)| (name.to_owned(), group)).into()))
}

fn every_form() -> [(&'static str, Group); 4] {
    let pad = Pad::new(Scalar::Int(-1)).length(3);
    [
        ("row", Group::column("row")),
        ("x", Group::padded("ids", pad).lengths("n")),
        ("r", Group::ragged("ids")),
        ("a", Group::arrow(["row"])),
    ]
}

/// The elements of a row.
fn items(ragged: &Ragged, row: usize) -> &[i64] {
    let offsets = ragged.offsets().as_slice::<i32>().unwrap();
    let [start, end] = [row, row + 1].map(|row| usize::try_from(offsets[row]).unwrap());
    &ragged.values().as_tensor().unwrap().as_slice().unwrap()[start..end]
}

/// Checks that each result has the rows whose numbers `row` has, and returns these.
fn checked(batch: &Batch) -> Vec<usize> {
    let [x, n, r, a] = &batch.varied[..] else { panic!("{batch:?}") };
    let (x, n) = (x.as_tensor().unwrap().as_slice::<i64>().unwrap(), n.as_tensor().unwrap().as_slice::<i64>().unwrap());
    let passed = a.as_arrow().unwrap().to_record_batch().unwrap();
    let passed = passed.column(0).as_primitive::<Int64Type>().values();
    let rows = batch.tensors[0].as_slice::<i64>().unwrap();
    assert_eq!((n.len(), x.len(), &passed[..]), (rows.len(), rows.len() * 3, rows));
    for (index, row) in rows.iter().enumerate() {
        let length = usize::try_from(row % 4).unwrap();
        assert_eq!((n[index], items(r.as_ragged().unwrap(), index)), (row % 4, &vec![*row; length][..]));
        let padding = std::iter::repeat_n(-1, 3 - length);
        assert!(x[index * 3..][..3].iter().copied().eq(std::iter::repeat_n(*row, length).chain(padding)), "{row}");
    }
    rows.iter().map(|row| usize::try_from(*row).unwrap()).collect()
}

fn chunks(total: usize, size: usize, times: impl Fn(usize) -> usize) -> Vec<DeviceArray> {
    let starts = (0..total).step_by(size);
    let chunks = starts.map(|start| repeated(start..total.min(start + size), &times));
    chunks.map(|chunk| DeviceArray::from_record_batch(&chunk).unwrap()).collect()
}

#[test]
fn rows_of_every_form_are_those_of_the_packed_groups() {
    for shuffle in [None, Some(Shuffle::new(NonZero::new(TOTAL * 3 / 20).unwrap(), 3))] {
        let options = LoadOptions { shuffle, ..LoadOptions::new(split(100)) };
        let source = stream_of(chunks(TOTAL, TOTAL / 9, |row| row % 4));
        let found = Batches::new(source, &named(every_form()), &options, &Place::start(0)).unwrap();
        let found: Vec<_> = found.flat_map(|batch| checked(&batch.unwrap())).collect();
        assert_eq!(found, shuffled(TOTAL, shuffle, 0));
    }
}

#[test]
fn rows_of_every_form_stay_together_in_buffers_larger_than_a_segment() {
    // A segment has four rows.
    let width = SEGMENT / 4 / size_of::<f32>();
    let item = Arc::new(Field::new("item", DataType::Float32, false));
    let arrays = [0..10, 10..20].map(|range| {
        let values = Arc::new(Float32Array::from(vec![0.0; range.len() * width]));
        let wide = FixedSizeListArray::new(item.clone(), i32::try_from(width).unwrap(), values, None);
        let rows = repeated(range, |row| row % 4);
        let columns = rows.columns().iter().cloned().chain([Arc::new(wide) as ArrayRef]);
        let batch = RecordBatch::try_from_iter(["row", "ids", "wide"].into_iter().zip(columns));
        DeviceArray::from_record_batch(&batch.unwrap()).unwrap()
    });
    let [row, x, r, a] = every_form();
    let conversion = named([row, ("wide", Group::column("wide")), x, r, a]);
    let shuffle = Some(Shuffle::new(NonZero::new(11).unwrap(), 3));
    let options = LoadOptions { shuffle, ..LoadOptions::new(split(3)) };
    let found = Batches::new(stream_of(arrays.into()), &conversion, &options, &Place::start(0)).unwrap();
    let found: Vec<_> = found.flat_map(|batch| checked(&batch.unwrap())).collect();
    assert_eq!(found, shuffled(20, shuffle, 0));
}

#[test]
fn list_views_of_a_batch_have_no_elements_of_other_rows() {
    let rows = repeated(0..9, |row| row % 4);
    let views: ArrayRef = Arc::new(ListViewArray::from(rows.column(1).as_list::<i32>().clone()));
    let array = DeviceArray::from_record_batch(&RecordBatch::try_from_iter([("ids", views)]).unwrap()).unwrap();
    let options = LoadOptions::new(split(3));
    let conversion = named([("r", Group::ragged("ids"))]);
    let found = Batches::new(stream_of(vec![array]), &conversion, &options, &Place::start(0)).unwrap();
    let elements = found.map(|batch| batch.unwrap().varied[0].as_ragged().unwrap().values().len());
    assert_eq!(elements.collect::<Vec<_>>(), [3, 4, 5]);
}

#[test]
fn a_row_that_is_too_long_is_named_by_its_shard_and_number() {
    let half = TOTAL / 2;
    let shuffle = Shuffle::new(NonZero::new(TOTAL * 3 / 20).unwrap(), 3);
    // The oldest of the rows that wait last: it has been copied out of its array.
    let order = shuffled(TOTAL, Some(shuffle), 0);
    let oldest = *order[TOTAL - shuffle.buffer.get()..].iter().min().unwrap();
    for (shuffle, wrong) in [(None, half + 7), (None, TOTAL - 3), (Some(shuffle), oldest)] {
        let shards = shards_of(&[half, half], move |shard| {
            chunks(half, half / 5, |row| if shard * half + row == wrong { 3 } else { row % 3 })
        });
        let pad = Pad::new(Scalar::Int(0)).length(2);
        let options = LoadOptions { shuffle, ..LoadOptions::new(split(4)) };
        let conversion = named([("x", Group::padded("ids", pad))]);
        let found = Batches::of_shards(&shards, &conversion, &options, &Place::start(0)).unwrap();
        let error = found.filter_map(Result::err).next().unwrap();
        assert_eq!((error.column(), error.row()), (Some("ids"), Some(wrong % half)), "{error}");
        assert!(error.reason().contains(&format!("shard {}", wrong / half)), "{error}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "needs thousands of rows")]
fn waiting_rows_with_more_values_than_codes_count_are_copied_apart() {
    // A sixteenth of the buffer, which is copied together, has 160 words, and a code of 8 bits counts 128.
    let (arrays, each, buffer) = (90, 64, 2560);
    let word = |row: usize| format!("word {row}");
    let array = |array: usize| {
        let words: Vec<String> = (array * each..(array + 1) * each).map(word).collect();
        let words: ArrayRef = Arc::new(words.iter().map(String::as_str).collect::<DictionaryArray<Int8Type>>());
        DeviceArray::from_record_batch(&RecordBatch::try_from_iter([("w", words)]).unwrap()).unwrap()
    };
    let shuffle = Some(Shuffle::new(NonZero::new(buffer).unwrap(), 5));
    let options = LoadOptions { shuffle, prefetch: 0, ..LoadOptions::new(split(10)) };
    let stream = stream_of((0..arrays).map(array).collect());
    let conversion = named([("w", Group::arrow(["w"]))]);
    let mut found = Vec::new();
    for batch in Batches::new(stream, &conversion, &options, &Place::start(0)).unwrap() {
        let [words] = &batch.unwrap().varied[..] else { panic!("one group") };
        let words = words.as_arrow().unwrap().to_record_batch().unwrap();
        let words = words.column(0).as_dictionary::<Int8Type>().clone();
        let words = words.downcast_dict::<arrow_array::StringArray>().unwrap();
        found.extend(words.into_iter().map(|word| word.unwrap().to_owned()));
    }
    let expected: Vec<String> = shuffled(arrays * each, shuffle, 0).into_iter().map(word).collect();
    assert_eq!(found, expected);
}
