//! The Python classes and functions of the package `arrow_dlpack` (feature `python`).
//!
//! Another extension module enables the feature to read its arguments with [`input`], and to give its own classes the
//! dunders of both protocols with [`protocol`]. [`register`] adds everything that the package has to a module.

mod answers;
mod array;
mod arrow_dunders;
mod arrow_input;
mod attach;
mod capsule;
mod categories;
mod column_names;
mod copy_log;
mod counts;
mod cuda_stream;
mod detach;
mod device;
mod device_request;
mod dlpack_dunders;
mod dtype;
mod dunder_order;
mod errors;
mod escapes;
mod exchange;
mod exit;
mod explain;
mod explainable;
mod from_protocols;
mod functions;
mod group;
mod group_call;
mod html;
pub mod input;
mod interrupted;
mod lent;
mod loader;
mod masked;
mod memory;
mod names;
mod nulls;
mod objects;
mod options;
mod package;
mod pandas;
mod pickle;
mod producer;
pub mod protocol;
#[cfg(feature = "pyo3-arrow")]
pub mod pyo3_arrow;
mod ragged;
mod record_batch;
mod report;
mod schema;
mod selection;
mod sources;
mod stream;
mod streamed;
mod tensor;
mod tensor_input;
mod to_arrow;
mod unpickle;
mod varied;
mod words;

use pyo3::prelude::*;

pub use array::Array;
pub use copy_log::{CopyEntry, CopyLog};
pub use cuda_stream::StreamContext;
pub use device::Device;
pub use group::Group;
pub use loader::{Loader, LoaderIterator};
pub use ragged::Ragged;
pub use record_batch::RecordBatch;
pub use report::{Report, ReportRow};
pub use stream::ArrayStream;
pub use tensor::Tensor;

pub use crate::alloc::CountingAllocator;

/// The module of the package.
const PACKAGE_MODULE: &str = "arrow_dlpack._native";

/// Adds every class, function and exception to the extension module.
///
/// # Errors
/// `ImportError` in a subinterpreter: PyO3's classes belong to one interpreter.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    // Any other module that registers the classes is an extension.
    match module.name()?.to_str()?.ends_with(PACKAGE_MODULE) {
        true => {
            protocol::prepare(py)?;
            exchange::serve(module)?;
        }
        false => protocol::init(py)?,
    }
    errors::register(module)?;
    module.add_class::<Tensor>()?;
    module.add_class::<Array>()?;
    module.add_class::<RecordBatch>()?;
    module.add_class::<ArrayStream>()?;
    module.add_class::<Ragged>()?;
    module.add_class::<Loader>()?;
    module.add_class::<LoaderIterator>()?;
    module.add_class::<Device>()?;
    module.add_class::<Report>()?;
    module.add_class::<ReportRow>()?;
    module.add_class::<CopyLog>()?;
    module.add_class::<CopyEntry>()?;
    tensor::install_fast_dlpack(py)?;
    functions::register(module)?;
    group::register(module)?;
    varied::register(module)?;
    cuda_stream::register(module)?;
    memory::register(module)?;
    unpickle::register(module)?;
    report::register(module)?;
    loader::register(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
