//! What the tests share: producers that count their releases, arrays of any type, and a scalar-by-scalar reference.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(unsafe_code, reason = "makes, reads and releases C structs as other libraries do")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a helper that fails is a test that fails")]
#![allow(clippy::indexing_slicing, reason = "a helper that fails is a test that fails")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "the numbers of a test are small"
)]

pub(crate) mod arrow;
pub(crate) mod cast;
pub(crate) mod column;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
pub(crate) mod dlpack;
pub(crate) mod plan;
pub(crate) mod reference;

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How often something was released. Clones share the count.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count(Arc<AtomicUsize>);

impl Count {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Says that nobody frees this memory, on purpose: LeakSanitizer and Miri find the pointer here.
pub(crate) fn left_alive<T>(pointer: *mut T) {
    static LEFT: Mutex<Vec<AtomicPtr<u8>>> = Mutex::new(Vec::new());
    LEFT.lock().unwrap_or_else(PoisonError::into_inner).push(AtomicPtr::new(pointer.cast()));
}

/// Adds to its count when it is dropped.
#[derive(Debug)]
pub(crate) struct CountsDrop(pub(crate) Count);

impl Drop for CountsDrop {
    fn drop(&mut self) {
        self.0.add();
    }
}

/// Numbers that look random and are the same in every run.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next 64 bits, by SplitMix64's finaliser over a counter.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
