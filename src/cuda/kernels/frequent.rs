//! Which casts are frequent ones, for which the kernels have a fast way: `cast_together` in kernel_frequent_casts.cuh.

use super::{ColumnType, KernelDictionary};
use crate::cuda::driver::DevicePointer;

impl ColumnType {
    /// The bytes of an element; of bits 1, as their bytes are loaded. `itemsize` are those of an element of the output.
    fn bytes(self, itemsize: u64) -> u64 {
        match self {
            Self::Bits | Self::Bool | Self::Int8 | Self::UInt8 => 1,
            Self::Int16 | Self::UInt16 | Self::Float16 | Self::BFloat16 => 2,
            Self::Int32 | Self::UInt32 | Self::Float32 | Self::Decimal32 => 4,
            Self::Int64 | Self::UInt64 | Self::Float64 | Self::Decimal64 => 8,
            Self::Decimal128 => 16,
            Self::Same => itemsize,
        }
    }

    /// Whether elements at an address are cast to an output of this type and element size by the kernels of frequent casts: bools,
    /// integers and floats to `float32` and `float64`, `float32` to shorter floats, bools and integers to integers, and elements of the
    /// output's own type; not `uint64`.
    pub(crate) fn is_frequent_as(self, to: Self, itemsize: u64, values: DevicePointer) -> bool {
        let is_frequent = match (self, to) {
            (Self::Same, _) => itemsize <= 8,
            (Self::UInt64 | Self::Decimal32 | Self::Decimal64 | Self::Decimal128, _) => false,
            (_, Self::Float32 | Self::Float64) => true,
            (from, Self::Float16 | Self::BFloat16) => from == Self::Float32,
            (Self::Float16 | Self::BFloat16 | Self::Float32 | Self::Float64, _) => false,
            (from, Self::Bool) => matches!(from, Self::Bits | Self::Bool),
            _ => true,
        };
        is_frequent && values.is_multiple_of(self.bytes(itemsize))
    }
}

impl KernelDictionary {
    /// The same of values that codes stand for: of aligned codes, where no value is null.
    pub(crate) fn is_frequent_as(&self, values: ColumnType, to: ColumnType, itemsize: u64) -> bool {
        self.validity.is_none()
            && self.count > 0
            && self.codes.is_multiple_of(self.code_type.bytes(itemsize))
            && values.is_frequent_as(to, itemsize, self.values)
    }
}
