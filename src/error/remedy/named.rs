//! Remedies that name a column: which they are, and what others become where results have names, or rows.

use std::mem::{Discriminant, discriminant};

use super::Remedy;
use crate::error::Error;

impl Remedy {
    /// Returns what is equal for remedies that columns share: one column stands for the others in an example.
    pub(in crate::error) fn kind(&self) -> (Discriminant<Self>, Option<&Self>) {
        if let Self::Or(first, second) = self
            && matches!(**first, Self::ArrowColumn { .. })
        {
            return (discriminant(first), Some(second));
        }
        let has_example = matches!(
            self,
            Self::GroupOrLength { .. }
                | Self::GroupOrCategories { .. }
                | Self::GroupOrFixedItems { .. }
                | Self::FieldAsRows { .. }
                | Self::ColumnAsTensor { .. }
                | Self::FloatOrFillByColumn { .. }
        );
        (discriminant(self), (!has_example).then_some(self))
    }

    /// Returns the remedy of this column where results have names: lists and strings are groups there.
    pub(in crate::error) fn of_group(self, column: &str) -> Self {
        let column = format!("{column:?}");
        match self {
            Self::RaggedOrLength => Self::GroupOrLength { column },
            Self::RaggedOrCategories => Self::GroupOrCategories { column },
            Self::RaggedOrFixedItems => Self::GroupOrFixedItems { column },
            Self::FieldsOfLists | Self::FieldsOfFixedLists => Self::ArrowColumn { column }.or(self),
            Self::AllowCopyOrNoPad => Self::AllowCopyOrRagged,
            Self::FloatOrFill => Self::FloatOrFillByColumn { column },
            Self::RowsOfOneLength => Self::ColumnAsTensor { column },
            // Both are in quotation marks.
            Self::RaggedColumn { column: field } => Self::FieldAsRows {
                path: [column.strip_suffix('"').unwrap_or(&column), field.get(1..).unwrap_or_default()].join("."),
            },
            other => other,
        }
    }
}

impl Error {
    /// Takes back categories, which ragged and padded rows have no codes of.
    pub(crate) fn without_categories(self) -> Self {
        if self.0.remedy != Some(Remedy::CommonCategories) {
            return self;
        }
        self.remedy_is("give all chunks one dictionary, as Table.unify_dictionaries() of pyarrow does")
    }
}
