//! The type table: what one value of a field becomes, down to the elements of its innermost array.

use std::fmt;
use std::sync::Arc;

use arrow_schema::{DataType, Field, TimeUnit};

use super::no_tensor::unsupported;
use super::objects::require_values;
use super::temporal::{digits, is_temporal, ticks, unit_name};
use super::{DecimalMode, FixedShapeTensor, Options};
use crate::dtype::{DType, Kind};
use crate::error::{Error, Remedy, Result};

/// The name of the extension type of 8-bit booleans.
pub(crate) const BOOL8: &str = "arrow.bool8";

/// How the leaf's values buffer stores its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    /// One bit each, as Arrow's Boolean.
    Bits,
    /// One byte each, true unless it is 0, as in `arrow.bool8`.
    Bool8,
    /// Numbers of this dtype, one a slot.
    Values(DType),
    /// Fixed-size binary, with this number of bytes per slot.
    Bytes(usize),
    /// Two floats of this dtype, a slot each, that make one complex number.
    Pairs(DType),
    /// Integers of this number of bytes: the value times ten to the power of the scale.
    Decimal {
        /// Bytes of an integer.
        bytes: usize,
        /// The scale.
        scale: i8,
    },
    /// Ticks of this number of bytes, as numbers in another unit: the value times ten to the power of minus [`Element::scale`].
    Ticks {
        /// Bytes of an integer.
        bytes: usize,
        /// The unit of the stored integers.
        from: TimeUnit,
        /// The unit of the numbers.
        to: TimeUnit,
    },
}

impl Element {
    /// Returns the dtype of a tensor of these elements if no other is requested. Decimals always need one.
    #[must_use]
    pub(crate) const fn dtype(self) -> DType {
        match self {
            Self::Bits | Self::Bool8 => DType::Bool,
            Self::Values(dtype) => dtype,
            Self::Bytes(_) => DType::UInt8,
            Self::Pairs(DType::Float64) => DType::Complex128,
            Self::Pairs(_) => DType::Complex64,
            Self::Decimal { .. } => DType::Float64,
            Self::Ticks { .. } => DType::Int64,
        }
    }

    /// Returns whether elements of this dtype differ in bytes from the stored ones. Bits and bytes of booleans do not
    /// count.
    #[must_use]
    pub(crate) fn is_cast_to(self, dtype: DType) -> bool {
        match self {
            Self::Pairs(part) => dtype.component() != Some(part),
            Self::Decimal { .. } | Self::Ticks { .. } => true,
            _ => self.dtype() != dtype,
        }
    }

    /// Whether a cast to this dtype exists.
    fn casts_to(self, dtype: DType) -> bool {
        match self {
            Self::Pairs(_) => dtype.component().is_some(),
            Self::Decimal { .. } | Self::Ticks { .. } => dtype.is_castable(),
            _ => self.dtype() == dtype || (self.dtype().is_castable() && dtype.is_castable()),
        }
    }

    /// # Errors
    /// When no cast to this dtype exists.
    pub(super) fn require_cast_to(self, dtype: DType) -> Result<()> {
        if self.casts_to(dtype) { Ok(()) } else { Err(self.no_cast_to(dtype)) }
    }

    fn no_cast_to(self, dtype: DType) -> Error {
        let error = Error::unsupported(format!("no cast from {self} to {dtype} exists"));
        match self {
            Self::Pairs(_) => error.remedy_is(Remedy::NoDtypeOfComplex),
            _ if dtype.is_castable() => error.remedy_is(Remedy::NoDtypeAndCast),
            _ => error.remedy_is(Remedy::CastElsewhere),
        }
    }

    /// Returns the bytes from one stored value to the next. Each part of a complex number is a stored value.
    #[must_use]
    pub(crate) const fn stored_size(self) -> usize {
        match self {
            Self::Bits | Self::Bool8 | Self::Bytes(_) => 1,
            Self::Values(dtype) | Self::Pairs(dtype) => dtype.itemsize(),
            Self::Decimal { bytes, .. } | Self::Ticks { bytes, .. } => bytes,
        }
    }

