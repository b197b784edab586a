//! Contexts, and captures: what is current where, and what is not allowed.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "calls a C library")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a test fails by a panic, and its numbers are small"
)]

mod support;

use std::ptr::null_mut;

use cudarc::driver::sys::{self, CUcontext, CUstreamCaptureMode_enum as Mode, CUstreamCaptureStatus_enum as Status};
use support::{
    copy, device, device_in, enter, event, fill, finish, holds, ok, open, pinned, read, refused, stream, with,
};

const BYTES: usize = 4096;

fn current() -> CUcontext {
    let mut context = null_mut();
    ok!(cuCtxGetCurrent(&mut context));
    context
}

#[test]
fn nothing_works_before_the_driver_is_initialised() {
    holds("nothing_works_before_the_driver_is_initialised", &[], |_run| {
        let (mut count, mut version) = (0, 0);
        refused!(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&mut count));
        refused!(CUDA_ERROR_NOT_INITIALIZED, cuStreamQuery(null_mut()));
        ok!(cuDriverGetVersion(&mut version));
        assert_eq!(version, 12000);
        ok!(cuInit(0));
        ok!(cuDeviceGetCount(&mut count));
        assert_eq!(count, 2);
        refused!(CUDA_ERROR_INVALID_CONTEXT, cuStreamQuery(null_mut()));
    });
}

#[test]
fn a_machine_may_have_no_device() {
    holds("a_machine_may_have_no_device", &[("DEVICES", "0")], |_run| {
        let mut count = 1;
        refused!(CUDA_ERROR_NO_DEVICE, cuInit(0));
        refused!(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&mut count));
    });
}

#[test]
fn contexts_are_current_in_a_thread() {
    holds("contexts_are_current_in_a_thread", &[], |run| {
        let first = open(0);
        let mut second = null_mut();
        ok!(cuDevicePrimaryCtxRetain(&mut second, 1));
        ok!(cuCtxPushCurrent_v2(second));
        let mut on = 7;
        ok!(cuCtxGetDevice(&mut on));
        assert_eq!((on, current()), (1, second));
        std::thread::scope(|threads| {
            threads.spawn(|| assert!(current().is_null()));
        });
        let mut popped = null_mut();
        ok!(cuCtxPopCurrent_v2(&mut popped));
        assert_eq!((popped, current()), (second, first));
        ok!(cuCtxPopCurrent_v2(&mut popped));
        refused!(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(&mut popped));
        refused!(CUDA_ERROR_INVALID_CONTEXT, cuCtxSetCurrent(8 as CUcontext));
        assert_eq!(run.simulator.live("primary contexts"), 2);
    });
}

#[test]
fn a_capture_mode_is_exchanged_in_a_thread_with_a_context() {
    holds("a_capture_mode_is_exchanged_in_a_thread_with_a_context", &[], |_run| {
        ok!(cuInit(0));
        let mut mode = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;
        refused!(CUDA_ERROR_INVALID_CONTEXT, cuThreadExchangeStreamCaptureMode(&mut mode));
        open(0);
        ok!(cuThreadExchangeStreamCaptureMode(&mut mode));
        assert_eq!(mode, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL);
    });
}

#[test]
fn a_call_may_have_its_effect_and_fail() {
    holds("a_call_may_have_its_effect_and_fail", &[("FAIL", "cuCtxPopCurrent_v2:1!:999")], |_run| {
        open(0);
        refused!(CUDA_ERROR_UNKNOWN, cuCtxPopCurrent_v2(&mut null_mut()));
        assert!(current().is_null());
        refused!(CUDA_ERROR_INVALID_CONTEXT, cuCtxPopCurrent_v2(&mut null_mut()));
    });
}

#[test]
fn a_primary_context_lives_until_its_last_release() {
    holds("a_primary_context_lives_until_its_last_release", &[], |run| {
        let context = open(0);
        assert_eq!(open(0), context);
        let (data, first, mut flags, mut active) = (device(BYTES), stream(false), 0, 0);
        event();
        ok!(cuDevicePrimaryCtxRelease_v2(0));
        fill(data, 7, BYTES, first);
        ok!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
        assert_eq!(active, 1);
        ok!(cuDevicePrimaryCtxRelease_v2(0));
        ok!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
        assert_eq!(active, 0);
        for kind in ["device", "streams", "events", "primary contexts"] {
            assert_eq!(run.simulator.live(kind), 0, "{kind}");
        }
        refused!(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxSynchronize());
        refused!(CUDA_ERROR_INVALID_CONTEXT, cuDevicePrimaryCtxRelease_v2(0));
        assert_eq!(open(0), context);
        refused!(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(first));
        refused!(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(data));
    });
}

