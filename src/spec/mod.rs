//! What a conversion gives, from the type and the options alone.
//!
//! Dtype and inner shape never depend on data: a batch without nulls has the dtype of the next one with nulls. What no
//! data could make possible fails here.

mod fixed_shape_tensor;
mod nulls;
mod options;
mod tensor;

use arrow_schema::{DataType, Field, FieldRef};
use smallvec::SmallVec;

pub use fixed_shape_tensor::FixedShapeTensor;
pub use nulls::{NullPolicy, Pattern, Scalar};
pub use options::{CopyMode, Options};
pub use tensor::{TensorField, row_major_strides};

use crate::dtype::DType;
use crate::error::{Error, Result};

/// A shape, or strides in elements; up to two dimensions need no allocation.
pub type Dims = SmallVec<[i64; 2]>;

/// The name of the extension type of 8-bit booleans.
pub const BOOL8: &str = "arrow.bool8";

/// How the leaf's values buffer holds its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// One bit each, as Arrow's Boolean.
    Bits,
    /// One byte each, any byte but 0 being true, as `arrow.bool8`.
    Bool8,
    /// Numbers of this dtype.
    Values(DType),
}

impl Element {
    /// The dtype that a tensor of these elements has when no other is asked for.
    #[must_use]
    pub const fn dtype(self) -> DType {
        match self {
            Self::Bits | Self::Bool8 => DType::Bool,
            Self::Values(dtype) => dtype,
        }
    }
}

/// What happens to the slots of nulls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Nulls {
    /// They are an error.
    Refused,
    /// They hold this value, in the result's dtype.
    Filled(Pattern),
    /// They hold whatever lies there in a view, zero in a copy.
    Kept,
}

/// A step that a schema may lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PossibleStep {
    /// What happens.
    pub text: String,
    /// Whether it happens only where the data asks for it.
    pub only_if_found: bool,
}

/// What the conversion of a column gives: fixed by its field and the options.
#[derive(Clone, Debug)]
pub struct Spec {
    field: FieldRef,
    element: Element,
    dtype: DType,
    // Vecs: empty for most columns, and then smaller than a SmallVec.
    lists: Vec<usize>,
    inner_shape: Vec<i64>,
    inner_strides: Vec<i64>,
    row_elements: usize,
    nulls: Nulls,
}

impl Spec {
    /// The spec of a column of this field under these options.
    ///
    /// # Errors
    /// When the type has no tensor form, no cast to the requested dtype exists, or the null policy cannot be met in it.
    /// The error names the column.
    pub fn new(field: &FieldRef, options: &Options) -> Result<Self> {
        Self::build(field, options).map_err(|error| error.in_column(field.name()))
    }

    fn build(field: &FieldRef, options: &Options) -> Result<Self> {
        let value = Value::of(field)?;
        let natural = value.element.dtype();
        let dtype = options.dtype.unwrap_or(natural);
        if dtype != natural && !(natural.is_castable() && dtype.is_castable()) {
            return Err(Error::unsupported(format!("no cast from {natural} to {dtype} exists")));
        }
        let nulls = match options.nulls {
            NullPolicy::Error => Nulls::Refused,
            NullPolicy::Keep => Nulls::Kept,
            NullPolicy::Nan => Nulls::Filled(Pattern::nan(dtype)?),
            NullPolicy::Fill(value) => Nulls::Filled(Pattern::of(value, dtype)?),
        };
        Ok(Self {
            field: field.clone(),
            element: value.element,
            dtype,
            lists: value.lists,
            inner_shape: value.shape,
            inner_strides: value.strides,
            row_elements: usize::try_from(value.elements)
                .map_err(|_| Error::invalid("the sizes of the nested fixed-size lists overflow"))?,
            nulls,
        })
    }

    /// The column's field.
    #[must_use]
    pub fn field(&self) -> &FieldRef {
        &self.field
    }

    /// How the source holds its elements.
    #[must_use]
    pub fn element(&self) -> Element {
        self.element
    }

    /// The dtype of the result.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The sizes of the nested fixed-size lists, outermost first.
    #[must_use]
    pub fn lists(&self) -> &[usize] {
        &self.lists
    }

    /// The shape of one row of the result; empty for scalars.
    #[must_use]
    pub fn inner_shape(&self) -> &[i64] {
        &self.inner_shape
    }

    /// The strides of one row of the result, in elements. Not row-major where the type carries a permutation.
    #[must_use]
    pub fn inner_strides(&self) -> &[i64] {
        &self.inner_strides
    }

    /// What happens to nulls.
    #[must_use]
    pub fn nulls(&self) -> Nulls {
        self.nulls
    }

    /// Whether the elements change on their way: other than bits and bytes that are booleans.
    #[must_use]
    pub fn is_cast(&self) -> bool {
        self.dtype != self.element.dtype()
    }

    /// What may have to be done to a column of this spec: `explain` of a schema, without data.
    #[must_use]
    pub fn possible_steps(&self, options: &Options) -> Vec<PossibleStep> {
        let mut steps = Vec::new();
        let mut step = |text: String, only_if_found| steps.push(PossibleStep { text, only_if_found });
        match self.element {
            Element::Bits => step("bits unpacked to bytes".to_owned(), false),
            Element::Bool8 => step("bytes above 1 set to 1, if there are any".to_owned(), true),
            Element::Values(_) => {}
        }
        if self.is_cast() {
            step(format!("cast from {} to {}", self.element.dtype(), self.dtype), false);
        }
        if options.copy == CopyMode::Always || options.writable {
            step("memory of its own asked for".to_owned(), false);
        }
        if matches!(self.nulls, Nulls::Filled(_)) {
            step("nulls filled, if there are any".to_owned(), true);
        }
        steps
    }

