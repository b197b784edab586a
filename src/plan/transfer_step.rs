//! [`TransferStep`]: how data, or a result, gets to another device, and why that is a copy.

use std::fmt;

use crate::copy_log::{self, Copied};
use crate::device::Device;

/// How memory gets from one device to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransferPath {
    /// It is there.
    Same,
    /// The host reads it in place, once it is written.
    HostReads,
    /// As above, or by a copy that is staged: only the driver knows.
    HostReadsOrCopied,
    /// The other device reaches the same memory.
    Relabelled,
    /// By a copy, made like this.
    Copied(&'static str),
}

/// The step of a plan that takes data to where it is converted, or a result to where it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TransferStep {
    pub(crate) from: Device,
    pub(crate) to: Device,
    pub(crate) path: TransferPath,
}

impl TransferStep {
    /// The step that copies memory of a device to other memory there.
    pub(crate) fn within(device: Device) -> Self {
        Self { from: device, to: device, path: TransferPath::Copied("direct") }
    }

    /// Whether it is there already.
    pub(crate) fn is_nothing(&self) -> bool {
        self.path == TransferPath::Same
    }

    /// Whether bytes are copied in any case: to memory that nobody else has.
    pub(crate) fn is_copy(&self) -> bool {
        matches!(self.path, TransferPath::Copied(_))
    }

    /// Adds the copy to the copy log: of `what`, asked for by `why`.
    pub(crate) fn record(&self, what: impl FnOnce() -> String, why: &str, bytes: usize) {
        copy_log::record(|| Copied { what: format!("{} on {}", what(), self.from), why: why.to_owned(), bytes });
    }
}

/// Describes the step; empty if it copies nothing.
impl fmt::Display for TransferStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path {
            TransferPath::Same | TransferPath::HostReads | TransferPath::Relabelled => Ok(()),
            TransferPath::HostReadsOrCopied => {
                write!(f, "copied to {}, if the host does not read the memory where it is", self.to)
            }
            TransferPath::Copied(how) => write!(f, "copied to {}, {how}", self.to),
        }
    }
}
