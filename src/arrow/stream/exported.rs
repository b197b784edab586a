//! The table of live exported streams, each under a key, with the messages of their failed calls.
//!
//! The C stream interface asks consumers not to overlap calls on a stream. Some do: pyarrow reads a stream from as many
//! threads as its user likes, and releases it when one of them finds its end. So the C struct holds its stream's key
//! instead of an address, even after its release. A call within or beside another call, or on a released stream, is an
//! error and touches no freed memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int};
#[cfg(unix)]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use arrow_schema::FieldRef;

use super::DeviceArrayStream;
use crate::callback;
use crate::error::{Error, ErrorKind, Language, Result};

// The errno values that the stream interface requires.
const EIO: c_int = 5;
const ENOMEM: c_int = 12;
const EINVAL: c_int = 22;

/// A stream that a consumer reads.
pub(super) struct ExportedStream {
    field: FieldRef,
    stream: Mutex<DeviceArrayStream>,
    /// The last failed call, and its message, for a consumer that asks on another thread.
    last_error: Mutex<Option<(Arc<CStr>, Error)>>,
}

impl ExportedStream {
    /// The type of every array; reading it needs no lock.
    pub(super) fn field(&self) -> &FieldRef {
        &self.field
    }

    /// Reads the stream.
    ///
    /// # Errors
    /// If another call reads the stream, on another thread or further up on this one: waiting could be a deadlock. If the iterator
    /// panicked in an earlier call: the array of that call is lost.
    pub(super) fn read<R>(&self, read: impl FnOnce(&mut DeviceArrayStream) -> Result<R>) -> Result<R> {
        let mut stream = match self.stream.try_lock() {
            Ok(stream) => stream,
            Err(TryLockError::Poisoned(_)) => {
                let reason = "the stream's iterator panicked in an earlier call, so the stream is over";
                return Err(Error::new(ErrorKind::Producer, reason));
            }
            Err(TryLockError::WouldBlock) => {
                let reason = "another call on the stream has not returned yet, and a stream takes one call at a time";
                return Err(Error::argument(reason).remedy_is("read the stream from one thread, or hold a lock"));
            }
        };
        read(&mut stream)
    }
}

type Registry = Mutex<BTreeMap<usize, Arc<ExportedStream>>>;

/// The live streams: of this process in the registry of the index [`CURRENT`]. A forked child cannot lock one that another thread
/// of its parent held locked, and goes on with the next.
static REGISTRIES: [Registry; 4] = [const { Mutex::new(BTreeMap::new()) }; 4];
static CURRENT: AtomicUsize = AtomicUsize::new(0);
/// The key of the next stream. No key is used twice.
static NEXT_KEY: AtomicUsize = AtomicUsize::new(1);

/// Locks the live streams, briefly. `None` if the lock is never released.
fn alive() -> Option<MutexGuard<'static, BTreeMap<usize, Arc<ExportedStream>>>> {
    briefly(current()?)
}

fn current() -> Option<&'static Registry> {
    REGISTRIES.get(CURRENT.load(Ordering::Acquire))
}

/// Moves on to the next registry if nobody can unlock the current one, in a process that was just forked. The last one stays.
#[cfg(any(unix, test))]
fn leave_locked_registry() {
    let is_lost = current().is_some_and(|registry| matches!(registry.try_lock(), Err(TryLockError::WouldBlock)));
    let next = CURRENT.load(Ordering::Acquire).saturating_add(1);
    if is_lost && next < REGISTRIES.len() {
        CURRENT.store(next, Ordering::Release);
    }
}

/// Has every child that is forked from now on leave a registry that is locked.
#[cfg(unix)]
fn watch_forks() {
    static IS_WATCHED: AtomicBool = AtomicBool::new(false);
    extern "C" fn in_child() {
        callback::caught(leave_locked_registry, |_| ());
    }
    if !IS_WATCHED.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler is a function of this library, which is never unloaded. It reads and writes atomics alone and
        // drops no stream, which is allowed in a child of a process with threads.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

#[cfg(not(unix))]
fn watch_forks() {}

/// Locks what nobody holds for long. `None` if the lock is never released: a fork copied it while another thread held
/// it.
fn briefly<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for attempt in 0..2_000 {
        match lock.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(guard)) => return Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) if attempt < 100 => std::thread::yield_now(),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    None
}

