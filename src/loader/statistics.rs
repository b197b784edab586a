//! [`Statistics`]: numbers that the values of columns have, such as their mean, as fills for nulls.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::Array as _;
use arrow_schema::{DataType, FieldRef};

use super::source_rows::on_host;
use crate::alloc::fallible;
use crate::arrow::DeviceArray;
use crate::categories::leaf_of;
use crate::convert::{LOOK_UP, look_for_signals};
use crate::dtype::{DType, Kind};
use crate::error::{Error, Remedy, Result};
use crate::kernels::join_bits;
use crate::spec::{
    Conversion, DictionaryMode, Element, NullPolicy, Options, PathColumns, Scalar, Spec, all_or_errors, require_values,
    select,
};

/// Rows that are converted together, so that memory does not grow with the arrays of a source.
const ROWS: usize = if cfg!(miri) { 1 << 6 } else { 1 << 16 };

/// A number that the values of a column have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Statistic {
    /// Their sum divided by their number, a float.
    Mean,
    /// The lowest one.
    Min,
    /// The highest one.
    Max,
    /// The standard deviation of all of them: the root of the mean of the squared distances from the mean. NaN if one of them
    /// is infinite.
    Std,
    /// The most frequent one; of several, the lowest.
    Mode,
    /// How many there are: neither nulls nor NaN.
    Count,
    /// How many nulls there are.
    NullCount,
}

impl Statistic {
    /// Returns the statistic of this name: "mean", "min", "max", "std", "mode", "count" or "null_count".
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "mean" => Self::Mean,
            "min" => Self::Min,
            "max" => Self::Max,
            "std" => Self::Std,
            "mode" => Self::Mode,
            "count" => Self::Count,
            "null_count" => Self::NullCount,
            _ => return None,
        })
    }

    fn is_a_count(self) -> bool {
        matches!(self, Self::Count | Self::NullCount)
    }
}

/// Collects statistics of columns, array by array, in memory that does not grow with the rows. NaN counts as no value. Sums of integers
/// are exact; those of floats are compensated (Neumaier), so their error does not grow with the number of rows.
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{ArrayRef, Int16Array, RecordBatch};
/// use arrow_dlpack::loader::{Statistic, Statistics};
/// use arrow_dlpack::{DeviceArray, Scalar};
///
/// let column: ArrayRef = Arc::new(Int16Array::from(vec![Some(1), None, Some(4)]));
/// let array = DeviceArray::from_record_batch(&RecordBatch::try_from_iter([("a", column)]).unwrap())?;
/// let mut statistics = Statistics::new(array.field(), &[("a".to_owned(), Statistic::Mean)], 1000)?;
/// statistics.add(&array)?;
/// assert_eq!(statistics.finish()?, [("a".to_owned(), Scalar::Float(2.5))]);
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
#[derive(Debug)]
pub struct Statistics {
    columns: Vec<ColumnStatistics>,
    /// The type of each array.
    field: FieldRef,
    paths: Option<Arc<PathColumns>>,
}

#[derive(Debug)]
struct ColumnStatistics {
    name: String,
    position: usize,
    statistic: Statistic,
    /// What values are converted to; `None` if they are only counted.
    dtype: Option<DType>,
    seen: Seen,
}

/// What is known of the values so far.
#[derive(Debug, Default)]
struct Seen {
    count: u64,
    nulls: u64,
    least: Option<Number>,
    most: Option<Number>,
    /// The first value, from which the distances of the others are summed: they are small where the deviation is.
    first: Option<Number>,
    /// Of integers.
    whole: i128,
    sum: Sum,
    distances: Sum,
    squares: Sum,
    /// How often each value occurs, if that is asked for.
    times: HashMap<Number, u64>,
    /// The most different values; `None` if they are not counted.
    limit: Option<usize>,
}

/// A value, exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Number {
    Int(i128),
    /// No NaN, and no negative zero.
    Float(f64),
}

impl Eq for Number {}

impl std::hash::Hash for Number {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        match self {
            Self::Int(value) => value.hash(state),
            Self::Float(value) => value.to_bits().hash(state),
        }
    }
}

impl Number {
    fn is_below(self, other: Self) -> bool {
        match (self, other) {
            (Self::Int(one), Self::Int(two)) => one < two,
            (one, two) => one.double() < two.double(),
        }
    }

    fn double(self) -> f64 {
        match self {
            Self::Int(value) => nearest(value),
            Self::Float(value) => value,
        }
    }

    fn scalar(self) -> Scalar {
        match self {
            Self::Int(value) => Scalar::Int(value),
            Self::Float(value) => Scalar::Float(value),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "the nearest double is what is asked for")]
fn nearest(value: i128) -> f64 {
    value as f64
}

/// A sum of floats, and what its roundings lost: Neumaier's.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    sum: f64,
    lost: f64,
}

impl Sum {
    fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        if sum.is_finite() {
            self.lost +=
                if self.sum.abs() >= value.abs() { (self.sum - sum) + value } else { (value - sum) + self.sum };
        }
        self.sum = sum;
    }

    fn value(self) -> f64 {
        self.sum + self.lost
    }
}

