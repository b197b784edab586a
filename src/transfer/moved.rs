//! Arrays and tensors on another device. All bytes of one call go to one block of memory, in as few copies as they lie.

use std::num::NonZero;
use std::sync::Arc;

use super::{
    OwnBuffer, allocate, device_address, fetch, host_address, is_read_in_place, require_free, staging, written,
};
use crate::alloc::{ALIGNMENT, HostBuffer, Owner};
use crate::arrow::{
    Apart, DeviceArray, DeviceArrayStream, Piece, Wanted, host_array, ordered_array, read_host, rebase,
};
use crate::convert::for_each_part;
use crate::copy_log::{self, Copied};
use crate::cuda::{
    CudaDevice, Current, PinnedBuffer, Pointer, Stream, allocate_from, hand_over, is_cuda, is_host_visible,
    memory_source,
};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::order::{self, Order, Wait, page_locked};
use crate::tensor::{Parts, Tensor};

/// From this size on, page-locked memory is copied where it is; smaller pieces go together.
const COPIED_APART: usize = 64 << 10;

/// Where to, how, and why: for the log of copies.
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'a> {
    /// The device that the result is on.
    pub device: Device,
    /// The stream that copies are made on; `None` is this thread's.
    pub stream: Option<Stream>,
    /// Threads that copy from and to ordinary memory; `None` is `ARROW_DLPACK_THREADS`, or as many as there are processors.
    pub threads: Option<NonZero<usize>>,
    /// What asked for it.
    pub why: &'a str,
}

impl<'a> Transfer<'a> {
    /// A transfer on this thread's stream.
    #[must_use]
    pub fn to(device: Device, why: &'a str) -> Self {
        Self { device, stream: None, threads: None, why }
    }
}

/// Bytes on their way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moving {
    /// Where they are.
    pub(super) address: usize,
    /// Where they come to be, counted from the start of the result's memory.
    pub(super) at: usize,
    pub(super) bytes: usize,
}

/// The array on another device: itself where it is there already, the same memory where that device reaches it, else a copy of
/// what its rows need. On the CPU it is complete; elsewhere it is written when its `sync_event` is.
///
/// # Errors
/// When no such transfer is known, the array is not what it says, the stream is another device's or being captured, the driver
/// fails, a wait is interrupted, or memory cannot be had. Nothing is lost then.
pub fn array_to_device(array: &DeviceArray, transfer: &Transfer<'_>) -> Result<DeviceArray> {
    let (own, target) = (array.device(), transfer.device);
    match Way::between(own, target)? {
        Way::Same => Ok(array.clone()),
        Way::HostReads => {
            super::wait_to_read(own, array.order(), transfer.stream)?;
            array.as_host_memory()
        }
        Way::Relabelled => {
            order::enter(target)?;
            let order = array.order().ok_or_else(|| elsewhere(own, target))?;
            array.relabelled(order.relabelled(target))
        }
        Way::Copied => copy_array(&array.alone()?, transfer),
    }
}