/// Keeps a stream until [`remove`], and returns its key.
pub(super) fn insert(stream: DeviceArrayStream) -> usize {
    watch_forks();
    let key = NEXT_KEY.fetch_add(1, Ordering::Relaxed);
    let field = stream.field().clone();
    let exported = Arc::new(ExportedStream { field, stream: Mutex::new(stream), last_error: Mutex::new(None) });
    if let Some(mut alive) = alive() {
        alive.insert(key, exported);
    }
    key
}

/// Drops the stream of a key. If a call reads the stream, it is dropped when the call returns.
pub(super) fn remove(key: usize) {
    let removed = alive().and_then(|mut alive| alive.remove(&key));
    // Without the lock, because the stream's iterator may release other streams.
    drop(removed);
}

fn find(key: usize) -> Option<Arc<ExportedStream>> {
    alive()?.get(&key).cloned()
}

/// Runs a call's work on the stream of a key. An error or a panic becomes an error code and a message.
pub(super) fn call(key: usize, work: impl FnOnce(&ExportedStream) -> Result<()>) -> c_int {
    let body = || {
        let exported = find(key).ok_or_else(|| Error::argument("the stream was released already"))?;
        // This drops the last reference if the stream was released meanwhile.
        work(&exported)
    };
    let panicked = |panic: Box<dyn std::any::Any + Send>| {
        let message = callback::panic_message(&*panic);
        Err(Error::new(ErrorKind::Producer, format!("the stream's iterator panicked: {message}")))
    };
    let Err(error) = callback::run(body, panicked) else { return 0 };
    // In a callback, too: the causes of errors that are dropped here may be another language's.
    let told = move || {
        remember(key, &error);
        // Consumers choose their exception type by the code, so the first producer's code is passed on.
        error.code().unwrap_or(match error.kind() {
            ErrorKind::Memory => ENOMEM,
            ErrorKind::Producer | ErrorKind::Device | ErrorKind::Internal => EIO,
            _ => EINVAL,
        })
    };
    callback::run(told, |_| EIO)
}

thread_local! {
    /// The messages of this thread's last failed call on each stream. They are stored here so that no call or release
    /// on another thread frees a message that a consumer reads.
    static MESSAGES: RefCell<BTreeMap<usize, Arc<CStr>>> = const { RefCell::new(BTreeMap::new()) };
}

/// Forgets what this thread's failed calls reported: consumers may not read it any more.
#[cfg(feature = "python")]
pub(crate) fn forget_messages() {
    let messages = MESSAGES.try_with(RefCell::take);
    drop(messages);
}

fn remember(key: usize, error: &Error) {
    let Ok(message) = CString::new(error.told_in(Language::of_consumers()).to_string().replace('\0', " ")) else {
        return;
    };
    let message: Arc<CStr> = message.into();
    let exported = find(key);
    let last_error = exported.as_ref().and_then(|exported| briefly(&exported.last_error));
    let before = last_error.and_then(|mut last_error| last_error.replace((message.clone(), error.clone())));
    // Without the lock, as its cause may wait for an interpreter.
    drop(before);
    // A thread that is ending has no messages any more.
    let _ = MESSAGES.try_with(|messages| insert_message(&mut messages.borrow_mut(), key, message));
}

/// Stores a message, in place of those of released streams.
fn insert_message(messages: &mut BTreeMap<usize, Arc<CStr>>, key: usize, message: Arc<CStr>) {
    if let Some(alive) = alive() {
        messages.retain(|other, _| alive.contains_key(other));
    }
    messages.insert(key, message);
}