impl Statistics {
    /// Returns no statistics yet of these columns of a struct, or fields by path. `limit` is the most different values of a column whose
    /// mode is asked for.
    ///
    /// # Errors
    /// If the type is no struct; for columns that do not exist, or have no numbers: names all of them.
    pub fn new(field: &FieldRef, columns: &[(String, Statistic)], limit: usize) -> Result<Self> {
        let names: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
        let whole = field;
        let paths = Conversion::default().columns(names.iter().map(String::as_str)).paths(field)?;
        let field = paths.as_deref().map_or(field, PathColumns::field);
        let column = |((position, column), (name, statistic)): ((usize, &FieldRef), &(String, Statistic))| {
            if let DataType::Struct(_) = column.data_type() {
                return Err(Error::unsupported("a struct is counted by its fields, and not by its rows")
                    .remedy_is("name one of its fields by its path, such as \"s.a\"")
                    .in_column(column.name()));
            }
            require_values(column).map_err(|error| error.in_column(column.name()))?;
            let dtype = if statistic.is_a_count() { count_dtype(column) } else { dtype_of(column).map(Some)? };
            let limit = (*statistic == Statistic::Mode).then_some(limit);
            let seen = Seen { limit, ..Seen::default() };
            Ok(ColumnStatistics { name: name.clone(), position, statistic: *statistic, dtype, seen })
        };
        let columns = all_or_errors(select(field, Some(&names))?.into_iter().zip(columns).map(column))?;
        Ok(Self { columns, field: whole.clone(), paths: paths.clone() })
    }

    /// Adds the values of an array of structs, on any device that can be copied from.
    ///
    /// # Errors
    /// If a mode has more different values than the limit, or the array has other columns or breaks the Arrow format; those of a copy to the
    /// host.
    pub fn add(&mut self, array: &DeviceArray) -> Result<()> {
        array.require_type(&self.field)?;
        let copied = if array.device().is_cpu() { None } else { Some(on_host(array, None)?) };
        let array = copied.as_ref().unwrap_or(array);
        let named = self.paths.as_deref().map(|paths| array.at_paths(paths, join_bits)).transpose()?;
        let array = named.as_ref().unwrap_or(array);
        for column in &mut self.columns {
            let values = array.column(column.position)?;
            for start in (0..values.len()).step_by(ROWS) {
                let rows = start..start.saturating_add(ROWS).min(values.len());
                look_for_signals(rows.len().saturating_mul(LOOK_UP))?;
                column.add(&values, &rows).map_err(|error| error.in_column(&column.name))?;
            }
        }
        Ok(())
    }

    /// Returns the statistic of each column.
    ///
    /// # Errors
    /// For columns without values, unless they are only counted: names all of them.
    pub fn finish(self) -> Result<Vec<(String, Scalar)>> {
        all_or_errors(self.columns.into_iter().map(|column| {
            let found = column.seen.find(column.statistic).ok_or_else(|| {
                Error::argument("the column has no values: all of them are null or NaN, or there are no rows")
                    .remedy_is(Remedy::FillOfOwn)
                    .in_column(&column.name)
            });
            Ok((column.name, found?))
        }))
    }
}

/// The dtype in which a column's values are looked at: it holds all of them, decimals rounded.
fn dtype_of(column: &FieldRef) -> Result<DType> {
    let refused = || {
        Error::unsupported(format!("values of {} are no numbers", column.data_type()))
            .remedy_is(Remedy::CountsAlone)
            .in_column(column.name())
    };
    let dtype = if leaf_of(column.data_type()).is_decimal() {
        DType::Float64
    } else {
        let spec = Spec::new(column, &Options::default().dictionary(DictionaryMode::Values)).map_err(|_| refused())?;
        match spec.dtype().kind() {
            // Bytes of a value that is no number.
            _ if matches!(spec.element(), Element::Bytes(_)) => return Err(refused()),
            Kind::Float => DType::Float64,
            _ if spec.dtype() == DType::UInt64 => DType::UInt64,
            Kind::Int | Kind::UInt | Kind::Bool => DType::Int64,
            _ => return Err(refused()),
        }
    };
    Spec::new(column, &Options::default().dtype(dtype)).map_err(|_| refused())?;
    Ok(dtype)
}

/// The dtype in which values are counted: that of floats, of which NaN does not count.
fn count_dtype(column: &FieldRef) -> Option<DType> {
    dtype_of(column).ok().filter(|dtype| *dtype == DType::Float64)
}

