//! An allocator whose large allocations fail when they are told to, on whichever thread, and the mapping of pages with it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
#[cfg(all(target_os = "linux", not(miri)))]
use std::ffi::{c_int, c_long, c_void};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicIsize, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use arrow_array::types::Int32Type;
use arrow_array::{Array, ListArray};
use arrow_dlpack::{Conversion, ErrorKind, Pad, Result, Scalar, Tensor};

use crate::support::arrow::{field, shared};
use crate::support::reference::read;

/// Smaller allocations are of types, names and structs, which no data sizes: they do not fail.
pub(crate) const LARGE: usize = if cfg!(miri) { 256 } else { 4096 };

/// Held by the test that runs: allocations of any thread count as those of its work.
static ALONE: Mutex<()> = Mutex::new(());
/// The least bytes of an allocation that counts.
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);
/// How many of them succeed before one fails.
static LEFT: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Whether those after it fail too.
static FOR_GOOD: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The thread of the test that runs, as the system numbers it.
static TESTER: AtomicI32 = AtomicI32::new(0);
/// Bytes of allocations, of any size, that are not freed.
static IN_USE: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    /// Whether this thread's test is over: the harness then allocates on it while another test runs.
    static IS_OVER: Cell<bool> = const { Cell::new(false) };
}

/// The bytes of each element in the order of its indices.
fn bytes(tensor: &Tensor) -> Vec<u8> {
    tensor.as_bytes().map_or_else(|_| read(tensor).concat(), <[u8]>::to_vec)
}

/// The number of this thread, which is the process's for the first one.
fn thread() -> i32 {
    #[cfg(target_os = "linux")]
    // SAFETY: a call without arguments.
    return unsafe { libc::gettid() };
    #[cfg(not(target_os = "linux"))]
    return -1;
}

/// Whether the harness runs on this thread, and not a test: on one whose test is over, and on the first one of the process.
fn is_of_harness() -> bool {
    IS_OVER.get() || (thread() == std::process::id().cast_signed() && thread() != TESTER.load(SeqCst))
}

struct Failing;

fn fails(size: usize) -> bool {
    if size < LIMIT.load(SeqCst) || is_of_harness() {
        return false;
    }
    let (number, left) = (COUNT.fetch_add(1, SeqCst), LEFT.load(SeqCst));
    number == left || (number > left && FOR_GOOD.load(SeqCst))
}

/// Counts a block of `to` bytes in place of one of `from`, if there is one.
fn counted(start: *mut u8, from: usize, to: usize) -> *mut u8 {
    if !start.is_null() && !is_of_harness() {
        IN_USE.fetch_add(to as isize - from as isize, SeqCst);
    }
    start
}

// SAFETY: memory is that of the system's allocator, to which each call is handed as it is; a failure is NULL, as the trait has it.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if fails(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the layout is the caller's, of which the trait asks what the system's allocator asks.
        let start = unsafe { System.alloc(layout) };
        counted(start, 0, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if fails(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the layout is the caller's, of which the trait asks what the system's allocator asks.
        let start = unsafe { System.alloc_zeroed(layout) };
        counted(start, 0, layout.size())
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if fails(size) {
            return std::ptr::null_mut();
        }
        // SAFETY: the block is of the system's allocator, with this layout, as the caller promises.
        let start = unsafe { System.realloc(start, layout, size) };
        counted(start, layout.size(), size)
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        counted(start, layout.size(), 0);
        // SAFETY: the block is of the system's allocator, with this layout, as the caller promises.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Failing = Failing;

/// Maps pages in place of the C library's function, for code in this program alone: the C library does not call this one. Under Miri
/// nothing is mapped.
#[cfg(all(target_os = "linux", not(miri)))]
#[unsafe(no_mangle)]
extern "C" fn mmap(start: *mut c_void, size: usize, access: c_int, kind: c_int, file: c_int, from: i64) -> *mut c_void {
    if kind & libc::MAP_ANONYMOUS != 0 && fails(size) {
        return libc::MAP_FAILED;
    }
    // SAFETY: the system's call, with the arguments of the function that this one stands for.
    let mapped = unsafe { libc::syscall(libc::SYS_mmap, start, size, access, kind, file, from) };
    std::ptr::with_exposed_provenance_mut(mapped.cast_unsigned() as usize)
}

/// Moves pages as [`mmap`] maps them. The C library's function takes the new place only with the flag for it.
#[cfg(all(target_os = "linux", not(miri)))]
#[unsafe(no_mangle)]
extern "C" fn mremap(start: *mut c_void, old: usize, new: usize, flags: c_int, place: *mut c_void) -> *mut c_void {
    if fails(new) {
        return libc::MAP_FAILED;
    }
    // SAFETY: the system's call, with the arguments of the function that this one stands for.
    let moved: c_long = unsafe { libc::syscall(libc::SYS_mremap, start, old, new, c_long::from(flags), place) };
    std::ptr::with_exposed_provenance_mut(moved.cast_unsigned() as usize)
}

/// Frees the block that the library keeps for its next result: an allocation that fails takes it back first.
fn empty_cache() {
    let row = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([Some(1)])]);
    let rows = shared(&row, &field("x", row.data_type().clone()));
    // Miri ends where memory does, so that the library asks it for no such block: there a smaller one fails.
    let length = if cfg!(miri) { 1 << 22 } else { 1 << 50 };
    if cfg!(miri) {
        LEFT.store(0, SeqCst);
        FOR_GOOD.store(true, SeqCst);
        COUNT.store(0, SeqCst);
        LIMIT.store(length, SeqCst);
    }
    let refused = Conversion::default().padded(&rows, Pad::new(Scalar::Int(0)).length(length));
    LIMIT.store(usize::MAX, SeqCst);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Memory);
}

