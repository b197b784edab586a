//! Device memory: its life, its pools, its limits, and what pointers say.

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
use std::mem::MaybeUninit;
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
        let _ = support::call!(cuStreamSynchronize(user));
        finish(owner);
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
fn a_block_of_a_pool_is_freed_at_once_only_after_a_wait() {
    proves("a_block_of_a_pool_is_freed_at_once_only_after_a_wait", "race: cuMemFree_v2", |run| {
        open(0);
        let owner = stream(false);
        let data = device_in(owner, BYTES);
        fill(data, 7, BYTES, owner);
        if !run.fault {
            finish(owner);
        }
        // Unlike for memory outside of pools, the driver does not wait here.
        ok!(cuMemFree_v2(data));
    });
}

#[test]
fn a_block_that_is_given_out_again_is_free_of_its_readers() {
    let switches = &[("REUSE", "1")];
    let cases = &[(false, None), (true, Some("race: "))];
    support::with("a_block_that_is_given_out_again_is_free_of_its_readers", switches, cases, |run| {
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
        let again = device_in(owner, BYTES);
        assert_eq!(again, data, "a caching allocator would do the same");
        fill(again, 8, BYTES, owner);
        assert_ne!(device_in(reader, BYTES), data, "and only on the same stream");
        finish(owner);
        finish(reader);
        assert!(run.fault || read(back) == 7);
        assert_eq!(run.simulator.live("device"), 2);
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
fn memory_runs_out_and_comes_back() {
    holds("memory_runs_out_and_comes_back", &[("MEMORY", "1048576"), ("DEVICES", "2")], |_run| {
        open(0);
        let owner = stream(false);
        let (half, more) = (1 << 19, (1 << 19) + 1);
        let (kept, mut none) = (device(half), 0);
        let (mut free, mut total) = (0, 0);
        ok!(cuMemGetInfo_v2(&mut free, &mut total));
        assert_eq!((free, total), (half, 1 << 20));
        refused!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&mut none, more));
        refused!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&mut none, more, owner));
        let first = device_in(owner, half);
        refused!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&mut none, 1, owner));
        ok!(cuMemFreeAsync(first, owner));
        // In the order of the same stream the memory is there again; for the host it is not before a wait.
        let second = device_in(owner, half);
        ok!(cuMemFreeAsync(second, owner));
        finish(owner);
        ok!(cuMemFree_v2(device(half)));
        ok!(cuMemFree_v2(kept));
        open(1);
        device(1 << 20);
    });
}

fn pool(on: i32) -> sys::CUmemoryPool {
    let mut properties = MaybeUninit::<sys::CUmemPoolProps>::zeroed();
    let numbers = properties.as_mut_ptr().cast::<u32>();
    for (index, value) in [(0, 1), (2, 1), (3, on as u32)] {
        // SAFETY: the struct begins with four numbers: type, handles, and a location of two.
        unsafe { numbers.wrapping_add(index).write(value) };
    }
    let mut pool = null_mut();
    ok!(cuMemPoolCreate(&mut pool, properties.as_ptr()));
    pool
}

fn figure(pool: sys::CUmemoryPool, attribute: sys::CUmemPool_attribute) -> u64 {
    let mut value = 0_u64;
    ok!(cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()));
    value
}

#[test]
fn a_pool_keeps_up_to_its_threshold() {
    use sys::CUmemPool_attribute_enum::{
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as THRESHOLD, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT as RESERVED,
        CU_MEMPOOL_ATTR_USED_MEM_CURRENT as USED,
    };
    holds("a_pool_keeps_up_to_its_threshold", &[("MEMORY", "1048576")], |run| {
        open(0);
        let (owner, own) = (stream(false), pool(0));
        let mut threshold = u64::MAX;
        ok!(cuMemPoolSetAttribute(own, THRESHOLD, (&raw mut threshold).cast()));
        let mut data = 0;
        ok!(cuMemAllocFromPoolAsync(&mut data, 1 << 20, own, owner));
        assert_eq!((figure(own, USED), figure(own, RESERVED)), (1 << 20, 1 << 20));
        ok!(cuMemFreeAsync(data, owner));
        finish(owner);
        assert_eq!((figure(own, USED), figure(own, RESERVED)), (0, 1 << 20));
        let mut none = 0;
        refused!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&mut none, 1 << 20));
        ok!(cuMemAllocFromPoolAsync(&mut data, 1 << 20, own, owner));
        ok!(cuMemFreeAsync(data, owner));
        finish(owner);
        ok!(cuMemPoolTrimTo(own, 0));
        ok!(cuMemFree_v2(device(1 << 20)));
        assert_eq!(run.simulator.live("pools"), 1);
        ok!(cuMemPoolDestroy(own));
        assert_eq!(run.simulator.live("pools"), 0);
        refused!(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync(&mut none, 1, own, owner));
    });
}

#[test]
fn another_device_needs_access_to_a_pool() {
    holds("another_device_needs_access_to_a_pool", &[], |_run| {
        open(0);
        let (owner, own) = (stream(false), pool(0));
        let mut data = 0;
        ok!(cuMemAllocFromPoolAsync(&mut data, BYTES, own, owner));
        finish(owner);
        open(1);
        let (other, to) = (stream(false), device(BYTES));
        refused!(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(to, data, BYTES, other));
        let mut granted = sys::CUmemAccessDesc {
            location: location(1),
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        ok!(cuMemPoolSetAccess(own, &granted, 1));
        ok!(cuMemcpyAsync(to, data, BYTES, other));
        granted.location = location(7);
        refused!(CUDA_ERROR_INVALID_DEVICE, cuMemPoolSetAccess(own, &granted, 1));
    });
}

fn location(id: i32) -> sys::CUmemLocation {
    let mut place = MaybeUninit::<sys::CUmemLocation>::zeroed();
    let numbers = place.as_mut_ptr().cast::<i32>();
    // SAFETY: the type of the location.
    unsafe { numbers.write(1) };
    // SAFETY: the number of the device.
    unsafe { numbers.wrapping_add(1).write(id) };
    // SAFETY: both fields are set.
    unsafe { place.assume_init() }
}

#[test]
fn without_pools_there_is_no_memory_in_stream_order() {
    holds("without_pools_there_is_no_memory_in_stream_order", &[("NO_POOLS", "1")], |_run| {
        open(0);
        let (mut supported, mut none) = (1, 0);
        use sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED as POOLS;
        ok!(cuDeviceGetAttribute(&mut supported, POOLS, 0));
        assert_eq!(supported, 0);
        refused!(CUDA_ERROR_NOT_SUPPORTED, cuMemAllocAsync(&mut none, BYTES, null_mut()));
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
        let known =
            [(device(BYTES), 2, 0), (device_in(owner, BYTES), 2, 0), (pinned(BYTES) as u64, 1, 0), (managed, 2, 1)];
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
        for (pointer, kind, is_managed) in known {
            assert_eq!(ask(pointer + 5), (context as usize, kind, is_managed, 1, pointer, BYTES));
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
