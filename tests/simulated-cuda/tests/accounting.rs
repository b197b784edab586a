//! What is counted: leaks, calls, failures that are asked for; and the driver's own life in a process.

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

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{self, CUresult};
use support::{call, copy, device, device_in, event, fill, finish, holds, logged, ok, open, pinned, refused, stream};

const BYTES: usize = 4096;
const SIGABRT: i32 = 6;

#[test]
fn what_is_left_at_exit_is_a_leak() {
    let lines = logged("what_is_left_at_exit_is_a_leak", |run| {
        open(0);
        let (first, data, staging, done, mut module) =
            (stream(false), device(BYTES), pinned(BYTES), event(), null_mut());
        let in_order = device_in(first, BYTES);
        ok!(cuModuleLoadData(&mut module, c".version 8.0\n.target sm_70\n".as_ptr().cast()));
        if !run.fault {
            ok!(cuMemFreeAsync(in_order, first));
            ok!(cuStreamDestroy_v2(first));
            ok!(cuMemFree_v2(data));
            ok!(cuMemFreeHost(staging.cast()));
            ok!(cuEventDestroy_v2(done));
            ok!(cuModuleUnload(module));
        }
    });
    for (schedule, fault, log) in lines {
        let leaks: Vec<&str> = log.lines().filter(|line| line.starts_with("leak")).collect();
        let all = ["leak: device 2", "leak: pinned 1", "leak: streams 1", "leak: events 1", "leak: modules 1"];
        assert_eq!(leaks, if fault { &all[..] } else { &[] }, "{schedule}: {log}");
    }
}

#[test]
fn waits_are_logged_by_name() {
    for (schedule, _, log) in logged("waits_are_logged_by_name", |_run| {
        open(0);
        finish(stream(false));
        ok!(cuMemFree_v2(device(1)));
    }) {
        let waits: Vec<&str> = log.lines().filter(|line| line.starts_with("wait")).collect();
        assert_eq!(waits, ["wait: explicit cuStreamSynchronize", "wait: implicit cuMemFree_v2"], "{schedule}");
    }
}

#[test]
fn the_nth_call_fails_and_no_other() {
    holds("the_nth_call_fails_and_no_other", &[("FAIL", "cuMemAlloc_v2:2:2,cuEventCreate:1:999")], |run| {
        open(0);
        let (mut data, mut none) = (0, null_mut());
        ok!(cuMemAlloc_v2(&mut data, 1));
        refused!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&mut data, 1));
        ok!(cuMemAlloc_v2(&mut data, 1));
        refused!(CUDA_ERROR_UNKNOWN, cuEventCreate(&mut none, 0));
        assert_eq!((run.simulator.live("device"), run.simulator.live("events")), (2, 0));
        assert_eq!((run.simulator.calls("cuMemAlloc_v2"), run.simulator.calls("cuMemFree_v2")), (3, 0));
        run.simulator.fail("cuMemFree_v2", 1, 1);
        refused!(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(data));
        ok!(cuMemFree_v2(data));
    });
}

#[test]
fn a_sticky_error_loses_the_context() {
    holds("a_sticky_error_loses_the_context", &[], |run| {
        open(1);
        let other = stream(false);
        open(0);
        let first = stream(false);
        run.simulator.fail("cuStreamSynchronize", 1, 700);
        refused!(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(first));
        refused!(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(first));
        refused!(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamDestroy_v2(first));
        let (mut context, mut devices) = (null_mut(), 0);
        ok!(cuDeviceGetCount(&mut devices));
        ok!(cuCtxPopCurrent_v2(&mut context));
        open(1);
        finish(other);
    });
}

