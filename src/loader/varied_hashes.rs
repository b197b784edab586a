//! Hashes of rows that differ in length or are passed through: docs/loader.md defines them.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, downcast_dictionary_array, downcast_run_array};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;

use super::row_hashes::{fold, fold_bytes, fold_hex};
use super::texts::{fold_text, texts};
use crate::alloc::fallible;
use crate::arrow::DeviceArray;
use crate::conversion::VariedGroup;
use crate::dtype::DType;
use crate::error::{Error, Result, catch_panic};
use crate::ragged::{PlannedPadded, PlannedRagged, Ragged, Values};
use crate::spec::{GroupForm, Pad, Side};
use crate::tensor::Tensor;

/// Returns a hash that goes on with the only row of this part of a padded or ragged group.
///
/// # Errors
/// If the row cannot be converted.
pub(super) fn fold_part(hash: u64, group: &VariedGroup, row: &DeviceArray) -> Result<u64> {
    let rows = std::slice::from_ref(row);
    match group.group.form() {
        GroupForm::Padded(pad) => fold_padded(hash, group, rows, pad),
        GroupForm::Ragged => {
            let ragged = PlannedRagged::new(&group.field, rows, &group.options)?.run()?;
            fold_ragged(hash, &ragged, std::slice::from_ref(&(0..1)))
        }
        GroupForm::Arrow | GroupForm::Column | GroupForm::Matrix => {
            Err(Error::internal("neither padded nor ragged rows"))
        }
    }
}

/// The elements of a padded row that are kept, and then their validity, a byte each.
fn fold_padded(hash: u64, group: &VariedGroup, rows: &[DeviceArray], pad: Pad) -> Result<u64> {
    let alone = Pad { side: Side::Right, ..pad };
    let planned = PlannedPadded::new(&group.field, rows, alone, &group.options)?;
    let ((matrix, validity), lengths) = (planned.run()?, planned.lengths()?);
    let kept = lengths.peek::<i64>()?.first().and_then(|kept| usize::try_from(*kept).ok()).ok_or_else(lost)?;
    let width = matrix.shape().get(1).and_then(|width| usize::try_from(*width).ok()).ok_or_else(lost)?;
    let (elements, validity) = (matrix.peek_bytes()?, validity.peek_bytes()?);
    let bytes = elements.len().checked_div(width).unwrap_or(0).saturating_mul(kept);
    let hash = fold_bytes(hash, elements.get(..bytes).ok_or_else(lost)?);
    Ok(fold_bytes(hash, validity.get(..kept).ok_or_else(lost)?))
}

/// The validity of rows, a byte each; their lengths, 8 bytes each; and then their elements, or the rows that they are.
fn fold_ragged(hash: u64, ragged: &Ragged, rows: &[Range<usize>]) -> Result<u64> {
    let at =
        |values: &[i64], row: usize| values.get(row).and_then(|value| usize::try_from(*value).ok()).ok_or_else(lost);
    let offsets = integers(ragged.offsets())?;
    let sizes = ragged.lengths().map(integers).transpose()?;
    let flags = ragged.validity().map(Tensor::peek_bytes).transpose()?;
    let (mut valid, mut lengths, mut items) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows.iter().cloned().flatten() {
        let is_valid = flags.is_none_or(|flags| flags.get(row).is_some_and(|flag| *flag != 0));
        let start = at(&offsets, row)?;
        let end = match &sizes {
            Some(sizes) => start.saturating_add(at(sizes, row)?),
            None => at(&offsets, row.saturating_add(1))?,
        };
        // What a null row spans is not part of it.
        let end = if is_valid { end.max(start) } else { start };
        let length = end.saturating_sub(start);
        fallible::push(&mut valid, u8::from(is_valid))?;
        fallible::push(&mut lengths, u64::try_from(length).unwrap_or(u64::MAX).to_le_bytes())?;
        fallible::push(&mut items, start..end)?;
    }
    let mut hash = fold_bytes(fold_bytes(hash, &valid), lengths.as_flattened());
    if let Some(shapes) = ragged.shapes() {
        hash = fold_bytes(hash, shapes.peek_bytes()?);
    }
    match ragged.values() {
        Values::Ragged(inner) => fold_ragged(hash, inner, &items),
        Values::Tensor(values) => {
            let bytes = values.peek_bytes()?;
            let each = bytes.len().checked_div(ragged.values().len()).unwrap_or(0);
            let of = |items: &Range<usize>| {
                bytes.get(items.start.saturating_mul(each)..items.end.saturating_mul(each)).ok_or_else(lost)
            };
            if let [items] = &*items {
                return Ok(fold_bytes(hash, of(items)?));
            }
            let mut elements = Vec::new();
            for items in &items {
                let part = of(items)?;
                fallible::reserve(&mut elements, part.len())?;
                elements.extend_from_slice(part);
            }
            Ok(fold_bytes(hash, &elements))
        }
    }
}

