//! The functions of the CUDA driver that this crate calls, resolved once.
//!
//! Each returns the driver's code as a number: cudarc's own calls panic if a symbol is missing, and its closed enum of
//! codes cannot hold the new codes of a newer driver.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

#[cfg(unix)]
use crate::callback;
use crate::error::{Error, ErrorKind, Remedy, Result};

/// An opaque handle of the driver.
macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident),+) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct $name(*mut c_void);

        impl $name {
            pub(crate) const NULL: Self = Self(std::ptr::null_mut());
        }

        // SAFETY: a name for an object of the driver, whose functions may be called from any thread.
        unsafe impl Send for $name {}
        // SAFETY: a shared reference only gives the name.
        unsafe impl Sync for $name {}
    )+};
}

handles!(
    /// `CUcontext`.
    ContextHandle,
    /// `CUstream`, including the numbers 1 (legacy default) and 2 (per-thread default).
    StreamHandle,
    /// `CUevent`.
    EventHandle,
    /// `CUmemoryPool`.
    PoolHandle,
    /// `CUmodule`.
    ModuleHandle,
    /// `CUfunction`.
    FunctionHandle
);

impl ContextHandle {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl EventHandle {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    pub(super) fn address(self) -> usize {
        self.0.addr()
    }
}

impl ContextHandle {
    #[cfg(feature = "cuda")]
    pub(super) fn address(self) -> usize {
        self.0.addr()
    }
}

impl StreamHandle {
    pub(crate) fn from_address(address: usize) -> Self {
        Self(std::ptr::without_provenance_mut(address))
    }

    pub(crate) fn address(self) -> usize {
        self.0.addr()
    }

    /// `CU_STREAM_LEGACY`.
    pub(crate) const LEGACY: Self = Self(std::ptr::without_provenance_mut(1));
    /// `CU_STREAM_PER_THREAD`.
    pub(crate) const PER_THREAD: Self = Self(std::ptr::without_provenance_mut(2));
}

/// `CUdeviceptr`: a device address.
pub(crate) type DevicePointer = u64;

/// The code of a failed driver call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) call: &'static str,
    pub(crate) code: u32,
}

impl Status {
    pub(crate) const OUT_OF_MEMORY: u32 = 2;
    pub(crate) const NOT_READY: u32 = 600;
    pub(crate) const NO_DEVICE: u32 = 100;
    pub(crate) const INVALID_DEVICE: u32 = 101;
    pub(crate) const INVALID_CONTEXT: u32 = 201;
    pub(crate) const NOT_SUPPORTED: u32 = 801;
    pub(crate) const UNKNOWN: u32 = 999;
    /// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT`.
    pub(crate) const CAPTURE_IMPLICIT: u32 = 906;

    pub(crate) fn is_out_of_memory(self) -> bool {
        self.code == Self::OUT_OF_MEMORY
    }

    /// Returns whether the call needs a current context, and there is none.
    pub(crate) fn needs_context(self) -> bool {
        self.code == Self::INVALID_CONTEXT
    }

    /// Returns whether the call certainly had no effect, so that it may be made again. Most calls may also return the error of an
    /// earlier asynchronous launch, and have taken effect then.
    pub(crate) fn refused_the_call(self) -> bool {
        // No context, not initialised, deinitialised.
        matches!(self.code, Self::INVALID_CONTEXT | 3 | 4)
    }

    /// Returns whether the context is lost, or the driver is shutting down: every later call fails too.
    pub(crate) fn is_final(self) -> bool {
        // Not initialised, deinitialised, context destroyed.
        self.is_sticky() || matches!(self.code, 3 | 4 | 709)
    }

    /// Returns whether the stream of the call was destroyed, or its context.
    pub(crate) fn is_of_no_stream(self) -> bool {
        matches!(self.code, 400 | 709)
    }

    /// Returns whether the event of the call is of a capture that has ended, or was broken.
    pub(crate) fn is_of_capture(self) -> bool {
        matches!(self.code, 901 | 907)
    }

