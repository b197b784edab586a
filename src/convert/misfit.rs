//! A value that a checked cast cannot take, and the error that names it.

use crate::dtype::Kind;
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
            Element::Ticks { .. } if self.is_fraction() => {
                "ask for a float dtype, which takes the division, or for a finer unit"
            }
            Element::Ticks { .. } => "ask for a float dtype, or for a coarser unit",
            _ => "ask for a dtype that holds it, or change the value first",
        };
        Error::new(ErrorKind::Cast, format!("the value {} does not fit {}", self.value, spec.dtype()))
            .at_row(row + self.index / spec.row_elements().max(1))
            .remedy_is(remedy)
    }

    /// Whether the value is no whole number. Its text may end with zeros.
    fn is_fraction(&self) -> bool {
        self.value.split_once('.').is_some_and(|(_, digits)| digits.bytes().any(|digit| digit != b'0'))
    }
}
