//! One chunk's columns, decoded and ready to be packed as rows.

use std::ops::Range;

use arrow_schema::FieldRef;

use crate::alloc::fallible;
use crate::arrow::{DeviceArray, Leaf, Validated};
use crate::column::{DeviceLists, dense_on_device, require_host};
use crate::convert::{self, ColumnChunk, MatrixColumns, check_matrix_nulls, remedy_of_passing_rows};
use crate::error::{Error, ErrorKind, Result};
use crate::kernels::{is_read_on, refuse_decoding};
use crate::spec::{MatrixSpec, Spec};

/// The columns of one array of structs, decoded where they have to be: runs, and values of dictionaries. Shares the array's
/// memory.
#[derive(Clone, Debug)]
pub(crate) struct MatrixChunk {
    array: DeviceArray,
    /// The decoded columns, in the order of the matrix; empty where none had to be decoded.
    decoded: Vec<Option<PackSource>>,
}

/// The array that rows are packed from, in place of a column that cannot be packed as it is stored.
#[derive(Clone, Debug)]
enum PackSource {
    /// Fixed-size lists over the column's own items, which follow each other.
    InPlace(DeviceArray),
    /// Values in memory of their own.
    Written(DeviceArray),
}

impl PackSource {
    fn new(array: &DeviceArray, spec: &Spec, field: &FieldRef, known: &Validated) -> Result<Self> {
        Ok(match convert::dense(array, spec)? {
            Some(lists) => Self::InPlace(lists),
            None => Self::Written(convert::decode_apart(array, spec, field, known)?),
        })
    }

    fn array(&self) -> &DeviceArray {
        let (Self::InPlace(array) | Self::Written(array)) = self;
        array
    }
}

impl MatrixChunk {
    /// The columns of an array in host memory.
    ///
    /// # Errors
    /// As [`MatrixChunk::on_any_device`], and when the array is not in host memory.
    pub(crate) fn new(spec: &MatrixSpec, array: &DeviceArray) -> Result<Self> {
        require_host(array.device(), spec.field().name())?;
        Self::on_any_device(spec, array, &Validated::default())
    }

    /// # Errors
    /// When the array is of another type than the matrix's field, or a column cannot be decoded: on a device kernels gather values of
    /// dictionaries, and lists of one length are read where they are.
    pub(super) fn on_any_device(spec: &MatrixSpec, array: &DeviceArray, known: &Validated) -> Result<Self> {
        let field = spec.field();
        if array.field().data_type() != field.data_type() {
            let (found, expected) = (array.field().data_type(), field.data_type());
            return Err(Error::invalid(format!("a chunk of type {found} in a matrix of {expected}"))
                .remedy_is("give all chunks one schema"));
        }
        let mut decoded = Vec::new();
        if spec.is_decoded() {
            if let Some(readiness) = array.readiness() {
                return match spec.columns().iter().find(|(_, column)| !is_read_on(column, readiness.device())) {
                    Some((_, column)) => Err(refuse_decoding(column, readiness)),
                    None => Ok(Self { array: array.clone(), decoded: lists_of_device(spec, array)? }),
                };
            }
            let mut lowest: Option<Error> = None;
            for (position, column) in spec.columns() {
                // Behind a column with a wrong row only lower ones count.
                let rows = lowest.as_ref().and_then(Error::row).map_or(0..array.len(), |row| 0..row);
                let decode = |field| PackSource::new(&array.column(*position)?.clipped(&rows), column, field, known);
                match column.decoded().map(decode).transpose() {
                    Ok(source) => decoded.push(source),
                    Err(error) if error.row().is_some() => lowest = Some(error),
                    Err(error) => return Err(error),
                }
            }
            lowest.map_or(Ok(()), Err)?;
        }
        Ok(Self { array: array.clone(), decoded })
    }

    /// The array.
    pub(super) fn array(&self) -> &DeviceArray {
        &self.array
    }

