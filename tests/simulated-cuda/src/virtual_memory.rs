//! Addresses that are reserved, and memory of devices that is mapped there: what allocators with segments that grow are made of.

use std::ops::Range;

use crate::block::{Block, Life, NewBlock, Origin, Place};
use crate::call::Call;
use crate::clock::Clock;
use crate::error::{Error, Outcome};
use crate::race::{Access, Kind, only};
use crate::state::State;

/// The unit in which memory is made and mapped, as on devices of today.
pub(crate) const GRANULARITY: u64 = 2 << 20;
/// The largest reservation: each has bytes of the host behind it.
const MOST: u64 = 1 << 30;

/// Memory of a device that has no address by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Physical {
    pub(crate) device: usize,
    pub(crate) size: u64,
    /// Whether it is mapped: at one address at most, unlike on a device.
    mapped: bool,
    /// Whether its handle is released: it goes when nothing maps it.
    released: bool,
}

/// A part of a reservation behind which there is memory.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    pub(crate) range: Range<u64>,
    pub(crate) device: usize,
    handle: u64,
    /// Devices that may read and write it: none at first, not even its own.
    access: Vec<usize>,
}

impl Block {
    /// The mapping that an address of a reservation is in.
    pub(crate) fn mapping(&self, address: u64) -> Option<&Mapping> {
        let Origin::Reserved(mappings) = &self.origin else { return None };
        mappings.iter().find(|mapping| mapping.range.contains(&address))
    }

    /// Whether there is memory behind each of these bytes, which may be several mappings one behind the other, that a device may touch, or
    /// any at all. True for blocks that are no reservations.
    pub(crate) fn is_mapped(&self, range: &Range<u64>, device: Option<usize>) -> bool {
        let Origin::Reserved(_) = self.origin else { return true };
        let mut next = range.start;
        while next < range.end {
            let mapping = self.mapping(next).filter(|mapping| device.is_none_or(|of| mapping.access.contains(&of)));
            let Some(mapping) = mapping else { return false };
            next = mapping.range.end;
        }
        true
    }

    fn mappings(&mut self) -> Outcome<&mut Vec<Mapping>> {
        match &mut self.origin {
            Origin::Reserved(mappings) => Ok(mappings),
            Origin::Driver | Origin::Imported { .. } => Err(Error::INVALID_VALUE),
        }
    }
}

impl State {
    /// The reservation that has all of these bytes.
    fn reservation(&mut self, range: &Range<u64>) -> Outcome<&mut Block> {
        let base = self.memory.find_usable(range.start).map(|block| block.base).ok_or(Error::INVALID_VALUE)?;
        let block = self.memory.get_mut(base).filter(|block| range.end <= block.base + block.size);
        block.filter(|block| matches!(block.origin, Origin::Reserved(_))).ok_or(Error::INVALID_VALUE)
    }

    /// How many handles of memory are not released, and how much memory is mapped without one.
    pub(crate) fn live_physical(&self) -> usize {
        self.physical.len()
    }

    /// Forgets memory that has no handle and no address.
    fn forget_unused(&mut self, handle: u64) {
        let unused = self.physical.get(&handle).filter(|physical| physical.released && !physical.mapped).copied();
        if let Some(physical) = unused {
            self.physical.remove(&handle);
            self.devices[physical.device].used -= physical.size;
        }
    }
}

/// The bytes from an address on, which are whole units.
fn units(address: u64, size: u64) -> Outcome<Range<u64>> {
    let end = address.checked_add(size).filter(|_| size > 0).ok_or(Error::INVALID_VALUE)?;
    if address.is_multiple_of(GRANULARITY) && size.is_multiple_of(GRANULARITY) {
        Ok(address..end)
    } else {
        Err(Error::INVALID_VALUE)
    }
}

impl Call {
    /// Reserves addresses.
    pub(crate) fn reserve(&mut self, size: u64, alignment: u64) -> Outcome<u64> {
        units(0, size)?;
        if size > MOST || alignment > GRANULARITY {
            return Err(Error::OUT_OF_MEMORY);
        }
        let life = Life::Pending;
        let new = NewBlock { size, place: Place::Device, context: 0, device: 0, pool: None, flags: 0, life };
        self.memory.align(GRANULARITY)?;
        let base = self.memory.add(new, None)?;
        self.memory.get_mut(base).expect("just added").reserve();
        Ok(base)
    }

