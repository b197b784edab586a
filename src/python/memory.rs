//! `memory_stats`, `collect`, `empty_cache` and `warm_up`.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyModule};
use pyo3::wrap_pyfunction;

use super::{device, exchange, loader, names};
use crate::alloc;
use crate::arrow::{forget_fields, forget_messages};
use crate::spec::{forget_matrix, forget_paths};
use crate::stream_order;

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(memory_stats, module)?)?;
    module.add_function(wrap_pyfunction!(collect, module)?)?;
    module.add_function(wrap_pyfunction!(empty_cache, module)?)?;
    module.add_function(wrap_pyfunction!(warm_up, module)?)?;
    module.add_function(wrap_pyfunction!(_host_memory, module)?)
}

/// Returns the bytes of memory that this package uses and caches, by the name of each device in use;
/// "cuda_host" is page-locked memory. Does not wait for a device. The dict is empty if no device is in use.
///
/// A device has "pool_used" and "pool_reserved" of its pool, their maxima "pool_used_peak" and
/// "pool_reserved_peak", "unpooled_used" and "unpooled_kept" of cuMemAlloc, and "allocators_used" of other
/// allocators. "waiting_blocks" counts blocks without owners that device work may still use, of other libraries
/// too; "waiting_bytes" are those of this package. Page-locked memory has "used" and "kept". "reaper" has
/// "released_blocks": blocks that the package's thread has returned by itself, of all devices.
#[pyfunction]
fn memory_stats(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let statistics = py.detach(stream_order::memory_stats)?;
    let all = PyDict::new(py);
    if statistics.devices.is_empty() {
        return Ok(all);
    }
    let add = |name: &str, figures: &[(&str, u64)]| {
        let named = PyDict::new(py);
        figures.iter().try_for_each(|(figure, value)| named.set_item(figure, value))?;
        all.set_item(name, named)
    };
    for of in &statistics.devices {
        let figures = [
            ("pool_used", of.pool_used),
            ("pool_used_peak", of.pool_used_peak),
            ("pool_reserved", of.pool_reserved),
            ("pool_reserved_peak", of.pool_reserved_peak),
            ("unpooled_used", of.unpooled_used),
            ("unpooled_kept", of.unpooled_kept),
            ("allocators_used", of.allocators_used),
            ("waiting_blocks", of.waiting_blocks),
            ("waiting_bytes", of.waiting_bytes),
        ];
        add(&of.device.to_string(), &figures)?;
    }
    add("cuda_host", &[("used", statistics.page_locked.used), ("kept", statistics.page_locked.kept)])?;
    add("reaper", &[("released_blocks", statistics.reaped_blocks)])?;
    Ok(all)
}

/// Returns to its owners all memory whose device work is done, and returns the number of blocks that still wait
/// for a device. Does not wait for a device.
///
/// A thread of this package does this by itself as work ends. Call it to know that memory is back now, for example
/// before another library allocates. `ARROW_DLPACK_REAPER=0` in the environment turns the thread off; then imports
/// and exports look at what waits.
#[pyfunction]
fn collect(py: Python<'_>) -> usize {
    py.detach(stream_order::collect)
}

/// Frees the device and page-locked memory that is cached for later results and copies. The host may wait for
/// all work of the devices. Memory in use, also by deferred frees, stays.
#[pyfunction]
fn empty_cache(py: Python<'_>) -> PyResult<()> {
    Ok(py.detach(stream_order::empty_cache)?)
}

/// Prepares a CUDA device for later calls: starts it, loads the kernels, which a driver may have to compile for a
/// second or two, and creates the memory pool, a stream and a page-locked staging buffer. The host may wait for the
/// device.
///
/// Nobody has to call this: the first call that needs one of these makes it. Call it before you measure times or
/// capture a CUDA graph.
///
/// device: a CUDA device, such as "cuda", "cuda:1", (2, 0) or the device object of another library.
///
/// Raises ConversionError (a BufferError and a ValueError) if it is no CUDA device, if there is no such device or no
/// driver, or if the driver fails; also a MemoryError if memory is out.
#[pyfunction]
#[pyo3(signature = (device, /))]
fn warm_up(py: Python<'_>, device: &Bound<'_, PyAny>) -> PyResult<()> {
    let device = device::extract(device)?;
    Ok(py.detach(|| stream_order::warm_up(device))?)
}

/// Empties this package's caches on the host, this thread's among them, and returns the bytes of host memory in use: those allocated
/// since the first call, less older ones that were freed. 0 without [`CountingAllocator`](super::CountingAllocator).
#[pyfunction]
fn _host_memory() -> isize {
    exchange::forget_tables();
    names::forget();
    loader::forget_ended();
    forget_fields();
    forget_messages();
    forget_matrix();
    forget_paths();
    alloc::bytes_in_use()
}
