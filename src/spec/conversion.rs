//! [`Conversion`]: everything a caller asks for, and the specs of its results for the type of the data.

use std::borrow::Cow;
use std::cell::RefCell;
use std::num::NonZero;
use std::sync::Arc;

use arrow_schema::{DataType, FieldRef, TimeUnit};

use super::group::CallOptions;
use super::list_lengths::require_lists;
use super::result::group_results;
use super::{
    ColumnOption, CopyMode, DecimalMode, DictionaryMode, Group, GroupForm, MatrixOptions, MatrixSpec, MemoryOrder,
    NullPolicy, Options, PandasIndex, PerColumn, ResultKind, ResultSpec, Selection, Spec, all_or_errors,
    require_columns, setters,
};
use crate::categories::Categories;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Remedy, Result};

/// The request of a caller to convert Arrow data to tensors: which results, and the options of each column.
///
/// ```
/// use std::sync::Arc;
/// use arrow_dlpack::{Conversion, DType, NullPolicy, PerColumn};
/// use arrow_schema::{DataType, Field};
///
/// let conversion = Conversion::default().columns(["x", "y"]).dtype(DType::Float32).nulls(NullPolicy::Nan);
/// let fields = ["x", "y"].map(|name| Field::new(name, DataType::Int64, true));
/// let table = Arc::new(Field::new("", DataType::Struct(fields.to_vec().into()), false));
/// conversion.check(&table)?;
///
/// let typing_error = conversion.clone().dtype(PerColumn::Named(vec![("z".to_owned(), Some(DType::Int8))]));
/// assert_eq!(typing_error.check(&table).unwrap_err().column(), Some("z"));
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Conversion {
    /// The results, and their columns.
    pub selection: Selection,
    /// Which index columns of pandas are among all columns.
    pub index: PandasIndex,
    /// The dtype of the elements, by a checked cast; `None` is a column's own, or what the columns of a matrix promote to. By column,
    /// or by group.
    pub dtype: PerColumn<Option<DType>>,
    /// What happens to nulls. By column, or by group: a column's own policy comes before its group's.
    pub nulls: PerColumn<NullPolicy>,
    /// What the elements of decimal columns are. The values need a dtype, unless the scale is 0 and the type has 64 bits at most.
    pub decimal: PerColumn<DecimalMode>,
    /// What the elements of dictionary columns are. `None` is the codes; or the values, where a dtype is requested, or a unit of timestamps,
    /// durations, dates and times.
    pub dictionary: PerColumn<Option<DictionaryMode>>,
    /// The categories whose int32 codes columns become, whatever their dictionary; `None` leaves the values.
    pub categories: PerColumn<Option<Categories>>,
    /// The unit of timestamps, durations, dates and times, as numbers: checked, as a cast is. `None` is their own ticks. By column, or
    /// for all columns of such types.
    pub unit: PerColumn<Option<TimeUnit>>,
    /// The elements that each row of a column of lists has, which makes it a tensor of shape (rows, length). A row of another length is an
    /// error. By column, or for all columns of lists.
    pub length: PerColumn<Option<usize>>,
    /// In which order the elements of a matrix lie in memory.
    pub memory_order: MemoryOrder,
    /// When a copy may be made.
    pub copy: CopyMode,
    /// Whether results must be writable memory that no other array or tensor shares.
    pub writable: bool,
    /// Where the results are to be; `None` is where the data is. The host converts if it has the data or gets the results.
    pub device: Option<Device>,
    /// Threads to convert with, where that is worth it; `None` is `ARROW_DLPACK_THREADS`, or one a core.
    pub threads: Option<NonZero<usize>>,
}

/// The options of each column, made once where no column has options of its own.
pub(crate) struct EachOptions<'a> {
    conversion: &'a Conversion,
    all: Option<Options>,
}

impl EachOptions<'_> {
    /// As [`Conversion::of`].
    #[inline]
    pub(crate) fn of(&self, column: &str) -> Cow<'_, Options> {
        self.all.as_ref().map_or_else(|| Cow::Owned(self.conversion.of(column)), Cow::Borrowed)
    }
}

