//! A hash table from the values of a vocabulary to their positions: open addressing, filled once.

use std::hash::{BuildHasher, RandomState};

use arrow_data::ArrayData;

use super::slots::{Slots, Visit, visit};
use super::value_kind::{Key, ValueKind};
use crate::alloc::fallible;
use crate::error::{Error, Result};

/// The position of each value.
pub(super) struct CategoryTable {
    kind: ValueKind,
    /// Random, so that no data is made to collide.
    seed: [u64; 2],
    /// A power of two of places, at least twice as many as values.
    places: Vec<Place>,
    mask: usize,
    /// Where each value ends in `bytes`; none of integers.
    ends: Vec<usize>,
    bytes: Vec<u8>,
    ints: Vec<i128>,
    dense: Option<Dense>,
}

/// Where a value may be; empty if the position is negative.
#[derive(Clone, Copy)]
struct Place {
    mark: Mark,
    position: i32,
}

/// What two values are compared by first. Equal marks are equal values, but for texts beyond [`SHORT`] bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Mark {
    /// The whole value, if it is short or an integer; else its hash.
    words: (u64, u64),
    bytes: usize,
}

/// The most bytes that two words hold: most names of categories.
const SHORT: usize = 16;

/// The positions of integers that are near each other, from the lowest one on; negative where there is none.
struct Dense {
    lowest: i128,
    positions: Vec<i32>,
}

const EMPTY: i32 = -1;

/// An odd constant with about as many ones as zeros.
const MIXER: u64 = 0x9e37_79b9_7f4a_7c15;

impl CategoryTable {
    /// Returns the positions of the values of an array without nulls.
    ///
    /// # Errors
    /// If a value occurs twice; if memory cannot be had.
    pub(super) fn new(data: &ArrayData, kind: ValueKind) -> Result<Self> {
        struct Fill(CategoryTable, usize);
        impl Visit for Fill {
            type Out = Result<CategoryTable>;
            fn visit<'a>(mut self, slots: impl Slots<'a>) -> Result<CategoryTable> {
                for slot in 0..self.1 {
                    let key = slots.key(slot).ok_or_else(|| Error::invalid("an array has fewer values than slots"))?;
                    self.0.insert(key, slot)?;
                }
                Ok(self.0)
            }
        }
        let too_many = || Error::argument("the categories are more than memory can hold");
        let count = data.len();
        let size = count.checked_mul(2).and_then(usize::checked_next_power_of_two).ok_or_else(too_many)?;
        let mut places = fallible::with_room(size)?;
        places.extend(std::iter::repeat_n(Place { mark: Mark::default(), position: EMPTY }, size));
        let random = RandomState::new();
        let seed = [random.hash_one(0), random.hash_one(1)];
        let (ends, ints) = match kind {
            ValueKind::Int => (Vec::new(), fallible::with_room(count)?),
            _ => (fallible::with_room(count)?, Vec::new()),
        };
        let empty =
            Self { kind, seed, places, mask: size.saturating_sub(1), ends, bytes: Vec::new(), ints, dense: None };
        let none = || Error::internal("a vocabulary of a type without values");
        let mut table = visit(data, Fill(empty, count)).ok_or_else(none)??;
        table.dense = Dense::of(&table.ints)?;
        Ok(table)
    }

    /// What the values are.
    pub(super) fn kind(&self) -> ValueKind {
        self.kind
    }

    /// Returns bytes that differ for other values, another order of them, and another code of unknown values.
    #[cfg(feature = "python")]
    pub(super) fn content(&self, unknown: Option<i32>) -> Vec<u8> {
        let mut content = format!("{:?} {unknown:?} {:?} {:?} ", self.kind, self.ends, self.ints).into_bytes();
        content.extend_from_slice(&self.bytes);
        content
    }

    /// Returns the position of a value.
    #[inline]
    pub(super) fn find(&self, key: Key<'_>) -> Option<i32> {
        if let (Some(dense), Key::Int(value)) = (&self.dense, key) {
            return dense.find(value);
        }
        let (mark, hash) = self.mark(key);
        let place = self.places.get(self.place(key, mark, hash))?;
        (place.position >= 0).then_some(place.position)
    }

    /// The index of the place that has a value, or of the empty one where it would be.
    #[inline]
    fn place(&self, key: Key<'_>, mark: Mark, hash: u64) -> usize {
        // The lower bits are as random as the others.
        let mut at = usize::try_from(hash & u64::from(u32::MAX)).unwrap_or(0) & self.mask;
        while let Some(place) = self.places.get(at) {
            let is_equal = || mark.bytes <= SHORT || self.value(place.position) == Some(key);
            if place.position < 0 || (place.mark == mark && is_equal()) {
                break;
            }
            at = at.wrapping_add(1) & self.mask;
        }
        at
    }

    /// The value at a position.
    #[inline]
    fn value(&self, position: i32) -> Option<Key<'_>> {
        let position = usize::try_from(position).ok()?;
        if self.kind == ValueKind::Int {
            return self.ints.get(position).map(|value| Key::Int(*value));
        }
        let start = match position.checked_sub(1) {
            Some(before) => *self.ends.get(before)?,
            None => 0,
        };
        self.bytes.get(start..*self.ends.get(position)?).map(Key::Bytes)
    }

    fn insert(&mut self, key: Key<'_>, position: usize) -> Result<()> {
        let (mark, hash) = self.mark(key);
        let at = self.place(key, mark, hash);
        let place = self.places.get_mut(at).ok_or_else(|| Error::internal("a hash table without places"))?;
        if place.position >= 0 {
            let value = match key {
                Key::Int(value) => value.to_string(),
                Key::Bytes(bytes) if self.kind == ValueKind::Text => format!("{:?}", String::from_utf8_lossy(bytes)),
                Key::Bytes(bytes) => format!("b\"{}\"", bytes.escape_ascii()),
            };
            return Err(Error::argument(format!("category {position} is {value}, as category {} is", place.position))
                .remedy_is("name each category once"));
        }
        let position = i32::try_from(position).map_err(|_| Error::internal("a position beyond int32"))?;
        *place = Place { mark, position };
        match key {
            Key::Int(value) => fallible::push(&mut self.ints, value),
            Key::Bytes(bytes) => {
                fallible::reserve(&mut self.bytes, bytes.len())?;
                self.bytes.extend_from_slice(bytes);
                fallible::push(&mut self.ends, self.bytes.len())
            }
        }
    }

    /// The mark of a value, and its hash.
    #[inline]
    fn mark(&self, key: Key<'_>) -> (Mark, u64) {
        let [first, second] = self.seed;
        let (words, bytes) = match key {
            Key::Int(value) => (halves(value.cast_unsigned()), SHORT),
            Key::Bytes(text) if text.len() <= SHORT => (tail(text), text.len()),
            Key::Bytes(text) => {
                let (blocks, rest) = text.as_chunks::<SHORT>();
                let state = blocks.iter().fold(first, |state, block| {
                    let (low, high) = halves(u128::from_le_bytes(*block));
                    fold(state ^ low, second ^ high)
                });
                let (low, high) = tail(rest);
                ((fold(state ^ low, second ^ high), 0), text.len())
            }
        };
        let length = u64::try_from(bytes).unwrap_or(u64::MAX).wrapping_mul(MIXER);
        (Mark { words, bytes }, fold(words.0 ^ first ^ length, words.1 ^ second))
    }
}

