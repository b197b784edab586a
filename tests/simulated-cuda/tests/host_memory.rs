//! Host memory that streams use: page-locked, managed, registered and pageable.

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

use std::ffi::c_void;
use std::ptr::null_mut;

use cudarc::driver::sys::CUstream;
use support::{
    Run, copy, device, enter, fill, finish, holds, ok, open, pinned, proves, read, refused, stream, wait, write,
};

/// The largest page of any system that is tested.
const PAGE: usize = 64 << 10;
const BYTES: usize = 3 * PAGE;

#[test]
fn pinned_memory_is_read_after_its_copy() {
    proves("pinned_memory_is_read_after_its_copy", "race: host access", |run| {
        open(0);
        let (first, data, back) = (stream(false), device(BYTES), pinned(BYTES));
        fill(data, 7, BYTES, first);
        copy(back as u64, data, BYTES, first);
        if !run.fault {
            finish(first);
        }
        assert!(read(back.wrapping_add(5000)) == 7 || run.fault);
    });
}

#[test]
fn pinned_staging_is_reused_after_its_copy() {
    proves("pinned_staging_is_reused_after_its_copy", "race: host access", |run| {
        open(0);
        let (first, data, staging) = (stream(false), device(BYTES), pinned(BYTES));
        write(staging, 7);
        copy(data, staging as u64, BYTES, first);
        assert_eq!(read(staging), 7, "a copy out of it can be read beside");
        if !run.fault {
            finish(first);
        }
        write(staging, 8);
        finish(first);
    });
}

#[test]
fn pinned_memory_is_read_by_a_thread_that_waited() {
    proves("pinned_memory_is_read_by_a_thread_that_waited", "race: host access", |run| {
        open(0);
        let (first, data, back) = (stream(false), device(BYTES), pinned(BYTES));
        fill(data, 7, BYTES, first);
        copy(back as u64, data, BYTES, first);
        finish(first);
        assert_eq!(read(back), 7, "this thread has waited");
        run.simulator.hand_over_send(1);
        let back = back as usize;
        std::thread::scope(|threads| {
            threads.spawn(|| {
                if !run.fault {
                    run.simulator.hand_over_receive(1);
                }
                assert_eq!(read(back as *const u8), 7, "the wait hides the fault from the values");
            });
        });
    });
}

#[test]
fn each_thread_that_shares_a_block_has_to_know_of_the_copy() {
    proves("each_thread_that_shares_a_block_has_to_know_of_the_copy", "race: host access", |run| {
        const HALF: usize = 1 << 20;
        open(0);
        let (first, data, back) = (stream(false), device(2 * HALF), pinned(2 * HALF));
        copy(data, back as u64, 2 * HALF, first);
        finish(first);
        run.simulator.hand_over_send(1);
        // What this thread may touch is not open to the next one by that.
        write(back, 1);
        let address = back as usize + HALF;
        let simulator = &run.simulator;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                if !run.fault {
                    simulator.hand_over_receive(1);
                }
                write(address as *mut u8, 1);
            });
        });
    });
}

#[test]
fn only_the_bytes_of_the_copy_are_watched() {
    proves("only_the_bytes_of_the_copy_are_watched", "race: host access", |run| {
        open(0);
        let (first, data, staging) = (stream(false), device(BYTES), pinned(BYTES));
        copy(data, staging as u64, 100, first);
        let gate = run.simulator.gate(first as usize);
        // The page is the same, the bytes are not.
        write(staging.wrapping_add(if run.fault { 99 } else { 100 }), 7);
        write(staging.wrapping_add(2 * PAGE), 7);
        gate.open();
        finish(first);
    });
}

#[test]
fn one_instruction_may_touch_two_watched_blocks() {
    holds("one_instruction_may_touch_two_watched_blocks", &[], |_run| {
        open(0);
        let (first, data, from, to) = (stream(false), device(BYTES), pinned(BYTES), pinned(BYTES));
        fill(data, 7, BYTES, first);
        copy(from as u64, data, BYTES, first);
        copy(to as u64, data, 8, first);
        finish(first);
        // SAFETY: both blocks are that long.
        unsafe { std::ptr::copy_nonoverlapping(from, to, BYTES) };
        assert_eq!(read(to.wrapping_add(BYTES - 1)), 7);
    });
}

#[test]
fn managed_memory_is_read_after_its_fill() {
    proves("managed_memory_is_read_after_its_fill", "race: host access", |run| {
        open(0);
        let (first, mut data) = (stream(false), 0);
        ok!(cuMemAllocManaged(&mut data, BYTES, 1));
        fill(data, 7, BYTES, first);
        if !run.fault {
            finish(first);
        }
        assert!(read(data as *const u8) == 7 || run.fault);
        finish(first);
        ok!(cuMemFree_v2(data));
        assert_eq!(run.simulator.live("managed"), 0);
    });
}

#[test]
fn registered_memory_is_read_after_its_copy() {
    proves("registered_memory_is_read_after_its_copy", "race: host access", |run| {
        open(0);
        let (first, data) = (stream(false), device(BYTES));
        let mut owned = vec![0_u8; BYTES + PAGE];
        let pointer = owned.as_mut_ptr();
        ok!(cuMemHostRegister_v2(pointer.cast(), owned.len(), 0));
        fill(data, 7, BYTES, first);
        copy(pointer as u64 + PAGE as u64, data, BYTES, first);
        if !run.fault {
            finish(first);
        }
        // A page in the middle, which is the block's alone.
        assert!(read(pointer.wrapping_add(2 * PAGE)) == 7 || run.fault);
        finish(first);
        ok!(cuMemHostUnregister(pointer.cast()));
        assert_eq!(owned[BYTES], 7);
    });
}

