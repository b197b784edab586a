//! The memory of batches: a ring of blocks for each group.

use std::sync::Arc;

use super::kept_rows::{KeptRow, VariedGroups};
use super::row_hashes::fold_bytes;
use crate::alloc::{BlockPool, fallible};
use crate::convert::{RowBlock, RowLayout};
use crate::error::{Error, ErrorKind, Result};

/// Larger batches are allocated as their rows come, because there may be fewer rows.
const GROWS_FROM: usize = 1 << 20;

/// Where slots come from and return to.
pub(super) struct Ring(Arc<Vec<Track>>);

struct Track {
    pool: Arc<BlockPool>,
    layout: Arc<RowLayout>,
    /// The rows of a full slot, and the least capacity.
    rows: usize,
    least: usize,
}

impl Ring {
    /// Returns slots of at most this number of rows, of the memory of a pool for each layout.
    ///
    /// # Errors
    /// If memory cannot be that large.
    pub(super) fn new<'a>(
        layouts: impl Iterator<Item = &'a Arc<RowLayout>>,
        rows: usize,
        pools: impl IntoIterator<Item = Arc<BlockPool>>,
    ) -> Result<Self> {
        let track = |(layout, pool): (&Arc<RowLayout>, _)| {
            let bytes = rows.checked_mul(layout.bytes()).filter(|bytes| isize::try_from(*bytes).is_ok());
            let bytes = bytes.ok_or_else(|| Error::new(ErrorKind::Memory, "a batch is larger than memory can be"))?;
            let least = if bytes <= GROWS_FROM { rows } else { 0 };
            Ok(Track { pool, layout: layout.clone(), rows, least })
        };
        layouts.zip(pools).map(track).collect::<Result<_>>().map(|tracks| Self(Arc::new(tracks)))
    }

    /// Returns a slot of at most this number of rows, whose memory is not kept.
    ///
    /// # Errors
    /// If memory cannot be that large.
    pub(super) fn single<'a>(layouts: impl Iterator<Item = &'a Arc<RowLayout>>, rows: usize) -> Result<Slot> {
        let pools = std::iter::repeat_with(|| Arc::new(BlockPool::new(0, None)));
        Ok(Self::new(layouts, rows, pools)?.slot())
    }

    /// A slot without rows.
    pub(super) fn slot(&self) -> Slot {
        let blocks = self.0.iter().map(|track| RowBlock::new(track.layout.clone())).collect();
        Slot { blocks, kept: Vec::new(), ring: self.0.clone() }
    }
}

/// Memory for the rows of one batch: a block for each group, all with the same number of rows.
pub(super) struct Slot {
    blocks: Vec<RowBlock>,
    /// The same rows of groups whose rows differ in length; none, if there are no such groups.
    kept: Vec<KeptRow>,
    ring: Arc<Vec<Track>>,
}

impl Slot {
    /// How many rows it has.
    pub(super) fn rows(&self) -> usize {
        self.blocks.first().map_or(self.kept.len(), RowBlock::rows)
    }

    /// The block of each group, and the rows of others.
    pub(super) fn parts(&mut self) -> (&mut [RowBlock], &mut Vec<KeptRow>) {
        (&mut self.blocks, &mut self.kept)
    }

    /// The hash of a row, as docs/loader.md defines it.
    ///
    /// # Errors
    /// If there is no such row, or an allocation fails.
    pub(super) fn row_hash(&mut self, row: usize, varied: &VariedGroups) -> Result<u64> {
        let missing = || Error::internal("no such row to hash");
        let hash = self
            .blocks
            .iter_mut()
            .try_fold(0, |hash, block| Ok::<_, Error>(fold_bytes(hash, block.row_bytes(row).ok_or_else(missing)?)))?;
        if varied.is_empty() {
            return Ok(hash);
        }
        varied.fold(hash, self.kept.get(row).ok_or_else(missing)?)
    }

    pub(super) fn into_parts(self) -> (Vec<RowBlock>, Vec<KeptRow>) {
        (self.blocks, self.kept)
    }

    /// The bytes of a row: those of its packed values, and those of the others, if they were counted.
    pub(super) fn row_bytes(&self, row: usize) -> usize {
        let packed = self.ring.iter().map(|track| track.layout.bytes()).fold(0, usize::saturating_add);
        packed.saturating_add(self.kept.get(row).map_or(0, KeptRow::bytes))
    }

    /// The rows that wait in arrays of the source.
    pub(super) fn kept(&mut self) -> &mut [KeptRow] {
        &mut self.kept
    }

    /// Makes room for this number of further rows: allocates a full slot, or doubles the capacity, so that rows rarely
    /// move.
    ///
    /// # Errors
    /// When an allocation fails.
    pub(super) fn reserve(&mut self, more: usize) -> Result<()> {
        for (block, track) in self.blocks.iter_mut().zip(self.ring.iter()) {
            let needed = block.rows().saturating_add(more);
            if needed > block.capacity() {
                let rows = block.capacity().saturating_mul(2).min(track.rows).max(track.least).max(needed);
                block.move_to(track.pool.take(rows.saturating_mul(track.layout.bytes()))?)?;
            }
        }
        Ok(())
    }

    /// Prefetches a row that will soon be exchanged.
    pub(super) fn prefetch(&self, row: usize) {
        self.blocks.iter().for_each(|block| block.prefetch(row));
    }

    /// Drops the rows from this one on.
    pub(super) fn truncate(&mut self, rows: usize) {
        self.kept.truncate(rows);
        for block in &mut self.blocks {
            block.truncate(rows);
        }
    }

    /// Appends a copy of a row of another slot.
    ///
    /// # Errors
    /// If there is no such row, or no room.
    pub(super) fn push(&mut self, other: &mut Self, row: usize) -> Result<()> {
        for (block, other) in self.blocks.iter_mut().zip(&mut other.blocks) {
            block.push(other, row)?;
        }
        match other.kept.get(row) {
            Some(kept) => fallible::push(&mut self.kept, kept.clone()),
            None => Ok(()),
        }
    }

    /// Appends copies of rows of other slots: row r is row r mod 2^shift of slot r / 2^shift.
    ///
    /// # Errors
    /// If there is no such row, or an allocation fails.
    pub(super) fn gather(&mut self, slots: &mut [Self], shift: u32, rows: &[usize]) -> Result<()> {
        self.reserve(rows.len())?;
        for (group, block) in self.blocks.iter_mut().enumerate() {
            let parts = slots.iter_mut().filter_map(|slot| slot.blocks.get_mut(group)).map(RowBlock::all_rows);
            block.gather(&parts.collect::<Vec<_>>(), shift, rows)?;
        }
        if slots.iter().all(|slot| slot.kept.is_empty()) {
            return Ok(());
        }
        fallible::reserve(&mut self.kept, rows.len())?;
        for row in rows {
            let kept = slots.get(row >> shift).and_then(|slot| slot.kept.get(row & ((1 << shift) - 1)));
            self.kept.push(kept.ok_or_else(|| Error::internal("a row that waits without its array"))?.clone());
        }
        Ok(())
    }

    /// Exchanges a row for one of another slot.
    ///
    /// # Errors
    /// When there are no such rows.
    pub(super) fn swap(&mut self, row: usize, other: &mut Self, other_row: usize) -> Result<()> {
        for (block, other) in self.blocks.iter_mut().zip(&mut other.blocks) {
            block.swap(row, other, other_row)?;
        }
        if let (Some(one), Some(two)) = (self.kept.get_mut(row), other.kept.get_mut(other_row)) {
            std::mem::swap(one, two);
        }
        Ok(())
    }
}