#[test]
fn a_second_context_is_another() {
    holds("a_second_context_is_another", &[], |run| {
        type Create = unsafe extern "C" fn(*mut CUcontext, u32, i32) -> sys::CUresult;
        let primary = open(0);
        let (there, of_primary) = (stream(false), event());
        let mut own = null_mut();
        // The newest bindings have no name for this function of CUDA 12.0.
        // SAFETY: the library of the driver stays loaded.
        let library = unsafe { sys::culib() };
        // SAFETY: declared so by the driver of that version.
        let create = unsafe { library.get::<Create>(b"cuCtxCreate_v2") }.unwrap();
        // SAFETY: room for a context.
        assert_eq!(unsafe { create(&mut own, 0, 0) }, sys::CUresult::CUDA_SUCCESS);
        assert_eq!(current(), own);
        let (here, mut of) = (stream(false), null_mut());
        ok!(cuStreamGetCtx(there, &mut of));
        assert_eq!(of, primary);
        // A record belongs to one context; a wait does not.
        refused!(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(of_primary, here));
        ok!(cuEventRecord(of_primary, there));
        ok!(cuStreamWaitEvent(here, of_primary, 0));
        assert_eq!(run.simulator.live("contexts"), 1);
        ok!(cuCtxDestroy_v2(own));
        refused!(CUDA_ERROR_CONTEXT_IS_DESTROYED, cuCtxDestroy_v2(own));
        refused!(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2(primary));
        assert_eq!((run.simulator.live("contexts"), current()), (0, primary));
        refused!(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(here));
    });
}

#[test]
fn events_of_another_device_are_not_recorded_here() {
    holds("events_of_another_device_are_not_recorded_here", &[], |_run| {
        open(1);
        let elsewhere = event();
        let context = open(0);
        let here = stream(false);
        refused!(CUDA_ERROR_INVALID_HANDLE, cuEventRecord(elsewhere, here));
        ok!(cuStreamWaitEvent(here, elsewhere, 0));
        enter(context as usize);
    });
}

#[test]
fn events_of_several_processes_record_no_times() {
    holds("events_of_several_processes_record_no_times", &[], |_run| {
        open(0);
        let mut event = null_mut();
        ok!(cuEventCreate(&mut event, 4 | 2));
        refused!(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&mut event, 4));
        refused!(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&mut event, 4 | 1));
        refused!(CUDA_ERROR_INVALID_VALUE, cuEventCreate(&mut event, 8));
    });
}

fn exchange(mode: Mode) -> Mode {
    let mut mode = mode;
    ok!(cuThreadExchangeStreamCaptureMode(&mut mode));
    mode
}

fn status(stream: sys::CUstream) -> Status {
    let mut status = Status::CU_STREAM_CAPTURE_STATUS_NONE;
    ok!(cuStreamIsCapturing(stream, &mut status));
    status
}

#[test]
fn a_capture_becomes_a_graph() {
    holds("a_capture_becomes_a_graph", &[], |run| {
        open(0);
        let (first, second, data, back) = (stream(false), stream(false), device(BYTES), pinned(BYTES));
        let (fork, join) = (event(), event());
        ok!(cuStreamBeginCapture_v2(first, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL));
        fill(data, 7, BYTES, first);
        ok!(cuEventRecord(fork, first));
        ok!(cuStreamWaitEvent(second, fork, 0));
        assert_eq!(status(second), Status::CU_STREAM_CAPTURE_STATUS_ACTIVE);
        copy(back as u64, data, BYTES, second);
        ok!(cuEventRecord(join, second));
        ok!(cuStreamWaitEvent(first, join, 0));
        assert_eq!(run.simulator.live("captures"), 2);
        let (mut graph, mut executable) = (null_mut(), null_mut());
        ok!(cuStreamEndCapture(first, &mut graph));
        assert_eq!(status(second), Status::CU_STREAM_CAPTURE_STATUS_NONE);
        assert_eq!(read(back), 0xCD, "nothing ran");
        ok!(cuGraphInstantiateWithFlags(&mut executable, graph, 0));
        ok!(cuGraphDestroy(graph));
        for _ in 0..2 {
            ok!(cuGraphLaunch(executable, first));
            finish(first);
            assert_eq!(read(back), 7);
        }
        refused!(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(join));
        ok!(cuGraphExecDestroy(executable));
        assert_eq!(run.simulator.live("graphs"), 0);
    });
}

