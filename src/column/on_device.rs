//! Columns on a device: views, and what the host has to know of them.

use crate::arrow::{Leaf, Mask};
use crate::convert::ColumnChunk;
use crate::error::{Error, ErrorKind, Result};
use crate::order::{self, Order};
use crate::plan::{Action, Plan};
use crate::spec::{Element, Nulls, Spec};
use crate::transfer::read_bytes;

/// Which elements are null. The host reads bitmaps where nulls are refused and their number is not known to be 0.
pub(super) fn mask<'a>(spec: &Spec, leaf: &Leaf<'a>, order: &Order) -> Result<Option<Mask<'a>>> {
    if spec.nulls() == Nulls::Kept || !leaf.has_bitmaps() {
        return Ok(None);
    }
    leaf.mask_read(|start, bytes| read_bytes(order, start.addr(), bytes))
}

/// Calls `work` with the chunk and a plan that nothing moves by.
///
/// # Errors
/// When something would have to move, or the memory is not what the array says.
pub(super) fn planned<R>(
    spec: &Spec,
    plan: &Plan,
    chunk: ColumnChunk<'_>,
    order: &Order,
    work: impl FnOnce(&Plan, &[ColumnChunk<'_>]) -> Result<R>,
) -> Result<R> {
    let (start, element) = (chunk.leaf.start(spec.element()), spec.element());
    let bytes = chunk.leaf.elements.saturating_mul(element.stored_bytes());
    let in_column = |error: Error| error.in_column(spec.field().name());
    order::check_memory(order.device(), start.addr(), bytes).map_err(in_column)?;
    let mut plan = plan.clone();
    if element == Element::Bool8 && plan.steps.iter().all(|step| step.action == Action::Normalise) {
        let stored = read_bytes(order, start.addr(), bytes).map_err(in_column)?;
        if stored.iter().all(|byte| *byte <= 1) {
            plan.steps.clear();
            plan.bytes = 0;
        }
    }
    if !plan.is_view() {
        let reason =
            format!("a copy on {} is needed ({}), which this build does not make", order.device(), plan.reasons());
        return Err(in_column(Error::new(ErrorKind::Device, reason).remedy_is("copy the data to the CPU first")));
    }
    work(&plan, &[chunk])
}
