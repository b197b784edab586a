//! One block of memory: where it is, where in its life, and the bytes behind it.

use std::ops::Range;
use std::ptr;

use crate::clock::Moment;
use crate::error::{Error, Outcome};
use crate::ipc::{HANDLE, Shared};
use crate::pages::{Pages, Protection};
use crate::race::{Access, Kind, Log, Rule};
use crate::virtual_memory::Mapping;

/// What fresh memory holds, so that a read before the first write shows.
const FRESH: u8 = 0xCD;
/// What freed memory holds.
const FREED: u8 = 0xDD;
/// What lies around the bytes of device memory, and must still be there when they are freed.
const RED: u8 = 0xFB;
const RED_ZONE: usize = 64;
/// Device blocks begin at multiples of this, as the driver's do.
pub(crate) const ALIGNMENT: u64 = 512;

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

/// How a block came to be.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// Memory that the driver allocated, or that a caller registered.
    Driver,
    /// Reserved addresses, and what is mapped there.
    Reserved(Vec<Mapping>),
    /// Memory of another process, by its handle, and how often it is open.
    Imported { of: [u8; HANDLE], opened: u32 },
}

/// Where a block is in its life, as far as work has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Its allocation is queued on a stream.
    Pending,
    Live,
    Freed,
}

/// A block that is not there yet.
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

/// The bytes behind a block.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// Device memory: red zone, bytes, red zone. The host sees other, closed addresses.
    Device(Vec<u8>),
    /// Device memory that other processes have, too, without red zones.
    Shared(Shared),
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
    /// The bytes that the block takes.
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
    /// Frees that have not run, after which the block was given out again all the same, and what touched it before them.
    before: Vec<(Moment, Log)>,
    pub(crate) origin: Origin,
    /// Allocations in the order of streams that have not run: it may be freed by now, and given out again.
    pub(crate) awaited: u32,
    bytes: Bytes,
}

impl Block {
    /// A block with its bytes, poisoned unless they are the caller's own or not there yet.
    pub(crate) fn new(id: u64, base: u64, bytes: Bytes, new: NewBlock) -> Block {
        let NewBlock { size, place, context, device, pool, flags, life } = new;
        let (room, log, origin) = (size.next_multiple_of(ALIGNMENT), Log::default(), Origin::Driver);
        let (freeing, awaited) = (false, 0);
        let mut block = Block {
            id,
            base,
            size,
            room,
            place,
            context,
            device,
            pool,
            flags,
            life,
            freeing,
            log,
            before: Vec::new(),
            origin,
            awaited,
            bytes,
        };
        match place {
            Place::Device if life == Life::Live => block.fill_fresh(),
            Place::Pinned | Place::Managed => block.poison(FRESH),
            Place::Device | Place::Registered => {}
        }
        block
    }

    /// The way of the simulator to a byte of the block.
    fn at(&mut self, address: u64) -> *mut u8 {
        let offset = (address - self.base) as usize;
        match &mut self.bytes {
            Bytes::Device(bytes) => &raw mut bytes[RED_ZONE + offset],
            Bytes::Shared(shared) => (shared.address + offset as u64) as *mut u8,
            Bytes::Host(pages) if pages.has_alias() => (pages.addresses().1 + offset as u64) as *mut u8,
            Bytes::Host(_) | Bytes::Gone => address as *mut u8,
        }
    }

    /// Bytes for an operation that runs now, and whether pages had to be opened to the host for that. An error is what a device
    /// would fault on.
    pub(crate) fn reach(&mut self, address: u64, count: u64) -> Outcome<(*mut u8, bool)> {
        let end = address.checked_add(count).ok_or(Error::ILLEGAL_ADDRESS)?;
        if self.life != Life::Live || end > self.base + self.size || !self.is_mapped(&(address..end), None) {
            return Err(Error::ILLEGAL_ADDRESS);
        }
        let pages = self.pages().filter(|pages| !pages.has_alias());
        let opened = pages.map(|pages| pages.open(&(address..end))).is_some();
        Ok((self.at(address), opened))
    }

    /// The block is given out again before its free has run.
    pub(crate) fn given_out_before(&mut self, free: Moment) {
        self.before.push((free, std::mem::take(&mut self.log)));
    }

    /// The free at `at` has run, and so has all that is ordered before it.
    pub(crate) fn freed_at(&mut self, at: &Moment) {
        self.before.retain(|(free, _)| !free.is(at));
    }

