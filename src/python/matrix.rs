//! Converts matrices, and writes to `out=`.

use std::cell::RefCell;
use std::num::NonZero;
use std::rc::Rc;
use std::sync::Arc;

use arrow_schema::{DataType, FieldRef};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::counts;
use super::functions::{DETACH_FROM, runner};
use super::input::Chunks;
use super::options::{ConversionOptions, mapping};
use crate::column::{Runner, chunks_to_tensor_into};
use crate::dtype::DType;
use crate::error::Error;
use crate::matrix::{Group, Worker, convert_matrix, write_matrix};
use crate::spec::{MatrixOptions, MatrixSpec, MemoryOrder, Options, PandasIndex};
use crate::tensor::{Output, Tensor};

/// The keywords that say how a matrix is made.
pub(super) struct MatrixKeywords {
    pub(super) memory_order: MemoryOrder,
    pub(super) threads: Option<NonZero<usize>>,
}

impl MatrixKeywords {
    pub(super) fn read(order: &str, threads: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        Ok(Self { memory_order: parse_order(order)?, threads: threads.map(counts::threads).transpose()? })
    }
}

pub(super) fn parse_order(order: &str) -> PyResult<MemoryOrder> {
    match order {
        "C" => Ok(MemoryOrder::C),
        "F" => Ok(MemoryOrder::F),
        "A" => Ok(MemoryOrder::A),
        _ => Err(PyValueError::new_err(format!("order must be \"C\", \"F\" or \"A\", not {order:?}"))),
    }
}

/// `columns=` of functions that take groups.
pub(super) enum Columns {
    /// These columns, or all: each for itself.
    Each(Option<Vec<String>>),
    /// Named groups: a list of columns is packed into a matrix, a single one is its column.
    Groups(Vec<(String, Group)>),
}

impl Columns {
    /// The names of all columns that are asked for.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let (each, groups) = match self {
            Self::Each(names) => (names.as_deref().unwrap_or_default(), [].as_slice()),
            Self::Groups(groups) => ([].as_slice(), groups.as_slice()),
        };
        each.iter().chain(groups.iter().flat_map(|(_, group)| group.columns())).map(String::as_str)
    }
}

impl<'py> FromPyObject<'_, 'py> for Columns {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let Some(groups) = mapping(&object)? else {
            return if object.is_none() {
                Ok(Self::Each(None))
            } else {
                names(&object).map(|names| Self::Each(Some(names)))
            };
        };
        let group = |(name, group): (Bound<'py, PyAny>, Bound<'py, PyAny>)| {
            let group = match group.cast::<PyString>() {
                Ok(column) => Group::Column(column.extract()?),
                Err(_) => Group::Matrix(names(&group)?),
            };
            Ok((name.extract()?, group))
        };
        groups.iter().map(group).collect::<PyResult<_>>().map(Self::Groups)
    }
}

/// The names of columns: a list of them, which a single name is not.
pub(super) fn names(object: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if let Ok(name) = object.cast::<PyString>() {
        let name = name.repr()?;
        return Err(PyTypeError::new_err(format!("columns must be a list of names; pass [{name}] for {name} alone")));
    }
    if mapping(object)?.is_some() {
        return Err(PyTypeError::new_err("columns must be a list of names; to_tensors makes groups of a dict"));
    }
    object.extract().map_err(|_| match object.repr() {
        Ok(found) => PyTypeError::new_err(format!("columns must be a list of names, not {found}")),
        Err(error) => error,
    })
}

/// Whether data of this type is rows of several columns.
pub(super) fn is_matrix(field: &FieldRef) -> bool {
    matches!(field.data_type(), DataType::Struct(_))
}

/// The error for `columns=` where the data is a single column.
pub(super) fn no_columns(field: &FieldRef) -> Error {
    Error::argument(format!("columns= chooses columns of a batch, and the data is one array of {}", field.data_type()))
        .remedy_is("leave columns= out")
        .in_column(field.name())
}

/// A spec, and what it was made of.
pub(super) struct Made {
    field: FieldRef,
    columns: Option<Vec<String>>,
    index: PandasIndex,
    options: ConversionOptions,
    out: Option<DType>,
    pub(super) spec: MatrixSpec,
}

thread_local! {
    /// The spec of the last matrix on this thread: the batches of a stream share their field, and small ones take about as long
    /// as their spec does.
    static LAST: RefCell<Option<Rc<Made>>> = const { RefCell::new(None) };
}

