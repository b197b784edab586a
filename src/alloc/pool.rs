//! Blocks of memory that are used again when whoever has them lets go: the ring of a loader.

use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::HostBuffer;
use crate::error::Result;

/// Where blocks wait for their next use. Dropping it frees them, and those still in use are freed when they are dropped.
#[derive(Debug)]
pub(crate) struct Pool(Arc<Shelf>);

#[derive(Debug)]
struct Shelf {
    /// Blocks that wait at once, at most.
    most: usize,
    waiting: Mutex<Vec<HostBuffer>>,
}

impl Pool {
    /// A pool in which at most so many blocks wait.
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Shelf { most, waiting: Mutex::new(Vec::new()) }))
    }

    /// A block of `len` bytes or more: one that waits, or a fresh one. Its bytes are whatever was there.
    ///
    /// # Errors
    /// When there is none, and the memory cannot be had.
    pub(crate) fn take(&self, len: usize) -> Result<PooledBuffer> {
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = waiting.iter().position(|block| block.len() >= len);
        let block = fitting.map(|position| waiting.swap_remove(position));
        // A block that is too small makes room for the one that replaces it.
        let _outgrown = if block.is_none() { waiting.pop() } else { None };
        drop(waiting);
        let block = block.map_or_else(|| HostBuffer::uninitialised(len), Ok)?;
        Ok(PooledBuffer { block: Some(block), home: Arc::downgrade(&self.0) })
    }
}

/// A block that returns to its pool when it is dropped, on any thread and without waiting for another one.
#[derive(Debug)]
pub(crate) struct PooledBuffer {
    /// Taken out by `drop` alone.
    block: Option<HostBuffer>,
    home: Weak<Shelf>,
}

impl PooledBuffer {
    /// No block.
    pub(crate) fn none() -> Self {
        Self { block: None, home: Weak::new() }
    }

    /// Frees the block: it is of no use any more.
    pub(crate) fn discard(mut self) {
        self.block = None;
    }

    /// The address of the first byte.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.block.as_ref().map_or(std::ptr::null_mut(), HostBuffer::as_ptr)
    }

    /// Size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.block.as_ref().map_or(0, HostBuffer::len)
    }

    /// The bytes, to be written.
    pub(crate) fn as_uninit_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        self.block.as_mut().map_or(&mut [], HostBuffer::as_uninit_mut)
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let (Some(block), Some(home)) = (self.block.take(), self.home.upgrade()) else { return };
        // A lock that another thread holds, perhaps one that a fork left behind, is not waited for.
        if let Ok(mut waiting) = home.waiting.try_lock()
            && waiting.len() < home.most
        {
            waiting.push(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(buffer: &PooledBuffer) -> usize {
        buffer.as_ptr().addr()
    }

    #[test]
    fn a_block_is_used_again_only_when_it_was_let_go() {
        let pool = Pool::new(4);
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
        let pool = Pool::new(2);
        let blocks: Vec<_> = (0..5).map(|_| pool.take(8).unwrap()).collect();
        drop(blocks);
        assert_eq!(pool.0.waiting.lock().unwrap().len(), 2);
        let (held, shelf) = (pool.take(8).unwrap(), Arc::downgrade(&pool.0));
        drop(pool);
        assert!(shelf.upgrade().is_none());
        drop(held);
    }

    #[test]
    fn blocks_that_are_too_small_are_replaced() {
        let pool = Pool::new(2);
        drop((pool.take(8).unwrap(), pool.take(8).unwrap()));
        assert!(pool.take(1 << 12).unwrap().len() >= 1 << 12);
        assert_eq!(pool.0.waiting.lock().unwrap().len(), 2);
        drop(pool.take(1 << 12).unwrap());
        assert!(pool.0.waiting.lock().unwrap().iter().any(|block| block.len() >= 1 << 12));
    }

    #[test]
    fn what_is_discarded_does_not_return() {
        let pool = Pool::new(2);
        pool.take(8).unwrap().discard();
        assert!(pool.0.waiting.lock().unwrap().is_empty());
        assert_eq!(PooledBuffer::none().len(), 0);
    }

    #[test]
    fn letting_go_waits_for_nobody() {
        let pool = Pool::new(2);
        let held = pool.take(8).unwrap();
        // As a fork leaves it when another thread holds the lock: nobody will ever unlock it.
        let _locked = pool.0.waiting.lock().unwrap();
        std::thread::scope(|scope| scope.spawn(move || drop(held)).join().unwrap());
    }
}