#[test]
fn a_program_may_be_failed_at_each_of_its_calls() {
    holds("a_program_may_be_failed_at_each_of_its_calls", &[], |run| {
        // Frees what it got, whatever fails; a block whose free failed stays.
        let program = || -> Result<(), CUresult> {
            let (mut first, mut data) = (null_mut(), 0);
            call!(cuStreamCreate(&mut first, 1)).result().map_err(|error| error.0)?;
            let code = call!(cuMemAllocAsync(&mut data, BYTES, first));
            if code == CUresult::CUDA_SUCCESS {
                call!(cuMemFreeAsync(data, first)).result().map_err(|error| error.0)?;
            }
            call!(cuStreamDestroy_v2(first)).result().map_err(|error| error.0)?;
            code.result().map_err(|error| error.0)
        };
        open(0);
        let mut failed = 0;
        for nth in 1.. {
            let before = run.simulator.calls("*");
            run.simulator.fail("*", nth, 2);
            let outcome = program();
            let made = run.simulator.calls("*") - before;
            if made < nth {
                assert!(outcome.is_ok());
                break;
            }
            assert_eq!(outcome, Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
            failed += 1;
        }
        assert_eq!(failed, 4);
        assert_eq!((run.simulator.live("device"), run.simulator.live("streams")), (1, 2));
    });
}

#[test]
fn a_fork_has_no_driver() {
    unsafe extern "C" {
        fn fork() -> i32;
        fn _exit(status: i32) -> !;
        fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
    }
    holds("a_fork_has_no_driver", &[], |_run| {
        open(0);
        // SAFETY: the child only calls the driver, which takes no lock there, and ends.
        let child = unsafe { fork() };
        if child == 0 {
            let mut count = 0;
            let codes = [call!(cuDeviceGetCount(&mut count)), call!(cuInit(0)), call!(cuCtxSynchronize())];
            let right = codes.iter().all(|code| *code == CUresult::CUDA_ERROR_NOT_INITIALIZED);
            // SAFETY: ends the child without what its parent has to do.
            unsafe { _exit(i32::from(!right)) };
        }
        let mut status = -1;
        // SAFETY: a child of this process, and room for its status.
        assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    });
}

#[test]
fn a_reset_forgets_everything() {
    let logs = logged("a_reset_forgets_everything", |run| {
        open(0);
        let (first, data, staging) = (stream(false), device(BYTES), pinned(BYTES));
        fill(data, 7, BYTES, first);
        copy(staging as u64, data, BYTES, stream(false));
        finish(first);
        assert_eq!(run.simulator.races(), 1);
        assert!(run.simulator.report().contains("race: "));
        run.simulator.reset();
        assert_eq!((run.simulator.races(), run.simulator.live("pinned"), run.simulator.host_waits()), (0, 0, 0));
        let mut count = 0;
        refused!(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount(&mut count));
        open(0);
        finish(stream(true));
    });
    for (schedule, _, log) in logs {
        // What is in the log stays there.
        let count = |start: &str| log.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!((count("race"), count("leak")), (1, 1), "{schedule}: {log}");
    }
}

#[test]
fn the_safe_layer_of_the_bindings_runs_on_it() {
    holds("the_safe_layer_of_the_bindings_runs_on_it", &[], |run| {
        let context = CudaContext::new(0).unwrap();
        assert_eq!((context.compute_capability().unwrap(), context.has_async_alloc()), ((9, 0), true));
        let (first, second) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        let values: Vec<u32> = (0..1000).collect();
        let data = first.clone_htod(&values).unwrap();
        assert_eq!(second.clone_dtoh(&data).unwrap(), values);
        drop(data);
        context.synchronize().unwrap();
        assert_eq!(run.simulator.live("device"), 0);
    });
}

#[test]
fn a_function_that_there_is_not_cannot_fail() {
    support::killed("a_function_that_there_is_not_cannot_fail", SIGABRT, || {
        simulated_cuda::api::Simulator::load().fail("cuMemAlloc", 1, 2);
    });
}

/// Asks the driver when the process exits, after the driver has.
extern "C" fn ask_at_exit() {
    unsafe extern "C" {
        fn _exit(status: i32) -> !;
    }
    let mut count = 0;
    let right = call!(cuDeviceGetCount(&mut count)) == CUresult::CUDA_ERROR_DEINITIALIZED;
    // SAFETY: ends the process, whose exit has begun.
    unsafe { _exit(if right { 0 } else { 3 }) };
}

#[test]
fn the_driver_goes_before_the_process() {
    unsafe extern "C" {
        fn atexit(function: extern "C" fn()) -> i32;
    }
    holds("the_driver_goes_before_the_process", &[], |_run| {
        // What was arranged first is done last.
        // SAFETY: a function of this program.
        assert_eq!(unsafe { atexit(ask_at_exit) }, 0);
        open(0);
    });
}

#[test]
fn errors_have_names() {
    holds("errors_have_names", &[], |_run| {
        let mut name = std::ptr::null();
        ok!(cuGetErrorName(CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION, &mut name));
        // SAFETY: the driver's own text.
        let text = unsafe { std::ffi::CStr::from_ptr(name) };
        assert_eq!(text, c"CUDA_ERROR_STREAM_CAPTURE_ISOLATION");
        ok!(cuGetErrorString(CUresult::CUDA_SUCCESS, &mut name));
        // SAFETY: the driver's own text.
        assert_eq!(unsafe { std::ffi::CStr::from_ptr(name) }, c"no error");
    });
}

#[test]
fn functions_are_found_by_name() {
    holds("functions_are_found_by_name", &[], |_run| {
        let (mut function, mut found) = (null_mut(), sys::CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS);
        ok!(cuGetProcAddress_v2(c"cuMemAlloc".as_ptr(), &mut function, 12000, 0, &mut found));
        assert!(!function.is_null());
        refused!(CUDA_ERROR_NOT_FOUND, cuGetProcAddress_v2(c"cuNothing".as_ptr(), &mut function, 12000, 0, &mut found));
        assert_eq!(found, sys::CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    });
}
