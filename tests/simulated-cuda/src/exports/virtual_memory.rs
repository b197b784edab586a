//! Reserved addresses, memory that is mapped there, and memory of other processes.

use std::ffi::c_void;

use super::pool::{Grant, Location};
use super::{In, Out, driver};
use crate::error::{Error, Outcome};
use crate::ipc::HANDLE;
use crate::virtual_memory::GRANULARITY;

/// `CUmemAllocationProp`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Properties {
    /// 1 is pinned, the only one there is.
    kind: u32,
    handles: u32,
    location: Location,
    security: usize,
    flags: [u8; 8],
}

/// `CUipcMemHandle`, which is passed by value.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IpcHandle([u8; HANDLE]);

const _: () = assert!(size_of::<Properties>() == 32 && size_of::<IpcHandle>() == 64);

fn none(flags: u64) -> Outcome {
    if flags == 0 { Ok(()) } else { Err(Error::INVALID_VALUE) }
}

driver! {
    /// Reserves addresses, behind which there is no memory.
    fn cuMemAddressReserve(pointer: Out<u64>, size: usize, alignment: usize, _hint: u64, flags: u64) |call| {
        none(flags)?;
        let base = call.reserve(size as u64, alignment as u64)?;
        pointer.set(base)
    }

    /// Gives reserved addresses back.
    fn cuMemAddressFree(pointer: u64, size: usize) |call| { call.unreserve(pointer, size as u64) }

    /// Makes memory of a device, without an address.
    fn cuMemCreate(handle: Out<u64>, size: usize, properties: In<Properties>, flags: u64) |call| {
        none(flags)?;
        let properties = properties.get(0)?;
        if properties.kind != 1 {
            return Err(Error::INVALID_VALUE);
        }
        let device = call.device(properties.location.device()?)?;
        let made = call.create_physical(device, size as u64)?;
        handle.set(made)
    }

    /// Releases the handle of memory, which stays as long as it is mapped.
    fn cuMemRelease(handle: u64) |call| { call.release_physical(handle) }

    /// Maps memory to reserved addresses.
    fn cuMemMap(pointer: u64, size: usize, offset: usize, handle: u64, flags: u64) |call| {
        none(flags)?;
        none(offset as u64)?;
        call.map(pointer, size as u64, handle)
    }

    /// Takes the memory away from addresses.
    fn cuMemUnmap(pointer: u64, size: usize) |call| { call.unmap(pointer, size as u64) }

    /// Grants or takes the access of devices to mapped memory.
    fn cuMemSetAccess(pointer: u64, size: usize, grants: In<Grant>, count: usize) |call| {
        for grant in grants.list(count)? {
            let (device, granted) = grant.of()?;
            let device = call.device(device)?;
            call.set_access(pointer, size as u64, device, granted)?;
        }
        Ok(())
    }

    /// The access of a device to mapped memory.
    fn cuMemGetAccess(flags: Out<u64>, location: In<Location>, pointer: u64) |call| {
        let device = call.device(location.get(0)?.device()?)?;
        call.physical_at(pointer)?;
        let block = call.memory.find_usable(pointer).ok_or(Error::INVALID_VALUE)?;
        flags.set(if block.is_mapped(&(pointer..pointer + 1), Some(device)) { 3 } else { 0 })
    }

    /// The unit of such memory, for which the driver has no better one to recommend.
    fn cuMemGetAllocationGranularity(granularity: Out<usize>, properties: In<Properties>, option: u32) |call| {
        call.device(properties.get(0)?.location.device()?)?;
        if option > 1 {
            return Err(Error::INVALID_VALUE);
        }
        granularity.set(GRANULARITY as usize)
    }

    /// The handle of the memory behind an address.
    fn cuMemRetainAllocationHandle(handle: Out<u64>, address: *mut c_void) |call| {
        let found = call.physical_at(address as u64)?;
        handle.set(found)
    }

    /// A handle by which another process opens memory.
    fn cuIpcGetMemHandle(handle: Out<IpcHandle>, pointer: u64) |call| {
        let made = call.ipc_handle(pointer)?;
        handle.set(IpcHandle(made))
    }

    /// Opens memory of another process.
    fn cuIpcOpenMemHandle_v2(pointer: Out<u64>, handle: IpcHandle, flags: u32) |call| {
        // `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, the only one there is.
        if flags != 1 {
            return Err(Error::INVALID_VALUE);
        }
        let base = call.open_ipc(handle.0)?;
        pointer.set(base)
    }

    /// Closes memory of another process.
    fn cuIpcCloseMemHandle(pointer: u64) |call| { call.close_ipc(pointer) }
}
