//! A pool of recycled blocks: the ring of a loader.

use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Weak};

use super::{AnyBuffer, HostBuffer};
use crate::error::Result;

/// Allocates a pool's blocks: ordinary memory, or other host memory.
pub(crate) type BlockSource = Box<dyn Fn(usize) -> Result<AnyBuffer> + Send + Sync>;

/// A pool of unused blocks. Dropping it frees them; blocks in use are freed when they are dropped.
pub(crate) struct BlockPool {
    shelf: Arc<Shelf>,
    /// `None` is ordinary memory.
    source: Option<BlockSource>,
}

/// Places for unused blocks, each null or a box that belongs to it. A fork leaves no lock behind here.
#[derive(Debug)]
struct Shelf {
    places: Vec<AtomicPtr<AnyBuffer>>,
    /// Whether the system may take the pages of unused blocks.
    is_offered: bool,
}

impl fmt::Debug for BlockPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockPool").field("shelf", &self.shelf).finish_non_exhaustive()
    }
}

impl BlockPool {
    /// Returns a pool that keeps at most this many unused blocks. `source` allocates them; `None` is ordinary memory.
    pub(crate) fn new(most: usize, source: Option<BlockSource>) -> Self {
        Self { shelf: Arc::new(Shelf::new(most, false)), source }
    }

    /// Returns a pool of ordinary memory that keeps at most this many unused blocks, for a long time: the system may take their
    /// pages when memory is short.
    pub(crate) fn offered(most: usize) -> Self {
        Self { shelf: Arc::new(Shelf::new(most, true)), source: None }
    }

    /// Returns the most unused blocks that it keeps.
    pub(crate) fn places(&self) -> usize {
        self.shelf.places.len()
    }

    /// Returns the addresses of the unused blocks.
    #[cfg(test)]
    pub(crate) fn addresses(&self) -> Vec<usize> {
        let blocks: Vec<_> = self.shelf.places.iter().filter_map(taken).collect();
        let addresses = blocks.iter().map(|block| block.as_ptr().addr()).collect();
        blocks.into_iter().for_each(|block| self.shelf.put(block));
        addresses
    }

    /// Returns a block of at least `len` bytes: an unused one, or a new one. Its bytes hold anything.
    ///
    /// # Errors
    /// If there is none, and the allocation fails.
    pub(crate) fn take(&self, len: usize) -> Result<PooledBuffer> {
        let fits = |block: &AnyBuffer| block.len() >= len;
        // A block that is too small is freed, and a new one replaces it. One that came since the first look may fit.
        let block = self.shelf.take(fits).or_else(|| self.shelf.take(|_| true).filter(|block| fits(block)));
        let block = match (block, &self.source) {
            (Some(mut block), _) => {
                if self.shelf.is_offered {
                    block.reuse_pages();
                }
                block
            }
            (None, None) => Box::new(AnyBuffer::Own(HostBuffer::uninitialised(len)?)),
            (None, Some(source)) => Box::new(source(len)?),
        };
        Ok(PooledBuffer { block: Some(block), home: Arc::downgrade(&self.shelf) })
    }
}

impl Shelf {
    fn new(places: usize, is_offered: bool) -> Self {
        Self { places: (0..places).map(|_| AtomicPtr::new(null_mut())).collect(), is_offered }
    }

    /// Takes a block that `fits`. While one thread takes, it finds every block that was put before, because it scans
    /// forwards and [`Shelf::put`] backwards.
    fn take(&self, fits: impl Fn(&AnyBuffer) -> bool) -> Option<Box<AnyBuffer>> {
        self.places.iter().find_map(|place| {
            let block = taken(place)?;
            if fits(&block) {
                return Some(block);
            }
            if let Err(block) = put(place, block) {
                self.put(block);
            }
            None
        })
    }

    /// Puts a block into a free place, or frees it.
    fn put(&self, block: Box<AnyBuffer>) {
        _ = self.places.iter().rev().try_fold(block, |block, place| put(place, block).err());
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        self.places.iter().for_each(|place| drop(taken(place)));
    }
}

