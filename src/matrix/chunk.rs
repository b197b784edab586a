//! One chunk's columns, ready to be written as rows.

use std::ops::Range;

use crate::arrow::{DeviceArray, Leaf};
use crate::column::require_host;
use crate::convert::{self, ColumnChunk, MatrixColumns, Rows, check_nulls, write_packed};
use crate::error::{Error, Result};
use crate::spec::{MatrixSpec, Spec};

/// The columns of one array of structs in host memory, decoded where they have to be: runs, and values of dictionaries.
/// Shares the array's memory.
#[derive(Clone, Debug)]
pub(crate) struct MatrixChunk {
    array: DeviceArray,
    /// What columns were decoded to, in the order of the matrix; empty where none had to be.
    decoded: Vec<Option<DeviceArray>>,
}

impl MatrixChunk {
    /// # Errors
    /// When the array is of another type than the matrix's field or not in host memory, or a column cannot be decoded.
    pub(crate) fn new(spec: &MatrixSpec, array: &DeviceArray) -> Result<Self> {
        let field = spec.field();
        if array.field().data_type() != field.data_type() {
            let (found, expected) = (array.field().data_type(), field.data_type());
            return Err(Error::invalid(format!("a chunk of type {found} in a matrix of {expected}")));
        }
        require_host(array.device(), field.name())?;
        let mut decoded = Vec::new();
        if spec.columns().iter().any(|(_, column)| column.decoded().is_some()) {
            for (position, column) in spec.columns() {
                let decode = |field| convert::decode(&array.column(*position)?, field);
                decoded.push(column.decoded().map(decode).transpose()?);
            }
        }
        Ok(Self { array: array.clone(), decoded })
    }

    /// The number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.array.len()
    }

    /// Whether columns, or their validity, are read from any of these bytes: the column's name where it is one. `columns` are
    /// those of all rows.
    pub(crate) fn overlaps(
        &self,
        spec: &MatrixSpec,
        columns: &MatrixColumns<'_>,
        bytes: &Range<usize>,
    ) -> Option<String> {
        if columns.is_plain {
            let overlaps = |(leaf, spec): (&Leaf<'_>, &Spec)| {
                let start = leaf.start(spec.element()).addr();
                let end = start.saturating_add(leaf.elements.saturating_mul(spec.element().stored_size()));
                start.max(bytes.start) < end.min(bytes.end)
            };
            let leaves = columns.columns.iter().map(|column| &column.leaf);
            // Most often none does; the way below tells which.
            if !leaves.zip(spec.columns().iter().map(|(_, spec)| spec)).any(overlaps) {
                return None;
            }
        }
        let view = self.array.view();
        if view.validity_overlaps(bytes) {
            return Some(String::new());
        }
        let overlaps = |(position, _): &&(usize, Spec)| view.column_overlaps(*position, bytes);
        spec.columns().iter().find(overlaps).map(|(_, column)| column.field().name().clone())
    }

    /// The columns in a range of rows, in the order of the matrix; reads their bitmaps there.
    ///
    /// # Errors
    /// When the array breaks the Arrow format. Names the column, and the row of the chunk.
    pub(crate) fn columns(&self, spec: &MatrixSpec, rows: &Range<usize>) -> Result<MatrixColumns<'_>> {
        let whole = self.array.view().slice(rows);
        let mut columns = Vec::with_capacity(spec.columns().len());
        let mut is_plain = true;
        for (index, (position, spec)) in spec.columns().iter().enumerate() {
            // Columns without a bitmap need none of what follows, and small chunks take about as long as this.
            if let Some(leaf) = whole.plain_column(*position) {
                columns.push(ColumnChunk { leaf, mask: None, array: &self.array });
                continue;
            }
            is_plain = false;
            let (array, view) = match self.decoded.get(index) {
                Some(Some(decoded)) => (decoded, decoded.view().slice(rows)),
                _ => (&self.array, whole.struct_field(*position)?),
            };
            let leaf = view.leaf(spec)?;
            let mask = leaf.logical_mask(array);
            let mask = mask.map_err(|error| after(error, rows.start).in_column(spec.field().name()))?;
            columns.push(ColumnChunk { leaf, mask, array });
        }
        Ok(MatrixColumns { rows: rows.len(), columns, is_plain })
    }
}

/// The error, its row counted from further ahead.
pub(super) fn after(error: Error, rows: usize) -> Error {
    match error.row() {
        Some(row) => error.at_row(rows.saturating_add(row)),
        None => error,
    }
}

