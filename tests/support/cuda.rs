//! The CUDA driver as producers and consumers of the tests use it by themselves, the simulated one or a real one.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use libloading::Library;

type Status = u32;

fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        // SAFETY: the driver's library may be loaded at any time.
        unsafe { Library::new("libcuda.so.1") }.expect("no driver; run `make test-cuda`")
    })
}

/// Calls a function of the driver, given its arguments' types by how they are passed.
macro_rules! code {
    ($name:literal, $($argument:expr => $type:ty),* $(,)?) => {{
        // SAFETY: the driver gives this function these arguments.
        let function = unsafe { library().get::<unsafe extern "C" fn($($type),*) -> Status>(concat!($name, "\0").as_bytes()) };
        let function = function.expect($name);
        // SAFETY: the tests pass what the driver's documentation asks for.
        unsafe { function($($argument),*) }
    }};
}

/// Calls a function of the driver, which succeeds.
macro_rules! call {
    ($name:literal, $($argument:expr => $type:ty),* $(,)?) => { assert_eq!(code!($name, $($argument => $type),*), 0, $name) };
}

/// Whether this is the simulated driver, which knows races and gates.
pub(crate) fn is_simulated() -> bool {
    // SAFETY: only looked for.
    unsafe { library().get::<unsafe extern "C" fn() -> u32>(b"simulated_cuda_version\0") }.is_ok()
}

/// A question that only the simulated driver answers.
fn ask(name: &str, argument: u64) -> u64 {
    // SAFETY: each takes one number, or none and ignores it, and returns one.
    let function = unsafe { library().get::<unsafe extern "C" fn(u64) -> u64>(name.as_bytes()) };
    // SAFETY: a function of the simulated driver that takes one number, or none and ignores it.
    unsafe { function.expect("the simulated driver")(argument) }
}

/// Fails where the simulated driver saw accesses without order.
pub(crate) fn expect_no_races() {
    if is_simulated() {
        assert_eq!(ask("simulated_cuda_races", 0), 0, "accesses without order");
    }
}

/// How often the host has waited, in calls that say so and in calls that do not; 0 where nobody counts. Not for the kernels,
/// which are loaded once on each device, when it is first used, and not on the reaper thread, which nobody waits for, and
/// which alone synchronises with events.
pub(crate) fn host_waits() -> u64 {
    if !is_simulated() {
        return 0;
    }
    loop {
        let of_reaper = calls(c"cuEventSynchronize");
        let waits = ask("simulated_cuda_host_waits", 0) - calls(c"cuModuleLoadData");
        // The thread may have called meanwhile.
        if of_reaper == calls(c"cuEventSynchronize") {
            return waits - of_reaper;
        }
    }
}

/// How often all threads have called a function of the simulated driver; `*` stands for all functions.
pub(crate) fn calls(function: &CStr) -> u64 {
    ask("simulated_cuda_calls", function.as_ptr().addr() as u64)
}

/// The primary context of a device, current in this thread.
pub(crate) fn use_device(ordinal: i32) {
    call!("cuInit", 0 => u32);
    let (mut device, mut context): (i32, *mut c_void) = (0, null_mut());
    call!("cuDeviceGet", &raw mut device => *mut i32, ordinal => i32);
    call!("cuDevicePrimaryCtxRetain", &raw mut context => *mut *mut c_void, device => i32);
    call!("cuCtxSetCurrent", context => *mut c_void);
}

/// A stream of the current context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream(pub(crate) *mut c_void);

impl Stream {
    /// The legacy default stream.
    pub(crate) const LEGACY: Self = Self(std::ptr::without_provenance_mut(1));

    /// One that waits for the legacy default stream, or one that does not.
    pub(crate) fn new(blocking: bool) -> Self {
        let mut stream = null_mut();
        call!("cuStreamCreate", &raw mut stream => *mut *mut c_void, u32::from(!blocking) => u32);
        Self(stream)
    }

    pub(crate) fn number(self) -> usize {
        self.0.addr()
    }

    pub(crate) fn named(self) -> arrow_dlpack::cuda::Stream {
        // SAFETY: the streams of a test live as long as its process.
        unsafe { arrow_dlpack::cuda::Stream::new(self.number()) }.unwrap()
    }

    pub(crate) fn synchronize(self) {
        call!("cuStreamSynchronize", self.0 => *mut c_void);
    }

