//! [`MatrixSpec`]: the columns of a matrix, and the dtype that they promote to.

use std::num::NonZero;

use arrow_schema::{DataType, FieldRef};

use super::list_lengths::{check_length, is_list};
use super::no_tensor::is_text;
use super::objects::require_values;
use super::promotion::promote_all;
use super::row_shape::{require_numbers, width};
use super::temporal::is_temporal;
use super::value::innermost;
use super::{CopyMode, DecimalMode, Element, NullPolicy, Options, Spec, all_or_errors, select};
use crate::alloc::fallible;
use crate::dtype::DType;
use crate::error::{Error, Remedy, Result};

/// The memory order of a matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MemoryOrder {
    /// Row-major: the elements of a row are adjacent.
    #[default]
    C,
    /// Column-major: the elements of a column are adjacent.
    F,
    /// Column-major if that is a view, else row-major.
    A,
}

/// The options of a matrix as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MatrixOptions {
    /// The memory order of a matrix.
    pub(crate) memory_order: MemoryOrder,
    /// When a copy may be made.
    pub(crate) copy: CopyMode,
    /// Whether the result must be writable memory that no other array or tensor shares.
    pub(crate) writable: bool,
    /// Whether the result is written into memory that is there.
    pub(crate) is_written: bool,
    /// The number of threads that pack large matrices; `None` is `ARROW_DLPACK_THREADS`, or one per core.
    pub(crate) threads: Option<NonZero<usize>>,
}

/// What a matrix of columns is, from the struct field and the options alone.
#[derive(Clone, Debug)]
pub(crate) struct MatrixSpec {
    field: FieldRef,
    columns: Vec<(usize, Spec)>,
    dtype: DType,
    /// The dtype of each column that was promoted; empty if the options name a dtype.
    promoted: Vec<DType>,
    /// Elements of a row.
    width: usize,
    /// Whether a column's elements are changed, nulls aside.
    changes_elements: bool,
}

impl MatrixSpec {
    /// Returns the spec of these columns of a struct field, in their order; `None` takes all, in the schema's order.
    ///
    /// `dtype` is the dtype of every column. Without it, the columns' own dtypes are promoted to one: the dtypes that
    /// `options` name, or the natural ones. Codes (ticks, unscaled decimals, dictionary indices) join only codes of
    /// their own type and unit, unless a dtype converts them.
    ///
    /// # Errors
    /// If the field is no struct, a name does not exist or is not unique, a column has no tensor form or has permuted
    /// rows, the columns promote to no dtype, or the null policy does not fit it. Names the column.
    pub(crate) fn new(
        field: &FieldRef,
        columns: Option<&[String]>,
        options: impl Fn(&str) -> Options,
        dtype: Option<DType>,
    ) -> Result<Self> {
        Self::of_selected(field, select(field, columns)?, columns, options, dtype)
    }

    /// Like [`MatrixSpec::new`], of columns whose positions are known.
    pub(crate) fn of_selected(
        field: &FieldRef,
        selected: Vec<(usize, &FieldRef)>,
        columns: Option<&[String]>,
        options: impl Fn(&str) -> Options,
        dtype: Option<DType>,
    ) -> Result<Self> {
        refuse_repeated(columns)?;
        let mut policies = fallible::with_room(selected.len())?;
        let natural = selected.into_iter().map(|(position, column)| {
            let mut options = options(column.name());
            options.dtype = dtype.or(options.dtype);
            policies.push(std::mem::replace(&mut options.nulls, NullPolicy::Error));
            let spec = Spec::new(column, &options)?;
            require_numbers(&spec)?;
            let in_unit = options.unit.is_some() && is_temporal(type_of(&spec));
            let is_codes = options.dtype.is_none() && !in_unit && is_codes(&spec, options.decimal);
            Ok((position, spec, is_codes))
        });
        let natural = all_or_errors(natural)?;
        let (dtype, promoted) = match dtype {
            Some(dtype) => (dtype, Vec::new()),
            None => (common(&natural)?, natural.iter().map(|(_, spec, _)| spec.dtype()).collect()),
        };
        let columns = natural.into_iter().zip(policies).map(|((position, spec, _), nulls)| {
            let column = spec.field().clone();
            let spec = spec.with_dtype(dtype, nulls).map_err(|error| error.in_column(column.name()))?;
            Ok((position, spec))
        });
        let columns = all_or_errors(columns)?;
        let changes_elements = columns.iter().any(|(_, column)| changes(column));
        let width = width(&columns)?;
        Ok(Self { field: field.clone(), columns, dtype, promoted, width, changes_elements })
    }