/// Takes the block out of a place.
fn taken(place: &AtomicPtr<AnyBuffer>) -> Option<Box<AnyBuffer>> {
    let block = place.swap(null_mut(), Ordering::Acquire);
    // SAFETY: a pointer that is not null is a box that `put` gave to the place; the exchange took it out, so that no
    // other thread gets it.
    (!block.is_null()).then(|| unsafe { Box::from_raw(block) })
}

/// Puts a block into a free place, or returns it.
fn put(place: &AtomicPtr<AnyBuffer>, block: Box<AnyBuffer>) -> Result<(), Box<AnyBuffer>> {
    let block = Box::into_raw(block);
    match place.compare_exchange(null_mut(), block, Ordering::Release, Ordering::Relaxed) {
        Ok(_) => Ok(()),
        // SAFETY: the box of this call, which no place took.
        Err(_) => Err(unsafe { Box::from_raw(block) }),
    }
}

/// A block that returns to its pool when it is dropped, on any thread and without waiting for another one.
#[derive(Debug)]
pub(crate) struct PooledBuffer {
    /// Taken out by `drop` alone.
    block: Option<Box<AnyBuffer>>,
    home: Weak<Shelf>,
}

impl PooledBuffer {
    /// No block.
    pub(crate) fn none() -> Self {
        Self { block: None, home: Weak::new() }
    }

    /// Frees the block instead of returning it to the pool.
    pub(crate) fn discard(mut self) {
        self.block = None;
    }

