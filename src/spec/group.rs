//! [`Group`]: columns of a batch that become one tensor, and the options that they have in common.

use std::collections::HashSet;

use arrow_schema::FieldRef;

use super::{NullPolicy, Options, PerColumn, require_columns};
use crate::dtype::DType;
use crate::error::{Error, Result};

/// Columns of a batch that become one tensor: a single column, or several as a matrix. Its options are those of its tensor.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{ArrayRef, Int8Array, RecordBatch};
/// use arrow_dlpack::{Conversion, DType, Group, NullPolicy, Scalar, Selection};
///
/// let a: ArrayRef = Arc::new(Int8Array::from(vec![Some(1), None]));
/// let batch = RecordBatch::try_from_iter([("a", a.clone()), ("b", a)]).unwrap();
/// let x = Group::matrix(["a", "b"]).dtype(DType::Float32).nulls(NullPolicy::Fill(Scalar::Int(0))).validity("x_valid");
/// let tensors = Conversion::default().select(Selection::Named(vec![("x".to_owned(), x)])).to_tensors(&batch)?;
/// assert_eq!(tensors[0].1.as_slice::<f32>()?, [1.0, 1.0, 0.0, 0.0]);
/// assert_eq!((tensors[1].0.as_str(), tensors[1].1.as_bytes()?), ("x_valid", &[1_u8, 1, 0, 0][..]));
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    columns: Vec<String>,
    is_matrix: bool,
    dtype: Option<DType>,
    nulls: Option<NullPolicy>,
    validity: Option<String>,
}

impl Group {
    /// Returns the group of a column, which is a tensor of its own.
    #[must_use]
    pub fn column(name: impl Into<String>) -> Self {
        Self::new(vec![name.into()], false)
    }

    /// Returns the group of columns that are packed into a matrix, in this order.
    #[must_use]
    pub fn matrix<S: Into<String>>(columns: impl IntoIterator<Item = S>) -> Self {
        Self::new(columns.into_iter().map(Into::into).collect(), true)
    }

    fn new(columns: Vec<String>, is_matrix: bool) -> Self {
        Self { columns, is_matrix, dtype: None, nulls: None, validity: None }
    }

    /// Sets the dtype of the tensor. Columns of such a group have no dtypes of their own.
    #[must_use]
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// Sets what happens to nulls of columns that have no null policy of their own.
    #[must_use]
    pub fn nulls(mut self, nulls: NullPolicy) -> Self {
        self.nulls = Some(nulls);
        self
    }

    /// Asks for one more result, of this name: which elements are valid, as bools in the tensor's shape. It is there whether or not
    /// there are nulls.
    #[must_use]
    pub fn validity(mut self, name: impl Into<String>) -> Self {
        self.validity = Some(name.into());
        self
    }

    /// Returns the names of the columns.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Returns whether the columns are packed into a matrix.
    pub(crate) fn is_matrix(&self) -> bool {
        self.is_matrix
    }

    /// Returns the name of the result that tells which elements are valid.
    pub(crate) fn validity_name(&self) -> Option<&str> {
        self.validity.as_deref()
    }

    /// Returns whether the group has this column alone.
    fn is_alone(&self, column: &str) -> bool {
        matches!(self.columns.as_slice(), [only] if only == column)
    }
}

/// The options of a group: those of a column come before those of its group, and these before those of the call.
#[derive(Clone, Copy)]
pub(crate) struct GroupOptions<'a> {
    name: &'a str,
    group: &'a Group,
    options: CallOptions<'a>,
}

/// The options of a call that groups may have too: by group, by column, or for all.
#[derive(Clone, Copy)]
pub(crate) struct CallOptions<'a> {
    pub(crate) dtype: &'a PerColumn<Option<DType>>,
    pub(crate) nulls: &'a PerColumn<NullPolicy>,
}