/// The tensors on another device, as [`array_to_device`] says of arrays; those that are copied from one device share one block of
/// memory.
///
/// # Errors
/// As [`array_to_device`].
pub fn tensors_to_device(tensors: &[Tensor], transfer: &Transfer<'_>) -> Result<Vec<Tensor>> {
    let Some(first) = tensors.first() else { return Ok(Vec::new()) };
    if tensors.iter().all(|tensor| tensor.device() == first.device()) {
        return tensors_of(first.device(), tensors, transfer);
    }
    let mut moved = tensors.to_vec();
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

/// Tensors that are all on the device `own`.
fn tensors_of(own: Device, tensors: &[Tensor], transfer: &Transfer<'_>) -> Result<Vec<Tensor>> {
    let target = transfer.device;
    match Way::between(own, target)? {
        Way::Same => Ok(tensors.to_vec()),
        Way::HostReads => tensors
            .iter()
            .map(|tensor| {
                super::wait_to_read(own, tensor.order(), transfer.stream)?;
                Ok(tensor.relabelled(Device::CPU))
            })
            .collect(),
        Way::Relabelled => {
            order::enter(target)?;
            Ok(tensors.iter().map(|tensor| tensor.relabelled(target)).collect())
        }
        Way::Copied => copy_tensors(tensors, transfer),
    }
}

/// The stream with its arrays on another device, each moved when it is asked for; what fails is an error there.
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

/// Whether data on one device is had on another without a copy.
///
/// # Errors
/// When no way between them is known, or the driver fails.
pub fn is_shared(own: Device, asked: Device) -> Result<bool> {
    Ok(!matches!(Way::between(own, asked)?, Way::Copied))
}

/// How data gets from one device to another.
pub(super) enum Way {
    Same,
    /// The host reads it where it is, once it is written.
    HostReads,
    /// The same memory is the other device's too.
    Relabelled,
    Copied,
}

impl Way {
    fn between(own: Device, target: Device) -> Result<Self> {
        Self::by(own, target, is_read_in_place)
    }

    /// The way, if `is_read_in_place` says whether the host reads memory of a device where it is.
    pub(super) fn by(
        own: Device,
        target: Device,
        is_read_in_place: impl FnOnce(Device) -> Result<bool>,
    ) -> Result<Self> {
        let (from, to) = (own.device_type(), target.device_type());
        let known = |device: Device| device.is_cpu() || is_cuda(device);
        if own == target || from == to && is_host_visible(own) {
            return Ok(Self::Same);
        }
        if !known(own) || !known(target) {
            return Err(elsewhere(own, target));
        }
        match (from, to) {
            (_, DLDeviceType::CUDA_MANAGED) => Err(elsewhere(own, target)),
            (DLDeviceType::CUDA_MANAGED, DLDeviceType::CUDA) => Ok(Self::Relabelled),
            (_, DLDeviceType::CPU) if is_read_in_place(own)? => Ok(Self::HostReads),
            _ => Ok(Self::Copied),
        }
    }
}

/// The error for data that cannot be had where it was asked for.
pub(crate) fn elsewhere(own: Device, asked: Device) -> Error {
    let reason = format!("the data is on {own} and was asked for on {asked}, and no copy between these is known here");
    Error::new(ErrorKind::Device, reason)
        .remedy_is(format!("ask for it on {own}, and copy it with the library that takes it"))
}

fn copy_array(array: &DeviceArray, transfer: &Transfer<'_>) -> Result<DeviceArray> {
    let field = array.field().clone();
    let copied = || -> Result<DeviceArray> {
        // Offsets are written by the host alone.
        let host_writes = array.device().is_cpu() || transfer.device.is_cpu();
        let apart = Apart::new(array, host_writes, &mut |wanted| read_where_it_is(array, wanted))?;
        let mut arena = Arena::default();
        let mut scratch: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut rebased = Vec::new();
        let mut places = Vec::with_capacity(apart.pieces.len());
        for piece in &apart.pieces {
            let at = arena.place(piece.len())?;
            places.push(at);
            match piece {
                Piece::There(range) => arena.push(range.start, at, range.len()),
                Piece::Offsets { range, wide, first } if array.device().is_cpu() => {
                    // SAFETY: import checked that the array has these offsets, in host memory.
                    let read = unsafe { read_host(&[Wanted::There(range.clone())]) };
                    let mut offsets = read.into_iter().next().unwrap_or_default();
                    rebase(&mut offsets, *wide, *first);
                    scratch.push((at, offsets));
                }
                Piece::Offsets { range, wide, first } => {
                    rebased.push((at, range.len(), *wide, *first));
                    arena.push(range.start, at, range.len());
                }
                Piece::Here(bytes) => scratch.push((at, bytes.clone())),
            }
        }
        // SAFETY: the pieces are of an array that import has checked, which is kept.
        let placed = unsafe { arena.copy(array.device(), array.order(), &array.owner(), &scratch, transfer) }?;
        for (at, len, wide, first) in rebased {
            // SAFETY: the copy to ordinary memory is done; a part of it that nobody else knows yet.
            let offsets = unsafe { std::slice::from_raw_parts_mut(placed.start.wrapping_add(at), len) };
            rebase(offsets, wide, first);
        }
        let starts: Vec<*const u8> = places.iter().map(|at| placed.start.wrapping_add(*at).cast_const()).collect();
        let (node, owner) = apart.together(&starts, placed.owner)?;
        let moved = match placed.order {
            Some(order) => ordered_array(node.export(&owner)?, field.clone(), Some(order)),
            None => host_array(node.export(&owner)?, field.clone()),
        }?;
        copy_log::record(|| Copied {
            what: format!("{} of {} rows on {}", field.data_type(), array.len(), array.device()),
            why: transfer.why.to_owned(),
            bytes: arena.bytes,
        });
        Ok(moved)
    };
    copied().map_err(|error| error.in_column(array.field().name()))
}

/// Reads what tells how long buffers are.
fn read_where_it_is(array: &DeviceArray, wanted: &[Wanted]) -> Result<Vec<Vec<u8>>> {
    let Some(order) = array.order() else {
        // SAFETY: import checked that the array has these, in host memory; sizes of views are its word.
        return Ok(unsafe { read_host(wanted) });
    };
    let on_host = |wanted: &Wanted| match wanted {
        // What the driver does not know is the host's.
        Wanted::Anywhere(range) => Pointer::of(range.start).map(|pointer| pointer.device.is_none()),
        Wanted::There(_) => Ok(false),
    };
    let range = |wanted: &Wanted| match wanted {
        Wanted::There(range) | Wanted::Anywhere(range) => range.clone(),
    };
    let mut there = Vec::new();
    let mut is_here = Vec::with_capacity(wanted.len());
    for one in wanted {
        let here = on_host(one)?;
        is_here.push(here);
        if !here {
            there.push(range(one));
        }
    }
    let fetched = fetch(order, &there)?;
    let read = |(one, here): (&Wanted, bool)| {
        let range = range(one);
        if here {
            // SAFETY: as above: Arrow C++ has the sizes of view buffers in host memory.
            return Ok(unsafe { read_host(&[Wanted::There(range)]) }.into_iter().next().unwrap_or_default());
        }
        fetched.require(range.start, range.len()).map(<[u8]>::to_vec)
    };
    wanted.iter().zip(is_here).map(read).collect()
}

fn copy_tensors(tensors: &[Tensor], transfer: &Transfer<'_>) -> Result<Vec<Tensor>> {
    let own = tensors.first().map_or(Device::CPU, Tensor::device);
    let mut arena = Arena::default();
    let mut places = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let (before, bytes) = super::span(tensor)?;
        let at = arena.place(bytes)?;
        arena.push(tensor.as_ptr().addr().wrapping_sub(before), at, bytes);
        places.push(at + before);
    }
    let order = Order::joined(tensors.iter().filter_map(Tensor::order).cloned())?;
    let keep: Owner = Arc::new(tensors.iter().map(|tensor| tensor.owner().clone()).collect::<Vec<_>>());
    // SAFETY: the tensors' owners keep the bytes from the lowest to the highest element, which are kept.
    let placed = unsafe { arena.copy(own, order.as_ref(), &keep, &[], transfer) }?;
    let copy = |(tensor, at): (&Tensor, usize)| {
        let parts = Parts {
            data: placed.start.wrapping_add(at),
            device: transfer.device,
            owner: placed.owner.clone(),
            order: placed.order.clone(),
            read_only: false,
            copied: true,
            ..tensor.parts()
        };
        super::record(tensor, transfer.why);
        // SAFETY: the bytes from the lowest to the highest element are written before whoever waits as the order says reads.
        unsafe { Tensor::from_raw_parts(parts) }.map(|copy| copy.with_codes_of(tensor))
    };
    tensors.iter().zip(places).map(copy).collect()
}

