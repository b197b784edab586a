//! [`KernelDictionary`]: the codes of a column and the values that they index, as kernels read them.

use super::{ColumnType, DeviceBits};
use crate::cuda::driver::DevicePointer;
use crate::error::Result;

/// Set in the type of the codes if these are run ends: `RUN_ENDS` in kernel_types.cuh.
const RUN_ENDS: u32 = 32;

/// The codes or the run ends of a column, and their values: `Dictionary` in kernel_types.cuh.
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
    /// Run ends, with a value per run.
    Runs {
        /// The logical offset of the first row.
        first_row: u64,
    },
    /// Indices of the elements of padded rows; an index out of range stands for padding.
    Places {
        /// The first bytes of the padding value. Those of a complex number that follow are zero.
        padding: [u8; 8],
    },
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
            CodeMeaning::Runs { first_row } => (RUN_ENDS, first_row),
            CodeMeaning::Places { padding } => (0, u64::from_le_bytes(padding)),
        };
        let types = u64::from(bit) | u64::from(self.code_type as u32 | flag) << 32;
        Ok([self.codes, self.values, self.count, validity, types, last])
    }
}
