//! Makes ragged rows of parts that somebody else has: do rows lie inside their values, and do the parts fit each other?

use std::ops::Range;

use super::{Ragged, Values, variable_shape};
use crate::column::require_host;
use crate::cuda::is_cuda;
use crate::device::Device;
use crate::dtype::{DType, Kind};
use crate::error::{Error, Result};
use crate::kernels::{PaddedRows, measure, moved};
use crate::stream_order::Readiness;
use crate::tensor::{Native, Tensor};
use crate::transfer::{Transfer, read_to_host, tensor_to_device, tensors_to_device};

impl Ragged {
    /// Rows over these values. `offsets` are int32 or int64, one more than rows, or with `lengths` as many; `shapes`, int32
    /// of shape (rows, dimensions), makes each row a tensor; `validity` has a bool for each row. All are on one device. On CUDA a kernel
    /// looks at the offsets, and the host waits for what it finds.
    ///
    /// # Errors
    /// When a row would lie outside the values, offsets decrease, a shape does not fit its row, sizes, dtypes or devices differ, or neither the
    /// host nor a kernel can look at the memory.
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
        if values.as_tensor().is_some_and(|tensor| tensor.ndim() == 0) {
            return Err(Error::argument("values must have at least one dimension"));
        }
        let mut ragged = Self { values, offsets, lengths, shapes, validity, field: None };
        ragged.check_devices()?;
        require_integers(&ragged.offsets, "offsets")?;
        ragged.lengths.as_ref().map_or(Ok(()), |lengths| require_integers(lengths, "lengths"))?;
        ragged.offsets = dense(ragged.offsets, "offsets")?;
        ragged.lengths = ragged.lengths.map(|lengths| dense(lengths, "lengths")).transpose()?;
        ragged.shapes = ragged.shapes.map(|shapes| dense(shapes, "shapes")).transpose()?;
        ragged.validity = ragged.validity.map(|validity| dense(validity, "validity")).transpose()?;
        ragged.check()?;
        Ok(ragged)
    }

    /// Checks that every row lies inside the values, and that the parts fit each other.
    pub(super) fn check(&self) -> Result<()> {
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
        match (self.offsets.readiness(), self.offsets.dtype()) {
            (Some(_), _) => self.check_rows_on_device()?,
            (None, DType::Int32) => self.check_rows::<i32>()?,
            (None, _) => self.check_rows::<i64>()?,
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
                    return wrong(row, outside_values(offset, length, limit));
                }
            }
            return Ok(());
        }
        let mut last = 0;
        for (number, offset) in offsets.iter().enumerate() {
            let offset: i64 = (*offset).into();
            if offset < last || offset > limit {
                // An offset that is not the first one ends the row before it.
                return wrong(number.saturating_sub(1), out_of_order(offset, last, limit));
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
        if self.values.as_tensor().is_some_and(|values| values.dtype().kind() == Kind::Complex) {
            let reason = "rows with shapes have values of one number, and complex ones are two in Arrow";
            return Err(Error::argument(reason).remedy_is("pass real and imaginary parts, or leave out the shapes"));
        }
        if shapes.dtype() != DType::Int32 || shapes.ndim() != 2 || shapes.shape().first() != Some(&rows) {
            let (dtype, shape) = (shapes.dtype(), shapes.shape());
            let reason =
                format!("shapes must be int32 of shape ({rows}, dimensions), and are {dtype} of shape {shape:?}");
            return Err(Error::argument(reason));
        }
        if self.offsets.readiness().is_none() {
            return variable_shape::check_rows(shapes, &self.offsets, |row| self.is_valid(row));
        }
        let parts: Vec<_> =
            [Some(shapes), Some(&self.offsets), self.validity.as_ref()].into_iter().flatten().cloned().collect();
        let why = "shapes compared with the lengths of their rows";
        let mut read = tensors_to_device(&parts, &Transfer::to(Device::CPU, why))?.into_iter();
        let (Some(shapes), Some(offsets)) = (read.next(), read.next()) else {
            return Err(Error::internal("shapes were lost on their way"));
        };
        let read = Self { validity: read.next(), ..self.clone() };
        variable_shape::check_rows(&shapes, &offsets, |row| read.is_valid(row))
    }

    /// Refuses parts on several devices, and on one where nothing looks at them.
    fn check_devices(&self) -> Result<()> {
        let values = self.require_one_device()?;
        if is_cuda(values) { Ok(()) } else { require_host(values, "") }
    }

    /// Returns the device of all parts, of which rows on a device may have several: kernels write values of page-locked rows to device memory.
    ///
    /// # Errors
    /// If there are several.
    pub(super) fn require_one_device(&self) -> Result<Device> {
        let values = match &self.values {
            Values::Tensor(tensor) => tensor.device(),
            Values::Ragged(rows) => rows.offsets.device(),
        };
        let parts = [("offsets", Some(&self.offsets)), ("lengths", self.lengths.as_ref())];
        let parts = parts.into_iter().chain([("shapes", self.shapes.as_ref()), ("validity", self.validity.as_ref())]);
        for (name, part) in parts.filter_map(|(name, part)| Some((name, part?))) {
            if part.device() != values {
                let reason = format!("the values are on {values}, and their {name} on {}", part.device());
                return Err(Error::argument(reason).remedy_is(format!("move the {name} to the device of the values")));
            }
        }
        Ok(values)
    }

    /// As `check_rows`, by a kernel; the host waits for what it finds.
    fn check_rows_on_device(&self) -> Result<()> {
        let bytes = |tensor: &Tensor| tensor.as_ptr().addr()..tensor.as_ptr().addr().saturating_add(tensor.nbytes());
        let (offsets, lengths) = (bytes(&self.offsets), self.lengths.as_ref().map(bytes));
        let parts = [Some(&self.offsets), self.lengths.as_ref()];
        let readiness = Readiness::joined(parts.into_iter().flatten().filter_map(Tensor::readiness).cloned())?;
        let readiness = readiness.ok_or_else(|| Error::internal("offsets of a device without an order"))?;
        let items = self.values.len();
        let limit = i64::try_from(items).unwrap_or(i64::MAX);
        // Without rows no kernel looks at the one offset.
        let outside = if self.is_empty() {
            (lengths.is_none()).then_some(0)
        } else {
            let rows = PaddedRows {
                count: self.len(),
                offsets: offsets.clone(),
                lengths: lengths.clone(),
                is_wide: self.offsets.dtype() == DType::Int64,
                validity: None,
                items: Some(items),
            };
            measure(&readiness, &[rows], (None, false))?.first().and_then(|measured| measured.outside)
        };
        let Some(row) = outside else { return Ok(()) };
        let second = match &lengths {
            Some(lengths) => self.one_of(lengths, row),
            None => self.one_of(&offsets, row.saturating_add(1).min(self.offsets.len().saturating_sub(1))),
        };
        let (first, second) = (self.one_of(&offsets, row), second);
        let read = read_to_host(&readiness, &[first.clone(), second.clone()])?;
        let value = |range: Range<usize>| Ok::<_, Error>(signed_of(read.require(range.start, range.len())?));
        let (first, second) = (value(first)?, value(second)?);
        let reason = match (&lengths, row) {
            (Some(_), _) => outside_values(first, second, limit),
            (None, 0) if first < 0 || first > limit => out_of_order(first, 0, limit),
            // The one offset of no rows.
            (None, _) if self.is_empty() => return Ok(()),
            (None, _) => out_of_order(second, first, limit),
        };
        Err(Error::argument(reason).at_row(row))
    }

    /// The address of one of the offsets or lengths that start there.
    fn one_of(&self, range: &Range<usize>, number: usize) -> Range<usize> {
        let width = self.offsets.dtype().itemsize();
        let start = range.start.saturating_add(number.saturating_mul(width));
        start..start.saturating_add(width)
    }
}

