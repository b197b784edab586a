//! [`Converted`]: one named result of a conversion.

use crate::arrow::DeviceArray;
use crate::ragged::Ragged;
use crate::tensor::Tensor;

/// A result of a conversion into named groups.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Converted {
    /// A tensor: of a column, a matrix, padded rows, validity or lengths.
    Tensor(Tensor),
    /// Rows of different lengths: of [`Group::ragged`](crate::Group::ragged).
    Ragged(Box<Ragged>),
    /// Columns as an array of structs: of [`Group::arrow`](crate::Group::arrow).
    Arrow(DeviceArray),
}

impl Converted {
    /// Returns the tensor, if it is one.
    #[must_use]
    pub fn as_tensor(&self) -> Option<&Tensor> {
        match self {
            Self::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// Returns the rows, if their lengths differ.
    #[must_use]
    pub fn as_ragged(&self) -> Option<&Ragged> {
        match self {
            Self::Ragged(rows) => Some(rows),
            _ => None,
        }
    }

    /// Returns the Arrow batch, if it is one.
    #[must_use]
    pub fn as_arrow(&self) -> Option<&DeviceArray> {
        match self {
            Self::Arrow(batch) => Some(batch),
            _ => None,
        }
    }
}

impl From<Tensor> for Converted {
    fn from(tensor: Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

impl From<Ragged> for Converted {
    fn from(rows: Ragged) -> Self {
        Self::Ragged(Box::new(rows))
    }
}