    /// Whether a row of this dtype, shape and strides is laid out as the spec says; dimensions of extent 1 have no stride.
    pub(crate) fn lays_out(&self, dtype: DType, shape: &[i64], strides: &[i64]) -> bool {
        let same_stride = |((extent, stride), own): ((&i64, &i64), &i64)| *extent <= 1 || stride == own;
        self.dtype == dtype
            && *shape == *self.inner_shape
            && (shape.contains(&0) || shape.iter().zip(strides).zip(&self.inner_strides).all(same_stride))
    }

    /// The field that a tensor of this spec keeps: only while its elements still are what the field says.
    #[must_use]
    pub fn kept_field(&self) -> Option<&FieldRef> {
        (!self.is_cast()).then_some(&self.field)
    }

    /// Elements in a row.
    #[must_use]
    pub fn row_elements(&self) -> usize {
        self.row_elements
    }
}

/// One value of a field, down to its leaf elements.
struct Value {
    element: Element,
    lists: Vec<usize>,
    shape: Vec<i64>,
    strides: Vec<i64>,
    elements: i64,
}

impl Value {
    fn of(field: &Field) -> Result<Self> {
        let scalar = |element| Self { element, lists: Vec::new(), shape: Vec::new(), strides: Vec::new(), elements: 1 };
        match field.data_type() {
            DataType::FixedSizeList(child, size) => Self::list(field, Self::of(child)?, *size),
            DataType::Boolean => Ok(scalar(Element::Bits)),
            DataType::Int8 if field.extension_type_name() == Some(BOOL8) => Ok(scalar(Element::Bool8)),
            other => {
                DType::of_arrow(other).map(|dtype| scalar(Element::Values(dtype))).ok_or_else(|| unsupported(other))
            }
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
}

fn unsupported(data_type: &DataType) -> Error {
    let remedy = match data_type {
        DataType::Null => "cast the column to a number type first",
        DataType::Struct(_) => "convert its fields one by one with to_tensors",
        DataType::Dictionary(_, _) => "cast the column to the dictionary's value type first",
        DataType::RunEndEncoded(_, _) => "decode the column to its value type first",
        DataType::Decimal32(_, _)
        | DataType::Decimal64(_, _)
        | DataType::Decimal128(_, _)
        | DataType::Decimal256(_, _) => "cast the column to float64 or to an integer type first",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            "pass it to to_ragged, or encode the strings first"
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "pass it to to_ragged",
        DataType::List(_) | DataType::LargeList(_) | DataType::ListView(_) | DataType::LargeListView(_) => {
            "pass it to to_ragged, or cast rows of one length to a fixed-size list first"
        }
        DataType::Interval(_) => "cast the column to a duration first",
        DataType::Map(_, _) | DataType::Union(_, _) => "extract the children that hold numbers first",
        _ => "cast the column to a number type first",
    };
    Error::unsupported(format!("Arrow type {data_type} has no tensor form")).remedy_is(remedy)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::TimeUnit;

    use super::*;

    fn spec(data_type: DataType) -> Result<Spec> {
        Spec::new(&Arc::new(Field::new("x", data_type, true)), &Options::default())
    }

    fn list(child: DataType, size: i32) -> DataType {
        DataType::FixedSizeList(Arc::new(Field::new("item", child, true)), size)
    }

    #[test]
    fn temporal_types_are_their_ticks() {
        for (data_type, dtype) in [
            (DataType::Date32, DType::Int32),
            (DataType::Date64, DType::Int64),
            (DataType::Time32(TimeUnit::Second), DType::Int32),
            (DataType::Time64(TimeUnit::Nanosecond), DType::Int64),
            (DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), DType::Int64),
            (DataType::Duration(TimeUnit::Millisecond), DType::Int64),
        ] {
            assert_eq!(spec(data_type).unwrap().dtype(), dtype);
        }
    }

    #[test]
    fn nested_lists_give_the_inner_shape_row_major() {
        let spec = spec(list(list(DataType::Float32, 3), 2)).unwrap();
        assert_eq!((spec.inner_shape(), spec.inner_strides()), (&[2_i64, 3][..], &[3_i64, 1][..]));
        assert_eq!((spec.lists(), spec.row_elements()), (&[2_usize, 3][..], 6));
        assert_eq!(spec.dtype(), DType::Float32);
    }

    #[test]
    fn a_permutation_becomes_strides() {
        let field = FixedShapeTensor::new(&[2, 3], &[1, 0]).attach(Field::new("x", list(DataType::Int8, 6), true));
        let spec = Spec::new(&Arc::new(field), &Options::default()).unwrap();
        assert_eq!((spec.inner_shape(), spec.inner_strides()), (&[3_i64, 2][..], &[1_i64, 3][..]));
    }

    #[test]
    fn refusals_name_the_column_and_a_remedy() {
        for data_type in [DataType::Utf8, DataType::Null, DataType::Decimal128(5, 2), DataType::Struct([].into())] {
            let error = spec(data_type).unwrap_err();
            assert_eq!(error.column(), Some("x"));
            assert!(error.remedy().is_some());
        }
        assert!(spec(list(DataType::Int8, -1)).is_err());
        assert!(spec(list(list(list(DataType::Int8, i32::MAX), i32::MAX), i32::MAX)).is_err());
        let nan = Options::default().nulls(NullPolicy::Nan);
        let error = Spec::new(&Arc::new(Field::new("x", DataType::Int32, false)), &nan).unwrap_err();
        assert!(error.remedy().unwrap().contains("float64"), "{error}");
    }
}