impl<'a> CallOptions<'a> {
    /// Returns the options of a group.
    pub(crate) fn of(self, name: &'a str, group: &'a Group) -> GroupOptions<'a> {
        GroupOptions { name, group, options: self }
    }

    /// Refuses names of results that occur twice, and dtypes or null policies that are given twice.
    ///
    /// # Errors
    /// Names all such groups and columns.
    pub(crate) fn check(self, groups: &[(String, Group)]) -> Result<()> {
        let mut names = HashSet::with_capacity(groups.len());
        let mut errors = Vec::new();
        for (name, group) in groups {
            if !names.insert(name.as_str()) {
                let error = Error::argument(format!("two results are called {name:?}"));
                errors.push(error.remedy_is("give each its own name"));
            }
            errors.extend(self.of(name, group).faults());
        }
        for (name, group) in groups {
            if let Some(validity) = group.validity_name()
                && !names.insert(validity)
            {
                let error = Error::argument(format!("its validity is called {validity:?}, as another result is"));
                errors.push(error.remedy_is("give each its own name").in_group(name));
            }
        }
        Error::of_columns(errors).map_or(Ok(()), Err)
    }

    /// Refuses names of options that are neither of a group nor of a column, or of both.
    ///
    /// # Errors
    /// Names all of them; if the data has no columns.
    pub(crate) fn check_names(self, field: &FieldRef, groups: &[(String, Group)]) -> Result<()> {
        let own: HashSet<&str> = self.dtype.names().chain(self.nulls.names()).collect();
        let mut errors = Vec::new();
        for (name, group) in groups.iter().filter(|(name, _)| own.contains(name.as_str())) {
            if !group.is_alone(name) && require_columns(field, [name.as_str()]).is_ok() {
                let error = Error::argument(format!("{name:?} is a group and a column, so the option may mean either"));
                errors.push(error.remedy_is("give the group another name"));
            }
        }
        let is_group = |name: &str| groups.iter().any(|(group, _)| group == name);
        let columns = self.dtype.names().chain(self.nulls.names()).filter(|name| !is_group(name));
        errors.extend(require_columns(field, columns).err());
        Error::of_columns(errors).map_or(Ok(()), Err)
    }
}

impl GroupOptions<'_> {
    /// Returns the dtype of the tensor, unless it is that of its columns.
    pub(crate) fn dtype(&self) -> Option<DType> {
        self.own_dtype().or_else(|| self.options.dtype.all())
    }

    /// Returns what happens to the nulls of a column.
    pub(crate) fn nulls(&self, column: &str) -> NullPolicy {
        let of = |name| self.options.nulls.get(name);
        of(column).or(self.group.nulls).or_else(|| of(self.name)).unwrap_or_else(|| self.options.nulls.all())
    }

    /// Returns the options of a column, of which these are the call's.
    pub(crate) fn of_column(&self, column: &str, mut options: Options) -> Options {
        options.nulls = self.nulls(column);
        options.dtype = self.dtype().or(options.dtype);
        options
    }

    /// Returns the dtype that the group names, or the call for it.
    fn own_dtype(&self) -> Option<DType> {
        self.group.dtype.or_else(|| self.options.dtype.get(self.name).flatten())
    }

    /// Options that are given twice.
    fn faults(&self) -> Vec<Error> {
        let twice = |option: &str| {
            let reason = format!("its {option} is given twice: for the group itself, and by its name");
            Error::argument(reason).remedy_is("leave one of them out").in_group(self.name)
        };
        let mut faults = Vec::new();
        if self.group.dtype.is_some() && self.options.dtype.get(self.name).flatten().is_some() {
            faults.push(twice("dtype"));
        }
        if self.group.nulls.is_some() && self.options.nulls.get(self.name).is_some() {
            faults.push(twice("null policy"));
        }
        if self.own_dtype().is_some() {
            let has_own = |column: &&String| {
                column.as_str() != self.name && self.options.dtype.get(column.as_str()).flatten().is_some()
            };
            let fault = |column: &String| {
                let reason = format!("it has a dtype of its own, and is in group {:?}, which has one too", self.name);
                Error::argument(reason).remedy_is("leave one of them out").in_column(column)
            };
            faults.extend(self.group.columns.iter().filter(has_own).map(fault));
        }
        faults
    }
}