    /// Returns the spec of these columns' validity: a bool for each element of a row. `options` are those of a column, of which only the
    /// length of lists counts.
    ///
    /// # Errors
    /// If the field is no struct, a name does not exist or is not unique, a column is a struct, or has a length that is not for it. Names
    /// the column.
    pub(crate) fn of_validity(
        field: &FieldRef,
        columns: Option<&[String]>,
        options: impl Fn(&str) -> Options,
    ) -> Result<Self> {
        let selected = select(field, columns)?;
        refuse_repeated(columns)?;
        let column = |(position, column): (usize, &FieldRef)| {
            let options = options(column.name());
            let possible = check_length(column.data_type(), &options).and_then(|()| require_values(column));
            possible.map_err(|error| error.in_column(column.name()))?;
            let spec = Spec::of_validity(column, &options).and_then(|spec| require_numbers(&spec).map(|()| spec));
            spec.map(|spec| (position, spec)).map_err(|error| error.remedy_is(Remedy::ValidityOfColumn))
        };
        let columns = all_or_errors(selected.into_iter().map(column))?;
        Self::of_bools(field, columns)
    }

    /// Returns the spec of these columns' validity.
    ///
    /// # Errors
    /// As [`Spec::validity`].
    pub(crate) fn validity(&self) -> Result<Self> {
        let columns = self.columns.iter().map(|(position, column)| Ok((*position, column.validity()?)));
        Self::of_bools(&self.field, all_or_errors(columns)?)
    }

    /// Whether this validity has a bool for each element of the same columns of `matrix`, none of which is decoded: what was read of
    /// its columns tells which are null.
    pub(crate) fn is_read_with(&self, matrix: &Self) -> bool {
        let is_same = |((position, bools), (other, values)): (&(usize, Spec), &(usize, Spec))| {
            let is_stored = bools.decoded().is_none() && values.decoded().is_none();
            position == other && is_stored && bools.inner_shape() == values.inner_shape()
        };
        self.columns.len() == matrix.columns.len() && self.columns.iter().zip(&matrix.columns).all(is_same)
    }

    fn of_bools(field: &FieldRef, columns: Vec<(usize, Spec)>) -> Result<Self> {
        let (width, changes_elements) = (width(&columns)?, !columns.is_empty());
        Ok(Self { field: field.clone(), columns, dtype: DType::Bool, promoted: Vec::new(), width, changes_elements })
    }

    /// The struct field.
    #[must_use]
    pub(crate) fn field(&self) -> &FieldRef {
        &self.field
    }

    /// The dtype of the elements.
    #[must_use]
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the columns in the order of the matrix: each with its position in the struct and its spec, in the
    /// matrix's dtype.
    #[must_use]
    pub(crate) fn columns(&self) -> &[(usize, Spec)] {
        &self.columns
    }

    /// Returns whether any column's elements are changed, nulls aside: decoded, cast, unpacked or normalised.
    #[must_use]
    pub(crate) fn changes_elements(&self) -> bool {
        self.changes_elements
    }

    /// Explains the dtype of the elements in words.
    #[must_use]
    pub(crate) fn promotion(&self) -> String {
        let mut dtypes: Vec<(DType, &str)> = Vec::new();
        for (dtype, (_, column)) in self.promoted.iter().zip(&self.columns) {
            if dtypes.iter().all(|(known, _)| known != dtype) {
                dtypes.push((*dtype, column.field().name()));
            }
        }
        match dtypes.as_slice() {
            [] => format!("{} as asked for", self.dtype),
            [(dtype, _)] => format!("all columns are {dtype}"),
            _ => {
                let text: Vec<String> = dtypes.iter().map(|(dtype, name)| format!("{dtype} ({name:?})")).collect();
                format!("promoted from {}", text.join(", "))
            }
        }
    }

    /// Returns whether a column must be decoded first.
    #[must_use]
    pub(crate) fn is_decoded(&self) -> bool {
        self.columns.iter().any(|(_, column)| column.decoded().is_some())
    }

    /// Returns the elements of a row, which are the columns of the matrix: those of each column, one after the other.
    #[must_use]
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Returns whether a row of any column has other than one element.
    #[must_use]
    pub(crate) fn has_shapes(&self) -> bool {
        self.columns.iter().any(|(_, column)| column.row_elements() != 1)
    }

    /// Bytes of a row without gaps.
    #[must_use]
    pub(crate) fn row_bytes(&self) -> usize {
        self.width.saturating_mul(self.dtype.itemsize())
    }
}

