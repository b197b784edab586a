//! The questions that only the simulated driver answers, for Rust tests.
//!
//! They are asked of the library that the process has loaded as `libcuda.so`, so that a test talks to the driver that its program
//! uses. [`Simulator::load`] fails on a real driver, and on another version of this one.

use std::ffi::{CString, c_char};

use libloading::{Library, Symbol};

use crate::kernel::KernelFunction;

/// The simulated driver that this process runs on.
#[derive(Debug)]
pub struct Simulator {
    driver: Library,
}

impl Simulator {
    /// Finds the driver as the bindings do, by name. Panics if it is not this crate's: a test on another driver proves nothing.
    pub fn load() -> Simulator {
        // SAFETY: loading a driver runs nothing that depends on this process.
        let driver = unsafe { Library::new("libcuda.so") }.expect("libcuda.so is on the library path");
        let simulator = Simulator { driver };
        assert_eq!(simulator.version(), Some(crate::questions::VERSION), "libcuda.so is not this simulated driver");
        simulator
    }

    fn version(&self) -> Option<u32> {
        // SAFETY: no other driver has a symbol of this name.
        let version: Symbol<'_, extern "C" fn() -> u32> = unsafe { self.driver.get(b"simulated_cuda_version") }.ok()?;
        Some(version())
    }

