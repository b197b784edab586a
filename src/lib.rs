//! Converts Apache Arrow arrays, record batches and streams to DLPack tensors and back: without a copy where the layouts agree,
//! by one copy where they do not and the caller allows it. [`CopyLog`] records each copy with its reason and its bytes.
//!
//! ```
//! use arrow_array::{Float32Array, Int64Array};
//! use arrow_dlpack::{CopyLog, CopyMode, DType, NullPolicy, Options, array_to_tensor, to_arrow};
//!
//! // A view: the tensor shares the array's memory, and DLPack consumers get it with `READ_ONLY` set.
//! let prices = Float32Array::from(vec![1.5, 2.5]);
//! let tensor = array_to_tensor(&prices, &Options::default().copy(CopyMode::Never))?;
//! assert_eq!(tensor.as_ptr().cast_const().cast(), prices.values().as_ptr());
//!
//! // A copy, for a reason that the log names.
//! let log = CopyLog::new();
//! let counts = Int64Array::from(vec![Some(3), None]);
//! let options = Options::default().dtype(DType::Float64).nulls(NullPolicy::Nan);
//! let tensor = log.track(|| array_to_tensor(&counts, &options))?;
//! assert!(tensor.as_slice::<f64>()?[1].is_nan());
//! assert_eq!(log.entries()[0].why, "cast from int64 to float64, 1 null filled");
//!
//! // And back.
//! let array = to_arrow(&tensor, None, CopyMode::Never)?;
//! assert_eq!(array.len(), 2);
//! # Ok::<(), arrow_dlpack::Error>(())
//! ```
//!
//! # The map
//!
//! | what | where |
//! |---|---|
//! | Arrow to tensor | [`array_to_tensor`], [`to_tensor`], [`to_tensors`], [`chunks_to_tensor`], [`validity`], [`validity_bits`] |
//! | columns as a matrix | [`matrix_to_tensor`], [`groups_to_tensors`], [`matrix_validity`] |
//! | a stream as tensors | [`stream_to_tensor`], [`stream_to_tensors`] |
//! | into memory that is there | [`matrix_to_tensor_into`], [`chunks_to_tensor_into`], [`Output`] |
//! | lists and strings | [`to_ragged`], [`to_padded`], and back by [`Ragged::to_arrow`] |
//! | tensor to Arrow | [`to_arrow`], [`to_arrow_as`], [`matrix_to_arrow`] |
//! | a stream as training batches | [`loader::Batches`] |
//! | what would happen | [`explain`](fn@explain), [`explain_schema`], [`explain_stream`], [`explain_matrix`], [`explain_groups`] |
//! | what did happen | [`CopyLog`] |
//! | between the host and devices | [`transfer`] |
//! | CUDA streams, and what waits for what | [`cuda`], [`stream_order`] |
//! | DLPack structs in and out | [`dlpack`] |
//! | Arrow C structs in and out, `requested_schema` | [`arrow`], [`request_field`] |
//! | the C structs themselves | [`mod@ffi`] |
//!
//! # Types
//!
//! | Arrow | tensor | view |
//! |---|---|---|
//! | Int8 to Int64, UInt8 to UInt64, Float16, Float32, Float64 | the same | yes |
//! | Date, Time, Timestamp, Duration | int32 or int64 ticks; the unit stays in [`Tensor::field`] | yes |
//! | Boolean | bool, a byte each | no: unpacked |
//! | `arrow.bool8` | bool | if its bytes are 0 and 1 |
//! | Decimal32, Decimal64 of scale 0 | int32, int64 | yes |
//! | any Decimal | its value, cast to [`Options::dtype`] | no |
//! | any Decimal under [`DecimalMode::Unscaled`] | the stored integers | of 32 and 64 bits |
//! | FixedSizeBinary | uint8, its width as inner dimension | yes |
//! | `arrow_dlpack.` and a name of `ml_dtypes`; `lance.bfloat16` | bfloat16, float8 | yes |
//! | FixedSizeList of two floats, where a complex dtype is asked for | complex64, complex128 | yes |
//! | Dictionary | its codes, or its values ([`DictionaryMode`]) | the codes |
//! | RunEndEncoded | its values | no: decoded |
//! | FixedSizeList, nested to any depth | inner dimensions | yes |
//! | `arrow.fixed_shape_tensor` | inner dimensions, `permutation` as strides | yes |
//! | Struct, by [`matrix_to_tensor`] | a matrix of the dtype that its columns promote to | if they lie in that order |
//! | List, ListView, Utf8, Binary, their large forms, `arrow.variable_shape_tensor` | [`Ragged`] | yes, but for the offsets of a slice |
//! | Utf8View, BinaryView | [`Ragged`] | no: gathered |
//!
//! A column of several chunks is joined by a copy. Nulls of lists, of their items and of enclosing structs are all
//! nulls of the elements; [`NullPolicy`] says what becomes of them.
//!
//! # CUDA
//!
//! Arrays in CUDA memory become tensors on their device: views, or results of kernels, which unpack bits, fill nulls, cast, join
//! chunks, pack columns and write validity. Events keep the order ([`stream_order`]): the consumer's stream waits for the producer's
//! event, and the host waits only for what its answer needs, such as whether every cast value fits. [`transfer`] copies arrays,
//! streams and tensors between the host and devices, and [`loader::Batches`] copies batches ahead.
//!
//! # Not supported
//!
//! - Unions, maps, intervals and the null type are refused, with what to do instead.
//! - On CUDA nothing is decoded (runs, dictionaries, views of strings), no decimal is cast, and no rows are padded: the error
//!   says to copy the data to the host first.
//! - Memory of other devices (ROCm, oneAPI, Metal) is viewed and passed on with its event. It is neither read, copied nor converted.
//! - Nothing waits for work on a non-blocking CUDA stream that nobody named ([`Readiness::record_stream`](stream_order::Readiness::record_stream)) when memory is freed.
//!
//! # Features
//!
//! None is on by default, and the crate then needs neither Python nor CUDA.
//!
//! - `cuda`: CUDA memory, and 400 KB of kernels. The driver's library is found at run time. On a machine without a driver, as in a build
//!   without this feature, whatever needs CUDA is an error of the kind [`ErrorKind::Device`], and nothing else changes.
//! - `python`: the classes of the Python package, which other extension modules can return and accept.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod alloc;
pub mod arrow;
pub mod batch;
pub mod callback;
pub mod column;
pub mod convert;
pub mod copy_log;
pub mod cuda;
pub mod device;
pub mod dlpack;
pub mod dtype;
pub mod error;
pub mod explain;
pub mod ffi;
pub(crate) mod kernels;
pub mod loader;
pub mod matrix;
pub mod plan;
pub mod ragged;
pub mod spec;
pub mod stream_order;
pub mod tensor;
pub mod transfer;

