//! Reads back from the device whether the values of casts fit.

use std::ops::Range;

use crate::cuda::{Current, DeviceBuffer, Stream};
use crate::device::Device;
use crate::error::Result;
use crate::stream_order::{Readiness, Wait};
use crate::transfer::{OwnBuffer, host_address, read_to_host, written};

/// The bytes for one value: `keep_misfits` in kernels.cu.
pub(super) const VALUE_BYTES: usize = 32;

/// The findings of launched kernels about the values of several columns.
#[derive(Debug)]
pub(crate) struct Check {
    /// Kept until it was read.
    _scratch: OwnBuffer,
    readiness: Readiness,
    range: Range<usize>,
    columns: usize,
}

/// What the last of the bytes of a misfit says: `Kind` in kernel_types.cuh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MisfitKind {
    /// The value does not fit.
    Value,
    /// No value has the code.
    Code(i128),
    /// The code or the run stands for a null, which is refused.
    Null,
    /// The runs end before the row.
    NoRun,
    /// The run with the element's number ends here, no later than the one before.
    RunEnd(i64),
}

impl DeviceMisfit {
    /// Returns what is wrong.
    pub(crate) fn kind(&self) -> MisfitKind {
        let code = self.value.first_chunk().copied().unwrap_or_default();
        match self.value.last() {
            Some(1) => MisfitKind::Code(i64::from_le_bytes(code).into()),
            Some(2) => MisfitKind::Code(u64::from_le_bytes(code).into()),
            Some(3) => MisfitKind::Null,
            Some(4) => MisfitKind::NoRun,
            Some(5) => MisfitKind::RunEnd(i64::from_le_bytes(code)),
            _ => MisfitKind::Value,
        }
    }
}

/// The first value of a column that does not fit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceMisfit {
    /// The number of the element.
    pub(crate) element: u64,
    /// The element, in the first of these bytes.
    pub(crate) value: [u8; VALUE_BYTES],
}

impl Check {
    /// The scratch memory that `stream` writes: a number for each column, followed by the values.
    pub(super) fn new(
        current: &Current,
        scratch: DeviceBuffer,
        bytes: &Range<usize>,
        columns: usize,
        (device, stream): (Device, Stream),
    ) -> Result<Self> {
        let start = host_address(scratch.start())?;
        let readiness = written(device, current, stream, Wait::MisfitsWritten)?;
        let range = start + bytes.start..start + bytes.end;
        Ok(Self { _scratch: OwnBuffer::new(scratch, readiness.clone()), readiness, range, columns })
    }

    /// Returns what each check has found for each of its columns. The host waits once for all of them.
    ///
    /// # Errors
    /// If the driver fails, or the wait is interrupted.
    pub(crate) fn read<'a>(
        checks: impl IntoIterator<Item = &'a Self> + Clone,
    ) -> Result<Vec<Vec<Option<DeviceMisfit>>>> {
        let Some(readiness) = Readiness::joined(checks.clone().into_iter().map(|check| check.readiness.clone()))?
        else {
            return Ok(Vec::new());
        };
        let ranges: Vec<_> = checks.clone().into_iter().map(|check| check.range.clone()).collect();
        let read = read_to_host(&readiness, &ranges)?;
        let found = |check: &Self| {
            let bytes = read.require(check.range.start, check.range.len())?;
            let (numbers, values) = bytes.split_at_checked(check.columns * 8).unwrap_or((bytes, &[]));
            let (numbers, _) = numbers.as_chunks::<8>();
            let (values, _) = values.as_chunks::<VALUE_BYTES>();
            let misfit = |(number, value): (&[u8; 8], &[u8; VALUE_BYTES])| {
                let element = u64::from_le_bytes(*number);
                (element != u64::MAX).then_some(DeviceMisfit { element, value: *value })
            };
            Ok(numbers.iter().zip(values).map(misfit).take(check.columns).collect())
        };
        checks.into_iter().map(found).collect()
    }
}
