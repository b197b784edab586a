//! [`DType`]: the element types of tensors, with names, DLPack codes and Arrow types, as one table.

use std::fmt;
use std::str::FromStr;

use arrow_schema::DataType;

use crate::error::{Error, Result};
use crate::ffi::dlpack::{DLDataType, DLDataTypeCode};

const EXTENSION_PREFIX: &str = "arrow_dlpack.";
const LANCE_BFLOAT16: &str = "lance.bfloat16";

/// The kinds of numbers that promotion and casts distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Booleans, one byte each.
    Bool,
    /// Signed integers.
    Int,
    /// Unsigned integers.
    UInt,
    /// Floating point, of any format.
    Float,
    /// Complex numbers: two floats each.
    Complex,
}

macro_rules! dtypes {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $kind:ident, $code:ident, $bits:literal;)+) => {
        /// The type of a tensor's elements, named as NumPy and `ml_dtypes` name it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum DType {
            $($(#[$doc])* $variant,)+
        }

        impl DType {
            /// Every dtype, in the order of the table.
            pub const ALL: &'static [DType] = &[$(DType::$variant,)+];

            /// The name, such as `"float32"`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(DType::$variant => $name,)+ }
            }

            /// The kind of number.
            #[must_use]
            pub const fn kind(self) -> Kind {
                match self { $(DType::$variant => Kind::$kind,)+ }
            }

            /// Bytes of an element.
            #[must_use]
            pub const fn itemsize(self) -> usize {
                match self { $(DType::$variant => $bits / 8,)+ }
            }

            /// The `DLDataType` with one lane.
            #[must_use]
            pub const fn to_dlpack(self) -> DLDataType {
                match self {
                    $(DType::$variant => DLDataType { code: DLDataTypeCode::$code, bits: $bits, lanes: 1 },)+
                }
            }
        }
    };
}

dtypes! {
    /// True or false, one byte an element.
    Bool = "bool", Bool, BOOL, 8;
    /// 8-bit signed integer.
    Int8 = "int8", Int, INT, 8;
    /// 16-bit signed integer.
    Int16 = "int16", Int, INT, 16;
    /// 32-bit signed integer.
    Int32 = "int32", Int, INT, 32;
    /// 64-bit signed integer.
    Int64 = "int64", Int, INT, 64;
    /// 8-bit unsigned integer.
    UInt8 = "uint8", UInt, UINT, 8;
    /// 16-bit unsigned integer.
    UInt16 = "uint16", UInt, UINT, 16;
    /// 32-bit unsigned integer.
    UInt32 = "uint32", UInt, UINT, 32;
    /// 64-bit unsigned integer.
    UInt64 = "uint64", UInt, UINT, 64;
    /// IEEE 754 half precision.
    Float16 = "float16", Float, FLOAT, 16;
    /// IEEE 754 single precision.
    Float32 = "float32", Float, FLOAT, 32;
    /// IEEE 754 double precision.
    Float64 = "float64", Float, FLOAT, 64;
    /// The upper half of a single precision float.
    BFloat16 = "bfloat16", Float, BFLOAT, 16;
    /// 8-bit float, 3 exponent and 4 mantissa bits.
    Float8E3M4 = "float8_e3m4", Float, FLOAT8_E3M4, 8;
    /// 8-bit float, 4 exponent and 3 mantissa bits, with infinities.
    Float8E4M3 = "float8_e4m3", Float, FLOAT8_E4M3, 8;
    /// 8-bit float, 4 exponent and 3 mantissa bits, bias 11, no infinities, no negative zero.
    Float8E4M3B11Fnuz = "float8_e4m3b11fnuz", Float, FLOAT8_E4M3B11FNUZ, 8;
    /// 8-bit float, 4 exponent and 3 mantissa bits, no infinities.
    Float8E4M3Fn = "float8_e4m3fn", Float, FLOAT8_E4M3FN, 8;
    /// 8-bit float, 4 exponent and 3 mantissa bits, no infinities, no negative zero.
    Float8E4M3Fnuz = "float8_e4m3fnuz", Float, FLOAT8_E4M3FNUZ, 8;
    /// 8-bit float, 5 exponent and 2 mantissa bits.
    Float8E5M2 = "float8_e5m2", Float, FLOAT8_E5M2, 8;
    /// 8-bit float, 5 exponent and 2 mantissa bits, no infinities, no negative zero.
    Float8E5M2Fnuz = "float8_e5m2fnuz", Float, FLOAT8_E5M2FNUZ, 8;
    /// 8-bit power of two.
    Float8E8M0Fnu = "float8_e8m0fnu", Float, FLOAT8_E8M0FNU, 8;
    /// Two single precision floats.
    Complex64 = "complex64", Complex, COMPLEX, 64;
    /// Two double precision floats.
    Complex128 = "complex128", Complex, COMPLEX, 128;
}

