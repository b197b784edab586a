//! Which values can be categories, and how one is looked up.

use arrow_schema::DataType;

/// A value that is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key<'a> {
    /// A string or a binary value.
    Bytes(&'a [u8]),
    /// An integer of any width.
    Int(i128),
}

/// What values are, whatever their layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueKind {
    Text,
    Bytes,
    Int,
}

impl ValueKind {
    /// Returns what the values of a type are; `None` if they cannot be categories.
    pub(crate) fn of(data_type: &DataType) -> Option<Self> {
        match data_type {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Some(Self::Text),
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
                Some(Self::Bytes)
            }
            other => other.is_integer().then_some(Self::Int),
        }
    }

    /// The word that stands for the kind in a hash that a loader's state keeps.
    #[cfg(feature = "python")]
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Bytes => "bytes",
            Self::Int => "integers",
        }
    }
}

/// The type of the single values of a type: under fixed-size lists, runs and dictionaries.
pub(crate) fn leaf_of(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::FixedSizeList(item, _) => leaf_of(item.data_type()),
        DataType::RunEndEncoded(_, values) => leaf_of(values.data_type()),
        DataType::Dictionary(_, values) => leaf_of(values),
        other => other,
    }
}
