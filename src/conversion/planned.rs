//! [`Planned`]: what is asked of a [`Conversion`], with the plan of each result and the chunks that these are for.

use arrow_schema::FieldRef;

use super::converted::Converted;
use super::planned_rows::PlannedRows;
use super::run::Run;
use super::varied::VariedGroup;
use crate::alloc::{Borrower, SelfCell, fallible};
use crate::arrow::DeviceArray;
use crate::column::SharedReads;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::explain::{Report, explain_parts, explain_result};
use crate::matrix::{PlannedResult, ResultChunks, each_result, lowest_of_results};
use crate::ragged::{PlannedPadded, PlannedRagged, plan_padded_type, plan_schema};
use crate::spec::{Conversion, MatrixOptions, Pad, ResultSpec, Selection};
use crate::tensor::Tensor;

/// What a caller asks of a conversion.
#[derive(Clone, Copy, Debug)]
pub(super) enum ResultForm {
    /// The results of its selection.
    Results,
    /// The validity of the only result.
    Validity,
    /// The values and offsets of a column.
    Ragged,
    /// The rows of a column in one length, and their validity.
    Padded(Pad),
}

/// The plans of what is asked for.
#[derive(Debug)]
pub(super) enum Planned {
    Results(Box<PlannedResults>),
    /// Those of a column of lists or strings, which are on a device.
    Rows(FieldRef, Device, Box<PlannedRows>),
}

/// The plans of named results.
#[derive(Debug)]
pub(super) struct PlannedResults {
    /// Those with rows of one shape.
    fixed: SelfCell<Decoded, PlannedFixed>,
    /// Those of groups whose rows differ in length, or are passed through.
    varied: Vec<(VariedGroup, PlannedRows)>,
    /// In the order of the selection, whether the next one is of the first kind.
    is_fixed: Vec<bool>,
}

/// Chunks, decoded where they have to be, and the specs of the results.
#[derive(Debug)]
struct Decoded {
    field: FieldRef,
    chunks: Vec<DeviceArray>,
    matrix: MatrixOptions,
    results: Vec<(ResultSpec, ResultChunks)>,
}

/// The plans of results with rows of one shape, in order.
enum PlannedFixed {}

impl Borrower for PlannedFixed {
    type Of<'a> = Vec<PlannedResult<'a>>;
}

impl Conversion {
    /// Converts chunks into what is asked for, where that is asked for.
    ///
    /// # Errors
    /// As [`Conversion::planned`] and [`Planned::run`]; when data or results cannot go where they have to.
    pub(super) fn convert_asked(
        &self,
        field: &FieldRef,
        chunks: &[DeviceArray],
        asked: ResultForm,
        run: Run<'_>,
    ) -> Result<Vec<(String, Converted)>> {
        let there = self.bring(chunks, run)?;
        let made = there.conversion.planned(field, &there.chunks, asked, run.natural)?.run(run)?;
        let made = made.into_iter().map(|(name, result)| Ok((name, there.owned(result)?))).collect::<Result<_>>()?;
        self.send_results(made, run.runner)
    }

    /// Validates what is asked for against a type.
    ///
    /// # Errors
    /// For whatever no data of the type makes possible.
    pub(super) fn check_asked(&self, field: &FieldRef, asked: ResultForm) -> Result<()> {
        let options = || self.of(field.name());
        match asked {
            ResultForm::Results => self.check_results(field).map(drop),
            ResultForm::Validity => self.validity_of(field).map(drop),
            ResultForm::Ragged => plan_schema(field, &options(), false).map(drop),
            ResultForm::Padded(pad) => plan_padded_type(field, Device::CPU, pad, &options()).map(drop),
        }
    }

    /// Plans what is asked for of chunks where they are converted. `natural` as for [`Conversion::results`].
    ///
    /// # Errors
    /// As [`Conversion::check_asked`]; when a copy is needed and not allowed, or nothing makes it; for a null row that is refused.
    pub(super) fn planned(
        &self,
        field: &FieldRef,
        chunks: &[DeviceArray],
        asked: ResultForm,
        natural: Option<DType>,
    ) -> Result<Planned> {
        let rows = match asked {
            ResultForm::Results => {
                let (fixed, varied) = self.check_results_as(field, natural)?;
                let is_fixed = match &self.selection {
                    Selection::Named(groups) => groups.iter().flat_map(|(_, group)| group.are_fixed()).collect(),
                    _ => fixed.iter().map(|_| true).collect(),
                };
                return PlannedResults::plan(field, chunks, self.matrix(), (fixed, varied, is_fixed));
            }
            ResultForm::Validity => {
                let only = (vec![self.validity_of(field)?], Vec::new(), vec![true]);
                return PlannedResults::plan(field, chunks, self.matrix(), only);
            }
            ResultForm::Ragged => {
                PlannedRows::Ragged(Box::new(PlannedRagged::new(field, chunks, &self.of(field.name()))?))
            }
            ResultForm::Padded(pad) => {
                let rows = PlannedPadded::new(field, chunks, pad, &self.of(field.name()))?;
                PlannedRows::Padded { rows, has_validity: true, has_lengths: false }
            }
        };
        rows.refuse()?;
        Ok(Planned::Rows(field.clone(), DeviceArray::device_of(chunks), Box::new(rows)))
    }
}

