//! The options of one column.

use arrow_schema::{DataType, Field, TimeUnit};

use super::temporal::is_temporal;
use super::{NullPolicy, setters};
use crate::categories::Categories;
use crate::dtype::DType;

/// When a conversion may copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CopyMode {
    /// A copy is an error: `copy=False`.
    Never,
    /// A view if the layouts agree, else a copy: `copy=None`.
    #[default]
    IfNeeded,
    /// Always a copy: `copy=True`.
    Always,
}

impl CopyMode {
    /// Returns what a step may copy behind one that copies where a copy is asked for: nothing is copied twice for that.
    pub(crate) fn once(self) -> Self {
        if self == Self::Always { Self::IfNeeded } else { self }
    }

    /// Returns whether a result must be memory of its own: a copy is asked for, or memory that is `writable`.
    #[inline]
    pub(crate) fn asks_for_own(self, writable: bool) -> bool {
        self == Self::Always || writable
    }
}

/// What the elements of a decimal column are, unless a dtype asks for their value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecimalMode {
    /// The values, which are integers only at scale 0.
    #[default]
    Value,
    /// The stored integers: the value times ten to the power of the scale.
    Unscaled,
}

/// What the elements of a dictionary column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DictionaryMode {
    /// The indices into the dictionary. A dtype casts them.
    Codes,
    /// The dictionary's values.
    Values,
}

/// An option of a column, and whether it names that column: it does not fit other columns then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnOption<T> {
    pub(crate) value: T,
    /// Whether the option is for this column by its name, and not for all.
    pub(crate) by_name: bool,
}

/// The options of one column: what a [`Conversion`](super::Conversion) says of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Options {
    /// The dtype of the result, by a checked cast; `None` is the column's own dtype.
    pub(crate) dtype: Option<DType>,
    /// What happens to nulls.
    pub(crate) nulls: NullPolicy,
    /// How the elements of a decimal column are returned, or with a dtype cast.
    pub(crate) decimal: DecimalMode,
    /// What the elements of a dictionary column are; `None` is the codes, or the values if a dtype is set.
    pub(crate) dictionary: Option<DictionaryMode>,
    /// The categories whose codes the elements become; `None` leaves the values.
    pub(crate) categories: Option<Categories>,
    /// The unit of temporal values as numbers; `None` is the column's own ticks.
    pub(crate) unit: Option<ColumnOption<TimeUnit>>,
    /// The elements that each row of a column of lists has; `None` leaves lists ragged.
    pub(crate) length: Option<ColumnOption<usize>>,
    /// When a conversion may copy.
    pub(crate) copy: CopyMode,
    /// Whether the result must be writable memory that no other array or tensor shares.
    pub(crate) writable: bool,
}

impl Options {
    /// Whether these options leave the numbers of a plain column of this type as they are stored. Every option is named: a new one
    /// is decided on here.
    #[inline]
    pub(crate) fn keep_numbers_of(&self, field: &Field) -> bool {
        // Whether there is a copy changes no number; numbers have neither decimals nor dictionaries.
        let Self { dtype, nulls, categories, unit, length, decimal: _, dictionary: _, copy: _, writable: _ } = self;
        dtype.is_none()
            && *nulls == NullPolicy::Error
            && categories.is_none()
            && !unit.is_some_and(|unit| unit.by_name || field.data_type().is_temporal())
            && !length.is_some_and(|length| length.by_name)
            && field.metadata().is_empty()
    }

    /// Whether a column of a dictionary of such values becomes the values. A unit is for values, as a dtype is.
    pub(super) fn decode(&self, values: &DataType) -> bool {
        match self.dictionary {
            Some(mode) => mode == DictionaryMode::Values,
            None => self.dtype.is_some() || (self.unit.is_some() && is_temporal(values)),
        }
    }

    setters! { Options:
        pub(crate) dtype: DType;
        pub(crate) nulls: NullPolicy;
        pub(crate) decimal: DecimalMode;
        pub(crate) dictionary: DictionaryMode;
        pub(crate) copy: CopyMode;
        pub(crate) writable: bool;
    }
}
