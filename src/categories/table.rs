//! A hash table from the values of a vocabulary to their positions, filled once: buckets of eight, found by a byte of the hash.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_data::ArrayData;

use super::marks::{INTEGER, KEPT, MIXER, Mark, SHORT, fold, halves, padded};
use super::short_texts::{Finder, ShortTexts};
use super::slots::{Slots, Visit, visit};
use super::value_kind::{Key, ValueKind};
use crate::alloc::fallible;
use crate::error::{Error, Result};

/// The position of each value.
pub(super) struct CategoryTable {
    kind: ValueKind,
    /// Random, so that no data is made to collide.
    seed: [u64; 2],
    /// Their number is a power of two; they have at least twice as many places as there are values.
    buckets: Vec<Bucket>,
    mask: usize,
    /// The mark of each value, by position.
    marks: Vec<Mark>,
    /// Where each value ends in `bytes`; none of integers.
    ends: Vec<usize>,
    bytes: Vec<u8>,
    ints: Vec<i128>,
    dense: Option<Dense>,
    /// How many values were looked up.
    sought: AtomicUsize,
    /// The short texts once more, after as many look-ups as are worth it; `None` in it if that cannot be.
    short: OnceLock<Option<ShortTexts>>,
}

/// Bytes of a value that an error shows.
const SHOWN: usize = 100;
/// Look-ups for each value that pay for [`ShortTexts`].
const WORTH: usize = 8;

/// Places for eight positions of values, in one cache line.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Bucket {
    /// A byte for each place, the first one lowest: 0 if the place is free, else [`tag_of`] the hash of its value.
    tags: u64,
    positions: [u32; PLACES],
}

/// The places of a bucket: as many as a word has bytes.
const PLACES: usize = 8;
/// The lowest and the highest bit of each byte of a word.
const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// The positions of integers that are near each other, from the lowest one on; negative where there is none.
struct Dense {
    lowest: i128,
    positions: Vec<i32>,
}

const EMPTY: i32 = -1;

