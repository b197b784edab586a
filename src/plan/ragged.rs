//! Makes the plans of ragged and of padded rows.

use super::{Action, Plan, Step};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::Spec;

impl Plan {
    /// The plan for a part of `count` elements that these actions make in one pass; a view without any.
    pub(crate) fn of_part(dtype: DType, count: usize, actions: impl IntoIterator<Item = Action>) -> Self {
        let bytes = count.saturating_mul(dtype.itemsize());
        let mut plan = Self { rows: count, elements: count, ..Self::default() };
        if bytes > 0 {
            plan.steps.extend(actions.into_iter().map(|action| Step { action, bytes, at_most: false }));
        }
        plan.bytes = if plan.steps.is_empty() { 0 } else { bytes };
        plan
    }

    /// The plan for rows that this action copies, so many bytes of them; a view where there are none to be copied.
    pub(crate) fn of_bytes(rows: usize, bytes: Option<usize>, action: Action) -> Self {
        let step = |bytes| Step { action, bytes, at_most: false };
        let steps = bytes.map(step).into_iter().collect();
        Self { rows, elements: rows, bytes: bytes.unwrap_or(0), steps, ..Self::default() }
    }

    /// This plan followed by `next`, which reads its result.
    pub(crate) fn then(self, next: Self) -> Self {
        let bytes = self.bytes.saturating_add(next.bytes);
        Self { bytes, steps: self.steps.into_iter().chain(next.steps.iter().copied()).collect(), ..next }
    }

    /// The plan for a matrix of `rows` padded to `length` elements, and its validity. `decoded`: how many elements are decoded before.
    ///
    /// # Errors
    /// When the result is larger than memory can be.
    pub(crate) fn padded(spec: &Spec, rows: usize, length: usize, decoded: usize) -> Result<Self> {
        let size = || {
            let items = rows.checked_mul(length)?;
            let elements = items.checked_mul(spec.row_elements())?;
            let bytes = elements.checked_mul(spec.dtype().itemsize())?.checked_add(items)?;
            isize::try_from(bytes).is_ok().then_some((elements, bytes))
        };
        let too_large = || Error::new(ErrorKind::Memory, "the padded result is larger than memory can be");
        let (elements, bytes) = size().ok_or_else(too_large)?;
        let mut plan = Self { rows, elements, ..Self::default() };
        if bytes == 0 {
            return Ok(plan);
        }
        let decoded = decoded.saturating_mul(spec.decoded_row_bytes());
        for action in Self::padding_actions(spec, Some(length)) {
            plan.steps.push(Step {
                action,
                bytes: if action == Action::Decode { decoded } else { bytes },
                at_most: false,
            });
        }
        plan.bytes = if spec.decoded().is_some() { bytes.saturating_add(decoded) } else { bytes };
        Ok(plan)
    }

    /// What is done to pad rows of these elements.
    pub(crate) fn padding_actions(spec: &Spec, length: Option<usize>) -> impl Iterator<Item = Action> {
        let decode = spec.decoded().map(|_| Action::Decode);
        let cast = spec.is_cast().then(|| Action::Cast { from: spec.element(), to: spec.dtype() });
        decode.into_iter().chain([Action::Pad { length }]).chain(cast)
    }
}