impl DType {
    /// Returns the alignment of typed access to an element, in bytes. For complex numbers, it is that of their parts.
    #[must_use]
    pub const fn alignment(self) -> usize {
        match self.kind() {
            Kind::Complex => self.itemsize() / 2,
            _ => self.itemsize(),
        }
    }

    /// Returns the dtype of the real and the imaginary part of a complex number.
    #[must_use]
    pub const fn component(self) -> Option<Self> {
        match self {
            Self::Complex64 => Some(Self::Float32),
            Self::Complex128 => Some(Self::Float64),
            _ => None,
        }
    }

    /// The dtype itself, if it is one of complex numbers.
    pub(crate) const fn if_complex(self) -> Option<Self> {
        match self.component() {
            Some(_) => Some(self),
            None => None,
        }
    }

    /// Returns the Arrow type whose values buffer holds these elements contiguously, if there is one.
    #[must_use]
    pub const fn to_arrow(self) -> Option<DataType> {
        Some(match self {
            Self::Int8 => DataType::Int8,
            Self::Int16 => DataType::Int16,
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::UInt8 => DataType::UInt8,
            Self::UInt16 => DataType::UInt16,
            Self::UInt32 => DataType::UInt32,
            Self::UInt64 => DataType::UInt64,
            Self::Float16 => DataType::Float16,
            Self::Float32 => DataType::Float32,
            Self::Float64 => DataType::Float64,
            _ => return None,
        })
    }

    /// Returns the dtype of an Arrow type's values buffer: the numbers themselves, or the ticks of a temporal type. `None` for other
    /// types, also those that become tensors by their bits, bytes or items.
    #[must_use]
    pub const fn of_arrow(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Int8 => Self::Int8,
            DataType::Int16 => Self::Int16,
            DataType::Int32 | DataType::Date32 | DataType::Time32(_) => Self::Int32,
            DataType::Int64
            | DataType::Date64
            | DataType::Time64(_)
            | DataType::Timestamp(_, _)
            | DataType::Duration(_) => Self::Int64,
            DataType::UInt8 => Self::UInt8,
            DataType::UInt16 => Self::UInt16,
            DataType::UInt32 => Self::UInt32,
            DataType::UInt64 => Self::UInt64,
            DataType::Float16 => Self::Float16,
            DataType::Float32 => Self::Float32,
            DataType::Float64 => Self::Float64,
            _ => return None,
        })
    }

    /// Returns the name of the Arrow extension type over fixed-size binary that holds these elements: `arrow_dlpack.`
    /// and the `ml_dtypes` name, for floats that Arrow has no type for.
    #[must_use]
    pub fn extension_name(self) -> Option<String> {
        (self.kind() == Kind::Float && self.to_arrow().is_none()).then(|| format!("{EXTENSION_PREFIX}{}", self.name()))
    }

    /// Returns the dtype of an Arrow extension type over fixed-size binary; it also knows `lance.bfloat16`.
    #[must_use]
    pub fn of_extension(name: &str) -> Option<Self> {
        let name = if name == LANCE_BFLOAT16 { Self::BFloat16.name() } else { name.strip_prefix(EXTENSION_PREFIX)? };
        Self::ALL.iter().copied().find(|dtype| dtype.name() == name && dtype.extension_name().is_some())
    }

    /// Returns whether checked casts from and to this dtype exist: for all but float8 and complex.
    #[must_use]
    pub const fn is_castable(self) -> bool {
        !matches!((self.kind(), self.itemsize()), (Kind::Complex, _) | (Kind::Float, 1))
    }
}

