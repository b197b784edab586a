//! Device memory: its life, its bounds, and what pointers say.

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

use cudarc::driver::sys;
use support::{
    copy, device, device_in, event, fill, finish, holds, ok, open, pinned, proves, read, refused, stream, wait,
};

const BYTES: usize = 4096;
const SIGSEGV: i32 = 11;

#[test]
fn memory_is_freed_after_its_last_reader() {
    proves("memory_is_freed_after_its_last_reader", "race: ", |run| {
        open(0);
        let (owner, reader, back) = (stream(false), stream(false), pinned(BYTES));
        let data = device_in(owner, BYTES);
        fill(data, 7, BYTES, owner);
        wait(reader, owner);
        copy(back as u64, data, BYTES, reader);
        if !run.fault {
            wait(owner, reader);
        }
        ok!(cuMemFreeAsync(data, owner));
        finish(owner);
        // With its fault the reader may find the memory gone, which loses the context.
        let _ = support::call!(cuStreamSynchronize(reader));
        assert!(run.fault || read(back) == 7);
    });
}

#[test]
fn memory_is_used_after_its_allocation() {
    proves("memory_is_used_after_its_allocation", "race: ", |run| {
        open(0);
        let (owner, user) = (stream(false), stream(false));
        let data = device_in(owner, BYTES);
        if !run.fault {
            wait(user, owner);
        }
        fill(data, 7, BYTES, user);
        // With its fault the memory may not be there yet, which loses the context.
        let _ = support::call!(cuStreamSynchronize(user));
        let _ = support::call!(cuStreamSynchronize(owner));
    });
}

