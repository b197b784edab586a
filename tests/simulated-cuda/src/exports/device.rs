//! Devices, and their primary contexts.

use std::ffi::c_char;

use super::{Out, driver, put_text};
use crate::error::Error;

driver! {
    /// How many devices there are.
    fn cuDeviceGetCount(count: Out<i32>) |call| { count.set(call.devices.len() as i32) }

    /// The device of an ordinal.
    fn cuDeviceGet(device: Out<i32>, ordinal: i32) |call| {
        call.device(ordinal)?;
        device.set(ordinal)
    }

    /// What a device is called.
    fn cuDeviceGetName(name: *mut c_char, room: i32, device: i32) |call| {
        let device = call.device(device)?;
        put_text(name, room, &format!("Simulated CUDA device {device}"))
    }

    /// What identifies a device.
    fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: i32) |call| {
        let device = call.device(device)?;
        uuid.set([0x51 + device as u8; 16])
    }

    /// What identifies a device.
    fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: i32) |call| {
        let device = call.device(device)?;
        uuid.set([0x51 + device as u8; 16])
    }

    /// Where on the bus a device is.
    fn cuDeviceGetPCIBusId(name: *mut c_char, room: i32, device: i32) |call| {
        let device = call.device(device)?;
        put_text(name, room, &format!("0000:{:02x}:00.0", device + 1))
    }

    /// How much memory a device has.
    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) |call| {
        call.device(device)?;
        bytes.set(call.settings.memory as usize)
    }

    /// The capability of a device, in two parts.
    fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) |call| {
        call.device(device)?;
        let capability = call.settings.capability;
        major.set(capability.0.cast_signed())?;
        minor.set(capability.1.cast_signed())
    }

    /// A property of a device.
    fn cuDeviceGetAttribute(value: Out<i32>, attribute: u32, device: i32) |call| {
        let device = call.device(device)? as i32;
        let flag = i32::from;
        value.set(match attribute {
            // Threads of a block, and their extent in each dimension.
            1..=3 => 1024,
            4 => 64,
            // Blocks of a grid in each dimension.
            5 => i32::MAX,
            6 | 7 => 65535,
            // Shared and constant memory, threads of a warp, registers.
            8 => 48 << 10,
            9 => 64 << 10,
            10 => 32,
            12 | 82 => 65536,
            // Clock rates in kHz, alignment of textures, width of the bus.
            13 | 36 => 1_000_000,
            14 => 512,
            37 => 5120,
            // Multiprocessors, mapped host memory, kernels at once, bus numbers, engines for copies, one address space.
            // One multiprocessor: a launch has few blocks, so that tests of some size make each take several steps.
            16 => 1,
            19 | 31 | 41 => 1,
            33 => device + 1,
            34 | 50 => 0,
            40 => 2,
            38 => 50 << 20,
            39 => 2048,
            // The capability, shared memory of a multiprocessor, managed memory.
            75 => call.settings.capability.0.cast_signed(),
            76 => call.settings.capability.1.cast_signed(),
            81 | 97 => 227 << 10,
            83 => 1,
            // Not pageable memory, but managed memory of both sides at once, and registered memory by its own address.
            88 => 0,
            89 => flag(call.settings.concurrent_managed),
            91 | 99 => 1,
            115 => flag(call.settings.pools),
            0 | 1000.. => return Err(Error::INVALID_VALUE),
            _ => 0,
        })
    }

    /// Whether kernels of one device can use another's memory.
    fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) |call| {
        let (device, peer) = (call.device(device)?, call.device(peer)?);
        can.set(i32::from(device != peer))
    }

    /// Retains the primary context of a device.
    fn cuDevicePrimaryCtxRetain(context: Out<usize>, device: i32) |call| {
        let device = call.device(device)?;
        let handle = call.retain_primary(device);
        context.set(handle)
    }

    /// Releases the primary context of a device. The last release destroys all that it owns.
    fn cuDevicePrimaryCtxRelease_v2(device: i32) |call| {
        let device = call.device(device)?;
        let context = call.devices[device].primary.ok_or(Error::INVALID_CONTEXT)?;
        let retained = call.contexts[&context].retained;
        if retained == 0 {
            return Err(Error::INVALID_CONTEXT);
        }
        if retained == 1 {
            call.end_context(context);
        } else {
            call.contexts.get_mut(&context).expect("looked at just now").retained -= 1;
        }
        Ok(())
    }

    /// Whether the primary context of a device is retained.
    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) |call| {
        let device = call.device(device)?;
        let context = call.devices[device].primary.and_then(|context| call.contexts.get(&context));
        flags.set(0)?;
        active.set(i32::from(context.is_some_and(|context| context.retained > 0)))
    }
}
