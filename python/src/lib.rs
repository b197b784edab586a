//! The extension module `arrow_dlpack._native`: everything is in the crate `arrow-dlpack`, feature `python`.

use arrow_dlpack::python::CountingAllocator;
use pyo3::prelude::*;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The native half of the package `arrow_dlpack`.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    arrow_dlpack::python::register(module)
}