    /// Returns whether the context is lost: every later call fails too.
    fn is_sticky(self) -> bool {
        // ECC, NVLink, contained by the device; illegal address, launch timeout, assert, hardware stack, illegal instruction,
        // misaligned address, invalid address space, invalid pc, launch failure, leaked tensor memory; an MPS client that was
        // terminated; a device outside CUDA.
        matches!(self.code, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719 | 721 | 810 | 911)
    }
}

/// The result of a driver call.
pub(crate) type Called<T = ()> = std::result::Result<T, Status>;

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        let text = DRIVER.get().map_or_else(String::new, |driver| driver.describe(status.code));
        let reason = format!("{} failed with code {}{text}", status.call, status.code);
        match status.code {
            Status::OUT_OF_MEMORY => Self::new(ErrorKind::Memory, reason),
            _ if status.is_sticky() => Self::new(ErrorKind::Device, reason)
                .remedy_is("the CUDA context is lost, with all that is in its memory: start a new process"),
            _ => Self::new(ErrorKind::Device, reason),
        }
    }
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal($($argument:ident: $type:ty),*);)+) => {
        /// The driver's functions, under their names in its documentation.
        #[derive(Debug)]
        pub(crate) struct Driver {
            $($name: unsafe extern "C" fn($($type),*) -> u32,)+
            get_error_name: unsafe extern "C" fn(u32, *mut *const c_char) -> u32,
            get_error_string: unsafe extern "C" fn(u32, *mut *const c_char) -> u32,
            /// Only in the simulated driver: see `thread_sync`.
            pub(super) hand_over_send: Option<unsafe extern "C" fn(u64)>,
            pub(super) hand_over_receive: Option<unsafe extern "C" fn(u64)>,
            /// Only in the simulated driver: see `virtual_time`.
            pub(super) sleep: Option<unsafe extern "C" fn(u64) -> c_int>,
            pub(super) host_copied: Option<unsafe extern "C" fn(u64)>,
        }

        /// The names of all functions in the library.
        #[cfg(feature = "python")]
        pub(crate) const FUNCTIONS: &[&str] = &[$($symbol,)+ "cuGetErrorName", "cuGetErrorString"];

        impl Driver {
            /// # Errors
            /// Names the function that the library lacks.
            #[cfg(feature = "cuda")]
            fn resolve() -> Result<Self> {
                Ok(Self {
                    // SAFETY: the driver's documentation gives this function these arguments, at every version from 12.0.
                    $($name: unsafe { symbol(concat!($symbol, "\0")) }?,)+
                    // SAFETY: the driver's documentation gives this function these arguments, at every version from
                    // 12.0.
                    get_error_name: unsafe { symbol("cuGetErrorName\0") }?,
                    // SAFETY: the driver's documentation gives this function these arguments, at every version from
                    // 12.0.
                    get_error_string: unsafe { symbol("cuGetErrorString\0") }?,
                    // SAFETY: only the simulated driver has this name, for a function of this type.
                    hand_over_send: unsafe { symbol("simulated_cuda_hand_over_send\0") }.ok(),
                    // SAFETY: only the simulated driver has this name, for a function of this type.
                    hand_over_receive: unsafe { symbol("simulated_cuda_hand_over_receive\0") }.ok(),
                    // SAFETY: only the simulated driver has this name, for a function of this type.
                    sleep: unsafe { symbol("simulated_cuda_sleep\0") }.ok(),
                    // SAFETY: only the simulated driver has this name, for a function of this type.
                    host_copied: unsafe { symbol("simulated_cuda_host_copied\0") }.ok(),
                })
            }

            $(
                $(#[$doc])*
                ///
                /// # Safety
                /// Pointers and handles are what the driver's documentation asks of this function's.
                #[allow(clippy::too_many_arguments, reason = "the driver's own")]
                pub(crate) unsafe fn $name(&self, $($argument: $type),*) -> Called {
                    // SAFETY: pointers and handles are as the driver's documentation asks, as promised; `resolve` gave
                    // the function its documented type.
                    let code = unsafe { (self.$name)($($argument),*) };
                    if code == 0 { Ok(()) } else { Err(Status { call: $symbol, code }) }
                }
            )+
        }
    };
}

