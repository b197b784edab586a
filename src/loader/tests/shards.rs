//! Tests several shards: what they tell, what they have in common, and which of them a resumed iteration reads.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, channel};
use std::thread::sleep;

use arrow_array::{Array, StructArray};
use arrow_schema::Schema;
use arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;

use super::*;

/// Shards that tell these numbers of rows.
pub(super) fn shards_of(told: &[usize], arrays: impl Fn(usize) -> Vec<DeviceArray> + Send + Sync + 'static) -> Shards {
    Shards::new(told.iter().copied().map(Some).collect(), move |shard| Ok(stream_of(arrays(shard))))
}

/// A batch of one column.
pub(super) fn of_column(field: Field, column: ArrayRef) -> DeviceArray {
    let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![column]);
    DeviceArray::from_record_batch(&batch.unwrap()).unwrap()
}

/// A reader for each of so many lanes.
fn in_lanes(lanes: usize, prefetch: usize) -> (LoadOptions, Place) {
    let options = LoadOptions { prefetch, readers: lanes, ..LoadOptions::new(split(5)) };
    (options, Place::after(0, vec![0; lanes], 0).unwrap())
}

#[test]
fn shards_with_other_rows_than_they_told_are_refused() {
    // Each has 11 rows.
    for (told, shard, said) in [([11, 9], 1, "more"), ([11, 13], 1, "11"), ([10, 10], 0, "more")] {
        for (prefetch, lanes) in [(0, 1), (2, 1), (2, 2)] {
            let shards = Shards::new(told.map(Some).to_vec(), |shard| {
                // The last rows come late, when another lane has ended.
                let last = std::iter::once_with(move || {
                    sleep(Duration::from_millis(20));
                    rows(shard * 11 + 9, 2)
                });
                let arrays = std::iter::once(rows(shard * 11, 9)).chain(last).map(Ok);
                Ok(stream(rows(0, 0).field().clone(), arrays))
            });
            let (options, place) = in_lanes(lanes, prefetch);
            let mut found = Batches::of_shards(&shards, &Conversion::default(), &options, &place).unwrap();
            let error = found.find_map(Result::err).unwrap();
            let reason = error.reason();
            assert!(reason.contains(&format!("shard {shard}")) && reason.contains(said), "{told:?} {lanes}: {error}");
            assert!(found.next().is_none() && error.remedy().is_some());
        }
    }
}

#[test]
fn rows_left_out_are_not_told_while_a_reader_reads() {
    let (sender, gate) = channel::<()>();
    let gate = Mutex::new(Some(gate));
    let shards = Shards::new(vec![Some(10), Some(11)], move |shard| {
        let gate = (shard == 1).then(|| gate.lock().unwrap().take().unwrap());
        let last = std::iter::once_with(move || {
            _ = gate.as_ref().map(Receiver::recv);
            rows(shard * 10 + 5, 5 + shard)
        });
        Ok(stream(rows(0, 0).field().clone(), std::iter::once(rows(shard * 10, 5)).chain(last).map(Ok)))
    });
    let (options, place) = in_lanes(2, 2);
    let mut found = Batches::of_shards(&shards, &Conversion::default(), &options, &place).unwrap();
    // Dropped before the batches, whose drop waits for the readers.
    let go = sender;
    for expected in [0, 10, 5] {
        assert_eq!(numbers(&found.next().unwrap().unwrap())[0], expected);
    }
    // The reader of the first lane comes to its end meanwhile.
    for _ in 0..20 {
        assert_eq!(found.left_out(), None);
        sleep(Duration::from_millis(1));
    }
    go.send(()).unwrap();
    assert_eq!(numbers(&found.next().unwrap().unwrap())[0], 15);
    assert!(found.next().is_none());
    assert_eq!(found.left_out(), Some(1));
}