/// Writes some rows of a chunk as the rows of `out`, which has as many. `row` is the number of the chunk's first row in the
/// whole source, for messages. Nulls in these rows are refused where the spec does; others do not count.
///
/// # Errors
/// For a null that is refused, and a value that a cast cannot take: names column and row. When the rows do not fit `out`,
/// or memory cannot be had.
#[cfg_attr(not(test), allow(dead_code, reason = "for what writes ranges of rows: the loader"))]
pub(crate) fn write_rows(
    spec: &MatrixSpec,
    chunk: &MatrixChunk,
    rows: Range<usize>,
    row: usize,
    out: Rows<'_>,
    threads: usize,
) -> Result<()> {
    if rows.end > chunk.rows() || rows.len() != out.count() {
        let (found, room) = (chunk.rows(), out.count());
        return Err(Error::invalid(format!("rows {rows:?} of a chunk of {found}, and room for {room}")));
    }
    let columns = chunk.columns(spec, &rows).map_err(|error| after(error, row))?;
    let first = row.saturating_add(rows.start);
    for ((_, spec), column) in spec.columns().iter().zip(&columns.columns) {
        check_nulls(spec, [column]).map_err(|error| after(error, first))?;
    }
    write_packed(&columns.packed(spec), 0, first, out, threads)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int32Array, RecordBatch};
    use arrow_buffer::MutableBuffer;

    use super::*;
    use crate::spec::{NullPolicy, Options, Scalar};

    fn batch() -> DeviceArray {
        let a: ArrayRef = Arc::new(Int32Array::from_iter((0..100).map(|row| (row % 10 != 3).then_some(row))));
        let b: ArrayRef = Arc::new(BooleanArray::from_iter((0..100).map(|row| Some(row % 3 == 0))));
        let c: ArrayRef = Arc::new(Float64Array::from_iter((0..100).map(|row| Some(f64::from(row) / 2.0))));
        let batch = RecordBatch::try_from_iter([("a", a), ("b", b), ("c", c)]).unwrap();
        DeviceArray::from_record_batch(&batch.slice(7, 90)).unwrap()
    }

    fn spec(nulls: NullPolicy) -> MatrixSpec {
        let options = |_: &str| Options::default().nulls(nulls);
        MatrixSpec::new(batch().field(), None, options, None).unwrap()
    }

    /// The rows as doubles, written one after the other.
    fn written(nulls: NullPolicy, rows: Range<usize>) -> Result<Vec<[f64; 3]>> {
        let chunk = MatrixChunk::new(&spec(nulls), &batch())?;
        let mut out = MutableBuffer::from_len_zeroed(rows.len() * 24);
        write_rows(&spec(nulls), &chunk, rows, 1000, Rows::over(out.as_slice_mut(), 24), 1)?;
        Ok(out.typed_data::<f64>().as_chunks().0.to_vec())
    }

    #[test]
    fn any_range_of_rows_is_written_as_the_columns_say() {
        let fill = NullPolicy::Fill(Scalar::Int(-1));
        for rows in [0..90, 0..0, 3..4, 5..17, 17..81, 90..90] {
            let expected: Vec<[f64; 3]> = rows
                .clone()
                .map(|row| row + 7)
                .map(|row| {
                    let a = if row % 10 == 3 { -1.0 } else { row as f64 };
                    [a, f64::from(u8::from(row % 3 == 0)), row as f64 / 2.0]
                })
                .collect();
            assert_eq!(written(fill, rows).unwrap(), expected);
        }
    }

    #[test]
    fn nulls_count_in_the_rows_that_are_written_alone() {
        assert!(written(NullPolicy::Error, 7..16).is_ok());
        let error = written(NullPolicy::Error, 10..40).unwrap_err();
        assert_eq!((error.column(), error.row()), (Some("a"), Some(1016)));
    }

    #[test]
    fn rows_that_do_not_fit_are_refused() {
        let chunk = MatrixChunk::new(&spec(NullPolicy::Nan), &batch()).unwrap();
        let mut out = MutableBuffer::from_len_zeroed(250);
        for (rows, stride) in [(0..9, 24), (81..91, 24), (0..10, 16), (0..10, 25)] {
            let out = Rows::over(&mut out[..stride * 10], stride);
            assert!(write_rows(&spec(NullPolicy::Nan), &chunk, rows, 0, out, 1).is_err());
        }
    }
}
