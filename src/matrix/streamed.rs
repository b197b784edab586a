//! Results of a stream that grow while it is read: each array is packed and released as it comes. The result equals
//! that of all arrays together.

use std::num::NonZero;

use arrow_schema::{DataType, FieldRef};
use smallvec::SmallVec;

use super::chunk::MatrixChunk;
use super::planned::{PlannedMatrix, decode_each, record};
use super::to_validity::{record_column_validity, record_validity};
use crate::alloc::{GrowingBuffer, fallible};
use crate::arrow::{DeviceArray, DeviceArrayStream, Mask, Validated};
use crate::column::{ColumnRef, check_types, lowest_error, require_host};
use crate::convert::{
    MatrixColumns, append_column, append_matrix, append_validity, check_environment, check_matrix_nulls, check_nulls,
    grown_column, grown_matrix, grown_validity, what, with_bits,
};
use crate::error::{Error, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::plan::{ChunkSize, MatrixData, Placement, Plan};
use crate::spec::{CopyMode, MatrixOptions, MatrixSpec, MemoryOrder, Nulls, ResultKind, ResultSpec, Spec};
use crate::stream_order::Interrupts;
use crate::tensor::Tensor;

/// Bytes that an array takes beside those of its rows, roughly.
const OVERHEAD: usize = 4096;

/// What came of a stream.
#[derive(Debug)]
pub(crate) enum Read {
    /// Its arrays: there is at most one with rows, which the results may be views of, or the results need all of them at once.
    Arrays(SmallVec<[DeviceArray; 1]>),
    /// The results, in order.
    Tensors(Vec<Tensor>),
}

impl ResultSpec {
    /// Whether the result grows row by row, whatever comes.
    fn grows(&self, options: &MatrixOptions) -> bool {
        // Chunks with different dictionaries are refused before nulls are, so all of them are looked at first.
        let may = match &self.kind {
            ResultKind::Matrix(spec) => {
                lies_by_rows(spec, options) && !spec.columns().iter().any(|(_, column)| column.has_codes())
            }
            ResultKind::Validity(spec) => lies_by_rows(spec, options),
            ResultKind::Column { spec, .. } => !spec.has_codes(),
            ResultKind::ColumnValidity { .. } => true,
        };
        may && options.copy != CopyMode::Never
    }

    /// Whether the result is no view of an array, if nothing else comes.
    fn is_copied(&self, array: &DeviceArray, options: &MatrixOptions) -> Result<bool> {
        match &self.kind {
            // What is decoded is a copy, which the result may be a view of.
            ResultKind::Matrix(spec) if spec.is_decoded() => Ok(spec.width() > 1),
            ResultKind::Matrix(spec) => {
                let chunks = [MatrixChunk::new(spec, array)?];
                Ok(!PlannedMatrix::new(spec, &chunks, options)?.is_view())
            }
            ResultKind::Validity(_) | ResultKind::ColumnValidity { .. } => Ok(true),
            ResultKind::Column { spec, .. } if spec.decoded().is_some() => Ok(false),
            ResultKind::Column { position, spec, options } => {
                let size = ColumnRef::of(array, *position).chunk(spec)?.size(spec);
                Ok(!Plan::new(spec, &[size], options, Placement::Host)?.may_return_stored_values())
            }
        }
    }
}

/// Whether a matrix that is no view has its rows one after the other. A single column lies both ways.
fn lies_by_rows(spec: &MatrixSpec, options: &MatrixOptions) -> bool {
    options.memory_order != MemoryOrder::F || spec.width() == 1
}

/// Reads a stream to its end, and makes these results on the way where that saves memory.
///
/// Beside the results and the array that was read last, arrays of an eighth of the results' size are held at most. Results in
/// column-major order, codes of dictionaries, and data on devices need all arrays at once.
///
/// # Errors
/// That of the stream; that of the null or value in the lowest row that is refused, of the first result;
/// [`Interrupted`](crate::ErrorKind::Interrupted) when a signal's handler raises. The stream can be read on, without the arrays
/// that were read.
pub(crate) fn read(stream: &mut DeviceArrayStream, parts: &[ResultSpec], options: &MatrixOptions) -> Result<Read> {
    let grows = !parts.is_empty() && parts.iter().all(|part| part.grows(options));
    if stream.device_type() != DLDeviceType::CPU || !grows {
        return stream.read_to_end().map(Read::Arrays);
    }
    check_environment()?;
    let field = stream.field().clone();
    let mut growing: Option<Growing<'_>> = None;
    let mut held = Held::new(&field);
    let mut interrupts = Interrupts::new();
    for array in &mut *stream {
        let array = array?;
        check_types(&field, std::slice::from_ref(&array))?;
        // One array without rows is enough for results without any.
        if array.is_empty() && !held.arrays.is_empty() {
            interrupts.check()?;
            continue;
        }
        held.push(array);
        if growing.is_none() && (held.filled > 1 || held.last_is_copied(parts, options)?) {
            growing = Some(Growing::new(parts, options)?);
        }
        // The only array with rows is held: the results may be views of it.
        if let Some(growing) = &mut growing
            && held.bytes > growing.bytes() / 8
        {
            growing.append(&held.take())?;
        }
        interrupts.check()?;
    }
    match growing {
        None => Ok(Read::Arrays(held.arrays)),
        Some(mut growing) => {
            growing.append(&held.take())?;
            growing.finish().map(Read::Tensors)
        }
    }
}

/// Arrays that were read and not packed.
struct Held {
    arrays: SmallVec<[DeviceArray; 1]>,
    /// How many of them have rows.
    filled: usize,
    /// What they take, roughly; more than there is where their type does not tell.
    bytes: usize,
    /// Bits of a row of all columns, if each row has as many.
    row_bits: Option<usize>,
}

impl Held {
    fn new(field: &FieldRef) -> Self {
        Self { arrays: SmallVec::new(), filled: 0, bytes: 0, row_bits: row_bits(field.data_type()) }
    }

    fn push(&mut self, array: DeviceArray) {
        self.filled += usize::from(!array.is_empty());
        let bytes = self.row_bits.map_or(usize::MAX, |bits| bits.div_ceil(8).saturating_mul(array.len()));
        self.bytes = self.bytes.saturating_add(bytes).saturating_add(OVERHEAD);
        self.arrays.push(array);
    }

    /// The arrays with rows.
    fn take(&mut self) -> SmallVec<[DeviceArray; 1]> {
        (self.filled, self.bytes) = (0, 0);
        let mut arrays = std::mem::take(&mut self.arrays);
        arrays.retain(|array| !array.is_empty());
        arrays
    }

    /// Whether no result is a view of the last array, if that has rows and nothing else comes.
    fn last_is_copied(&self, parts: &[ResultSpec], options: &MatrixOptions) -> Result<bool> {
        let Some(last) = self.arrays.last().filter(|last| !last.is_empty()) else { return Ok(false) };
        for part in parts {
            if !part.is_copied(last, options)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The bits of a row, validity included; `None` where rows have different ones.
fn row_bits(data_type: &DataType) -> Option<usize> {
    let own = match data_type {
        DataType::Boolean => 1,
        DataType::FixedSizeBinary(width) => usize::try_from(*width).ok()?.checked_mul(8)?,
        DataType::FixedSizeList(item, size) => row_bits(item.data_type())?.checked_mul(usize::try_from(*size).ok()?)?,
        DataType::Struct(fields) => {
            let add = |sum: usize, field: &FieldRef| sum.checked_add(row_bits(field.data_type())?);
            fields.iter().try_fold(0_usize, add)?
        }
        other => other.primitive_width()?.checked_mul(8)?,
    };
    own.checked_add(1)
}

/// The results so far.
struct Growing<'a> {
    results: Vec<One<'a>>,
    options: &'a MatrixOptions,
    rows: usize,
}

/// A result so far.
struct One<'a> {
    part: &'a ResultSpec,
    out: GrowingBuffer,
    /// Of a matrix: its rows, its chunks, and whether the only chunk lies as a view would.
    data: MatrixData,
    /// Of a column.
    sizes: Vec<ChunkSize>,
    /// Whether an array of a column was decoded: lists whose items follow each other are not.
    is_decoded: bool,
    /// What the arrays that were appended last have validated: those of a stream may be slices of one array.
    known: Validated,
}

impl<'a> Growing<'a> {
    fn new(parts: &'a [ResultSpec], options: &'a MatrixOptions) -> Result<Self> {
        let one = |part: &'a ResultSpec| {
            let (out, data) = (GrowingBuffer::new()?, MatrixData::default());
            Ok(One { part, out, data, sizes: Vec::new(), is_decoded: false, known: Validated::default() })
        };
        Ok(Self { results: parts.iter().map(one).collect::<Result<_>>()?, options, rows: 0 })
    }

    /// Bytes of the results.
    fn bytes(&self) -> usize {
        self.results.iter().fold(0_usize, |bytes, one| bytes.saturating_add(one.out.len()))
    }

    /// Appends the rows of arrays, which all have some.
    fn append(&mut self, arrays: &[DeviceArray]) -> Result<()> {
        let (rows, options) = (self.rows, self.options);
        let mut lowest: Option<Error> = None;
        for one in &mut self.results {
            let known = std::mem::take(&mut one.known);
            let appended = one.append(arrays, rows, options, &known);
            known.forget_others();
            one.known = known;
            if let Err(error) = appended
                && lowest.as_ref().is_none_or(|lowest| error.is_lower_than(lowest))
            {
                lowest = Some(error);
            }
        }
        self.rows = arrays.iter().fold(rows, |rows, array| rows.saturating_add(array.len()));
        lowest.map_or(Ok(()), Err)
    }

    fn finish(self) -> Result<Vec<Tensor>> {
        let (rows, options) = (self.rows, self.options);
        self.results.into_iter().map(|one| one.finish(rows, options)).collect()
    }
}

impl One<'_> {
    /// `before`: rows that there were before those of the arrays.
    fn append(
        &mut self,
        arrays: &[DeviceArray],
        before: usize,
        options: &MatrixOptions,
        known: &Validated,
    ) -> Result<()> {
        let part = self.part;
        match &part.kind {
            ResultKind::Matrix(spec) | ResultKind::Validity(spec) => {
                let appended = self.append_matrix(spec, arrays, options, known);
                appended.map_err(|error| part.in_group(error.behind(before)))
            }
            ResultKind::Column { position, spec, .. } => {
                let mut row = before;
                for array in arrays {
                    self.append_column(spec, ColumnRef::of(array, *position), row, known)?;
                    row = row.saturating_add(array.len());
                }
                Ok(())
            }
            ResultKind::ColumnValidity { position, spec } => {
                let mut row = before;
                for array in arrays {
                    let appended = self.append_validity(spec, ColumnRef::of(array, *position), known);
                    appended.map_err(|error| error.behind(row))?;
                    row = row.saturating_add(array.len());
                }
                Ok(())
            }
        }
    }

    fn append_matrix(
        &mut self,
        spec: &MatrixSpec,
        arrays: &[DeviceArray],
        options: &MatrixOptions,
        known: &Validated,
    ) -> Result<()> {
        let threads = options.threads.map(NonZero::get);
        arrays.iter().try_for_each(|array| require_host(array.device(), spec.field().name()))?;
        let chunks = decode_each(spec, arrays, known)?;
        let (mut columns, mut row) = (fallible::with_room(chunks.len())?, 0_usize);
        for chunk in &chunks {
            columns.push(chunk.columns(spec, &(0..chunk.rows())).map_err(|error| error.behind(row))?);
            row = row.saturating_add(chunk.rows());
            self.data.shared_bytes = self.data.shared_bytes.saturating_add(chunk.shared_bytes(spec));
        }
        self.count(spec, &columns);
        if let ResultKind::Validity(_) = self.part.kind {
            return with_bits(&columns, |bits| append_matrix(spec, bits, &mut self.out, threads));
        }
        check_matrix_nulls(spec, &columns)?;
        append_matrix(spec, &columns, &mut self.out, threads)
    }

    /// What the plan of all chunks needs to know of these.
    fn count(&mut self, spec: &MatrixSpec, chunks: &[MatrixColumns<'_>]) {
        for chunk in chunks {
            self.data.rows = self.data.rows.saturating_add(chunk.rows);
            self.data.chunks += 1;
            let stride = if self.data.chunks == 1 { chunk.column_stride(spec) } else { None };
            let is_row = |stride| chunk.rows == 1 && stride == spec.dtype().itemsize();
            self.data.is_column_major = stride.is_some();
            self.data.is_row_major = stride.is_some_and(|stride| spec.columns().len() == 1 || is_row(stride));
            for ((_, column), chunk) in spec.columns().iter().zip(&chunk.columns) {
                if let Nulls::Filled(_) = column.nulls() {
                    self.data.filled = self.data.filled.saturating_add(chunk.mask.as_ref().map_or(0, Mask::nulls));
                }
            }
        }
    }

    fn append_column(&mut self, spec: &Spec, column: ColumnRef<'_>, row: usize, known: &Validated) -> Result<()> {
        let decoded = self.decoded(spec, &column, known);
        let decoded = decoded.map_err(|error| lowest_error(spec, &[column], error).behind(row))?;
        let column = decoded.as_ref().map_or(column, ColumnRef::whole);
        let chunk = column.chunk(spec).map_err(|error| error.behind(row))?;
        check_nulls(spec, [&chunk]).map_err(|error| error.behind(row))?;
        self.sizes.push(chunk.size(spec));
        append_column(spec, &chunk, row, &mut self.out)
    }

    /// Returns the lists of a column as fixed-size lists, or what it is decoded to, and notes that; `None` if it is appended as it is.
    fn decoded(&mut self, spec: &Spec, column: &ColumnRef<'_>, known: &Validated) -> Result<Option<DeviceArray>> {
        let Some(field) = spec.decoded() else { return Ok(None) };
        if let Some(dense) = column.dense(spec)? {
            return Ok(Some(dense));
        }
        self.is_decoded = true;
        column.decode(spec, field, known).map(Some)
    }

    fn append_validity(&mut self, spec: &Spec, column: ColumnRef<'_>, known: &Validated) -> Result<()> {
        let decoded = self.decoded(spec, &column, known)?;
        let column = decoded.as_ref().map_or(column, ColumnRef::whole);
        append_validity(&column.chunk(spec)?, &mut self.out)
    }

    /// The tensor, and its copy on the record: that of all arrays together, which are all decoded if one of them is.
    fn finish(self, rows: usize, options: &MatrixOptions) -> Result<Tensor> {
        let as_appended =
            |spec: &Spec| spec.of_dense_lists().filter(|_| !self.is_decoded).unwrap_or_else(|| spec.clone());
        match &self.part.kind {
            ResultKind::Validity(spec) => {
                let data = MatrixData { is_row_major: false, is_column_major: false, filled: 0, ..self.data };
                let plan = Plan::matrix(spec, data, options)?;
                let tensor = grown_matrix(spec, self.out, rows)?;
                record_validity(spec, &plan);
                Ok(tensor)
            }
            ResultKind::Matrix(spec) => {
                let plan = Plan::matrix(spec, self.data, options)?;
                let tensor = grown_matrix(spec, self.out, rows)?;
                record(spec, &plan);
                Ok(tensor)
            }
            ResultKind::Column { spec, options, .. } => {
                let plan = Plan::new(&as_appended(spec), &self.sizes, options, Placement::Host)?;
                let tensor = grown_column(spec, self.out, rows)?;
                plan.record(|| what(spec, rows));
                Ok(tensor)
            }
            ResultKind::ColumnValidity { spec, .. } => {
                let plan = Plan::validity(&as_appended(spec), rows, Placement::Host, options.copy)?;
                let tensor = grown_validity(spec, self.out, rows)?;
                record_column_validity(spec, &plan);
                Ok(tensor)
            }
        }
    }
}
