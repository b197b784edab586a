//! Kernels: what they touch is known only when they run, and is checked then.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "calls a C library, and stands for device code")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a test fails by a panic, and its numbers are small"
)]

mod support;

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use cudarc::driver::sys::{CUfunction, CUmodule, CUstream};
use simulated_cuda::KernelContext;
use support::{
    Run, copy, device, device_in, fill, finish, holds, ok, open, pinned, proves, read, refused, stream, wait,
};

const BYTES: usize = 4096;
const PTX: &std::ffi::CStr = c".version 8.0\n.target sm_70\n.address_size 64\n\
    .visible .entry add(.param .u64 to, .param .u64 from, .param .u64 count, .param .u8 value) {}\n\
    .visible .entry unknown() {}\n";

/// Adds a number to each of some bytes.
unsafe extern "C" fn add(context: *mut KernelContext, parameters: *const *const c_void) -> u32 {
    // SAFETY: the driver passes a context that lives as long as this call.
    let context = unsafe { &mut *context };
    // SAFETY: the test registered four parameters.
    let [to, from, count, value] = unsafe { parameters.cast::<[*const c_void; 4]>().read() };
    // SAFETY: the first parameter of the kernel, an address.
    let to = unsafe { to.cast::<u64>().read() };
    // SAFETY: the second one, an address.
    let from = unsafe { from.cast::<u64>().read() };
    // SAFETY: the third one, a count.
    let count = unsafe { count.cast::<u64>().read() } as usize;
    // SAFETY: the fourth one, a byte.
    let value = unsafe { value.cast::<u8>().read() };
    let (source, target) = (context.read(from, count), context.write(to, count));
    if source.is_null() || target.is_null() {
        return 0;
    }
    for index in 0..count {
        let sum = read(source.wrapping_add(index)).wrapping_add(value);
        support::write(target.wrapping_add(index), sum);
    }
    0
}

unsafe extern "C" fn unknown(_: *mut KernelContext, _: *const *const c_void) -> u32 {
    719
}

fn load(run: &Run) -> (CUmodule, CUfunction) {
    run.simulator.register_kernel("add", add, &[8, 8, 8, 1]);
    let (mut module, mut function) = (null_mut(), null_mut());
    ok!(cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
    ok!(cuModuleGetFunction(&mut function, module, c"add".as_ptr()));
    (module, function)
}

fn launch(function: CUfunction, to: u64, from: u64, count: usize, value: u8, stream: CUstream) {
    let (mut to, mut from, mut count, mut value) = (to, from, count as u64, value);
    let mut parameters: [*mut c_void; 4] =
        [(&raw mut to).cast(), (&raw mut from).cast(), (&raw mut count).cast(), (&raw mut value).cast()];
    ok!(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters.as_mut_ptr(), null_mut()));
    // The driver has copied the parameters.
    (to, from, count, value) = (0, 0, 0, 0);
    assert_eq!((to, from, count, value), (0, 0, 0, 0));
}

#[test]
fn a_kernel_reads_what_its_stream_waited_for() {
    proves("a_kernel_reads_what_its_stream_waited_for", "race: ", |run| {
        open(0);
        let (_, function) = load(run);
        let (first, second, from, to, back) =
            (stream(false), stream(false), device(BYTES), device(BYTES), pinned(BYTES));
        fill(from, 7, BYTES, first);
        if !run.fault {
            wait(second, first);
        }
        launch(function, to, from, BYTES, 1, second);
        copy(back as u64, to, BYTES, second);
        finish(second);
        finish(first);
        assert!(run.fault || read(back) == 8);
    });
}

#[test]
fn a_copy_reads_what_a_kernel_wrote() {
    proves("a_copy_reads_what_a_kernel_wrote", "race: ", |run| {
        open(0);
        let (_, function) = load(run);
        let (first, second, data, back) = (stream(false), stream(false), device(BYTES), pinned(BYTES));
        fill(data, 7, BYTES, first);
        launch(function, data, data, BYTES, 1, first);
        wait(second, first);
        launch(function, data, data, BYTES, 1, first);
        if !run.fault {
            wait(second, first);
        }
        copy(back as u64, data, BYTES, second);
        finish(second);
        finish(first);
        assert!(run.fault || read(back) == 9);
    });
}