    /// The address of the first byte.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.block.as_ref().map_or(null_mut(), |block| block.as_ptr())
    }

    /// Size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.block.as_ref().map_or(0, |block| block.len())
    }

    /// The bytes, to be written.
    pub(crate) fn as_uninit_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        self.block.as_mut().map_or(&mut [], |block| block.as_uninit_mut())
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        if let (Some(mut block), Some(home)) = (self.block.take(), self.home.upgrade()) {
            if home.is_offered {
                block.offer_pages();
            }
            home.put(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(buffer: &PooledBuffer) -> usize {
        buffer.as_ptr().addr()
    }

    fn waiting(pool: &BlockPool) -> Vec<usize> {
        let blocks: Vec<_> = pool.shelf.places.iter().filter_map(taken).collect();
        let sizes = blocks.iter().map(|block| block.len()).collect();
        blocks.into_iter().for_each(|block| pool.shelf.put(block));
        sizes
    }

    #[test]
    fn a_block_is_used_again_only_when_it_was_let_go() {
        let pool = BlockPool::new(4, None);
        let (one, two) = (pool.take(64).unwrap(), pool.take(64).unwrap());
        assert_ne!(address(&one), address(&two));
        let first = address(&one);
        drop(one);
        let three = pool.take(32).unwrap();
        assert_eq!(address(&three), first);
        assert_ne!(address(&pool.take(64).unwrap()), address(&two));
    }

    #[test]
    fn no_more_wait_than_are_allowed_and_none_without_a_pool() {
        let pool = BlockPool::new(2, None);
        let blocks: Vec<_> = (0..5).map(|_| pool.take(8).unwrap()).collect();
        drop(blocks);
        assert_eq!(waiting(&pool).len(), 2);
        let (held, shelf) = (pool.take(8).unwrap(), Arc::downgrade(&pool.shelf));
        drop(pool);
        assert!(shelf.upgrade().is_none());
        drop(held);
    }

    #[test]
    fn pages_that_were_offered_are_written_again() {
        let len = super::super::HUGE_PAGES_FROM + 5;
        let pool = BlockPool::offered(1);
        let mut block = pool.take(len).unwrap();
        for round in 0..3 {
            let first = address(&block);
            block.as_uninit_mut().iter_mut().for_each(|byte| _ = byte.write(round));
            // SAFETY: each byte was just written.
            assert!(block.as_uninit_mut().iter().all(|byte| unsafe { byte.assume_init() } == round));
            drop(block);
            assert_eq!(pool.addresses(), [first]);
            block = pool.take(len).unwrap();
            assert_eq!(address(&block), first);
        }
        // Small blocks have no huge pages to offer.
        drop(BlockPool::offered(1).take(8).unwrap());
    }

    #[test]
    fn blocks_that_are_too_small_are_replaced() {
        let pool = BlockPool::new(2, None);
        drop((pool.take(8).unwrap(), pool.take(8).unwrap()));
        assert!(pool.take(1 << 12).unwrap().len() >= 1 << 12);
        let mut sizes = waiting(&pool);
        sizes.sort_unstable();
        assert_eq!(sizes, [8, 1 << 12]);
    }

    #[test]
    fn blocks_of_another_source_return_to_it_as_others_do() {
        use std::sync::atomic::{AtomicUsize, Ordering};

        struct Counted(HostBuffer, Arc<AtomicUsize>);
        impl Drop for Counted {
            fn drop(&mut self) {
                self.1.fetch_add(1, Ordering::Relaxed);
            }
        }
        let freed = Arc::new(AtomicUsize::new(0));
        let source: BlockSource = {
            let freed = freed.clone();
            Box::new(move |len| {
                let owner = Arc::new(Counted(HostBuffer::uninitialised(len)?, freed.clone()));
                let start = std::ptr::NonNull::new(owner.0.as_ptr()).unwrap();
                // SAFETY: memory of the owner, which nobody else uses.
                Ok(AnyBuffer::Foreign(unsafe { super::super::ForeignBuffer::new(start, len, owner) }))
            })
        };
        let pool = BlockPool::new(1, Some(source));
        let (mut one, two) = (pool.take(64).unwrap(), pool.take(64).unwrap());
        one.as_uninit_mut().iter_mut().for_each(|byte| _ = byte.write(1));
        let first = address(&one);
        drop(one);
        assert_eq!(freed.load(Ordering::Relaxed), 0);
        drop(two);
        assert_eq!(freed.load(Ordering::Relaxed), 1, "there is room for one");
        assert_eq!((address(&pool.take(64).unwrap()), freed.load(Ordering::Relaxed)), (first, 1));
        drop(pool);
        assert_eq!(freed.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn what_is_discarded_does_not_return() {
        let pool = BlockPool::new(2, None);
        pool.take(8).unwrap().discard();
        assert!(waiting(&pool).is_empty());
        assert_eq!(PooledBuffer::none().len(), 0);
    }

    #[test]
    fn one_thread_takes_what_others_let_go_and_nothing_new() {
        use std::collections::HashSet;
        use std::sync::atomic::AtomicUsize;
        use std::sync::mpsc::channel;

        const BLOCKS: usize = 4;
        let pool = BlockPool::new(BLOCKS, None);
        let (lend, lent) = channel::<PooledBuffer>();
        let let_go = AtomicUsize::new(0);
        let mut seen = HashSet::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for block in lent {
                    drop(block);
                    let_go.fetch_add(1, Ordering::AcqRel);
                }
            });
            for round in 0..if cfg!(miri) { 50 } else { 500_000 } {
                while round >= let_go.load(Ordering::Acquire) + BLOCKS {
                    std::hint::spin_loop();
                }
                let block = pool.take(64).unwrap();
                seen.insert(address(&block));
                lend.send(block).unwrap();
            }
            drop(lend);
        });
        assert!(seen.len() <= BLOCKS, "{seen:?}");
    }

    #[test]
    fn no_two_threads_get_one_block_while_they_take_and_return_at_once() {
        for is_offered in [false, true] {
            let pool = if is_offered { BlockPool::offered(3) } else { BlockPool::new(3, None) };
            std::thread::scope(|scope| {
                for thread in 1..=4_u8 {
                    let pool = &pool;
                    scope.spawn(move || {
                        for round in 0..if cfg!(miri) { 8 } else { 2_000 } {
                            // Some blocks are too small for the next request, and are replaced.
                            let mut block = pool.take(if round % 3 == 0 { 96 } else { 64 }).unwrap();
                            block.as_uninit_mut()[..64].iter_mut().for_each(|byte| _ = byte.write(thread));
                            std::thread::yield_now();
                            // SAFETY: the line above wrote these bytes.
                            let own =
                                block.as_uninit_mut()[..64].iter().all(|byte| unsafe { byte.assume_init() } == thread);
                            assert!(own, "another thread wrote to this thread's block");
                            if round % 5 == 0 {
                                block.discard();
                            }
                        }
                    });
                }
            });
            assert!(waiting(&pool).len() <= 3);
        }
    }
}
