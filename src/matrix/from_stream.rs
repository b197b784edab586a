//! Entry points that convert a stream to tensors.

use std::sync::Arc;

use arrow_schema::DataType;
use smallvec::SmallVec;

use super::groups::groups_to_tensors;
use super::streamed::{Read, read};
use super::to_tensor::matrix_to_tensor;
use crate::arrow::{DeviceArray, DeviceArrayStream, empty_on};
use crate::column::chunks_to_tensor;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::spec::{Group, MatrixOptions, MatrixSpec, Options, ResultKind, ResultSpec, Spec, group_results};
use crate::tensor::Tensor;

/// Reads a stream to its end as one tensor: of record batches a matrix of shape `(rows, columns)`, as [`crate::matrix_to_tensor`] of
/// all of them makes it; else the column that the arrays are chunks of.
///
/// Arrays are let go of as they are packed: beside the result, arrays of an eighth of its size are held at most, and the one that
/// was read last. All of them are held for a column-major result of several columns, for codes of dictionaries, and on a device.
/// A single array stays where it is, if it can be the result as it lies.
///
/// # Errors
/// Those of the stream; as [`crate::matrix_to_tensor`]. What has been read by then is gone, and the rest can be read.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{ArrayRef, Float32Array, RecordBatch};
/// use arrow_dlpack::{DeviceArray, DeviceArrayStream, Device, MatrixOptions, Options, stream_to_tensor};
///
/// let x: ArrayRef = Arc::new(Float32Array::from(vec![0.5, 1.5]));
/// let batch = DeviceArray::from_record_batch(&RecordBatch::try_from_iter([("x", x.clone()), ("y", x)]).unwrap())?;
/// let batches = vec![Ok(batch.clone()), Ok(batch.clone())];
/// let mut stream = DeviceArrayStream::new(batch.field().clone(), Device::CPU.device_type(), batches.into_iter());
/// let matrix = stream_to_tensor(&mut stream, &MatrixOptions::default(), |_| Options::default())?;
/// assert_eq!(matrix.shape(), [4, 2]);
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
pub fn stream_to_tensor(
    stream: &mut DeviceArrayStream,
    matrix: &MatrixOptions,
    options: impl Fn(&str) -> Options,
) -> Result<Tensor> {
    let field = stream.field().clone();
    if let DataType::Struct(_) = field.data_type() {
        let columns = matrix.columns_of(&field);
        let spec = MatrixSpec::new(&field, columns.as_deref(), &options, matrix.dtype)?;
        let part = ResultSpec { group: None, kind: ResultKind::Matrix(Arc::new(spec)) };
        return match made(stream, &[part], matrix)? {
            Made::Arrays(arrays) => matrix_to_tensor(&field, &arrays, matrix, options),
            Made::Tensors(mut tensors) => tensors.pop().ok_or_else(|| Error::internal("no result")),
        };
    }
    let mut own = options(field.name()).copy(matrix.copy).writable(matrix.writable);
    own.dtype = matrix.dtype.or(own.dtype);
    let kind = ResultKind::Column { position: None, spec: Spec::new(&field, &own)?, options: own.clone() };
    let part = ResultSpec { group: None, kind };
    match made(stream, &[part], matrix)? {
        Made::Arrays(arrays) => chunks_to_tensor(&field, &arrays, &own),
        Made::Tensors(mut tensors) => tensors.pop().ok_or_else(|| Error::internal("no result")),
    }
}

/// As [`stream_to_tensor`], the tensors of [`crate::groups_to_tensors`].
///
/// # Errors
/// As [`stream_to_tensor`] and [`crate::groups_to_tensors`].
pub fn stream_to_tensors(
    stream: &mut DeviceArrayStream,
    groups: &[(String, Group)],
    matrix: &MatrixOptions,
    options: impl Fn(&str) -> Options,
) -> Result<Vec<(String, Tensor)>> {
    let field = stream.field().clone();
    let parts = group_results(&field, groups, matrix, &options)?;
    match made(stream, &parts, matrix)? {
        Made::Arrays(arrays) => groups_to_tensors(&field, &arrays, groups, matrix, options),
        Made::Tensors(tensors) => Ok(groups.iter().map(|(name, _)| name.clone()).zip(tensors).collect()),
    }
}

/// What came of a stream: at least one array, if it is of a device.
enum Made {
    Arrays(SmallVec<[DeviceArray; 1]>),
    Tensors(Vec<Tensor>),
}

fn made(stream: &mut DeviceArrayStream, parts: &[ResultSpec], matrix: &MatrixOptions) -> Result<Made> {
    match read(stream, parts, matrix)? {
        Read::Tensors(tensors) => Ok(Made::Tensors(tensors)),
        Read::Arrays(mut arrays) => {
            let device = Device::new(stream.device_type(), 0);
            if arrays.is_empty() && !device.is_cpu() {
                arrays.push(empty_on(stream.field().clone(), device)?);
            }
            Ok(Made::Arrays(arrays))
        }
    }
}