    /// Gives reserved addresses back, behind which there is no memory any more.
    pub(crate) fn unreserve(&mut self, base: u64, size: u64) -> Outcome {
        let block = self.reservation(&(base..base.saturating_add(size)))?;
        if (block.base, block.size) != (base, size) || !block.mappings()?.is_empty() {
            return Err(Error::INVALID_VALUE);
        }
        block.bury();
        Ok(())
    }

    /// Makes memory of a device.
    pub(crate) fn create_physical(&mut self, device: usize, size: u64) -> Outcome<u64> {
        units(0, size)?;
        let clock = Clock::default();
        self.take_memory(device, size, None, &clock)?;
        let handle = self.handle() as u64;
        self.physical.insert(handle, Physical { device, size, mapped: false, released: false });
        Ok(handle)
    }

    /// Releases the handle of memory.
    pub(crate) fn release_physical(&mut self, handle: u64) -> Outcome {
        let physical = self.physical.get_mut(&handle).filter(|physical| !physical.released);
        physical.ok_or(Error::INVALID_VALUE)?.released = true;
        self.forget_unused(handle);
        Ok(())
    }

    /// Maps memory to reserved addresses. No device may touch it yet.
    pub(crate) fn map(&mut self, address: u64, size: u64, handle: u64) -> Outcome {
        let range = units(address, size)?;
        let physical = *self.physical.get(&handle).ok_or(Error::INVALID_VALUE)?;
        if physical.released || physical.size != size {
            return Err(Error::INVALID_VALUE);
        }
        if physical.mapped {
            return Err(Error::NOT_SUPPORTED);
        }
        let block = self.reservation(&range)?;
        let mappings = block.mappings()?;
        if mappings.iter().any(|mapping| mapping.range.start < range.end && range.start < mapping.range.end) {
            return Err(Error::INVALID_VALUE);
        }
        mappings.push(Mapping { range: range.clone(), device: physical.device, handle, access: Vec::new() });
        block.refresh(&range);
        self.physical.get_mut(&handle).expect("looked at just now").mapped = true;
        self.log_by_host(range, Kind::Allocate);
        Ok(())
    }

    /// Takes the memory away from addresses: whatever uses it must be known to be done, as nothing waits here.
    pub(crate) fn unmap(&mut self, address: u64, size: u64) -> Outcome {
        let range = units(address, size)?;
        let block = self.reservation(&range)?;
        let inside = |mapping: &Mapping| range.start <= mapping.range.start && mapping.range.end <= range.end;
        let mappings = block.mappings()?;
        let covered: u64 =
            mappings.iter().filter(|mapping| inside(mapping)).map(|one| one.range.end - one.range.start).sum();
        if covered != size {
            return Err(Error::INVALID_VALUE);
        }
        let handles: Vec<u64> =
            mappings.extract_if(.., |mapping| inside(mapping)).map(|mapping| mapping.handle).collect();
        self.log_by_host(range, Kind::Free);
        for handle in handles {
            if let Some(physical) = self.physical.get_mut(&handle) {
                physical.mapped = false;
            }
            self.forget_unused(handle);
        }
        Ok(())
    }

    /// Grants or takes a device's access to whole mappings.
    pub(crate) fn set_access(&mut self, address: u64, size: u64, device: usize, granted: bool) -> Outcome {
        let range = units(address, size)?;
        let block = self.reservation(&range)?;
        if !block.is_mapped(&range, None) {
            return Err(Error::INVALID_VALUE);
        }
        for mapping in block.mappings()?.iter_mut().filter(|mapping| range.contains(&mapping.range.start)) {
            mapping.access.retain(|of| *of != device);
            mapping.access.extend(granted.then_some(device));
        }
        Ok(())
    }

    /// The memory behind an address.
    pub(crate) fn physical_at(&self, address: u64) -> Outcome<u64> {
        let block = self.memory.find_usable(address).ok_or(Error::INVALID_VALUE)?;
        block.mapping(address).map(|mapping| mapping.handle).ok_or(Error::INVALID_VALUE)
    }

    /// This thread changes what is behind addresses, now.
    fn log_by_host(&mut self, range: Range<u64>, kind: Kind) {
        let (thread, what) = (self.thread, self.name);
        let at = self.host_moment(thread);
        self.log(Access { ranges: only(range), kind, at, what, by_host: true, done: true });
    }
}
