//! Tests the limit of the bytes of the rows in shuffle buffers: to the byte, also of resumed iterations.

use arrow_array::StringArray;

use super::shards::shards_of;
use super::*;

const TOTAL: usize = 100;

/// Later rows have longer texts.
fn letters(row: usize) -> usize {
    row / 4 + row * 7 % 5
}

/// A number, and the place and the letters of a text.
fn bytes_of(row: usize, letters: impl Fn(usize) -> usize) -> usize {
    8 + 8 + letters(row)
}

fn texts(range: Range<usize>, letters: impl Fn(usize) -> usize) -> DeviceArray {
    let numbers: ArrayRef =
        Arc::new(Int64Array::from_iter_values(range.clone().map(|row| i64::try_from(row).unwrap())));
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(range.map(|row| "x".repeat(letters(row)))));
    DeviceArray::from_record_batch(&RecordBatch::try_from_iter([("row", numbers), ("text", texts)]).unwrap()).unwrap()
}

fn both() -> Conversion {
    let groups = [("row", Group::column("row")), ("text", Group::arrow(["text"]))];
    Conversion::default().select(Selection::Named(groups.map(|(name, group)| (name.to_owned(), group)).into()))
}

fn limited(buffer: usize, bytes: usize) -> Option<Shuffle> {
    Some(Shuffle { bytes: NonZero::new(bytes), ..Shuffle::new(NonZero::new(buffer).unwrap(), 3) })
}

/// The most bytes that wait in a buffer of 20 rows, once `taken` rows have left it.
fn most_bytes(taken: usize) -> usize {
    let order = shuffled(TOTAL, limited(20, 1), 0);
    let sum = |rows: &[usize]| rows.iter().map(|row| bytes_of(*row, letters)).sum::<usize>();
    let source: Vec<usize> = (0..TOTAL).collect();
    let held = |left: usize| sum(&source[..(left + 20).min(TOTAL)]) - sum(&order[..left]);
    (taken..TOTAL).map(held).max().unwrap()
}

#[test]
fn a_buffer_may_hold_so_many_bytes_and_not_one_more() {
    for taken in [0, 30, 75] {
        for (bytes, fits) in [(most_bytes(taken), true), (most_bytes(taken) - 1, false)] {
            let options = LoadOptions { shuffle: limited(20, bytes), prefetch: 0, ..LoadOptions::new(split(5)) };
            let source = stream_of(vec![texts(0..60, letters), texts(60..TOTAL, letters)]);
            let known = KnownState { rows: Some(TOTAL), ..KnownState::nothing() };
            let place = Place::after(0, vec![taken], 0).unwrap();
            let found = Batches::resume(&Shards::of_stream(None), (0, source), &both(), &options, &place, &known);
            match found.unwrap().map(|batch| batch.map(|batch| numbers(&batch))).collect::<Result<Vec<_>>>() {
                Ok(found) => {
                    assert_eq!((found.concat(), fits), (shuffled(TOTAL, options.shuffle, 0)[taken..].to_vec(), true))
                }
                Err(error) => {
                    assert!(!fits && error.reason().ends_with(&format!("may hold {bytes}")), "{taken}: {error}")
                }
            }
        }
    }
}

#[test]
fn rows_without_texts_count_by_their_values() {
    for (bytes, told) in [(80, Some("holds 80 bytes in 10 rows")), (160, None)] {
        let options = LoadOptions { shuffle: limited(20, bytes), ..LoadOptions::new(split(10)) };
        match open(chunked(&[60, 40]), &options).map(|batch| batch.map(|batch| batch.rows)).collect::<Result<Vec<_>>>()
        {
            Ok(found) => assert_eq!((found, told), (vec![10; 10], None)),
            Err(error) => assert!(told.is_some_and(|told| error.reason().contains(told)), "{bytes}: {error}"),
        }
    }
}

#[test]
fn rows_that_leave_after_the_end_of_their_lane_make_room_for_those_of_others() {
    // Lanes of 12 and 13 rows, of which 8 wait. The last row is longer than the others. Four rows of the first lane have left
    // when it comes.
    let letters = |row| if row == 24 { 64 } else { 0 };
    let shards = shards_of(&[25], move |_| vec![texts(0..25, letters)]);
    let bytes = 16 * bytes_of(0, letters);
    let options = LoadOptions { shuffle: limited(16, bytes), prefetch: 0, ..LoadOptions::new(split(4)) };
    let place = Place::after(0, vec![0, 0], 0).unwrap();
    let mut found = Batches::of_shards(&shards, &both(), &options, &place).unwrap();
    assert_eq!(found.by_ref().map(|batch| batch.unwrap().rows).collect::<Vec<_>>(), [4; 6]);
    assert_eq!(found.left_out(), Some(1));
}

#[test]
fn a_source_with_fewer_rows_than_a_state_knows_is_refused() {
    let options = LoadOptions { shuffle: limited(20, 160), prefetch: 0, ..LoadOptions::new(split(10)) };
    for taken in TOTAL - 19..TOTAL + 5 {
        let known = KnownState { rows: Some(TOTAL + 5), ..KnownState::nothing() };
        let place = Place::after(0, vec![taken], 0).unwrap();
        let source = (0, chunked(&[60, 40]));
        let found = Batches::resume(&Shards::of_stream(None), source, &Conversion::default(), &options, &place, &known);
        let error = found.unwrap().find_map(Result::err).unwrap();
        assert!(error.reason().ends_with("said to have 105 rows, and has 100"), "{taken}: {error}");
    }
}
