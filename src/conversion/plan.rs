//! [`ConversionPlan`]: what a [`Conversion`] will do to the data at hand, to be looked at and then run.

use std::fmt;

use arrow_schema::FieldRef;

use crate::alloc::{Borrower, SelfCell, fallible};
use crate::arrow::{Chunks, DeviceArray};
use crate::column::{Shared, check_types, run_here};
use crate::error::{Error, Result};
use crate::explain::{Report, explain_planned, explain_planned_matrix, explain_planned_validity, explain_validity};
use crate::matrix::{PlannedResult, ResultChunks, each_result, work_here};
use crate::spec::{Conversion, MatrixOptions, ResultSpec};
use crate::tensor::Tensor;

/// What a [`Conversion`] will do to the data at hand: made by [`Conversion::plan`], printed by [`ConversionPlan::report`], and run by
/// [`ConversionPlan::run`]. Shares the memory of the data, and holds what was decoded of run-end encoded and dictionary columns. `R` is
/// what it returns.
#[derive(Debug)]
#[must_use = "a plan does nothing until it is run"]
pub struct ConversionPlan<R = Vec<(String, Tensor)>> {
    conversion: Conversion,
    planned: Box<dyn Planned<R>>,
}

/// Data with its plan, which returns `R`.
pub(super) trait Planned<R>: fmt::Debug + Send + Sync {
    /// Reports every step, those of transfers included.
    fn report(&self, conversion: &Conversion) -> Report;

    /// Runs the plan, and takes its results to where they are asked for.
    fn run(self: Box<Self>, conversion: &Conversion) -> Result<R>;
}

/// Data on a device that is moved to the host first: until then, only its type is known.
pub(super) struct MovedFirst<F> {
    report: Report,
    field: FieldRef,
    chunks: Vec<DeviceArray>,
    convert: F,
}

impl<F> fmt::Debug for MovedFirst<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MovedFirst").field("field", &self.field).finish_non_exhaustive()
    }
}

impl<R, F: Fn(&Conversion, Chunks<'_>) -> Result<R> + Send + Sync> Planned<R> for MovedFirst<F> {
    fn report(&self, _: &Conversion) -> Report {
        self.report.clone()
    }

    fn run(self: Box<Self>, conversion: &Conversion) -> Result<R> {
        (self.convert)(conversion, Chunks::new(&self.field, &self.chunks))
    }
}

/// Chunks, decoded where they have to be, and the specs of the results.
#[derive(Debug)]
struct Decoded {
    field: FieldRef,
    chunks: Vec<DeviceArray>,
    matrix: MatrixOptions,
    results: Vec<(ResultSpec, ResultChunks)>,
}

/// The results of a plan, in order.
enum PlannedResults {}

impl Borrower for PlannedResults {
    type Of<'a> = Vec<PlannedResult<'a>>;
}

