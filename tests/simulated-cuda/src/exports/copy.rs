//! Copies and fills.

use std::ffi::c_void;

use super::{In, driver};
use crate::call::Call;
use crate::copy::{Rectangle, Waits};
use crate::error::{Error, Outcome};
use crate::execute::Fill;

/// `CUDA_MEMCPY2D`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Copy2D {
    source: End,
    destination: End,
    width: usize,
    height: usize,
}

/// One end of [`Copy2D`].
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct End {
    x_in_bytes: usize,
    y: usize,
    /// 1 is the host, 2 a device, 3 an array, 4 any address.
    memory_type: u32,
    host: u64,
    device: u64,
    array: u64,
    pitch: usize,
}

const _: () = assert!(size_of::<Copy2D>() == 128);

impl End {
    fn address(&self) -> Outcome<u64> {
        let base = match self.memory_type {
            1 => self.host,
            2 | 4 => self.device,
            3 => return Err(Error::NOT_SUPPORTED),
            _ => return Err(Error::INVALID_VALUE),
        };
        let offset = self.y.checked_mul(self.pitch).and_then(|rows| rows.checked_add(self.x_in_bytes));
        offset.and_then(|offset| base.checked_add(offset as u64)).ok_or(Error::INVALID_VALUE)
    }
}

fn rectangle(copy: Copy2D) -> Outcome<Rectangle> {
    Ok(Rectangle {
        destination: copy.destination.address()?,
        destination_pitch: copy.destination.pitch as u64,
        source: copy.source.address()?,
        source_pitch: copy.source.pitch as u64,
        width: copy.width as u64,
        height: copy.height as u64,
        between: None,
    })
}

/// A copy from the memory of one context to that of another.
fn between(call: &Call, (to, from): (usize, usize), copy: Rectangle) -> Outcome<Rectangle> {
    call.check_context(to)?;
    call.check_context(from)?;
    Ok(Rectangle { between: Some((call.contexts[&to].device, call.contexts[&from].device)), ..copy })
}

fn queue(call: &mut Call, stream: usize, rectangle: Rectangle) -> Outcome {
    let stream = call.stream(stream)?;
    call.copy(stream, rectangle, Waits::No)
}

/// A copy on the legacy default stream, which no capture can be waiting for.
fn at_once(call: &mut Call, rectangle: Rectangle, waits: Waits) -> Outcome {
    let stream = call.stream(0)?;
    call.unsafe_while_capturing()?;
    call.copy(stream, rectangle, waits)
}

fn set(call: &mut Call, stream: usize, fill: Fill, waits: Waits) -> Outcome {
    let stream = call.stream(stream)?;
    if waits != Waits::No {
        call.unsafe_while_capturing()?;
    }
    call.fill(stream, fill, waits)
}

fn bytes(address: u64, value: u8, count: usize) -> Fill {
    Fill { address, pattern: [value; 4], width: 1, count: count as u64 }
}

fn halves(address: u64, value: u16, count: usize) -> Fill {
    let [low, high] = value.to_ne_bytes();
    Fill { address, pattern: [low, high, low, high], width: 2, count: count as u64 }
}

fn words(address: u64, value: u32, count: usize) -> Fill {
    Fill { address, pattern: value.to_ne_bytes(), width: 4, count: count as u64 }
}

driver! {
    /// Queues a copy between any two addresses.
    fn cuMemcpyAsync(to: u64, from: u64, count: usize, stream: usize) |call| {
        queue(call, stream, Rectangle::line(to, from, count))
    }

    /// Queues a copy from the host.
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, count: usize, stream: usize) |call| {
        queue(call, stream, Rectangle::line(to, from as u64, count))
    }

    /// Queues a copy to the host.
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, count: usize, stream: usize) |call| {
        queue(call, stream, Rectangle::line(to as u64, from, count))
    }

    /// Queues a copy within the device.
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, count: usize, stream: usize) |call| {
        queue(call, stream, Rectangle::line(to, from, count))
    }

    /// Queues a copy between the memories of two contexts.
    fn cuMemcpyPeerAsync(to: u64, to_context: usize, from: u64, from_context: usize, count: usize, stream: usize) |call| {
        let copy = between(call, (to_context, from_context), Rectangle::line(to, from, count))?;
        queue(call, stream, copy)
    }

    /// Copies between any two addresses.
    fn cuMemcpy(to: u64, from: u64, count: usize) |call| {
        at_once(call, Rectangle::line(to, from, count), Waits::Host)
    }

    /// Copies from the host.
    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, count: usize) |call| {
        at_once(call, Rectangle::line(to, from as u64, count), Waits::Host)
    }

    /// Copies to the host.
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, count: usize) |call| {
        at_once(call, Rectangle::line(to as u64, from, count), Waits::Host)
    }

    /// Copies within the device. The host does not learn when it is done.
    fn cuMemcpyDtoD_v2(to: u64, from: u64, count: usize) |call| {
        at_once(call, Rectangle::line(to, from, count), Waits::Perhaps)
    }

    /// Copies between the memories of two contexts. The host does not learn when it is done.
    fn cuMemcpyPeer(to: u64, to_context: usize, from: u64, from_context: usize, count: usize) |call| {
        let copy = between(call, (to_context, from_context), Rectangle::line(to, from, count))?;
        at_once(call, copy, Waits::Perhaps)
    }

    /// Queues a copy of a rectangle.
    fn cuMemcpy2DAsync_v2(copy: In<Copy2D>, stream: usize) |call| { queue(call, stream, rectangle(copy.get(0)?)?) }

    /// Copies a rectangle.
    fn cuMemcpy2D_v2(copy: In<Copy2D>) |call| { at_once(call, rectangle(copy.get(0)?)?, Waits::Host) }

    /// Copies a rectangle.
    fn cuMemcpy2DUnaligned_v2(copy: In<Copy2D>) |call| { at_once(call, rectangle(copy.get(0)?)?, Waits::Host) }

    /// Queues a fill with a byte.
    fn cuMemsetD8Async(address: u64, value: u8, count: usize, stream: usize) |call| {
        set(call, stream, bytes(address, value, count), Waits::No)
    }

    /// Queues a fill with two bytes.
    fn cuMemsetD16Async(address: u64, value: u16, count: usize, stream: usize) |call| {
        set(call, stream, halves(address, value, count), Waits::No)
    }

    /// Queues a fill with four bytes.
    fn cuMemsetD32Async(address: u64, value: u32, count: usize, stream: usize) |call| {
        set(call, stream, words(address, value, count), Waits::No)
    }

    /// Fills with a byte. The host does not learn when it is done.
    fn cuMemsetD8_v2(address: u64, value: u8, count: usize) |call| {
        set(call, 0, bytes(address, value, count), Waits::Perhaps)
    }

    /// Fills with two bytes. The host does not learn when it is done.
    fn cuMemsetD16_v2(address: u64, value: u16, count: usize) |call| {
        set(call, 0, halves(address, value, count), Waits::Perhaps)
    }

    /// Fills with four bytes. The host does not learn when it is done.
    fn cuMemsetD32_v2(address: u64, value: u32, count: usize) |call| {
        set(call, 0, words(address, value, count), Waits::Perhaps)
    }
}
