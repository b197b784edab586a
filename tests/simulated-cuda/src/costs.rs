//! What does each call, copy and kernel cost in virtual time, and on which of three machines?
//!
//! Public figures, each with its source, and assumptions that say so. Rates are in bytes per second, durations in nanoseconds.
//! They were written down before any figure of virtual time was made with them, and are not fitted to any.

use crate::block::Place;
use crate::copy::{Copy, Source};
use crate::execute::Action;
use crate::state::State;

/// What a machine does in how long.
#[derive(Debug)]
pub(crate) struct Machine {
    /// What the switch calls it.
    pub(crate) name: &'static str,
    /// Device memory, as a kernel that streams reaches it; bytes read and bytes written both count.
    memory: f64,
    /// Page-locked memory to the device, and back, by a copy engine.
    to_device: f64,
    to_host: f64,
    /// From one device to another.
    peer: f64,
    /// One thread of the host that copies from memory to memory. Pageable copies of the driver go through one, too.
    host_copy: f64,
}

/// The machines, by the names of the switch. The first is the default.
pub(crate) static MACHINES: [Machine; 3] = [
    Machine {
        name: "h100-sxm",
        // "NVIDIA H100 Tensor Core GPU" data sheet: 3.35 TB/s (SXM). See REACHED.
        memory: 3.35e12 * REACHED,
        // "NVIDIA NVbandwidth" (NVIDIA technical blog): host_to_device_memcpy_ce, 55.63 GB/s over PCIe 5.0 x16.
        to_device: 55.6e9,
        to_host: 55.6e9,
        // The same data sheet: NVLink, 900 GB/s for both directions together. See REACHED.
        peer: 450e9 * REACHED,
        // Assumed: one core of a server of 2023.
        host_copy: 10e9,
    },
    Machine {
        name: "a100-pcie",
        // "NVIDIA A100 Tensor Core GPU" data sheet: 1,935 GB/s (80 GB PCIe).
        memory: 1.935e12 * REACHED,
        // The same data sheet: PCIe 4.0, 64 GB/s for both directions together. Assumed: the share of it that the H100 reaches
        // of the 128 GB/s in its data sheet, 55.6 of 64.
        to_device: 32e9 * (55.6 / 64.0),
        to_host: 32e9 * (55.6 / 64.0),
        // Without an NVLink bridge, by PCIe.
        peer: 32e9 * (55.6 / 64.0),
        // Assumed: one core of a server of 2021.
        host_copy: 8e9,
    },
    // The same device behind four lanes of PCIe 3.0, so that copies are slower than the host: a quarter of the lanes, each of half the rate.
    Machine {
        name: "a100-x4",
        memory: 1.935e12 * REACHED,
        to_device: 32e9 * (55.6 / 64.0) / 8.0,
        to_host: 32e9 * (55.6 / 64.0) / 8.0,
        peer: 32e9 * (55.6 / 64.0) / 8.0,
        host_copy: 8e9,
    },
];

/// The share of a memory's peak that streaming code reaches. Assumed; published results of BabelStream on GPUs of these
/// generations lie about there.
const REACHED: f64 = 0.9;

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const MIB: f64 = 1024.0 * 1024.0;

/// A kernel until its first byte, on the device. "Getting Started with CUDA Graphs" (NVIDIA technical blog): launched back to
/// back, a kernel of 2.9 us takes 3.8 us.
const KERNEL: u64 = 900;
/// A copy or a fill until its first byte, on the device. Assumed.
const COPY: u64 = MICROSECOND;
/// What the legacy default stream adds to an operation that it makes wait for other streams. Assumed: one more event on the device.
pub(crate) const LEGACY_BARRIER: u64 = MICROSECOND;

/// Calls whose cost depends on nothing, in nanoseconds. Assumed where nothing else is said.
const CALLS: &[(&str, u64)] = &[
    // The blog above: launches that overlap with kernels of 2.9 us take 3.8 us each, so that a launch takes less.
    ("cuLaunchKernel", 2_500),
    ("cuMemcpyAsync", 1_500),
    ("cuMemcpyHtoDAsync_v2", 1_500),
    ("cuMemcpyDtoHAsync_v2", 1_500),
    ("cuMemcpyDtoDAsync_v2", 1_500),
    ("cuMemcpyPeerAsync", 2_000),
    ("cuMemcpy2DAsync_v2", 2_000),
    ("cuMemsetD8Async", 1_500),
    ("cuEventRecord", 500),
    ("cuEventQuery", 300),
    ("cuStreamQuery", 300),
    ("cuStreamWaitEvent", 500),
    ("cuEventCreate", 500),
    ("cuStreamCreate", 5 * MICROSECOND),
    ("cuStreamCreateWithPriority", 5 * MICROSECOND),
    ("cuMemAllocFromPoolAsync", 700),
    ("cuMemAllocAsync", 700),
    ("cuMemFreeAsync", 500),
    ("cuMemPoolCreate", 20 * MICROSECOND),
    // "Memory Allocation Overhead" (University of Virginia, CUDA support): about 50 us up to 512 KB.
    ("cuMemAlloc_v2", 50 * MICROSECOND),
    ("cuMemFree_v2", 50 * MICROSECOND),
    ("cuMemFreeHost", 50 * MICROSECOND),
];
/// Any other call. Assumed: a lock and a look-up.
const CALL: u64 = 200;
/// The first `cuInit`. Assumed: users of PyTorch see some hundred milliseconds before the first kernel, for this and a context.
pub(crate) const INITIALISATION: u64 = 100 * MILLISECOND;
/// The first retention of a primary context. Assumed: see above.
pub(crate) const CONTEXT: u64 = 150 * MILLISECOND;
/// A module from PTX. Measured: ptxas 12.9 takes 1.6 s for the kernels of this package and sm_90.
pub(crate) const PTX: u64 = 1_600 * MILLISECOND;
/// A module from a cubin. Assumed: a copy of some hundred kilobytes to the device, and the driver's tables.
pub(crate) const CUBIN: u64 = 2 * MILLISECOND;