/// Refuses a name that occurs more than once.
fn refuse_repeated(columns: Option<&[String]>) -> Result<()> {
    match columns.and_then(repeated) {
        None => Ok(()),
        Some(name) => Err(Error::argument("the column is asked for more than once")
            .remedy_is("name each column of a matrix once")
            .in_column(name)),
    }
}

/// Returns a name that occurs more than once.
fn repeated(names: &[String]) -> Option<&str> {
    let mut sorted: Vec<&str> = names.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    sorted.windows(2).find_map(|pair| {
        if let [a, b] = pair
            && a == b
        {
            Some(*a)
        } else {
            None
        }
    })
}

fn changes(column: &Spec) -> bool {
    let as_stored = matches!(column.element(), Element::Values(_) | Element::Pairs(_));
    column.decoded().is_some() || column.is_cast() || !as_stored
}

/// Returns whether the stored elements are codes: integers that stand for something else.
fn is_codes(spec: &Spec, decimal: DecimalMode) -> bool {
    if spec.categories().is_some() {
        return true;
    }
    match innermost(type_of(spec)) {
        DataType::Date32
        | DataType::Date64
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Timestamp(_, _)
        | DataType::Duration(_)
        | DataType::Dictionary(_, _) => true,
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => decimal == DecimalMode::Unscaled && *scale != 0,
        _ => false,
    }
}

/// Returns the type that is converted: that of the decoded array, if the column is decoded.
fn type_of(spec: &Spec) -> &DataType {
    spec.decoded().unwrap_or(spec.field()).data_type()
}

/// Returns whether codes of two types mean the same, in whatever lists they are.
fn are_alike(a: &DataType, b: &DataType) -> bool {
    match (innermost(a), innermost(b)) {
        (DataType::Decimal32(_, a), DataType::Decimal32(_, b))
        | (DataType::Decimal64(_, a), DataType::Decimal64(_, b)) => a == b,
        (a, b) => a == b,
    }
}

/// Names the codes of a type, under fixed-size lists, in errors.
fn kind_of_codes(codes: &DataType) -> &'static str {
    match innermost(codes) {
        DataType::Dictionary(_, _) => "dictionary codes",
        // Other integers of no unit are numbers.
        DataType::Int32 => "codes of categories",
        data_type if data_type.is_decimal() => "unscaled decimals",
        _ => "ticks",
    }
}