/// Returns an int32 or int64 of these bytes.
fn signed_of(bytes: &[u8]) -> i64 {
    match (bytes.first_chunk::<8>(), bytes.first_chunk::<4>()) {
        (Some(wide), _) => i64::from_le_bytes(*wide),
        (None, Some(narrow)) => i32::from_le_bytes(*narrow).into(),
        (None, None) => 0,
    }
}

fn outside_values(offset: i64, length: i64, limit: i64) -> String {
    format!("offset {offset} and length {length} of {limit} values")
}

fn out_of_order(offset: i64, last: i64, limit: i64) -> String {
    format!("offset {offset} after {last}, of {limit} values")
}

/// Refuses what are no integers of one dimension that offsets may be.
fn require_integers(tensor: &Tensor, name: &str) -> Result<()> {
    if matches!(tensor.dtype(), DType::Int32 | DType::Int64) && tensor.ndim() == 1 {
        return Ok(());
    }
    let (dtype, shape) = (tensor.dtype(), tensor.shape());
    Err(Error::argument(format!("{name} must be int32 or int64 of one dimension, and are {dtype} of shape {shape:?}")))
}

/// A tensor on the same device whose elements lie next to each other, aligned: a copy of it if they do not.
///
/// # Errors
/// On a device where no copy can be made; when an allocation fails.
fn dense(tensor: Tensor, name: &str) -> Result<Tensor> {
    if tensor.is_row_major() && tensor.is_aligned() {
        return Ok(tensor);
    }
    let device = tensor.device();
    let why = format!("strided or misaligned {name} gathered");
    let gathered = moved(&tensor, &why)?;
    // Kernels gather page-locked memory to memory of the device.
    if gathered.device() == device { Ok(gathered) } else { tensor_to_device(&gathered, &Transfer::to(device, &why)) }
}
