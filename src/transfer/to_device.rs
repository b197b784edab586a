//! Moves arrays and tensors to another device: all bytes of one call into one block, in as few copies as possible.

use std::num::NonZero;

use super::arena::Arena;
use super::host_read::read_to_host;
use super::on_device::{span, what};
use super::own_memory::require_free;
use super::path::{elsewhere, plan_transfer};
use super::request::Transfer;
use crate::alloc::fallible;
use crate::arrow::{
    Decomposed, DeviceArray, DeviceArrayStream, Piece, Wanted, array_ready_at, host_array, read_host, rebase,
};
use crate::copy_log::rows_of;
use crate::cuda::{Pointer, Stream, allocate_from, memory_source};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::plan::{TransferPath, TransferStep};
use crate::stream_order::{self, Readiness, Wait};
use crate::tensor::{Tensor, TensorParts};

/// Returns the array on another device: itself if it is there, the same memory if that device reaches it, else a copy
/// of what its rows need. On the CPU it is complete; elsewhere it is written when its `sync_event` is complete.
///
/// # Errors
/// If no such transfer is known, the memory contradicts the array, the stream is another device's or under capture, the
/// driver fails, a wait is interrupted, or an allocation fails. Nothing is lost then.
pub fn array_to_device(array: &DeviceArray, transfer: &Transfer<'_>) -> Result<DeviceArray> {
    let (own, target) = (array.device(), transfer.device);
    let step = plan_transfer(own, target)?;
    match step.path {
        TransferPath::Same => Ok(array.clone()),
        TransferPath::HostReads => {
            lend_to_host(array.readiness());
            host_memory(array, transfer.stream)
        }
        TransferPath::Relabelled => {
            stream_order::enter(target)?;
            check_memory(array)?;
            let readiness = array.readiness().ok_or_else(|| elsewhere(own, target))?;
            array.relabelled(readiness.relabelled(target))
        }
        TransferPath::HostReadsOrCopied | TransferPath::Copied(_) => {
            let array = array.alone()?;
            let (copied, bytes) = copy_array(&array, transfer)?;
            step.record(|| rows_of("", array.len(), array.field().data_type()), transfer.why, bytes);
            Ok(copied)
        }
    }
}

/// Returns an array in memory that the host reads, where it has to know values before it can convert others. The host waits for it. It is no
/// copy for the log, as none of it is a part of a result.
///
/// # Errors
/// As [`array_to_device`].
pub(crate) fn array_to_read(array: &DeviceArray) -> Result<DeviceArray> {
    let transfer = Transfer::to(Device::CPU, "");
    match plan_transfer(array.device(), Device::CPU)?.path {
        TransferPath::HostReadsOrCopied | TransferPath::Copied(_) => Ok(copy_array(&array.alone()?, &transfer)?.0),
        TransferPath::HostReads => host_memory(array, transfer.stream),
        TransferPath::Same | TransferPath::Relabelled => array_to_device(array, &transfer),
    }
}

/// The same memory as the CPU's, once the host may read it.
fn host_memory(array: &DeviceArray, stream: Option<Stream>) -> Result<DeviceArray> {
    check_memory(array)?;
    wait_to_read(array.readiness(), stream)?;
    array.as_host_memory()
}

/// The driver knows host-visible memory by any name, so that others may copy from the CPU's view of it behind our back.
fn lend_to_host(readiness: Option<&Readiness>) {
    if let Some(readiness) = readiness {
        readiness.lend(Wait::LentAsHost);
    }
}

/// Returns a tensor on another device, as [`array_to_device`] returns an array.
///
/// # Errors
/// As [`array_to_device`].
pub fn tensor_to_device(tensor: &Tensor, transfer: &Transfer<'_>) -> Result<Tensor> {
    let moved = tensors_of(tensor.device(), std::slice::from_ref(tensor), transfer)?;
    moved.into_iter().next().ok_or_else(|| Error::internal("a tensor was lost on its way"))
}

/// Returns the tensors on another device, as [`array_to_device`] returns an array. Copies from one device share one
/// block of memory.
///
/// # Errors
/// As [`array_to_device`].
pub fn tensors_to_device(tensors: &[Tensor], transfer: &Transfer<'_>) -> Result<Vec<Tensor>> {
    let Some(first) = tensors.first() else { return Ok(Vec::new()) };
    if tensors.iter().all(|tensor| tensor.device() == first.device()) {
        return tensors_of(first.device(), tensors, transfer);
    }
    let mut moved = fallible::copied(tensors)?;
    let mut seen: Vec<Device> = Vec::new();
    for own in tensors.iter().map(Tensor::device) {
        if seen.contains(&own) {
            continue;
        }
        seen.push(own);
        let (places, there): (Vec<usize>, Vec<Tensor>) =
            tensors.iter().cloned().enumerate().filter(|(_, tensor)| tensor.device() == own).unzip();
        for (place, tensor) in places.into_iter().zip(tensors_of(own, &there, transfer)?) {
            if let Some(slot) = moved.get_mut(place) {
                *slot = tensor;
            }
        }
    }
    Ok(moved)
}

