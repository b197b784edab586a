//! Tests the hashes of rows of different lengths: equal for equal rows, however they are stored, and else different.

use arrow_array::types::{
    Date32Type, Date64Type, DurationSecondType, Int8Type, Int32Type, Time32SecondType, Time64NanosecondType,
    TimestampSecondType,
};
use arrow_array::{
    Array, LargeListArray, LargeListViewArray, ListArray, ListViewArray, MapArray, PrimitiveArray, RunArray,
    StringArray, StructArray, UnionArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::UnionFields;

use super::shards::of_column;
use super::*;
use crate::spec::Side;

/// The digest of the rows of arrays, of which the first `taken` ones are skipped.
fn digest(arrays: Vec<DeviceArray>, group: &Group, taken: usize) -> Digest {
    let conversion = Conversion::default().select(Selection::Named(vec![("x".to_owned(), group.clone())]));
    let options = LoadOptions { prefetch: 0, ..LoadOptions::new(split(3)) };
    let (place, shards) = (Place::after(0, vec![taken], 0).unwrap(), Shards::of_stream(None));
    let source = (0, stream_of(arrays));
    let mut found = Batches::resume(&shards, source, &conversion, &options, &place, &KnownState::nothing()).unwrap();
    found.by_ref().for_each(|batch| drop(batch.unwrap()));
    found.log().digests(|_| Some(usize::MAX))[&0]
}

/// The digest of a column, which is the same in other chunks and of skipped rows.
fn digest_of(column: &ArrayRef, group: &Group) -> Digest {
    let array = of_column(Field::new("c", column.data_type().clone(), true), column.clone());
    let chunks = |cuts: &[usize]| cuts.windows(2).map(|cut| array.clipped(&(cut[0]..cut[1]))).collect::<Vec<_>>();
    let whole = digest(chunks(&[0, column.len()]), group, 0);
    assert_eq!(whole.samples, column.len());
    assert_eq!(digest(chunks(&[0, 1, column.len()]), group, 0), whole, "{}", column.data_type());
    assert_eq!(digest(chunks(&[0, column.len()]), group, column.len() - 1), whole, "{}", column.data_type());
    whole
}

/// Lists of these lengths, the second of which is null.
fn lists(values: impl IntoIterator<Item = i64>, lengths: [usize; 4], second: bool) -> ArrayRef {
    let item = Arc::new(Field::new("item", DataType::Int64, true));
    let nulls = NullBuffer::from(vec![true, second, true, true]);
    let values = Arc::new(Int64Array::from_iter_values(values));
    Arc::new(ListArray::new(item, OffsetBuffer::from_lengths(lengths), values, Some(nulls)))
}

#[test]
fn equal_lists_have_equal_hashes() {
    let pad = Pad::new(Scalar::Int(0)).length(3);
    let padded = |pad| Group::padded("c", pad).nulls(NullPolicy::Keep).validity("valid");
    let groups = [padded(pad), Group::ragged("c").nulls(NullPolicy::Keep), Group::arrow(["c"])];
    let plain = lists([1, 2, 5, 6, 7], [2, 0, 1, 2], false);
    let changed = [
        lists([1, 2, 5, 6, 8], [2, 0, 1, 2], false),
        lists([1, 2, 5, 6, 7], [2, 0, 2, 1], false),
        lists([1, 2, 0, 5, 6, 7], [3, 0, 1, 2], false),
        lists([1, 2, 5, 6, 7], [2, 0, 1, 2], true),
    ];
    for group in &groups {
        let expected = digest_of(&plain, group);
        // A null row may span elements.
        assert_eq!(digest_of(&lists([1, 2, 3, 4, 5, 6, 7], [2, 2, 1, 2], false), group), expected);
        let is_padded = group.validity_name().is_some();
        for (index, changed) in changed.iter().enumerate() {
            // No element of a padded row tells whether the row is null or empty.
            assert_eq!(digest_of(changed, group) == expected, is_padded && index == 3, "{index} {group:?}");
        }
    }
    // Padding is no part of a row, nor are elements that are dropped.
    let expected = digest_of(&plain, &groups[0]);
    let others = [pad.length(5), Pad { value: Scalar::Int(9), ..pad }, pad.side(Side::Left), pad.truncate(Side::Right)];
    for other in others {
        assert_eq!(digest_of(&plain, &padded(other)), expected, "{other:?}");
    }
    let cut = padded(pad.length(1).truncate(Side::Left));
    assert_eq!(digest_of(&lists([2, 5, 7], [1, 0, 1, 1], false), &cut), digest_of(&plain, &cut));
}

#[test]
fn nulls_of_arrow_columns_are_not_like_texts_and_stay_in_their_columns() {
    let group = Group::arrow(["a", "b"]);
    let rows = [(None, Some("x")), (Some("x"), None), (Some(""), Some("x")), (None, Some("")), (None, None)];
    let found: HashSet<_> = rows
        .map(|(a, b)| {
            let columns = [("a", a), ("b", b)];
            let columns = columns.map(|(name, text)| (name, Arc::new(StringArray::from(vec![text])) as ArrayRef, true));
            let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
            digest(vec![DeviceArray::from_record_batch(&batch).unwrap()], &group, 0).digest
        })
        .into();
    assert_eq!(found.len(), rows.len());
}

/// Columns of two rows, which have these ticks.
fn nested(ticks: &ArrayRef) -> Vec<ArrayRef> {
    let item = Arc::new(Field::new("item", ticks.data_type().clone(), true));
    let lists = ListArray::new(item.clone(), OffsetBuffer::from_lengths([1, 1]), ticks.clone(), None);
    let large = LargeListArray::new(item.clone(), OffsetBuffer::from_lengths([1, 1]), ticks.clone(), None);
    let key: (_, ArrayRef) =
        (Arc::new(Field::new("k", DataType::Int32, false)), Arc::new(Int32Array::from(vec![1, 2])));
    let entries = StructArray::from(vec![key, (item.clone(), ticks.clone())]);
    let entries_field = Arc::new(Field::new("entries", entries.data_type().clone(), false));
    let fields = UnionFields::try_new([3], [item.as_ref().clone()]).unwrap();
    vec![
        ticks.clone(),
        Arc::new(ListViewArray::from(lists.clone())),
        Arc::new(LargeListViewArray::from(large.clone())),
        Arc::new(lists),
        Arc::new(large),
        Arc::new(FixedSizeListArray::new(item.clone(), 1, ticks.clone(), None)),
        Arc::new(MapArray::new(entries_field, OffsetBuffer::from_lengths([1, 1]), entries.clone(), None, false)),
        Arc::new(entries),
        Arc::new(UnionArray::try_new(fields, vec![3, 3].into(), None, vec![ticks.clone()]).unwrap()),
        Arc::new(DictionaryArray::<Int8Type>::new(vec![0, 1].into(), ticks.clone())),
        Arc::new(RunArray::<Int32Type>::try_new(&Int32Array::from(vec![1, 2]), ticks.as_ref()).unwrap()),
    ]
}

/// Timestamps of a time zone that nobody knows.
fn zoned(last: i64) -> ArrayRef {
    Arc::new(PrimitiveArray::<TimestampSecondType>::from(vec![4, last]).with_timezone("Nowhere/Atall"))
}

/// Ticks for which there is no text, so far from the largest ones.
fn beyond(less: i8) -> Vec<ArrayRef> {
    let (long, short) = (i64::MAX - i64::from(less), i32::MAX - i32::from(less));
    vec![
        Arc::new(PrimitiveArray::<Date32Type>::from(vec![0, short])),
        Arc::new(PrimitiveArray::<Time32SecondType>::from(vec![0, short])),
        Arc::new(PrimitiveArray::<Date64Type>::from(vec![0, long])),
        Arc::new(PrimitiveArray::<Time64NanosecondType>::from(vec![0, long])),
        Arc::new(PrimitiveArray::<DurationSecondType>::from(vec![0, long])),
    ]
}

#[test]
fn times_that_have_no_text_are_hashed_by_their_ticks_in_every_type() {
    let digests = |columns: Vec<ArrayRef>| columns.into_iter().map(|column| digest_of(&column, &Group::arrow(["c"])));
    let [one, other] = [5, 6].map(|last| digests(nested(&zoned(last))));
    assert!(one.zip(other).all(|(one, other)| one != other));
    let [one, other] = [0, 1].map(|less| digests(beyond(less)));
    assert!(one.zip(other).all(|(one, other)| one != other));
}