impl Planned {
    /// Reports every step, but for those that take results to another device.
    pub(super) fn report(&self, conversion: &Conversion) -> Report {
        match self {
            Self::Rows(field, device, rows) => explain_parts(field, *device, rows.parts()),
            Self::Results(results) => {
                let report = results.report();
                results.fixed.with(|data, _| conversion.leaving_out(&data.field, report))
            }
        }
    }

    /// Makes the results, where the data is.
    ///
    /// # Errors
    /// For what only values decide; when an allocation fails, or a driver fails.
    pub(super) fn run(self, run: Run<'_>) -> Result<Vec<(String, Converted)>> {
        match self {
            Self::Results(results) => results.run(run),
            Self::Rows(field, _, rows) => {
                Ok(rows.run()?.into_iter().map(|made| (field.name().clone(), made)).collect())
            }
        }
    }
}

impl PlannedResults {
    fn plan(
        field: &FieldRef,
        chunks: &[DeviceArray],
        matrix: MatrixOptions,
        (fixed, varied, is_fixed): (Vec<ResultSpec>, Vec<VariedGroup>, Vec<bool>),
    ) -> Result<Planned> {
        let copy = matrix.copy;
        let fixed = Decoded::planned(field, chunks, fixed, matrix)?;
        let plan = |group: VariedGroup| {
            let rows = group.plan(chunks, copy)?;
            rows.refuse().map_err(|error| error.in_group(&group.name).of_named_results())?;
            Ok((group, rows))
        };
        let varied = varied.into_iter().map(plan).collect::<Result<_>>()?;
        Ok(Planned::Results(Box::new(Self { fixed, varied, is_fixed })))
    }

    fn report(&self) -> Report {
        let device = self.fixed.with(|data, _| DeviceArray::device_of(&data.chunks));
        let mut fixed = self.fixed.with(|data, planned| data.reports(device, planned)).into_iter();
        let mut varied = self.varied.iter().map(|(group, rows)| group.report(device, Ok(rows)));
        let next = |is_fixed: &bool| if *is_fixed { fixed.next() } else { varied.next() };
        self.is_fixed.iter().filter_map(next).fold(Report::default(), Report::and)
    }

    fn run(mut self, run: Run<'_>) -> Result<Vec<(String, Converted)>> {
        let fixed = self.fixed.with_mut(|data, planned| data.run(planned, run))?;
        let mut fixed = fixed.into_iter().map(|(name, tensor)| (name, tensor.into()));
        let mut varied = self.varied.into_iter();
        let mut results = Vec::new();
        for is_fixed in self.is_fixed {
            if is_fixed {
                results.extend(fixed.next());
            } else if let Some((group, rows)) = varied.next() {
                let made = rows.run().map_err(|error| error.in_group(&group.name).of_named_results())?;
                results.extend(group.result_names().map(str::to_owned).zip(made));
            }
        }
        Ok(results)
    }
}

impl Decoded {
    /// Decodes the chunks of these results, and plans them.
    fn planned(
        field: &FieldRef,
        chunks: &[DeviceArray],
        results: Vec<ResultSpec>,
        matrix: MatrixOptions,
    ) -> Result<SelfCell<Self, PlannedFixed>> {
        let (mut decoded, mut refused, mut results) = (Vec::new(), None, results.into_iter());
        while let Some(result) = results.next() {
            match ResultChunks::new(&result, chunks, &matrix) {
                Ok(chunks) => decoded.push((result, chunks)),
                Err(error) => {
                    let others = decoded.iter().map(|(result, _)| result).chain(results.as_slice());
                    refused = Some(lowest_of_results(result.in_group(error), others, chunks, &matrix));
                    break;
                }
            }
        }
        let decoded = Self { field: field.clone(), chunks: fallible::copied(chunks)?, matrix, results: decoded };
        let planned = SelfCell::<_, PlannedFixed>::new(decoded, Self::plan)?;
        // Results before the one that cannot be decoded are refused first.
        refused.map_or(Ok(planned), Err)
    }

    /// The plan of each result.
    fn plan<'a>(&'a self) -> Result<Vec<PlannedResult<'a>>> {
        let plan = |(result, decoded): &'a (ResultSpec, ResultChunks)| {
            let planned = PlannedResult::new(result, &self.chunks, decoded, &self.matrix);
            planned.map_err(|error| result.in_group(error))
        };
        self.results.iter().map(plan).collect()
    }

    /// The report of each result.
    fn reports(&self, device: Device, planned: &[PlannedResult<'_>]) -> Vec<Report> {
        let both = self.results.iter().zip(planned);
        both.map(|((result, _), planned)| explain_result(result, device, planned)).collect()
    }

    /// Makes the results.
    fn run(&self, planned: &mut [PlannedResult<'_>], run: Run<'_>) -> Result<Vec<(String, Tensor)>> {
        let results: Vec<_> = self.results.iter().map(|(result, _)| result.clone()).collect();
        let convert = |number: usize, _: &ResultSpec, shared: SharedReads<'_>| match planned.get_mut(number) {
            Some(planned) => planned.run(shared, run.runner),
            None => Err(Error::internal("a result without a plan")),
        };
        let mut tensors = Vec::new();
        // All are planned, so that nothing but data is refused.
        each_result(
            &self.field,
            &self.chunks,
            &results,
            &self.matrix,
            convert,
            |error| error,
            |result, tensor| {
                tensors.push((result.name().to_owned(), tensor));
                Ok::<_, Error>(())
            },
        )?;
        Ok(tensors)
    }
}