#[test]
fn the_ends_of_registered_memory_are_checked_where_the_test_says() {
    proves("the_ends_of_registered_memory_are_checked_where_the_test_says", "race: host access", |run| {
        open(0);
        let (first, data) = (stream(false), device(BYTES));
        let mut owned = vec![0_u8; 100];
        let pointer = owned.as_mut_ptr();
        ok!(cuMemHostRegister_v2(pointer.cast(), owned.len(), 0));
        copy(pointer as u64, data, 100, first);
        if !run.fault {
            finish(first);
        }
        run.simulator.host_access(pointer as u64, 1, false);
        finish(first);
        ok!(cuMemHostUnregister(pointer.cast()));
    });
}

/// Reads the byte that it is given, as a host function.
unsafe extern "C" fn read_byte(data: *mut c_void) {
    let value = read(data.cast());
    assert!(value == 7 || value == 0xCD, "{value}");
}

#[test]
fn a_host_function_reads_what_its_stream_waited_for() {
    proves("a_host_function_reads_what_its_stream_waited_for", "race: host function", |run| {
        open(0);
        let (first, second, data, back) = (stream(false), stream(false), device(BYTES), pinned(BYTES));
        fill(data, 7, BYTES, first);
        copy(back as u64, data, BYTES, first);
        if !run.fault {
            wait(second, first);
        }
        ok!(cuLaunchHostFunc(second, Some(read_byte), back.cast()));
        finish(second);
        finish(first);
    });
}

#[test]
fn freed_pinned_memory_is_not_in_use_by_another_device() {
    proves("freed_pinned_memory_is_not_in_use_by_another_device", "race: cuMemFreeHost", |run| {
        let context = open(0);
        let staging = pinned(BYTES);
        open(1);
        let (first, data) = (stream(false), device(BYTES));
        copy(data, staging as u64, BYTES, first);
        run.simulator.run_all();
        if !run.fault {
            finish(first);
        }
        // It waits for the context where the memory was allocated, and for no other.
        enter(context as usize);
        ok!(cuMemFreeHost(staging.cast()));
    });
}

/// Overwrites the source of a copy that was queued, behind a gate if no schedule may run it before that.
fn pageable_copy(behind_gate: Option<&Run>, expected: u8) {
    open(0);
    let (first, data, back) = (stream(false), device(BYTES), pinned(BYTES));
    let gate = behind_gate.map(|run| run.simulator.gate(first as usize));
    let mut source = vec![7_u8; BYTES];
    ok!(cuMemcpyHtoDAsync_v2(data, source.as_ptr().cast(), BYTES, first));
    source.fill(8);
    if let Some(gate) = gate {
        gate.open();
    }
    copy(back as u64, data, BYTES, first);
    finish(first);
    assert_eq!(read(back), expected);
}

#[test]
fn a_pageable_source_is_read_at_once() {
    holds("a_pageable_source_is_read_at_once", &[("PAGEABLE", "immediate")], |run| {
        pageable_copy(None, 7);
        assert_eq!(run.simulator.host_waits(), 2, "the copy may wait, and the program waits");
    });
}

#[test]
fn a_pageable_source_is_read_late() {
    holds("a_pageable_source_is_read_late", &[("PAGEABLE", "deferred")], |run| {
        pageable_copy(Some(run), 8);
    });
}

#[test]
fn a_copy_to_pageable_memory_is_over_when_it_returns() {
    holds("a_copy_to_pageable_memory_is_over_when_it_returns", &[], |run| {
        open(0);
        let (first, data) = (stream(false), device(BYTES));
        let mut back = vec![0_u8; BYTES];
        fill(data, 7, BYTES, first);
        ok!(cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), data, BYTES, first));
        assert!(back.iter().all(|value| *value == 7));
        assert_eq!(run.simulator.host_waits(), 1);
    });
}

#[test]
fn registering_twice_and_unregistering_nothing_is_refused() {
    holds("registering_twice_and_unregistering_nothing_is_refused", &[], |run| {
        open(0);
        let mut owned = vec![0_u8; 100];
        let pointer: *mut c_void = owned.as_mut_ptr().cast();
        let mut seen = 0;
        refused!(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(pointer));
        refused!(CUDA_ERROR_INVALID_VALUE, cuMemHostGetDevicePointer_v2(&mut seen, pointer, 0));
        ok!(cuMemHostRegister_v2(pointer, 100, 0));
        ok!(cuMemHostGetDevicePointer_v2(&mut seen, pointer, 0));
        assert_eq!(seen, pointer as u64);
        refused!(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(pointer.wrapping_byte_add(50), 10, 0));
        assert_eq!(run.simulator.live("registered"), 1);
        ok!(cuMemHostUnregister(pointer));
        refused!(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(pointer));
        assert_eq!(run.simulator.live("registered"), 0);
        finish(null_mut::<c_void>() as CUstream);
    });
}
