//! What is allocated where: every block that the driver knows of, by its address.

use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr;

use crate::block::{ALIGNMENT, Block, Bytes, Life, NewBlock, Place};
use crate::clock::Moment;
use crate::error::{Error, Outcome};
use crate::pages::Pages;
use crate::race::{Access, Rule};

/// Device addresses: far more than any test uses, as none is given out twice.
const ADDRESSES: usize = 1 << 40;

/// Every block, alive or freed, by its first address.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    blocks: BTreeMap<u64, Block>,
    /// The addresses that device pointers come from; the host can touch none of them.
    addresses: Range<u64>,
    next: u64,
    next_id: u64,
    /// Blocks whose pages have to be looked at again.
    changed: Vec<u64>,
    /// Blocks with pages that are open to the host until the driver is called again.
    opened: Vec<u64>,
}

impl Memory {
    pub(crate) fn get(&self, base: u64) -> Option<&Block> {
        self.blocks.get(&base)
    }

    pub(crate) fn get_mut(&mut self, base: u64) -> Option<&mut Block> {
        self.blocks.get_mut(&base)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Block> {
        self.blocks.values()
    }

    /// The block that `address` points into, freed or not.
    pub(crate) fn find(&self, address: u64) -> Option<&Block> {
        let (_, block) = self.blocks.range(..=address).next_back()?;
        (address < block.base + block.size).then_some(block)
    }

    /// The block that `address` points into, if it is not freed, nor its free asked for.
    pub(crate) fn find_usable(&self, address: u64) -> Option<&Block> {
        self.find(address).filter(|block| !block.is_nobodys() && !block.freeing)
    }

    /// The first address of the block with a watched page that holds `address`.
    pub(crate) fn watched(&mut self, address: u64) -> Option<u64> {
        let (base, block) = self.blocks.range_mut(..=address).next_back()?;
        block.pages().is_some_and(|pages| pages.range().contains(&address)).then_some(*base)
    }

    /// Whether any block that is not freed has a byte of `range`.
    pub(crate) fn overlaps(&self, range: &Range<u64>) -> bool {
        let below = self.blocks.range(..range.end).next_back();
        below.is_some_and(|(_, block)| block.life != Life::Freed && block.base + block.size > range.start)
    }

    /// Whether only the device may touch the address, allocated or not.
    pub(crate) fn is_device_address(&self, address: u64) -> bool {
        self.addresses.contains(&address)
    }

    /// Adds a block, at `at` if the caller owns the memory, else at an address of its own.
    pub(crate) fn add(&mut self, new: NewBlock, at: Option<u64>) -> Outcome<u64> {
        let (base, bytes) = match (new.place, at) {
            (Place::Device, _) => (self.reserve(new.size)?, Bytes::Gone),
            (Place::Registered, Some(address)) => (address, Bytes::Host(Pages::within(address, new.size))),
            (Place::Pinned | Place::Managed | Place::Registered, _) => {
                let pages = Pages::map(new.size)?;
                (pages.addresses().0, Bytes::Host(pages))
            }
        };
        self.next_id += 1;
        self.blocks.insert(base, Block::new(self.next_id, base, bytes, new));
        Ok(base)
    }

    /// Gives a freed block out again, with the same address and a new identity.
    pub(crate) fn add_again(&mut self, base: u64, new: NewBlock) {
        self.next_id += 1;
        let block = self.blocks.get_mut(&base).expect("a block that was freed is still known");
        (block.id, block.size, block.freeing, block.context) = (self.next_id, new.size, false, new.context);
    }

    /// Forgets host memory: its address is the system's again.
    pub(crate) fn remove(&mut self, base: u64) {
        if let Some(mut block) = self.blocks.remove(&base) {
            block.poison_freed();
        }
    }

    /// The next address that is given out is a multiple of `alignment`.
    pub(crate) fn align(&mut self, alignment: u64) -> Outcome {
        if self.addresses.is_empty() {
            self.reserve(0)?;
        }
        self.next = self.next.next_multiple_of(alignment);
        Ok(())
    }

    fn reserve(&mut self, size: u64) -> Outcome<u64> {
        if self.addresses.is_empty() {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: a new mapping without access, at an address that the system chooses.
            let start = unsafe { libc::mmap(ptr::null_mut(), ADDRESSES, libc::PROT_NONE, flags, -1, 0) };
            if start == libc::MAP_FAILED {
                return Err(Error::OUT_OF_MEMORY);
            }
            self.addresses = start as u64..start as u64 + ADDRESSES as u64;
            self.next = self.addresses.start + ALIGNMENT;
        }
        let base = self.next;
        // The gap belongs to no block, so that a pointer past the end of one is not a pointer into the next.
        let room = size.checked_next_multiple_of(ALIGNMENT).and_then(|room| room.checked_add(ALIGNMENT));
        let next = room.and_then(|room| base.checked_add(room)).ok_or(Error::OUT_OF_MEMORY)?;
        if next > self.addresses.end {
            return Err(Error::OUT_OF_MEMORY);
        }
        self.next = next;
        Ok(base)
    }

    /// The bytes at a device-visible address, for an operation that runs now. An error is what a device would fault on.
    pub(crate) fn bytes(&mut self, address: u64, count: u64) -> Outcome<*mut u8> {
        let base = self.find(address).map(|block| block.base).ok_or(Error::ILLEGAL_ADDRESS)?;
        let block = self.blocks.get_mut(&base).expect("found just now");
        let (first, opened) = block.reach(address, count)?;
        if opened {
            self.changed.push(base);
        }
        Ok(first)
    }

    /// Logs an access within a block; the answer is what it conflicts with.
    pub(crate) fn log(&mut self, base: u64, access: Access) -> Option<(Rule, Access)> {
        let block = self.blocks.get_mut(&base)?;
        if block.place != Place::Device && !access.by_host {
            self.changed.push(base);
        }
        block.log(access)
    }

    /// Notes that the operation at `at` has run, in every block that it touched.
    pub(crate) fn done(&mut self, bases: &[u64], at: &Moment) {
        for base in bases {
            if let Some(block) = self.blocks.get_mut(base) {
                block.log.done(at);
                if block.place != Place::Device {
                    self.changed.push(*base);
                }
            }
        }
    }

    /// Opens pages for an access by the host, until the driver is called again.
    pub(crate) fn open(&mut self, base: u64, range: &Range<u64>) {
        if let Some(pages) = self.blocks.get_mut(&base).and_then(Block::pages) {
            pages.open(range);
            self.changed.retain(|other| *other != base);
            self.opened.push(base);
        }
    }

    /// Watches again what the host was let through to.
    pub(crate) fn watch_opened(&mut self) {
        self.changed.append(&mut self.opened);
        self.watch();
    }

    /// Opens all that is watched, for good.
    pub(crate) fn open_all(&mut self) {
        for pages in self.blocks.values_mut().filter_map(Block::pages) {
            pages.open(&pages.range());
        }
        self.changed.clear();
        self.opened.clear();
    }

    /// Closes and opens pages as the logs now say.
    pub(crate) fn watch(&mut self) {
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        changed.dedup();
        for base in changed {
            if let Some(block) = self.blocks.get_mut(&base) {
                block.watch();
            }
        }
    }
}