    fn function<F>(&self, name: &str) -> Symbol<'_, F> {
        // SAFETY: each caller names the type with which this version declares the function.
        unsafe { self.driver.get(name.as_bytes()) }.expect("this version has all of these functions")
    }

    /// How many races, uses after free and faults were reported.
    pub fn races(&self) -> u64 {
        self.function::<extern "C" fn() -> u64>("simulated_cuda_races")()
    }

    /// How often the host waited, or may have, by itself or because it was asked to.
    pub fn host_waits(&self) -> u64 {
        self.function::<extern "C" fn() -> u64>("simulated_cuda_host_waits")()
    }

    /// How many objects of a kind are alive: "device", "pinned", "managed", "registered", "streams", "events", "contexts",
    /// "primary contexts", "pools", "modules", "graphs", "captures", "reservations", "physical" (memory of `cuMemCreate`) or "imported".
    pub fn live(&self, kind: &str) -> u64 {
        let kind = c_string(kind);
        let count = self.function::<extern "C" fn(*const c_char) -> u64>("simulated_cuda_live")(kind.as_ptr());
        assert_ne!(count, u64::MAX, "there is no such kind: {kind:?}");
        count
    }

    /// All reports and counts, a line each.
    pub fn report(&self) -> String {
        let report = self.function::<extern "C" fn(*mut u8, usize) -> usize>("simulated_cuda_report");
        let mut text = vec![0; report(std::ptr::null_mut(), 0)];
        let length = report(text.as_mut_ptr(), text.len());
        text.truncate(length);
        String::from_utf8_lossy(&text).into_owned()
    }

    /// How often a function of the driver was called; `*` asks for all calls.
    pub fn calls(&self, function: &str) -> u64 {
        let function = c_string(function);
        self.function::<extern "C" fn(*const c_char) -> u64>("simulated_cuda_calls")(function.as_ptr())
    }

    /// Lets the `nth` call from now of a function fail with `code`.
    pub fn fail(&self, function: &str, nth: u64, code: u32) {
        let function = c_string(function);
        self.function::<extern "C" fn(*const c_char, u64, u32)>("simulated_cuda_fail")(function.as_ptr(), nth, code);
    }

    /// Queues a gate on a stream of the current context, which nothing passes until it is opened.
    pub fn gate(&self, stream: usize) -> Gate<'_> {
        let number = self.function::<extern "C" fn(usize) -> u64>("simulated_cuda_gate")(stream);
        assert_ne!(number, 0, "a gate needs a stream");
        Gate { simulator: self, number }
    }

    /// Runs whatever can run. No thread learns of it: it is not a wait.
    pub fn run_all(&self) {
        self.function::<extern "C" fn()>("simulated_cuda_run_all")();
    }

    /// What the virtual clock says, in nanoseconds; `None` under a schedule without one.
    pub fn virtual_time(&self) -> Option<u64> {
        let now = self.function::<extern "C" fn() -> u64>("simulated_cuda_virtual_time")();
        (now != u64::MAX).then_some(now)
    }

    /// Lets this thread sleep for a time of the virtual clock; false, at once, under a schedule without one.
    pub fn sleep(&self, nanoseconds: u64) -> bool {
        self.function::<extern "C" fn(u64) -> i32>("simulated_cuda_sleep")(nanoseconds) != 0
    }

    /// Takes the virtual clock's time for a copy of so many bytes by this thread.
    pub fn host_copied(&self, bytes: u64) {
        self.function::<extern "C" fn(u64)>("simulated_cuda_host_copied")(bytes);
    }

    /// Queues work on a stream of the current context that keeps the kernels of the device busy for a time of the virtual clock.
    pub fn busy(&self, stream: usize, nanoseconds: u64) {
        let queued = self.function::<extern "C" fn(usize, u64) -> i32>("simulated_cuda_busy")(stream, nanoseconds);
        assert_ne!(queued, 0, "work needs a stream");
    }

    /// How often the virtual clock moved on although a thread computed.
    pub fn forced_moves(&self) -> u64 {
        self.function::<extern "C" fn() -> u64>("simulated_cuda_forced_moves")()
    }

    /// What lasted on the virtual clock so far.
    pub fn timeline(&self) -> Vec<Lasted> {
        let timeline = self.function::<extern "C" fn(*mut u8, usize) -> usize>("simulated_cuda_timeline");
        let mut text = vec![0; timeline(std::ptr::null_mut(), 0)];
        let length = timeline(text.as_mut_ptr(), text.len());
        text.truncate(length);
        String::from_utf8_lossy(&text).lines().map(Lasted::parse).collect()
    }

    /// This thread hands what it knows over to whoever receives the token.
    pub fn hand_over_send(&self, token: u64) {
        self.function::<extern "C" fn(u64)>("simulated_cuda_hand_over_send")(token);
    }

    /// This thread learns what every sender of the token knew.
    pub fn hand_over_receive(&self, token: u64) {
        self.function::<extern "C" fn(u64)>("simulated_cuda_hand_over_receive")(token);
    }

    /// Checks an access by this thread that no page shows: registered memory beside its whole pages, or a system call.
    pub fn host_access(&self, address: u64, bytes: u64, write: bool) {
        let check = self.function::<extern "C" fn(u64, u64, i32)>("simulated_cuda_host_access");
        check(address, bytes, i32::from(write));
    }

    /// Has a function stand for the kernel of this name, with parameters of these sizes. It touches memory through its context only,
    /// and must not call the driver.
    pub fn register_kernel(&self, name: &str, function: KernelFunction, sizes: &[usize]) {
        type Register = extern "C" fn(*const c_char, KernelFunction, usize, *const usize);
        let name = c_string(name);
        let register = self.function::<Register>("simulated_cuda_register_kernel");
        register(name.as_ptr(), function, sizes.len(), sizes.as_ptr());
    }

    /// Forgets everything but the registered kernels. No other thread may be in the driver.
    pub fn reset(&self) {
        self.function::<extern "C" fn()>("simulated_cuda_reset")();
    }
}

/// A gate in a stream. It stays closed until [`Gate::open`], also when this value is gone.
#[derive(Debug)]
pub struct Gate<'a> {
    simulator: &'a Simulator,
    number: u64,
}

impl Gate<'_> {
    /// Lets the stream pass.
    pub fn open(&self) {
        self.simulator.function::<extern "C" fn(u64)>("simulated_cuda_open_gate")(self.number);
    }
}

/// Something that lasted: an operation of a stream, or a wait, a sleep or a long call of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lasted {
    /// When it began, in nanoseconds of the virtual clock.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// The bytes that it moved, if it is an operation.
    pub bytes: u64,
    /// "kernel", "copy", "fill", "wait", "sleep", "host copy", or the function that was called.
    pub what: String,
    /// The stream or the host thread.
    pub whose: String,
}

impl Lasted {
    fn parse(line: &str) -> Lasted {
        let mut fields = line.splitn(5, '\t');
        let mut next = || fields.next().expect("five fields");
        let mut number = || next().parse().expect("a number");
        let (start, end, bytes) = (number(), number(), number());
        Lasted { start, end, bytes, what: next().into(), whose: next().into() }
    }
}

fn c_string(text: &str) -> CString {
    CString::new(text).expect("a name without a zero")
}
