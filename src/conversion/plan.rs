//! [`ConversionPlan`]: what a [`Conversion`] will do to the data at hand, to be looked at and then run.

use arrow_schema::FieldRef;

use super::converted::{Converted, both_tensors, only_rows, only_tensor};
use super::planned::{Planned, ResultForm};
use super::run::Run;
use crate::alloc::fallible;
use crate::arrow::{Chunks, DeviceArray};
use crate::column::check_types;
use crate::error::{Error, Result};
use crate::explain::Report;
use crate::ragged::Ragged;
use crate::spec::{Conversion, Pad};
use crate::tensor::Tensor;

/// What a [`Conversion`] will do to the data at hand: made by [`Conversion::plan`], printed by [`ConversionPlan::report`], and run by
/// [`ConversionPlan::run`]. Shares the memory of the data, and holds what was decoded of run-end encoded and dictionary columns. `R` is
/// what it returns.
#[derive(Debug)]
#[must_use = "a plan does nothing until it is run"]
pub struct ConversionPlan<R = Vec<(String, Converted)>> {
    conversion: Conversion,
    asked: ResultForm,
    state: PlanState,
    /// Picks what is returned among the results.
    take: fn(Vec<(String, Converted)>) -> Result<R>,
}

/// What a plan knows of its data.
#[derive(Debug)]
enum PlanState {
    Planned(Planned),
    /// Data on a device that is moved to the host first: until then, only its type is known.
    MovedFirst {
        report: Box<Report>,
        field: FieldRef,
        chunks: Vec<DeviceArray>,
    },
}

