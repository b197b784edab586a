//! [`Selection`]: which results a conversion has, and which columns each of them is made of.

use super::Group;

/// Which results a conversion has, and which columns each of them is made of. A field of a struct is named by its path, such as "s.a".
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Selection {
    /// One tensor: the matrix of these columns of a struct, or of all. Of an array that is no struct, its rows.
    Whole(Option<Vec<String>>),
    /// A tensor for each of these columns of a struct, or for each column.
    Each(Option<Vec<String>>),
    /// A result for each name, and one more for its validity and for its lengths, where the group asks for them.
    Named(Vec<(String, Group)>),
}

impl Default for Selection {
    fn default() -> Self {
        Self::Whole(None)
    }
}

impl Selection {
    /// The names of all columns that are asked for; none where all columns are taken.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        let (columns, groups) = match self {
            Self::Whole(columns) | Self::Each(columns) => (columns.as_deref().unwrap_or_default(), [].as_slice()),
            Self::Named(groups) => ([].as_slice(), groups.as_slice()),
        };
        columns.iter().chain(groups.iter().flat_map(|(_, group)| group.columns())).map(String::as_str)
    }

    /// Returns the groups whose rows differ in length or are passed through, in order.
    pub(crate) fn varied(&self) -> impl Iterator<Item = (&str, &Group)> {
        let groups = match self {
            Self::Whole(_) | Self::Each(_) => [].as_slice(),
            Self::Named(groups) => groups.as_slice(),
        };
        groups.iter().filter(|(_, group)| !group.has_fixed_rows()).map(|(name, group)| (name.as_str(), group))
    }

    /// Returns whether a group that makes a tensor has this column.
    pub(crate) fn has_tensor_of(&self, column: &str) -> bool {
        let Self::Named(groups) = self else { return false };
        groups.iter().any(|(_, group)| group.has_fixed_rows() && group.columns().iter().any(|own| own == column))
    }

    /// The names of all results that have one of the caller's, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let groups = match self {
            Self::Whole(_) | Self::Each(_) => [].as_slice(),
            Self::Named(groups) => groups.as_slice(),
        };
        groups.iter().flat_map(|(name, group)| group.result_names(name))
    }
}