/// Pieces, and where each comes to be.
#[derive(Debug, Default)]
pub(super) struct Arena {
    pieces: Vec<Moving>,
    bytes: usize,
}

/// Memory that copies were made to.
struct Placed {
    start: *mut u8,
    owner: Owner,
    /// When it is written; `None` of ordinary host memory.
    order: Option<Order>,
}

impl Arena {
    /// Room for so many bytes.
    pub(super) fn place(&mut self, bytes: usize) -> Result<usize> {
        let too_large = || Error::new(ErrorKind::Memory, "the data is larger than memory can be");
        let at = self.bytes.checked_next_multiple_of(ALIGNMENT).ok_or_else(too_large)?;
        self.bytes = at.checked_add(bytes).filter(|end| isize::try_from(*end).is_ok()).ok_or_else(too_large)?;
        Ok(at)
    }

    /// Bytes of all places so far, and of the gaps between them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn push(&mut self, address: usize, at: usize, bytes: usize) {
        if bytes > 0 {
            self.pieces.push(Moving { address, at, bytes });
        }
    }

    /// Copies the pieces, and `scratch` to its places.
    ///
    /// # Safety
    /// The pieces are memory of `own` that `keep` keeps, and is written as `order` says.
    unsafe fn copy(
        &self,
        own: Device,
        order: Option<&Order>,
        keep: &Owner,
        scratch: &[(usize, Vec<u8>)],
        transfer: &Transfer<'_>,
    ) -> Result<Placed> {
        let job = Job { arena: self, own, order, keep, scratch, transfer };
        match (own.device_type(), transfer.device.device_type()) {
            // SAFETY: the contract.
            (_, DLDeviceType::CUDA) => unsafe { job.to_cuda() },
            // SAFETY: the contract.
            (_, DLDeviceType::CPU) => unsafe { job.to_host() },
            // SAFETY: the contract.
            (DLDeviceType::CPU, _) => unsafe { job.pinned() },
            // SAFETY: the contract.
            _ => unsafe { job.to_pinned() },
        }
    }
}

