//! Addresses that are reserved, memory that is mapped there, and memory of other processes.

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

use std::env;
use std::mem::MaybeUninit;
use std::process::Command;

use cudarc::driver::sys;
use support::{copy, device, device_in, enter, fill, finish, holds, ok, open, pinned, proves, read, refused, stream};

const UNIT: usize = 2 << 20;
/// Bytes on either side of the end of a mapping.
const BYTES: usize = 4096;

fn reserve(units: usize) -> u64 {
    let mut base = 0;
    ok!(cuMemAddressReserve(&mut base, units * UNIT, 0, 0, 0));
    base
}

fn location(id: i32) -> sys::CUmemLocation {
    let mut place = MaybeUninit::<sys::CUmemLocation>::zeroed();
    let numbers = place.as_mut_ptr().cast::<i32>();
    for (index, number) in [1, id].into_iter().enumerate() {
        // SAFETY: the type of the location, and the number of the device.
        unsafe { numbers.wrapping_add(index).write(number) };
    }
    // SAFETY: both fields are set.
    unsafe { place.assume_init() }
}

fn create(on: i32) -> u64 {
    let mut properties = MaybeUninit::<sys::CUmemAllocationProp>::zeroed();
    let numbers = properties.as_mut_ptr().cast::<i32>();
    for (index, value) in [(0, 1), (2, 1), (3, on)] {
        // SAFETY: the struct begins with four numbers: type, handles, and a location of two.
        unsafe { numbers.wrapping_add(index).write(value) };
    }
    let mut handle = 0;
    ok!(cuMemCreate(&mut handle, UNIT, properties.as_ptr(), 0));
    handle
}

fn grant(address: u64, units: usize, to: i32) {
    let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    let access = sys::CUmemAccessDesc { location: location(to), flags };
    ok!(cuMemSetAccess(address, units * UNIT, &access, 1));
}

/// Maps a unit of new memory of a device, whose handle is released at once.
fn map(address: u64, on: i32) {
    let handle = create(on);
    ok!(cuMemMap(address, UNIT, 0, handle, 0));
    ok!(cuMemRelease(handle));
    grant(address, 1, on);
}

#[test]
fn memory_is_unmapped_after_its_last_reader() {
    proves("memory_is_unmapped_after_its_last_reader", "race: cuMemUnmap", |run| {
        open(0);
        let (user, base, back) = (stream(false), reserve(3), pinned(2 * BYTES));
        map(base, 0);
        map(base + UNIT as u64, 0);
        // Across the end of the first mapping.
        let data = base + (UNIT - BYTES) as u64;
        fill(data, 7, 2 * BYTES, user);
        copy(back as u64, data, 2 * BYTES, user);
        if !run.fault {
            finish(user);
            assert_eq!((read(back), read(back.wrapping_add(2 * BYTES - 1))), (7, 7));
        }
        ok!(cuMemUnmap(base, 2 * UNIT));
        if run.fault {
            // The copy may find the memory gone, which loses the context.
            return;
        }
        refused!(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(data, 0, 1, user));
        assert_eq!(run.simulator.live("physical"), 0);
        // The same addresses again.
        map(base, 0);
        fill(base, 9, BYTES, user);
        copy(back as u64, base, BYTES, user);
        finish(user);
        assert_eq!(read(back), 9);
        refused!(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(base, 3 * UNIT));
        ok!(cuMemUnmap(base, UNIT));
        ok!(cuMemAddressFree(base, 3 * UNIT));
        assert_eq!(run.simulator.live("reservations"), 0);
    });
}

#[test]
fn pointers_into_a_reservation_say_what_is_mapped() {
    use sys::CUpointer_attribute_enum::{
        CU_POINTER_ATTRIBUTE_CONTEXT as CONTEXT, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as ORDINAL,
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE as IPC, CU_POINTER_ATTRIBUTE_MAPPED as MAPPED,
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE as TYPE, CU_POINTER_ATTRIBUTE_RANGE_SIZE as SIZE,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR as START,
    };
    holds("pointers_into_a_reservation_say_what_is_mapped", &[], |run| {
        open(0);
        let base = reserve(3);
        map(base + UNIT as u64, 1);
        let ask = |attribute, address: u64| {
            let mut value = 0_u64;
            let answer = support::call!(cuPointerGetAttribute((&raw mut value).cast(), attribute, address));
            (answer == sys::CUresult::CUDA_SUCCESS).then_some(value)
        };
        let inside = base + UNIT as u64 + 5;
        // The whole reservation, not what is mapped of it.
        assert_eq!((ask(START, inside), ask(SIZE, inside)), (Some(base), Some(3 * UNIT as u64)));
        assert_eq!((ask(START, base), ask(TYPE, base), ask(MAPPED, base)), (Some(base), None, Some(0)));
        assert_eq!((ask(TYPE, inside), ask(MAPPED, inside), ask(ORDINAL, inside)), (Some(2), Some(1), Some(1)));
        assert_eq!((ask(CONTEXT, inside), ask(IPC, inside)), (Some(0), Some(0)));
        let (mut start, mut size) = (0, 0);
        ok!(cuMemGetAddressRange_v2(&mut start, &mut size, inside));
        assert_eq!((start, size), (base + UNIT as u64, UNIT));
        refused!(CUDA_ERROR_NOT_FOUND, cuMemGetAddressRange_v2(&mut start, &mut size, base));
        refused!(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(base));
        assert_eq!((run.simulator.live("device"), run.simulator.live("reservations")), (0, 1));
        ok!(cuMemUnmap(base + UNIT as u64, UNIT));
        ok!(cuMemAddressFree(base, 3 * UNIT));
    });
}

