//! The parts of ragged rows, each with its plan, and the two things that are done with a plan: it is run, or reported.

use std::borrow::Cow;
use std::cell::RefCell;

use arrow_schema::FieldRef;
use smallvec::{SmallVec, smallvec};

use super::Ragged;
use crate::arrow::DeviceArray;
use crate::column::{Shared, columns, convert_chunks, run_here, to_arrow, with_planned};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::plan::{Action, ChunkSize, Placement, Plan};
use crate::spec::{CopyMode, NullPolicy, Options, Spec, Undecided};
use crate::tensor::Tensor;

/// A shape, `None` for extents that only data tells.
type Shape = SmallVec<[Option<i64>; 4]>;

/// One part of ragged rows, and what is done to make it.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The attributes that lead to it, such as `values.offsets`.
    pub(crate) name: Cow<'static, str>,
    /// The Arrow field that it comes from.
    pub(crate) field: FieldRef,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    pub(crate) plan: Plan,
    /// When a copy may be made.
    pub(crate) copy: CopyMode,
    /// The steps that any data may need, where a type alone is reported.
    pub(crate) undecided: Option<Undecided>,
    /// What the host would wait for.
    pub(crate) waits: Vec<&'static str>,
    pub(crate) error: Option<Error>,
}

impl Part {
    /// A part of one dimension, made of `count` elements by these actions; a view without any.
    pub(super) fn new(
        name: &'static str,
        field: &FieldRef,
        (dtype, count): (DType, usize),
        actions: impl IntoIterator<Item = Action>,
        copy: CopyMode,
    ) -> Self {
        let plan = Plan::of_part(dtype, count, actions);
        Self::of_plan(name, field, dtype, smallvec![i64::try_from(count).ok()], plan, copy)
    }

    pub(super) fn of_plan(
        name: &'static str,
        field: &FieldRef,
        dtype: DType,
        shape: Shape,
        plan: Plan,
        copy: CopyMode,
    ) -> Self {
        let (name, field) = (Cow::Borrowed(name), field.clone());
        Self { name, field, dtype, shape, plan, copy, undecided: None, waits: Vec::new(), error: None }
    }

    /// The same part in memory of a device, of which only views are made.
    pub(super) fn on(mut self, device: Device) -> Self {
        self.plan.placement = Placement::Views(device);
        self
    }
}

/// The parts of rows, by the walk over their levels: tensors, or what would be done to make them.
pub(super) struct RaggedParts<T> {
    pub(super) field: FieldRef,
    pub(super) offsets: T,
    pub(super) lengths: Option<T>,
    pub(super) shapes: Option<T>,
    pub(super) validity: Option<T>,
    pub(super) values: PartValues<T>,
}

/// The elements of rows.
pub(super) enum PartValues<T> {
    Elements(T),
    Rows(Box<RaggedParts<T>>),
}

impl From<RaggedParts<Tensor>> for Ragged {
    fn from(parts: RaggedParts<Tensor>) -> Self {
        let RaggedParts { field, offsets, lengths, shapes, validity, values } = parts;
        let values = match values {
            PartValues::Elements(tensor) => tensor.into(),
            PartValues::Rows(rows) => Self::from(*rows).into(),
        };
        Self { values, offsets, lengths, shapes, validity, field: Some(field) }
    }
}

impl RaggedParts<Part> {
    /// All parts, in the order of a report.
    pub(super) fn into_list(self) -> Vec<Part> {
        let own = std::iter::once(self.offsets).chain(self.lengths).chain(self.shapes).chain(self.validity);
        let values = match self.values {
            PartValues::Elements(part) => vec![part],
            PartValues::Rows(rows) => {
                let inner = rows.into_list().into_iter();
                inner.map(|part| Part { name: format!("values.{}", part.name).into(), ..part }).collect()
            }
        };
        own.chain(values).collect()
    }
}

/// What is done with the plan of each part, as the walk comes to it.
pub(super) trait Use {
    type Made;

    /// A part that `make` makes.
    fn part(&self, part: Part, make: impl FnOnce(&Plan) -> Result<Tensor>) -> Result<Self::Made>;