functions! {
    /// Starts the driver; does nothing when called again.
    init = "cuInit"(flags: c_uint);
    /// The number of devices.
    device_get_count = "cuDeviceGetCount"(count: *mut c_int);
    /// The device of an ordinal.
    device_get = "cuDeviceGet"(device: *mut c_int, ordinal: c_int);
    /// A property of a device.
    device_get_attribute = "cuDeviceGetAttribute"(value: *mut c_int, attribute: c_int, device: c_int);
    /// Whether a device can reach the memory of another.
    device_can_access_peer = "cuDeviceCanAccessPeer"(can: *mut c_int, device: c_int, peer: c_int);
    /// The primary context, kept alive until it is released.
    primary_context_retain = "cuDevicePrimaryCtxRetain"(context: *mut ContextHandle, device: c_int);
    /// Whether the primary context is there, which any library may have made.
    primary_context_get_state = "cuDevicePrimaryCtxGetState"(device: c_int, flags: *mut c_uint, active: *mut c_int);
    /// The context that is current in this thread.
    context_get_current = "cuCtxGetCurrent"(context: *mut ContextHandle);
    /// Makes a context current in this thread.
    context_push = "cuCtxPushCurrent_v2"(context: ContextHandle);
    /// Makes the previous context current again.
    context_pop = "cuCtxPopCurrent_v2"(context: *mut ContextHandle);
    /// Swaps this thread's capture mode with the one given.
    exchange_capture_mode = "cuThreadExchangeStreamCaptureMode"(mode: *mut c_int);
    /// A new stream of the current context.
    stream_create = "cuStreamCreate"(stream: *mut StreamHandle, flags: c_uint);
    /// Waits until all work of a stream is done.
    stream_synchronize = "cuStreamSynchronize"(stream: StreamHandle);
    /// Whether all work of a stream is done.
    stream_query = "cuStreamQuery"(stream: StreamHandle);
    /// Makes later work of a stream wait for an event.
    stream_wait_event = "cuStreamWaitEvent"(stream: StreamHandle, event: EventHandle, flags: c_uint);
    /// The context of a stream.
    stream_get_context = "cuStreamGetCtx"(stream: StreamHandle, context: *mut ContextHandle);
    /// Whether a stream is being captured: 0, 1, or 2 for a broken capture.
    stream_is_capturing = "cuStreamIsCapturing"(stream: StreamHandle, status: *mut c_int);
    /// A new event of the current context.
    event_create = "cuEventCreate"(event: *mut EventHandle, flags: c_uint);
    /// Ends an event.
    event_destroy = "cuEventDestroy_v2"(event: EventHandle);
    /// Records an event: it completes when the work that a stream has now is done.
    event_record = "cuEventRecord"(event: EventHandle, stream: StreamHandle);
    /// Whether an event is complete.
    event_query = "cuEventQuery"(event: EventHandle);
    /// Waits until an event is complete.
    event_synchronize = "cuEventSynchronize"(event: EventHandle);
    /// Several attributes of the memory at an address.
    pointer_get_attributes = "cuPointerGetAttributes"(
        count: c_uint, attributes: *mut c_int, data: *mut *mut c_void, pointer: DevicePointer
    );
    /// Page-locked host memory.
    memory_host_alloc = "cuMemHostAlloc"(memory: *mut *mut c_void, bytes: usize, flags: c_uint);
    /// Frees page-locked host memory. The host may wait.
    memory_host_free = "cuMemFreeHost"(memory: *mut c_void);
    /// A new pool of device memory.
    pool_create = "cuMemPoolCreate"(pool: *mut PoolHandle, properties: *const c_void);
    /// Destroys a pool, once all its memory is returned.
    pool_destroy = "cuMemPoolDestroy"(pool: PoolHandle);
    /// Sets a property of a pool.
    pool_set_attribute = "cuMemPoolSetAttribute"(pool: PoolHandle, attribute: c_int, value: *mut c_void);
    /// A property of a pool.
    pool_get_attribute = "cuMemPoolGetAttribute"(pool: PoolHandle, attribute: c_int, value: *mut c_void);
    /// Sets which devices reach the memory of a pool.
    pool_set_access = "cuMemPoolSetAccess"(pool: PoolHandle, grants: *const c_void, count: usize);
    /// Memory that is no pool's.
    memory_alloc = "cuMemAlloc_v2"(memory: *mut DevicePointer, bytes: usize);
    /// Frees memory outside of pools. The host waits for the device.
    memory_free = "cuMemFree_v2"(memory: DevicePointer);
    /// Returns a pool's unused memory to the device.
    pool_trim_to = "cuMemPoolTrimTo"(pool: PoolHandle, keep: usize);
    /// Allocates from a pool, for work that a stream gets from now on.
    memory_alloc_from_pool = "cuMemAllocFromPoolAsync"(
        memory: *mut DevicePointer, bytes: usize, pool: PoolHandle, stream: StreamHandle
    );
    /// Returns memory to its pool, once the work that a stream has now is done.
    memory_free_async = "cuMemFreeAsync"(memory: DevicePointer, stream: StreamHandle);
    /// Copies device memory to page-locked host memory.
    copy_to_host = "cuMemcpyDtoHAsync_v2"(
        target: *mut c_void, source: DevicePointer, bytes: usize, stream: StreamHandle
    );
    /// Copies page-locked host memory to device memory.
    copy_to_device = "cuMemcpyHtoDAsync_v2"(
        target: DevicePointer, source: *const c_void, bytes: usize, stream: StreamHandle
    );
    /// Sets bytes of device memory.
    memory_set = "cuMemsetD8Async"(memory: DevicePointer, value: u8, bytes: usize, stream: StreamHandle);
    /// Compiles a module from text for the current context's device. The host may wait.
    module_load = "cuModuleLoadData"(module: *mut ModuleHandle, image: *const c_void);
    /// Ends a module.
    module_unload = "cuModuleUnload"(module: ModuleHandle);
    /// A function of a module, which lives as long as the module.
    module_get_function = "cuModuleGetFunction"(function: *mut FunctionHandle, module: ModuleHandle, name: *const c_char);
    /// Launches a kernel. Its parameters are read during the call.
    launch = "cuLaunchKernel"(
        function: FunctionHandle, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared: c_uint, stream: StreamHandle, parameters: *mut *mut c_void, extra: *mut *mut c_void
    );
    /// Copies between memory of devices.
    copy_on_device = "cuMemcpyDtoDAsync_v2"(
        target: DevicePointer, source: DevicePointer, bytes: usize, stream: StreamHandle
    );
    /// Copies from memory of one context's device to that of another.
    copy_to_peer = "cuMemcpyPeerAsync"(
        target: DevicePointer, target_context: ContextHandle, source: DevicePointer, source_context: ContextHandle,
        bytes: usize, stream: StreamHandle
    );
}

