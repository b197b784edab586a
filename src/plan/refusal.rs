//! The errors for copies that are not allowed, or that nothing makes where the data is.

use super::{Action, Placement, Plan, TransferStep};
use crate::device::Device;
use crate::error::{Counted, Error, ErrorKind, Remedy, Result};
use crate::spec::CopyMode;

impl Plan {
    /// Refuses the steps that are done in any case, where copies are not allowed or nothing makes them.
    pub(crate) fn refuse_steps(&self, copy: CopyMode) -> Result<()> {
        match self.placement {
            _ if !self.is_copy() => Ok(()),
            Placement::Views(device) => Err(self.refused_on(device)),
            _ if copy == CopyMode::Never => Err(self.refused()),
            _ => Ok(()),
        }
    }

    /// The error for a copy that is needed, and not allowed.
    pub(crate) fn refused(&self) -> Error {
        let (mut writable_only, mut padded) = (true, false);
        for step in &self.steps {
            if let Action::Transfer(TransferStep { from, to, .. }) = step.action {
                return not_allowed(format!("the data is on {from}, and is copied to be on {to}"));
            }
            writable_only &= step.action == Action::Private;
            padded |= matches!(step.action, Action::Pad { .. });
        }
        let remedy = match (writable_only, padded) {
            (true, _) => Remedy::AllowCopyOrReadOnly,
            (false, true) => Remedy::AllowCopyOrNoPad,
            (false, false) => Remedy::AllowCopy,
        };
        not_allowed(format!("a copy of {} is needed ({})", Counted(self.bytes, "byte"), self.reasons()))
            .remedy_is(remedy)
    }

    /// The error for a copy that is needed on a device where nothing makes it.
    pub(crate) fn refused_on(&self, device: Device) -> Error {
        let error = needs_copy(device, &self.reasons());
        let any = |found: fn(&Action) -> bool| self.steps.iter().any(|step| found(&step.action));
        let only_joins = |action: &Action| matches!(action, Action::Concatenate { .. } | Action::PackMatrix { .. });
        if any(|action| matches!(action, Action::Concatenate { .. }))
            && self.steps.iter().all(|step| only_joins(&step.action))
        {
            error.remedy_is("convert each chunk for itself, or copy the data to the CPU first")
        } else if self.steps.len() == 1 && any(|action| matches!(action, Action::Fill { .. })) {
            error.remedy_is(Remedy::KeepOrNoNulls)
        } else if any(|action| matches!(action, Action::EmptyNullRows | Action::UnpackValidity)) {
            error.remedy_is(Remedy::BitmapOnDevice)
        } else {
            error
        }
    }
}

/// The error for a copy that is needed for this reason, and not allowed.
pub(crate) fn refused_copy(why: &str) -> Error {
    not_allowed(format!("a copy is needed ({why})"))
}

/// The error where no copy is allowed: why there is one.
pub(crate) fn not_allowed(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::Copy, reason).remedy_is(Remedy::AllowCopy)
}

/// The error for what only a copy on a device could do, which nothing there makes.
pub(crate) fn needs_copy(device: Device, why: &str) -> Error {
    Error::new(ErrorKind::Device, format!("a copy on {device} is needed ({why}), which this build does not make"))
        .remedy_is(device.host_remedy())
}

#[cfg(test)]
mod tests {
    use super::super::{Step, TransferPath};
    use super::*;
    use crate::error::Language;

    #[test]
    fn a_copy_that_is_not_allowed_is_to_be_allowed() {
        let in_words = |error: &Error| (error.remedy(), error.remedy_in(Language::Python));
        let allow = (Some("pass CopyMode::IfNeeded to allow it".into()), Some("pass copy=None to allow it".into()));
        let (host, cuda) = (Device::CPU, "cuda:0".parse::<Device>().unwrap());
        for (from, to) in [(host, cuda), (cuda, host), (cuda, cuda)] {
            let step = TransferStep { from, to, path: TransferPath::Copied("direct") };
            let error = step.refuse(CopyMode::Never).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Copy);
            assert_eq!(error.reason(), format!("the data is on {from}, and is copied to be on {to}"));
            assert_eq!(in_words(&error), allow);
            // What else the plan does is said after the copy between devices is allowed.
            let mut plan = Plan::transfer(step, 8);
            plan.steps.push(Step { action: Action::Private, bytes: 8, at_most: false });
            assert_eq!(in_words(&plan.refused()), allow);
        }
        let error = refused_copy("strided elements gathered");
        assert_eq!((error.kind(), error.reason()), (ErrorKind::Copy, "a copy is needed (strided elements gathered)"));
        assert_eq!(in_words(&error), allow);
        assert_eq!(in_words(&not_allowed("x")), allow);
    }
}
