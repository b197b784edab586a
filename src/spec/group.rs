//! [`Group`]: columns of a batch that become one result, and the options that they have in common.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use arrow_schema::FieldRef;

use super::{NullPolicy, Options, Pad, PerColumn, Positions};
use crate::dtype::DType;
use crate::error::{Error, Result};

/// Columns of a batch that become one result, and its options: a tensor of a single column, or of several as a matrix; rows of different
/// lengths, padded or not; or columns as they are, in Arrow.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{ArrayRef, Int8Array, RecordBatch};
/// use arrow_dlpack::{Conversion, DType, Group, NullPolicy, Scalar};
///
/// let a: ArrayRef = Arc::new(Int8Array::from(vec![Some(1), None]));
/// let batch = RecordBatch::try_from_iter([("a", a.clone()), ("b", a)]).unwrap();
/// let x = Group::matrix(["a", "b"]).dtype(DType::Float32).nulls(NullPolicy::Fill(Scalar::Int(0))).validity("x_valid");
/// let tensors = Conversion::default().groups([("x", x)]).to_tensors(&batch)?;
/// assert_eq!(tensors[0].1.as_slice::<f32>()?, [1.0, 1.0, 0.0, 0.0]);
/// assert_eq!((tensors[1].0.as_str(), tensors[1].1.as_bytes()?), ("x_valid", &[1_u8, 1, 0, 0][..]));
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    columns: Vec<String>,
    form: GroupForm,
    dtype: Option<DType>,
    nulls: Option<NullPolicy>,
    validity: Option<String>,
    lengths: Option<String>,
}

/// What a group becomes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum GroupForm {
    /// The tensor of a column.
    Column,
    /// The tensor of several columns.
    Matrix,
    /// A column of lists or strings as a matrix with a row for each of them.
    Padded(Pad),
    /// A column of lists or strings as values and offsets.
    Ragged,
    /// Columns as an Arrow batch.
    Arrow,
}

impl Group {
    /// Returns the group of a column, which is a tensor of its own.
    #[must_use]
    pub fn column(name: impl Into<String>) -> Self {
        Self::new(vec![name.into()], GroupForm::Column)
    }

    /// Returns the group of columns that are packed into a matrix, in this order.
    #[must_use]
    pub fn matrix<S: Into<String>>(columns: impl IntoIterator<Item = S>) -> Self {
        Self::new(columns.into_iter().map(Into::into).collect(), GroupForm::Matrix)
    }

    /// Returns the group of a column of lists or strings that becomes a matrix, of shape (rows, length, *inner), as
    /// [`Conversion::padded`](crate::Conversion::padded) makes it, also of fixed-size lists. Its validity is of shape (rows, length),
    /// false for padding and nulls. The elements have the group's options.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use arrow_array::{ArrayRef, RecordBatch, StringArray};
    /// use arrow_dlpack::{Conversion, Group, Pad, Scalar};
    ///
    /// let text: ArrayRef = Arc::new(StringArray::from(vec!["to", "be!"]));
    /// let batch = RecordBatch::try_from_iter([("text", text)]).unwrap();
    /// let x = Group::padded("text", Pad::new(Scalar::Int(0))).validity("mask").lengths("n");
    /// let results = Conversion::default().groups([("x", x)]).to_results(&batch)?;
    /// let tensors: Vec<_> = results.iter().filter_map(|(name, made)| Some((name.as_str(), made.as_tensor()?))).collect();
    /// assert_eq!(tensors[0].1.as_slice::<u8>()?, b"to\0be!");
    /// assert_eq!((tensors[1].0, tensors[1].1.as_bytes()?), ("mask", &[1_u8, 1, 0, 1, 1, 1][..]));
    /// assert_eq!((tensors[2].0, tensors[2].1.as_slice::<i64>()?), ("n", &[2_i64, 3][..]));
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    #[must_use]
    pub fn padded(column: impl Into<String>, pad: Pad) -> Self {
        Self::new(vec![column.into()], GroupForm::Padded(pad))
    }

    /// Returns the group of a column of lists or strings that becomes values and offsets, as
    /// [`Conversion::ragged`](crate::Conversion::ragged) makes them. The elements have the group's options.
    #[must_use]
    pub fn ragged(column: impl Into<String>) -> Self {
        Self::new(vec![column.into()], GroupForm::Ragged)
    }

    /// Returns the group of columns, of any types, that are passed through as an Arrow batch, in this order. It has no options.
    #[must_use]
    pub fn arrow<S: Into<String>>(columns: impl IntoIterator<Item = S>) -> Self {
        Self::new(columns.into_iter().map(Into::into).collect(), GroupForm::Arrow)
    }