    /// Returns the stored bytes of one element; a bit counts as a byte.
    pub(crate) const fn stored_bytes(self) -> usize {
        match self {
            Self::Pairs(part) => part.itemsize() * 2,
            _ => self.stored_size(),
        }
    }

    /// Returns the alignment of stored values; 1 if they are read without alignment.
    #[must_use]
    pub(crate) const fn alignment(self) -> usize {
        match self {
            Self::Values(dtype) | Self::Pairs(dtype) => dtype.alignment(),
            _ => 1,
        }
    }

    /// Returns the bytes and the scale of stored integers that stand for a number: it is the integer times ten to the power of minus the
    /// scale. `None` for other elements.
    pub(crate) const fn scaled(self) -> Option<(usize, i8)> {
        match self {
            Self::Decimal { bytes, scale } => Some((bytes, scale)),
            Self::Ticks { bytes, from, to } => Some((bytes, digits(from) - digits(to))),
            _ => None,
        }
    }

    /// Returns the number of elements in this number of slots of the leaf array.
    pub(crate) fn elements_of(self, slots: usize) -> Option<usize> {
        match self {
            Self::Bytes(width) => slots.checked_mul(width),
            Self::Pairs(_) => Some(slots / 2),
            _ => Some(slots),
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pairs(part) => write!(f, "pairs of {part}"),
            Self::Decimal { bytes, scale } => write!(f, "decimal{} of scale {scale}", bytes * 8),
            Self::Ticks { from, to, .. } => write!(f, "ticks of {} in {}", unit_name(*from), unit_name(*to)),
            _ => self.dtype().fmt(f),
        }
    }
}

/// One value of a field, down to its leaf elements.
pub(super) struct Value {
    pub(super) element: Element,
    /// The sizes of the fixed-size lists around a slot of the leaf, outermost first.
    pub(super) lists: Vec<usize>,
    pub(super) shape: Vec<i64>,
    pub(super) strides: Vec<i64>,
    pub(super) elements: i64,
}

impl Value {
    /// # Errors
    /// If the type has no tensor form under these options.
    pub(super) fn of(field: &Field, options: &Options) -> Result<Self> {
        let value = Self::stored(field, options)?;
        let natural = value.element;
        if options.unit.is_some_and(|unit| unit.by_name) && !is_temporal(field.data_type()) {
            let reason = format!("a unit is for temporal columns, and this one is of {}", field.data_type());
            return Err(Error::argument(reason).remedy_is(Remedy::LeaveOutOfUnit));
        }
        let value = match options.dtype {
            Some(dtype) if dtype.component().is_some() => value.paired(dtype)?,
            _ => value,
        };
        if let Some(dtype) = options.dtype
            && !value.element.casts_to(dtype)
        {
            return Err(natural.no_cast_to(dtype));
        }
        Ok(value)
    }

    /// Returns the shape of a value's validity, for fields of any type: fixed-size lists and their items.
    ///
    /// # Errors
    /// If list sizes overflow.
    pub(super) fn of_validity(field: &Field) -> Result<Self> {
        match field.data_type() {
            DataType::FixedSizeList(child, size) => Self::list(field, Self::of_validity(child)?, *size),
            DataType::FixedSizeBinary(_) => {
                let stored = Self::stored(field, &Options::default())?;
                Ok(if stored.shape.is_empty() { Self::scalar(Element::Bits) } else { stored })
            }
            _ => Ok(Self::scalar(Element::Bits)),
        }
    }

    pub(super) const fn scalar(element: Element) -> Self {
        Self { element, lists: Vec::new(), shape: Vec::new(), strides: Vec::new(), elements: 1 }
    }

