//! [`PerColumn`]: an option that is one value, or one for each column.

/// An option that is one value for all columns, or one for each column that is named: the others have the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PerColumn<T> {
    /// The value of all columns.
    All(T),
    /// The values of these columns.
    Named(Vec<(String, T)>),
}

impl<T: Default> Default for PerColumn<T> {
    fn default() -> Self {
        Self::All(T::default())
    }
}

impl<T> From<T> for PerColumn<T> {
    fn from(value: T) -> Self {
        Self::All(value)
    }
}

impl<T> From<T> for PerColumn<Option<T>> {
    fn from(value: T) -> Self {
        Self::All(Some(value))
    }
}

impl<T> PerColumn<T> {
    /// The values of these columns; the others have the default. Of a column that is named twice, the first value counts.
    ///
    /// ```
    /// use arrow_dlpack::{Conversion, DType, NullPolicy, PerColumn};
    ///
    /// let conversion = Conversion::default()
    ///     .dtype(PerColumn::named([("a", Some(DType::Float32))]))
    ///     .nulls(PerColumn::named([("a", NullPolicy::Nan), ("b", NullPolicy::Keep)]));
    /// # assert_eq!(conversion.nulls.of("b"), NullPolicy::Keep);
    /// ```
    #[must_use]
    pub fn named<S: Into<String>>(columns: impl IntoIterator<Item = (S, T)>) -> Self {
        Self::Named(columns.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

impl<T: Clone + Default> PerColumn<T> {
    /// The value of a column.
    #[inline]
    #[must_use]
    pub fn of(&self, column: &str) -> T {
        match self {
            Self::All(value) => value.clone(),
            Self::Named(_) => self.get(column).unwrap_or_default(),
        }
    }

    /// The value that is named for a column; `None` for a value of all columns.
    pub(crate) fn get(&self, column: &str) -> Option<T> {
        match self {
            Self::All(_) => None,
            Self::Named(columns) => columns.iter().find(|(name, _)| name == column).map(|(_, value)| value.clone()),
        }
    }

    /// The value of all columns; the default where columns have their own.
    pub(crate) fn all(&self) -> T {
        match self {
            Self::All(value) => value.clone(),
            Self::Named(_) => T::default(),
        }
    }

    /// Whether columns have values of their own.
    pub(crate) fn is_by_column(&self) -> bool {
        matches!(self, Self::Named(_))
    }

    /// The columns with a value of their own.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let columns = match self {
            Self::All(_) => [].as_slice(),
            Self::Named(columns) => columns,
        };
        columns.iter().map(|(name, _)| name.as_str())
    }
}