/// Returns a hash that goes on with a row of these columns, which have ticks in place of times: of each a 0 for a null, or a 1 and the
/// text of the value. A null row is null in each column: `nulls` are those of the rows.
///
/// # Errors
/// If there is no such row, arrow-cast writes no values of a column's type, or an allocation fails.
pub(super) fn fold_texts(hash: u64, columns: &[ArrayRef], nulls: Option<&NullBuffer>, row: usize) -> Result<u64> {
    let is_null_row = nulls.is_some_and(|nulls| row < nulls.len() && nulls.is_null(row));
    columns.iter().try_fold(hash, |hash, column| {
        if row >= column.len() {
            return Err(lost());
        }
        catch_panic(|| match is_null_row || is_null(column.as_ref(), row) {
            true => Ok(fold(hash, 0)),
            // Images are long: arrow-cast would write each of their bytes by itself.
            false => match bytes_of(column.as_ref(), row) {
                Some(bytes) => Ok(fold_hex(fold(hash, 1), bytes)),
                None => fold_text(fold(hash, 1), &texts(column.as_ref())?, row),
            },
        })
    })
}

/// Returns the bytes of a value that is no null, if its text is the hexadecimal digits of them.
fn bytes_of(array: &dyn Array, row: usize) -> Option<&[u8]> {
    downcast_dictionary_array!(
        array => array.key(row).and_then(|code| bytes_of(array.values().as_ref(), code)),
        DataType::RunEndEncoded(..) => downcast_run_array!(
            array => bytes_of(array.values().as_ref(), array.get_physical_index(row)),
            _ => None
        ),
        DataType::Binary => array.as_binary_opt::<i32>().map(|values| values.value(row)),
        DataType::LargeBinary => array.as_binary_opt::<i64>().map(|values| values.value(row)),
        DataType::BinaryView => array.as_binary_view_opt().map(|values| values.value(row)),
        DataType::FixedSizeBinary(_) => array.as_fixed_size_binary_opt().map(|values| values.value(row)),
        _ => None
    )
}

/// Returns whether a value is null, also where a dictionary or runs have the null. A union has none: its text tells which field is null.
fn is_null(array: &dyn Array, row: usize) -> bool {
    downcast_dictionary_array!(
        array => array.key(row).is_none_or(|code| is_null(array.values().as_ref(), code)),
        DataType::RunEndEncoded(..) => downcast_run_array!(
            array => is_null(array.values().as_ref(), array.get_physical_index(row)),
            _ => false
        ),
        DataType::Null => true,
        _ => array.is_null(row)
    )
}

/// Offsets or lengths.
fn integers(tensor: &Tensor) -> Result<Vec<i64>> {
    match tensor.dtype() {
        DType::Int32 => fallible::collected(tensor.peek::<i32>()?.iter().map(|value| Ok(i64::from(*value)))),
        _ => fallible::copied(tensor.peek::<i64>()?),
    }
}

fn lost() -> Error {
    Error::internal("a row to hash was lost")
}
