//! Launches a kernel: over how many blocks and threads.

use std::ffi::c_void;

use super::context::Current;
use super::driver::Called;
use super::module::Kernel;
use super::stream::Stream;
use crate::error::Result;

/// Threads of a block: `THREADS` in kernel_types.cuh.
const THREADS: u32 = 256;
/// The most blocks per multiprocessor: a multiple of 5 and 8, of which most kernels have as many there at once (docs/kernels.md), so that
/// none of them runs alone at the end. With 40, and so more steps of each block, an H100 took 2 to 3 % longer.
const BLOCKS: u64 = 160;
/// The most of a kernel whose blocks all add to the same numbers in the end.
const ADDING_BLOCKS: u64 = 40;
/// The most blocks in the second dimension of a grid.
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
        let kernels = self.device().kernels()?;
        let down = down.min(MOST_DOWN);
        let adds = matches!(kernel, Kernel::CountNulls | Kernel::MeasureRows);
        let most = (kernels.multiprocessors() * if adds { ADDING_BLOCKS } else { BLOCKS }).div_ceil(down);
        // Each thread continues with further items.
        let blocks = u32::try_from(count.div_ceil(u64::from(THREADS)).min(most)).unwrap_or(1);
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
