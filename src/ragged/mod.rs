//! Rows of different lengths: lists and strings as values and offsets, or padded to a matrix.

mod device_offsets;
mod device_padded;
mod elements;
mod level;
mod pad_rules;
mod padded;
mod part;
mod planned;
mod planned_elements;
mod report;
mod to_arrow;
mod to_device;
mod variable_shape;
mod views;

use arrow_schema::FieldRef;

pub(crate) use level::has_lengths;
pub(crate) use pad_rules::lengths_of_type;
pub(crate) use padded::{PlannedPadded, plan_padded_type};
pub(crate) use part::Part;
pub(crate) use planned::PlannedRagged;
pub(crate) use report::{check_ragged, is_ragged, is_rows, parts_of, plan_parts, plan_ragged_type, plan_schema};

use crate::column::require_host;
use crate::convert::compact;
use crate::dtype::DType;
use crate::error::{Error, Result, from};
use crate::tensor::{Native, Tensor};

/// The elements of ragged rows: a tensor, or rows themselves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Values {
    /// Elements, of shape (elements, *inner).
    Tensor(Tensor),
    /// Rows that are elements of longer rows: nested lists.
    Ragged(Box<Ragged>),
}

impl Values {
    /// How many elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Tensor(tensor) => tensor.shape().first().map_or(0, |extent| usize::try_from(*extent).unwrap_or(0)),
            Self::Ragged(ragged) => ragged.len(),
        }
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements, if they are a tensor.
    #[must_use]
    pub fn as_tensor(&self) -> Option<&Tensor> {
        match self {
            Self::Tensor(tensor) => Some(tensor),
            Self::Ragged(_) => None,
        }
    }

    /// The elements, if they are rows.
    #[must_use]
    pub fn as_ragged(&self) -> Option<&Ragged> {
        match self {
            Self::Tensor(_) => None,
            Self::Ragged(ragged) => Some(ragged),
        }
    }
}

from! {
    [] Tensor => Values, |tensor| Self::Tensor(tensor);
    [] Ragged => Values, |ragged| Self::Ragged(Box::new(ragged));
}

/// Rows of different lengths. Row `i` is `values[offsets[i]..offsets[i + 1]]`, or, where there are lengths,
/// `values[offsets[i]..offsets[i] + lengths[i]]`.
///
/// Every row lies inside the values: what [`Conversion::ragged`](crate::Conversion::ragged) and [`Ragged::new`] give has been checked. Of rows on a device only the
/// first and the last offset have been. Cloning shares memory.
#[derive(Clone, Debug)]
pub struct Ragged {
    values: Values,
    offsets: Tensor,
    lengths: Option<Tensor>,
    shapes: Option<Tensor>,
    validity: Option<Tensor>,
    field: Option<FieldRef>,
}

impl Ragged {
    /// Rows over these values. `offsets` are int32 or int64, one more than rows, or with `lengths` as many; `shapes`, int32
    /// of shape (rows, dimensions), makes each row a tensor; `validity` has a bool for each row.
    ///
    /// # Errors
    /// When a row would lie outside the values, offsets decrease, a shape does not fit its row, sizes or dtypes differ, or
    /// the memory is not the host's.
    ///
    /// ```
    /// use arrow_array::{Float32Array, Int32Array};
    /// use arrow_dlpack::{CopyMode, Ragged, to_tensor};
    ///
    /// let values = to_tensor(&Float32Array::from(vec![1.0, 2.0, 3.0]))?;
    /// let offsets = to_tensor(&Int32Array::from(vec![0, 2, 3]))?;
    /// let ragged = Ragged::new(values, offsets, None, None, None)?;
    /// let lists = ragged.to_arrow(CopyMode::Never)?.to_arrow()?; // a list array over the same memory
    /// assert_eq!(lists.len(), 2);
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn new(
        values: impl Into<Values>,
        offsets: Tensor,
        lengths: Option<Tensor>,
        shapes: Option<Tensor>,
        validity: Option<Tensor>,
    ) -> Result<Self> {
        let values = values.into();
        if let Values::Tensor(tensor) = &values {
            require_host(tensor.device(), "")?;
            if tensor.ndim() == 0 {
                return Err(Error::argument("values must have at least one dimension"));
            }
        }
        let integers = |tensor: Tensor, name: &str| {
            if !matches!(tensor.dtype(), DType::Int32 | DType::Int64) || tensor.ndim() != 1 {
                let (dtype, shape) = (tensor.dtype(), tensor.shape());
                let reason =
                    format!("{name} must be int32 or int64 of one dimension, and are {dtype} of shape {shape:?}");
                return Err(Error::argument(reason));
            }
            dense(tensor, name)
        };
        let offsets = integers(offsets, "offsets")?;
        let lengths = lengths.map(|lengths| integers(lengths, "lengths")).transpose()?;
        let shapes = shapes.map(|shapes| dense(shapes, "shapes")).transpose()?;
        let validity = validity.map(|validity| dense(validity, "validity")).transpose()?;
        let ragged = Self { values, offsets, lengths, shapes, validity, field: None };
        ragged.check()?;
        Ok(ragged)
    }

    /// The same rows as those of a column of this field.
    ///
    /// # Errors
    /// When they are no rows of its type.
    #[cfg(feature = "python")]
    pub(crate) fn with_field(self, field: FieldRef) -> Result<Self> {
        self.to_arrow_as(&field, crate::spec::CopyMode::IfNeeded)?;
        Ok(Self { field: Some(field), ..self })
    }