/// Moves tensors that are all on the device `own`.
fn tensors_of(own: Device, tensors: &[Tensor], transfer: &Transfer<'_>) -> Result<Vec<Tensor>> {
    let target = transfer.device;
    let step = plan_transfer(own, target)?;
    match step.path {
        TransferPath::Same => fallible::copied(tensors),
        TransferPath::HostReads => tensors
            .iter()
            .map(|tensor| {
                wait_to_read(tensor.readiness(), transfer.stream)?;
                lend_to_host(tensor.readiness());
                Ok(tensor.relabelled(Device::CPU))
            })
            .collect(),
        TransferPath::Relabelled => {
            stream_order::enter(target)?;
            Ok(tensors.iter().map(|tensor| tensor.relabelled(target)).collect())
        }
        TransferPath::HostReadsOrCopied | TransferPath::Copied(_) => copy_tensors(tensors, step, transfer),
    }
}

/// Returns the stream with its arrays on another device. Each array is moved, and its errors raised, on request.
#[must_use]
pub fn stream_to_device(
    stream: DeviceArrayStream,
    device: Device,
    on: Option<Stream>,
    threads: Option<NonZero<usize>>,
    why: String,
) -> DeviceArrayStream {
    let (field, source) = (stream.field().clone(), memory_source());
    let arrays = stream.map(move |array| {
        let _source = allocate_from(source.clone());
        array_to_device(&array?, &Transfer { device, stream: on, threads, why: &why })
    });
    DeviceArrayStream::new(field, device.device_type(), arrays)
}

/// Refuses a CUDA array whose memory contradicts it, because nobody asks the driver again about relabelled memory.
fn check_memory(array: &DeviceArray) -> Result<()> {
    let current = array.readiness().map_or_else(|| stream_order::enter(array.device()), Readiness::enter)?;
    let apart = Decomposed::new(array, false, &mut |wanted| read_where_it_is(array, wanted))?;
    let bytes = |piece: &Piece| match piece {
        Piece::OfArray(range) | Piece::Offsets { range, .. } => range.clone(),
        Piece::Made(_) => 0..0,
    };
    let checked = apart.pieces.iter().map(bytes);
    checked.into_iter().try_for_each(|range| current.check_memory(range.start, range.len(), array.device()))
}

/// Returns a copy of an array, and its bytes.
fn copy_array(array: &DeviceArray, transfer: &Transfer<'_>) -> Result<(DeviceArray, usize)> {
    let field = array.field().clone();
    let copied = || -> Result<(DeviceArray, usize)> {
        // Only the host writes offsets.
        let host_writes = array.device().is_cpu() || transfer.device.is_cpu();
        let apart = Decomposed::new(array, host_writes, &mut |wanted| read_where_it_is(array, wanted))?;
        let mut arena = Arena::default();
        let mut scratch: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut rebased = Vec::new();
        let mut places = fallible::with_room(apart.pieces.len())?;
        for piece in &apart.pieces {
            let at = arena.place(piece.len())?;
            places.push(at);
            match piece {
                Piece::OfArray(range) => arena.push(range.start, at, range.len()),
                Piece::Offsets { range, wide, first } if array.device().is_cpu() => {
                    // SAFETY: import checked that the array has these offsets, in host memory.
                    let read = unsafe { read_host(&[Wanted::OnDevice(range.clone())]) }?;
                    let mut offsets = read.into_iter().next().unwrap_or_default();
                    rebase(&mut offsets, *wide, *first);
                    scratch.push((at, offsets));
                }
                Piece::Offsets { range, wide, first } => {
                    rebased.push((at, range.len(), *wide, *first));
                    arena.push(range.start, at, range.len());
                }
                Piece::Made(bytes) => scratch.push((at, fallible::copied(bytes)?)),
            }
        }
        // SAFETY: the pieces are of an array that import has checked, and whose owner releases it behind the work that its
        // readiness knows.
        let placed = unsafe { arena.copy(array.device(), array.readiness(), &scratch, transfer) }?;
        for (at, len, wide, first) in rebased {
            // SAFETY: the copy to ordinary memory is done; a part of it that nobody else knows yet.
            let offsets = unsafe { std::slice::from_raw_parts_mut(placed.start.wrapping_add(at), len) };
            rebase(offsets, wide, first);
        }
        let starts: Vec<*const u8> = places.iter().map(|at| placed.start.wrapping_add(*at).cast_const()).collect();
        let (node, owner) = apart.together(&starts, placed.owner)?;
        let moved = match placed.readiness {
            Some(readiness) => array_ready_at(node.export(&owner)?, field.clone(), Some(readiness)),
            None => host_array(node.export(&owner)?, field.clone()),
        }?;
        Ok((moved, arena.bytes()))
    };
    copied().map_err(|error| error.in_column(array.field().name()))
}

