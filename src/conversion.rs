//! Runs a [`Conversion`]: on data at hand, on a stream, into memory that is there, or for its report alone.

mod converted;
mod explained;
mod explained_groups;
mod from_tensor;
mod paths;
mod plan;
mod planned;
mod planned_rows;
mod results;
mod rows;
mod run;
mod streams;
mod to_arrow;
mod transfers;
mod varied;
mod write;

use arrow_schema::FieldRef;
pub use converted::Converted;
use converted::only_tensor;
#[cfg(feature = "python")]
pub(crate) use explained::{Question, Subject};
#[cfg(feature = "python")]
pub(crate) use from_tensor::TensorColumn;
pub use plan::ConversionPlan;
use planned::ResultForm;
pub(crate) use run::Run;
pub use to_arrow::ArrowConversion;
pub(crate) use varied::VariedGroup;

use crate::arrow::{Chunks, DeviceArray};
use crate::batch::each_tensor;
use crate::column::{SharedReads, check_types, chunks_to_tensor_by};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::matrix::{convert_matrix, convert_result, each_result, with_planned_result};
#[cfg(feature = "python")]
use crate::ragged::check_ragged;
use crate::spec::{Conversion, ResultSpec, Selection, is_struct};
#[cfg(feature = "python")]
use crate::spec::{CopyMode, Pad};
use crate::tensor::Tensor;

