//! Apache Arrow arrays, batches and streams as DLPack tensors and back.

pub mod alloc;
pub mod arrow;
pub mod batch;
pub mod column;
pub mod convert;
pub mod copy_log;
pub mod device;
pub mod dlpack;
pub mod dtype;
pub mod error;
pub mod explain;
pub mod ffi;
pub mod plan;
pub mod spec;
pub mod tensor;

pub use arrow::{DeviceArray, DeviceArrayStream};
pub use batch::to_tensors;
pub use column::{array_to_tensor, chunks_to_tensor, to_arrow, to_tensor, validity};
pub use convert::request_field;
pub use copy_log::CopyLog;
pub use device::Device;
pub use dtype::DType;
pub use error::{Error, ErrorKind, Result};
pub use explain::{Report, ReportRow, explain, explain_schema};
pub use spec::{CopyMode, NullPolicy, Options, Scalar};
pub use tensor::Tensor;
#[cfg(feature = "python")]
pub mod python;
