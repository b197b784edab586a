//! [`RowNumbers`]: the numbers of the rows that wait in a shuffle buffer, in half the memory where they fit 32 bits.

use crate::alloc::fallible;
use crate::error::Result;

/// Numbers of rows. Those of most buffers fit 32 bits, and random places of half the memory are found faster.
pub(super) enum RowNumbers {
    Narrow(Vec<u32>),
    Wide(Vec<usize>),
}

impl RowNumbers {
    /// Returns the numbers from 0 to `count`, that one excluded.
    ///
    /// # Errors
    /// When memory cannot be had.
    pub(super) fn below(count: usize) -> Result<Self> {
        match u32::try_from(count) {
            Ok(narrow) => {
                let mut numbers = fallible::with_room(count)?;
                numbers.extend(0..narrow);
                Ok(Self::Narrow(numbers))
            }
            Err(_) => Self::wide(count),
        }
    }

    fn wide(count: usize) -> Result<Self> {
        let mut numbers = fallible::with_room(count)?;
        numbers.extend(0..count);
        Ok(Self::Wide(numbers))
    }

    /// Returns how many are left.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Narrow(numbers) => numbers.len(),
            Self::Wide(numbers) => numbers.len(),
        }
    }

    /// Takes the number at a place, to which the last number moves. 0 if there is no such place.
    pub(super) fn swap_remove(&mut self, place: usize) -> usize {
        match self {
            // No Rust platform with 32 bits of row numbers has narrower addresses.
            Self::Narrow(numbers) => usize::try_from(taken(numbers, place)).unwrap_or_default(),
            Self::Wide(numbers) => taken(numbers, place),
        }
    }
}

fn taken<T: Copy + Default>(numbers: &mut Vec<T>, place: usize) -> T {
    if place < numbers.len() { numbers.swap_remove(place) } else { T::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_widths_give_the_same_numbers() {
        let (mut narrow, mut wide) = (RowNumbers::below(9).unwrap(), RowNumbers::wide(9).unwrap());
        assert!(matches!(narrow, RowNumbers::Narrow(_)) && matches!(wide, RowNumbers::Wide(_)));
        for (place, number) in [(3, 3), (3, 8), (0, 0), (5, 5), (4, 4), (2, 2), (2, 7), (1, 1), (0, 6)] {
            assert_eq!(narrow.len(), wide.len());
            assert_eq!((narrow.swap_remove(place), wide.swap_remove(place)), (number, number), "{place}");
        }
        assert_eq!((narrow.len(), narrow.swap_remove(0), wide.swap_remove(0)), (0, 0, 0));
    }

    #[test]
    fn numbers_beyond_memory_are_an_error() {
        assert!(RowNumbers::below(usize::MAX).is_err());
    }
}