#[test]
fn two_kernels_that_share_no_bytes_need_no_order() {
    proves("two_kernels_that_share_no_bytes_need_no_order", "race: kernel", |run| {
        open(0);
        let (_, function) = load(run);
        let (first, second, data) = (stream(false), stream(false), device(BYTES));
        fill(data, 7, BYTES, first);
        wait(second, first);
        let half = BYTES / 2;
        launch(function, data, data, half, 1, first);
        launch(function, data + half as u64, data + half as u64 - u64::from(run.fault), half, 1, second);
        finish(first);
        finish(second);
    });
}

#[test]
fn a_kernel_that_runs_late_used_the_block_before_its_free() {
    let name = "a_kernel_that_runs_late_used_the_block_before_its_free";
    // A race with the free, or a fault, where the memory is gone by then.
    let cases = &[(false, None), (true, Some("kernel #2 on non-blocking stream 4"))];
    support::with(name, &[("REUSE", "1")], cases, |run| {
        open(0);
        let (_, function) = load(run);
        let streams = [stream(false), stream(false), stream(false)];
        let reader = stream(false);
        let data = device_in(streams[0], BYTES);
        for (turn, owner) in streams.into_iter().enumerate() {
            // The pool gives the block to another stream, which the driver has wait for the free.
            assert!(turn == 0 || device_in(owner, BYTES) == data);
            fill(data, 7, BYTES, owner);
            if run.fault && turn == 1 {
                // Ordered behind the block's allocation, and by nothing before its free.
                wait(reader, owner);
                launch(function, data, data, BYTES, 1, reader);
            }
            launch(function, data, data, BYTES, 1, owner);
            ok!(cuMemFreeAsync(data, owner));
        }
        for stream in streams {
            let _ = support::call!(cuStreamSynchronize(stream));
        }
    });
}

#[test]
fn what_is_still_queued_at_exit_is_checked() {
    proves("what_is_still_queued_at_exit_is_checked", "race: kernel", |run| {
        open(0);
        let (_, function) = load(run);
        let (first, second, data) = (stream(false), stream(false), device(BYTES));
        launch(function, data, data, BYTES, 1, first);
        if !run.fault {
            wait(second, first);
        }
        launch(function, data, data, BYTES, 1, second);
    });
}

/// Counts how often it ran.
unsafe extern "C" fn count(_: *mut KernelContext, _: *const *const c_void) -> u32 {
    RUN.fetch_add(1, Ordering::SeqCst);
    0
}

static RUN: AtomicU32 = AtomicU32::new(0);

#[test]
fn kernels_run_when_the_schedule_says() {
    holds("kernels_run_when_the_schedule_says", &[], |run| {
        open(0);
        run.simulator.register_kernel("unknown", count, &[]);
        let (module, mut function) = (load(run).0, null_mut());
        ok!(cuModuleGetFunction(&mut function, module, c"unknown".as_ptr()));
        let (first, list) = (stream(false), null_mut());
        let mut early = 0;
        for queued in 1..=64 {
            ok!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, first, list, list));
            early += u32::from(RUN.load(Ordering::SeqCst) == queued);
        }
        match std::env::var("SIMULATED_CUDA_SCHEDULE").unwrap().as_str() {
            "lazy" => assert_eq!(RUN.load(Ordering::SeqCst), 0),
            "eager" | "clock" => assert_eq!(early, 64),
            _ => assert!((1..64).contains(&early), "{early} of 64 ran at once"),
        }
        finish(first);
        assert_eq!(RUN.load(Ordering::SeqCst), 64);
    });
}

#[test]
fn the_host_reads_pinned_memory_after_the_kernel() {
    proves("the_host_reads_pinned_memory_after_the_kernel", "race: ", |run| {
        open(0);
        let (_, function) = load(run);
        let (first, back) = (stream(false), pinned(BYTES));
        fill(back as u64, 7, BYTES, first);
        finish(first);
        launch(function, back as u64, back as u64, BYTES, 1, first);
        if !run.fault {
            finish(first);
        }
        assert!(run.fault || read(back) == 8);
        read(back);
        finish(first);
    });
}