impl Conversion {
    /// Plans the conversion of an array, a batch, or the chunks of a column or a table: decides every step, and runs none but the
    /// decoding of run-end encoded and dictionary columns. Reads no values, and no memory of a device.
    ///
    /// # Errors
    /// As [`Conversion::check`]; when a copy is needed and not allowed, or nothing makes it on the device of the data. What only values
    /// decide is left to [`ConversionPlan::run`]: a null that is refused, a value that a cast cannot take.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use arrow_array::{ArrayRef, BooleanArray, Float32Array, RecordBatch};
    /// use arrow_dlpack::{Conversion, Selection};
    ///
    /// let x: ArrayRef = Arc::new(Float32Array::from(vec![0.5, 1.5]));
    /// let y: ArrayRef = Arc::new(BooleanArray::from(vec![true, false]));
    /// let batch = RecordBatch::try_from_iter([("x", x), ("y", y)]).unwrap();
    ///
    /// let plan = Conversion::default().select(Selection::Each(None)).plan(&batch)?;
    /// let report = plan.report();
    /// assert_eq!((report.rows[0].how(), report.rows[1].steps[0].as_str()), ("view", "bits unpacked to bytes"));
    /// assert_eq!(plan.bytes(), 2);
    ///
    /// let tensors = plan.run()?;
    /// assert_eq!((tensors[1].0.as_str(), tensors[1].1.as_bytes()?), ("y", &[1, 0][..]));
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn plan<'a>(&self, data: impl TryInto<Chunks<'a>, Error: Into<Error>>) -> Result<ConversionPlan> {
        let chunks = self.chunks_of(data)?;
        let (field, arrays) = (chunks.field(), chunks.arrays());
        self.check_columns(field)?;
        self.require_fixed_rows()?;
        let check = |conversion: &Self| conversion.results(field, None);
        let explain = || self.explain_any(field, Some(arrays), None, DeviceArray::device_of(arrays));
        let convert = |own: &Self, chunks: Chunks<'_>| own.to_tensors(chunks);
        self.plan_by((field, arrays), check, explain, convert, |conversion, results| {
            decoded(field, arrays, results, conversion.matrix()).map(Box::new)
        })
    }

    /// Plans [`Conversion::validity`].
    ///
    /// # Errors
    /// As [`Conversion::validity`], but for those of a driver, and memory that cannot be had.
    ///
    /// ```
    /// use arrow_array::Int8Array;
    /// use arrow_dlpack::Conversion;
    ///
    /// let plan = Conversion::default().plan_validity(&Int8Array::from(vec![Some(1), None]))?;
    /// assert_eq!((plan.report().rows[0].steps[0].as_str(), plan.bytes()), ("bits unpacked to bytes", 2));
    /// assert_eq!(plan.run()?.as_bytes()?, [1, 0]);
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn plan_validity<'a>(
        &self,
        data: impl TryInto<Chunks<'a>, Error: Into<Error>>,
    ) -> Result<ConversionPlan<Tensor>> {
        let chunks = self.chunks_of(data)?;
        let (field, arrays) = (chunks.field(), chunks.arrays());
        self.require_whole()?;
        let check = |conversion: &Self| conversion.validity_of(field);
        let explain = || Ok(self.explain_moved(explain_validity(&self.validity_of(field)?, self.copy), field, arrays));
        let convert = |own: &Self, chunks: Chunks<'_>| own.validity(chunks);
        self.plan_by((field, arrays), check, explain, convert, |conversion, result| {
            let only = decoded(field, arrays, vec![result], conversion.matrix())?;
            Ok(Box::new(OnlyResult(only)))
        })
    }

    /// Plans chunks. `check` makes specs, of types alone, and `plan` the plan where they are converted. Data that is moved to the host first
    /// is reported by `explain`, and `convert` does it all.
    pub(super) fn plan_by<S, R, P: Planned<R> + 'static>(
        &self,
        (field, arrays): (&FieldRef, &[DeviceArray]),
        check: impl FnOnce(&Self) -> Result<S>,
        explain: impl FnOnce() -> Result<Report>,
        convert: impl Fn(&Self, Chunks<'_>) -> Result<R> + Send + Sync + 'static,
        plan: impl FnOnce(&Self, S) -> Result<Box<P>>,
    ) -> Result<ConversionPlan<R>> {
        check_types(field, arrays)?;
        let (own, destination) = (DeviceArray::device_of(arrays), self.destination());
        let conversion = self.by_way_of(destination.is_surely_copied_from(own), own);
        let specs = check(&conversion)?;
        destination.plan(own)?;
        let planned: Box<dyn Planned<R>> = if arrays.iter().any(|array| self.comes_before(array.device())) {
            Box::new(MovedFirst {
                report: explain()?,
                field: field.clone(),
                chunks: fallible::copied(arrays)?,
                convert,
            })
        } else {
            plan(&conversion, specs)?
        };
        Ok(ConversionPlan { conversion: self.clone(), planned })
    }

    /// The report of results that go to where they are asked for.
    pub(super) fn sent(&self, report: Report) -> Report {
        self.device.map_or(report.clone(), |device| report.then_to(device, self.copy))
    }
}

/// Plans these results.
fn decoded(
    field: &FieldRef,
    chunks: &[DeviceArray],
    results: Vec<ResultSpec>,
    matrix: MatrixOptions,
) -> Result<SelfCell<Decoded, PlannedResults>> {
    let (mut decoded, mut refused) = (Vec::new(), None);
    for result in results {
        match ResultChunks::new(&result, chunks, &matrix) {
            Ok(chunks) => decoded.push((result, chunks)),
            Err(error) => {
                refused = Some(result.in_group(error));
                break;
            }
        }
    }
    let decoded = Decoded { field: field.clone(), chunks: fallible::copied(chunks)?, matrix, results: decoded };
    let planned = SelfCell::<_, PlannedResults>::new(decoded, Decoded::plan)?;
    // Results before the one that cannot be decoded are refused first.
    refused.map_or(Ok(planned), Err)
}