/// Returns the dtype that columns promote to; each comes with whether it has codes.
fn common(columns: &[(usize, Spec, bool)]) -> Result<DType> {
    if let Some((_, codes, _)) = columns.iter().find(|(_, _, is_codes)| *is_codes)
        && let Some((_, other, is_codes)) =
            columns.iter().find(|(_, spec, is_codes)| !(*is_codes && are_alike(type_of(spec), type_of(codes))))
    {
        let (name, codes) = (codes.field().name(), type_of(codes));
        let what = if *is_codes { kind_of_codes(type_of(other)) } else { "numbers" };
        // Values of other dictionaries are numbers, which a dtype stands for.
        let is_of_none = |values: &DataType| is_text(values) || is_list(values);
        let is_of_text = |(_, spec, _): &(usize, Spec, bool)| spec.dictionary_values().is_some_and(is_of_none);
        let remedy = if columns.iter().any(is_of_text) {
            Remedy::DtypeOfTextCodes
        } else if columns.iter().all(|(_, spec, is_codes)| !is_codes || type_of(spec).is_temporal()) {
            // A dtype would put the ticks of different units side by side.
            Remedy::UnitOfTicks
        } else {
            Remedy::DtypeOfCodes
        };
        return Err(Error::unsupported(format!(
            "column {:?} has {what} of {}, which do not mix with the {} of column {name:?}, of {codes}",
            other.field().name(),
            type_of(other),
            kind_of_codes(codes),
        ))
        .remedy_is(remedy));
    }
    let dtypes: Vec<DType> = columns.iter().map(|(_, spec, _)| spec.dtype()).collect();
    match promote_all(&dtypes) {
        Ok(Some(dtype)) => Ok(dtype),
        Ok(None) => Err(Error::argument("a matrix without columns has no dtype").remedy_is(Remedy::MatrixDtype)),
        Err((a, b)) => {
            let name = |position: usize| {
                columns.get(position).map_or_else(String::new, |(_, spec, _)| {
                    format!("{} of column {:?}", spec.dtype(), spec.field().name())
                })
            };
            Err(Error::unsupported(format!("no dtype holds both the {} and the {}", name(a), name(b)))
                .remedy_is(Remedy::PromotedDtype))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::{Field, TimeUnit};

    use super::*;
    use crate::spec::{DecimalMode, DictionaryMode, Nulls, Scalar};

    fn of(columns: &[(&str, DataType)]) -> FieldRef {
        let fields: Vec<_> =
            columns.iter().map(|(name, data_type)| Field::new(*name, data_type.clone(), true)).collect();
        Arc::new(Field::new("", DataType::Struct(fields.into()), false))
    }

    fn natural(columns: &[(&str, DataType)]) -> Result<MatrixSpec> {
        MatrixSpec::new(&of(columns), None, |_| Options::default(), None)
    }

    const MICROS: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

    #[test]
    fn numbers_are_promoted_and_each_column_is_cast_to_what_they_have_in_common() {
        let spec = natural(&[("a", DataType::Int8), ("b", DataType::Float32), ("c", DataType::Boolean)]).unwrap();
        assert_eq!((spec.dtype(), spec.row_bytes()), (DType::Float32, 12));
        assert!(spec.columns().iter().all(|(_, column)| column.dtype() == DType::Float32));
        assert_eq!(spec.columns().iter().map(|(position, _)| *position).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(spec.promotion(), "promoted from int8 (\"a\"), float32 (\"b\"), bool (\"c\")");
        assert_eq!(natural(&[("a", DataType::Int8)]).unwrap().promotion(), "all columns are int8");
    }

    #[test]
    fn a_dtype_of_a_column_enters_promotion_and_one_for_all_ends_it() {
        let field = of(&[("a", DataType::Int64), ("b", DataType::Float32)]);
        let a_only = |name: &str| if name == "a" { Options::default().dtype(DType::Int8) } else { Options::default() };
        assert_eq!(MatrixSpec::new(&field, None, a_only, None).unwrap().dtype(), DType::Float32);
        assert_eq!(MatrixSpec::new(&field, None, a_only, Some(DType::Int16)).unwrap().dtype(), DType::Int16);
    }

    #[test]
    fn null_policies_are_those_of_the_common_dtype() {
        let field = of(&[("a", DataType::Int64), ("b", DataType::Float64)]);
        let nan = |_: &str| Options::default().nulls(NullPolicy::Nan);
        let spec = MatrixSpec::new(&field, None, nan, None).unwrap();
        assert!(spec.columns().iter().all(|(_, column)| matches!(column.nulls(), Nulls::Filled(_))));
        let half = |name: &str| match name {
            "a" => Options::default().nulls(NullPolicy::Fill(Scalar::Float(0.5))),
            _ => Options::default(),
        };
        assert!(MatrixSpec::new(&field, None, half, None).is_ok());
        let error = MatrixSpec::new(&field, Some(&["a".to_owned()]), half, None).unwrap_err();
        assert_eq!(error.column(), Some("a"));
    }

    #[test]
    fn columns_of_any_type_have_a_validity_but_structs_and_bytes() {
        let codes = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        let field = of(&[("a", DataType::Utf8), ("b", codes), ("c", DataType::Decimal128(5, 2)), ("d", MICROS)]);
        let plain = |_: &str| Options::default();
        let spec =
            MatrixSpec::of_validity(&field, Some(&["d".to_owned(), "a".to_owned(), "b".to_owned()]), plain).unwrap();
        assert_eq!((spec.dtype(), spec.row_bytes(), spec.is_decoded()), (DType::Bool, 3, false));
        assert_eq!(spec.columns().iter().map(|(position, _)| *position).collect::<Vec<_>>(), [3, 0, 1]);
        assert!(MatrixSpec::of_validity(&field, Some(&["a".to_owned(), "a".to_owned()]), plain).is_err());
        assert_eq!(MatrixSpec::of_validity(&of(&[]), None, plain).unwrap().row_bytes(), 0);
        let pairs = DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Int8, true)), 2);
        assert_eq!(
            MatrixSpec::of_validity(&of(&[("a", DataType::Int8), ("b", pairs)]), None, plain).unwrap().width(),
            3
        );
        for nested in [DataType::FixedSizeBinary(1), of(&[("x", DataType::Int8)]).data_type().clone()] {
            let error = MatrixSpec::of_validity(&of(&[("a", DataType::Int8), ("b", nested)]), None, plain).unwrap_err();
            assert_eq!(error.column(), Some("b"));
            assert!(error.remedy().unwrap().contains("columns"), "{error}");
        }
    }

    #[test]
    fn unscaled_decimals_of_two_scales_do_not_mix() {
        type Decimal = fn(u8, i8) -> DataType;
        for (decimal, dtype) in [(DataType::Decimal32 as Decimal, DType::Int32), (DataType::Decimal64, DType::Int64)] {
            let unscaled = |columns: &[(&str, DataType)]| {
                MatrixSpec::new(&of(columns), None, |_| Options::default().decimal(DecimalMode::Unscaled), None)
            };
            assert_eq!(unscaled(&[("a", decimal(4, 1)), ("b", decimal(6, 1))]).unwrap().dtype(), dtype);
            // Without decimal places they are numbers.
            let beside_number = |scale| unscaled(&[("a", decimal(4, scale)), ("b", DataType::Int16)]);
            assert!(beside_number(0).is_ok() && beside_number(1).is_err());
            let error = unscaled(&[("a", decimal(4, 1)), ("b", decimal(4, 2))]).unwrap_err();
            assert!(error.reason().contains("\"a\"") && error.reason().contains("\"b\""), "{error}");
        }
    }

    #[test]
    fn codes_stand_with_their_like_alone() {
        let codes = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        let millis = DataType::Timestamp(TimeUnit::Millisecond, None);
        assert_eq!(natural(&[("a", MICROS), ("b", MICROS)]).unwrap().dtype(), DType::Int64);
        assert_eq!(natural(&[("a", codes.clone()), ("b", codes.clone())]).unwrap().dtype(), DType::Int8);
        for (a, b) in [(MICROS, millis), (MICROS, DataType::Int64), (codes.clone(), DataType::Int8), (codes, MICROS)] {
            for pair in [[("x", a.clone()), ("y", b.clone())], [("x", b.clone()), ("y", a.clone())]] {
                let error = natural(&pair).unwrap_err();
                assert!(error.reason().contains("\"x\"") && error.reason().contains("\"y\""), "{error}");
                assert!(error.remedy().is_some());
            }
        }
        let field = of(&[("a", MICROS), ("b", DataType::Int32)]);
        let spec = MatrixSpec::new(&field, None, |_| Options::default(), Some(DType::Float64)).unwrap();
        assert_eq!(spec.dtype(), DType::Float64);
    }

    #[test]
    fn values_of_dictionaries_and_decimals_are_numbers_where_they_are_asked_for() {
        let codes = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Float32));
        let field = of(&[("a", codes), ("b", DataType::Float64)]);
        let values = |_: &str| Options::default().dictionary(DictionaryMode::Values);
        let spec = MatrixSpec::new(&field, None, values, None).unwrap();
        assert_eq!(spec.dtype(), DType::Float64);
        assert!(spec.columns()[0].1.decoded().is_some());
        let field = of(&[("a", DataType::Decimal64(9, 2)), ("b", DataType::Decimal64(5, 2)), ("c", DataType::Int64)]);
        let unscaled = |_: &str| Options::default().decimal(DecimalMode::Unscaled);
        let two = ["a".to_owned(), "b".to_owned()];
        assert_eq!(MatrixSpec::new(&field, Some(&two), unscaled, None).unwrap().dtype(), DType::Int64);
        assert!(MatrixSpec::new(&field, None, unscaled, None).is_err());
    }

    #[test]
    fn what_is_no_matrix_is_refused_with_a_remedy() {
        let pair = DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Float32, true)), 2);
        let nested = DataType::Struct(vec![Field::new("x", DataType::Int8, true)].into());
        for (columns, column) in [
            (&[("a", DataType::Int8), ("p", DataType::FixedSizeBinary(2))][..], Some("p")),
            (&[("a", DataType::Int8), ("s", nested)], Some("s")),
            (&[("a", DataType::Int8), ("a", DataType::Int8)], Some("a")),
            (&[("a", DataType::Int64), ("b", DataType::UInt64)], None),
            (&[], None),
        ] {
            let error = natural(columns).unwrap_err();
            assert_eq!(error.column(), column, "{error}");
            assert!(error.remedy().is_some(), "{error}");
        }
        let complex = MatrixSpec::new(&of(&[("p", pair)]), None, |_| Options::default(), Some(DType::Complex64));
        assert_eq!(complex.unwrap().row_bytes(), 8);
        let empty = MatrixSpec::new(&of(&[]), None, |_| Options::default(), Some(DType::Float32)).unwrap();
        assert_eq!((empty.dtype(), empty.row_bytes()), (DType::Float32, 0));
        let twice = ["a".to_owned(), "a".to_owned()];
        let error = MatrixSpec::new(&of(&[("a", DataType::Int8)]), Some(&twice), |_| Options::default(), None);
        assert_eq!(error.unwrap_err().column(), Some("a"));
    }
}