/// Begins a capture on a stream, breaks it, and ends it.
fn broken(mode: Mode, expected: sys::CUresult, with: impl FnOnce(sys::CUstream)) {
    let (first, mut graph) = (stream(true), null_mut());
    ok!(cuStreamBeginCapture_v2(first, mode));
    with(first);
    assert_eq!(support::call!(cuStreamEndCapture(first, &mut graph)), expected);
    assert_eq!(graph.is_null(), expected != sys::CUresult::CUDA_SUCCESS);
    assert_eq!(status(first), Status::CU_STREAM_CAPTURE_STATUS_NONE);
}

#[test]
fn captures_are_broken_by_what_they_cannot_hold() {
    use sys::CUresult::{
        self, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED as INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_UNJOINED as UNJOINED,
    };
    holds("captures_are_broken_by_what_they_cannot_hold", &[], |run| {
        open(0);
        let (data, global, ordinary) = (device(BYTES), Mode::CU_STREAM_CAPTURE_MODE_GLOBAL, event());
        let relaxed = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;
        ok!(cuEventRecord(ordinary, stream(false)));
        broken(global, INVALIDATED, |first| {
            refused!(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(first, ordinary, 0));
            assert_eq!(status(first), Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED);
            refused!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuMemsetD8Async(data, 0, 1, first));
        });
        broken(global, INVALIDATED, |_| refused!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuEventQuery(ordinary)));
        broken(global, INVALIDATED, |first| {
            refused!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(first));
        });
        broken(global, INVALIDATED, |_| {
            refused!(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemsetD8Async(data, 0, 1, null_mut()));
        });
        broken(global, CUresult::CUDA_SUCCESS, |_| {
            let mut status = Status::CU_STREAM_CAPTURE_STATUS_NONE;
            refused!(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamIsCapturing(null_mut(), &mut status));
        });
        broken(global, INVALIDATED, |_| {
            refused!(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuEventRecord(ordinary, null_mut()));
        });
        broken(global, INVALIDATED, |_| {
            let mut none = 0;
            refused!(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuMemAllocAsync(&mut none, 1, null_mut()));
        });
        // Neither a captured event nor a context with a captured stream can be asked or waited for, whatever the mode.
        broken(relaxed, INVALIDATED, |first| {
            let inner = event();
            ok!(cuEventRecord(inner, first));
            refused!(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(inner));
            assert_eq!(status(first), Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED);
        });
        broken(relaxed, INVALIDATED, |first| {
            let inner = event();
            ok!(cuEventRecord(inner, first));
            refused!(CUDA_ERROR_CAPTURED_EVENT, cuEventSynchronize(inner));
        });
        broken(relaxed, INVALIDATED, |_| refused!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuCtxSynchronize()));
        broken(relaxed, CUresult::CUDA_SUCCESS, |_| {
            // Other captures than that of the event, and the captures of other contexts, go on.
            let (second, inner, mut graph) = (stream(false), event(), null_mut());
            ok!(cuStreamBeginCapture_v2(second, relaxed));
            ok!(cuEventRecord(inner, second));
            refused!(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(inner));
            refused!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(second, &mut graph));
            refused!(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(inner));
            let context = current();
            open(1);
            ok!(cuCtxSynchronize());
            enter(context as usize);
        });
        // Neither the streams nor the events of a broken capture can be used until it ends, and no other stream joins it.
        broken(relaxed, INVALIDATED, |first| {
            let (second, inner) = (stream(false), event());
            ok!(cuEventRecord(inner, first));
            refused!(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(first, ordinary, 0));
            for event in [inner, ordinary, event()] {
                refused!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamWaitEvent(first, event, 0));
            }
            refused!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuEventRecord(ordinary, first));
            refused!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamWaitEvent(second, inner, 0));
            assert_eq!(status(second), Status::CU_STREAM_CAPTURE_STATUS_NONE);
            ok!(cuStreamQuery(second));
            ok!(cuStreamBeginCapture_v2(second, relaxed));
            refused!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamWaitEvent(second, inner, 0));
            let mut graph = null_mut();
            refused!(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(second, &mut graph));
        });
        broken(global, UNJOINED, |first| {
            let (second, fork) = (stream(false), event());
            ok!(cuEventRecord(fork, first));
            ok!(cuStreamWaitEvent(second, fork, 0));
            fill(data, 0, 1, second);
        });
        // What a captured event waits for is not there once the capture is over.
        let (first, inner, mut graph) = (stream(false), event(), null_mut());
        ok!(cuStreamBeginCapture_v2(first, global));
        ok!(cuEventRecord(inner, first));
        ok!(cuStreamEndCapture(first, &mut graph));
        refused!(CUDA_ERROR_CAPTURED_EVENT, cuStreamWaitEvent(first, inner, 0));
        refused!(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2(null_mut(), global));
        assert_eq!(run.simulator.live("device"), 1);
    });
}