#[test]
fn shards_of_other_schemas_are_refused() {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let plain = Field::new("row", DataType::Int64, true);
    let of = |field: &Field| of_column(field.clone(), numbers.clone());
    let extension = |name: &str| {
        plain.clone().with_metadata(HashMap::from([(EXTENSION_TYPE_NAME_KEY.to_owned(), name.to_owned())]))
    };
    let inside = |name: &str| {
        let structs = StructArray::from(vec![(Arc::new(plain.clone().with_name(name)), numbers.clone())]);
        of_column(Field::new("row", structs.data_type().clone(), true), Arc::new(structs))
    };
    let small = of_column(Field::new("row", DataType::Int32, true), Arc::new(Int32Array::from(vec![1, 2])));
    let pairs = [
        (of(&plain), of(&plain.clone().with_name("other")), "the columns [\"other\"]"),
        (of(&plain), small, "column \"row\" of type Int32"),
        (of(&plain), of(&extension("a.b")), "a.b (Int64)"),
        (of(&extension("a.b")), of(&extension("a.c")), "a.c (Int64)"),
        (inside("a"), inside("b"), "column \"row\" of type Struct"),
    ];
    let passed = Selection::Named(vec![("x".to_owned(), Group::arrow(["row"]))]);
    let conversion = Conversion::default().select(passed);
    for (first, other, said) in pairs {
        let shards = shards_of(&[2, 2], move |shard| vec![if shard == 0 { first.clone() } else { other.clone() }]);
        let options = LoadOptions::new(split(2));
        let mut found = Batches::of_shards(&shards, &conversion, &options, &Place::start(0)).unwrap();
        assert_eq!(found.next().unwrap().unwrap().rows, 2);
        let error = found.next().unwrap().unwrap_err();
        assert!(error.reason().contains("shard 1") && error.reason().contains(said), "{error}");
        assert_eq!(error.remedy().as_deref(), Some("give all shards one schema"));
    }
}

#[test]
fn shards_may_differ_in_nullability_but_for_nulls() {
    let first = of_column(Field::new("row", DataType::Int64, false), Arc::new(Int64Array::from(vec![0, 1])));
    for last in [Some(3), None] {
        let (first, other) = (first.clone(), batch(Int64Array::from(vec![Some(2), last])));
        let shards = shards_of(&[2, 2], move |shard| vec![if shard == 0 { first.clone() } else { other.clone() }]);
        let options = LoadOptions::new(split(4));
        let found = Batches::of_shards(&shards, &Conversion::default(), &options, &Place::start(0)).unwrap();
        match found.map(|batch| batch.map(|batch| numbers(&batch))).collect::<Result<Vec<_>>>() {
            Ok(found) => assert_eq!((found, last), (vec![vec![0, 1, 2, 3]], Some(3))),
            Err(error) => {
                assert_eq!((error.kind(), error.column(), last), (ErrorKind::Null, Some("row"), None));
                assert!(error.reason().contains("shard 1"), "{error}");
                let remedy = error.remedy().unwrap();
                assert_eq!(remedy, "make the column nullable in every shard's schema");
            }
        }
    }
}

#[test]
fn no_shards_and_workers_of_one_lane_are_refused() {
    let unread =
        |told: Vec<Option<usize>>| Shards::new(told, |_| Ok(stream(rows(0, 0).field().clone(), std::iter::empty())));
    let workers = split(2).for_worker(0, 2).unwrap();
    for (told, sharding, said) in [(vec![], split(2), "no shards"), (vec![Some(0)], workers, "cannot share 1 lanes")] {
        let options = LoadOptions::new(sharding);
        let refused = Batches::of_shards(&unread(told), &Conversion::default(), &options, &Place::start(0));
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        assert!(error.reason().contains(said) && error.remedy().is_some(), "{error}");
    }
}

#[test]
fn a_state_of_which_all_is_verified_reads_each_shard_that_it_knows_again() {
    // The first shard was taken; its rows are from number `from`.
    let of = |from: usize| shards_of(&[10, 10], move |shard| vec![rows(if shard == 0 { from } else { 10 }, 10)]);
    let options = LoadOptions { prefetch: 0, ..LoadOptions::new(split(5)) };
    let mut whole = Batches::of_shards(&of(0), &Conversion::default(), &options, &Place::start(0)).unwrap();
    assert_eq!(whole.by_ref().map(Result::unwrap).count(), 4);
    let digests = whole.log().digests(|_| Some(10));
    assert_eq!(digests.get(&0).map(|digest| digest.samples), Some(10));
    let cases = [
        (0, digests.clone(), true, None),
        (1, digests.clone(), true, Some("rows have changed")),
        (1, digests, false, None),
        (0, BTreeMap::new(), true, Some("no hashes of rows that were taken of shard 0")),
        (0, BTreeMap::new(), false, None),
    ];
    for (from, digests, all, refused) in cases {
        let (shards, place) = (of(from), Place::after(0, vec![10], 0).unwrap());
        let known = KnownState {
            batch_size: 5,
            of_others: Some(OfOthers::default()),
            rows: None,
            had: None,
            digests,
            dictionaries: DictionaryHashes::default(),
            all,
        };
        let opened = (1, shards.open(1, &|| Ok(())).unwrap());
        let found = Batches::resume(&shards, opened, &Conversion::default(), &options, &place, &known);
        let found: Result<Vec<_>> =
            found.and_then(|found| found.map(|batch| batch.map(|batch| numbers(&batch)[0])).collect());
        match (found, refused) {
            (Ok(found), None) => assert_eq!(found, vec![10, 15]),
            (Err(error), Some(said)) => assert!(error.reason().contains(said), "{error}"),
            (found, _) => panic!("{found:?}, not {refused:?}"),
        }
    }
}

