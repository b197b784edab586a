//! Memory of the host that goes from one thread to another. A driver that checks the order of all accesses, as the one that the
//! tests run on, sees no locks and no joins: it is told. No other driver has these functions.

use std::sync::OnceLock;

use super::driver::is_started;

/// `simulated_cuda_hand_over_send`, and `..._receive`.
struct HandOver {
    send: unsafe extern "C" fn(u64),
    receive: unsafe extern "C" fn(u64),
}

fn functions() -> Option<&'static HandOver> {
    static FOUND: OnceLock<Option<HandOver>> = OnceLock::new();
    if !is_started() {
        return None;
    }
    FOUND.get_or_init(find).as_ref()
}

#[cfg(feature = "cuda")]
fn find() -> Option<HandOver> {
    use super::driver::symbol;

    // SAFETY: whoever exports this name gives the function this argument.
    let send = unsafe { symbol("simulated_cuda_hand_over_send\0") }.ok()?;
    // SAFETY: as above.
    let receive = unsafe { symbol("simulated_cuda_hand_over_receive\0") }.ok()?;
    Some(HandOver { send, receive })
}

#[cfg(not(feature = "cuda"))]
fn find() -> Option<HandOver> {
    None
}

/// Memory that starts here is let go, by a thread that has waited for all it had to wait for.
pub(crate) fn sent(start: *const u8) {
    if let Some(found) = functions() {
        // SAFETY: takes a number, at any time.
        unsafe { (found.send)(start.addr() as u64) };
    }
}

/// And another thread has it now.
pub(crate) fn received(start: *const u8) {
    if let Some(found) = functions() {
        // SAFETY: as above.
        unsafe { (found.receive)(start.addr() as u64) };
    }
}
