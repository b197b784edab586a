//! Memory of one process that another one opens: a handle names a file, which both have mapped.

use std::ffi::CString;
use std::ptr;

use crate::block::{Bytes, Life, NewBlock, Origin, Place};
use crate::call::Call;
use crate::error::{Error, Outcome};

/// `CU_IPC_HANDLE_SIZE`.
pub(crate) const HANDLE: usize = 64;
/// What a handle of this driver begins with.
const MAGIC: u64 = 0x5349_4d49_5043_0001;

/// What a handle says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Named {
    process: u32,
    file: i32,
    size: u64,
    /// The block, as a descriptor may be used again.
    block: u64,
}

impl Named {
    fn to_bytes(self) -> [u8; HANDLE] {
        let words = [MAGIC, u64::from(self.process), self.file as u64, self.size, self.block];
        let mut bytes = [0; HANDLE];
        for (into, word) in bytes.chunks_exact_mut(8).zip(words) {
            into.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn of(bytes: &[u8; HANDLE]) -> Outcome<Named> {
        let word = |at: usize| u64::from_le_bytes(bytes[8 * at..8 * at + 8].try_into().expect("eight bytes"));
        let named = Named { process: word(1) as u32, file: word(2) as i32, size: word(3), block: word(4) };
        if word(0) == MAGIC { Ok(named) } else { Err(Error::INVALID_VALUE) }
    }
}

/// A file in memory, mapped here.
#[derive(Debug)]
pub(crate) struct Shared {
    file: i32,
    pub(crate) address: u64,
    length: usize,
}

impl Shared {
    /// A new file with these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Outcome<Shared> {
        // SAFETY: the name is a C string; the descriptor is this value's.
        let file = unsafe { libc::memfd_create(c"simulated-cuda-ipc".as_ptr(), libc::MFD_CLOEXEC) };
        // SAFETY: a descriptor, or a number that is none, which is refused.
        if unsafe { libc::ftruncate(file, bytes.len() as libc::off_t) } != 0 {
            return Err(Error::OUT_OF_MEMORY);
        }
        let shared = Shared::map(file, bytes.len())?;
        // SAFETY: a new mapping of as many bytes.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), shared.address as *mut u8, bytes.len()) };
        Ok(shared)
    }

    /// The file of another process.
    fn open(named: Named) -> Outcome<Shared> {
        let path = format!("/proc/{}/fd/{}", named.process, named.file);
        let path = CString::new(path).map_err(|_| Error::INVALID_VALUE)?;
        // SAFETY: a C string; the descriptor is this value's.
        let file = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if file < 0 {
            return Err(Error::INVALID_VALUE);
        }
        Shared::map(file, named.size as usize)
    }

    /// The descriptor of the file, in this process.
    pub(crate) fn file(&self) -> i32 {
        self.file
    }

    fn map(file: i32, length: usize) -> Outcome<Shared> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at an address that the system chooses.
        let address = unsafe { libc::mmap(ptr::null_mut(), length, access, libc::MAP_SHARED, file, 0) };
        if address == libc::MAP_FAILED {
            return Err(Error::OUT_OF_MEMORY);
        }
        Ok(Shared { file, address: address as u64, length })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping of this value, to which no pointer is kept.
        unsafe { libc::munmap(self.address as *mut libc::c_void, self.length) };
        // SAFETY: the descriptor of this value.
        unsafe { libc::close(self.file) };
    }
}

impl Call {
    /// A handle for the block that an address is in: memory that `cuMemAlloc` made, and no other.
    pub(crate) fn ipc_handle(&mut self, address: u64) -> Outcome<[u8; HANDLE]> {
        self.context()?;
        let base = self.memory.find_usable(address).map(|block| block.base).ok_or(Error::INVALID_VALUE)?;
        let block = self.memory.get_mut(base).expect("found just now");
        if block.place != Place::Device || block.pool.is_some() || !matches!(block.origin, Origin::Driver) {
            return Err(Error::INVALID_VALUE);
        }
        let file = block.share()?;
        Ok(Named { process: std::process::id(), file, size: block.size, block: block.id }.to_bytes())
    }

    /// Opens the memory of another process in the current context. A handle that is open already leads to the same address.
    pub(crate) fn open_ipc(&mut self, handle: [u8; HANDLE]) -> Outcome<u64> {
        let context = self.context()?;
        let named = Named::of(&handle)?;
        if named.process == std::process::id() {
            return Err(Error::INVALID_CONTEXT);
        }
        let is_open = |block: &&crate::block::Block| {
            block.life == Life::Live && matches!(&block.origin, Origin::Imported { of, .. } if *of == handle)
        };
        let open = self.memory.iter().find(is_open).map(|block| block.base);
        if let Some(base) = open {
            if let Some(Origin::Imported { opened, .. }) = self.memory.get_mut(base).map(|block| &mut block.origin) {
                *opened += 1;
            }
            return Ok(base);
        }
        let shared = Shared::open(named)?;
        let (size, device, life) = (named.size, self.contexts[&context].device, Life::Pending);
        let new = NewBlock { size, place: Place::Device, context, device, pool: None, flags: 0, life };
        let base = self.memory.add(new, None)?;
        let origin = Origin::Imported { of: handle, opened: 1 };
        self.memory.get_mut(base).expect("just added").import(Bytes::Shared(shared), origin);
        Ok(base)
    }

    /// Closes the memory of another process, whose uses must be known to be done.
    pub(crate) fn close_ipc(&mut self, base: u64) -> Outcome {
        self.context()?;
        let block = self.memory.get_mut(base).filter(|block| block.life == Life::Live).ok_or(Error::INVALID_VALUE)?;
        let Origin::Imported { opened, .. } = &mut block.origin else { return Err(Error::INVALID_VALUE) };
        *opened -= 1;
        if *opened == 0 {
            self.log_free(base);
            self.memory.get_mut(base).expect("looked at just now").bury();
        }
        Ok(())
    }
}