impl Conversion {
    /// Converts an array, a batch, or the chunks of a column or a table into the only result: a tensor of shape `(rows, *inner)` of a
    /// column, of which fixed-size lists give the inner shape, and a matrix of shape `(rows, columns)` of a struct's columns.
    ///
    /// The result is a view where layout and options allow it: it shares the memory of the data, on any device, and is read-only. Else
    /// one pass over all chunks casts, fills nulls and unpacks bits on its way to fresh memory: on CUDA by kernels, in the order of
    /// this thread's stream.
    ///
    /// # Errors
    /// As [`Conversion::check`]; where there are several results; for a null that is refused, and a value that a cast cannot take;
    /// when a copy is needed and not allowed, or an allocation fails. Names column and row.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use arrow_array::{ArrayRef, Float32Array, Int8Array, RecordBatch};
    /// use arrow_dlpack::{Conversion, DType, NullPolicy};
    ///
    /// let y = Int8Array::from(vec![Some(1), None]);
    /// let column = Conversion::default().dtype(DType::Float64).nulls(NullPolicy::Nan).to_tensor(&y)?;
    /// assert!(column.as_slice::<f64>()?[1].is_nan());
    ///
    /// let x: ArrayRef = Arc::new(Float32Array::from(vec![0.5, 1.5]));
    /// let y: ArrayRef = Arc::new(Int8Array::from(vec![1, 2]));
    /// let batch = RecordBatch::try_from_iter([("x", x), ("y", y)]).unwrap();
    /// let matrix = Conversion::default().to_tensor(&batch)?;
    /// assert_eq!((matrix.shape(), matrix.as_slice::<f32>()?), (&[2_i64, 2][..], &[0.5, 1.0, 1.5, 2.0][..]));
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn to_tensor<'a>(&self, data: impl TryInto<Chunks<'a>, Error: Into<Error>>) -> Result<Tensor> {
        let chunks = self.chunks_of(data)?;
        self.check_columns(chunks.field())?;
        self.convert_whole(chunks.field(), chunks.arrays(), Run::default())
    }

    /// Converts an array, a batch, or the chunks of a column or a table into named results: those of [`Selection::Each`] and
    /// [`Selection::Named`]. Of [`Selection::Whole`], the default, it is the one matrix, without a name: select `Selection::Each(None)`
    /// for a tensor of each column.
    ///
    /// # Errors
    /// As [`Conversion::to_tensor`]; for groups of padded or ragged rows, and of Arrow columns: see [`Conversion::to_results`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// use arrow_array::{ArrayRef, Float32Array, Int64Array, RecordBatch};
    /// use arrow_dlpack::{Conversion, Group, Selection};
    ///
    /// let a: ArrayRef = Arc::new(Float32Array::from(vec![0.5, 1.5]));
    /// let y: ArrayRef = Arc::new(Int64Array::from(vec![1, 0]));
    /// let batch = RecordBatch::try_from_iter([("a", a.clone()), ("b", a), ("label", y)]).unwrap();
    /// let conversion = Conversion::default().groups([("x", Group::matrix(["a", "b"])), ("y", Group::column("label"))]);
    /// let tensors = conversion.to_tensors(&batch)?;
    /// assert_eq!((tensors[0].1.shape(), tensors[1].1.shape()), (&[2_i64, 2][..], &[2_i64][..]));
    /// assert_eq!(conversion.select(Selection::Each(None)).to_tensors(&batch)?.len(), 3);
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn to_tensors<'a>(&self, data: impl TryInto<Chunks<'a>, Error: Into<Error>>) -> Result<Vec<(String, Tensor)>> {
        let chunks = self.chunks_of(data)?;
        self.check_columns(chunks.field())?;
        self.require_fixed_rows()?;
        let mut tensors = Vec::new();
        self.convert_each(chunks.field(), chunks.arrays(), Run::default(), |name, tensor| {
            tensors.push((name.to_owned(), tensor));
            Ok::<_, Error>(())
        })?;
        Ok(tensors)
    }

    /// Tells which elements of the only result are valid: a bool tensor of its shape. Nulls of a row are nulls in each of its columns,
    /// and a null list makes all its elements null.
    ///
    /// It is a copy, made in one pass over the bitmaps. Columns of a matrix may be of any type, strings included. Fixed-size lists, and lists
    /// with a length, have a bool for each element. Other options of columns do not count.
    ///
    /// # Errors
    /// Where columns are selected, and the data is no struct; where a column does not exist, or has rows of structs; for a list of another
    /// length; when copies are not allowed, the memory is neither the host's nor reached through CUDA, or an allocation fails.
    ///
    /// ```
    /// use arrow_array::Int8Array;
    /// use arrow_dlpack::Conversion;
    ///
    /// let valid = Conversion::default().validity(&Int8Array::from(vec![Some(1), None]))?;
    /// assert_eq!(valid.as_bytes()?, [1, 0]);
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn validity<'a>(&self, data: impl TryInto<Chunks<'a>, Error: Into<Error>>) -> Result<Tensor> {
        let chunks = self.chunks_of(data)?;
        self.convert_validity(chunks.field(), chunks.arrays())
    }

    /// As [`Conversion::validity`].
    pub(crate) fn convert_validity(&self, field: &FieldRef, chunks: &[DeviceArray]) -> Result<Tensor> {
        self.require_whole()?;
        check_types(field, chunks)?;
        only_tensor(self.convert_asked(field, chunks, ResultForm::Validity, Run::default())?)
    }

    /// Validates the conversion into ragged rows, padded or not, against a type. `is_lost`: rows that are refused after they were read
    /// cannot be read again.
    ///
    /// # Errors
    /// As [`Conversion::check`], of the elements.
    #[cfg(feature = "python")]
    pub(crate) fn check_ragged(&self, field: &FieldRef, pad: Option<Pad>, is_lost: bool) -> Result<()> {
        self.check_columns(field)?;
        let copy = if is_lost { CopyMode::Never } else { CopyMode::IfNeeded };
        check_ragged(field, pad, &self.of(field.name()).copy(copy))
    }

    /// As [`Conversion::to_tensor`], for options whose names were checked.
    pub(crate) fn convert_whole(&self, field: &FieldRef, chunks: &[DeviceArray], run: Run<'_>) -> Result<Tensor> {
        if self.device.is_none() && !run.is_own {
            return self.convert_whole_there(field, chunks, run);
        }
        let there = self.bring(chunks, run)?;
        let tensor = there.conversion.convert_whole_there(field, &there.chunks, run)?;
        self.send_one(there.owned_tensor(tensor), run.runner)
    }

    /// As [`Conversion::convert_whole`], of data where it is converted: the result stays there.
    fn convert_whole_there(&self, field: &FieldRef, chunks: &[DeviceArray], run: Run<'_>) -> Result<Tensor> {
        self.require_whole()?;
        if is_struct(field) {
            let spec = self.matrix_of(field, run.natural)?;
            return convert_matrix(&spec, chunks, &self.matrix(), SharedReads::default(), run.runner);
        }
        self.refuse_columns(field)?;
        let mut options = self.of(field.name());
        options.dtype = options.dtype.or(run.natural);
        chunks_to_tensor_by(field, chunks, &options, run.runner)
    }

    /// Refuses a selection of several results.
    fn require_whole(&self) -> Result<()> {
        match self.selection {
            Selection::Whole(_) => Ok(()),
            _ => Err(Error::argument("the selection has a result for each name, and one is asked for")
                .remedy_is("select Selection::Whole, or ask for named results")),
        }
    }

    /// As [`Conversion::to_tensors`], for options whose names were checked; hands each tensor on before the next one is made, those
    /// of a device, and those that go to another one together, when all are.
    pub(crate) fn convert_each<E: From<Error>>(
        &self,
        field: &FieldRef,
        chunks: &[DeviceArray],
        run: Run<'_>,
        mut take: impl FnMut(&str, Tensor) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.is_elsewhere(DeviceArray::device_of(chunks)) && !run.is_own {
            return self.convert_each_there(field, chunks, run, take);
        }
        let there = self.bring(chunks, run)?;
        let (mut names, mut tensors) = (Vec::new(), Vec::new());
        there.conversion.convert_each_there(field, &there.chunks, run, |name, tensor| {
            names.push(name.to_owned());
            tensors.push(there.owned_tensor(tensor));
            Ok::<(), Error>(())
        })?;
        let tensors = self.send(tensors, run.runner)?;
        names.iter().zip(tensors).try_for_each(|(name, tensor)| take(name, tensor))
    }

    /// As [`Conversion::convert_each`], of data where it is converted: the results stay there.
    fn convert_each_there<E: From<Error>>(
        &self,
        field: &FieldRef,
        chunks: &[DeviceArray],
        run: Run<'_>,
        mut take: impl FnMut(&str, Tensor) -> Result<(), E>,
    ) -> Result<(), E> {
        let settle = |error| self.first_refusal(field, chunks, run.natural, error);
        match &self.selection {
            Selection::Each(columns) => {
                let selected = self.index.select(field, columns.as_deref())?;
                let each = self.of_each();
                let of = |column: &str| each.of(column);
                let take = |column: &FieldRef, tensor| take(column.name(), tensor);
                each_tensor(field, chunks, selected, of, run.runner, settle, take)
            }
            Selection::Named(_) => {
                let (results, matrix) = (self.results(field, run.natural)?, self.matrix());
                let convert = |_, result: &ResultSpec, shared: SharedReads<'_>| {
                    convert_result(result, chunks, &matrix, shared, run.runner)
                };
                let take = |result: &ResultSpec, tensor| take(result.name(), tensor);
                each_result(field, chunks, &results, &matrix, convert, settle, take)
            }
            Selection::Whole(_) => {
                let name = if is_struct(field) { "" } else { field.name().as_str() };
                take(name, self.convert_whole_there(field, chunks, run)?)
            }
        }
    }

    /// Returns the error that comes before this one of data, as if all results were planned before one is made: of types, and of plans.
    pub(crate) fn first_refusal(
        &self,
        field: &FieldRef,
        chunks: &[DeviceArray],
        natural: Option<DType>,
        error: Error,
    ) -> Error {
        let results = match self.results(field, natural) {
            Ok(results) => results,
            Err(of_types) => return of_types,
        };
        let matrix = self.matrix();
        let plan = |result: &ResultSpec| {
            with_planned_result(result, chunks, &matrix, |_| Ok(())).map_err(|error| result.in_group(error))
        };
        // A row that cannot be decoded is one of the data, of which the lowest is told.
        let refused = |result| plan(result).err().filter(|error| error.row().is_none());
        results.iter().find_map(refused).unwrap_or(error)
    }
}

/// Converts data by the default [`Conversion`]: a column into its tensor, the columns of a batch into a matrix.
///
/// # Errors
/// As [`Conversion::to_tensor`].
///
/// ```
/// let tensor = arrow_dlpack::to_tensor(&arrow_array::Int32Array::from(vec![1, 2, 3]))?;
/// assert!(!tensor.is_copied() && !tensor.is_writable());
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
pub fn to_tensor<'a>(data: impl TryInto<Chunks<'a>, Error: Into<Error>>) -> Result<Tensor> {
    Conversion::default().to_tensor(data)
}
