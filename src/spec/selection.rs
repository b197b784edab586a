//! [`Selection`]: which results a conversion has, and which columns each of them is made of.

/// Which results a conversion has, and which columns each of them is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Selection {
    /// One tensor: the matrix of these columns of a struct, or of all. Of an array that is no struct, its rows.
    Whole(Option<Vec<String>>),
    /// A tensor for each of these columns of a struct, or for each column.
    Each(Option<Vec<String>>),
    /// A tensor for each name.
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
}

/// What a name stands for, among the columns of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Group {
    /// A column, as a tensor of its own.
    Column(String),
    /// Columns that are packed into a matrix, in this order.
    Matrix(Vec<String>),
}

impl Group {
    /// The names of its columns.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        match self {
            Self::Column(name) => std::slice::from_ref(name),
            Self::Matrix(names) => names,
        }
    }
}