/// What a call costs by its name alone.
pub(crate) fn of_call(name: &str) -> u64 {
    CALLS.iter().find(|(call, _)| *call == name).map_or(CALL, |(_, cost)| *cost)
}

/// What it costs to lock pages of the host. The same page of the University of Virginia: 61 ms for 512 MB.
pub(crate) fn of_pinning(bytes: u64) -> u64 {
    100 * MICROSECOND + (bytes as f64 / MIB * 119_000.0) as u64
}

/// What it costs when a pool takes memory from the device. Assumed: as much as `cuMemAlloc`, and 10 us for each MiB.
pub(crate) fn of_growth(bytes: u64) -> u64 {
    if bytes == 0 { 0 } else { 50 * MICROSECOND + (bytes as f64 / MIB * 10_000.0) as u64 }
}

/// Which part of a device does an operation: it does one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Kernels,
    CopiesIn,
    CopiesOut,
}

/// What an operation takes of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) part: Part,
    pub(crate) duration: u64,
    pub(crate) bytes: u64,
}

/// Bytes that a kernel has touched: of device memory, and of the host's.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Touched {
    pub(crate) device: u64,
    pub(crate) host: u64,
}

impl Machine {
    /// Bytes at a rate.
    fn at(bytes: u64, rate: f64) -> u64 {
        (bytes as f64 / rate * 1e9).ceil() as u64
    }

    /// A step of one host thread that reads or writes as many bytes as it copies.
    pub(crate) fn host_copy(&self, bytes: u64) -> u64 {
        Machine::at(bytes, self.host_copy)
    }
}

impl State {
    /// What an operation takes of its device, after it has run; `None` for one that takes nothing.
    pub(crate) fn work_of(&self, action: &Action, touched: Touched) -> Option<Work> {
        let machine = self.settings.machine;
        let work = |part, latency, bytes, rate| Work { part, duration: latency + Machine::at(bytes, rate), bytes };
        Some(match action {
            Action::Marker | Action::Allocate(_) | Action::Free(_) | Action::Host { .. } | Action::Gate(_) => {
                return None;
            }
            Action::Busy(duration) => Work { part: Part::Kernels, duration: *duration, bytes: 0 },
            Action::Fill(fill) => work(Part::Kernels, COPY, fill.width * fill.count, machine.memory),
            Action::Kernel(_) => {
                let of_memory = work(Part::Kernels, KERNEL, touched.device, machine.memory);
                let bytes = touched.device + touched.host;
                Work { duration: of_memory.duration + Machine::at(touched.host, machine.to_device), bytes, ..of_memory }
            }
            Action::Copy(copy) => {
                let bytes = copy.width * copy.height;
                let (part, rate, factor) = self.way_of(copy);
                let moved = work(part, COPY, bytes * factor, rate);
                Work { bytes, ..moved }
            }
        })
    }

    /// Which engine copies, at which rate, and how often each byte counts there.
    fn way_of(&self, copy: &Copy) -> (Part, f64, u64) {
        let machine = self.settings.machine;
        let on_device = |address| self.memory.find(address).filter(|block| block.place == Place::Device);
        let from = match copy.source {
            Source::Known(address) => on_device(address),
            Source::Pageable(_) | Source::Snapshot(_) => return (Part::CopiesIn, machine.host_copy, 1),
        };
        let to = on_device(copy.destination);
        match (from, to) {
            (Some(_), _) if copy.to_pageable => (Part::CopiesOut, machine.host_copy, 1),
            (Some(from), Some(to)) if from.device == to.device => (Part::Kernels, machine.memory, 2),
            (Some(_), Some(_)) => (Part::CopiesOut, machine.peer, 1),
            (Some(_), None) => (Part::CopiesOut, machine.to_host, 1),
            (None, _) => (Part::CopiesIn, machine.to_device, 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_with_a_cost_is_one_of_the_driver() {
        let sources = [
            include_str!("exports/copy.rs"),
            include_str!("exports/device.rs"),
            include_str!("exports/event.rs"),
            include_str!("exports/host.rs"),
            include_str!("exports/memory.rs"),
            include_str!("exports/module.rs"),
            include_str!("exports/pool.rs"),
            include_str!("exports/stream.rs"),
        ];
        for (name, _) in CALLS {
            assert!(sources.iter().any(|source| source.contains(&format!(" fn {name}("))), "{name}");
        }
    }

    #[test]
    fn rates_are_bytes_per_second() {
        assert_eq!(MACHINES[0].host_copy(10_000_000), 1_000_000);
        assert_eq!(MACHINES[1].host_copy(0), 0);
        assert!((60_000_000..62_000_000).contains(&of_pinning(512 << 20)));
    }
}