    /// Whether work of the stream is not done.
    pub(crate) fn is_busy(self) -> bool {
        const NOT_READY: u32 = 600;
        code!("cuStreamQuery", self.0 => *mut c_void) == NOT_READY
    }

    /// Has the stream wait for the event that `sync_event` points to.
    pub(crate) fn wait(self, sync_event: *mut c_void) {
        // SAFETY: points to a handle, as the C device interface says.
        let event = unsafe { sync_event.cast::<*mut c_void>().read() };
        call!("cuStreamWaitEvent", self.0 => *mut c_void, event => *mut c_void, 0 => u32);
    }
}

/// An event that was recorded on a stream.
pub(crate) fn record(stream: Stream) -> *mut c_void {
    let mut event = null_mut();
    call!("cuEventCreate", &raw mut event => *mut *mut c_void, 2 => u32);
    call!("cuEventRecord", event => *mut c_void, stream.0 => *mut c_void);
    event
}

pub(crate) fn destroy(event: *mut c_void) {
    call!("cuEventDestroy_v2", event => *mut c_void);
}

pub(crate) fn allocate(bytes: usize) -> u64 {
    let mut start = 0;
    call!("cuMemAlloc_v2", &raw mut start => *mut u64, bytes => usize);
    start
}

/// Memory with these bytes.
pub(crate) fn upload(bytes: &[u8]) -> u64 {
    let start = allocate(bytes.len());
    call!("cuMemcpyHtoD_v2", start => u64, bytes.as_ptr().cast() => *const c_void, bytes.len() => usize);
    start
}

pub(crate) fn free(start: u64) {
    call!("cuMemFree_v2", start => u64);
}

/// Sets bytes, in the order of a stream.
pub(crate) fn fill(start: u64, value: u8, bytes: usize, stream: Stream) {
    call!("cuMemsetD8Async", start => u64, value => u8, bytes => usize, stream.0 => *mut c_void);
}

/// Copies, in the order of a stream.
pub(crate) fn copy(target: u64, source: u64, bytes: usize, stream: Stream) {
    call!("cuMemcpyDtoDAsync_v2", target => u64, source => u64, bytes => usize, stream.0 => *mut c_void);
}

/// Calls `work` with a context current that is not the primary one, and stays.
pub(crate) fn in_another_context<T>(work: impl FnOnce() -> T) -> T {
    let mut context: *mut c_void = null_mut();
    call!("cuCtxCreate_v2", &raw mut context => *mut *mut c_void, 0 => u32, 0 => i32);
    let made = work();
    call!("cuCtxPopCurrent_v2", &raw mut context => *mut *mut c_void);
    made
}

/// The context that is current in this thread.
pub(crate) fn current_context() -> *mut c_void {
    let mut context: *mut c_void = null_mut();
    call!("cuCtxGetCurrent", &raw mut context => *mut *mut c_void);
    context
}

/// What a stream finds in memory when it gets there.
pub(crate) fn read(start: u64, bytes: usize, stream: Stream) -> Vec<u8> {
    let mut pinned = null_mut();
    call!("cuMemHostAlloc", &raw mut pinned => *mut *mut c_void, bytes => usize, 0 => u32);
    call!("cuMemcpyDtoHAsync_v2", pinned => *mut c_void, start => u64, bytes => usize, stream.0 => *mut c_void);
    stream.synchronize();
    // SAFETY: just written, and the stream is done.
    let found = unsafe { std::slice::from_raw_parts(pinned.cast::<u8>(), bytes) }.to_vec();
    call!("cuMemFreeHost", pinned => *mut c_void);
    found
}

/// Keeps a stream from getting further: by a gate of the simulated driver, or by work that takes a while.
#[derive(Debug)]
pub(crate) struct Busy(Option<u64>);

impl Busy {
    pub(crate) fn new(stream: Stream) -> Self {
        if is_simulated() {
            return Self(Some(ask("simulated_cuda_gate", stream.number() as u64)));
        }
        // About 0.1 s of writes on current devices.
        const BYTES: usize = 1 << 30;
        let block = allocate(BYTES);
        for value in 0..200 {
            fill(block, value, BYTES, stream);
        }
        Self(None)
    }

    pub(crate) fn end(self) {
        if let Some(gate) = self.0 {
            ask("simulated_cuda_open_gate", gate);
        }
    }
}