impl Dense {
    /// The positions by value, if there are not many more numbers between the lowest and the highest than values.
    fn of(ints: &[i128]) -> Result<Option<Self>> {
        let (Some(lowest), Some(highest)) = (ints.iter().min(), ints.iter().max()) else { return Ok(None) };
        let most = ints.len().saturating_mul(8).saturating_add(1024);
        let span = usize::try_from(highest - lowest).ok().and_then(|span| span.checked_add(1));
        let Some(span) = span.filter(|span| *span <= most) else { return Ok(None) };
        let mut positions = fallible::with_room(span)?;
        positions.extend(std::iter::repeat_n(EMPTY, span));
        for (position, value) in (0..).zip(ints) {
            let place = usize::try_from(value - lowest).ok().and_then(|at| positions.get_mut(at));
            place.into_iter().for_each(|place| *place = position);
        }
        Ok(Some(Self { lowest: *lowest, positions }))
    }

    #[inline]
    fn find(&self, value: i128) -> Option<i32> {
        let at = usize::try_from(value.checked_sub(self.lowest)?).ok()?;
        self.positions.get(at).copied().filter(|position| *position >= 0)
    }
}

fn halves(word: u128) -> (u64, u64) {
    let bytes = word.to_le_bytes();
    let half = |half: Option<&[u8; 8]>| half.map_or(0, |half| u64::from_le_bytes(*half));
    (half(bytes.first_chunk()), half(bytes.last_chunk()))
}

/// Both halves of the product, one on the other: each bit of it depends on all bits of both.
#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let (low, high) = halves(u128::from(a).wrapping_mul(u128::from(b)));
    low ^ high
}

/// At most [`SHORT`] bytes as two words, which differ for different bytes of one length.
#[inline]
fn tail(bytes: &[u8]) -> (u64, u64) {
    if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        return (u64::from_le_bytes(*first), u64::from_le_bytes(*last));
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        return (u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into());
    }
    let at = |index: usize| u64::from(bytes.get(index).copied().unwrap_or(0));
    (at(0) | at(1) << 8 | at(2) << 16, 0)
}
