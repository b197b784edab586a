//! What is allocated where: every block that the driver knows of, and the bytes behind it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr;

use crate::clock::Moment;
use crate::error::{Error, Outcome};
use crate::pages::{Pages, Protection};
use crate::race::{Access, Kind, Log};

/// What fresh memory holds, so that a read before the first write shows.
pub(crate) const FRESH: u8 = 0xCD;
/// What freed memory holds.
pub(crate) const FREED: u8 = 0xDD;
/// What lies around the bytes of device memory, and must still be there when they are freed.
const RED: u8 = 0xFB;
const RED_ZONE: usize = 64;
/// Blocks begin at multiples of this, as the driver's do.
const ALIGNMENT: u64 = 512;
/// Device addresses: far more than any test uses, as none is given out twice.
const ADDRESSES: usize = 1 << 40;

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Device,
    /// Page-locked by the driver.
    Pinned,
    Managed,
    /// The caller's own, page-locked later.
    Registered,
}

/// Where a block is in its life, as far as work has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Its allocation is queued on a stream.
    Pending,
    Live,
    Freed,
}

/// The bytes behind a block.
#[derive(Debug)]
enum Bytes {
    /// Device memory: red zone, bytes, red zone. The host sees other, closed addresses.
    Device(Vec<u8>),
    Host(Pages),
    Gone,
}

/// One allocation, or one range of registered memory.
#[derive(Debug)]
pub(crate) struct Block {
    /// Never used twice, unlike an address.
    pub(crate) id: u64,
    pub(crate) base: u64,
    pub(crate) size: u64,
    /// The size that the block takes, for a block that is given out again.
    pub(crate) room: u64,
    pub(crate) place: Place,
    pub(crate) context: usize,
    pub(crate) device: usize,
    pub(crate) pool: Option<usize>,
    pub(crate) flags: u32,
    pub(crate) life: Life,
    /// Whether its free has been asked for.
    pub(crate) freeing: bool,
    pub(crate) log: Log,
    bytes: Bytes,
}

impl Block {
    /// The way of the simulator to a byte of the block.
    fn at(&mut self, address: u64) -> *mut u8 {
        let offset = (address - self.base) as usize;
        match &mut self.bytes {
            Bytes::Device(bytes) => (&raw mut bytes[RED_ZONE + offset]).cast(),
            Bytes::Host(pages) if pages.has_alias() => (pages.addresses().1 + offset as u64) as *mut u8,
            Bytes::Host(_) | Bytes::Gone => address as *mut u8,
        }
    }

    /// All of the block, for a log entry that stands for the whole of it.
    pub(crate) fn whole(&self) -> Range<u64> {
        self.base..self.base + self.room
    }

    /// The pages of a block that the host can see.
    pub(crate) fn pages(&mut self) -> Option<&mut Pages> {
        match &mut self.bytes {
            Bytes::Host(pages) => Some(pages),
            Bytes::Device(_) | Bytes::Gone => None,
        }
    }

    /// Closes the pages that a stream may still be using, and opens the others.
    fn watch(&mut self) {
        let Bytes::Host(pages) = &mut self.bytes else { return };
        pages.protect(self.log.by_streams().filter_map(|access| {
            let protection = match access.kind {
                Kind::Read => Protection::ReadOnly,
                Kind::Write => Protection::Closed,
                Kind::Allocate | Kind::Free => return None,
            };
            Some((access.range.clone(), protection))
        }));
    }

    /// Fresh bytes for device memory.
    pub(crate) fn fill_fresh(&mut self) {
        let mut bytes = vec![RED; self.size as usize + 2 * RED_ZONE];
        bytes[RED_ZONE..RED_ZONE + self.size as usize].fill(FRESH);
        self.bytes = Bytes::Device(bytes);
        self.life = Life::Live;
    }

    /// Lets go of the bytes; the answer is whether the red zones are whole.
    pub(crate) fn bury(&mut self) -> bool {
        self.life = Life::Freed;
        let Bytes::Device(bytes) = std::mem::replace(&mut self.bytes, Bytes::Gone) else { return true };
        let (before, after) = (&bytes[..RED_ZONE], &bytes[bytes.len() - RED_ZONE..]);
        before.iter().chain(after).all(|byte| *byte == RED)
    }
}

/// A block that is not there yet: what [`Memory::add`] needs to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewBlock {
    pub(crate) size: u64,
    pub(crate) place: Place,
    pub(crate) context: usize,
    pub(crate) device: usize,
    pub(crate) pool: Option<usize>,
    pub(crate) flags: u32,
    pub(crate) life: Life,
}

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
        self.find(address).filter(|block| block.life != Life::Freed && !block.freeing)
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
        let room = new.size.next_multiple_of(ALIGNMENT);
        let (base, bytes) = match (new.place, at) {
            (Place::Device, _) => (self.reserve(room)?, Bytes::Gone),
            (Place::Registered, Some(address)) => (address, Bytes::Host(Pages::within(address, new.size))),
            (Place::Pinned | Place::Managed | Place::Registered, _) => {
                let pages = Pages::map(new.size)?;
                (pages.addresses().0, Bytes::Host(pages))
            }
        };
        self.next_id += 1;
        let NewBlock { size, place, context, device, pool, flags, life } = new;
        let (id, log) = (self.next_id, Log::default());
        let mut block =
            Block { id, base, size, room, place, context, device, pool, flags, life, freeing: false, log, bytes };
        match place {
            Place::Device if life == Life::Live => block.fill_fresh(),
            // SAFETY: mapped just now, for this many bytes.
            Place::Pinned | Place::Managed => unsafe { ptr::write_bytes(block.at(base), FRESH, size as usize) },
            Place::Device | Place::Registered => {}
        }
        self.blocks.insert(base, block);
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
        if let Some(mut block) = self.blocks.remove(&base)
            && block.place != Place::Registered
        {
            let first = block.at(base);
            // SAFETY: still mapped, and this many bytes long.
            unsafe { ptr::write_bytes(first, FREED, block.size as usize) };
        }
    }

    fn reserve(&mut self, room: u64) -> Outcome<u64> {
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
        let next = base.checked_add(room + ALIGNMENT).ok_or(Error::OUT_OF_MEMORY)?;
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
        let end = address.checked_add(count).ok_or(Error::ILLEGAL_ADDRESS)?;
        if block.life != Life::Live || end > block.base + block.size {
            return Err(Error::ILLEGAL_ADDRESS);
        }
        if let Bytes::Host(pages) = &mut block.bytes
            && !pages.has_alias()
        {
            pages.open(&(address..end));
            self.changed.push(base);
        }
        Ok(block.at(address))
    }

    /// Logs an access within a block; the answer is what it conflicts with.
    pub(crate) fn log(&mut self, base: u64, access: Access) -> Option<(crate::race::Rule, Access)> {
        let block = self.blocks.get_mut(&base)?;
        if matches!(block.bytes, Bytes::Host(_)) && !access.by_host {
            self.changed.push(base);
        }
        block.log.add(access)
    }

    /// Notes that the operation at `at` has run, in every block that it touched.
    pub(crate) fn done(&mut self, bases: &[u64], at: &Moment) {
        for base in bases {
            if let Some(block) = self.blocks.get_mut(base) {
                block.log.done(at);
                if matches!(block.bytes, Bytes::Host(_)) {
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
        for block in self.blocks.values_mut() {
            if let Bytes::Host(pages) = &mut block.bytes {
                pages.open(&pages.range());
            }
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