impl Decoded {
    /// The plan of each result.
    fn plan<'a>(&'a self) -> Result<Vec<PlannedResult<'a>>> {
        let plan = |(result, decoded): &'a (ResultSpec, ResultChunks)| {
            let planned = PlannedResult::new(result, &self.chunks, decoded, &self.matrix);
            planned.map_err(|error| result.in_group(error))
        };
        self.results.iter().map(plan).collect()
    }

    /// A row of the report for each column, and one for each matrix.
    fn report(&self, planned: &[PlannedResult<'_>]) -> Report {
        let device = DeviceArray::device_of(&self.chunks);
        let results = self.results.iter().zip(planned);
        results.fold(Report::default(), |report, ((result, _), planned)| {
            let part = match planned {
                PlannedResult::Column(planned) => explain_planned(device, planned),
                PlannedResult::Matrix(planned) => explain_planned_matrix(result.name(), device, planned),
                PlannedResult::Validity(planned) => {
                    return report.and(explain_planned_validity(result, device, planned.plan()));
                }
            };
            report.and(match &result.group {
                Some(group) => part.in_group(group),
                None => part,
            })
        })
    }

    /// Makes the results.
    fn run(&self, planned: &mut [PlannedResult<'_>]) -> Result<Vec<(String, Tensor)>> {
        let results: Vec<_> = self.results.iter().map(|(result, _)| result.clone()).collect();
        let convert = |number: usize, _: &ResultSpec, shared: Shared<'_>| match planned.get_mut(number) {
            Some(planned) => planned.run(shared, (&run_here, &work_here)),
            None => Err(Error::internal("a result without a plan")),
        };
        let mut tensors = Vec::new();
        each_result(&self.field, &self.chunks, &results, &self.matrix, convert, |result, tensor| {
            tensors.push((result.name().to_owned(), tensor));
            Ok::<_, Error>(())
        })?;
        Ok(tensors)
    }
}

impl Planned<Vec<(String, Tensor)>> for SelfCell<Decoded, PlannedResults> {
    fn report(&self, conversion: &Conversion) -> Report {
        conversion.sent(self.with(|data, planned| conversion.leaving_out(&data.field, data.report(planned))))
    }

    fn run(mut self: Box<Self>, conversion: &Conversion) -> Result<Vec<(String, Tensor)>> {
        let (names, tensors) = self.with_mut(|data, planned| data.run(planned))?.into_iter().unzip::<_, _, Vec<_>, _>();
        Ok(names.into_iter().zip(conversion.send(tensors, &work_here)?).collect())
    }
}

/// A plan of one result.
#[derive(Debug)]
struct OnlyResult(SelfCell<Decoded, PlannedResults>);

impl Planned<Tensor> for OnlyResult {
    fn report(&self, conversion: &Conversion) -> Report {
        Planned::report(&self.0, conversion)
    }

    fn run(self: Box<Self>, conversion: &Conversion) -> Result<Tensor> {
        let made = Planned::run(Box::new(self.0), conversion)?.pop();
        made.map(|(_, tensor)| tensor).ok_or_else(|| Error::internal("a plan without a result"))
    }
}

impl<R> ConversionPlan<R> {
    /// Reports every step, as [`Conversion::explain`] does. A null that will be refused is the error of its row.
    #[must_use]
    pub fn report(&self) -> Report {
        self.planned.report(&self.conversion)
    }

    /// Bytes that will move in all, at most.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.report().bytes()
    }

    /// Runs the plan. Returns what the conversion without a plan does: of [`Conversion::plan`] the results with their names, as
    /// [`Conversion::to_tensors`] does, where the only result of [`Selection::Whole`](crate::Selection::Whole) has the name of the column,
    /// and a matrix has none.
    ///
    /// # Errors
    /// For a null that is refused, a value that a cast cannot take, and chunks with different dictionaries; when memory cannot be had, or
    /// a driver fails.
    pub fn run(self) -> Result<R> {
        self.planned.run(&self.conversion)
    }
}