/// Returns the message of the last failed call: of this thread, or else of any. It lives until this thread's next
/// failed call on the same stream, or, once the stream is released, until this thread stores the message of any stream.
pub(super) fn last_error(key: usize) -> *const c_char {
    let message = || {
        MESSAGES.try_with(|messages| {
            let mut messages = messages.borrow_mut();
            if !messages.contains_key(&key) {
                let exported = find(key)?;
                let message = briefly(&exported.last_error)?.as_ref()?.0.clone();
                insert_message(&mut messages, key, message);
            }
            messages.get(&key).map(|message| message.as_ptr())
        })
    };
    let nothing = std::ptr::null();
    callback::run(|| message().ok().flatten().unwrap_or(nothing), |_| nothing)
}

/// Returns the error of the last failed call, if this is its message, for a consumer that is this library.
pub(super) fn failure(key: usize, message: &CStr) -> Option<Error> {
    let exported = find(key)?;
    let last_error = briefly(&exported.last_error)?;
    last_error.as_ref().filter(|(text, _)| text.as_ref() == message).map(|(_, error)| error.clone())
}

#[cfg(test)]
mod tests {
    use arrow_schema::{DataType, Field};

    use super::*;
    use crate::device::Device;

    #[test]
    fn calls_end_where_a_fork_has_left_locks_behind() {
        let field = Arc::new(Field::new("x", DataType::Int8, true));
        let key = insert(DeviceArrayStream::new(field, Device::CPU.device_type(), std::iter::empty()));
        let exported = find(key).unwrap();
        // The state that a fork leaves while another thread holds the lock: nobody will ever unlock it.
        let locked = exported.last_error.lock().unwrap();
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let code = call(key, |_| Err(Error::invalid("no array")));
            send.send((code, !last_error(key).is_null())).unwrap();
        });
        let answer = receive.recv_timeout(Duration::from_secs(60));
        drop(locked);
        assert_eq!(answer, Ok((EINVAL, true)));
        remove(key);
        assert!(find(key).is_none());
    }

    #[test]
    fn the_code_of_a_failed_call_tells_its_kind() {
        let field = Arc::new(Field::new("x", DataType::Int8, true));
        let key = insert(DeviceArrayStream::new(field, Device::CPU.device_type(), std::iter::empty()));
        for (kind, code) in [
            (ErrorKind::Memory, ENOMEM),
            (ErrorKind::Producer, EIO),
            (ErrorKind::Device, EIO),
            (ErrorKind::Internal, EIO),
            (ErrorKind::Invalid, EINVAL),
        ] {
            assert_eq!(call(key, |_| Err(Error::new(kind, "no array"))), code, "{kind:?}");
        }
        remove(key);
    }

    #[test]
    fn messages_of_released_streams_do_not_gather_on_a_thread_that_only_asks_for_them() {
        let field = Arc::new(Field::new("x", DataType::Int8, true));
        let kept = || MESSAGES.with_borrow(BTreeMap::len);
        for _ in 0..if cfg!(miri) { 10 } else { 100 } {
            let key = insert(DeviceArrayStream::new(field.clone(), Device::CPU.device_type(), std::iter::empty()));
            std::thread::scope(|scope| scope.spawn(move || call(key, |_| Err(Error::invalid("no array")))).join())
                .unwrap();
            assert!(!last_error(key).is_null());
            remove(key);
        }
        assert_eq!(kept(), 1);
    }

    #[cfg(all(unix, not(miri)))]
    #[test]
    fn a_child_that_is_forked_while_the_registry_is_locked_has_one_of_its_own() {
        let field = Arc::new(Field::new("x", DataType::Int8, true));
        let stream = || DeviceArrayStream::new(field.clone(), Device::CPU.device_type(), std::iter::empty());
        let key = insert(stream());
        let locked = current().unwrap().lock().unwrap();
        // SAFETY: the child calls nothing but the functions under test and `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let own = insert(stream());
            let works = find(own).is_some() && call(own, |_| Ok(())) == 0 && call(key, |_| Ok(())) == EINVAL;
            // SAFETY: ends the child at once, without the destructors of its parent.
            unsafe { libc::_exit(if works { 0 } else { 1 }) };
        }
        drop(locked);
        let mut status = -1;
        // SAFETY: a child of this process, and a live integer for its status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status}");
        assert!(find(key).is_some(), "the parent keeps its registry");
        remove(key);
    }
}
