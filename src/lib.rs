//! Converts Apache Arrow arrays, record batches and streams to DLPack tensors and back, as views if the layouts agree.
//!
//! If they do not, a conversion copies once, unless the caller forbids it. [`CopyLog`] records each copy with its reason
//! and its bytes.
//!
//! ```
//! use arrow_array::{Float32Array, Int64Array};
//! use arrow_dlpack::{Conversion, CopyLog, CopyMode, DType, NullPolicy, to_arrow};
//!
//! // A view: the tensor shares the array's memory, and its DLPack capsules carry the read-only flag.
//! let prices = Float32Array::from(vec![1.5, 2.5]);
//! let tensor = Conversion::default().copy(CopyMode::Never).to_tensor(&prices)?;
//! assert_eq!(tensor.as_ptr().cast_const().cast(), prices.values().as_ptr());
//!
//! // A copy. The log names the reason.
//! let log = CopyLog::new();
//! let counts = Int64Array::from(vec![Some(3), None]);
//! let conversion = Conversion::default().dtype(DType::Float64).nulls(NullPolicy::Nan);
//! let tensor = log.track(|| conversion.to_tensor(&counts))?;
//! assert!(tensor.as_slice::<f64>()?[1].is_nan());
//! assert_eq!(log.entries()[0].why, "cast from int64 to float64, 1 null filled");
//!
//! // Back to Arrow: a view.
//! let array = to_arrow(&tensor, None, CopyMode::Never)?;
//! assert_eq!(array.len(), 2);
//! # Ok::<(), arrow_dlpack::Error>(())
//! ```
//!
//! # The map
//!
//! | what | where |
//! |---|---|
//! | what is asked for: columns, dtype, nulls, memory order, copies, threads | [`Conversion`], [`Selection`], [`Group`], [`PerColumn`] |
//! | Arrow to a tensor, or to one for each column or group | [`Conversion::to_tensor`], [`Conversion::to_tensors`], [`to_tensor`] |
//! | into the caller's memory | [`Conversion::write`], [`Output`] |
//! | which values are null | [`Conversion::validity`], [`Conversion::validity_bits`] |
//! | lists and strings | [`Conversion::ragged`], [`Conversion::padded`], and back by [`Ragged::to_arrow`] |
//! | a stream as tensors | [`Conversion::read_tensor`], [`Conversion::read_tensors`] |
//! | what a conversion would do | [`Conversion::plan`], [`Conversion::explain`], [`Conversion::explain_type`], [`Conversion::check`] |
//! | what data a conversion takes | [`Chunks`]: [`DeviceArray`]s, record batches and arrays of arrow-rs; classes of pyo3-arrow |
//! | a vector, an owner or raw parts as a tensor, and back | [`Tensor::from_vec`], [`Tensor::from_owner`], [`Tensor::from_raw_parts`], [`Tensor::to_vec`], [`Tensor::as_slice`] |
//! | views of a tensor | [`Tensor::slice`], [`Tensor::reshape`], [`Tensor::contiguous`] |
//! | tensor to Arrow | [`ArrowConversion`]; [`to_arrow`], [`to_arrow_as`], [`matrix_to_arrow`]; [`explain_to_arrow`], [`explain_matrix_to_arrow`], [`explain_ragged_to_arrow`] |
//! | record batches and readers of arrow-rs, and back | [`DeviceArray::from_record_batch`], [`DeviceArray::to_record_batch`], [`DeviceArrayStream::from_reader`], [`DeviceArrayStream::into_reader`] |
//! | errors of other causes, and of arrow-rs | [`Error::producer`], `From<ArrowError>` and back |
//! | a stream as training batches | [`loader::Batches`] |
//! | asynchronous streams as sources, and batches as one (feature `async`) | `channel`, `Batches::into_stream` |
//! | slices of cudarc as tensors, and back (feature `cuda`) | `Tensor::from_cuda_slice`, `Tensor::as_cuda_slice` |
//! | the copies that were made | [`CopyLog`] |
//! | copies between the host and devices | [`transfer`] |
//! | CUDA streams and events | [`cuda`], [`stream_order`] |
//! | import and export of DLPack structs | [`dlpack`] |
//! | import and export of Arrow C structs, `requested_schema` | [`arrow`], [`request_field`] |
//! | the C structs | [`mod@ffi`] |
//!
//! # Types
//!
//! | Arrow | tensor | view |
//! |---|---|---|
//! | Int8 to Int64, UInt8 to UInt64, Float16, Float32, Float64 | the same | yes |
//! | Date, Time, Timestamp, Duration | int32 or int64 ticks; the unit stays in [`Tensor::field`] | yes |
//! | Boolean | bool, one byte each | no: unpacked |
//! | `arrow.bool8` | bool | if its bytes are 0 and 1 |
//! | Decimal32, Decimal64 of scale 0 | int32, int64 | yes |
//! | any Decimal | its value, cast to [`Conversion::dtype`] | no |
//! | any Decimal under [`DecimalMode::Unscaled`] | the stored integers | of 32 and 64 bits |
//! | FixedSizeBinary | uint8, its width as inner dimension | yes |
//! | the extension types `arrow_dlpack.bfloat16`, `arrow_dlpack.float8_e4m3fn`, ...; `lance.bfloat16` | bfloat16, float8 | yes |
//! | FixedSizeList of two floats, if a complex dtype is requested | complex64, complex128 | yes |
//! | Dictionary | its codes, or its values ([`DictionaryMode`]) | the codes |
//! | RunEndEncoded | its values | no: decoded |
//! | FixedSizeList, nested to any depth | inner dimensions | yes |
//! | `arrow.fixed_shape_tensor` | inner dimensions, `permutation` as strides | yes |
//! | Struct, by [`Conversion::to_tensor`] | a matrix of the dtype that its columns promote to | if the columns lie in its memory order |
//! | List, ListView, Utf8, Binary, their large forms, `arrow.variable_shape_tensor` | [`Ragged`] | yes, except the offsets of a slice |
//! | Utf8View, BinaryView | [`Ragged`] | no: gathered |
//!
//! A copy joins the chunks of a column. Nulls of lists, of their items and of enclosing structs are all nulls of the
//! elements; [`NullPolicy`] decides what happens to them.
//!
//! # CUDA
//!
//! Arrays in CUDA memory become tensors on their device: views, or results of kernels. Kernels unpack bits, fill nulls,
//! cast, join chunks, pack columns and write validity. Events keep the order ([`stream_order`]): the consumer's stream
//! waits for the producer's event, and the host waits only if its answer needs that, such as whether every cast value
//! fits. [`transfer`] copies arrays, streams and tensors between the host and devices, and [`loader::Batches`]
//! prefetches batches to a device.
//!
//! # Not supported
//!
//! - Unions, maps, intervals and the null type have no tensor form. The error names the alternative.
//! - On CUDA, string views are not gathered, decimals of 256 bits are not cast, only numbers of dictionaries and of runs are
//!   decoded, and ragged rows are made of one chunk, and not of `arrow.variable_shape_tensor`. The error says to copy the data to
//!   the host first.
//! - Memory of other devices (ROCm, oneAPI, Metal) can be viewed and passed on with its event, but not read, copied or
//!   converted.
//! - Frees do not wait for work on a non-blocking CUDA stream that nobody named by
//!   [`Readiness::record_stream`](stream_order::Readiness::record_stream).
//!
//! # Features
//!
//! No feature is on by default, and the crate then needs neither Python nor CUDA.
//!
//! - `async`: `channel` makes a source of a future, and `Batches::into_stream` an
//!   asynchronous stream of batches. It adds `futures-core` alone: any executor runs them.
//! - `cuda`: CUDA memory, 190 KB of kernels, and slices of the crate cudarc as tensors and back. The driver's library is
//!   found at run time. Without a driver, as in a build without this feature, every CUDA request is an error of the kind
//!   [`ErrorKind::Device`], and nothing else changes.
//! - `polars`: the module `polars`: series and frames over the same memory, and back. Outside the promise of semver.
//! - `ndarray`: `Tensor::as_ndarray` and its way back. Outside the promise of semver.
//! - `pyo3-arrow`: the classes of the crate pyo3-arrow to and from this crate's arrays and streams, in `python::pyo3_arrow`. With PyO3 0.30
//!   alone. Outside the promise of semver.
//! - `python`: the classes of the Python package, which other extension modules can return and accept.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(target_endian = "big")]
compile_error!("arrow-dlpack reads and writes little-endian memory, and no other");