#[test]
fn memory_outlives_the_kernel_that_uses_it() {
    proves("memory_outlives_the_kernel_that_uses_it", "fault: kernel", |run| {
        open(0);
        let (_, function) = load(run);
        let first = stream(false);
        let data = device_in(first, BYTES);
        if run.fault {
            ok!(cuMemFreeAsync(data, first));
        }
        launch(function, data, data, BYTES, 1, first);
        if run.fault {
            refused!(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(first));
            let mut none = 0;
            refused!(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&mut none, 1));
        } else {
            ok!(cuMemFreeAsync(data, first));
            finish(first);
        }
    });
}

#[test]
fn a_kernel_stays_within_its_blocks() {
    proves("a_kernel_stays_within_its_blocks", "fault: kernel", |run| {
        open(0);
        let (_, function) = load(run);
        let (first, data) = (stream(false), device(BYTES));
        launch(function, data, data, BYTES + usize::from(run.fault), 1, first);
        let _ = support::call!(cuStreamSynchronize(first));
    });
}

/// Writes one byte more than it asked for.
unsafe extern "C" fn overrun(context: *mut KernelContext, parameters: *const *const c_void) -> u32 {
    // SAFETY: the driver passes a context that lives as long as this call.
    let context = unsafe { &mut *context };
    // SAFETY: the test registered one parameter.
    let parameter = unsafe { parameters.read() };
    // SAFETY: of this type.
    let to = unsafe { parameter.cast::<u64>().read() };
    support::write(context.write(to, BYTES).wrapping_add(BYTES), 1);
    0
}

#[test]
fn the_red_zone_shows_an_overrun() {
    proves("the_red_zone_shows_an_overrun", "out of bounds: ", |run| {
        open(0);
        run.simulator.register_kernel("add", if run.fault { overrun } else { add }, &[8, 8, 8, 1]);
        let (mut module, mut function) = (null_mut(), null_mut());
        ok!(cuModuleLoadData(&mut module, PTX.as_ptr().cast()));
        ok!(cuModuleGetFunction(&mut function, module, c"add".as_ptr()));
        let (first, data) = (stream(false), device(BYTES));
        launch(function, data, data, BYTES, 1, first);
        finish(first);
        ok!(cuMemFree_v2(data));
    });
}

#[test]
fn another_devices_memory_is_reached_by_peers() {
    proves("another_devices_memory_is_reached_by_peers", "fault: kernel", |run| {
        let (owner, mut can) = (open(0), 0);
        let data = device(BYTES);
        open(1);
        let (_, function) = load(run);
        let first = stream(false);
        ok!(cuDeviceCanAccessPeer(&mut can, 1, 0));
        assert_eq!(can, 1);
        if !run.fault {
            ok!(cuCtxEnablePeerAccess(owner, 0));
            refused!(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess(owner, 0));
        }
        launch(function, data, data, BYTES, 1, first);
        let _ = support::call!(cuStreamSynchronize(first));
    });
}

#[test]
fn modules_hold_what_their_text_names() {
    holds("modules_hold_what_their_text_names", &[], |run| {
        open(0);
        let (module, function) = load(run);
        let mut other = null_mut();
        refused!(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&mut other, module, c"ad".as_ptr()));
        refused!(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&mut other, module, c"unknown".as_ptr()));
        run.simulator.register_kernel("unregistered", unknown, &[]);
        refused!(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&mut other, module, c"unregistered".as_ptr()));
        let mut none = null_mut();
        refused!(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&mut none, c"__global__ void add() {}".as_ptr().cast()));
        assert_eq!(run.simulator.live("modules"), 1);
        ok!(cuModuleUnload(module));
        assert_eq!(run.simulator.live("modules"), 0);
        let list = null_mut();
        refused!(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, null_mut(), list, list));
    });
}

#[test]
fn launches_are_checked() {
    holds("launches_are_checked", &[], |run| {
        open(1);
        let elsewhere = stream(false);
        open(0);
        let (_, function) = load(run);
        let (first, list) = (stream(false), null_mut());
        refused!(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function, 0, 1, 1, 1, 1, 1, 0, first, list, list));
        refused!(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function, 1, 1, 1, 1025, 1, 1, 0, first, list, list));
        refused!(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, first, list, list));
        refused!(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, elsewhere, list, list));
        let mut blocks = 0;
        ok!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, function, 256, 0));
        assert_eq!(blocks, 8);
    });
}