#[test]
fn memory_is_not_used_after_its_free() {
    proves("memory_is_not_used_after_its_free", "use after free: ", |run| {
        open(0);
        let owner = stream(false);
        let data = device_in(owner, BYTES);
        if !run.fault {
            fill(data, 7, BYTES, owner);
        }
        ok!(cuMemFreeAsync(data, owner));
        if run.fault {
            fill(data, 7, BYTES, owner);
            let lost = support::call!(cuStreamSynchronize(owner));
            assert_eq!(lost, sys::CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
            refused!(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
        }
    });
}

#[test]
fn addresses_are_not_given_out_twice() {
    holds("addresses_are_not_given_out_twice", &[], |_run| {
        open(0);
        let owner = stream(false);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..50 {
            let (now, later) = (device(BYTES), device_in(owner, BYTES));
            assert!(seen.insert(now) && seen.insert(later));
            ok!(cuMemFree_v2(now));
            ok!(cuMemFreeAsync(later, owner));
        }
    });
}

#[test]
fn fresh_memory_is_poisoned() {
    holds("fresh_memory_is_poisoned", &[], |_run| {
        open(0);
        let owner = stream(false);
        let mut back = vec![0_u8; BYTES];
        for data in [device(BYTES), device_in(owner, BYTES)] {
            ok!(cuMemcpyDtoHAsync_v2(back.as_mut_ptr().cast(), data, BYTES, owner));
            assert!(back.iter().all(|byte| *byte == 0xCD));
        }
    });
}

#[test]
fn copies_out_of_bounds_are_refused() {
    holds("copies_out_of_bounds_are_refused", &[], |_run| {
        open(0);
        let (owner, data, other) = (stream(false), device(1000), device(1000));
        refused!(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoDAsync_v2(data, other + 1, 1000, owner));
        refused!(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoDAsync_v2(data + 1001, other, 1, owner));
        refused!(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(data, 0, 1001, owner));
        refused!(CUDA_ERROR_INVALID_VALUE, cuMemsetD32Async(data + 2, 0, 1, owner));
        refused!(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(data + 1));
        ok!(cuMemcpyDtoDAsync_v2(data, other, 1000, owner));
    });
}

#[test]
fn a_rectangle_is_copied_row_by_row() {
    proves("a_rectangle_is_copied_row_by_row", "race: ", |run| {
        open(0);
        let (first, second, data, back) = (stream(false), stream(false), device(8 * 64), pinned(8 * 16));
        for row in 0..8 {
            fill(data + row * 64, row as u8, 16, first);
        }
        // The bytes between the rows are not part of the copy.
        fill(data + if run.fault { 15 } else { 16 }, 9, 1, second);
        let copy = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            srcHost: std::ptr::null(),
            srcDevice: data,
            srcArray: null_mut(),
            srcPitch: 64,
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
            dstHost: back.cast(),
            dstDevice: 0,
            dstArray: null_mut(),
            dstPitch: 16,
            WidthInBytes: 16,
            Height: 8,
        };
        ok!(cuMemcpy2DAsync_v2(&copy, first));
        finish(first);
        finish(second);
        assert!(run.fault || (0..128).all(|index| read(back.wrapping_add(index)) == index as u8 / 16));
    });
}

#[test]
fn pointers_say_what_they_are() {
    use sys::CUpointer_attribute_enum::{
        CU_POINTER_ATTRIBUTE_CONTEXT as CONTEXT, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as ORDINAL,
        CU_POINTER_ATTRIBUTE_IS_MANAGED as MANAGED, CU_POINTER_ATTRIBUTE_MEMORY_TYPE as TYPE,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE as SIZE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR as START,
    };
    holds("pointers_say_what_they_are", &[], |_run| {
        let context = open(1);
        let owner = stream(false);
        let mut managed = 0;
        ok!(cuMemAllocManaged(&mut managed, BYTES, 1));
        let ordinary = [0_u8; 10];
        let context = context as usize;
        // Memory of a pool is of no context.
        let known = [
            (device(BYTES), context, 2, 0),
            (device_in(owner, BYTES), 0, 2, 0),
            (pinned(BYTES) as u64, context, 1, 0),
            (managed, context, 2, 1),
        ];
        let ask = |pointer: u64| {
            let (mut of, mut start, mut size) = (usize::MAX, u64::MAX, usize::MAX);
            let (mut kind, mut is_managed, mut ordinal) = (u32::MAX, u32::MAX, i32::MAX);
            let mut attributes = [CONTEXT, TYPE, MANAGED, ORDINAL, START, SIZE];
            let mut data: [*mut c_void; 6] = [
                (&raw mut of).cast(),
                (&raw mut kind).cast(),
                (&raw mut is_managed).cast(),
                (&raw mut ordinal).cast(),
                (&raw mut start).cast(),
                (&raw mut size).cast(),
            ];
            ok!(cuPointerGetAttributes(6, attributes.as_mut_ptr(), data.as_mut_ptr(), pointer));
            (of, kind, is_managed, ordinal, start, size)
        };
        for (pointer, of, kind, is_managed) in known {
            assert_eq!(ask(pointer + 5), (of, kind, is_managed, 1, pointer, BYTES));
        }
        assert_eq!(ask(ordinary.as_ptr() as u64), (0, 0, 0, -2, 0, 0));
        let (mut kind, mut base, mut size) = (0_u32, 0, 0);
        let of_kind: *mut c_void = (&raw mut kind).cast();
        refused!(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(of_kind, TYPE, ordinary.as_ptr() as u64));
        refused!(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(of_kind, TYPE, known[0].0 + BYTES as u64));
        ok!(cuMemGetAddressRange_v2(&mut base, &mut size, known[0].0 + 9));
        assert_eq!((base, size), (known[0].0, BYTES));
        ok!(cuMemFree_v2(base));
        refused!(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(of_kind, TYPE, base));
        refused!(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&mut base, &mut size, known[0].0));
    });
}

#[test]
fn the_host_cannot_touch_device_memory() {
    let name = "the_host_cannot_touch_device_memory";
    // The process is ended by the access, as by a real driver.
    support::killed(name, SIGSEGV, || {
        open(0);
        read(device(BYTES) as *const u8);
    });
}

#[test]
fn an_event_in_the_middle_waits_for_no_more_than_its_place() {
    proves("an_event_in_the_middle_waits_for_no_more_than_its_place", "race: ", |run| {
        open(0);
        let (first, data, back, middle) = (stream(false), device(BYTES), pinned(2 * BYTES), event());
        copy(back as u64, data, BYTES, first);
        ok!(cuEventRecord(middle, first));
        copy(back as u64 + BYTES as u64, data, BYTES, first);
        ok!(cuEventSynchronize(middle));
        read(back.wrapping_add(if run.fault { BYTES } else { 0 }));
        finish(first);
    });
}