#[cfg(feature = "python")]
pub mod python;

pub use arrow::{DeviceArray, DeviceArrayStream};
pub use batch::to_tensors;
pub use column::{
    Bits, array_to_tensor, chunks_to_tensor, chunks_to_tensor_into, to_arrow, to_arrow_as, to_tensor, validity,
    validity_bits,
};
pub use convert::request_field;
pub use copy_log::CopyLog;
pub use device::Device;
pub use dtype::DType;
pub use error::{Error, ErrorKind, Result};
pub use explain::{
    Report, ReportRow, explain, explain_groups, explain_matrix, explain_matrix_schema, explain_schema, explain_stream,
    explain_tensor,
};
pub use matrix::{
    ColumnOptions, Group, groups_to_tensors, matrix_to_arrow, matrix_to_tensor, matrix_to_tensor_into, matrix_validity,
    stream_to_tensor, stream_to_tensors,
};
pub use ragged::{Pad, Ragged, Values, chunks_to_padded, chunks_to_ragged, to_padded, to_ragged};
pub use spec::{
    CopyMode, DecimalMode, DictionaryMode, MatrixOptions, MatrixSpec, MemoryOrder, NullPolicy, Options, PandasIndex,
    Scalar,
};
pub use tensor::{Native, Output, Tensor};

/// The README's Rust code, run as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