    fn new(columns: Vec<String>, form: GroupForm) -> Self {
        Self { columns, form, dtype: None, nulls: None, validity: None, lengths: None }
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

    /// Asks for one more result of padded rows, of this name: how many elements of each row were kept, as int64.
    #[must_use]
    pub fn lengths(mut self, name: impl Into<String>) -> Self {
        self.lengths = Some(name.into());
        self
    }

    /// Returns the names of the columns.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Returns whether the columns are packed into a matrix.
    pub(crate) fn is_matrix(&self) -> bool {
        self.form == GroupForm::Matrix
    }

    /// Returns what the group becomes.
    pub(crate) fn form(&self) -> GroupForm {
        self.form
    }

    /// Returns whether the result is a tensor with one element, or elements of one shape, a row.
    pub(crate) fn has_fixed_rows(&self) -> bool {
        matches!(self.form, GroupForm::Column | GroupForm::Matrix)
    }

    /// Returns for each plan of the group whether it is of rows of one shape: the tensor and its validity have one each.
    pub(crate) fn are_fixed(&self) -> impl Iterator<Item = bool> {
        let is_fixed = self.has_fixed_rows();
        std::iter::repeat_n(is_fixed, 1 + usize::from(is_fixed && self.validity.is_some()))
    }

    /// Returns the name of the result that tells how many elements each row has.
    pub(crate) fn lengths_name(&self) -> Option<&str> {
        self.lengths.as_deref()
    }

    /// Returns the names of the results, of which the first is given.
    pub(crate) fn result_names<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        std::iter::once(name).chain(self.validity_name()).chain(self.lengths_name())
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
    pub(crate) fn check(self, groups: &'a [(String, Group)]) -> Result<()> {
        let mut names = HashMap::with_capacity(groups.len());
        let mut errors = Vec::new();
        let own = |(name, group): &'a (String, Group)| {
            let parts = [(group.validity_name(), "the validity"), (group.lengths_name(), "the lengths")];
            parts.into_iter().filter_map(move |(part, what)| Some((part?, format!("{what} of group {name:?}"))))
        };
        let of_groups = groups.iter().map(|(name, _)| (name.as_str(), format!("group {name:?}")));
        for (name, what) in of_groups.chain(groups.iter().flat_map(own)) {
            match names.entry(name) {
                Entry::Vacant(entry) => drop(entry.insert(what)),
                Entry::Occupied(first) => {
                    let error = Error::argument(format!("{what} and {} are both called {name:?}", first.get()));
                    errors.push(error.remedy_is("give each its own name"));
                }
            }
        }
        for (name, group) in groups {
            errors.extend(self.of(name, group).faults());
        }
        Error::of_columns(errors).map_or(Ok(()), Err)
    }

    /// Refuses names of options that are neither of a group nor of a column, or of both.
    ///
    /// # Errors
    /// Names all of them; if the data has no columns.
    pub(crate) fn check_names(self, field: &FieldRef, groups: &[(String, Group)]) -> Result<()> {
        let own: HashSet<&str> = self.dtype.names().chain(self.nulls.names()).collect();
        // Without columns, only what has to be one is refused.
        let positions = Positions::new(field);
        let is_column = |name: &str| positions.as_ref().is_ok_and(|positions| positions.has(name));
        let mut errors = Vec::new();
        for (name, group) in groups.iter().filter(|(name, _)| own.contains(name.as_str())) {
            if !group.is_alone(name) && is_column(name) {
                let error = Error::argument(format!("{name:?} is a group and a column, so the option may mean either"));
                errors.push(error.remedy_is("give the group another name"));
            }
        }
        let names: HashSet<&str> = groups.iter().map(|(group, _)| group.as_str()).collect();
        let is_group = |name: &str| names.contains(name);
        let is_other = |part: &str| is_group(part) || is_column(part);
        let parts: Vec<_> = groups
            .iter()
            .flat_map(|(_, group)| {
                let validity =
                    group.validity_name().map(|part| (part, "a validity is always of bools, and has no nulls"));
                let lengths = group.lengths_name().map(|part| (part, "lengths are always int64, and have no nulls"));
                validity.into_iter().chain(lengths)
            })
            .filter(|(part, _)| own.contains(part) && !is_other(part))
            .collect();
        errors.extend(parts.iter().map(|(part, what)| {
            Error::argument(*what).remedy_is("leave the option out, and cast the result").in_column(part)
        }));
        let parts: HashSet<&str> = parts.iter().map(|(part, _)| *part).collect();
        let is_part = |name: &str| parts.contains(name);
        let columns = self.dtype.names().chain(self.nulls.names()).filter(|name| !is_group(name) && !is_part(name));
        errors.extend(positions.and_then(|positions| positions.require(columns)).err());
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

    /// Options that the form of the group does not have.
    fn faults_of_form(&self) -> Vec<Error> {
        let fault = |reason: &str, remedy: &str| Error::argument(reason).remedy_is(remedy).in_group(self.name);
        let (form, mut faults) = (self.group.form, Vec::new());
        let has_nulls = self.group.nulls.is_some() || self.options.nulls.get(self.name).is_some();
        if form == GroupForm::Arrow && (self.own_dtype().is_some() || has_nulls) {
            let reason = "it is passed through as Arrow, and has neither a dtype nor a null policy";
            faults.push(fault(reason, "leave the option out, or convert the columns in a group of their own"));
        }
        if matches!(form, GroupForm::Ragged | GroupForm::Arrow) && self.group.validity.is_some() {
            let reason = "it has no validity beside it: ragged rows and Arrow batches tell their nulls themselves";
            faults.push(fault(reason, "leave the name of the validity out"));
        }
        if !matches!(form, GroupForm::Padded(_)) && self.group.lengths.is_some() {
            faults.push(fault("only padded rows have lengths", "leave the name of the lengths out, or pad the rows"));
        }
        faults
    }

    /// Options that are given twice.
    fn faults(&self) -> Vec<Error> {
        let twice = |option: &str| {
            let reason = format!("its {option} is given twice: for the group itself, and by its name");
            Error::argument(reason).remedy_is("leave one of them out").in_group(self.name)
        };
        let mut faults = self.faults_of_form();
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
