//! Plans the conversion into rows of different lengths, padded or not, to be looked at and then run.

use super::plan::{ConversionPlan, Planned};
use crate::arrow::{Chunks, DeviceArray};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::explain::{Report, explain_planned_padded, explain_planned_ragged};
use crate::matrix::work_here;
use crate::ragged::{PlannedPadded, PlannedRagged, Ragged, plan_padded, plan_schema};
use crate::spec::{Conversion, Pad};
use crate::tensor::Tensor;

/// Planned rows, and where they are.
#[derive(Debug)]
struct PlannedOn<P> {
    device: Device,
    rows: P,
}

impl Planned<Ragged> for PlannedOn<PlannedRagged> {
    fn report(&self, conversion: &Conversion) -> Report {
        conversion.sent(explain_planned_ragged(self.device, &self.rows))
    }

    fn run(self: Box<Self>, conversion: &Conversion) -> Result<Ragged> {
        conversion.send_rows(self.rows.run()?, &work_here)
    }
}

impl Planned<(Tensor, Tensor)> for PlannedOn<PlannedPadded> {
    fn report(&self, conversion: &Conversion) -> Report {
        conversion.sent(explain_planned_padded(self.device, &self.rows))
    }

    fn run(self: Box<Self>, conversion: &Conversion) -> Result<(Tensor, Tensor)> {
        conversion.send_pair(self.rows.run()?)
    }
}

impl Conversion {
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
        let (field, arrays) = (chunks.field(), chunks.arrays());
        self.check_rows(field)?;
        let check = |conversion: &Self| plan_schema(field, &conversion.of(field.name()), false).map(drop);
        let explain = || self.explain_any(field, Some(arrays), None, DeviceArray::device_of(arrays));
        let convert = |own: &Self, chunks: Chunks<'_>| own.ragged(chunks);
        self.plan_by((field, arrays), check, explain, convert, |conversion, ()| {
            let rows = PlannedRagged::new(field, arrays, &conversion.of(field.name()))?;
            rows.refuse()?;
            Ok(on(arrays, rows))
        })
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
        let (field, arrays) = (chunks.field(), chunks.arrays());
        self.check_rows(field)?;
        let check = |conversion: &Self| plan_padded(field, None, pad, &conversion.of(field.name())).map(drop);
        let explain = || self.explain_any(field, Some(arrays), Some(pad), DeviceArray::device_of(arrays));
        let convert = move |own: &Self, chunks: Chunks<'_>| own.padded(chunks, pad);
        self.plan_by((field, arrays), check, explain, convert, |conversion, ()| {
            let rows = PlannedPadded::new(field, arrays, pad, &conversion.of(field.name()))?;
            rows.refuse()?;
            Ok(on(arrays, rows))
        })
    }
}

fn on<P>(arrays: &[DeviceArray], rows: P) -> Box<PlannedOn<P>> {
    Box::new(PlannedOn { device: DeviceArray::device_of(arrays), rows })
}