/// # Safety
/// `F` is a pointer to a function as the driver documents the one of this name, which ends with a NUL.
#[cfg(feature = "cuda")]
unsafe fn symbol<F: Copy>(name: &'static str) -> Result<F> {
    let library = library().ok_or_else(no_driver)?;
    // SAFETY: the library's function of this name is of type `F`, and the name ends with a NUL.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found.map(|function| *function).map_err(|_| {
        let name = name.trim_end_matches('\0');
        Error::new(ErrorKind::Device, format!("the CUDA driver has no function {name}"))
            .remedy_is("install a driver of CUDA 12.0 or newer")
    })
}

impl Driver {
    /// Returns the name and the description of a code, for messages.
    fn describe(&self, code: u32) -> String {
        let text = |get: unsafe extern "C" fn(u32, *mut *const c_char) -> u32| {
            let mut text = std::ptr::null();
            // SAFETY: the driver sets the pointer to a static string, or to NULL for a code that it does not know.
            let known = unsafe { get(code, &raw mut text) } == 0 && !text.is_null();
            // SAFETY: a static string that ends with a NUL.
            known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy())
        };
        match (text(self.get_error_name), text(self.get_error_string)) {
            (Some(name), Some(description)) => format!(" ({name}: {description})"),
            _ => String::new(),
        }
    }
}

static DRIVER: OnceLock<Driver> = OnceLock::new();
/// Whether this process was forked from one that used the driver, which then does not work here.
static FORKED: AtomicBool = AtomicBool::new(false);

