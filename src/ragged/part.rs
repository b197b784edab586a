//! [`Part`]: one tensor of ragged rows, and the plan that makes it.

use std::borrow::Cow;

use arrow_schema::FieldRef;
use smallvec::{SmallVec, smallvec};

use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::plan::{Action, Placement, Plan};
use crate::spec::{CopyMode, Undecided};
use crate::tensor::Tensor;

/// A shape, `None` for extents that only data tells.
type PartialShape = SmallVec<[Option<i64>; 4]>;

/// One part of ragged rows, and what is done to make it.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The attributes that lead to it, such as `values.offsets`.
    pub(crate) name: Cow<'static, str>,
    /// The Arrow field that it comes from.
    pub(crate) field: FieldRef,
    pub(crate) dtype: DType,
    pub(crate) shape: PartialShape,
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
        shape: PartialShape,
        plan: Plan,
        copy: CopyMode,
    ) -> Self {
        let (name, field) = (Cow::Borrowed(name), field.clone());
        Self { name, field, dtype, shape, plan, copy, undecided: None, waits: Vec::new(), error: None }
    }

    /// How many elements the part has; `None` if only data tells.
    pub(super) fn elements(&self) -> Option<usize> {
        let extents = self.shape.iter().map(|extent| usize::try_from((*extent)?).ok());
        extents.into_iter().try_fold(1_usize, |elements, extent| elements.checked_mul(extent?))
    }

    /// The same part in memory of a device, of which only views are made.
    pub(super) fn on(mut self, device: Device) -> Self {
        self.plan.placement = Placement::Views(device);
        self
    }

    /// The same part in memory of a device, made by kernels.
    pub(super) fn by_kernels(mut self, device: Device) -> Self {
        self.plan.placement = Placement::Kernels(device);
        self
    }

    /// The same part, with the error of a copy that is not allowed, if it has none yet.
    pub(super) fn checked(mut self) -> Self {
        let error = self.error.take().or_else(|| self.plan.refuse_steps(self.copy).err());
        self.error = error.map(|error| error.in_column(self.field.name()));
        self
    }

    /// Has `make` make the part by its plan, and puts the copy that it is on the record.
    pub(super) fn make(&self, make: impl FnOnce(&Plan) -> Result<Tensor>) -> Result<Tensor> {
        let Self { name, field, plan, .. } = self;
        plan.record(|| match field.name().as_str() {
            "" => format!("{name} of an unnamed column: {} of {}", plan.rows, field.data_type()),
            column => format!("{name} of column {column:?}: {} of {}", plan.rows, field.data_type()),
        });
        make(plan)
    }
}
