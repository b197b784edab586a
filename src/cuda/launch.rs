//! Launches a kernel: over how many blocks and threads.

use std::ffi::c_void;

use super::context::Current;
use super::driver::Called;
use super::module::Kernel;
use super::stream::Stream;
use crate::error::Result;

/// Threads of a block: `THREADS` in kernels.cu.
const THREADS: u32 = 256;
/// The most blocks per multiprocessor: a multiple of 5 and 8, of which most kernels have as many there at once (docs/kernels.md), so that
/// none of them runs alone at the end.
const BLOCKS: u64 = 40;
/// The most blocks in the first dimension of a grid, and in the second one.
const MOST_ACROSS: u64 = 0x7fff_ffff;
const MOST_DOWN: u64 = 65_535;

impl Current {
    /// Launches a kernel on `stream` over `count` items, a thread each, for each of `down` columns.
    ///
    /// # Errors
    /// If the kernels could not be loaded, or the driver refuses.
    ///
    /// # Safety
    /// `parameters` point to values of the types that the kernel takes, as many as it takes; the memory that they name is
    /// there until the kernel is done.
    pub(super) unsafe fn launch(
        &self,
        kernel: Kernel,
        (count, down): (u64, u64),
        parameters: &mut [*mut c_void],
        stream: Stream,
    ) -> Result<()> {
        if count == 0 || down == 0 {
            return Ok(());
        }
        let down = down.min(MOST_DOWN);
        let most = (self.device().kernels()?.multiprocessors() * BLOCKS).div_ceil(down);
        // Each thread continues with further items.
        let blocks = count.div_ceil(u64::from(THREADS)).min(most);
        // SAFETY: as the caller says.
        unsafe { self.launch_blocks(kernel, (blocks, down), parameters, stream) }
    }

    /// Launches a kernel over `count` items, a thread each, in as many blocks as that takes: neighbours run at the same time, where those
    /// of [`Current::launch`] are a grid apart.
    ///
    /// # Errors
    /// As [`Current::launch`].
    ///
    /// # Safety
    /// As [`Current::launch`].
    pub(super) unsafe fn launch_all(
        &self,
        kernel: Kernel,
        count: u64,
        parameters: &mut [*mut c_void],
        stream: Stream,
    ) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let blocks = count.div_ceil(u64::from(THREADS)).min(MOST_ACROSS);
        // SAFETY: as the caller says.
        unsafe { self.launch_blocks(kernel, (blocks, 1), parameters, stream) }
    }

    /// # Safety
    /// As [`Current::launch`].
    unsafe fn launch_blocks(
        &self,
        kernel: Kernel,
        (blocks, down): (u64, u64),
        parameters: &mut [*mut c_void],
        stream: Stream,
    ) -> Result<()> {
        let kernels = self.device().kernels()?;
        let blocks = u32::try_from(blocks).unwrap_or(1);
        let launched: Called = {
            let (function, parameters) = (kernels.get(kernel), parameters.as_mut_ptr());
            let down = u32::try_from(down).unwrap_or(1);
            // SAFETY: parameters are as many as the kernel takes, of its types, and the memory that they name stays
            // until it is done, as promised; a block has as many threads as the kernels are made for.
            unsafe {
                self.driver().launch(
                    function,
                    blocks,
                    down,
                    1,
                    THREADS,
                    1,
                    1,
                    0,
                    stream.handle(),
                    parameters,
                    std::ptr::null_mut(),
                )
            }
        };
        Ok(launched?)
    }
}
