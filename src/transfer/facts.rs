//! What has the host to know of device memory, and is a kernel to find it out?

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::host_read::{HostRead, read_to_host};
use super::number::numbers_by;
use super::own_memory::device_address;
use super::path::is_read_in_place;
use crate::arrow::BitRange;
use crate::cuda::{Current, DeviceBits, PinnedBlock, Stream};
use crate::error::Result;
use crate::stream_order::{self, Readiness};

/// So many bitmaps and columns of bools are copied to the host, if they have no more than `SMALL` bytes: a copy of these takes
/// no longer than a kernel, and needs neither scratch memory nor a module.
const FEW: usize = 8;
const SMALL: usize = 64 << 10;

/// What the host has to know of memory of a device before it can say that columns are views.
#[derive(Debug, Default)]
pub(crate) struct Unknowns {
    bitmaps: Vec<BitRange>,
    bools: Vec<Range<usize>>,
}

/// What the host knows of memory of a device.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Bitmaps whose bits are all set.
    full: HashSet<BitRange>,
    /// Whether bytes are all 0 or 1.
    bools: HashMap<Range<usize>, bool>,
    /// The bytes of all others.
    bytes: HostRead,
}

impl Unknowns {
    /// Adds bitmaps: where are they not set?
    pub(crate) fn add_bitmaps(&mut self, bitmaps: impl IntoIterator<Item = BitRange>) {
        self.bitmaps.extend(bitmaps);
    }

    /// Adds the addresses of bytes: are all of them 0 or 1?
    pub(crate) fn add_bools(&mut self, bytes: Range<usize>) {
        self.bools.push(bytes);
    }

    /// Finds all of it out, with one wait of the host, and one more for the bitmaps that have unset bits: kernels look at
    /// what is large or in many pieces, and the host reads the rest.
    ///
    /// # Errors
    /// As [`read_to_host`].
    pub(crate) fn find(&self, readiness: &Readiness) -> Result<Facts> {
        let mut facts = Facts::default();
        if self.are_for_kernels() && !is_read_in_place(readiness.device())? {
            let current = stream_order::enter(readiness.device())?;
            // A device that can load no kernels copies.
            if stream_order::load_kernels(&current).is_ok() {
                facts = self.ask_kernels(readiness, &current)?;
            }
        }
        let unread = self.bitmaps.iter().filter(|bits| !facts.full.contains(*bits)).map(BitRange::bytes);
        let bools = self.bools.iter().filter(|bytes| !facts.bools.contains_key(*bytes)).cloned();
        facts.bytes = read_to_host(readiness, &unread.chain(bools).collect::<Vec<_>>())?;
        Ok(facts)
    }

    fn are_for_kernels(&self) -> bool {
        let pieces = self.bitmaps.len().saturating_add(self.bools.len());
        let lengths =
            self.bitmaps.iter().map(BitRange::bytes).chain(self.bools.iter().cloned()).map(|bytes| bytes.len());
        let bytes = lengths.fold(0, usize::saturating_add);
        // Numbers of more pieces than that need more than one copy.
        bytes > 0 && (pieces > FEW || bytes > SMALL) && pieces <= PinnedBlock::BYTES / size_of::<u64>()
    }

    fn ask_kernels(&self, readiness: &Readiness, current: &Current) -> Result<Facts> {
        let mut bitmaps = Vec::new();
        for bits in &self.bitmaps {
            readiness.check_part_in(current, &bits.bytes())?;
            let place = DeviceBits { bitmap: device_address(bits.start)?, first: bits.first_bit as u64 };
            bitmaps.push((place, bits.count as u64));
        }
        let mut columns = Vec::new();
        for bytes in &self.bools {
            readiness.check_part_in(current, bytes)?;
            columns.push((device_address(bytes.start)?, bytes.len() as u64));
        }
        let run = |numbers: u64, stream: Stream| {
            // SAFETY: the bits were just checked, and are released behind the kernel; there is a number for each.
            unsafe { current.count_nulls(&bitmaps, numbers, stream) }?;
            let mut found = numbers + (bitmaps.len() * size_of::<u64>()) as u64;
            for (start, count) in &columns {
                // SAFETY: the bytes were just checked, and are released behind the kernel; there is a number for each column.
                unsafe { current.find_no_bool(*start, *count, found, stream) }?;
                found += size_of::<u64>() as u64;
            }
            Ok(())
        };
        let numbers = numbers_by(readiness, current, [bitmaps.len(), columns.len()], run)?;
        let (nulls, found) = numbers.split_at_checked(bitmaps.len()).unwrap_or((&[], &[]));
        let full = self.bitmaps.iter().zip(nulls).filter(|(_, nulls)| **nulls == 0).map(|(bits, _)| *bits).collect();
        let bools = self.bools.iter().cloned().zip(found.iter().map(|found| *found == u64::MAX)).collect();
        Ok(Facts { full, bools, bytes: HostRead::default() })
    }
}

impl Facts {
    /// Returns the bytes of a bitmap that was asked for; `None` if all its bits are set.
    ///
    /// # Errors
    /// If nobody asked for it.
    pub(crate) fn bits(&self, bits: &BitRange) -> Result<Option<&[u8]>> {
        if self.full.contains(bits) {
            return Ok(None);
        }
        let bytes = bits.bytes();
        self.bytes.require(bytes.start, bytes.len()).map(Some)
    }

    /// Returns whether bytes that were asked for are all 0 or 1; `None` if nobody asked.
    pub(crate) fn are_bools(&self, bytes: &Range<usize>) -> Option<bool> {
        let read = || Some(self.bytes.get(bytes.start, bytes.len())?.iter().all(|byte| *byte <= 1));
        self.bools.get(bytes).copied().or_else(read)
    }
}
