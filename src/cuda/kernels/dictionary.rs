//! [`KernelDictionary`]: the codes of a column and the values that they index, as kernels read them, and codes that stand for runs.

use std::ffi::c_void;

use super::{ColumnType, DeviceBits, LANES};
use crate::cuda::context::Current;
use crate::cuda::driver::DevicePointer;
use crate::cuda::module::Kernel;
use crate::cuda::stream::Stream;
use crate::error::Result;

/// Set in the type of the codes if `expand_runs` has written them: `OF_RUNS` in kernel_types.cuh.
const OF_RUNS: u32 = 32;
/// Where the type of the run ends begins: `RUN_ENDS_SHIFT` in kernel_types.cuh.
const RUN_ENDS_SHIFT: u32 = 8;

/// The codes of a column, and their values: `Dictionary` in kernel_types.cuh.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelDictionary {
    /// The address of the first code, of any alignment.
    pub(crate) codes: DevicePointer,
    /// The type of the codes, an integer's.
    pub(crate) code_type: ColumnType,
    /// The address of the first value; of bits, of the byte with the first bit.
    pub(crate) values: DevicePointer,
    /// The number of values.
    pub(crate) count: u64,
    /// Which values are valid; `None` if all are.
    pub(crate) validity: Option<DeviceBits>,
    pub(crate) meaning: CodeMeaning,
}

/// What the codes of a [`KernelDictionary`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeMeaning {
    /// Indices of values.
    Codes,
    /// Numbers of runs, which have a value each.
    Runs(KernelRuns),
    /// Indices of the elements of padded rows; an index out of range stands for padding.
    Places {
        /// The first bytes of the padding value. Those of a complex number that follow are zero.
        padding: [u8; 8],
    },
}

/// Runs as kernels read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelRuns {
    /// The address of the first run end, of any alignment.
    pub(crate) ends: DevicePointer,
    /// The type of the run ends, a signed integer's.
    pub(crate) ends_type: ColumnType,
    pub(crate) count: u64,
    /// The logical offset of the first row.
    pub(crate) first_row: u64,
}

impl KernelRuns {
    /// The type of the codes, which a kernel writes for the rows. Run ends increase, so that their type can count them.
    pub(crate) fn code_type(&self) -> ColumnType {
        if self.ends_type == ColumnType::Int64 { ColumnType::Int64 } else { ColumnType::Int32 }
    }
}

// `Launch` invariant, as in `kernels.rs`: the list of parameters has the types and the order of the kernel in kernel_runs.cuh.
impl Current {
    /// Writes the number of its run for each of `rows` rows, as codes of [`KernelRuns::code_type`].
    ///
    /// # Errors
    /// As [`Current::unpack_bits`].
    ///
    /// # Safety
    /// The run ends and the output, which is aligned, are memory of this device until the kernel is done.
    pub(crate) unsafe fn expand_runs(
        &self,
        runs: &KernelRuns,
        rows: u64,
        out: DevicePointer,
        stream: Stream,
    ) -> Result<()> {
        let KernelRuns { ends, ends_type, count, first_row } = *runs;
        let ends_type = ends_type as u32;
        let mut parameters = parameters![ends, ends_type, count, first_row, rows, out];
        // SAFETY: `Launch` invariant; the run ends and the output are memory of this device, as promised.
        unsafe { self.launch(Kernel::ExpandRuns, (rows.div_ceil(LANES), 1), &mut parameters, stream) }
    }
}

impl KernelDictionary {
    pub(crate) const BYTES: usize = 48;

    /// Returns the words that the kernels read.
    ///
    /// # Errors
    /// If an address exceeds 64 bits.
    pub(crate) fn to_words(self) -> Result<[u64; Self::BYTES / 8]> {
        let (validity, bit) = self.validity.map_or(Ok((0, 0)), DeviceBits::split)?;
        let (flag, last) = match self.meaning {
            CodeMeaning::Codes => (0, 0),
            CodeMeaning::Runs(runs) => (OF_RUNS | (runs.ends_type as u32) << RUN_ENDS_SHIFT, runs.ends),
            CodeMeaning::Places { padding } => (0, u64::from_le_bytes(padding)),
        };
        let types = u64::from(bit) | u64::from(self.code_type as u32 | flag) << 32;
        Ok([self.codes, self.values, self.count, validity, types, last])
    }
}