impl Conversion {
    /// Plans the conversion of an array, a batch, or the chunks of a column or a table: decides every step, and runs none but the
    /// decoding of run-end encoded and dictionary columns. Reads no values but offsets: those of host memory, and on a
    /// device those of lists with a length, with their bitmaps, for which the host waits.
    ///
    /// # Errors
    /// As [`Conversion::check`]; when a copy is needed and not allowed, or nothing makes it on the device of the data. What only values
    /// decide is left to [`ConversionPlan::run`]: a null that is refused, a value that a cast cannot take. Null rows of different lengths
    /// are refused here.
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
    /// let results = plan.run()?;
    /// assert_eq!((results[1].0.as_str(), results[1].1.as_tensor().unwrap().as_bytes()?), ("y", &[1, 0][..]));
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn plan<'a>(&self, data: impl TryInto<Chunks<'a>, Error: Into<Error>>) -> Result<ConversionPlan> {
        let chunks = self.chunks_of(data)?;
        self.check_columns(chunks.field())?;
        self.check_groups()?;
        self.plan_asked(&chunks, ResultForm::Results, Ok)
    }

    /// Plans [`Conversion::validity`].
    ///
    /// # Errors
    /// As [`Conversion::validity`], except for errors of a driver and failed allocations.
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
        self.require_whole()?;
        self.plan_asked(&chunks, ResultForm::Validity, only_tensor)
    }

    /// Plans [`Conversion::ragged`]: reads offsets and bitmaps of host memory once, and decides every step. Of a device, it reads no memory,
    /// and only the type tells of elements.
    ///
    /// # Errors
    /// As [`Conversion::ragged`], but for what values decide: a value that a cast cannot take.
    ///
    /// ```
    /// use arrow_array::{ListArray, types::Int32Type};
    /// use arrow_dlpack::{Conversion, DType};
    ///
    /// let rows = [vec![Some(1), Some(2)], vec![], vec![Some(3)]].map(Some);
    /// let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(rows);
    /// let plan = Conversion::default().dtype(DType::Float32).plan_ragged(&lists)?;
    /// assert_eq!(plan.report().rows.iter().map(|row| row.how()).collect::<Vec<_>>(), ["view", "copy"]);
    /// assert_eq!(plan.bytes(), 12);
    /// assert_eq!(plan.run()?.values().as_tensor().unwrap().as_slice::<f32>()?, [1.0, 2.0, 3.0]);
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn plan_ragged<'a>(
        &self,
        data: impl TryInto<Chunks<'a>, Error: Into<Error>>,
    ) -> Result<ConversionPlan<Ragged>> {
        let chunks = Chunks::of(data)?;
        self.check_rows(chunks.field())?;
        self.plan_asked(&chunks, ResultForm::Ragged, only_rows)
    }

    /// Plans [`Conversion::padded`]: reads offsets and bitmaps once, and decides every step.
    ///
    /// # Errors
    /// As [`Conversion::padded`], but for what values decide: a null element that is refused, a value that a cast cannot take.
    ///
    /// ```
    /// use arrow_array::StringArray;
    /// use arrow_dlpack::{Conversion, Pad, Scalar};
    ///
    /// let text = StringArray::from(vec!["to", "be"]);
    /// let plan = Conversion::default().plan_padded(&text, Pad::new(Scalar::Int(0)).length(3))?;
    /// assert_eq!((plan.bytes(), plan.run()?.0.as_slice::<u8>()?), (12, &b"to\0be\0"[..]));
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn plan_padded<'a>(
        &self,
        data: impl TryInto<Chunks<'a>, Error: Into<Error>>,
        pad: Pad,
    ) -> Result<ConversionPlan<(Tensor, Tensor)>> {
        let chunks = Chunks::of(data)?;
        self.check_rows(chunks.field())?;
        self.refuse_length()?;
        self.plan_asked(&chunks, ResultForm::Padded(pad), both_tensors)
    }

    /// Plans what is asked for. Types are checked first, then whether data and results can reach their devices.
    fn plan_asked<R>(
        &self,
        chunks: &Chunks<'_>,
        asked: ResultForm,
        take: fn(Vec<(String, Converted)>) -> Result<R>,
    ) -> Result<ConversionPlan<R>> {
        let (field, arrays) = (chunks.field(), chunks.arrays());
        check_types(field, arrays)?;
        let (own, destination) = (DeviceArray::device_of(arrays), self.destination());
        let conversion = self.by_way_of(destination.is_surely_copied_from(own), own);
        let is_moved = arrays.iter().any(|array| self.comes_before(array.device()));
        let reached = destination.plan(own);
        if is_moved || reached.is_err() {
            conversion.check_asked(field, asked)?;
        }
        reached?;
        let state = if is_moved {
            let report = Box::new(self.explain_any(field, Some(arrays), asked, own)?);
            PlanState::MovedFirst { report, field: field.clone(), chunks: fallible::copied(arrays)? }
        } else {
            PlanState::Planned(conversion.planned(field, arrays, asked, None)?)
        };
        Ok(ConversionPlan { conversion: self.clone(), asked, state, take })
    }
}

impl<R> ConversionPlan<R> {
    /// Reports every step, as [`Conversion::explain`] does. A null that will be refused is the error of its row.
    #[must_use]
    pub fn report(&self) -> Report {
        let Self { conversion, state, .. } = self;
        match state {
            PlanState::MovedFirst { report, .. } => report.as_ref().clone(),
            PlanState::Planned(planned) => {
                let report = planned.report(conversion);
                conversion.device.map_or(report.clone(), |device| report.then_to(device, conversion.copy))
            }
        }
    }

    /// Bytes that will move in all, at most.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.report().bytes()
    }

    /// Runs the plan. Returns what the conversion without a plan does: of [`Conversion::plan`] the results with their names, as
    /// [`Conversion::to_results`] does, where the only result of [`Selection::Whole`](crate::Selection::Whole) has the name of the column,
    /// and a matrix has none.
    ///
    /// # Errors
    /// For a null that is refused, a value that a cast cannot take, and chunks with different dictionaries; when an allocation fails, or
    /// a driver fails.
    pub fn run(self) -> Result<R> {
        let Self { conversion, asked, state, take } = self;
        let run = Run::default();
        take(match state {
            PlanState::Planned(planned) => conversion.send_results(planned.run(run)?, run.runner)?,
            PlanState::MovedFirst { field, chunks, .. } => conversion.convert_asked(&field, &chunks, asked, run)?,
        })
    }
}