#[test]
fn modes_say_whose_calls_break_a_capture() {
    use sys::CUresult::{CUDA_ERROR_STREAM_CAPTURE_INVALIDATED as INVALIDATED, CUDA_SUCCESS as SUCCESS};
    let (global, thread_local) = (Mode::CU_STREAM_CAPTURE_MODE_GLOBAL, Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    let relaxed = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;
    holds("modes_say_whose_calls_break_a_capture", &[], |_run| {
        let context = open(0) as usize;
        let query = |mode: Mode| {
            let of_thread = event();
            assert_eq!(exchange(mode), global);
            let answer = support::call!(cuEventQuery(of_thread));
            assert_eq!(exchange(global), mode);
            answer == SUCCESS
        };
        let elsewhere = |mode: Mode| {
            std::thread::scope(|threads| {
                let asked = threads.spawn(|| {
                    enter(context);
                    query(mode)
                });
                asked.join().unwrap()
            })
        };
        // A capture, the mode of a thread, and whether a query there breaks it: in the thread of the capture, and in another.
        let cases = [
            (global, global, true, true),
            (global, thread_local, true, false),
            (global, relaxed, false, false),
            (thread_local, global, true, false),
            (thread_local, relaxed, false, false),
            (relaxed, global, false, false),
        ];
        for (capture, mode, here, there) in cases {
            for (breaks, is_here) in [(here, true), (there, false)] {
                broken(capture, if breaks { INVALIDATED } else { SUCCESS }, |_| {
                    let passed = if is_here { query(mode) } else { elsewhere(mode) };
                    assert_eq!(passed, !breaks, "{capture:?} {mode:?} {is_here}");
                });
            }
        }
    });
}

#[test]
fn a_wait_on_the_host_is_counted_where_it_happens() {
    with("a_wait_on_the_host_is_counted_where_it_happens", &[], &[(false, None)], |run| {
        let waits = |expected: u64, of: &str, program: &dyn Fn()| {
            let before = run.simulator.host_waits();
            program();
            assert_eq!(run.simulator.host_waits() - before, expected, "{of}");
        };
        open(0);
        let (first, data, other, staging, done) = (stream(false), device(BYTES), device(BYTES), pinned(BYTES), event());
        let mut ordinary = vec![0_u8; BYTES];
        let pointer = ordinary.as_mut_ptr();
        waits(0, "work that is only queued", &|| {
            let again = device_in(first, BYTES);
            copy(data, staging as u64, BYTES, first);
            copy(again, data, BYTES, first);
            ok!(cuMemFreeAsync(again, first));
            ok!(cuEventRecord(done, first));
            ok!(cuStreamWaitEvent(stream(false), done, 0));
            let _ = support::call!(cuEventQuery(done));
        });
        waits(1, "cuStreamSynchronize", &|| finish(first));
        waits(1, "cuEventSynchronize", &|| ok!(cuEventSynchronize(done)));
        waits(1, "cuCtxSynchronize", &|| ok!(cuCtxSynchronize()));
        waits(1, "cuMemFree", &|| ok!(cuMemFree_v2(device(1))));
        waits(1, "cuMemFreeHost", &|| ok!(cuMemFreeHost(pinned(1).cast())));
        waits(0, "cuMemHostRegister", &|| ok!(cuMemHostRegister_v2(pointer.cast(), BYTES, 0)));
        waits(1, "cuMemHostUnregister", &|| ok!(cuMemHostUnregister(pointer.cast())));
        waits(1, "a pageable source", &|| ok!(cuMemcpyHtoDAsync_v2(data, pointer.cast(), BYTES, first)));
        waits(1, "a pageable destination", &|| ok!(cuMemcpyDtoHAsync_v2(pointer.cast(), data, BYTES, first)));
        waits(1, "cuMemcpyHtoD", &|| ok!(cuMemcpyHtoD_v2(other, staging.cast(), BYTES)));
        waits(1, "cuMemsetD8", &|| ok!(cuMemsetD8_v2(other, 0, BYTES)));
        waits(1, "cuModuleLoadData", &|| {
            let mut module = null_mut();
            ok!(cuModuleLoadData(&mut module, c".version 8.0\n.target sm_70\n".as_ptr().cast()));
        });
    });
}