#[test]
fn only_devices_with_access_touch_mapped_memory() {
    holds("only_devices_with_access_touch_mapped_memory", &[], |_run| {
        let first = open(0);
        let (own, base, there) = (stream(false), reserve(1), device(BYTES));
        let handle = create(0);
        ok!(cuMemMap(base, UNIT, 0, handle, 0));
        refused!(CUDA_ERROR_INVALID_VALUE, cuMemsetD8Async(base, 7, BYTES, own));
        grant(base, 1, 0);
        fill(base, 7, BYTES, own);
        finish(own);
        let second = open(1);
        let (other, to) = (stream(false), device(BYTES));
        refused!(CUDA_ERROR_INVALID_VALUE, cuMemcpyAsync(to, base, BYTES, other));
        // Between contexts the driver copies whatever each of them reaches.
        ok!(cuMemcpyPeerAsync(to, second, base, first, BYTES, other));
        finish(other);
        grant(base, 1, 1);
        ok!(cuMemcpyAsync(to, base, BYTES, other));
        finish(other);
        // A second address for the same memory is not simulated.
        let more = reserve(1);
        refused!(CUDA_ERROR_NOT_SUPPORTED, cuMemMap(more, UNIT, 0, handle, 0));
        refused!(CUDA_ERROR_INVALID_VALUE, cuMemMap(base, UNIT, 0, create(0), 0));
        ok!(cuMemUnmap(base, UNIT));
        ok!(cuMemMap(more, UNIT, 0, handle, 0));
        enter(first as usize);
        ok!(cuMemFree_v2(there));
    });
}

const HANDLE: &str = "SIMULATED_CUDA_TEST_IPC";

fn to_text(handle: sys::CUipcMemHandle) -> String {
    handle.reserved.iter().map(|byte| format!("{:02x}", *byte as u8)).collect()
}

fn of_text(text: &str) -> sys::CUipcMemHandle {
    let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
    for (at, byte) in handle.reserved.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap() as _;
    }
    handle
}

/// What the other process does: it finds sevens, and leaves eights.
fn other_process(handle: sys::CUipcMemHandle) {
    let (mut data, mut again, user, back) = (0, 0, stream(false), pinned(BYTES));
    ok!(cuIpcOpenMemHandle_v2(&mut data, handle, 1));
    ok!(cuIpcOpenMemHandle_v2(&mut again, handle, 1));
    assert_eq!(data, again);
    let (mut start, mut size) = (0, 0);
    ok!(cuMemGetAddressRange_v2(&mut start, &mut size, data + 9));
    assert_eq!((start, size), (data, BYTES));
    copy(back as u64, data, BYTES, user);
    finish(user);
    assert_eq!((read(back), read(back.wrapping_add(BYTES - 1))), (7, 7));
    fill(data, 8, BYTES, user);
    finish(user);
    refused!(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2(data));
    ok!(cuIpcCloseMemHandle(data));
    fill(data, 8, BYTES, user);
    finish(user);
    ok!(cuIpcCloseMemHandle(data));
    refused!(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle(data));
}

#[test]
fn memory_of_another_process_is_the_same() {
    let name = "memory_of_another_process_is_the_same";
    holds(name, &[], |run| {
        open(0);
        if let Ok(handle) = env::var(HANDLE) {
            other_process(of_text(&handle));
            assert_eq!(run.simulator.live("imported"), 0);
            return;
        }
        let (user, data, back) = (stream(false), device(BYTES), pinned(BYTES));
        fill(data, 7, BYTES, user);
        finish(user);
        let mut handle = sys::CUipcMemHandle { reserved: [0; 64] };
        ok!(cuIpcGetMemHandle(&mut handle, data));
        let mut own = 0;
        refused!(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle_v2(&mut own, handle, 1));
        refused!(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle(&mut handle, device_in(user, BYTES)));
        let child = Command::new(env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .env(HANDLE, to_text(handle))
            .env_remove("SIMULATED_CUDA_LOG")
            .output()
            .unwrap();
        assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
        copy(back as u64, data, BYTES, user);
        finish(user);
        assert_eq!((read(back), read(back.wrapping_add(BYTES - 1))), (8, 8));
        ok!(cuMemFree_v2(data));
    });
}
