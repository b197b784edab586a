//! Memory in stream order, and pools.

use std::ffi::c_void;

use super::{In, Out, driver};
use crate::error::{Error, Outcome};
use crate::pool::Pool;

/// `CUmemPoolProps`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Properties {
    /// 1 is pinned, the only one there is.
    kind: u32,
    handles: u32,
    location: Location,
    security: usize,
    reserved: [u8; 64],
}

/// `CUmemLocation`: 1 is a device.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Location {
    kind: u32,
    id: i32,
}

/// `CUmemAccessDesc`: 0 is no access, 3 is read and write.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Grant {
    location: Location,
    flags: u32,
}

const _: () = assert!(size_of::<Properties>() == 88 && size_of::<Grant>() == 12);

impl Location {
    pub(super) fn device(self) -> Outcome<i32> {
        if self.kind == 1 { Ok(self.id) } else { Err(Error::INVALID_VALUE) }
    }
}

impl Grant {
    /// The device, and whether it is given access or loses it.
    pub(super) fn of(self) -> Outcome<(i32, bool)> {
        match self.flags {
            0 => Ok((self.location.device()?, false)),
            3 => Ok((self.location.device()?, true)),
            _ => Err(Error::INVALID_VALUE),
        }
    }
}

driver! {
    /// Allocates in the order of a stream, from the current pool of its device.
    fn cuMemAllocAsync(pointer: Out<u64>, size: usize, stream: usize) |call| {
        let stream = call.stream(stream)?;
        let device = call.contexts[&call.streams[stream].context].device;
        let pool = match call.devices[device].current_pool {
            Some(pool) => pool,
            None => call.default_pool(device)?,
        };
        let base = call.allocate_async(size as u64, pool, stream)?;
        pointer.set(base)
    }

    /// Allocates in the order of a stream, from a pool.
    fn cuMemAllocFromPoolAsync(pointer: Out<u64>, size: usize, pool: usize, stream: usize) |call| {
        let stream = call.stream(stream)?;
        let base = call.allocate_async(size as u64, pool, stream)?;
        pointer.set(base)
    }

    /// Frees in the order of a stream.
    fn cuMemFreeAsync(pointer: u64, stream: usize) |call| {
        let stream = call.stream(stream)?;
        call.free_async(pointer, stream)
    }

    /// The pool that a device came with.
    fn cuDeviceGetDefaultMemPool(pool: Out<usize>, device: i32) |call| {
        let device = call.device(device)?;
        let handle = call.default_pool(device)?;
        pool.set(handle)
    }

    /// The pool that [`cuMemAllocAsync`] takes from.
    fn cuDeviceGetMemPool(pool: Out<usize>, device: i32) |call| {
        let device = call.device(device)?;
        let default = call.default_pool(device)?;
        pool.set(call.devices[device].current_pool.unwrap_or(default))
    }

    /// Sets the pool that [`cuMemAllocAsync`] takes from.
    fn cuDeviceSetMemPool(device: i32, pool: usize) |call| {
        let device = call.device(device)?;
        if call.pool(pool)?.device != device {
            return Err(Error::INVALID_VALUE);
        }
        call.devices[device].current_pool = Some(pool);
        Ok(())
    }

    /// Makes a pool.
    fn cuMemPoolCreate(pool: Out<usize>, properties: In<Properties>) |call| {
        let properties = properties.get(0)?;
        if !call.settings.pools {
            return Err(Error::NOT_SUPPORTED);
        }
        if properties.kind != 1 || properties.reserved.iter().any(|byte| *byte != 0) {
            return Err(Error::INVALID_VALUE);
        }
        let device = call.device(properties.location.device()?)?;
        let handle = call.handle();
        call.pools.insert(handle, Pool::new(device, false));
        pool.set(handle)
    }

    /// Destroys a pool. It goes when its last block is freed.
    fn cuMemPoolDestroy(pool: usize) |call| {
        let found = call.pool(pool)?;
        if found.is_default {
            return Err(Error::INVALID_VALUE);
        }
        found.destroyed = true;
        found.keep(0);
        for device in &mut call.devices {
            if device.current_pool == Some(pool) {
                device.current_pool = None;
            }
        }
        Ok(())
    }

    /// Gives back what a pool keeps, but for so many bytes.
    fn cuMemPoolTrimTo(pool: usize, keep: usize) |call| {
        call.trim_pool(pool, keep as u64)
    }

    /// Sets an attribute of a pool.
    fn cuMemPoolSetAttribute(pool: usize, attribute: u32, value: In<c_void>) |call| {
        let found = call.pool(pool)?;
        match attribute {
            1..=3 => found.reuse[attribute as usize - 1] = value.as_values::<i32>().get(0)?,
            4 => found.threshold = value.as_values::<u64>().get(0)?,
            // The high marks can be set back to zero.
            6 | 8 if value.as_values::<u64>().get(0)? != 0 => return Err(Error::INVALID_VALUE),
            6 => found.reserved_high = 0,
            8 => found.used_high = 0,
            _ => return Err(Error::INVALID_VALUE),
        }
        Ok(())
    }

    /// An attribute of a pool.
    fn cuMemPoolGetAttribute(pool: usize, attribute: u32, value: Out<c_void>) |call| {
        let found = call.pool(pool)?;
        let figure = match attribute {
            1..=3 => return value.as_value::<i32>().set(found.reuse[attribute as usize - 1]),
            4 => found.threshold,
            5 => found.used + found.kept,
            6 => found.reserved_high,
            7 => found.used,
            8 => found.used_high,
            _ => return Err(Error::INVALID_VALUE),
        };
        value.as_value().set(figure)
    }

    /// Grants or takes the access of devices to a pool.
    fn cuMemPoolSetAccess(pool: usize, grants: In<Grant>, count: usize) |call| {
        for grant in grants.list(count)? {
            let (device, granted) = grant.of()?;
            let device = call.device(device)?;
            call.pool(pool)?.set_access(device, granted)?;
        }
        Ok(())
    }

    /// The access of a device to a pool.
    fn cuMemPoolGetAccess(flags: Out<u32>, pool: usize, location: In<Location>) |call| {
        let device = call.device(location.get(0)?.device()?)?;
        let granted = call.pool(pool)?.is_accessible_from(device);
        flags.set(if granted { 3 } else { 0 })
    }
}
