//! [`PlannedResult`]: a result with its plan, be it elements or their validity, of a column or of a matrix.

use super::chunk::MatrixChunk;
use super::planned::{PlannedMatrix, decode_chunks};
use super::to_validity::{PlannedValidity, decode_matrix_validity, decode_validity};
use crate::arrow::DeviceArray;
use crate::column::{
    ColumnRef, DecodedColumn, PlannedColumn, Runner, SharedReads, check_types, columns, decode_column,
};
use crate::convert::check_environment;
use crate::error::{Error, Result};
use crate::spec::{MatrixOptions, ResultKind, ResultSpec, Spec};
use crate::tensor::Tensor;

/// The chunks that a result is made of, decoded where they have to be.
#[derive(Debug)]
pub(crate) enum ResultChunks {
    /// Those of a column; `None` where they are as they are stored.
    Column(Option<DecodedColumn>),
    /// Those of columns of a struct.
    Matrix(Vec<MatrixChunk>),
}

/// A result that is about to be made: what will be done is decided, and no value was read.
pub(crate) enum PlannedResult<'a> {
    Column(PlannedColumn<'a>),
    Matrix(PlannedMatrix<'a>),
    Validity(PlannedValidity<'a>),
}

impl ResultChunks {
    /// Decodes the chunks of a result.
    ///
    /// # Errors
    /// When something would have to be decoded and is not allowed to, or cannot be; a validity also as [`PlannedValidity::of_column`].
    pub(crate) fn new(result: &ResultSpec, chunks: &[DeviceArray], options: &MatrixOptions) -> Result<Self> {
        match &result.kind {
            ResultKind::Column { position, spec, options } => {
                decode_column(spec, &columns_at(chunks, *position), options).map(Self::Column)
            }
            ResultKind::ColumnValidity { position, spec } => {
                decode_validity(spec, &columns_at(chunks, *position), options.copy).map(Self::Column)
            }
            ResultKind::Matrix(spec) | ResultKind::Validity(spec) => {
                check_environment()?;
                check_types(spec.field(), chunks)?;
                let is_validity = matches!(result.kind, ResultKind::Validity(_));
                let decode = if is_validity { decode_matrix_validity } else { decode_chunks };
                decode(spec, chunks, options).map(Self::Matrix)
            }
        }
    }
}

impl<'a> PlannedResult<'a> {
    /// Plans a result of these chunks, which [`ResultChunks::new`] has decoded.
    ///
    /// # Errors
    /// As [`PlannedColumn::new`], [`PlannedMatrix::new`] and [`PlannedValidity::of_column`].
    pub(crate) fn new(
        result: &'a ResultSpec,
        chunks: &'a [DeviceArray],
        decoded: &'a ResultChunks,
        options: &'a MatrixOptions,
    ) -> Result<Self> {
        let at = |position: Option<usize>, spec: &'a Spec| match decoded {
            ResultChunks::Column(Some(DecodedColumn { chunks, spec: own })) => {
                (columns(chunks).into_vec(), own.as_ref().unwrap_or(spec))
            }
            _ => (columns_at(chunks, position), spec),
        };
        match (&result.kind, decoded) {
            (ResultKind::Column { position, spec, options: own }, _) => {
                let (chunks, spec) = at(*position, spec);
                let planned = PlannedColumn::new(spec, &chunks, own)?;
                Ok(Self::Column(if options.is_written { planned.into_output() } else { planned }))
            }
            (ResultKind::ColumnValidity { position, spec }, _) => {
                let (chunks, spec) = at(*position, spec);
                PlannedValidity::of_column(spec, &chunks, options.copy).map(Self::Validity)
            }
            (ResultKind::Matrix(spec), ResultChunks::Matrix(chunks)) => {
                PlannedMatrix::new(spec, chunks, options).map(Self::Matrix)
            }
            (ResultKind::Validity(spec), ResultChunks::Matrix(chunks)) => {
                PlannedValidity::of_matrix(spec, chunks, options).map(Self::Validity)
            }
            (_, ResultChunks::Column(_)) => Err(Error::internal("a matrix without its chunks")),
        }
    }

    /// The tensor; `runner` runs the last step of columns and of matrices.
    ///
    /// # Errors
    /// For a null that is refused, and a value that a cast cannot take; when an allocation fails, or a driver fails.
    pub(crate) fn run(&mut self, shared: SharedReads<'_>, runner: &Runner<'_>) -> Result<Tensor> {
        match self {
            Self::Column(planned) => planned.run(shared, runner),
            Self::Matrix(planned) => planned.run(shared, runner),
            Self::Validity(planned) => planned.run(),
        }
    }
}

/// Calls `work` with the planned result of these chunks, decoded where they have to be.
///
/// # Errors
/// As [`ResultChunks::new`], [`PlannedResult::new`] and `work`.
pub(crate) fn with_planned_result<R>(
    result: &ResultSpec,
    chunks: &[DeviceArray],
    options: &MatrixOptions,
    work: impl FnOnce(PlannedResult<'_>) -> Result<R>,
) -> Result<R> {
    let decoded = ResultChunks::new(result, chunks, options)?;
    work(PlannedResult::new(result, chunks, &decoded, options)?)
}

/// The columns at a position of arrays of structs, or the arrays themselves.
pub(super) fn columns_at(chunks: &[DeviceArray], position: Option<usize>) -> Vec<ColumnRef<'_>> {
    chunks.iter().map(|chunk| ColumnRef::of(chunk, position)).collect()
}
