//! Casts on a device whose results the host has not checked yet.

use std::sync::{Mutex, PoisonError};

use super::Check;
use super::check::{DeviceMisfit, MisfitKind};
use crate::convert::{code_error, misfit_error, no_run_error, refused_null, run_end_error};
use crate::error::{Error, Result};
use crate::spec::Spec;

/// Casts of several columns: whether their values fit is looked at together, so that the host waits once.
#[derive(Debug, Default)]
pub(crate) struct Casts(Mutex<Vec<PendingCast>>);

/// Columns that were cast together.
#[derive(Debug)]
struct PendingCast {
    columns: Vec<Spec>,
    check: Check,
}

impl Casts {
    /// Columns that `check` is about; `None` where every value fits.
    pub(crate) fn add<'a>(&self, columns: impl IntoIterator<Item = &'a Spec>, check: Option<Check>) {
        let Some(check) = check else { return };
        let columns = columns.into_iter().cloned().collect();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(PendingCast { columns, check });
    }

    /// Looks at all of them. The host waits once, if there are any.
    ///
    /// # Errors
    /// For a value that does not fit, a code or a row of runs without a value, and a refused null that these stand for; of columns that
    /// were cast together that of the lowest row: names the column and the row. When the driver fails, or the wait is interrupted.
    pub(crate) fn verify(&self) -> Result<()> {
        self.errors()?.into_iter().flatten().next().map_or(Ok(()), Err)
    }

    /// Returns what is wrong with each, in the order in which they were added; see [`Casts::verify`]. The host waits once, if there are any.
    ///
    /// # Errors
    /// When the driver fails, or the wait is interrupted.
    pub(crate) fn errors(&self) -> Result<Vec<Option<Error>>> {
        let casts = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let found = Check::read(casts.iter().map(|cast| &cast.check))?;
        let error = |(cast, found): (&PendingCast, Vec<Option<DeviceMisfit>>)| {
            let misfits = cast.columns.iter().zip(found).filter_map(|(spec, misfit)| Some((spec, misfit?)));
            // The first column's, where several have one in the same row.
            let row = |spec: &Spec, misfit: &DeviceMisfit| misfit.element / (spec.row_elements() as u64).max(1);
            let (spec, misfit) = misfits.min_by_key(|(spec, misfit)| row(spec, misfit))?;
            let element = usize::try_from(misfit.element).unwrap_or(usize::MAX);
            Some(match misfit.kind() {
                MisfitKind::Value => misfit_error(spec, element, &misfit.value),
                MisfitKind::Code(code) => code_error(spec, element, code),
                MisfitKind::Null => refused_null(spec, element),
                MisfitKind::NoRun => no_run_error(spec, element),
                MisfitKind::RunEnd(end) => run_end_error(spec, end),
            })
        };
        Ok(casts.iter().zip(found).map(error).collect())
    }
}

/// Looks at the values of columns that were cast. The host waits.
///
/// # Errors
/// As [`Casts::verify`].
pub(super) fn verify<'a>(columns: impl IntoIterator<Item = &'a Spec>, check: Option<Check>) -> Result<()> {
    let casts = Casts::default();
    casts.add(columns, check);
    casts.verify()
}
