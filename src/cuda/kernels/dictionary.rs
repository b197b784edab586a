//! [`KernelDictionary`]: what the codes of a column stand for, as kernels read it.

use super::{ColumnType, DeviceBits};
use crate::cuda::driver::DevicePointer;
use crate::error::Result;

/// Set beside the dtype of codes that are the ends of runs: `RUN_ENDS` in kernels.cu.
const RUN_ENDS: u32 = 32;

/// The codes of a column, or the ends of its runs, and the values that they stand for: `Dictionary` in kernels.cu.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelDictionary {
    /// The address of the first code, of any alignment.
    pub(crate) codes: DevicePointer,
    /// The type of the codes, an integer's.
    pub(crate) code_type: ColumnType,
    /// The address of the first value; of bits, of the byte that has the first.
    pub(crate) values: DevicePointer,
    /// How many values there are.
    pub(crate) count: u64,
    /// Which values are valid; `None` if all are.
    pub(crate) validity: Option<DeviceBits>,
    pub(crate) meaning: CodeMeaning,
}

/// What the codes of a [`KernelDictionary`] are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CodeMeaning {
    /// Positions of values.
    Codes,
    /// The ends of runs, each of which has a value.
    Runs {
        /// The number of the first row, as the ends count it.
        first_row: u64,
    },
    /// Positions of the elements of padded rows; others stand for padding.
    Places {
        /// The bytes of the padding.
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