/// The spec of a matrix; `out` is the dtype of the memory that it is written to.
pub(super) fn spec(
    field: &FieldRef,
    columns: Option<&Vec<String>>,
    index: PandasIndex,
    options: &ConversionOptions,
    out: Option<DType>,
) -> PyResult<Rc<Made>> {
    let last = LAST.with_borrow(Clone::clone);
    let same = |last: &Rc<Made>| {
        let same_field = Arc::ptr_eq(&last.field, field);
        let same_columns = last.columns.as_ref() == columns && last.index == index;
        same_field && last.out == out && same_columns && last.options == *options
    };
    if let Some(last) = last.filter(same) {
        return Ok(last);
    }
    // The dtype of `out` is the default of each column; where none names another, it is that of all.
    let of = |name: &str| {
        let mut of = options.of(name);
        of.dtype = of.dtype.or(out);
        of
    };
    let dtype = options.dtype().or(out.filter(|_| options.is_one_dtype()));
    let remaining = if columns.is_none() { index.remaining(field) } else { None };
    let spec = MatrixSpec::new(field, columns.or(remaining.as_ref()).map(Vec::as_slice), of, dtype)?;
    let made = Made { field: field.clone(), columns: columns.cloned(), index, options: options.clone(), out, spec };
    let made = Rc::new(made);
    LAST.with_borrow_mut(|last| *last = Some(made.clone()));
    Ok(made)
}

/// The columns as a matrix, without the interpreter where that can take long.
pub(super) fn matrix(
    py: Python<'_>,
    chunks: &Chunks,
    columns: Option<Vec<String>>,
    keywords: &MatrixKeywords,
    options: &ConversionOptions,
) -> PyResult<Tensor> {
    let made = spec(chunks.field(), columns.as_ref(), chunks.index, options, None)?;
    Ok(convert_matrix(&made.spec, &chunks.arrays, &request(None, keywords, options), &worker(py))?)
}

/// Writes the columns as a matrix into the memory of `out=`.
pub(super) fn matrix_into(
    py: Python<'_>,
    memory: &mut Output<'_>,
    chunks: &Chunks,
    columns: Option<&Vec<String>>,
    keywords: &MatrixKeywords,
    options: &ConversionOptions,
) -> PyResult<()> {
    let made = spec(chunks.field(), columns, chunks.index, options, Some(memory.dtype()))?;
    Ok(write_matrix(&made.spec, &chunks.arrays, &request(None, keywords, options), memory, &worker(py))?)
}

/// Writes a column into the memory of `out=`.
pub(super) fn column_into(
    py: Python<'_>,
    memory: &mut Output<'_>,
    chunks: &Chunks,
    mut options: Options,
    keywords: &MatrixKeywords,
) -> PyResult<()> {
    options.dtype = options.dtype.or(Some(memory.dtype()));
    let rows = chunks.arrays.iter().fold(0_usize, |rows, array| rows.saturating_add(array.len()));
    let (field, threads) = (chunks.field(), keywords.threads);
    let mut result = Ok(());
    worker(py)(rows.saturating_mul(memory.dtype().itemsize()), &mut || {
        result = chunks_to_tensor_into(field, &chunks.arrays, &options, memory, threads);
    });
    Ok(result?)
}

/// Each group as a tensor, given to `take` by name, without the interpreter where that can take long.
pub(super) fn each_group(
    py: Python<'_>,
    chunks: &Chunks,
    groups: &[(String, Group)],
    keywords: &MatrixKeywords,
    options: &ConversionOptions,
    take: impl FnMut(&str, Tensor) -> PyResult<()>,
) -> PyResult<()> {
    let matrix = request(None, keywords, options);
    let by: (&Runner<'_>, &Worker<'_>) = (&runner(py), &worker(py));
    crate::matrix::each_group(chunks.field(), &chunks.arrays, groups, &matrix, |name| options.of(name), by, take)
}

pub(super) fn request(
    columns: Option<Vec<String>>,
    keywords: &MatrixKeywords,
    options: &ConversionOptions,
) -> MatrixOptions {
    let mut matrix =
        MatrixOptions::default().memory_order(keywords.memory_order).copy(options.copy()).writable(options.writable());
    matrix.columns = columns;
    matrix.dtype = options.dtype();
    matrix.threads = keywords.threads;
    matrix
}

/// Runs the last step of conversions, without the interpreter where it can take long.
pub(super) fn worker(py: Python<'_>) -> impl Fn(usize, &mut (dyn FnMut() + Send)) {
    move |bytes, work| if bytes < DETACH_FROM { work() } else { py.detach(work) }
}