    /// Returns the elements as stored. The form of decimals depends on the options.
    pub(super) fn stored(field: &Field, options: &Options) -> Result<Self> {
        let values = |dtype| Ok(Self::scalar(Element::Values(dtype)));
        match field.data_type() {
            DataType::FixedSizeList(child, size) => Self::list(field, Self::stored(child, options)?, *size),
            DataType::Boolean => Ok(Self::scalar(Element::Bits)),
            DataType::Int8 if field.extension_type_name() == Some(BOOL8) => Ok(Self::scalar(Element::Bool8)),
            DataType::FixedSizeBinary(width) => match field.extension_type_name().and_then(DType::of_extension) {
                Some(dtype) if usize::try_from(*width) == Ok(dtype.itemsize()) => values(dtype),
                Some(dtype) => Err(Error::invalid(format!("a {dtype} of {width} bytes"))),
                None => {
                    require_values(field)?;
                    Self::bytes(*width)
                }
            },
            other if options.unit.is_some() && ticks(other).is_some() => Self::ticks(other, options),
            DataType::Decimal32(_, scale) => Self::decimal(4, *scale, options),
            DataType::Decimal64(_, scale) => Self::decimal(8, *scale, options),
            DataType::Decimal128(_, scale) => Self::decimal(16, *scale, options),
            DataType::Decimal256(_, scale) => Self::decimal(32, *scale, options),
            DataType::Dictionary(codes, _) => match DType::of_arrow(codes) {
                Some(dtype) => values(dtype),
                None => Err(Error::invalid(format!("a dictionary with indices of type {codes}"))),
            },
            other => match DType::of_arrow(other) {
                Some(dtype) => values(dtype),
                None => Err(unsupported(other)),
            },
        }
    }

    fn bytes(width: i32) -> Result<Self> {
        let size = usize::try_from(width).map_err(|_| Error::invalid(format!("fixed-size binary of {width} bytes")))?;
        let element = Element::Bytes(size);
        let elements = i64::from(width);
        Ok(Self { element, lists: Vec::new(), shape: vec![elements], strides: vec![1], elements })
    }

    /// Temporal values in the unit that is asked for: their own ticks if that is theirs.
    fn ticks(data_type: &DataType, options: &Options) -> Result<Self> {
        let (Some((bytes, from)), Some(to)) = (ticks(data_type), options.unit) else {
            return Err(unsupported(data_type));
        };
        let element = match DType::of_arrow(data_type) {
            Some(dtype) if from == to.value => Element::Values(dtype),
            _ => Element::Ticks { bytes, from, to: to.value },
        };
        Ok(Self::scalar(element))
    }

    fn decimal(bytes: usize, scale: i8, options: &Options) -> Result<Self> {
        let scale = if options.decimal == DecimalMode::Unscaled { 0 } else { scale };
        match (bytes, scale, options.dtype) {
            (4, 0, _) => Ok(Self::scalar(Element::Values(DType::Int32))),
            (8, 0, _) => Ok(Self::scalar(Element::Values(DType::Int64))),
            (_, _, Some(_)) => Ok(Self::scalar(Element::Decimal { bytes, scale })),
            (16 | 32, _, None) => {
                Err(Error::unsupported(format!("no dtype holds the integers of decimal{}", bytes * 8))
                    .remedy_is(if scale == 0 { Remedy::CastInteger } else { Remedy::WideDecimalValues }))
            }
            _ => Err(Error::unsupported(format!(
                "the values of decimals of scale {scale} are not the integers that are stored"
            ))
            .remedy_is(Remedy::DecimalValues)),
        }
    }

    fn list(field: &Field, child: Self, size: i32) -> Result<Self> {
        let overflow = || Error::invalid("the sizes of the nested fixed-size lists overflow");
        let list = usize::try_from(size).map_err(|_| Error::invalid(format!("a fixed-size list of size {size}")))?;
        let (mut shape, mut strides) = match FixedShapeTensor::of(field)? {
            Some(tensor) => (tensor.logical_shape()?.into_vec(), tensor.logical_strides()?.into_vec()),
            None => (vec![i64::from(size)], vec![1]),
        };
        for stride in &mut strides {
            *stride = stride.checked_mul(child.elements).ok_or_else(overflow)?;
        }
        shape.extend_from_slice(&child.shape);
        strides.extend_from_slice(&child.strides);
        let mut lists = vec![list];
        lists.extend_from_slice(&child.lists);
        let elements = child.elements.checked_mul(i64::from(size)).ok_or_else(overflow)?;
        Ok(Self { element: child.element, lists, shape, strides, elements })
    }

