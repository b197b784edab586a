//! [`PlannedElements`]: elements of ragged rows that become one tensor, decoded where they have to be, with their plan.

use std::fmt;

use super::part::Part;
use crate::alloc::{Borrower, SelfCell};
use crate::arrow::DeviceArray;
use crate::column::{PlannedColumn, SharedReads, columns_of_pieces, decode_column, run_here};
use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::spec::{Options, Spec};
use crate::tensor::Tensor;

/// Elements that are about to become a tensor: what will be done is decided, and no value was read.
pub(super) struct PlannedElements {
    /// All that is known without the plan.
    part: Part,
    /// The plan, or why there is none.
    planned: Result<SelfCell<ElementChunks, PlannedColumns>>,
}

/// The chunks of elements.
#[derive(Debug)]
struct ElementChunks {
    spec: Spec,
    chunks: Vec<DeviceArray>,
    /// Of each chunk, whether null rows divide it from the one before.
    continues: Vec<bool>,
    options: Options,
}

/// The plan of elements.
enum PlannedColumns {}

impl Borrower for PlannedColumns {
    type Of<'a> = PlannedColumn<'a>;
}

impl fmt::Debug for PlannedElements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlannedElements").field("part", &self.part).finish_non_exhaustive()
    }
}

impl PlannedElements {
    /// Plans the part `name` of these chunks. A plan that is refused is one without chunks: see [`PlannedElements::refused`].
    pub(super) fn new(name: &'static str, spec: Spec, chunks: Vec<DeviceArray>, options: Options) -> Self {
        Self::of_pieces(name, spec, (chunks, Vec::new()), options)
    }

    /// As [`PlannedElements::new`], where null rows divide chunks: `continues` is whether each is of the chunk that the one before is of.
    pub(super) fn of_pieces(
        name: &'static str,
        spec: Spec,
        (chunks, continues): (Vec<DeviceArray>, Vec<bool>),
        options: Options,
    ) -> Self {
        let rows = DeviceArray::rows_of(&chunks);
        let inner = spec.inner_shape().iter().copied().map(Some);
        let shape = std::iter::once(i64::try_from(rows).ok()).chain(inner).collect();
        let part = Part::of_plan(name, spec.field(), spec.dtype(), shape, Plan::default(), options.copy);
        let decoded = decode_column(&spec, &columns_of_pieces(&chunks, &continues), &options);
        let planned = decoded.and_then(|decoded| {
            let (chunks, own) = decoded.map_or((chunks, None), |decoded| (decoded.chunks, decoded.spec));
            let elements = ElementChunks { spec: own.unwrap_or(spec), chunks, continues, options };
            SelfCell::new(elements, |own| {
                let columns = columns_of_pieces(&own.chunks, &own.continues);
                PlannedColumn::new(&own.spec, &columns, &own.options)
            })
        });
        Self { part, planned: planned.map_err(Error::without_categories) }
    }

    /// The same elements, with another error if there is one.
    pub(super) fn map_err(self, work: impl FnOnce(Error) -> Error) -> Self {
        Self { planned: self.planned.map_err(work), ..self }
    }

    /// Why they cannot be made, as far as no value decides it.
    pub(super) fn refused(&self) -> Option<&Error> {
        self.planned.as_ref().err()
    }

    /// What will be done. Looks for what will be refused, as far as the plan knows.
    pub(super) fn part(&self) -> Part {
        let plan = |planned: &PlannedColumn<'_>| {
            planned.check().map_err(Error::without_categories).map(|()| planned.plan().clone())
        };
        let plan = self.planned.as_ref().map_err(Error::clone).and_then(|cell| cell.with(|_, planned| plan(planned)));
        match plan {
            Ok(plan) => Part { plan, ..self.part.clone() },
            Err(error) => Part { error: Some(error), ..self.part.clone() },
        }
    }

    /// The tensor.
    ///
    /// # Errors
    /// As [`PlannedColumn::run`]; [`PlannedElements::refused`].
    pub(super) fn run(&mut self) -> Result<Tensor> {
        match &mut self.planned {
            Ok(cell) => cell
                .with_mut(|_, planned| planned.run(SharedReads::default(), &run_here))
                .map_err(Error::without_categories),
            Err(error) => Err(error.clone()),
        }
    }
}
