//! Frames as batches: the chunks of the columns, cut where any of them ends.

use std::sync::Arc;

use arrow_schema::{DataType as ArrowType, Field, FieldRef};
use polars_core::prelude::{Column, DataFrame, DataType, PlSmallStr, Series};
use smallvec::smallvec;

use super::caught::caught;
use super::field::field_of;
use super::import::{Dictionaries, chunks_of};
use crate::alloc::{Owner, fallible};
use crate::arrow::{ArrayNode, DeviceArray, host_array};
use crate::copy_log::{self, Copied};
use crate::error::{Counted, Error, Result};
use crate::spec::all_or_errors;

/// How many pieces the chunks of a frame are cut into at most: those of aligned chunks, and a million more.
const MOST_PIECES: usize = 1 << 20;

/// Returns the field of rows of these columns.
///
/// # Errors
/// If a dtype has no Arrow type. Names every such column.
pub(super) fn row_field<'a>(columns: impl Iterator<Item = (&'a PlSmallStr, &'a DataType)>) -> Result<FieldRef> {
    let fields = columns.map(|(name, dtype)| field_of(name, dtype));
    let fields: Vec<FieldRef> = all_or_errors(fields)?;
    Ok(Arc::new(Field::new("", ArrowType::Struct(fields.into()), false)))
}

/// Returns the rows of a frame as batches of this field, over the memory of its chunks.
///
/// # Errors
/// If a column has another number of rows than the frame, or the columns' chunks end in too many different rows; and as
/// [`chunks_of`]. Names the column.
pub(super) fn batches_of(
    frame: &DataFrame,
    field: &FieldRef,
    dictionaries: &mut Dictionaries,
) -> Result<Vec<DeviceArray>> {
    let ArrowType::Struct(fields) = field.data_type() else { return Err(Error::internal("rows without columns")) };
    if fields.is_empty() && frame.height() > 0 {
        return Ok(vec![batch(Vec::new(), frame.height(), field)?]);
    }
    let column = |(column, field): (&Column, &FieldRef)| {
        let series = materialised(column)?;
        let chunks = chunks_of(series, field, dictionaries)?;
        let rows = chunks.iter().fold(0, |rows, chunk| chunk.len().saturating_add(rows));
        if rows != frame.height() {
            let reason = format!("{rows} rows in a frame of {}", frame.height());
            return Err(Error::invalid(reason).in_column(field.name()));
        }
        Ok(chunks)
    };
    let columns: Vec<Vec<DeviceArray>> = frame.columns().iter().zip(fields).map(column).collect::<Result<_>>()?;
    let ends = ends_of(&columns)?;
    let mut cursors: Vec<Cursor<'_>> = columns.iter().map(|chunks| Cursor { chunks, start: 0 }).collect();
    let mut start = 0;
    let batches = ends.into_iter().map(|end| {
        let columns = cursors.iter_mut().map(|cursor| cursor.take(start, end));
        let batch = batch(fallible::collected(columns)?, end - start, field);
        start = end;
        batch
    });
    fallible::collected(batches)
}

/// The rows in which a chunk of any column ends.
fn ends_of(columns: &[Vec<DeviceArray>]) -> Result<Vec<usize>> {
    let count = columns.iter().map(Vec::len).fold(0, usize::saturating_add);
    let mut ends = fallible::with_room(count)?;
    for chunks in columns {
        let mut end = 0_usize;
        ends.extend(chunks.iter().filter(|chunk| !chunk.is_empty()).map(|chunk| {
            end = end.saturating_add(chunk.len());
            end
        }));
    }
    ends.sort_unstable();
    ends.dedup();
    if ends.len().saturating_mul(columns.len()) > count.saturating_add(MOST_PIECES) {
        let reason = format!("the chunks of {} columns end in {} different rows", columns.len(), ends.len());
        return Err(Error::argument(reason).remedy_is("align the chunks first: frame.align_chunks()"));
    }
    Ok(ends)
}

/// The chunks of a column that were not passed yet, the first of which starts at row `start`.
struct Cursor<'a> {
    chunks: &'a [DeviceArray],
    start: usize,
}

impl Cursor<'_> {
    /// Returns the rows `start..end`, which lie in one chunk and do not precede those of the call before.
    fn take(&mut self, start: usize, end: usize) -> Result<DeviceArray> {
        while let [chunk, rest @ ..] = self.chunks {
            let (from, to) = (start.saturating_sub(self.start), end.saturating_sub(self.start));
            if to <= chunk.len() {
                return Ok(if (from, to) == (0, chunk.len()) { chunk.clone() } else { chunk.clipped(&(from..to)) });
            }
            self.start = self.start.saturating_add(chunk.len());
            self.chunks = rest;
        }
        Err(Error::internal("a row behind the last chunk"))
    }
}

/// Returns columns of this many rows as an array of structs that shares their memory.
fn batch(columns: Vec<DeviceArray>, rows: usize, field: &FieldRef) -> Result<DeviceArray> {
    let children = columns.iter().map(ArrayNode::of).collect::<Result<_>>()?;
    let node = ArrayNode {
        length: rows,
        null_count: Some(0),
        buffers: smallvec![std::ptr::null()],
        children,
        ..ArrayNode::default()
    };
    let owners: Owner = Arc::new(columns.iter().map(DeviceArray::owner).collect::<Vec<_>>());
    host_array(node.export(&owners)?, field.clone())
}

/// Returns the series of a column. Polars writes out the value of a column that repeats one.
pub(super) fn materialised(column: &Column) -> Result<&Series> {
    let Some(scalar) = column.as_scalar_column() else { return Ok(column.as_materialized_series()) };
    let of_column = |error: Error| error.in_column(column.name());
    // Polars ends the process if it cannot have the memory.
    let one = caught(|| Ok(scalar.as_single_value_series().estimated_size())).map_err(of_column)?;
    let bytes = one.saturating_mul(scalar.len());
    fallible::with_room::<u8>(bytes).map_err(of_column)?;
    copy_log::record(|| Copied {
        what: format!("column {:?}: {}", column.name(), Counted(scalar.len(), "row")),
        why: "polars stores one value for all rows".to_owned(),
        bytes,
    });
    caught(|| Ok(column.as_materialized_series())).map_err(of_column)
}
