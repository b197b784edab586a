//! The random numbers of the shuffle, equal on every machine and in every version: docs/loader.md defines them.

use chacha20::ChaCha8Rng;
use chacha20::rand_core::{Rng, SeedableRng};

/// The draws of one epoch.
pub(super) struct Draws(ChaCha8Rng);

impl Draws {
    /// The draws of the rows of a lane in an epoch.
    pub(super) fn of_rows(seed: u64, lane: usize, epoch: u64) -> Self {
        // No Rust platform has wider addresses.
        Self::new([seed, u64::try_from(lane).unwrap_or(u64::MAX), 0, 0], epoch)
    }

    /// The draws of the order of shards in an epoch.
    pub(super) fn of_shards(seed: u64, epoch: u64) -> Self {
        Self::new([seed, 0, 1, 0], epoch)
    }

    /// The draws of a key of four words: the seed, the lane, the purpose and 0.
    fn new(words: [u64; 4], epoch: u64) -> Self {
        let mut key = [0; 32];
        key.as_chunks_mut::<8>().0.iter_mut().zip(words).for_each(|(bytes, word)| *bytes = word.to_le_bytes());
        let mut generator = ChaCha8Rng::from_seed(key);
        generator.set_stream(epoch);
        Self(generator)
    }

    /// Returns a number below `count`, each equally likely; 0 if `count` is 0.
    pub(super) fn below(&mut self, count: usize) -> usize {
        // No Rust platform has wider addresses, and the result is smaller.
        usize::try_from(self.below_64(u64::try_from(count).unwrap_or(u64::MAX))).unwrap_or(0)
    }

    fn below_64(&mut self, count: u64) -> u64 {
        let mut product = u128::from(self.0.next_u64()) * u128::from(count);
        if low(product) < count {
            // Each number gets an equal share of the 2^64 words; words of the remainder are drawn again.
            let left_over = count.wrapping_neg() % count;
            while low(product) < left_over {
                product = u128::from(self.0.next_u64()) * u128::from(count);
            }
        }
        high(product)
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the lower half is what is wanted")]
fn low(product: u128) -> u64 {
    product as u64
}

#[allow(clippy::cast_possible_truncation, reason = "shifted, so that it fits")]
fn high(product: u128) -> u64 {
    (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_document() {
        // By an independent implementation of the document, in tests/python/test_loader_order.py.
        let draws = |seed, epoch, count| {
            let mut draws = Draws::of_rows(seed, 0, epoch);
            [(); 4].map(|()| draws.below(count))
        };
        assert_eq!(draws(0, 0, 1000), [836, 631, 232, 117]);
        // With this bound nearly half of the words are drawn again.
        let draws = |seed, epoch| {
            let mut draws = Draws::of_rows(seed, 0, epoch);
            [(); 6].map(|()| draws.below_64((1 << 63) + 1))
        };
        let first = [7719222282722705439, 912883421899498063, 60872731769513240];
        assert_eq!(draws(0, 0)[..3], first);
        assert_eq!(draws(0, 0)[3..], [6147832046815051488, 5507166623296264488, 6742158634871932240]);
        let other = [6114374147647595183, 4653195489368946981, 13790890346191438];
        assert_eq!(draws(7, 3)[..3], other);
        assert_eq!(draws(7, 3)[3..], [5874076041412253581, 3743980498667553480, 399070776395234083]);
    }

    #[test]
    fn every_number_below_is_drawn_about_as_often() {
        let mut draws = Draws::of_rows(1, 0, 2);
        let mut counts = [0_u32; 7];
        // At most four standard deviations from the mean.
        let (mean, apart) = if cfg!(miri) { (100, 37) } else { (10_000, 370) };
        for _ in 0..7 * mean {
            counts[draws.below(7)] += 1;
        }
        assert!(counts.iter().all(|count| count.abs_diff(mean) <= apart), "{counts:?}");
        assert_eq!((draws.below(0), draws.below(1)), (0, 0));
        // A bound with which most words are drawn again.
        assert!((0..100).all(|_| draws.below((1 << 63) + 1) <= 1 << 63));
    }

    #[test]
    fn seeds_and_epochs_differ() {
        let first = |seed, epoch| Draws::of_rows(seed, 0, epoch).below(usize::MAX);
        let shards = |seed, epoch| Draws::of_shards(seed, epoch).below(usize::MAX);
        let lane = Draws::of_rows(0, 1, 0).below(usize::MAX);
        let all = [first(0, 0), first(0, 1), first(1, 0), first(1, 1), first(u64::MAX, 0), first(0, u64::MAX)];
        let all = [&all[..], &[shards(0, 0), shards(0, 1), shards(1, 0), lane]].concat();
        for (i, one) in all.iter().enumerate() {
            assert!(!all[..i].contains(one), "{all:?}");
        }
    }
}
