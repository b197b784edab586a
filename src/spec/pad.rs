//! [`Pad`]: how rows of different lengths become rows of one length.

use std::num::NonZero;
use std::ops::Range;

use super::{Scalar, setters};
use crate::error::{Counted, Error, ErrorKind, Result};

/// How rows are padded.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Pad {
    /// What stands where there is no element, in the result's dtype as a fill of nulls is.
    pub value: Scalar,
    /// The length of every row; `None` is that of the longest one.
    pub length: Option<usize>,
    /// What the length of the longest row is rounded up to a multiple of.
    pub multiple_of: NonZero<usize>,
    /// From which side of longer rows elements are dropped; `None` refuses longer rows.
    pub truncate: Option<Side>,
    /// On which side of a row the padding goes.
    pub side: Side,
}

impl Pad {
    /// Returns a padding with this value, to the length of the longest row.
    #[must_use]
    pub const fn new(value: Scalar) -> Self {
        Self { value, length: None, multiple_of: NonZero::<usize>::MIN, truncate: None, side: Side::Right }
    }

    setters! { Pad:
        pub length: impl Into<Option<usize>>;
        pub multiple_of: NonZero<usize>;
        pub truncate: impl Into<Option<Side>>;
        pub side: Side;
    }

    /// Refuses options that contradict each other.
    pub(crate) fn check(self) -> Result<()> {
        let Some(length) = self.length else {
            let no_length = || {
                Error::argument("rows cannot be truncated to the length of the longest one")
                    .remedy_is("name the length of the padded rows")
            };
            return self.truncate.map_or(Ok(()), |_| Err(no_length()));
        };
        if length % self.multiple_of == 0 {
            return Ok(());
        }
        let reason =
            format!("rows are padded to {}, which is no multiple of {}", Counted(length, "element"), self.multiple_of);
        Err(Error::argument(reason).remedy_is("pass a multiple, or a length of None to round the longest row up"))
    }

    /// The length of padded rows, of which the longest has so many elements.
    ///
    /// # Errors
    /// When that is more than memory can be.
    pub(crate) fn length_of(self, longest: usize) -> Result<usize> {
        let rounded = || longest.checked_next_multiple_of(self.multiple_of.get());
        let too_large = || Error::new(ErrorKind::Memory, "the padded result is larger than memory can be");
        self.length.map_or_else(rounded, Some).ok_or_else(too_large)
    }

    /// The elements of a row that remain in a padded row of this length.
    pub(crate) fn kept(self, row: Range<usize>, length: usize) -> Range<usize> {
        let dropped = row.len().saturating_sub(length);
        match self.truncate {
            Some(Side::Left) => row.start.saturating_add(dropped)..row.end,
            Some(Side::Right) | None => row.start..row.end.saturating_sub(dropped),
        }
    }
}

/// An end of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Side {
    /// Before the first element.
    Left,
    /// After the last element.
    #[default]
    Right,
}
