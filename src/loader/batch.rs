//! [`Batch`], and the answers to a request for one.

use crate::conversion::Converted;
use crate::copy_log::Copied;
use crate::tensor::Tensor;

/// A batch.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Batch {
    /// A tensor for each result with rows of one shape, in the order of the selection. No other object shares their memory.
    pub tensors: Vec<Tensor>,
    /// The results of groups of padded rows, ragged rows and Arrow columns, in the order of the selection. An Arrow batch may share the
    /// memory of the source.
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
