//! [`PlannedRows`]: rows of different lengths, padded rows, or an Arrow batch, with their plan.

use std::fmt;

use arrow_data::ArrayData;
use arrow_schema::FieldRef;

use super::converted::Converted;
use crate::alloc::fallible;
use crate::arrow::{DeviceArray, Validated};
use crate::convert::{bytes_of_rows, join_data};
use crate::error::Result;
use crate::plan::{Action, Placement, Plan};
use crate::ragged::{Part, PlannedPadded, PlannedRagged, parts_of};
use crate::spec::CopyMode;
use crate::transfer::bytes_of_copy;

/// Rows that are about to be made: what will be done is decided, and no element was read.
#[derive(Debug)]
pub(crate) enum PlannedRows {
    /// Values and offsets.
    Ragged(Box<PlannedRagged>),
    /// A matrix, and its validity and its lengths where they are asked for.
    Padded { rows: PlannedPadded, has_validity: bool, has_lengths: bool },
    /// An Arrow batch.
    Arrow(PlannedBatch),
}

impl PlannedRows {
    /// Refuses a copy that is not allowed, or that nothing makes.
    ///
    /// # Errors
    /// Names the column.
    pub(super) fn refuse(&self) -> Result<()> {
        match self {
            Self::Ragged(rows) => rows.refuse(),
            Self::Padded { rows, has_lengths, .. } => {
                rows.refuse()?;
                let lengths = has_lengths.then(|| rows.lengths_part());
                lengths.and_then(|lengths| lengths.error).map_or(Ok(()), Err)
            }
            Self::Arrow(batch) => batch.plan.refuse_steps(batch.copy),
        }
    }

    /// Returns what will be done for each tensor of ragged or padded rows.
    ///
    /// # Errors
    /// For a null element that will be refused.
    pub(super) fn parts(&self) -> Result<Vec<Part>> {
        match self {
            Self::Ragged(rows) => parts_of(rows),
            Self::Padded { rows, has_validity, has_lengths } => {
                let lengths = has_lengths.then(|| rows.lengths_part());
                Ok(padded_parts(rows.parts()?, *has_validity, lengths))
            }
            Self::Arrow(_) => Ok(Vec::new()),
        }
    }

    /// The result, and then its validity and its lengths, where they are asked for.
    ///
    /// # Errors
    /// As [`PlannedRows::refuse`]; for a null element that is refused, and a value that a cast cannot take; when an allocation fails.
    pub(super) fn run(self) -> Result<Vec<Converted>> {
        match self {
            Self::Ragged(rows) => rows.run().map(|rows| vec![rows.into()]),
            Self::Arrow(batch) => batch.run().map(|batch| vec![Converted::Arrow(batch)]),
            Self::Padded { rows, has_validity, has_lengths } => {
                let (matrix, validity) = rows.run()?;
                let lengths = has_lengths.then(|| rows.lengths()).transpose()?;
                let validity = has_validity.then_some(validity);
                Ok(std::iter::once(matrix).chain(validity).chain(lengths).map(Converted::Tensor).collect())
            }
        }
    }
}

/// The parts of a matrix that are asked for, of those of the matrix and of its validity. Validity is always made beside the matrix.
pub(super) fn padded_parts(both: Vec<Part>, has_validity: bool, lengths: Option<Part>) -> Vec<Part> {
    let mut parts = both;
    if let (false, [matrix, validity]) = (has_validity, parts.as_mut_slice()) {
        matrix.plan.bytes = matrix.plan.bytes.saturating_add(validity.plan.bytes);
        parts.truncate(1);
    }
    parts.extend(lengths);
    parts
}

/// Chunks that are about to become one Arrow batch: the only one that has rows, or a copy of all.
pub(crate) struct PlannedBatch {
    field: FieldRef,
    pub(super) copy: CopyMode,
    pub(super) plan: Plan,
    batch: BatchChunks,
}

enum BatchChunks {
    Only(DeviceArray),
    Joined(Vec<ArrayData>),
}

impl fmt::Debug for PlannedBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlannedBatch").field("field", &self.field).field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl PlannedBatch {
    /// Plans arrays of this field. [`PlannedRows::refuse`] refuses to join those of a device.
    ///
    /// # Errors
    /// When an array breaks the Arrow format.
    pub(super) fn new(field: &FieldRef, chunks: &[DeviceArray], copy: CopyMode) -> Result<Self> {
        let rows = DeviceArray::rows_of(chunks);
        let mut filled = chunks.iter().filter(|chunk| !chunk.is_empty());
        let only = match (filled.next(), filled.next()) {
            (first, None) if copy != CopyMode::Always => first.or(chunks.first()),
            _ => None,
        };
        let device = DeviceArray::device_of(chunks);
        let placement = if device.is_cpu() { Placement::Host } else { Placement::Views(device) };
        let (bytes, batch) = match only {
            Some(only) => (None, BatchChunks::Only(only.clone())),
            // Arrow tells no sizes of buffers, and nothing reads the offsets of what is not copied.
            None if !device.is_cpu() => (Some(0), BatchChunks::Joined(Vec::new())),
            None => {
                let known = Validated::default();
                let read = |chunk: &DeviceArray| chunk.to_arrow_of_many(&known).map(|array| array.to_data());
                let read = fallible::collected(chunks.iter().map(read))?;
                (Some(bytes_of_rows(&whole(&read))?), BatchChunks::Joined(read))
            }
        };
        let plan = Plan::of_bytes(rows, bytes.filter(|_| !chunks.is_empty()), Action::JoinRows);
        let plan = Plan { placement, ..plan };
        Ok(Self { field: field.clone(), copy, plan, batch })
    }

    /// The bytes of a copy of the rows on another device; of rows that are joined first, those that the join writes. `None` if only offsets
    /// in a device's memory tell.
    pub(super) fn bytes_of_copy(&self) -> Option<usize> {
        match &self.batch {
            BatchChunks::Only(array) => bytes_of_copy(array, &[]),
            BatchChunks::Joined(_) => Some(self.plan.bytes),
        }
    }

    fn run(self) -> Result<DeviceArray> {
        self.plan.refuse_steps(self.copy)?;
        match self.batch {
            BatchChunks::Only(only) => Ok(only),
            BatchChunks::Joined(read) => join_data(&self.field, &whole(&read)),
        }
    }
}

/// All rows of arrays.
fn whole(read: &[ArrayData]) -> Vec<(&ArrayData, std::ops::Range<usize>)> {
    read.iter().map(|data| (data, 0..data.len())).collect()
}