    /// Turns the innermost dimension of two adjacent floats into one complex number.
    fn paired(mut self, dtype: DType) -> Result<Self> {
        let pair = (self.shape.pop(), self.strides.pop());
        match (self.element, pair) {
            (Element::Values(part), (Some(2), Some(1))) if part.kind() == Kind::Float && part.is_castable() => {
                self.element = Element::Pairs(part);
            }
            _ => {
                return Err(Error::unsupported(format!("{dtype} needs a real and an imaginary part for each number"))
                    .remedy_is("a fixed-size list of 2 floats holds both; pass a float dtype for other columns"));
            }
        }
        // Each stride is a multiple of the pairs that it steps over.
        for stride in &mut self.strides {
            *stride /= 2;
        }
        self.elements /= 2;
        Ok(self)
    }
}

/// Returns the type of the dictionary's values, for a dictionary type under fixed-size lists; else `None`.
pub(crate) fn dictionary_values(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::Dictionary(_, values) => Some(values),
        DataType::FixedSizeList(child, _) => dictionary_values(child.data_type()),
        _ => None,
    }
}

/// Returns the type of the values of a dictionary or of runs, under fixed-size lists; else `None`.
pub(super) fn gathered_values(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::Dictionary(_, values) => Some(values),
        DataType::RunEndEncoded(_, values) => Some(values.data_type()),
        DataType::FixedSizeList(child, _) => gathered_values(child.data_type()),
        _ => None,
    }
}

/// Returns the type of the elements under fixed-size lists.
pub(super) fn innermost(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::FixedSizeList(child, _) => innermost(child.data_type()),
        other => other,
    }
}

/// Returns whether the values of a type, in dictionaries, runs and lists, are days.
pub(super) fn has_days(data_type: &DataType) -> bool {
    match data_type {
        DataType::Date32 => true,
        DataType::Dictionary(_, values) => has_days(values),
        DataType::RunEndEncoded(_, values) => has_days(values.data_type()),
        DataType::FixedSizeList(item, _)
        | DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => has_days(item.data_type()),
        _ => false,
    }
}

/// Returns whether the elements of a type, under fixed-size lists, are codes of a dictionary.
pub(crate) fn has_codes(data_type: &DataType) -> bool {
    dictionary_values(data_type).is_some()
}

/// Returns the type that an array of this field is decoded to first; `None` if it is not decoded.
pub(super) fn decoded(field: &Field, options: &Options) -> Option<Field> {
    let data_type = match field.data_type() {
        DataType::RunEndEncoded(_, values) => {
            let inner = decoded(values, options).unwrap_or_else(|| values.as_ref().clone());
            let metadata = if field.metadata().is_empty() { inner.metadata() } else { field.metadata() };
            return Some(Field::new(field.name(), inner.data_type().clone(), true).with_metadata(metadata.clone()));
        }
        DataType::Dictionary(_, values) if options.decode(values) => {
            let inner = Field::new(field.name(), values.as_ref().clone(), true);
            decoded(&inner, options).unwrap_or(inner).data_type().clone()
        }
        DataType::FixedSizeList(child, size) => DataType::FixedSizeList(Arc::new(decoded(child, options)?), *size),
        // Days are no power of ten of seconds; there are fewer than 2^31.
        DataType::Date32 if options.unit.is_some() => DataType::Timestamp(TimeUnit::Second, None),
        DataType::List(item) | DataType::LargeList(item) | DataType::ListView(item) | DataType::LargeListView(item) => {
            let size = i32::try_from(options.length?.value).ok()?;
            // A length is that of the outermost lists.
            let own = decoded(item, &Options { length: None, ..options.clone() });
            DataType::FixedSizeList(own.map_or_else(|| item.clone(), Arc::new), size)
        }
        _ => return None,
    };
    Some(Field::new(field.name(), data_type, true).with_metadata(field.metadata().clone()))
}

