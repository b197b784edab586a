//! Converts named groups of columns: packs a list of columns into a matrix, and converts a single column to its tensor.

use std::collections::HashSet;

use arrow_schema::FieldRef;

use super::on_device;
use super::packed::packed;
use super::prepared::check_matrix_rows;
use super::to_tensor::{Worker, convert_matrix, work_here};
use crate::alloc::fallible;
use crate::arrow::DeviceArray;
use crate::column::pending_casts::Casts;
use crate::column::{ColumnRef, Runner, check_rows, check_types, convert_chunks, run_here};
use crate::error::{Error, Result};
use crate::spec::{MatrixOptions, MatrixSpec, Options, Spec, all_or_errors, select};
use crate::tensor::Tensor;

/// What a name stands for, among the columns of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Group {
    /// A column, as a tensor of its own.
    Column(String),
    /// Columns that are packed into a matrix, in this order.
    Matrix(Vec<String>),
}

impl Group {
    /// The names of its columns.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        match self {
            Self::Column(name) => std::slice::from_ref(name),
            Self::Matrix(names) => names,
        }
    }
}

/// What a group is converted to.
#[derive(Clone, Debug)]
pub(crate) enum GroupSpec {
    /// A column: its position in the struct, its spec, and the options that this was made of.
    Column(usize, Spec, Options),
    /// Columns as a matrix.
    Matrix(MatrixSpec),
}

impl GroupSpec {
    /// # Errors
    /// As [`MatrixSpec::new`], and as [`crate::to_tensors`] for a single column.
    pub(crate) fn new(
        field: &FieldRef,
        group: &Group,
        matrix: &MatrixOptions,
        options: impl Fn(&str) -> Options,
    ) -> Result<Self> {
        match group {
            Group::Matrix(columns) => MatrixSpec::new(field, Some(columns), options, matrix.dtype).map(Self::Matrix),
            Group::Column(name) => {
                let mut options = options(name).copy(matrix.copy).writable(matrix.writable);
                options.dtype = matrix.dtype.or(options.dtype);
                let selected = select(field, Some(std::slice::from_ref(name)))?;
                let (position, column) = selected.first().copied().ok_or_else(|| Error::internal("no such column"))?;
                Ok(Self::Column(position, Spec::new(column, &options)?, options))
            }
        }
    }
}

/// The specs of all groups, by name.
///
/// # Errors
/// When a name stands twice, or as [`GroupSpec::new`].
pub(crate) fn group_specs<'a>(
    field: &FieldRef,
    groups: &'a [(String, Group)],
    matrix: &MatrixOptions,
    options: impl Fn(&str) -> Options,
) -> Result<Vec<(&'a str, GroupSpec)>> {
    let mut names = HashSet::with_capacity(groups.len());
    let spec = |(name, group): &'a (String, Group)| {
        if !names.insert(name) {
            return Err(Error::argument(format!("two groups are called {name:?}")).remedy_is("give each its own name"));
        }
        let spec = GroupSpec::new(field, group, matrix, &options);
        Ok((name.as_str(), spec.map_err(|error| error.in_group(name))?))
    };
    all_or_errors(groups.iter().map(spec))
}

/// Converts columns of a batch, or of the chunks of a table, into named tensors: a matrix of shape `(rows, columns)` for each
/// [`Group::Matrix`], a tensor of shape `(rows, *inner)` for each [`Group::Column`].
///
/// `matrix` says for all groups what it says for one matrix, but for its columns.
///
/// # Errors
/// As [`super::matrix_to_tensor`] and [`crate::to_tensors`]; when a name stands twice.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{ArrayRef, Float32Array, Int64Array, RecordBatch};
/// use arrow_dlpack::{DeviceArray, Group, MatrixOptions, Options, groups_to_tensors};
///
/// let a: ArrayRef = Arc::new(Float32Array::from(vec![0.5, 1.5]));
/// let y: ArrayRef = Arc::new(Int64Array::from(vec![1, 0]));
/// let batch = RecordBatch::try_from_iter([("a", a.clone()), ("b", a), ("label", y)]).unwrap();
/// let batch = DeviceArray::from_record_batch(&batch)?;
/// let groups = [
///     ("x".to_owned(), Group::Matrix(vec!["a".to_owned(), "b".to_owned()])),
///     ("y".to_owned(), Group::Column("label".to_owned())),
/// ];
/// let options = MatrixOptions::default();
/// let tensors = groups_to_tensors(batch.field(), &[batch.clone()], &groups, &options, |_| Options::default())?;
/// assert_eq!((tensors[0].1.shape(), tensors[1].1.shape()), (&[2_i64, 2][..], &[2_i64][..]));
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
pub fn groups_to_tensors(
    field: &FieldRef,
    chunks: &[DeviceArray],
    groups: &[(String, Group)],
    matrix: &MatrixOptions,
    options: impl Fn(&str) -> Options,
) -> Result<Vec<(String, Tensor)>> {
    let mut tensors = fallible::with_room(groups.len())?;
    each_group(field, chunks, groups, matrix, options, (&run_here, &work_here), |name, tensor| {
        tensors.push((name.to_owned(), tensor));
        Ok::<(), Error>(())
    })?;
    Ok(tensors)
}

