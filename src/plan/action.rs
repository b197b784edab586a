//! What a step of a plan does, and its reason in words.

use std::fmt;

use super::transfer_step::TransferStep;
use crate::dtype::DType;
use crate::error::Counted;
use crate::spec::{Element, MemoryOrder, PRIVATE, Spec, UNPACKED, casting, encoding, packing};

/// Something that a conversion does, and why it cannot be a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum Action {
    /// Runs, or codes of a dictionary, become the values they stand for.
    Decode,
    /// Values become their codes.
    Encode {
        /// How many values have one.
        categories: usize,
    },
    /// Bits become bytes.
    Unpack,
    /// Bytes other than 0 and 1 become 1.
    Normalise,
    /// Values change their type.
    Cast {
        /// How the source holds its elements.
        from: Element,
        /// The dtype of the result.
        to: DType,
    },
    /// Values become those of another Arrow type, exactly.
    CastAsRequested,
    /// Null slots are written.
    Fill {
        /// How many.
        nulls: usize,
        /// Whether that is exact, and not only the most that there can be.
        is_counted: bool,
    },
    /// Rows of several arrays become one Arrow array.
    JoinRows,
    /// How many elements each row keeps is counted.
    CountLengths,
    /// Chunks become one block.
    Concatenate {
        /// How many that are not empty.
        chunks: usize,
    },
    /// Values move to where typed access is aligned.
    Realign {
        /// The dtype that asks for it.
        dtype: DType,
    },
    /// Strided elements move next to each other.
    Gather,
    /// Columns become a matrix.
    PackMatrix {
        /// In which order its elements lie.
        memory_order: MemoryOrder,
    },
    /// The elements of each column of a matrix move next to each other.
    Split,
    /// Bools become bits.
    Pack,
    /// The bools of each column of a validity move next to each other.
    SplitValidity,
    /// Bools become the bits of a validity bitmap.
    PackValidity,
    /// The bits of a validity bitmap become bools.
    UnpackValidity,
    /// Views of strings move next to each other.
    GatherViews,
    /// The offsets of a slice start at 0 again.
    RebaseOffsets,
    /// Null rows give up their elements.
    EmptyNullRows,
    /// Rows get one length.
    Pad {
        /// Elements of each row; `None` is that of the longest row, which only data tells.
        length: Option<usize>,
    },
    /// The caller asked for memory of its own.
    Private,
    /// The result is written to the caller's memory.
    WriteOutput,
    /// Data, or a result, goes to another device.
    Transfer(TransferStep),
}

impl Action {
    /// Returns what makes the decoded array of a spec.
    pub(crate) fn decoding(spec: &Spec) -> Self {
        spec.categories().map_or(Self::Decode, |categories| Self::Encode { categories: categories.count() })
    }

    /// Returns whether a tensor's elements move by this before anything else is done with them.
    pub(crate) fn moves_values(self) -> bool {
        matches!(self, Self::Gather | Self::Split | Self::Realign { .. } | Self::Private)
    }

    /// Returns whether this made a decoded array, which the result may be a view of.
    pub(crate) fn is_decoding(self) -> bool {
        matches!(self, Self::Decode | Self::Encode { .. })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decode => f.write_str("decoded"),
            Self::Encode { categories } => f.write_str(&encoding(*categories)),
            Self::Unpack | Self::UnpackValidity => f.write_str(UNPACKED),
            Self::Normalise => f.write_str("bytes above 1 set to 1"),
            Self::Cast { from, to } => f.write_str(&casting(from, to)),
            Self::CastAsRequested => f.write_str("cast to the requested type"),
            Self::Fill { nulls, is_counted: false } => write!(f, "at most {nulls} nulls filled"),
            Self::Fill { nulls, .. } => write!(f, "{nulls} null{} filled", if *nulls == 1 { "" } else { "s" }),
            Self::JoinRows => write!(f, "rows joined into one Arrow batch"),
            Self::CountLengths => write!(f, "lengths of rows counted"),
            Self::Concatenate { chunks } => write!(f, "{chunks} chunks joined"),
            Self::Realign { dtype } => write!(f, "values not aligned for {dtype} realigned"),
            Self::Gather => f.write_str("strided elements gathered"),
            Self::PackMatrix { memory_order } => f.write_str(packing(*memory_order)),
            Self::Split => f.write_str("rows split into columns"),
            Self::Pack => f.write_str("bools packed to bits"),
            Self::SplitValidity => f.write_str("validity split into columns"),
            Self::PackValidity => f.write_str("validity packed to bits"),
            Self::GatherViews => f.write_str("views gathered"),
            Self::RebaseOffsets => f.write_str("offsets of a slice rebased"),
            Self::EmptyNullRows => f.write_str("null rows made empty"),
            Self::Pad { length: Some(length) } => write!(f, "rows padded to {}", Counted(*length, "element")),
            Self::Pad { length: None } => f.write_str("rows padded to the length of the longest one"),
            Self::Private => f.write_str(PRIVATE),
            Self::WriteOutput => f.write_str("written to out"),
            Self::Transfer(step) => step.fmt(f),
        }
    }
}