/// The right to fail allocations, which one test at a time has.
pub(crate) struct Alone {
    _guard: MutexGuard<'static, ()>,
    /// The least bytes of an allocation that fails.
    pub(crate) limit: usize,
}

/// Waits for the tests before this one.
pub(crate) fn alone() -> Alone {
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    IS_OVER.set(false);
    TESTER.store(thread(), SeqCst);
    Alone { _guard: guard, limit: LARGE }
}

impl Drop for Alone {
    fn drop(&mut self) {
        // Also after a panic within the work.
        LIMIT.store(usize::MAX, SeqCst);
        IS_OVER.set(true);
    }
}

impl Alone {
    /// Runs a piece of work in which large allocations of any thread fail after this many. Returns how many it asked for.
    fn within<T>(&self, left: Option<usize>, for_good: bool, work: impl FnOnce() -> T) -> (T, usize) {
        empty_cache();
        LEFT.store(left.unwrap_or(usize::MAX), SeqCst);
        FOR_GOOD.store(for_good, SeqCst);
        COUNT.store(0, SeqCst);
        LIMIT.store(self.limit, SeqCst);
        let made = work();
        LIMIT.store(usize::MAX, SeqCst);
        (made, COUNT.load(SeqCst))
    }

    /// Fails each large allocation of a piece of work that returns tensors.
    pub(crate) fn each_fails(&self, name: &str, work: impl Fn() -> Result<Vec<Tensor>>) {
        self.each_fails_of(name, work, |made| made.iter().map(bytes).collect::<Vec<_>>());
    }

    /// Fails each large allocation of a piece of work, alone and with all after it. Asserts an error of memory or the usual result each
    /// time, the usual result afterwards, and that nothing leaks.
    pub(crate) fn each_fails_of<T, C: PartialEq + Debug>(
        &self,
        name: &str,
        work: impl Fn() -> Result<T>,
        contents: impl Fn(T) -> C,
    ) {
        let (expected, count) = self.within(None, false, &work);
        let expected = contents(expected.unwrap_or_else(|error| panic!("{name}: {error}")));
        assert!(count > 0, "{name} allocates nothing large");
        // What is made once, and stays, is made by now.
        assert!(contents(work().unwrap()) == expected, "{name}");
        empty_cache();
        let (mut refused, in_use) = (0, IN_USE.load(SeqCst));
        for for_good in [false, true] {
            // Miri fails two or three in each way, the first one with all after it.
            let (first, step) = if cfg!(miri) { (usize::from(!for_good), count.div_ceil(3).max(2)) } else { (0, 1) };
            for left in (first..count).step_by(step) {
                match self.within(Some(left), for_good, &work).0 {
                    Ok(made) => assert!(contents(made) == expected, "{name}, allocation {left}"),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Memory, "{name}, allocation {left}: {error}");
                        refused += 1;
                    }
                }
            }
        }
        assert!(refused > 0, "{name}: no allocation of {count} matters");
        assert!(contents(work().unwrap()) == expected, "{name}");
        empty_cache();
        let grown = IN_USE.load(SeqCst) - in_use;
        assert!(grown < 1024, "{name}: {grown} bytes leak");
    }
}