    /// The elements of all rows.
    #[must_use]
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// Where rows start, and without lengths also where the last one ends.
    #[must_use]
    pub fn offsets(&self) -> &Tensor {
        &self.offsets
    }

    /// How many elements each row has, where offsets alone do not tell: rows of list views may overlap.
    #[must_use]
    pub fn lengths(&self) -> Option<&Tensor> {
        self.lengths.as_ref()
    }

    /// The shape of each row as its elements lie, row-major, of `arrow.variable_shape_tensor`: int32 of shape
    /// (rows, dimensions). A permutation stays in the field.
    #[must_use]
    pub fn shapes(&self) -> Option<&Tensor> {
        self.shapes.as_ref()
    }

    /// A bool for each row, true where it is valid; only where nulls were kept.
    #[must_use]
    pub fn validity(&self) -> Option<&Tensor> {
        self.validity.as_ref()
    }

    /// The Arrow field that the rows came from.
    #[must_use]
    pub fn field(&self) -> Option<&FieldRef> {
        self.field.as_ref()
    }

    /// How many rows.
    #[must_use]
    pub fn len(&self) -> usize {
        if self.lengths.is_some() { self.offsets.len() } else { self.offsets.len().saturating_sub(1) }
    }

    /// Whether there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks that every row lies inside the values, and that the parts fit each other.
    fn check(&self) -> Result<()> {
        if self.offsets.is_empty() && self.lengths.is_none() {
            return Err(Error::argument("offsets must have one more element than there are rows: at least one"));
        }
        if let Some(lengths) = &self.lengths
            && (lengths.dtype(), lengths.len()) != (self.offsets.dtype(), self.offsets.len())
        {
            return Err(Error::argument(format!(
                "lengths must be as many as offsets and of their dtype: {} {} for {} {}",
                lengths.len(),
                lengths.dtype(),
                self.offsets.len(),
                self.offsets.dtype()
            )));
        }
        if let Some(validity) = &self.validity
            && (validity.dtype() != DType::Bool || validity.ndim() != 1 || validity.len() != self.len())
        {
            let (dtype, shape, rows) = (validity.dtype(), validity.shape(), self.len());
            let reason =
                format!("validity must be one bool for each of the {rows} rows, and is {dtype} of shape {shape:?}");
            return Err(Error::argument(reason));
        }
        match self.offsets.dtype() {
            DType::Int32 => self.check_rows::<i32>()?,
            _ => self.check_rows::<i64>()?,
        }
        self.check_shapes()
    }

    fn check_rows<T: Native + Into<i64>>(&self) -> Result<()> {
        let limit = i64::try_from(self.values.len()).unwrap_or(i64::MAX);
        let offsets = self.offsets.peek::<T>()?;
        let wrong = |row: usize, reason: String| Err(Error::argument(reason).at_row(row));
        if let Some(lengths) = &self.lengths {
            let rows = offsets.iter().zip(lengths.peek::<T>()?);
            for (row, (offset, length)) in rows.enumerate() {
                let (offset, length): (i64, i64) = ((*offset).into(), (*length).into());
                if offset < 0 || length < 0 || offset > limit || length > limit - offset {
                    return wrong(row, format!("offset {offset} and length {length} of {limit} values"));
                }
            }
            return Ok(());
        }
        let mut last = 0;
        for (number, offset) in offsets.iter().enumerate() {
            let offset: i64 = (*offset).into();
            if offset < last || offset > limit {
                // An offset that is not the first one ends the row before it.
                return wrong(number.saturating_sub(1), format!("offset {offset} after {last}, of {limit} values"));
            }
            last = offset;
        }
        Ok(())
    }

    fn check_shapes(&self) -> Result<()> {
        let Some(shapes) = &self.shapes else { return Ok(()) };
        let rows = i64::try_from(self.len()).unwrap_or(i64::MAX);
        let one_dimension = self.values.as_tensor().is_some_and(|values| values.ndim() == 1);
        if self.lengths.is_some() || self.offsets.dtype() != DType::Int32 || !one_dimension {
            return Err(Error::argument("rows with shapes have 1-d values, int32 offsets and no lengths"));
        }
        if shapes.dtype() != DType::Int32 || shapes.ndim() != 2 || shapes.shape().first() != Some(&rows) {
            let (dtype, shape) = (shapes.dtype(), shapes.shape());
            let reason =
                format!("shapes must be int32 of shape ({rows}, dimensions), and are {dtype} of shape {shape:?}");
            return Err(Error::argument(reason));
        }
        variable_shape::check_rows(shapes, &self.offsets, |row| self.is_valid(row))
    }

    /// Whether a row is not marked as null.
    fn is_valid(&self, row: usize) -> bool {
        let flags = self.validity.as_ref().and_then(|validity| validity.peek_bytes().ok());
        flags.is_none_or(|flags| flags.get(row).is_none_or(|flag| *flag != 0))
    }
}

/// A tensor of the host whose elements can be read as a slice.
fn dense(tensor: Tensor, name: &str) -> Result<Tensor> {
    require_host(tensor.device(), "")?;
    if tensor.is_row_major() && tensor.is_aligned() {
        return Ok(tensor);
    }
    compact(&tensor, &format!("strided or misaligned {name} gathered"))
}