impl CategoryTable {
    /// Returns the positions of the values of an array without nulls.
    ///
    /// # Errors
    /// If a value occurs twice; if an allocation fails.
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
        // At most half of all places are used, so that few buckets are full.
        let size = count.div_ceil(PLACES / 2).checked_next_power_of_two().ok_or_else(too_many)?;
        let mut buckets = fallible::with_room(size)?;
        buckets.extend(std::iter::repeat_n(Bucket::default(), size));
        let marks = fallible::with_room(count)?;
        let random = RandomState::new();
        let seed = [random.hash_one(0), random.hash_one(1)];
        let (ends, ints) = match kind {
            ValueKind::Int => (Vec::new(), fallible::with_room(count)?),
            _ => (fallible::with_room(count)?, Vec::new()),
        };
        let (mask, bytes) = (size.saturating_sub(1), Vec::new());
        let (sought, short) = (AtomicUsize::new(0), OnceLock::new());
        let empty = Self { kind, seed, buckets, mask, marks, ends, bytes, ints, dense: None, sought, short };
        let none = || Error::internal("a vocabulary of a type without values");
        let mut table = visit(data, Fill(empty, count)).ok_or_else(none)??;
        table.dense = Dense::of(&table.ints)?;
        Ok(table)
    }

    /// Returns the kind of all values.
    pub(super) fn kind(&self) -> ValueKind {
        self.kind
    }

    /// Returns bytes that differ for other values, another order of them, and another code of unknown values.
    #[cfg(feature = "python")]
    pub(super) fn content(&self, unknown: Option<i32>) -> Result<Vec<u8>> {
        let mut content = fallible::written(|text| {
            let (kind, unknown) = (self.kind.word(), unknown.map_or(i64::MIN, i64::from));
            write!(text, "{kind} {unknown} {:?} {:?} ", self.ends, self.ints)
                .map_err(|_| Error::internal("numbers without a text"))
        })?
        .into_bytes();
        fallible::reserve(&mut content, self.bytes.len())?;
        content.extend_from_slice(&self.bytes);
        Ok(content)
    }

    /// Returns the position of a value.
    #[inline]
    pub(super) fn find(&self, key: Key<'_>) -> Option<i32> {
        if let (Some(dense), Key::Int(value)) = (&self.dense, key) {
            return dense.find(value);
        }
        let mark = self.mark(key);
        let is_whole = mark.bytes <= SHORT || mark.bytes == INTEGER;
        self.position(mark, |position| is_whole || self.value(position) == Some(key))
    }

    /// Says that so many values will be looked up: after many, short ones are found faster.
    pub(super) fn foresee(&self, values: usize) {
        let sought = self.sought.fetch_add(values, Ordering::Relaxed).saturating_add(values);
        if self.kind != ValueKind::Int && sought / WORTH >= self.marks.len() && self.short.get().is_none() {
            // Made before the lock is taken, which a fork would leave to nobody: another thread may make the same.
            let short = ShortTexts::of(&self.marks, self.seed);
            self.short.set(short).unwrap_or(());
        }
    }

    /// Returns what finds short texts faster; `None` before enough values were looked up.
    #[inline]
    pub(super) fn short(&self) -> Option<Finder<'_>> {
        self.short.get()?.as_ref().map(ShortTexts::finder)
    }

    /// Returns the position of a text of so many bytes, the first of `block`; `None` if it is not found, or not as short as a block.
    #[inline(always)]
    pub(super) fn find_short(&self, block: u128, bytes: usize) -> Option<i32> {
        let (low, high) = halves(block);
        let (low_kept, high_kept) = KEPT.get(bytes)?;
        let mark = Mark { words: (low & low_kept, high & high_kept), bytes };
        self.position(mark, |_| true)
    }

    /// The position of the value that has this mark and is equal.
    #[inline(always)]
    fn position(&self, mark: Mark, is_equal: impl Fn(usize) -> bool) -> Option<i32> {
        let hash = self.hash(mark);
        let (mut at, tag) = (self.first_bucket(hash), u64::from(tag_of(hash)));
        loop {
            let bucket = self.buckets.get(at)?;
            let others = bucket.tags ^ tag.wrapping_mul(LOW);
            // Sets the highest bit of each byte that is 0. A borrow may set it for the byte above, too: marks tell the difference.
            let mut equal = others.wrapping_sub(LOW) & !others & HIGH;
            while equal != 0 {
                let position = *bucket.positions.get(place_of(equal))?;
                // `usize` has 32 bits or more on every platform of this crate.
                let position = position as usize;
                if self.marks.get(position) == Some(&mark) && is_equal(position) {
                    return i32::try_from(position).ok();
                }
                equal &= equal.wrapping_sub(1);
            }
            if bucket.tags & HIGH != HIGH {
                return None;
            }
            at = at.wrapping_add(1) & self.mask;
        }
    }

    /// Returns the bucket where the search for a hash begins.
    #[inline(always)]
    fn first_bucket(&self, hash: u64) -> usize {
        // All bits of a hash are equally random.
        usize::try_from(hash & u64::from(u32::MAX)).unwrap_or(0) & self.mask
    }

    /// The value at a position.
    #[inline]
    fn value(&self, position: usize) -> Option<Key<'_>> {
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
        if let Some(known) = self.find(key) {
            let value = match key {
                Key::Int(value) => value.to_string(),
                Key::Bytes(bytes) => {
                    let (shown, more) = bytes.split_at_checked(SHOWN).map_or((bytes, ""), |(shown, _)| (shown, "..."));
                    match self.kind {
                        ValueKind::Text => format!("{:?}{more}", String::from_utf8_lossy(shown)),
                        _ => format!("b\"{}\"{more}", shown.escape_ascii()),
                    }
                }
            };
            return Err(Error::argument(format!("category {position} is {value}, as category {known} is"))
                .remedy_is("name each category once"));
        }
        let position = u32::try_from(position).map_err(|_| Error::internal("a position beyond its type"))?;
        let mark = self.mark(key);
        let (hash, full) = (self.hash(mark), || Error::internal("a hash table without room"));
        let mut at = self.first_bucket(hash);
        // At least half of all places are free.
        while self.buckets.get(at).is_some_and(|bucket| bucket.tags & HIGH == HIGH) {
            at = at.wrapping_add(1) & self.mask;
        }
        let bucket = self.buckets.get_mut(at).ok_or_else(full)?;
        let place = place_of(!bucket.tags & HIGH);
        *bucket.positions.get_mut(place).ok_or_else(full)? = position;
        bucket.tags |= u64::from(tag_of(hash)) << (8 * place);
        fallible::push(&mut self.marks, mark)?;
        match key {
            Key::Int(value) => fallible::push(&mut self.ints, value),
            Key::Bytes(bytes) => {
                fallible::reserve(&mut self.bytes, bytes.len())?;
                self.bytes.extend_from_slice(bytes);
                fallible::push(&mut self.ends, self.bytes.len())
            }
        }
    }

    /// The mark of a value.
    #[inline]
    fn mark(&self, key: Key<'_>) -> Mark {
        let [first, second] = self.seed;
        match key {
            Key::Int(value) => Mark { words: halves(value.cast_unsigned()), bytes: INTEGER },
            Key::Bytes(text) if text.len() <= SHORT => Mark { words: padded(text), bytes: text.len() },
            Key::Bytes(text) => {
                let (blocks, rest) = text.as_chunks::<SHORT>();
                let state = blocks.iter().fold(first, |state, block| {
                    let (low, high) = halves(u128::from_le_bytes(*block));
                    fold(state ^ low, second ^ high)
                });
                let (low, high) = padded(rest);
                Mark { words: (fold(state ^ low, second ^ high), 0), bytes: text.len() }
            }
        }
    }

    /// The hash of a mark.
    #[inline(always)]
    fn hash(&self, mark: Mark) -> u64 {
        let [first, second] = self.seed;
        let length = u64::try_from(mark.bytes).unwrap_or(u64::MAX).wrapping_mul(MIXER);
        fold(mark.words.0 ^ first ^ length, mark.words.1 ^ second)
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

/// Returns the byte that marks a place as taken by a value of this hash: a set bit above seven bits of the hash that do not choose the
/// bucket.
#[inline(always)]
fn tag_of(hash: u64) -> u8 {
    let [.., highest] = hash.to_le_bytes();
    highest | 0x80
}

/// Returns the number of the byte that has the lowest set bit.
#[inline(always)]
fn place_of(bits: u64) -> usize {
    // No platform has addresses of fewer than 16 bits.
    usize::try_from(bits.trailing_zeros() / u8::BITS).unwrap_or(PLACES)
}
