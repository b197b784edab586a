//! [`RowNumbers`]: the numbers of the rows that wait in a shuffle buffer, in half the memory where they fit 32 bits.

use crate::alloc::fallible;
use crate::convert::prefetch_element;
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
    /// When an allocation fails.
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

    /// Takes the numbers at these places, one after the other, and writes each over its place. The last number moves to where one was
    /// taken; 0 if there is no such place.
    pub(super) fn take(&mut self, places: &mut [usize]) {
        match self {
            // No Rust platform with 32 bits of row numbers has narrower addresses.
            Self::Narrow(numbers) => take(numbers, places, |number| usize::try_from(number).unwrap_or_default()),
            Self::Wide(numbers) => take(numbers, places, |number| number),
        }
    }
}

/// How many numbers ahead a number is prefetched: as many as are taken while memory answers.
const FETCH_AHEAD: usize = 32;

fn take<T: Copy>(numbers: &mut Vec<T>, places: &mut [usize], widen: impl Fn(T) -> usize) {
    for index in 0..places.len() {
        if let Some(ahead) = places.get(index.saturating_add(FETCH_AHEAD)) {
            prefetch_element(numbers, *ahead);
        }
        if let Some(place) = places.get_mut(index) {
            *place = if *place < numbers.len() { widen(numbers.swap_remove(*place)) } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_widths_give_the_same_numbers() {
        let (mut narrow, mut wide) = (RowNumbers::below(9).unwrap(), RowNumbers::wide(9).unwrap());
        assert!(matches!(narrow, RowNumbers::Narrow(_)) && matches!(wide, RowNumbers::Wide(_)));
        let mut taken = Vec::new();
        for count in [4, 5, 1] {
            assert_eq!(narrow.len(), wide.len());
            let places = [3, 3, 0, 5, 4, 2, 2, 1, 0, 0];
            let mut places = places[9 - narrow.len()..][..count].to_vec();
            let mut others = places.clone();
            narrow.take(&mut places);
            wide.take(&mut others);
            assert_eq!(places, others);
            taken.extend(places);
        }
        assert_eq!((taken, narrow.len()), (vec![3, 8, 0, 5, 4, 2, 7, 1, 6, 0], 0));
    }

    #[test]
    fn numbers_beyond_memory_are_an_error() {
        assert!(RowNumbers::below(usize::MAX).is_err());
    }
}