/// Reads what tells the length of the buffers.
pub(super) fn read_where_it_is(array: &DeviceArray, wanted: &[Wanted]) -> Result<Vec<Vec<u8>>> {
    let Some(readiness) = array.readiness() else {
        // SAFETY: import checked that the array has these, in host memory; sizes of views are its word.
        return unsafe { read_host(wanted) };
    };
    let on_host = |wanted: &Wanted| match wanted {
        // Memory that the driver does not know is the host's.
        Wanted::Anywhere(range) => Pointer::of(range.start).map(|pointer| pointer.device.is_none()),
        Wanted::OnDevice(_) => Ok(false),
    };
    let range = |wanted: &Wanted| match wanted {
        Wanted::OnDevice(range) | Wanted::Anywhere(range) => range.clone(),
    };
    let mut there = Vec::new();
    let mut is_here = fallible::with_room(wanted.len())?;
    for one in wanted {
        let here = on_host(one)?;
        is_here.push(here);
        if !here {
            there.push(range(one));
        }
    }
    let host_read = read_to_host(readiness, &there)?;
    let read = |(one, here): (&Wanted, bool)| {
        let range = range(one);
        if here {
            // SAFETY: Arrow C++ has the sizes of view buffers in host memory, which the array's owner keeps alive, and
            // which the driver does not know.
            let read = unsafe { read_host(&[Wanted::OnDevice(range)]) }?;
            return Ok(read.into_iter().next().unwrap_or_default());
        }
        host_read.require(range.start, range.len()).and_then(fallible::copied)
    };
    wanted.iter().zip(is_here).map(read).collect()
}

fn copy_tensors(tensors: &[Tensor], step: TransferStep, transfer: &Transfer<'_>) -> Result<Vec<Tensor>> {
    let own = tensors.first().map_or(Device::CPU, Tensor::device);
    let mut arena = Arena::default();
    let mut places = fallible::with_room(tensors.len())?;
    for tensor in tensors {
        let (before, bytes) = span(tensor)?;
        let at = arena.place(bytes)?;
        arena.push(tensor.as_ptr().expose_provenance().wrapping_sub(before), at, bytes);
        places.push(at + before);
    }
    let readiness = Readiness::joined(tensors.iter().filter_map(Tensor::readiness).cloned())?;
    // SAFETY: the tensors' owners keep the bytes from the lowest to the highest element. The owner of memory on a device
    // releases it behind the work that its readiness knows, which is a part of the joined one.
    let placed = unsafe { arena.copy(own, readiness.as_ref(), &[], transfer) }?;
    let copy = |(tensor, at): (&Tensor, usize)| {
        let parts = TensorParts {
            data: placed.start.wrapping_add(at),
            device: transfer.device,
            owner: placed.owner.clone(),
            readiness: placed.readiness.clone(),
            read_only: false,
            copied: true,
            ..tensor.parts()
        };
        step.record(|| what(tensor), transfer.why, tensor.nbytes());
        // SAFETY: the bytes from the lowest to the highest element are written before whoever waits as the order says reads.
        unsafe { Tensor::from_parts(parts) }.map(|copy| copy.with_codes_of(tensor))
    };
    tensors.iter().zip(places).map(copy).collect()
}

/// Waits on the host until it may read host-visible memory, in the order of `stream`, else of the stream that this thread has set, if
/// there is one.
fn wait_to_read(readiness: Option<&Readiness>, stream: Option<Stream>) -> Result<()> {
    let Some(readiness) = readiness else { return Ok(()) };
    readiness.wait_on_host(Wait::HostRead)?;
    let (current, stream) = match (stream, stream_order::scoped_stream()) {
        (Some(stream), _) => (stream_order::enter(readiness.device())?, stream),
        // A block of code may read memory of several devices, all of which the stream's device reaches.
        (None, Some(stream)) => (readiness.enter_device_of(stream)?, stream),
        (None, None) => return Ok(()),
    };
    require_free(&current, stream)?;
    let device = Device::new(DLDeviceType::CUDA, current.device().ordinal());
    Readiness::recorded(device, &current, stream, Wait::HostReadStream)?.wait_on_host(Wait::HostReadStream)
}
