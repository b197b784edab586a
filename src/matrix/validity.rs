//! Reads the validity of a batch's columns from a tensor of bools.

use std::sync::Arc;

use crate::alloc::fallible;
use crate::arrow::DeviceBitmaps;
use crate::column::{Bitmap, pack_on_device, require_host, require_row_bools, require_validity_on};
use crate::convert::{pack_bools_into, split_rows};
use crate::copy_log::{self, Copied};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Counted, Error, ErrorKind, Result};
use crate::kernels::split_columns;
use crate::plan::Action;
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
        require_element_bools(valid, rows, columns)?;
        let why = Action::SplitValidity.to_string();
        let split = if is_split(valid) { Some(split_rows(valid, threads, &why)?) } else { None };
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

/// The validity of a device's columns, as bools there.
#[derive(Debug)]
pub(super) enum DeviceValidity {
    /// The same bools in each.
    Rows(Tensor),
    /// Those of each column, dense.
    Elements(Vec<Tensor>),
}

impl DeviceValidity {
    /// Takes bools of the shape `(rows,)`, or of the shape `(rows, columns)`, which a kernel splits into columns.
    ///
    /// # Errors
    /// If the tensor has another shape or dtype, or is on another device than `values`; if an allocation fails.
    pub(super) fn split(valid: &Tensor, values: &Tensor, rows: usize, columns: usize) -> Result<Self> {
        require_validity_on(values.device(), valid)?;
        if valid.ndim() < 2 {
            require_row_bools(valid, rows)?;
            return Ok(Self::Rows(valid.clone()));
        }
        require_element_bools(valid, rows, columns)?;
        let why = Action::SplitValidity.to_string();
        let split = if is_split(valid) { Some(split_columns(valid, &why)?) } else { None };
        let columns = (0..columns).map(|column| split.as_ref().unwrap_or(valid).column(column));
        columns.collect::<Result<_>>().map(Self::Elements)
    }

    /// Packs the bools to bits beside values on `device`; `None` if there are no rows.
    ///
    /// # Errors
    /// If an allocation fails.
    pub(super) fn pack(&self, rows: usize, device: Device) -> Result<Option<DeviceBitmaps>> {
        let columns = match self {
            Self::Rows(valid) => std::slice::from_ref(valid),
            Self::Elements(columns) => columns,
        };
        pack_on_device(columns, rows, device)
    }

    /// The number of the bits that belong to a column.
    pub(super) fn column_of(&self, index: usize) -> usize {
        if matches!(self, Self::Rows(_)) { 0 } else { index }
    }
}

/// Whether bools of the shape `(rows, columns)` are split into columns before they are packed: unless each column is dense.
pub(super) fn is_split(valid: &Tensor) -> bool {
    matches!((valid.shape(), valid.strides()), (&[rows, _], &[step, _]) if rows > 1 && step != 1)
}

/// Refuses a tensor that is not of bools of the shape `(rows, columns)`.
fn require_element_bools(valid: &Tensor, rows: usize, columns: usize) -> Result<()> {
    let extent = |axis: usize| valid.shape().get(axis).and_then(|extent| usize::try_from(*extent).ok());
    if valid.dtype() == DType::Bool && valid.ndim() == 2 && (extent(0), extent(1)) == (Some(rows), Some(columns)) {
        return Ok(());
    }
    Err(Error::argument(format!(
        "validity must be one bool for each of the {rows} rows, or of shape ({rows}, {columns}), and is {} of shape {:?}",
        valid.dtype(),
        valid.shape()
    )))
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
        what: format!("validity of {} in {}", Counted(rows, "row"), Counted(columns.len(), "column")),
        why: "validity packed to bits".to_owned(),
        bytes: rows.div_ceil(8).saturating_mul(columns.len()),
    });
    let block = Arc::new(block);
    let bitmap = |(index, nulls): (usize, usize)| Bitmap { block: block.clone(), start: index * stride, nulls };
    Ok(nulls.into_iter().enumerate().map(bitmap).collect())
}
