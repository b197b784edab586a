//! [`Batch`], and the answers to a request for one.

use crate::conversion::Converted;
use crate::copy_log::Copied;
use crate::tensor::Tensor;

/// A batch. Its results have no names: they are in the order of the selection's groups, each followed by its validity and its lengths, if
/// the group asks for them.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{ArrayRef, Int32Array, RecordBatch, RecordBatchIterator, StringArray};
/// use arrow_dlpack::loader::{Batches, LoadOptions, Place, Sharding};
/// use arrow_dlpack::{Conversion, DeviceArrayStream, Group, Pad, Scalar};
///
/// let text: ArrayRef = Arc::new(StringArray::from(vec!["to", "be!"]));
/// let label: ArrayRef = Arc::new(Int32Array::from(vec![0, 1]));
/// let rows = RecordBatch::try_from_iter([("text", text), ("label", label)])?;
/// let stream = DeviceArrayStream::from_reader(RecordBatchIterator::new([Ok(rows.clone())], rows.schema()));
///
/// let padded = Group::padded("text", Pad::new(Scalar::Int(0))).validity("mask").lengths("n");
/// let conversion = Conversion::default().groups([("x", padded), ("y", Group::column("label"))]);
/// let options = LoadOptions::new(Sharding::new(2, false, 0, 1)?);
/// for batch in Batches::new(stream, &conversion, &options, &Place::start(0))? {
///     let batch = batch?;
///     let ([y], [x, mask, n]) = (&batch.tensors[..], &batch.varied[..]) else { unreachable!() };
///     assert_eq!(y.to_vec::<i32>()?, [0, 1]);
///     assert_eq!(x.as_tensor().unwrap().to_vec::<u8>()?, b"to\0be!");
///     assert_eq!(mask.as_tensor().unwrap().shape(), [2, 3]);
///     assert_eq!(n.as_tensor().unwrap().to_vec::<i64>()?, [2, 3]);
/// }
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Batch {
    /// The tensors of the matrix, or of the groups of one column or of a matrix. No other object shares their memory.
    pub tensors: Vec<Tensor>,
    /// The results of the groups of padded rows, ragged rows and Arrow columns. An Arrow batch may share the memory of the source.
    pub varied: Vec<Converted>,
    /// How many rows they have.
    pub rows: usize,
    /// Its number among the batches of the iteration.
    #[cfg_attr(not(feature = "python"), allow(dead_code, reason = "positions are kept in Python alone"))]
    pub(crate) number: usize,
    /// The copies that made `varied`, for the logs of the thread that takes the batch.
    pub(super) copies: Vec<Copied>,
}

/// The answer to a request for a batch.
#[derive(Debug)]
#[non_exhaustive]
pub enum Next {
    /// The batch.
    Batch(Batch),
    /// It is still being made.
    NotYet,
    /// The epoch is at its end.
    End,
    /// The iteration has ended early: making a batch failed, or the iteration was closed.
    Cut,
}