impl Conversion {
    /// Sets [`Conversion::selection`].
    #[must_use]
    pub fn select(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// Selects the matrix of these columns, in this order. A field of a struct is named by its path, here and in options: a null of the
    /// struct is a null of the field. A column whose own name is the path comes first.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use arrow_array::{ArrayRef, Int32Array, RecordBatch, StructArray};
    /// use arrow_dlpack::Conversion;
    /// use arrow_schema::{DataType, Field};
    ///
    /// let a: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    /// let s: ArrayRef = Arc::new(StructArray::from(vec![(Arc::new(Field::new("a", DataType::Int32, false)), a.clone())]));
    /// let batch = RecordBatch::try_from_iter([("s", s), ("b", a)]).unwrap();
    /// let matrix = Conversion::default().columns(["s.a", "b"]).to_tensor(&batch)?;
    /// assert_eq!(matrix.as_slice::<i32>()?, [1, 1, 2, 2]);
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    #[must_use]
    pub fn columns<S: Into<String>>(self, columns: impl IntoIterator<Item = S>) -> Self {
        self.select(Selection::Whole(Some(columns.into_iter().map(Into::into).collect())))
    }

    /// Selects named groups of columns, in this order: [`Selection::Named`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// use arrow_array::{ArrayRef, Int32Array, RecordBatch};
    /// use arrow_dlpack::{Conversion, DType, Group};
    ///
    /// let a: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    /// let batch = RecordBatch::try_from_iter([("a", a.clone()), ("b", a.clone()), ("label", a)]).unwrap();
    /// let groups = [("x", Group::matrix(["a", "b"]).dtype(DType::Float32)), ("y", Group::column("label"))];
    /// let tensors = Conversion::default().groups(groups).to_tensors(&batch)?;
    /// let shapes: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.shape())).collect();
    /// assert_eq!(shapes, [("x", &[2, 2][..]), ("y", &[2])]);
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    #[must_use]
    pub fn groups<S: Into<String>>(self, groups: impl IntoIterator<Item = (S, Group)>) -> Self {
        self.select(Selection::Named(groups.into_iter().map(|(name, group)| (name.into(), group)).collect()))
    }

    setters! { Conversion:
        pub index: PandasIndex;
        pub dtype: impl Into<PerColumn<Option<DType>>>;
        pub nulls: impl Into<PerColumn<NullPolicy>>;
        pub decimal: impl Into<PerColumn<DecimalMode>>;
        pub dictionary: impl Into<PerColumn<Option<DictionaryMode>>>;
        pub categories: impl Into<PerColumn<Option<Categories>>>;
        ///
        /// ```
        /// use arrow_array::TimestampMicrosecondArray;
        /// use arrow_dlpack::{Conversion, DType};
        /// use arrow_schema::TimeUnit;
        ///
        /// let times = TimestampMicrosecondArray::from(vec![1_500_000, 3_000_000]);
        /// let seconds = Conversion::default().unit(TimeUnit::Second);
        /// assert_eq!(seconds.clone().dtype(DType::Float32).to_tensor(&times)?.as_slice::<f32>()?, [1.5, 3.0]);
        /// assert_eq!(seconds.to_tensor(&times).unwrap_err().row(), Some(0));
        /// # Ok::<(), arrow_dlpack::Error>(())
        /// ```
        pub unit: impl Into<PerColumn<Option<TimeUnit>>>;
        ///
        /// ```
        /// use arrow_array::ListArray;
        /// use arrow_array::types::Int32Type;
        /// use arrow_dlpack::Conversion;
        ///
        /// let rows = [Some(vec![Some(1), Some(2)]), Some(vec![Some(3), Some(4)])];
        /// let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(rows);
        /// assert_eq!(Conversion::default().length(2).to_tensor(&lists)?.shape(), [2, 2]);
        /// assert_eq!(Conversion::default().length(3).to_tensor(&lists).unwrap_err().row(), Some(0));
        /// # Ok::<(), arrow_dlpack::Error>(())
        /// ```
        pub length: impl Into<PerColumn<Option<usize>>>;
        pub memory_order: MemoryOrder;
        pub copy: CopyMode;
        pub writable: bool;
        pub device: impl Into<Option<Device>>;
        pub threads: impl Into<Option<NonZero<usize>>>;
    }

    /// The options of one column.
    #[inline]
    pub(crate) fn of(&self, column: &str) -> Options {
        let mut options = Options::default().nulls(self.nulls.of(column)).copy(self.copy).writable(self.writable);
        options.dtype = self.dtype.of(column);
        options.decimal = self.decimal.of(column);
        options.dictionary = self.dictionary.of(column);
        options.categories = self.categories.of(column);
        let by_name = self.unit.is_by_column();
        options.unit = self.unit.of(column).map(|value| ColumnOption { value, by_name });
        let by_name = self.length.is_by_column();
        options.length = self.length.of(column).map(|value| ColumnOption { value, by_name });
        options
    }

    /// The options of each of many columns.
    pub(crate) fn of_each(&self) -> EachOptions<'_> {
        EachOptions { conversion: self, all: (!self.is_by_column()).then(|| self.of("")) }
    }

