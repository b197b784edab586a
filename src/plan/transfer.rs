//! Makes the plan of a transfer.

use super::transfer_step::{TransferPath, TransferStep};
use super::{Action, HostWait, Placement, Plan, Step};
use crate::error::Result;
use crate::spec::CopyMode;

impl Plan {
    /// The plan that takes so many bytes of data, or of a result, to another device by this step.
    pub(crate) fn transfer(transfer: TransferStep, bytes: usize) -> Self {
        let mut plan = Self { placement: Placement::Transfer(transfer.from), ..Self::default() };
        if matches!(transfer.path, TransferPath::Copied(_) | TransferPath::HostReadsOrCopied) {
            plan.steps.push(Step { action: Action::Transfer(transfer), bytes, at_most: !transfer.is_copy() });
        }
        plan.bytes = if transfer.is_copy() { bytes } else { 0 };
        plan.waits.extend(match transfer.path {
            TransferPath::HostReads | TransferPath::HostReadsOrCopied => Some(HostWait::Written),
            TransferPath::Copied(_) if transfer.to.is_cpu() => Some(HostWait::Transferred),
            _ => None,
        });
        plan
    }
}

impl TransferStep {
    /// Refuses a copy, where none is allowed.
    pub(crate) fn refuse(&self, copy: CopyMode) -> Result<()> {
        Plan::transfer(*self, 0).refuse_steps(copy)
    }
}