struct Job<'a> {
    arena: &'a Arena,
    own: Device,
    order: Option<&'a Order>,
    keep: &'a Owner,
    scratch: &'a [(usize, Vec<u8>)],
    transfer: &'a Transfer<'a>,
}

impl Job<'_> {
    fn stream(&self) -> Stream {
        self.transfer.stream.unwrap_or_else(order::current_stream)
    }

    fn threads(&self) -> Option<usize> {
        self.transfer.threads.map(NonZero::get)
    }

    /// Makes the device of the source current, after checking that each piece is memory of it.
    fn enter_source(&self) -> Result<Current> {
        let current = order::enter(self.own)?;
        for piece in &self.arena.pieces {
            current.check_memory(piece.address, piece.bytes, self.own)?;
        }
        Ok(current)
    }

    /// # Safety
    /// As [`Arena::copy`].
    unsafe fn to_cuda(&self) -> Result<Placed> {
        let (target, stream) = (self.transfer.device, self.stream());
        if !self.own.is_cpu() {
            self.enter_source()?;
        }
        let current = order::enter(target)?;
        require_free(&current, stream)?;
        let buffer = allocate(&current, self.arena.bytes.max(1), stream)?;
        let start = buffer.start();
        if let Some(order) = self.order {
            order.wait_in(&current, stream, Wait::CopySource)?;
        }
        // SAFETY: the contract; the buffer was made for the pieces, on this stream.
        let started = unsafe { self.start(&current, start, stream) };
        // Whatever was started reads the source, and ends before the memory is freed, which is given back on the same stream.
        let used = self.order.map_or(Ok(()), |order| order.used_by(&current, stream));
        started.and(used)?;
        let order = match written(target, &current, stream, Wait::Moved) {
            Ok(order) => order,
            Err(error) => {
                if order::settle(&current, stream).is_err() {
                    std::mem::forget(buffer);
                }
                return Err(error);
            }
        };
        let start = std::ptr::without_provenance_mut(host_address(start)?);
        Ok(Placed { start, owner: Arc::new(OwnBuffer::new(buffer, order.clone())), order: Some(order) })
    }

    /// # Safety
    /// As [`Arena::copy`]; there is room for the pieces from `target` on.
    unsafe fn start(&self, current: &Current, target: u64, stream: Stream) -> Result<()> {
        let (mut staged, mut direct) = (Vec::new(), Vec::new());
        for piece in &self.arena.pieces {
            if self.is_staged(piece)? { staged.push(*piece) } else { direct.push(*piece) }
        }
        let scratch = self.scratch.iter().filter(|(_, bytes)| !bytes.is_empty());
        staged.extend(scratch.map(|(at, bytes)| Moving {
            address: bytes.as_ptr().expose_provenance(),
            at: *at,
            bytes: bytes.len(),
        }));
        staged.sort_unstable_by_key(|piece| piece.at);
        let mut outcome = Ok(());
        let is_borrowed = self.own.is_cpu() && !direct.is_empty();
        for piece in direct {
            // SAFETY: the contract.
            outcome = unsafe { self.copy_one(current, target + u64::try_from(piece.at).unwrap_or(0), &piece, stream) };
            if outcome.is_err() {
                break;
            }
        }
        if is_borrowed {
            // Page-locked memory that was said to be ordinary is released behind the copies all the same.
            let (uses, keep) = (Order::on_device(self.transfer.device), self.keep.clone());
            let used = uses.used_by(current, stream);
            uses.release(move || drop(keep));
            outcome = outcome.and(used);
        }
        outcome?;
        // SAFETY: the contract; the source is in host memory that the host may read now.
        unsafe { staging::upload(self.transfer.device, target, &staged, stream, self.threads()) }
    }

    /// Whether a piece goes through a page-locked block of ours: ordinary memory, and what is small and may be read now.
    fn is_staged(&self, piece: &Moving) -> Result<bool> {
        let is_small = piece.bytes < COPIED_APART;
        match (self.own.device_type(), self.order) {
            (DLDeviceType::CPU, _) => Ok(is_small || !is_page_locked(piece)?),
            (DLDeviceType::CUDA_HOST, Some(order)) => Ok(is_small && order.is_complete()?),
            _ => Ok(false),
        }
    }

    /// # Safety
    /// As [`Arena::copy`]; there is room for the piece at `target`.
    unsafe fn copy_one(&self, current: &Current, target: u64, piece: &Moving, stream: Stream) -> Result<()> {
        let source = device_address(piece.address)?;
        let started = match self.own.device_type() {
            DLDeviceType::CUDA if self.own.id() != current.device().ordinal() => {
                let own = CudaDevice::get(self.own.id())?;
                // SAFETY: the contract; both are released behind the copy.
                unsafe { current.copy_from_peer(target, source, own, piece.bytes, stream) }
            }
            // SAFETY: as above.
            DLDeviceType::CUDA | DLDeviceType::CUDA_MANAGED => unsafe {
                current.copy_on_device(target, source, piece.bytes, stream)
            },
            // SAFETY: as above.
            _ => unsafe { current.copy_from_host(target, piece.address, piece.bytes, stream) },
        };
        Ok(started?)
    }

    /// # Safety
    /// As [`Arena::copy`].
    unsafe fn to_host(&self) -> Result<Placed> {
        let buffer = HostBuffer::uninitialised(self.arena.bytes)?;
        let start = buffer.as_ptr();
        if let (Some(order), false) = (self.order, self.arena.pieces.is_empty()) {
            let (current, stream) = (self.enter_source()?, self.stream());
            require_free(&current, stream)?;
            order.wait_in(&current, stream, Wait::CopySource)?;
            // SAFETY: the contract; the buffer has room for the pieces.
            let copied = unsafe { staging::download(self.own, start, &self.arena.pieces, stream, self.threads()) };
            if copied.is_err() {
                // The source may be released before an interrupted copy is done.
                order.used_by(&current, stream)?;
            }
            copied?;
        }
        // SAFETY: nobody else knows the buffer yet.
        unsafe { self.write_scratch(start) };
        Ok(Placed { start, owner: Arc::new(buffer), order: None })
    }

    /// # Safety
    /// As [`Arena::copy`]. The source is ordinary memory.
    unsafe fn pinned(&self) -> Result<Placed> {
        let device = self.transfer.device;
        let current = order::enter(device)?;
        let buffer = page_locked(&current, self.arena.bytes.max(1))?;
        let start = Start(buffer.start());
        let pieces = &self.arena.pieces;
        let threads = crate::convert::threads(self.threads(), self.arena.bytes);
        // Pieces are cut where the threads' parts are.
        hand_over::send(start.0.addr());
        let copied = for_each_part::<Error>(threads, self.arena.bytes, ALIGNMENT, |part| {
            hand_over::receive(start.at(0).addr());
            for piece in pieces {
                let (first, end) = (piece.at.max(part.start), (piece.at + piece.bytes).min(part.end));
                if first < end {
                    let source = std::ptr::with_exposed_provenance::<u8>(piece.address + (first - piece.at));
                    let place = start.at(first);
                    // SAFETY: the contract; each thread has its own part of the buffer, which nobody else knows yet.
                    unsafe { place.copy_from_nonoverlapping(source, end - first) };
                }
            }
            hand_over::send(start.at(0).addr());
            Ok(())
        });
        hand_over::receive(start.0.addr());
        copied?;
        // SAFETY: nobody else knows the buffer yet.
        unsafe { self.write_scratch(start.0) };
        let order = Order::on_device(device);
        Ok(Placed {
            start: start.0,
            owner: Arc::new(PinnedOwner { buffer: Some(buffer), order: order.clone() }),
            order: Some(order),
        })
    }

    /// # Safety
    /// As [`Arena::copy`]. The source is on CUDA.
    unsafe fn to_pinned(&self) -> Result<Placed> {
        let Some(source) = self.order else { return Err(elsewhere(self.own, self.transfer.device)) };
        let (current, stream) = (self.enter_source()?, self.stream());
        require_free(&current, stream)?;
        let buffer = page_locked(&current, self.arena.bytes.max(1))?;
        let start = buffer.start();
        // SAFETY: nobody else knows the buffer yet, and no copy goes to these bytes.
        unsafe { self.write_scratch(start) };
        source.wait_in(&current, stream, Wait::CopySource)?;
        let mut outcome = Ok(());
        for piece in &self.arena.pieces {
            let from = device_address(piece.address)?;
            // SAFETY: the contract; the buffer has room, and is read when the copy is done.
            let started =
                unsafe { current.copy_to_host_memory(start.wrapping_add(piece.at), from, piece.bytes, stream) };
            if let Err(status) = started {
                outcome = Err(Error::from(status));
                break;
            }
        }
        let used = source.used_by(&current, stream);
        let outcome = outcome.and(used);
        let device = Device::new(DLDeviceType::CUDA_HOST, current.device().ordinal());
        match outcome.and_then(|()| written(device, &current, stream, Wait::Moved)) {
            Ok(order) => {
                let owner = PinnedOwner { buffer: Some(buffer), order: order.clone() };
                Ok(Placed { start, owner: Arc::new(owner), order: Some(order) })
            }
            Err(error) => {
                // Copies may be under way, and if that cannot be known, the memory is left to them.
                if order::settle(&current, stream).is_err() {
                    std::mem::forget(buffer);
                }
                Err(error)
            }
        }
    }

    /// # Safety
    /// The memory has room for the arena, and nobody else uses it.
    unsafe fn write_scratch(&self, start: *mut u8) {
        for (at, bytes) in self.scratch {
            // SAFETY: the contract.
            unsafe { start.wrapping_add(*at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
    }
}

/// Where threads write, each its own part.
struct Start(*mut u8);

// SAFETY: an address; who writes there has its own bytes.
unsafe impl Sync for Start {}

impl Start {
    fn at(&self, byte: usize) -> *mut u8 {
        self.0.wrapping_add(byte)
    }
}

/// Whether the driver has page-locked memory that passes for ordinary.
fn is_page_locked(piece: &Moving) -> Result<bool> {
    let pointer = Pointer::of(piece.address)?;
    let is_locked = pointer.device.is_some_and(|device| device.device_type() == DLDeviceType::CUDA_HOST);
    Ok(is_locked && pointer.has(piece.address, piece.bytes))
}

/// Page-locked memory of ours, kept for the next result behind the work that may use it.
#[derive(Debug)]
struct PinnedOwner {
    buffer: Option<PinnedBuffer>,
    order: Order,
}

impl Drop for PinnedOwner {
    fn drop(&mut self) {
        let buffer = self.buffer.take();
        self.order.release(move || drop(buffer));
    }
}
