//! Reads the validity of a batch's columns from a tensor of bools.

use std::sync::Arc;

use crate::alloc::fallible;
use crate::column::{Bitmap, require_host};
use crate::convert::{pack_bools_into, split_rows};
use crate::copy_log::{self, Copied};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::Tensor;

/// Which rows of which columns are valid.
#[derive(Debug)]
pub(super) enum Validity {
    /// The same ones in each.
    Rows(Bitmap),
    /// Those of each column.
    Elements(Vec<Bitmap>),
}

impl Validity {
    /// The bitmaps of a bool tensor with an element for each row, or for each column of each row.
    pub(super) fn of(valid: &Tensor, rows: usize, columns: usize, threads: Option<usize>) -> Result<Self> {
        if valid.ndim() < 2 {
            return Bitmap::of_rows(valid, rows).map(Self::Rows);
        }
        require_host(valid.device(), "")?;
        let extent = |axis: usize| valid.shape().get(axis).and_then(|extent| usize::try_from(*extent).ok());
        if valid.dtype() != DType::Bool || valid.ndim() != 2 || (extent(0), extent(1)) != (Some(rows), Some(columns)) {
            return Err(Error::argument(format!(
                "validity must be one bool for each of the {rows} rows, or of shape ({rows}, {columns}), and is {} of \
                 shape {:?}",
                valid.dtype(),
                valid.shape()
            )));
        }
        let dense = rows < 2 || valid.strides().first() == Some(&1);
        let split = if dense { None } else { Some(split_rows(valid, threads, "validity split into columns")?) };
        let columns = 0..columns;
        let tensors =
            columns.map(|column| split.as_ref().unwrap_or(valid).column(column)).collect::<Result<Vec<_>>>()?;
        pack(&tensors, rows).map(Self::Elements)
    }

    /// The bitmap of a column.
    pub(super) fn column(&self, index: usize) -> Option<Bitmap> {
        match self {
            Self::Rows(bitmap) => Some(bitmap.clone()),
            Self::Elements(bitmaps) => bitmaps.get(index).cloned(),
        }
    }
}

/// The bitmaps of dense columns of bools, in one block.
fn pack(columns: &[Tensor], rows: usize) -> Result<Vec<Bitmap>> {
    let stride = rows.div_ceil(8).next_multiple_of(8);
    let bytes = stride.checked_mul(columns.len());
    let bytes = bytes.ok_or_else(|| Error::new(ErrorKind::Memory, "the validity is larger than memory can be"))?;
    let mut block = fallible::zeroed(bytes)?;
    let mut nulls = fallible::with_room(columns.len())?;
    for (column, bits) in columns.iter().zip(block.chunks_mut(stride.max(1))) {
        nulls.push(pack_bools_into(column.peek_bytes()?, bits).zeros);
    }
    copy_log::record(|| Copied {
        what: format!("validity of {rows} rows in {} columns", columns.len()),
        why: "validity packed to bits".to_owned(),
        bytes: rows.div_ceil(8).saturating_mul(columns.len()),
    });
    let block = Arc::new(block);
    let bitmap = |(index, nulls): (usize, usize)| Bitmap { block: block.clone(), start: index * stride, nulls };
    Ok(nulls.into_iter().enumerate().map(bitmap).collect())
}
