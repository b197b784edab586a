//! What an iteration has read, for whoever takes its state while its thread reads on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The hash of the sampled rows of a source up to one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digest {
    /// How many rows were sampled.
    pub(crate) samples: usize,
    /// The hash of all of them.
    pub(crate) digest: u64,
}

/// The digests of an iteration. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadLog(Arc<Mutex<Read>>);

#[derive(Debug, Default)]
struct Read {
    /// The sampled rows, and the digest after each.
    rows: Vec<(usize, u64)>,
    left_out: Option<usize>,
}

impl ReadLog {
    fn lock(&self) -> MutexGuard<'_, Read> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the digest after a sampled row.
    pub(super) fn add(&self, row: usize, digest: Digest) {
        self.lock().rows.push((row, digest.digest));
    }

    /// Returns the digest of the sampled rows before this one; `None` if there are none.
    #[cfg_attr(not(feature = "python"), allow(dead_code, reason = "states are taken in Python alone"))]
    pub(crate) fn digest_before(&self, row: usize) -> Option<Digest> {
        let read = self.lock();
        let samples = read.rows.partition_point(|(sampled, _)| *sampled < row);
        let (_, digest) = read.rows.get(samples.checked_sub(1)?)?;
        Some(Digest { samples, digest: *digest })
    }

    /// Notes how many rows the epoch left out at its end.
    pub(super) fn end(&self, left_out: usize) {
        self.lock().left_out = Some(left_out);
    }

    /// Returns how many rows the epoch left out; `None` before its end.
    pub(crate) fn left_out(&self) -> Option<usize> {
        self.lock().left_out
    }
}