/// Returns the field of arrays that have values of type `leaf` in place of this field's: runs and dictionaries written out, in
/// the same fixed-size lists.
pub(super) fn with_leaf(field: &Field, leaf: &DataType) -> Field {
    match field.data_type() {
        DataType::RunEndEncoded(_, values) => {
            let inner = with_leaf(values, leaf);
            Field::new(field.name(), inner.data_type().clone(), true).with_metadata(inner.metadata().clone())
        }
        DataType::Dictionary(_, values) => with_leaf(&Field::new(field.name(), values.as_ref().clone(), true), leaf),
        DataType::FixedSizeList(child, size) => {
            let lists = DataType::FixedSizeList(Arc::new(with_leaf(child, leaf)), *size);
            Field::new(field.name(), lists, true).with_metadata(field.metadata().clone())
        }
        _ => Field::new(field.name(), leaf.clone(), true),
    }
}

/// Like [`decoded`], but for validity alone: of the options only the length of lists counts, and a type without a fixed size, such as
/// strings, counts as one bit per row.
pub(super) fn decoded_for_validity(field: &Field, options: &Options) -> Option<Field> {
    fn bits(data_type: &DataType) -> DataType {
        match data_type {
            DataType::FixedSizeList(item, size) => {
                DataType::FixedSizeList(Arc::new(item.as_ref().clone().with_data_type(bits(item.data_type()))), *size)
            }
            DataType::Null | DataType::FixedSizeBinary(_) | DataType::Dictionary(_, _) => data_type.clone(),
            other if other.primitive_width().is_some() => other.clone(),
            _ => DataType::Boolean,
        }
    }
    let decoded = decoded(field, &Options { length: options.length, ..Options::default() })?;
    let data_type = bits(decoded.data_type());
    Some(decoded.with_data_type(data_type))
}

/// Returns the bytes of a value, of the innermost lists of one size; 1 if it has no fixed size in bytes.
pub(super) fn width(data_type: &DataType) -> usize {
    match data_type {
        DataType::FixedSizeList(item, _) => width(item.data_type()),
        DataType::FixedSizeBinary(width) => usize::try_from(*width).unwrap_or(0),
        DataType::Dictionary(codes, _) => width(codes),
        other => other.primitive_width().unwrap_or(1),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const FLOAT8: [DType; 8] = [
        DType::Float8E3M4,
        DType::Float8E4M3,
        DType::Float8E4M3B11Fnuz,
        DType::Float8E4M3Fn,
        DType::Float8E4M3Fnuz,
        DType::Float8E5M2,
        DType::Float8E5M2Fnuz,
        DType::Float8E8M0Fnu,
    ];

    fn float8(dtype: DType) -> Field {
        let name = HashMap::from([("ARROW:extension:name".to_owned(), dtype.extension_name().unwrap())]);
        Field::new("x", DataType::FixedSizeBinary(1), true).with_metadata(name)
    }

    fn pairs(item: Field) -> Field {
        Field::new("x", DataType::FixedSizeList(Arc::new(item), 2), true)
    }

    fn converts(field: &Field, dtype: DType) -> bool {
        Value::of(field, &Options::default().dtype(dtype)).is_ok()
    }

    #[test]
    fn an_8_bit_float_is_cast_to_nothing_else() {
        for from in FLOAT8 {
            for to in DType::ALL.iter().copied() {
                assert_eq!(converts(&float8(from), to), from == to, "{from} to {to}");
            }
            assert!(!converts(&Field::new("x", DataType::Float32, true), from), "float32 to {from}");
        }
    }

    #[test]
    fn pairs_of_8_bit_floats_are_no_complex_numbers() {
        for to in [DType::Complex64, DType::Complex128] {
            for part in FLOAT8 {
                assert!(!converts(&pairs(float8(part)), to), "{part} to {to}");
            }
            assert!(converts(&pairs(Field::new("x", DataType::Float16, true)), to), "{to}");
        }
    }
}