    /// The options of a column in a group.
    pub(crate) fn of_in(&self, name: &str, group: &Group, column: &str) -> Options {
        self.call().of(name, group).of_column(column, self.of(column))
    }

    /// The dtype of a group's tensor, unless it is that of its columns.
    pub(crate) fn dtype_in(&self, name: &str, group: &Group) -> Option<DType> {
        self.call().of(name, group).dtype()
    }

    /// The options that groups may have too.
    pub(super) fn call(&self) -> CallOptions<'_> {
        CallOptions { dtype: &self.dtype, nulls: &self.nulls }
    }

    /// Refuses groups whose results have one name, or whose options are given twice.
    ///
    /// # Errors
    /// Tells all such groups.
    pub(crate) fn check_groups(&self) -> Result<()> {
        match &self.selection {
            Selection::Named(groups) => self.call().check(groups),
            _ => Ok(()),
        }
    }

    /// The options of matrices as a whole.
    pub(crate) fn matrix(&self) -> MatrixOptions {
        MatrixOptions {
            memory_order: self.memory_order,
            copy: self.copy,
            writable: self.writable,
            is_written: false,
            threads: self.threads,
        }
    }

    /// Makes no other copy of data that was copied for this conversion alone.
    pub(crate) fn take_as_own(&mut self) {
        self.copy = self.copy.once();
        self.writable = false;
    }

    /// Refuses options of columns that do not exist: a typing error must not pass for a default. The error tells which of the
    /// selected columns do not exist, too.
    #[inline]
    pub(crate) fn check_columns(&self, field: &FieldRef) -> Result<()> {
        self.check_columns_of_validity(field)?;
        match self.length {
            PerColumn::All(Some(_)) if !is_struct(field) => require_lists(field),
            _ => Ok(()),
        }
    }

    /// As [`Conversion::check_columns`], of a validity, which an array has with a length and without lists, too.
    #[inline]
    pub(crate) fn check_columns_of_validity(&self, field: &FieldRef) -> Result<()> {
        if let Selection::Whole(Some(_)) = &self.selection {
            self.refuse_columns(field)?;
        }
        if self.is_by_column() {
            return self.check_names(field);
        }
        Ok(())
    }

    /// Whether columns have options of their own. Every field is named: a new one is decided on here, and in
    /// [`Self::names_of_options`] or [`Self::names_of_shared_options`].
    fn is_by_column(&self) -> bool {
        let Self {
            dtype,
            nulls,
            decimal,
            dictionary,
            categories,
            unit,
            length,
            selection: _,
            index: _,
            memory_order: _,
            copy: _,
            writable: _,
            device: _,
            threads: _,
        } = self;
        let by_column = dtype.is_by_column() || nulls.is_by_column() || decimal.is_by_column();
        let by_column = by_column || dictionary.is_by_column() || categories.is_by_column();
        by_column || unit.is_by_column() || length.is_by_column()
    }

    /// Refuses columns that do not exist, of the selection and of options.
    pub(crate) fn check_names(&self, field: &FieldRef) -> Result<()> {
        let of_columns = self.names_of_options();
        if let (Selection::Named(groups), true) = (&self.selection, is_struct(field)) {
            let columns = require_columns(field, self.selection.columns().chain(of_columns));
            let errors = [columns, self.call().check_names(field, groups)].into_iter().filter_map(Result::err);
            return Error::of_columns(errors).map_or(Ok(()), Err);
        }
        let names = self.names_of_shared_options().chain(of_columns);
        if is_struct(field) {
            return require_columns(field, self.selection.columns().chain(names));
        }
        let missing = names.filter(|name| name != field.name());
        let of_one = Error::argument("there is no such column: the data is one array")
            .remedy_is("pass one value for the array, and not a value for each column");
        let errors = missing.map(|name| of_one.clone().in_column(name));
        Error::of_columns(errors).map_or(Ok(()), Err)
    }

    /// The names of columns, of options that groups do not have.
    pub(super) fn names_of_options(&self) -> impl Iterator<Item = &str> {
        let names = self.decimal.names().chain(self.dictionary.names()).chain(self.categories.names());
        names.chain(self.unit.names()).chain(self.length.names())
    }

    /// The names of columns or groups, of options that both have.
    pub(super) fn names_of_shared_options(&self) -> impl Iterator<Item = &str> {
        self.dtype.names().chain(self.nulls.names())
    }

    /// Returns the specs of the results whose rows have one shape; `Conversion::varied` has the others. `natural` is the dtype where none is
    /// asked for: that of the memory that is written to, or of a tensor of complex numbers, which Arrow knows as pairs.
    ///
    /// # Errors
    /// For whatever no data of the type makes possible; tells all such columns.
    pub(crate) fn results(&self, field: &FieldRef, natural: Option<DType>) -> Result<Vec<ResultSpec>> {
        let result = ResultSpec::new;
        match &self.selection {
            Selection::Whole(_) if is_struct(field) => {
                Ok(vec![result(ResultKind::Matrix(self.matrix_of(field, natural)?))])
            }
            Selection::Whole(_) => {
                self.refuse_columns(field)?;
                let (spec, options) = self.column(field, natural)?;
                Ok(vec![result(ResultKind::Column { position: None, spec, options })])
            }
            Selection::Each(columns) => {
                let column = |(position, column): (usize, &FieldRef)| {
                    let (spec, options) = self.column(column, natural)?;
                    Ok(result(ResultKind::Column { position: Some(position), spec, options }))
                };
                all_or_errors(self.index.select(field, columns.as_deref())?.into_iter().map(column))
                    .map_err(Error::of_named_results)
            }
            Selection::Named(groups) => group_results(field, groups, self.call(), |name| self.of(name)),
        }
    }

    /// The spec of a column, and the options that it is made of; `natural` as for [`Conversion::results`].
    pub(crate) fn column(&self, column: &FieldRef, natural: Option<DType>) -> Result<(Spec, Options)> {
        let options = self.options_of(column.name(), natural);
        Ok((Spec::new(column, &options)?, options))
    }

    /// The options of a column, whose dtype is the default where none is asked for.
    pub(crate) fn options_of(&self, column: &str, default_dtype: Option<DType>) -> Options {
        let mut options = self.of(column);
        options.dtype = options.dtype.or(default_dtype);
        options
    }

    /// The dtype that all columns of a matrix have, if there is one: the default where no column names another.
    pub(crate) fn dtype_of_all(&self, default_dtype: Option<DType>) -> Option<DType> {
        self.dtype.all().or(default_dtype.filter(|_| !self.dtype.is_by_column()))
    }

    /// The matrix of the selected columns of a struct; `natural` as for [`Conversion::results`].
    ///
    /// # Errors
    /// As [`MatrixSpec::new`].
    pub(crate) fn matrix_of(&self, field: &FieldRef, natural: Option<DType>) -> Result<Arc<MatrixSpec>> {
        // A thread that is ending remembers nothing any more.
        let last = LAST.try_with(|last| last.borrow().clone()).ok().flatten();
        if let Some(last) = last.filter(|last| last.is_of(self, field, natural)) {
            return Ok(last.spec.clone());
        }
        let of = |name: &str| self.options_of(name, natural);
        let columns = self.remaining(field);
        let spec = Arc::new(MatrixSpec::new(field, columns.as_deref(), of, self.dtype_of_all(natural))?);
        let last = Last { conversion: self.clone(), field: field.clone(), natural, spec: spec.clone() };
        let _ = LAST.try_with(|known| known.replace(Some(Arc::new(last))));
        Ok(spec)
    }

    /// The validity of a column, in the shape of its elements, or of the selected columns of a struct, as a matrix of bools.
    ///
    /// # Errors
    /// As [`MatrixSpec::of_validity`] and [`Spec::of_validity`]; where columns are selected, and the data is no struct; where a length is
    /// for a column that does not exist.
    pub(crate) fn validity_of(&self, field: &FieldRef) -> Result<ResultSpec> {
        if self.length.is_by_column() {
            self.check_names(field)?;
        }
        let kind = if is_struct(field) {
            let columns = self.remaining(field);
            let spec = MatrixSpec::of_validity(field, columns.as_deref(), |column| self.of(column))?;
            ResultKind::Validity(Arc::new(spec))
        } else {
            self.refuse_columns(field)?;
            ResultKind::ColumnValidity { position: None, spec: Spec::of_validity(field, &self.of(field.name()))? }
        };
        Ok(ResultSpec::new(kind))
    }

    /// Refuses kept nulls, of results without validity beside the values.
    ///
    /// # Errors
    /// Tells all columns whose nulls would be kept.
    pub(crate) fn refuse_kept_nulls(&self) -> Result<()> {
        let lost = || {
            Error::argument("a batch has no validity mask, so you could not tell which values are null")
                .remedy_is(Remedy::FillInBatches)
        };
        let lost_in = |group: &Group, column: &str| match group.form() {
            GroupForm::Padded(_) => lost().remedy_is(Remedy::FillInPaddedBatches).in_column(column),
            _ => lost().in_column(column),
        };
        if let Selection::Named(groups) = &self.selection {
            // Ragged rows and Arrow batches tell their null rows themselves.
            let loses = |group: &Group| group.has_fixed_rows() || matches!(group.form(), GroupForm::Padded(_));
            let kept = |name: &str, group: &Group| {
                let options = self.call().of(name, group);
                let columns = group.columns().iter().filter(move |column| options.nulls(column) == NullPolicy::Keep);
                columns.map(|column| lost_in(group, column)).collect::<Vec<_>>()
            };
            let without = groups.iter().filter(|(_, group)| group.validity_name().is_none() && loses(group));
            return Error::of_columns(without.flat_map(|(name, group)| kept(name, group))).map_or(Ok(()), Err);
        }
        let error = match &self.nulls {
            PerColumn::All(NullPolicy::Keep) => Some(lost()),
            PerColumn::All(_) => None,
            PerColumn::Named(columns) => {
                let kept = columns.iter().filter(|(_, nulls)| *nulls == NullPolicy::Keep);
                Error::of_columns(kept.map(|(name, _)| lost().in_column(name)))
            }
        };
        error.map_or(Ok(()), Err)
    }

    /// Refuses columns by name where the data is a single column.
    pub(crate) fn refuse_columns(&self, field: &FieldRef) -> Result<()> {
        if self.selected().is_none() || is_struct(field) {
            return Ok(());
        }
        let reason =
            format!("only a batch has columns to choose from, and the data is one array of {}", field.data_type());
        Err(Error::argument(reason).remedy_is(Remedy::NoColumns).in_column(field.name()))
    }

    /// The columns that are selected by name.
    fn selected(&self) -> Option<&[String]> {
        match &self.selection {
            Selection::Whole(columns) | Selection::Each(columns) => columns.as_deref(),
            Selection::Named(_) => None,
        }
    }

    /// The columns of a struct by name, where not all are taken.
    pub(crate) fn remaining(&self, field: &FieldRef) -> Option<Cow<'_, [String]>> {
        self.selected().map(Cow::Borrowed).or_else(|| self.index.remaining(field).map(Cow::Owned))
    }
}

/// Whether data of this type is rows of several columns.
pub(crate) fn is_struct(field: &FieldRef) -> bool {
    matches!(field.data_type(), DataType::Struct(_))
}

/// A matrix's spec, and what it was made of.
struct Last {
    conversion: Conversion,
    field: FieldRef,
    natural: Option<DType>,
    spec: Arc<MatrixSpec>,
}

impl Last {
    fn is_of(&self, conversion: &Conversion, field: &FieldRef, natural: Option<DType>) -> bool {
        Arc::ptr_eq(&self.field, field) && self.natural == natural && self.conversion == *conversion
    }
}

/// Forgets this thread's last matrix.
#[cfg(feature = "python")]
pub(crate) fn forget_matrix() {
    let last = LAST.try_with(RefCell::take);
    drop(last);
}

thread_local! {
    /// The last matrix's spec on this thread: the batches of a stream share their field, and small ones take about as long as
    /// their spec does.
    static LAST: RefCell<Option<Arc<Last>>> = const { RefCell::new(None) };
}
