//! Kernels: functions of a test that stand for those in a module, and see memory only through accessors that report what they touch.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::ops::Range;

use crate::block::{Origin, Place};
use crate::clock::Moment;
use crate::error::{Error, Outcome};
use crate::race::{Access, Kind, only};
use crate::state::State;

/// A kernel: it is given its launch, and a pointer to each of its parameters. It returns 0, or the error that loses the context.
///
/// It runs once for the whole grid, with the driver locked: it must not call the driver.
pub type KernelFunction = unsafe extern "C" fn(*mut KernelContext, *const *const c_void) -> u32;

/// One launch of a kernel, as the kernel sees it.
#[repr(C)]
pub struct KernelContext {
    /// Blocks in each dimension.
    pub grid: [u32; 3],
    /// Threads of a block in each dimension.
    pub block: [u32; 3],
    /// Bytes of shared memory that the launch asked for.
    pub shared: u32,
    read: unsafe extern "C" fn(*mut KernelContext, u64, usize) -> *const u8,
    write: unsafe extern "C" fn(*mut KernelContext, u64, usize) -> *mut u8,
    inner: *mut c_void,
}

impl fmt::Debug for KernelContext {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KernelContext { grid, block, shared, .. } = self;
        formatter
            .debug_struct("KernelContext")
            .field("grid", grid)
            .field("block", block)
            .field("shared", shared)
            .finish()
    }
}

impl KernelContext {
    /// The `bytes` bytes at a device address, which the kernel reads. Null where a device would fault; the kernel returns then.
    pub fn read(&mut self, address: u64, bytes: usize) -> *const u8 {
        // SAFETY: the accessor that the driver put there, with the context that it made.
        unsafe { (self.read)(self, address, bytes) }
    }

    /// The `bytes` bytes at a device address, which the kernel writes. Null where a device would fault; the kernel returns then.
    pub fn write(&mut self, address: u64, bytes: usize) -> *mut u8 {
        // SAFETY: the accessor that the driver put there, with the context that it made.
        unsafe { (self.write)(self, address, bytes) }
    }
}

/// A registered kernel.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    pub(crate) function: KernelFunction,
    /// The size of each parameter.
    pub(crate) parameters: Vec<usize>,
}

/// A library of kernels, found on the library path beside the driver: a table of those that are there from the start.
const LIBRARY: &str = "libsimulated_kernels.so";

/// A row of the table `simulated_kernels`, the last of which has no name (tests/simulated-kernels).
#[repr(C)]
#[derive(Clone, Copy)]
struct Row {
    name: *const c_char,
    function: KernelFunction,
    parameters: usize,
    sizes: *const usize,
}

/// The kernels of the library, if there is one. It stays loaded.
pub(crate) fn of_library() -> HashMap<String, Kernel> {
    let mut kernels = HashMap::new();
    // SAFETY: loading it runs nothing but constructors of empty containers.
    let Ok(library) = (unsafe { libloading::Library::new(LIBRARY) }) else { return kernels };
    // SAFETY: the library of this name has the table, of this type.
    let table = unsafe { library.get::<*const Row>(b"simulated_kernels") };
    // A symbol that is no function is the address of what it names.
    let table = table.expect("the library of kernels has a table");
    // SAFETY: the address is kept as long as the library, which stays loaded.
    let mut row: *const Row = unsafe { table.into_raw() }.as_raw_ptr().cast();
    loop {
        // SAFETY: a row of the table, which ends with one that has no name.
        let name = unsafe { (*row).name };
        if name.is_null() {
            break;
        }
        // SAFETY: a row that has a name, so the table goes on.
        let Row { function, parameters, sizes, .. } = unsafe { row.read() };
        // SAFETY: names in the table are C strings.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        // SAFETY: a row says how many sizes it has.
        let parameters = unsafe { std::slice::from_raw_parts(sizes, parameters) }.to_vec();
        kernels.insert(name, Kernel { function, parameters });
        row = row.wrapping_add(1);
    }
    std::mem::forget(library);
    kernels
}

/// A loaded module: the entries that its image names.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) context: usize,
    pub(crate) entries: HashSet<String>,
    pub(crate) is_cubin: bool,
}

/// A function of a module.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) context: usize,
    pub(crate) module: usize,
    pub(crate) name: String,
    pub(crate) kernel: Kernel,
}

