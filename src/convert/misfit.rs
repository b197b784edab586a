//! A value that a checked cast cannot take, and the error that names it.

use crate::dtype::{DType, Kind};
use crate::error::{Error, ErrorKind};
use crate::spec::{Element, Spec};

/// The first valid value that does not fit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Misfit {
    /// Its position among the elements.
    pub(super) index: usize,
    /// The value, for the message.
    pub(super) value: String,
}

impl Misfit {
    /// The error, for a chunk whose first row is number `row` of its column.
    pub(super) fn error(self, spec: &Spec, row: usize) -> Error {
        let is_float = spec.dtype().kind() == Kind::Float;
        let remedy = match spec.element() {
            Element::Ticks { .. } if is_float => "ask for a wider dtype, or for a coarser unit",
            Element::Ticks { .. } if self.is_fraction_of(spec.dtype()) => {
                "ask for a float dtype, which takes the division, or for a finer unit"
            }
            Element::Ticks { .. } => "ask for a float dtype, or for a coarser unit",
            _ => "ask for a dtype that holds it, or change the value first",
        };
        Error::new(ErrorKind::Cast, format!("the value {} does not fit {}", self.value, spec.dtype()))
            .at_row(row + self.index / spec.row_elements().max(1))
            .remedy_is(remedy)
    }

    /// Whether the value is no whole number, but lies between two of an integer type. Its text may end with zeros.
    fn is_fraction_of(&self, dtype: DType) -> bool {
        let Some((whole, digits)) = self.value.split_once('.') else { return false };
        let bits = 8 * u32::try_from(dtype.itemsize()).unwrap_or(u32::MAX / 8);
        let least = if dtype.kind() == Kind::UInt { 0 } else { -(1_i128 << bits.saturating_sub(1).min(64)) };
        let most = if dtype.kind() == Kind::UInt { (1_i128 << bits.min(64)) - 1 } else { -(least + 1) };
        let is_negative = whole.starts_with('-');
        digits.bytes().any(|digit| digit != b'0')
            && whole.parse::<i128>().is_ok_and(|whole| whole >= least && whole <= most && !(is_negative && least == 0))
    }
}
