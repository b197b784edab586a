//! Functions of the caller that a stream runs on the host, each on a thread made for it.

use std::ffi::c_void;
use std::thread;

use crate::call::{as_host_function, ask};
use crate::clock::Moment;
use crate::settings::Schedule;
use crate::state::{CHANGED, State};

impl State {
    /// Starts a host function. The driver is not locked while it runs: it may wait for a lock whose holder calls the driver.
    pub(crate) fn start_host_function(
        &mut self,
        stream: usize,
        at: Moment,
        function: unsafe extern "C" fn(*mut c_void),
        data: usize,
    ) {
        let generation = self.generation;
        thread::spawn(move || {
            // SAFETY: the caller of cuLaunchHostFunc passed both, for one call.
            as_host_function(at, || unsafe { function(data as *mut c_void) });
            ask(|call| {
                if call.generation == generation {
                    call.finish_front(stream);
                    if call.settings.schedule == Schedule::Eager {
                        call.run_all();
                    }
                }
            });
            CHANGED.notify_all();
        });
    }
}