/// A queued launch.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) function: KernelFunction,
    /// The parameters as they were at the launch, in words so that any type is aligned.
    pub(crate) parameters: Vec<Vec<u64>>,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
}

/// What the accessors work with.
struct Running<'a> {
    state: &'a mut State,
    context: usize,
    at: &'a Moment,
    fault: Option<Error>,
}

impl Running<'_> {
    fn access(&mut self, address: u64, bytes: usize, kind: Kind) -> Outcome<*mut u8> {
        let first = self.state.memory.bytes(address, bytes as u64)?;
        let is_of_device = self.state.memory.find(address).is_some_and(|block| block.place == Place::Device);
        let touched = &mut self.state.time.touched;
        *(if is_of_device { &mut touched.device } else { &mut touched.host }) += bytes as u64;
        self.state.check_reach(self.context, address..address + bytes as u64)?;
        let (ranges, at) = (only(address..address + bytes as u64), self.at.clone());
        self.state.log(Access { ranges, kind, at, what: "kernel", by_host: false, done: true });
        Ok(first)
    }
}

fn access(context: *mut KernelContext, address: u64, bytes: usize, kind: Kind) -> *mut u8 {
    // SAFETY: the kernel was given this context, which lives until it returns.
    let inner = unsafe { (*context).inner };
    // SAFETY: set in `run_kernel` to a value that lives as long, and is used only here meanwhile.
    let running = unsafe { &mut *inner.cast::<Running<'_>>() };
    match running.access(address, bytes, kind) {
        Ok(first) => first,
        Err(error) => {
            running.fault.get_or_insert(error);
            std::ptr::null_mut()
        }
    }
}

unsafe extern "C" fn read(context: *mut KernelContext, address: u64, bytes: usize) -> *const u8 {
    access(context, address, bytes, Kind::Read)
}

unsafe extern "C" fn write(context: *mut KernelContext, address: u64, bytes: usize) -> *mut u8 {
    access(context, address, bytes, Kind::Write)
}

impl State {
    /// Whether a kernel of a context may use the block at an address, which may be another device's.
    fn check_reach(&self, context: usize, range: Range<u64>) -> Outcome {
        let block = self.memory.find(range.start).ok_or(Error::ILLEGAL_ADDRESS)?;
        let kernel = &self.contexts[&context];
        if let Origin::Reserved(_) = block.origin {
            return if block.is_mapped(&range, Some(kernel.device)) { Ok(()) } else { Err(Error::ILLEGAL_ADDRESS) };
        }
        let reached = match block.pool.and_then(|pool| self.pools.get(&pool)) {
            Some(pool) => pool.is_accessible_from(kernel.device),
            None => block.device == kernel.device || kernel.peers.contains(&block.context),
        };
        if reached || block.place != Place::Device { Ok(()) } else { Err(Error::ILLEGAL_ADDRESS) }
    }

    /// Runs a kernel.
    pub(crate) fn run_kernel(&mut self, stream: usize, at: &Moment, launch: &Launch) -> Outcome {
        let parameters: Vec<*const c_void> = launch.parameters.iter().map(|words| words.as_ptr().cast()).collect();
        let context = self.streams[stream].context;
        let mut running = Running { state: self, context, at, fault: None };
        let Launch { function, grid, block, shared, .. } = *launch;
        let mut context = KernelContext { grid, block, shared, read, write, inner: (&raw mut running).cast() };
        // SAFETY: registered as such a function; both arguments live until it returns.
        let code = unsafe { function(&raw mut context, parameters.as_ptr()) };
        match (running.fault, code) {
            (Some(fault), _) => Err(fault),
            (None, 0) => Ok(()),
            (None, code) => Err(Error(code)),
        }
    }
}

/// The bytes of an image, which its format tells, and whether it is a cubin: an ELF file as long as its headers say, or text
/// that ends with a zero.
///
/// # Safety
///
/// `image` leads to such a file or text.
pub(crate) unsafe fn image<'a>(image: *const u8) -> &'a [u8] {
    // SAFETY: an image has at least these bytes, or ends with a zero before.
    if !ELF.iter().enumerate().all(|(at, byte)| unsafe { image.wrapping_add(at).read() } == *byte) {
        // SAFETY: text ends with a zero.
        return unsafe { CStr::from_ptr(image.cast()) }.to_bytes();
    }
    // SAFETY: an ELF file begins with a header of so many bytes.
    let header = unsafe { std::slice::from_raw_parts(image, HEADER) };
    let end = |table: usize, size: usize| word(header, table) as usize + half(header, size) * half(header, size + 2);
    // SAFETY: the tables of a file are within it, and one of them is its end.
    unsafe { std::slice::from_raw_parts(image, end(40, 58).max(end(32, 54))) }
}

const ELF: &[u8] = b"\x7fELF";
const HEADER: usize = 64;
/// `EM_CUDA`.
const CUDA: usize = 190;
/// `SHT_SYMTAB`.
const SYMBOLS: u64 = 2;
/// `STT_FUNC`, and in `st_other` what marks a kernel.
const FUNCTION: u8 = 2;
const KERNEL: u8 = 0x10;

fn half(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..at + 2).map_or(0, |two| usize::from(u16::from_le_bytes([two[0], two[1]])))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |eight| u64::from_le_bytes(eight.try_into().expect("eight bytes")))
}

