//! [`KeptMemory`]: blocks that the epochs of a loader hand on to each other, because fresh pages cost as much as filling them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use crate::alloc::{BlockPool, fallible};
use crate::error::Result;

/// The memory of iterations with the same options. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct KeptMemory(Arc<Mutex<Pools>>);

/// By what they are for, and the number of the group.
type Pools = BTreeMap<(MemoryUse, usize), Arc<BlockPool>>;

/// What blocks are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum MemoryUse {
    /// The batches that a reader makes.
    Batches { reader: usize },
    /// The rows that wait in the shuffle buffer of a lane.
    Shuffle { lane: usize },
}

impl KeptMemory {
    /// Returns a pool of ordinary memory for each of so many groups, each with room for `waiting` unused blocks: those of an earlier
    /// iteration, if they have as much room.
    ///
    /// # Errors
    /// When an allocation fails.
    pub(super) fn pools(&self, used: MemoryUse, groups: usize, waiting: usize) -> Result<Vec<Arc<BlockPool>>> {
        let made = || {
            Arc::new(match used {
                MemoryUse::Batches { .. } => BlockPool::new(waiting, None),
                // The system may have these pages until the next epoch: they are many.
                MemoryUse::Shuffle { .. } => BlockPool::offered(waiting),
            })
        };
        // A lock that a fork left behind is no reason to wait: nothing is kept then.
        let mut kept = self.0.try_lock().ok();
        let mut pools = fallible::with_room(groups)?;
        for group in 0..groups {
            pools.push(match kept.as_mut().map(|kept| kept.entry((used, group)).or_insert_with(made)) {
                Some(pool) if pool.places() != waiting => {
                    *pool = made();
                    pool.clone()
                }
                Some(pool) => pool.clone(),
                None => made(),
            });
        }
        Ok(pools)
    }

    /// Returns for how many unused blocks there is room.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.0.lock().unwrap().values().map(|pool| pool.places()).sum()
    }

    /// Returns the addresses of the unused blocks.
    #[cfg(test)]
    pub(super) fn addresses(&self) -> std::collections::BTreeSet<usize> {
        self.0.lock().unwrap().values().flat_map(|pool| pool.addresses()).collect()
    }
}

impl fmt::Debug for KeptMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptMemory").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_found_again_by_what_they_are_for() {
        let (memory, batches) = (KeptMemory::default(), MemoryUse::Batches { reader: 0 });
        let first = memory.clone().pools(batches, 2, 3).unwrap();
        let again = memory.pools(batches, 2, 3).unwrap();
        assert!(
            first.iter().zip(&again).all(|(one, other)| Arc::ptr_eq(one, other)) && !Arc::ptr_eq(&first[0], &first[1])
        );
        for (used, waiting) in [
            (MemoryUse::Batches { reader: 1 }, 3),
            (MemoryUse::Shuffle { lane: 0 }, 3),
            (MemoryUse::Shuffle { lane: 1 }, 3),
            (batches, 4),
        ] {
            let other = memory.pools(used, 1, waiting).unwrap();
            assert!(!Arc::ptr_eq(&first[0], &other[0]), "{used:?} {waiting}");
        }
        drop(again[0].take(64).unwrap());
        assert!(memory.addresses().is_empty(), "the pool was replaced by one with more room");
    }

    #[test]
    fn a_lock_that_is_held_is_not_waited_for() {
        let memory = KeptMemory::default();
        let held = memory.0.lock().unwrap();
        assert_eq!(memory.pools(MemoryUse::Shuffle { lane: 0 }, 2, 1).unwrap().len(), 2);
        drop(held);
    }
}
