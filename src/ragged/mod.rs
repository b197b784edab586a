//! Rows of different lengths: lists and strings as values and offsets, or padded to a matrix.

mod construct;
mod device_offsets;
mod device_padded;
mod device_rows;
mod elements;
mod level;
mod pad_rules;
mod padded;
mod part;
mod planned;
mod planned_arrow;
mod planned_elements;
mod report;
mod shown_elements;
mod to_arrow;
mod to_device;
mod variable_shape;
mod views;

use arrow_schema::FieldRef;

pub(crate) use elements::has_codes;
pub(crate) use level::has_lengths;
pub(crate) use pad_rules::lengths_of_type;
pub(crate) use padded::{PlannedPadded, plan_padded_type};
pub(crate) use part::Part;
pub(crate) use planned::PlannedRagged;
pub(crate) use report::{check_ragged, is_ragged, is_rows, parts_of, plan_parts, plan_ragged_type, plan_schema};

#[cfg(feature = "python")]
use crate::error::Result;
use crate::error::from;
use crate::tensor::Tensor;

/// The elements of ragged rows: a tensor, or rows themselves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Values {
    /// Elements, of shape (elements, *inner).
    Tensor(Tensor),
    /// Rows that are elements of longer rows: nested lists.
    Ragged(Box<Ragged>),
}

impl Values {
    /// How many elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Tensor(tensor) => tensor.shape().first().map_or(0, |extent| usize::try_from(*extent).unwrap_or(0)),
            Self::Ragged(ragged) => ragged.len(),
        }
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements, if they are a tensor.
    #[must_use]
    pub fn as_tensor(&self) -> Option<&Tensor> {
        match self {
            Self::Tensor(tensor) => Some(tensor),
            Self::Ragged(_) => None,
        }
    }

    /// The elements, if they are rows.
    #[must_use]
    pub fn as_ragged(&self) -> Option<&Ragged> {
        match self {
            Self::Tensor(_) => None,
            Self::Ragged(ragged) => Some(ragged),
        }
    }
}

from! {
    [] Tensor => Values, |tensor| Self::Tensor(tensor);
    [] Ragged => Values, |ragged| Self::Ragged(Box::new(ragged));
}

/// Rows of different lengths. Row `i` is `values[offsets[i]..offsets[i + 1]]`, or, where there are lengths,
/// `values[offsets[i]..offsets[i] + lengths[i]]`.
///
/// Every row lies inside the values: what [`Conversion::ragged`](crate::Conversion::ragged) and [`Ragged::new`] give has been checked. Of rows on a device that came
/// from Arrow only the first and the last offset have been. Cloning shares memory.
#[derive(Clone, Debug)]
pub struct Ragged {
    values: Values,
    offsets: Tensor,
    lengths: Option<Tensor>,
    shapes: Option<Tensor>,
    validity: Option<Tensor>,
    field: Option<FieldRef>,
}

impl Ragged {
    /// The same rows as those of a column of this field.
    ///
    /// # Errors
    /// When they are no rows of its type.
    #[cfg(feature = "python")]
    pub(crate) fn with_field(self, field: FieldRef) -> Result<Self> {
        self.to_arrow_as(&field, crate::spec::CopyMode::IfNeeded)?;
        Ok(Self { field: Some(field), ..self })
    }

    /// The elements of all rows.
    #[must_use]
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// Where rows start, and without lengths also where the last one ends.
    #[must_use]
    pub fn offsets(&self) -> &Tensor {
        &self.offsets
    }

    /// How many elements each row has, where offsets alone do not tell: rows of list views may overlap.
    #[must_use]
    pub fn lengths(&self) -> Option<&Tensor> {
        self.lengths.as_ref()
    }

    /// The shape of each row as its elements lie, row-major, of `arrow.variable_shape_tensor`: int32 of shape
    /// (rows, dimensions). A permutation stays in the field.
    #[must_use]
    pub fn shapes(&self) -> Option<&Tensor> {
        self.shapes.as_ref()
    }

    /// A bool for each row, true where it is valid; only where nulls were kept.
    #[must_use]
    pub fn validity(&self) -> Option<&Tensor> {
        self.validity.as_ref()
    }

    /// The Arrow field that the rows came from.
    #[must_use]
    pub fn field(&self) -> Option<&FieldRef> {
        self.field.as_ref()
    }

    /// How many rows.
    #[must_use]
    pub fn len(&self) -> usize {
        if self.lengths.is_some() { self.offsets.len() } else { self.offsets.len().saturating_sub(1) }
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a row is not marked as null.
    fn is_valid(&self, row: usize) -> bool {
        let flags = self.validity.as_ref().and_then(|validity| validity.peek_bytes().ok());
        flags.is_none_or(|flags| flags.get(row).is_none_or(|flag| *flag != 0))
    }
}