    /// A part that is a column of its own.
    fn column(&self, name: &'static str, spec: &Spec, arrays: &[DeviceArray], options: &Options) -> Result<Self::Made>;

    /// Elements that were made, and are cast then.
    fn cast(&self, made: Self::Made, item: &FieldRef, options: &Options) -> Result<Self::Made>;

    /// Checks rows by what values alone tell.
    fn check(
        &self,
        parts: &RaggedParts<Self::Made>,
        check: impl FnOnce(&RaggedParts<Tensor>) -> Result<()>,
    ) -> Result<()>;
}

/// Runs the plans: refuses and logs their copies.
pub(super) struct RunParts;

impl Use for RunParts {
    type Made = Tensor;

    fn part(&self, part: Part, make: impl FnOnce(&Plan) -> Result<Tensor>) -> Result<Tensor> {
        part.plan.refuse_steps(part.copy)?;
        let (name, field, plan) = (&part.name, &part.field, &part.plan);
        plan.record(|| format!("{name} of column {:?}: {} of {}", field.name(), plan.rows, field.data_type()));
        make(&part.plan)
    }

    fn column(&self, _: &'static str, spec: &Spec, arrays: &[DeviceArray], options: &Options) -> Result<Tensor> {
        convert_chunks(spec, &columns(arrays), options, Shared::default(), &run_here)
    }

    fn cast(&self, made: Tensor, item: &FieldRef, options: &Options) -> Result<Tensor> {
        let array = to_arrow(&made, None, CopyMode::IfNeeded)?.relabel(item.clone())?;
        let options = of_own(options);
        let chunks = columns(std::slice::from_ref(&array));
        convert_chunks(&Spec::new(item, &options)?, &chunks, &options, Shared::default(), &run_here)
    }

    fn check(&self, parts: &RaggedParts<Tensor>, check: impl FnOnce(&RaggedParts<Tensor>) -> Result<()>) -> Result<()> {
        check(parts)
    }
}

/// Reports the plans, and makes nothing.
#[derive(Default)]
pub(super) struct ReportParts {
    /// The first copy that is refused: it comes before whatever else is wrong with later parts.
    refused: RefCell<Option<Error>>,
}

impl ReportParts {
    /// What keeps the conversion from being made, where the walk fails.
    pub(super) fn first(self, error: Error) -> Error {
        self.refused.into_inner().unwrap_or(error)
    }
}

impl Use for ReportParts {
    type Made = Part;

    fn part(&self, part: Part, _: impl FnOnce(&Plan) -> Result<Tensor>) -> Result<Part> {
        let error = part.plan.refuse_steps(part.copy).err().map(|error| error.in_column(part.field.name()));
        let mut refused = self.refused.borrow_mut();
        *refused = refused.take().or_else(|| error.clone());
        Ok(Part { error, ..part })
    }

    fn column(&self, name: &'static str, spec: &Spec, arrays: &[DeviceArray], options: &Options) -> Result<Part> {
        let rows = arrays.iter().map(DeviceArray::len).sum::<usize>();
        let inner = spec.inner_shape().iter().copied().map(Some);
        let shape = std::iter::once(i64::try_from(rows).ok()).chain(inner).collect();
        let planned =
            with_planned(spec, &columns(arrays), options, |planned| planned.check().map(|()| planned.plan().clone()));
        let (plan, error) = match planned {
            Ok(plan) => (plan, None),
            Err(error) => (Plan::default(), Some(error)),
        };
        Ok(Part { error, ..Part::of_plan(name, spec.field(), spec.dtype(), shape, plan, options.copy) })
    }

    fn cast(&self, made: Part, item: &FieldRef, options: &Options) -> Result<Part> {
        let options = of_own(options);
        let spec = Spec::new(item, &options)?;
        let chunk = ChunkSize::without_nulls(made.plan.rows);
        Ok(Part {
            dtype: spec.dtype(),
            plan: made.plan.then(Plan::new(&spec, &[chunk], &options, Placement::Host)?),
            ..made
        })
    }

    fn check(&self, _: &RaggedParts<Part>, _: impl FnOnce(&RaggedParts<Tensor>) -> Result<()>) -> Result<()> {
        Ok(())
    }
}

/// The options for elements that are ours already, without nulls.
fn of_own(options: &Options) -> Options {
    options.clone().copy(CopyMode::IfNeeded).writable(false).nulls(NullPolicy::Keep)
}
