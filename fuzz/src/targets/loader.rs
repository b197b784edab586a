//! Any place of any epoch: do the ranks give each row of the order at most once, and is an epoch that was cut at a round the rest
//! of the whole one?

use std::collections::HashSet;
use std::num::NonZero;
use std::sync::Arc;

use arrow_array::Int64Array;
use arrow_dlpack::loader::{Batches, LoadOptions, Place, Sharding, Shards, Shuffle};
use arrow_dlpack::{Conversion, DeviceArray, DeviceArrayStream, Error, Result};
use arrow_schema::{DataType, Field, FieldRef};

use super::choices::Choices;

/// Rows of each shard, and of each chunk of one.
#[derive(Clone)]
struct Source {
    rows: Vec<usize>,
    chunk: usize,
    /// Whether shards tell their rows.
    known: bool,
}

impl Source {
    /// A column of the rows' numbers.
    fn shards(&self) -> Shards {
        let source = self.clone();
        let told = self.rows.iter().map(|rows| self.known.then_some(*rows)).collect();
        Shards::new(told, move |shard| {
            let first: usize = source.rows[..shard].iter().sum();
            let end = first + source.rows[shard];
            let field: FieldRef = Arc::new(Field::new("x", DataType::Int64, false));
            let (of, chunk) = (field.clone(), source.chunk);
            let chunks = (first..end).step_by(chunk).map(move |start| {
                let numbers = Int64Array::from_iter_values((start..(start + chunk).min(end)).map(|row| row as i64));
                DeviceArray::from_arrow(&numbers, of.clone())
            });
            Ok(DeviceArrayStream::new(field, arrow_dlpack::Device::CPU.device_type(), chunks))
        })
    }
}

/// How an epoch is read.
struct Epoch {
    source: Source,
    shuffle: Option<Shuffle>,
    shuffle_shards: Option<u64>,
}

impl Epoch {
    /// The batches of one worker after a place, and how many rows are in none of any rank.
    fn read(&self, sharding: Sharding, place: &Place) -> Result<(Vec<Vec<i64>>, Option<usize>)> {
        let mut load = LoadOptions::new(sharding);
        (load.shuffle, load.shuffle_shards, load.prefetch) = (self.shuffle, self.shuffle_shards, 0);
        let mut batches = Batches::of_shards(&self.source.shards(), &Conversion::default(), &load, place)?;
        let mut found = Vec::new();
        for batch in batches.by_ref() {
            let batch = batch?;
            let rows = batch.tensors[0].as_slice::<i64>()?.to_vec();
            assert_eq!(rows.len(), batch.rows);
            found.push(rows);
        }
        Ok((found, batches.left_out()))
    }

    /// The rounds of all ranks after a place, one batch of each.
    fn rounds(&self, cut: &Cut, place: &Place) -> Result<(Vec<Vec<Vec<i64>>>, usize)> {
        let mut rounds: Vec<Vec<Vec<i64>>> = Vec::new();
        let mut left = None;
        for rank in 0..cut.world_size {
            let (batches, left_out) = self.read(cut.of(rank)?, place)?;
            assert!(left.is_none_or(|left| left == left_out), "ranks count the rows that are left out alike");
            left = Some(left_out);
            rounds.resize_with(batches.len().max(rounds.len()), Vec::new);
            for (round, batch) in rounds.iter_mut().zip(batches) {
                round.push(batch);
            }
        }
        assert!(rounds.iter().all(|round| round.len() == cut.world_size), "each rank has a batch of each round");
        Ok((rounds, left.flatten().expect("an epoch that has ended")))
    }
}

/// How the order is cut into batches.
struct Cut {
    batch_size: usize,
    drop_last: bool,
    world_size: usize,
}

impl Cut {
    fn of(&self, rank: usize) -> Result<Sharding> {
        Sharding::new(self.batch_size, self.drop_last, rank, self.world_size)
    }
}

/// A size, rarely one that no memory has.
fn size(choices: &mut Choices<'_>, most: usize) -> usize {
    if choices.chance(64) { choices.number() as usize } else { choices.below(most) }
}

/// Epochs from any place.
pub(super) fn loader(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let rows: Vec<usize> = (0..1 + choices.below(5)).map(|_| choices.below(24)).collect();
    let source = Source { rows, chunk: 1 + choices.below(9), known: !choices.chance(8) };
    let buffer = NonZero::new(size(&mut choices, 12));
    let epoch = Epoch {
        source,
        shuffle: buffer.map(|buffer| Shuffle::new(buffer, choices.number() as u64)),
        shuffle_shards: choices.chance(2).then(|| choices.number() as u64),
    };
    let lanes = 1 + choices.below(4);
    let cut = Cut { batch_size: size(&mut choices, 9), drop_last: choices.chance(2), world_size: 1 + choices.below(4) };
    let number = if choices.chance(2) { choices.number() as u64 } else { 0 };
    if choices.chance(4) {
        // A place of a state that somebody has edited.
        let taken = (0..choices.below(5)).map(|_| size(&mut choices, 90)).collect();
        if let Ok(place) = Place::after(number, taken, size(&mut choices, 4)) {
            let rows: usize = epoch.source.rows.iter().sum();
            if let Ok((rounds, left)) = epoch.rounds(&cut, &place) {
                assert!(distinct(&rounds) + left <= rows);
            }
        }
        return;
    }
    let place = Place::after(number, vec![0; lanes], choices.below(lanes)).expect("a lane that there is");
    let rounds = choices.below(8);
    if let Err(error) = whole(&epoch, &cut, &place, rounds) {
        assert!(!error.reason().is_empty());
    }
}

/// Asserts that an epoch has all rows, and that the rest after some rounds is the rest.
fn whole(epoch: &Epoch, cut: &Cut, place: &Place, rounds: usize) -> Result<(), Error> {
    let (all, left) = epoch.rounds(cut, place)?;
    assert_eq!(distinct(&all) + left, epoch.source.rows.iter().sum::<usize>());
    if rounds > all.len() {
        return Ok(());
    }
    let (rest, left_then) = epoch.rounds(cut, &place.after_rounds(rounds, &cut.of(0)?))?;
    assert_eq!((rest.as_slice(), left_then), (&all[rounds..], left));
    Ok(())
}

/// How many rows there are, none of them twice.
fn distinct(rounds: &[Vec<Vec<i64>>]) -> usize {
    let mut seen = HashSet::new();
    for row in rounds.iter().flatten().flatten() {
        assert!(seen.insert(*row), "row {row} is there twice");
    }
    seen.len()
}
