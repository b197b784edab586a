//! What the host touched: the handler of the fault that a closed page causes.
//!
//! It asks whether the thread that touched the page has waited for the streams that use these bytes, reports it if not, opens the page
//! and lets the thread go on. The page is watched again when the driver is next called.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use crate::call::{Call, host_function, inside, look};
use crate::pages::page;
use crate::race::{Access, Kind, only};
use crate::state::State;

/// Bytes that an access opens to all threads, where it has to wait for nothing: few enough for threads that share a block to be looked at
/// each by itself.
fn opened() -> u64 {
    16 * page()
}

/// The handler that was there before, for the faults that are not ours.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler, once.
pub(crate) fn watch() {
    PREVIOUS.get_or_init(|| {
        let mut previous = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: all zeros is a valid value of this C struct.
        let mut action = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: a handler that stays, and room for the previous one.
        let failed = unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, previous.as_mut_ptr()) };
        assert_eq!(failed, 0, "the handler of faults is installed");
        // SAFETY: written by the call above.
        unsafe { previous.assume_init() }
    });
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the system passes both to a handler that asked for them.
    let fault = unsafe { &*info };
    // SAFETY: this signal carries an address.
    let address = unsafe { fault.si_addr() } as u64;
    if crate::call::is_fork() {
        return pass_on(signal, info, context);
    }
    if inside() {
        say("a kernel, or the driver, touched memory that only an accessor may touch");
        return pass_on(signal, info, context);
    }
    let write = is_write(context);
    let known = look(|call| {
        if let Some(base) = call.memory.watched(address) {
            call.host_access(base, address, write);
            return true;
        }
        if call.memory.is_device_address(address) {
            say("the host touched device memory");
        }
        false
    });
    if !known {
        pass_on(signal, info, context);
    }
}

/// Whether the access that faulted was a write.
#[cfg(target_arch = "x86_64")]
fn is_write(context: *mut c_void) -> bool {
    // SAFETY: the system passes a context of this type.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    context.uc_mcontext.gregs[libc::REG_ERR as usize] & 2 != 0
}

/// Elsewhere a fault does not say it in a way that we read, and a write conflicts with more than a read does.
#[cfg(not(target_arch = "x86_64"))]
fn is_write(_context: *mut c_void) -> bool {
    true
}

/// Writes a line without the machinery of `eprintln`, which the thread may have been in the middle of.
fn say(text: &str) {
    for part in ["simulated CUDA: ", text, "\n"] {
        // SAFETY: bytes that are there, to the standard error.
        unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
    }
}

/// Leaves the fault to the handler before ours, or to the system.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous = PREVIOUS.get().copied();
    let Some(previous) = previous.filter(|previous| previous.sa_sigaction > libc::SIG_IGN) else {
        // SAFETY: the default again: the access faults once more, and ends the process.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    };
    if previous.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: installed as a handler of this kind.
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) =
            unsafe { std::mem::transmute(previous.sa_sigaction) };
        handler(signal, info, context);
    } else {
        // SAFETY: installed as a handler of this kind.
        let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(previous.sa_sigaction) };
        handler(signal);
    }
}

impl State {
    /// Whether every access of a block by streams that conflicts is known to `at`.
    fn may_open(&self, base: u64, at: &crate::clock::Moment) -> bool {
        self.memory.get(base).is_none_or(|block| block.log.by_streams().all(|access| access.at.known_to(&at.clock)))
    }
}

impl Call {
    /// A host thread, or a host function, touches a byte of watched memory.
    pub(crate) fn host_access(&mut self, base: u64, address: u64, write: bool) {
        let thread = self.thread;
        let (at, what, by_host) = match host_function() {
            Some(at) => (at, "host function", false),
            None => (self.host_moment(thread), "host access", true),
        };
        let kind = if write { Kind::Write } else { Kind::Read };
        let range = address..address + 1;
        let around = self.memory.get(base).map(|block| {
            let start = block.base + (address - block.base) / opened() * opened();
            start..(start + opened()).min(block.base + block.room)
        });
        let opened = if self.may_open(base, &at) { around.unwrap_or(range.clone()) } else { range.clone() };
        self.log(Access { ranges: only(range), kind, at, what, by_host, done: true });
        self.memory.open(base, &opened);
    }
}