/// The driver, started.
///
/// # Errors
/// If there is no driver, it has no device, it is too old, or this process was forked from one that used it.
pub(crate) fn driver() -> Result<&'static Driver> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(Error::new(
            ErrorKind::Device,
            "CUDA was used before this process was forked, and cannot be used in it",
        )
        .remedy_is(Remedy::ForkEarlier));
    }
    match DRIVER.get() {
        Some(driver) => Ok(driver),
        None => start(),
    }
}

/// Returns whether this process uses the driver already.
pub(crate) fn is_started() -> bool {
    DRIVER.get().is_some() && !is_forked()
}

/// Returns whether this process was forked from one that used the driver.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

#[cold]
fn start() -> Result<&'static Driver> {
    static STARTING: Mutex<()> = Mutex::new(());
    let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(driver) = DRIVER.get() {
        return Ok(driver);
    }
    let driver = load()?;
    // SAFETY: no pointers; may be called at any time.
    match unsafe { driver.init(0) } {
        Ok(()) => {}
        Err(Status { code: Status::NO_DEVICE, .. }) => return Err(no_device()),
        Err(Status { call, code }) => {
            let text = driver.describe(code);
            let reason = format!("the CUDA driver does not start: {call} failed with code {code}{text}");
            return Err(Error::new(ErrorKind::Device, reason));
        }
    }
    let driver = DRIVER.get_or_init(|| driver);
    watch_forks();
    Ok(driver)
}

/// Returns the error of a machine without a device.
pub(crate) fn no_device() -> Error {
    Error::new(ErrorKind::Device, "the CUDA driver finds no device").remedy_is(Remedy::UseHost)
}

/// The names of the driver's library, the best first: the one without a version may be a toolkit's stub, whose calls all fail.
#[cfg(feature = "cuda")]
const LIBRARIES: &[&str] = if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1", "libcuda.so"] };

/// Returns the driver's library, which then stays loaded, or `None` if the machine has none. cudarc has its own only if no crate of
/// the program links the driver, as candle does.
#[cfg(feature = "cuda")]
fn library() -> Option<&'static libloading::Library> {
    static LOADED: OnceLock<libloading::Library> = OnceLock::new();
    if let Some(library) = LOADED.get() {
        return Some(library);
    }
    // SAFETY: loading the driver runs its initialisers, which may run at any time and on any thread.
    let found = LIBRARIES.iter().find_map(|name| unsafe { libloading::Library::new(*name) }.ok())?;
    Some(LOADED.get_or_init(|| found))
}

#[cfg(feature = "cuda")]
fn no_driver() -> Error {
    let name = LIBRARIES.first().unwrap_or(&"libcuda");
    Error::new(ErrorKind::Device, format!("there is no CUDA driver on this machine: {name} is not found"))
        .remedy_is(Remedy::from("install the NVIDIA driver").or(Remedy::UseHost))
}

#[cfg(feature = "cuda")]
fn load() -> Result<Driver> {
    Driver::resolve()
}

#[cfg(not(feature = "cuda"))]
fn load() -> Result<Driver> {
    Err(Error::new(ErrorKind::Device, "this build knows no CUDA").remedy_is("build with the feature `cuda`"))
}

#[cfg(unix)]
fn watch_forks() {
    extern "C" fn in_child() {
        callback::caught(|| FORKED.store(true, Ordering::Relaxed), |_| ());
    }
    // SAFETY: the handler stores to an atomic, which is allowed in a child of a process with threads.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

#[cfg(not(unix))]
fn watch_forks() {}

/// Runs a function when the process exits in an orderly way, before the driver's own end: the driver is loaded.
#[cfg(unix)]
pub(crate) fn at_exit(run: fn()) {
    static RUN: OnceLock<fn()> = OnceLock::new();
    extern "C" fn exits() {
        callback::caught(|| RUN.get().into_iter().for_each(|run| run()), |_| ());
    }
    // Only one function is registered.
    if RUN.set(run).is_ok() {
        // SAFETY: the handler catches panics, and lives as long as this library.
        unsafe { libc::atexit(exits) };
    }
}

/// Windows ends the threads of a process before its exit handlers run.
#[cfg(not(unix))]
pub(crate) fn at_exit(_: fn()) {}
