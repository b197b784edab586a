//! [`Transfer`]: what a caller asks of a transfer.

use std::num::NonZero;

use crate::cuda::Stream;
use crate::device::Device;

/// The target and the means of a transfer, and its reason for the copy log.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Transfer<'a> {
    /// The device that the result is on.
    pub device: Device,
    /// The stream of the copies; `None` is this thread's.
    pub stream: Option<Stream>,
    /// The number of threads that copy host memory; `None` is `ARROW_DLPACK_THREADS`, or the number of processors.
    pub threads: Option<NonZero<usize>>,
    /// What asked for it.
    pub why: &'a str,
}

impl<'a> Transfer<'a> {
    /// Returns a transfer on this thread's stream.
    #[must_use]
    pub fn to(device: Device, why: &'a str) -> Self {
        Self { device, stream: None, threads: None, why }
    }
}