    /// Logs an access. A kernel's becomes known when it runs, which may be after the block was given out again: what is ordered before a
    /// free is compared with what was there before that.
    pub(crate) fn log(&mut self, access: Access) -> Option<(Rule, Access)> {
        let before = self.before.iter_mut().find(|(free, _)| access.at.known_to(&free.clock));
        before.map_or(&mut self.log, |(_, log)| log).add(access)
    }

    /// Whether nobody has the block: it was freed, and not given out again since.
    pub(crate) fn is_nobodys(&self) -> bool {
        self.life == Life::Freed && self.awaited == 0
    }

    /// All of the block, for a log entry that stands for the whole of it.
    pub(crate) fn whole(&self) -> Range<u64> {
        self.base..self.base + self.room
    }

    /// The pages of a block that the host can see.
    pub(crate) fn pages(&mut self) -> Option<&mut Pages> {
        match &mut self.bytes {
            Bytes::Host(pages) => Some(pages),
            Bytes::Device(_) | Bytes::Shared(_) | Bytes::Gone => None,
        }
    }

    /// Closes the pages that a stream may still be using, and opens the others.
    pub(crate) fn watch(&mut self) {
        let Bytes::Host(pages) = &mut self.bytes else { return };
        let used = self.log.by_streams().filter_map(|access| match access.kind {
            Kind::Read => Some((access, Protection::ReadOnly)),
            Kind::Write => Some((access, Protection::Closed)),
            Kind::Allocate | Kind::Free => None,
        });
        let ranges = |(access, protection)| {
            let access: &Access = access;
            access.ranges.iter().map(move |range| (range.clone(), protection))
        };
        pages.protect(used.flat_map(ranges));
    }

    /// Fresh bytes for device memory.
    pub(crate) fn fill_fresh(&mut self) {
        let size = self.size as usize;
        let mut bytes = vec![RED; size + 2 * RED_ZONE];
        bytes[RED_ZONE..RED_ZONE + size].fill(FRESH);
        self.bytes = Bytes::Device(bytes);
        (self.life, self.awaited) = (Life::Live, self.awaited.saturating_sub(1));
    }

    /// Makes a new block reserved addresses: its bytes are there, and none of them is mapped.
    pub(crate) fn reserve(&mut self) {
        let size = self.size as usize;
        // Zeros cost no memory until they are written.
        let mut bytes = vec![0; size + 2 * RED_ZONE];
        bytes[..RED_ZONE].fill(RED);
        bytes[RED_ZONE + size..].fill(RED);
        (self.bytes, self.life, self.origin) = (Bytes::Device(bytes), Life::Live, Origin::Reserved(Vec::new()));
    }

    /// Makes a new block memory of another process.
    pub(crate) fn import(&mut self, bytes: Bytes, origin: Origin) {
        (self.bytes, self.life, self.origin) = (bytes, Life::Live, origin);
    }

    /// Poisons a part of reserved addresses, which has new memory.
    pub(crate) fn refresh(&mut self, range: &Range<u64>) {
        let (first, count) = (self.at(range.start), (range.end - range.start) as usize);
        // SAFETY: a part of the block's bytes.
        unsafe { ptr::write_bytes(first, FRESH, count) };
    }

    /// Puts the bytes where other processes can map them; the answer is the file's descriptor.
    pub(crate) fn share(&mut self) -> Outcome<i32> {
        if let Bytes::Device(bytes) = &self.bytes {
            let bytes = &bytes[RED_ZONE..bytes.len() - RED_ZONE];
            self.bytes = Bytes::Shared(Shared::of(bytes)?);
        }
        match &self.bytes {
            Bytes::Shared(shared) => Ok(shared.file()),
            Bytes::Device(_) | Bytes::Host(_) | Bytes::Gone => Err(Error::INVALID_VALUE),
        }
    }

    /// Lets go of the bytes; the answer is whether the red zones are whole.
    pub(crate) fn bury(&mut self) -> bool {
        self.life = Life::Freed;
        match std::mem::replace(&mut self.bytes, Bytes::Gone) {
            Bytes::Device(bytes) => {
                let (before, after) = (&bytes[..RED_ZONE], &bytes[bytes.len() - RED_ZONE..]);
                before.iter().chain(after).all(|byte| *byte == RED)
            }
            Bytes::Shared(_) | Bytes::Host(_) | Bytes::Gone => true,
        }
    }

    /// What host memory holds when its owner lets it go.
    pub(crate) fn poison_freed(&mut self) {
        if self.place != Place::Registered {
            self.poison(FREED);
        }
    }

    fn poison(&mut self, value: u8) {
        let first = self.at(self.base);
        // SAFETY: the simulator's own mapping of the block, which is this long.
        unsafe { ptr::write_bytes(first, value, self.size as usize) };
    }
}