/// As [`groups_to_tensors`], each tensor given to `take`; the last step of columns and of matrices by these.
pub(crate) fn each_group<E: From<Error>>(
    field: &FieldRef,
    chunks: &[DeviceArray],
    groups: &[(String, Group)],
    matrix: &MatrixOptions,
    options: impl Fn(&str) -> Options,
    (runner, worker): (&Runner<'_>, &Worker<'_>),
    mut take: impl FnMut(&str, Tensor) -> Result<(), E>,
) -> Result<(), E> {
    check_types(field, chunks)?;
    let specs = group_specs(field, groups, matrix, options)?;
    // What the host has to know of data on a device, it reads with one wait.
    let fetched = on_device::fetch_groups(chunks, &specs)?;
    let of_device = DeviceArray::readiness_of(chunks);
    // And whether the values of casts fit, with another one.
    let casts = of_device.map(|_| Casts::default());
    let mut made = Vec::new();
    // Of groups behind the one that failed, another may be wrong in a lower row.
    let lowest = |error: Error, failed: usize| {
        specs.iter().skip(failed.saturating_add(1)).fold(error, |lowest: Error, (name, spec)| {
            let before = DeviceArray::first_rows(chunks, lowest.row().unwrap_or(0));
            let checked = match spec {
                GroupSpec::Matrix(spec) => check_matrix_rows(spec, &before, matrix),
                GroupSpec::Column(position, spec, _) => check_rows(
                    spec,
                    &before.iter().map(|chunk| ColumnRef::column(chunk, *position)).collect::<Vec<_>>(),
                ),
            };
            let error = checked.map_err(|error| error.in_group(name)).err();
            error.filter(|error| error.is_lower_than(&lowest)).unwrap_or(lowest)
        })
    };
    for (number, (name, spec)) in specs.iter().enumerate() {
        let tensor = match (spec, of_device) {
            (GroupSpec::Matrix(spec), Some(readiness)) => {
                let known = (fetched.as_ref(), casts.as_ref());
                packed(spec, chunks, matrix, readiness, known).and_then(|packed| match packed {
                    Some(packed) => Ok(packed),
                    None => on_device::view(spec, chunks, matrix, readiness, fetched.as_ref()),
                })
            }
            (GroupSpec::Matrix(spec), None) => convert_matrix(spec, chunks, matrix, worker),
            (GroupSpec::Column(position, spec, options), _) => {
                let column = |chunk| {
                    let column = ColumnRef::column(chunk, *position).with_fetched(fetched.as_ref());
                    column.with_casts(casts.as_ref())
                };
                let columns: Vec<_> = chunks.iter().map(column).collect();
                convert_chunks(spec, &columns, options, runner)
            }
        };
        match (tensor, &casts) {
            (Ok(tensor), Some(_)) => made.push((*name, tensor)),
            (Err(error), Some(casts)) => {
                // What is wrong with a group before it comes first.
                casts.verify()?;
                return Err(error.in_group(name).into());
            }
            (tensor, None) => take(name, tensor.map_err(|error| lowest(error.in_group(name), number))?)?,
        }
    }
    casts.map_or(Ok(()), |casts| casts.verify())?;
    made.into_iter().try_for_each(|(name, tensor)| take(name, tensor))
}
