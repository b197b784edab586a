//! [`Converted`]: one named result of a conversion.

use crate::arrow::DeviceArray;
use crate::error::{Error, Result, from};
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

from! {
    [] Tensor => Converted, |tensor| Self::Tensor(tensor);
    [] Ragged => Converted, |rows| Self::Ragged(Box::new(rows));
}

/// Returns the only result, a tensor.
///
/// # Errors
/// If a conversion has made something else: a bug.
pub(super) fn only_tensor(made: Vec<(String, Converted)>) -> Result<Tensor> {
    match first_two(made) {
        [Some(Converted::Tensor(tensor)), None] => Ok(tensor),
        _ => Err(lost()),
    }
}

/// Returns the only result, rows of different lengths.
///
/// # Errors
/// As [`only_tensor`].
pub(super) fn only_rows(made: Vec<(String, Converted)>) -> Result<Ragged> {
    match first_two(made) {
        [Some(Converted::Ragged(rows)), None] => Ok(*rows),
        _ => Err(lost()),
    }
}

/// Returns both results, tensors.
///
/// # Errors
/// As [`only_tensor`].
pub(super) fn both_tensors(made: Vec<(String, Converted)>) -> Result<(Tensor, Tensor)> {
    match first_two(made) {
        [Some(Converted::Tensor(first)), Some(Converted::Tensor(second))] => Ok((first, second)),
        _ => Err(lost()),
    }
}

fn first_two(made: Vec<(String, Converted)>) -> [Option<Converted>; 2] {
    let mut made = made.into_iter().map(|(_, result)| result);
    [made.next(), made.next()]
}

fn lost() -> Error {
    Error::internal("a conversion with other results than were asked for")
}
