//! Host memory that the simulator watches: pages that it closes to the host while a stream may be using them.

use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;

use crate::error::{Error, Outcome};
use crate::settings::page_bytes;

/// The unit of protection in bytes: a page of the system, or more of them together if the environment asks for larger ones.
pub(crate) fn page() -> u64 {
    static PAGE: OnceLock<u64> = OnceLock::new();
    *PAGE.get_or_init(|| {
        // SAFETY: reads a number of the system, and has no conditions.
        let system = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let system = u64::try_from(system).expect("the system knows its pages");
        page_bytes(system)
    })
}

/// What the host may do with a page without being asked. In order of strictness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Protection {
    Open,
    /// A stream may still read it: a write by the host is looked at.
    ReadOnly,
    /// A stream may still write it: any access by the host is looked at.
    Closed,
}

impl Protection {
    fn flags(self) -> i32 {
        match self {
            Protection::Open => libc::PROT_READ | libc::PROT_WRITE,
            Protection::ReadOnly => libc::PROT_READ,
            Protection::Closed => libc::PROT_NONE,
        }
    }
}

/// A range of host memory whose pages are watched.
#[derive(Debug)]
pub(crate) struct Pages {
    /// The first watched page, as the host sees it.
    visible: u64,
    /// The same bytes, never closed: the simulator's own way to them. Absent for memory that somebody else mapped.
    alias: Option<u64>,
    protection: Vec<Protection>,
}

impl Pages {
    /// Maps fresh memory twice: once for the host, once for the simulator.
    pub(crate) fn map(bytes: u64) -> Outcome<Pages> {
        let count = bytes.div_ceil(page());
        let length = (count * page()) as usize;
        // SAFETY: the name is a C string, and the descriptor is closed below.
        let file = unsafe { libc::memfd_create(c"simulated-cuda".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(Error::OUT_OF_MEMORY);
        }
        // SAFETY: an open descriptor.
        let sized = unsafe { libc::ftruncate(file, length as libc::off_t) } == 0;
        let map = || {
            let (flags, access) = (libc::MAP_SHARED, libc::PROT_READ | libc::PROT_WRITE);
            // SAFETY: a new mapping, at an address that the system chooses.
            let address = unsafe { libc::mmap(ptr::null_mut(), length, access, flags, file, 0) };
            (address != libc::MAP_FAILED).then_some(address as u64)
        };
        let (visible, alias) = if sized { (map(), map()) } else { (None, None) };
        // SAFETY: opened above, and closed once; the mappings outlive it.
        unsafe { libc::close(file) };
        match (visible, alias) {
            (Some(visible), Some(alias)) => {
                Ok(Pages { visible, alias: Some(alias), protection: vec![Protection::Open; count as usize] })
            }
            _ => Err(Error::OUT_OF_MEMORY),
        }
    }

    /// Watches the whole pages within memory that somebody else mapped. A page that others share at either end is left alone.
    pub(crate) fn within(address: u64, bytes: u64) -> Pages {
        let first = address.next_multiple_of(page());
        let count = ((address + bytes) / page()).saturating_sub(first / page());
        Pages { visible: first, alias: None, protection: vec![Protection::Open; count as usize] }
    }

    /// The first byte that the host sees, and the way of the simulator to the same byte.
    pub(crate) fn addresses(&self) -> (u64, u64) {
        (self.visible, self.alias.unwrap_or(self.visible))
    }

    /// Every watched byte, as the host sees it.
    pub(crate) fn range(&self) -> Range<u64> {
        self.visible..self.visible + self.protection.len() as u64 * page()
    }

    /// Whether the simulator reaches the bytes however closed they are to the host.
    pub(crate) fn has_alias(&self) -> bool {
        self.alias.is_some()
    }

    /// Closes and opens pages so that those in `wanted` are as strict as it says, and all others open.
    pub(crate) fn protect(&mut self, wanted: impl Iterator<Item = (Range<u64>, Protection)>) {
        let mut next = vec![Protection::Open; self.protection.len()];
        for (range, protection) in wanted {
            for page in self.covered(&range) {
                next[page] = next[page].max(protection);
            }
        }
        let mut first = 0;
        while first < next.len() {
            let same = |page: &usize| next[*page] == next[first] && self.protection[*page] == self.protection[first];
            let end = (first..next.len()).take_while(same).last().map_or(first + 1, |page| page + 1);
            if next[first] != self.protection[first] {
                self.set(first..end, next[first]);
            }
            first = end;
        }
    }

    /// Opens every page that holds a byte of `range`.
    pub(crate) fn open(&mut self, range: &Range<u64>) {
        let pages = self.covered(range);
        self.set(pages, Protection::Open);
    }

    /// The numbers of the pages that hold a byte of `range`.
    fn covered(&self, range: &Range<u64>) -> Range<usize> {
        let whole = self.range();
        let (start, end) = (range.start.max(whole.start), range.end.min(whole.end));
        if start >= end {
            return 0..0;
        }
        ((start - whole.start) / page()) as usize..((end - whole.start).div_ceil(page())) as usize
    }

    fn set(&mut self, pages: Range<usize>, protection: Protection) {
        if pages.is_empty() {
            return;
        }
        let address = self.visible + pages.start as u64 * page();
        let length = pages.len() * page() as usize;
        // SAFETY: whole pages of a mapping that this value owns, or that its caller registered and keeps mapped.
        let failed = unsafe { libc::mprotect(address as *mut libc::c_void, length, protection.flags()) };
        assert!(failed == 0 || self.alias.is_none(), "the pages of a mapping of ours can be protected");
        self.protection[pages].fill(protection);
    }
}

impl Drop for Pages {
    /// Opens what somebody else mapped. What was mapped here stays as an address that nothing may touch and nobody gets again.
    fn drop(&mut self) {
        let range = self.range();
        let length = (range.end - range.start) as usize;
        let Some(alias) = self.alias else { return self.open(&range) };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: replaces the mapping that this value made; its bytes belong to nobody any more.
        unsafe { libc::mmap(self.visible as *mut libc::c_void, length, libc::PROT_NONE, flags, -1, 0) };
        // SAFETY: the other mapping of the same value, to which no pointer is kept.
        unsafe { libc::munmap(alias as *mut libc::c_void, length) };
    }
}