impl ColumnStatistics {
    /// Adds some rows of an array.
    fn add(&mut self, array: &DeviceArray, rows: &Range<usize>) -> Result<()> {
        let array = array.clipped(rows);
        let kept = Conversion::default().nulls(NullPolicy::Keep);
        let bytes_of_value = match Spec::of_validity(array.field(), &Options::default())?.element() {
            Element::Bytes(0) => {
                // Nothing of a value stands for it, but its row.
                let rows = array.to_arrow()?;
                (0..rows.len()).for_each(|row| self.seen.tell(rows.is_valid(row)));
                return Ok(());
            }
            Element::Bytes(bytes) => bytes,
            _ => 1,
        };
        let valid = kept.validity(&array)?.contiguous()?;
        let valid = valid.as_bytes()?.iter().step_by(bytes_of_value).map(|valid| *valid != 0);
        let Some(dtype) = self.dtype else {
            valid.for_each(|valid| self.seen.tell(valid));
            return Ok(());
        };
        let values = kept.dtype(dtype).to_tensor(&array)?.contiguous()?;
        match dtype {
            DType::Float64 => self.seen.add_all(valid.zip(values.as_slice::<f64>()?), |value| {
                // A negative zero is the same value.
                (!value.is_nan()).then_some(Number::Float(value + 0.0))
            }),
            DType::UInt64 => {
                self.seen.add_all(valid.zip(values.as_slice::<u64>()?), |value| Some(Number::Int(value.into())))
            }
            _ => self.seen.add_all(valid.zip(values.as_slice::<i64>()?), |value| Some(Number::Int(value.into()))),
        }
    }
}

impl Seen {
    fn tell(&mut self, valid: bool) {
        let counted = if valid { &mut self.count } else { &mut self.nulls };
        *counted = counted.saturating_add(1);
    }

    fn add_all<'a, T: Copy + 'a>(
        &mut self,
        values: impl Iterator<Item = (bool, &'a T)>,
        number: impl Fn(T) -> Option<Number>,
    ) -> Result<()> {
        for (valid, value) in values {
            match number(*value) {
                _ if !valid => self.tell(false),
                Some(value) => self.add(value)?,
                None => {}
            }
        }
        Ok(())
    }

    fn add(&mut self, value: Number) -> Result<()> {
        self.tell(true);
        if self.least.is_none_or(|least| value.is_below(least)) {
            self.least = Some(value);
        }
        if self.most.is_none_or(|most| most.is_below(value)) {
            self.most = Some(value);
        }
        let distance = match (value, *self.first.get_or_insert(value)) {
            // Integers of 64 bits, of which 128 bits hold any sum that memory has values for.
            (Number::Int(value), Number::Int(first)) => {
                self.whole = self.whole.saturating_add(value);
                nearest(value.saturating_sub(first))
            }
            (value, first) => {
                self.sum.add(value.double());
                value.double() - first.double()
            }
        };
        self.distances.add(distance);
        self.squares.add(distance * distance);
        if let Some(limit) = self.limit {
            if self.times.len() >= limit && !self.times.contains_key(&value) {
                let reason = format!("the column has more than {limit} different values");
                return Err(Error::argument(reason).remedy_is(Remedy::MoreValuesOrMean));
            }
            let times = fallible::entry(&mut self.times, value)?;
            *times = times.saturating_add(1);
        }
        Ok(())
    }

    /// A statistic; `None` if it needs a value and there is none.
    fn find(&self, statistic: Statistic) -> Option<Scalar> {
        let float = |value: f64| Some(Scalar::Float(value));
        match statistic {
            Statistic::Count => Some(Scalar::Int(self.count.into())),
            Statistic::NullCount => Some(Scalar::Int(self.nulls.into())),
            Statistic::Min => self.least.map(Number::scalar),
            Statistic::Max => self.most.map(Number::scalar),
            Statistic::Mean => float(self.mean(self.first?)),
            Statistic::Std => {
                self.first?;
                let count = nearest(self.count.into());
                let mean = self.distances.value() / count;
                let variance = self.squares.value() / count - mean * mean;
                match variance {
                    // The squares, or the distances, are beyond a double, though the values are not.
                    _ if variance.is_nan() && self.is_finite() => float(f64::INFINITY),
                    // By a rounding alone. `max` would take 0 for NaN, too.
                    _ if variance < 0.0 => float(0.0),
                    _ => float(variance.sqrt()),
                }
            }
            Statistic::Mode => {
                let most = self.times.values().max()?;
                let lowest = |one: Number, two: Number| if two.is_below(one) { two } else { one };
                let values = self.times.iter().filter(|(_, times)| *times == most).map(|(value, _)| *value);
                values.reduce(lowest).map(Number::scalar)
            }
        }
    }

    /// Whether no value is infinite.
    fn is_finite(&self) -> bool {
        let is_finite = |value: Option<Number>| {
            value.is_none_or(|value| !matches!(value, Number::Float(value) if value.is_infinite()))
        };
        is_finite(self.least) && is_finite(self.most)
    }

    fn mean(&self, first: Number) -> f64 {
        let count = i128::from(self.count);
        // Both are doubles, so that one division rounds.
        if matches!(first, Number::Int(_)) && self.whole.unsigned_abs() <= 1 << f64::MANTISSA_DIGITS {
            return nearest(self.whole) / nearest(count);
        }
        match (first, self.whole.checked_div(count), self.whole.checked_rem(count)) {
            // The fraction by itself, because the sum may have more digits than a double.
            (Number::Int(_), Some(whole), Some(rest)) => nearest(whole) + nearest(rest) / nearest(count),
            _ => self.sum.value() / nearest(count),
        }
    }
}

#[cfg(test)]
mod tests;
