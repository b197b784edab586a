//! Memory in stream order: pools, what they keep, and the limits of a device.

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

use std::mem::MaybeUninit;
use std::ptr::null_mut;

use cudarc::driver::sys;
use support::{copy, device, device_in, fill, finish, holds, ok, open, pinned, proves, read, refused, stream, wait};

const BYTES: usize = 4096;

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
        if run.fault {
            // The copy may find the memory gone by now, which would lose the context.
            return;
        }
        let again = device_in(owner, BYTES);
        assert_eq!(again, data, "a caching allocator would do the same");
        fill(again, 8, BYTES, owner);
        finish(owner);
        finish(reader);
        assert_eq!((read(back), run.simulator.live("device")), (7, 1));
    });
}

#[test]
fn a_block_is_given_out_again_on_another_stream_as_the_pool_allows() {
    use sys::CUmemPool_attribute_enum::{
        CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES as WAITS,
        CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC as AT_ONCE,
        CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES as FOLLOWS,
    };
    let name = "a_block_is_given_out_again_on_another_stream_as_the_pool_allows";
    holds(name, &[("REUSE", "1")], |run| {
        open(0);
        let (owner, other) = (stream(false), stream(false));
        for allowed in [None, Some(FOLLOWS), Some(AT_ONCE), Some(WAITS)] {
            let own = pool(0);
            for attribute in [FOLLOWS, AT_ONCE, WAITS] {
                let mut value = i32::from(allowed == Some(attribute));
                ok!(cuMemPoolSetAttribute(own, attribute, (&raw mut value).cast()));
            }
            let (mut data, mut again) = (0, 0);
            ok!(cuMemAllocFromPoolAsync(&mut data, BYTES, own, owner));
            fill(data, 7, BYTES, owner);
            let gate = (allowed == Some(WAITS)).then(|| run.simulator.gate(owner as usize));
            ok!(cuMemFreeAsync(data, owner));
            match allowed {
                Some(FOLLOWS) => wait(other, owner),
                Some(AT_ONCE) => run.simulator.run_all(),
                _ => {}
            }
            ok!(cuMemAllocFromPoolAsync(&mut again, BYTES, own, other));
            assert_eq!(again == data, allowed.is_some());
            if gate.is_none() {
                finish(owner);
            }
            // It is known at once, whether or not the free has run, or the allocation.
            let (mut start, mut size) = (0, 0);
            ok!(cuMemGetAddressRange_v2(&mut start, &mut size, again));
            assert_eq!((start, size), (again, BYTES));
            fill(again, 8, BYTES, other);
            if let Some(gate) = gate {
                // The driver has the other stream wait for the free.
                refused!(CUDA_ERROR_NOT_READY, cuStreamQuery(other));
                gate.open();
            }
            finish(other);
            ok!(cuMemFreeAsync(again, other));
            finish(other);
            finish(owner);
            ok!(cuMemPoolDestroy(own));
        }
    });
}

#[test]
fn a_wait_of_the_driver_orders_nothing_else() {
    let cases = &[(false, None), (true, Some("race: "))];
    support::with("a_wait_of_the_driver_orders_nothing_else", &[("REUSE", "1")], cases, |run| {
        open(0);
        let (owner, other, written) = (stream(false), stream(false), device(BYTES));
        let data = device_in(owner, BYTES);
        fill(written, 7, BYTES, owner);
        ok!(cuMemFreeAsync(data, owner));
        assert_eq!(device_in(other, BYTES), data);
        if !run.fault {
            wait(other, owner);
        }
        fill(written, 8, BYTES, other);
        finish(other);
        finish(owner);
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

#[test]
fn memory_comes_back_in_the_order_of_streams() {
    holds("memory_comes_back_in_the_order_of_streams", &[("MEMORY", "4096")], |run| {
        open(0);
        let (owner, other, mut none) = (stream(false), stream(false), 0);
        let data = device_in(owner, BYTES);
        let gate = run.simulator.gate(owner as usize);
        ok!(cuMemFreeAsync(data, owner));
        refused!(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync(&mut none, BYTES, other));
        wait(other, owner);
        let again = device_in(other, BYTES);
        gate.open();
        ok!(cuMemFreeAsync(again, other));
        finish(other);
        ok!(cuMemFree_v2(device(BYTES)));
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
fn memory_is_in_use_until_the_host_has_synchronised_with_its_free() {
    use sys::CUmemPool_attribute_enum::{
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as THRESHOLD, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT as RESERVED,
    };
    holds("memory_is_in_use_until_the_host_has_synchronised_with_its_free", &[], |run| {
        open(0);
        let (owner, own) = (stream(false), pool(0));
        let mut threshold = u64::MAX;
        ok!(cuMemPoolSetAttribute(own, THRESHOLD, (&raw mut threshold).cast()));
        let mut data = 0;
        ok!(cuMemAllocFromPoolAsync(&mut data, 1 << 20, own, owner));
        ok!(cuMemFreeAsync(data, owner));
        run.simulator.run_all();
        // A query tells that it is done, and is not enough.
        // SAFETY: a stream that is alive.
        while unsafe { sys::cuStreamQuery(owner) } != sys::CUresult::CUDA_SUCCESS {}
        ok!(cuMemPoolTrimTo(own, 0));
        assert_eq!(figure(own, RESERVED), 1 << 20);
        finish(owner);
        ok!(cuMemPoolTrimTo(own, 0));
        assert_eq!(figure(own, RESERVED), 0);
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