#[test]
fn a_source_that_asks_for_a_batch_of_its_own_is_told_that_one_is_being_made() {
    let own = Arc::new(OnceLock::<Batches>::new());
    let asked = own.clone();
    let arrays = std::iter::once_with(move || {
        asked.get().unwrap().next_within(Duration::ZERO)?;
        Ok(rows(0, 10))
    });
    let options = LoadOptions { prefetch: 0, ..LoadOptions::new(split(5)) };
    own.set(open(stream(rows(0, 0).field().clone(), arrays), &options)).unwrap();
    let error = own.get().unwrap().next_within(Duration::ZERO).unwrap_err();
    assert!(error.kind() == ErrorKind::Argument && error.reason().contains("being made already"), "{error}");
    assert!(matches!(own.get().unwrap().next_within(Duration::ZERO), Ok(Next::Cut)));
}

#[test]
fn the_end_is_no_cut_whoever_asks_again() {
    for prefetch in [0, 1, 3] {
        let options = LoadOptions { prefetch, ..LoadOptions::new(split(5)) };
        let next = |batches: &Batches| batches.next_within(Duration::from_secs(60)).unwrap();
        let batches = open(stream(rows(0, 0).field().clone(), [Ok(rows(0, 10))].into_iter()), &options);
        assert!(matches!((next(&batches), next(&batches)), (Next::Batch(_), Next::Batch(_))));
        assert!(matches!((next(&batches), next(&batches)), (Next::End, Next::End)));
        batches.close();
        assert!(matches!(next(&batches), Next::End));
        let batches = open(stream(rows(0, 0).field().clone(), [Ok(rows(0, 10))].into_iter()), &options);
        assert!(matches!(next(&batches), Next::Batch(_)));
        batches.close();
        assert!(matches!(next(&batches), Next::Cut));
    }
}

#[test]
fn each_reader_is_asked_to_stop_before_one_is_waited_for() {
    // The source of the first reader goes on once that of the second one, which was read, is released.
    let ((held, released), (begins, begun)) = (channel::<()>(), channel::<()>());
    let (held, released) = (Mutex::new(Some(held)), Arc::new(Mutex::new(released)));
    let shards = Shards::new(vec![Some(10); 2], move |shard| {
        let (held, begins) = (held.lock().unwrap().take_if(|_| shard == 1), begins.clone());
        let mut waits = (shard == 0).then_some(released.clone());
        let mut array = Some(Ok(rows(0, 10)));
        let arrays = std::iter::from_fn(move || {
            if let Some(released) = waits.take() {
                assert!(released.lock().unwrap().recv().is_err(), "nobody sends");
            } else if held.is_some() {
                begins.send(()).unwrap();
            }
            array.take()
        });
        Ok(stream(rows(0, 0).field().clone(), arrays))
    });
    let options = LoadOptions { readers: 2, prefetch: 2, ..LoadOptions::new(split(1)) };
    let place = Place::after(0, vec![0, 0], 0).unwrap();
    let batches = Batches::of_shards(&shards, &Conversion::default(), &options, &place).unwrap();
    begun.recv().unwrap();
    assert!(batches.stop(Duration::from_secs(60)));
}

#[test]
fn a_buffer_has_no_room_for_more_rows_than_its_lane() {
    for (lanes, most) in [(1, 1), (3, 9), (40, 1 << 40)] {
        let places = [None, NonZero::new(most)].map(|most| {
            let shuffle = most.map(|most| Shuffle::new(most, 1));
            let options = LoadOptions { shuffle, ..in_lanes(1, 0).0 };
            let place = Place::after(0, vec![0; lanes], 0).unwrap();
            let shards = shards_of(&[240], |_| vec![rows(0, 240)]);
            let found = Batches::of_shards(&shards, &Conversion::default(), &options, &place).unwrap();
            assert!(all(found).concat().len() > 200);
            options.memory.places()
        });
        assert_eq!(places[1] - places[0], lanes, "{most}");
    }
}
