//! Matrices, and what is written to `out=`.

use std::num::NonZero;

use arrow_schema::DataType;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::functions::DETACH_FROM;
use super::input::Chunks;
use super::options::ConversionOptions;
use super::tensor::with_output;
use crate::column::chunks_to_tensor_into;
use crate::error::Error;
use crate::matrix::{convert_matrix, write_matrix};
use crate::spec::{MatrixOptions, MatrixSpec, Options, Order};
use crate::tensor::{Output, Tensor};

/// The keywords that say how a matrix is made.
pub(super) struct MatrixKeywords {
    pub(super) order: Order,
    pub(super) threads: Option<NonZero<usize>>,
}

impl MatrixKeywords {
    pub(super) fn read(order: &str, threads: Option<i64>) -> PyResult<Self> {
        let order = match order {
            "C" => Order::C,
            "F" => Order::F,
            "A" => Order::A,
            _ => return Err(PyValueError::new_err(format!("order must be \"C\", \"F\" or \"A\", not {order:?}"))),
        };
        Ok(Self { order, threads: threads.map(parse_threads).transpose()? })
    }
}

fn parse_threads(threads: i64) -> PyResult<NonZero<usize>> {
    let count = usize::try_from(threads).ok().and_then(NonZero::new);
    count.ok_or_else(|| PyValueError::new_err(format!("threads must be 1 or more, or None, not {threads}")))
}

/// Whether the chunks are rows of several columns.
pub(super) fn is_matrix(chunks: &Chunks) -> bool {
    matches!(chunks.field().data_type(), DataType::Struct(_))
}

/// The error for `columns=` where the data is a single column.
pub(super) fn no_columns(chunks: &Chunks) -> Error {
    let field = chunks.field();
    Error::argument(format!("columns= chooses columns of a batch, and the data is one array of {}", field.data_type()))
        .remedy_is("leave columns= out")
        .in_column(field.name())
}

/// The columns as a matrix, without the interpreter where that can take long.
pub(super) fn matrix(
    py: Python<'_>,
    chunks: &Chunks,
    columns: Option<Vec<String>>,
    keywords: &MatrixKeywords,
    options: &ConversionOptions,
) -> PyResult<Tensor> {
    let matrix = request(columns, keywords, options);
    let spec = MatrixSpec::new(chunks.field(), matrix.columns.as_deref(), |name| options.of(name), options.dtype())?;
    Ok(convert_matrix(&spec, &chunks.arrays, &matrix, &worker(py))?)
}

/// Writes the columns as a matrix into the memory of `out`.
pub(super) fn matrix_into(
    out: &Bound<'_, PyAny>,
    chunks: &Chunks,
    columns: Option<Vec<String>>,
    keywords: &MatrixKeywords,
    options: &ConversionOptions,
) -> PyResult<()> {
    with_output(out, |memory| {
        let matrix = request(columns, keywords, options);
        let of = |name: &str| with_default(options.of(name), memory);
        let dtype = options.dtype().or_else(|| options.is_one_dtype().then(|| memory.dtype()));
        let spec = MatrixSpec::new(chunks.field(), matrix.columns.as_deref(), of, dtype)?;
        Ok(write_matrix(&spec, &chunks.arrays, &matrix, memory, &worker(out.py()))?)
    })
}

/// Writes a column into the memory of `out`.
pub(super) fn column_into(
    out: &Bound<'_, PyAny>,
    chunks: &Chunks,
    options: Options,
    keywords: &MatrixKeywords,
) -> PyResult<()> {
    with_output(out, |memory| {
        let options = with_default(options, memory);
        let rows = chunks.arrays.iter().fold(0_usize, |rows, array| rows.saturating_add(array.len()));
        let (field, threads) = (chunks.field(), keywords.threads);
        let mut result = Ok(());
        worker(out.py())(rows.saturating_mul(memory.dtype().itemsize()), &mut || {
            result = chunks_to_tensor_into(field, &chunks.arrays, &options, memory, threads);
        });
        Ok(result?)
    })
}

/// The options, the dtype of `out` being the default.
fn with_default(mut options: Options, out: &Output<'_>) -> Options {
    options.dtype = options.dtype.or(Some(out.dtype()));
    options
}

fn request(columns: Option<Vec<String>>, keywords: &MatrixKeywords, options: &ConversionOptions) -> MatrixOptions {
    let mut matrix = MatrixOptions::default().order(keywords.order).copy(options.copy()).writable(options.writable());
    matrix.columns = columns;
    matrix.threads = keywords.threads;
    matrix
}

/// Runs the last step of conversions, without the interpreter where it can take long.
pub(super) fn worker(py: Python<'_>) -> impl Fn(usize, &mut (dyn FnMut() + Send)) {
    move |bytes, work| if bytes < DETACH_FROM { work() } else { py.detach(work) }
}