fn quarter(bytes: &[u8], at: usize) -> u64 {
    word(bytes, at) & 0xffff_ffff
}

/// The kernels of a cubin, for a device of this compute capability.
fn cubin_entries(cubin: &[u8], (major, minor): (u32, u32)) -> Outcome<HashSet<String>> {
    if half(cubin, 18) != CUDA {
        return Err(Error::INVALID_IMAGE);
    }
    let flags = quarter(cubin, 48);
    // From ABI 8 on the lowest byte has another meaning.
    let made_for = (if cubin[8] >= 8 { flags >> 8 } else { flags } & 0xff) as u32;
    if made_for / 10 != major || made_for % 10 > minor {
        return Err(Error::NO_BINARY_FOR_GPU);
    }
    let (table, size, count) = (word(cubin, 40) as usize, half(cubin, 58), half(cubin, 60));
    let section = |index: usize| cubin.get(table + index * size..table + (index + 1) * size);
    let contents = |header: &[u8]| {
        let start = word(header, 24) as usize;
        cubin.get(start..start + word(header, 32) as usize)
    };
    let symbols = (0..count).filter_map(section).find(|header| quarter(header, 4) == SYMBOLS);
    let symbols = symbols.ok_or(Error::INVALID_IMAGE)?;
    let names = section(quarter(symbols, 40) as usize).and_then(contents).ok_or(Error::INVALID_IMAGE)?;
    let symbols = contents(symbols).ok_or(Error::INVALID_IMAGE)?;
    let is_kernel = |symbol: &&[u8]| symbol[4] & 0xf == FUNCTION && symbol[5] & KERNEL != 0;
    let name = |symbol: &[u8]| {
        let name = names.get(quarter(symbol, 0) as usize..)?.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(name).into_owned())
    };
    Ok(symbols.chunks_exact(24).filter(is_kernel).filter_map(name).collect())
}

/// The entries of an image for a device of this compute capability, and whether it is a cubin.
pub(crate) fn entries_of(image: &[u8], capability: (u32, u32)) -> Outcome<(HashSet<String>, bool)> {
    if image.starts_with(ELF) {
        return Ok((cubin_entries(image, capability)?, true));
    }
    Ok((entries(&String::from_utf8_lossy(image))?, false))
}

/// The entries of a module's text, if it is PTX at all.
fn entries(text: &str) -> Outcome<HashSet<String>> {
    if !text.contains(".version") || !text.contains(".target") {
        return Err(Error::INVALID_IMAGE);
    }
    let name = |rest: &str| {
        rest.trim_start().split(|end: char| !(end.is_alphanumeric() || "_$".contains(end))).next().map(String::from)
    };
    Ok(text.split(".entry").skip(1).filter_map(name).filter(|name| !name.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_in_ptx_and_nothing_else() {
        let text = ".version 8.0\n.target sm_70\n.visible .entry add_one(\n.param .u64 a)\n{}\n.entry  pack$2 (";
        let found = entries(text).unwrap();
        assert_eq!(found, HashSet::from(["add_one".to_owned(), "pack$2".to_owned()]));
        assert_eq!(entries("\u{7f}ELF").unwrap_err(), Error::INVALID_IMAGE);
    }
}