impl TryFrom<DLDataType> for DType {
    type Error = Error;

    /// # Errors
    /// If the code, the bits or the lanes match no dtype of the table.
    fn try_from(dtype: DLDataType) -> Result<Self> {
        Self::ALL.iter().copied().find(|known| known.to_dlpack() == dtype).ok_or_else(|| {
            Error::unsupported(format!(
                "DLDataType with code {}, bits {} and lanes {} is not supported",
                dtype.code.0, dtype.bits, dtype.lanes
            ))
        })
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    /// Parses a name of the table, alone or at the end of a dotted path such as `torch.float32`.
    fn from_str(text: &str) -> Result<Self> {
        let name = text.rsplit('.').next().unwrap_or(text);
        Self::ALL
            .iter()
            .copied()
            .find(|dtype| dtype.name() == name)
            .ok_or_else(|| Error::argument(format!("{text:?} is not a dtype; expected a name such as \"float32\"")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_round_trip() {
        for dtype in DType::ALL {
            assert_eq!(DType::try_from(dtype.to_dlpack()).unwrap(), *dtype);
            assert_eq!(dtype.name().parse::<DType>().unwrap(), *dtype);
            if let Some(arrow) = dtype.to_arrow() {
                assert_eq!(DType::of_arrow(&arrow), Some(*dtype));
                assert_eq!(arrow.primitive_width(), Some(dtype.itemsize()));
            }
        }
        assert_eq!("torch.bfloat16".parse::<DType>().unwrap(), DType::BFloat16);
    }

    #[test]
    fn floats_without_an_arrow_type_have_an_extension_name() {
        for dtype in DType::ALL {
            if let Some(name) = dtype.extension_name() {
                assert_eq!(DType::of_extension(&name), Some(*dtype));
            }
        }
        assert_eq!(DType::Float8E4M3B11Fnuz.extension_name().unwrap(), "arrow_dlpack.float8_e4m3b11fnuz");
        assert_eq!(DType::of_extension("lance.bfloat16"), Some(DType::BFloat16));
        for name in ["arrow_dlpack.float32", "arrow_dlpack.", "bfloat16", "arrow_dlpack.complex64", "lance.float16"] {
            assert_eq!(DType::of_extension(name), None, "{name}");
        }
    }

    #[test]
    fn complex_numbers_are_aligned_as_their_parts() {
        assert_eq!((DType::Complex64.alignment(), DType::Complex128.alignment()), (4, 8));
        for dtype in DType::ALL {
            if let Some(part) = dtype.component() {
                assert_eq!(part.itemsize() * 2, dtype.itemsize());
            }
        }
    }

    #[test]
    fn what_the_table_lacks_is_refused() {
        let int32 = DType::Int32.to_dlpack();
        for dtype in [
            DLDataType { lanes: 0, ..int32 },
            DLDataType { lanes: 4, ..int32 },
            DLDataType { bits: 0, ..int32 },
            DLDataType { bits: 4, ..int32 },
            DLDataType { code: DLDataTypeCode(200), ..int32 },
            DLDataType { code: DLDataTypeCode::FLOAT, bits: 8, lanes: 1 },
        ] {
            assert!(DType::try_from(dtype).is_err(), "{dtype:?}");
        }
        assert!("float31".parse::<DType>().is_err());
    }
}