    /// The number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.array.len()
    }

    /// How many rows of a column are lists that follow each other, which are read where they are and not decoded.
    pub(crate) fn shared_rows(&self, index: usize) -> usize {
        let is_in_place = matches!(self.decoded.get(index), Some(Some(PackSource::InPlace(_))));
        if is_in_place { self.rows() } else { 0 }
    }

    /// The bytes that decoding would take for all such lists.
    pub(crate) fn shared_bytes(&self, spec: &MatrixSpec) -> usize {
        let bytes = |(index, (_, column)): (usize, &(usize, Spec))| match self.shared_rows(index) {
            0 => 0,
            rows => rows.saturating_mul(column.decoded_row_bytes()),
        };
        spec.columns().iter().enumerate().map(bytes).fold(0, usize::saturating_add)
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

    /// The columns in a range of rows, in the order of the matrix; reads their bitmaps there, but for those of a device.
    ///
    /// # Errors
    /// When the array breaks the Arrow format. Names the column, and the row of the chunk.
    pub(crate) fn columns(&self, spec: &MatrixSpec, rows: &Range<usize>) -> Result<MatrixColumns<'_>> {
        let whole = self.array.view().slice(rows);
        let mut columns = fallible::with_room(spec.columns().len())?;
        let mut is_plain = true;
        for (index, (position, spec)) in spec.columns().iter().enumerate() {
            // Columns without a bitmap need none of what follows, and small chunks take about as long as this.
            if spec.decoded().is_none()
                && let Some(leaf) = whole.plain_column(*position)
            {
                columns.push(ColumnChunk { leaf, mask: None, array: &self.array });
                continue;
            }
            is_plain = false;
            let (array, view) = match self.decoded.get(index) {
                Some(Some(decoded)) => (decoded.array(), decoded.array().view().slice(rows)),
                _ => (&self.array, whole.struct_field(*position)?),
            };
            let leaf = view.leaf(spec)?;
            let mask = if array.readiness().is_none() { leaf.logical_mask(array) } else { Ok(None) };
            let mask = mask.map_err(|error| error.behind(rows.start).in_column(spec.field().name()))?;
            columns.push(ColumnChunk { leaf, mask, array });
        }
        Ok(MatrixColumns { rows: rows.len(), columns, is_plain })
    }

    /// As [`MatrixChunk::columns`], to be written: nulls in these rows are refused where the spec does, others do not count.
    /// `row` is the number of the chunk's first row in the whole source, for messages.
    ///
    /// # Errors
    /// For a null that is refused: names column and row. When the chunk has fewer rows, or breaks the Arrow format.
    pub(crate) fn checked_columns(
        &self,
        spec: &MatrixSpec,
        rows: &Range<usize>,
        row: usize,
    ) -> Result<MatrixColumns<'_>> {
        if rows.end > self.rows() {
            return Err(Error::internal(format!("rows {rows:?} of a chunk of {}", self.rows())));
        }
        let columns = self.columns(spec, rows).map_err(|error| error.behind(row))?;
        let first = row.saturating_add(rows.start);
        check_matrix_nulls(spec, std::slice::from_ref(&columns)).map_err(|error| {
            let named = |(_, column): &&(usize, Spec)| Some(column.field().name().as_str()) == error.column();
            let column = spec.columns().iter().find(named).filter(|_| error.kind() == ErrorKind::Null);
            let error = error.behind(first);
            column.map_or(error.clone(), |(_, column)| error.remedy_is(remedy_of_passing_rows(column)))
        })?;
        Ok(columns)
    }
}

/// The columns of lists of one length as fixed-size lists; nothing in place of the others.
fn lists_of_device(spec: &MatrixSpec, array: &DeviceArray) -> Result<Vec<Option<PackSource>>> {
    let lists = spec.columns().iter().filter(|(_, column)| column.is_of_lists());
    let lists = lists.map(|(position, spec)| Ok(DeviceLists { array: array.column(*position)?, spec, first_row: 0 }));
    let lists = lists.collect::<Result<Vec<_>>>()?;
    if lists.is_empty() {
        return Ok(Vec::new());
    }
    let mut dense = dense_on_device(&lists)?.into_iter();
    let in_place = |(_, column): &(usize, Spec)| {
        if column.is_of_lists() { dense.next().map(PackSource::InPlace) } else { None }
    };
    Ok(spec.columns().iter().map(in_place).collect())
}

/// The columns of each of these chunks in all their rows, and how many rows these are: [`MatrixChunk::columns`].
///
/// # Errors
/// As [`MatrixChunk::columns`], the row counted from the first chunk's.
pub(super) fn all_columns<'a>(spec: &MatrixSpec, chunks: &'a [MatrixChunk]) -> Result<(Vec<MatrixColumns<'a>>, usize)> {
    let (mut all, mut rows) = (fallible::with_room(chunks.len())?, 0_usize);
    for chunk in chunks {
        all.push(chunk.columns(spec, &(0..chunk.rows())).map_err(|error| error.behind(rows))?);
        rows = rows.saturating_add(chunk.rows());
    }
    Ok((all, rows))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, BooleanArray, Float64Array, Int32Array, RecordBatch};

    use super::*;
    use crate::alloc::BlockPool;
    use crate::convert::{RowBlock, RowLayout};
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
        let spec = spec(nulls);
        let chunk = MatrixChunk::new(&spec, &batch())?;
        let mut block = RowBlock::new(Arc::new(RowLayout::of_matrix(&spec)?));
        block.move_to(BlockPool::new(0, None).take(rows.len() * 24)?)?;
        block.append_matrix(&spec, &chunk.checked_columns(&spec, &rows, 1000)?, 1000 + rows.start, 1)?;
        Ok(block.into_tensor()?.as_slice::<f64>()?.as_chunks().0.to_vec())
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
    fn rows_that_the_chunk_has_not_are_refused() {
        assert!(written(NullPolicy::Nan, 81..91).is_err());
    }
}
