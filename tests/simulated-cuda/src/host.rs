//! Functions of the caller that a stream runs on the host, each on a thread made for it.

use std::ffi::c_void;
use std::thread;

use crate::call::{as_host_function, ask};
use crate::clock::Moment;
use crate::state::{CHANGED, State};

impl State {
    /// Starts a host function, which on the virtual clock begins at `ready` at the earliest. The driver is not locked while it runs: it may wait for a lock whose holder calls the driver.
    pub(crate) fn start_host_function(
        &mut self,
        (stream, ready): (usize, u64),
        at: Moment,
        function: unsafe extern "C" fn(*mut c_void),
        data: usize,
    ) {
        let generation = self.generation;
        thread::spawn(move || {
            ask(|call| {
                if call.has_clock() && call.generation == generation {
                    call.wait_on_clock("wait", |_| Some(ready));
                }
            });
            // SAFETY: the caller of cuLaunchHostFunc passed both, for one call.
            as_host_function(at, || unsafe { function(data as *mut c_void) });
            ask(|call| {
                if call.generation == generation {
                    call.finish_front(stream);
                    if call.settings.schedule.is_eager() {
                        call.run_all();
                    }
                }
            });
            CHANGED.notify_all();
        });
    }
}