mod alloc;
pub mod arrow;
mod batch;
mod callback;
mod categories;
mod column;
mod conversion;
mod convert;
mod copy_log;
pub mod cuda;
#[cfg(feature = "cuda")]
mod cuda_slice;
mod device;
pub mod dlpack;
pub mod dtype;
mod error;
mod explain;
pub mod ffi;
mod kernels;
pub mod loader;
mod matrix;
#[cfg(feature = "ndarray")]
mod ndarray;
mod plan;
#[cfg(feature = "polars")]
pub mod polars;
mod ragged;
mod spec;
pub mod stream_order;
mod tensor;
pub mod transfer;

#[cfg(feature = "python")]
pub mod python;

pub use arrow::{Chunks, DeviceArray, DeviceArrayStream};
#[cfg(feature = "async")]
pub use arrow::{Sender, channel};
pub use categories::Categories;
pub use column::{Bits, to_arrow, to_arrow_as};
pub use conversion::{ArrowConversion, ConversionPlan, Converted, to_tensor};
pub use convert::{check_request, copy_array, request_field};
pub use copy_log::{Copied, CopyLog, LogScope};
#[cfg(feature = "cuda")]
pub use cuda_slice::CudaSliceGuard;
pub use device::Device;
pub use dtype::DType;
pub use error::{Error, ErrorKind, Result};
pub use explain::{Report, ReportRow, explain_matrix_to_arrow, explain_ragged_to_arrow, explain_to_arrow};
pub use matrix::{ColumnOptions, matrix_to_arrow};
pub use ragged::{Ragged, Values};
pub use spec::{
    Conversion, CopyMode, DecimalMode, DictionaryMode, Group, MemoryOrder, NullPolicy, Pad, PandasIndex, PerColumn,
    Scalar, Selection, Side,
};
pub use tensor::{Native, Output, Owner, Tensor};
/// The crates of Arrow whose types are in this crate's signatures, in the version that it is built with.
pub use {arrow_array, arrow_schema};

/// Runs the README's Rust code as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
