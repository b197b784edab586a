//! [`ArrowConversion`]: converts tensors and ragged rows to Arrow data, where it is asked for.
//!
//! The host converts if it is one of the two devices, as in a [`Conversion`](crate::Conversion): what is asked for on the host is copied
//! there, and then converted; what is on the host is converted, and the array then copied to the device.

use std::borrow::Cow;

use arrow_schema::FieldRef;

use crate::arrow::DeviceArray;
#[cfg(feature = "python")]
use crate::column::check_to_arrow;
use crate::column::{to_arrow, to_arrow_as};
use crate::convert::fixed_bytes;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::explain::{Report, explain_matrix_to_arrow, explain_ragged_to_arrow_on, explain_to_arrow};
#[cfg(feature = "python")]
use crate::matrix::check_matrix;
use crate::matrix::{ColumnOptions, matrix_to_arrow};
use crate::ragged::Ragged;
use crate::spec::{CopyMode, setters};
use crate::tensor::Tensor;
use crate::transfer::Destination;

/// What tensors and ragged rows become as Arrow data, and where: a column, or a record batch of a matrix's columns.
///
/// ```
/// use arrow_array::Int64Array;
/// use arrow_dlpack::{ArrowConversion, ColumnOptions, CopyMode, Device, to_tensor};
///
/// let options = ColumnOptions::default().copy(CopyMode::Never);
/// let conversion = ArrowConversion::default().options(options).device(Device::CPU);
/// let tensor = to_tensor(&Int64Array::from(vec![1, 2, 3]))?;
/// assert!(conversion.explain(&tensor, false)?.rows[0].view);
/// assert_eq!(conversion.convert(&tensor)?.len(), 3);
/// // Names are those of a matrix's columns.
/// assert!(conversion.names(["x"]).convert(&tensor).is_err());
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ArrowConversion {
    /// The names of a matrix's columns, which become those of a record batch; `None` for one column.
    pub names: Option<Vec<String>>,
    /// The validity, the types, the threads, and whether elements may be copied. One column has the first type, and no metadata.
    pub options: ColumnOptions,
    /// Where the result is to be; `None` is where the tensor is.
    pub device: Option<Device>,
}

impl ArrowConversion {
    setters! { ArrowConversion:
        pub options: ColumnOptions;
        pub device: Device;
    }

    /// Sets [`ArrowConversion::names`].
    #[must_use]
    pub fn names<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.names = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Converts a tensor as [`to_arrow`], [`to_arrow_as`] or [`matrix_to_arrow`] does, and takes it to the device that is asked for.
    /// What is copied on its way is not copied again.
    ///
    /// # Errors
    /// As these functions; when a transfer is a copy and none is allowed, or the device cannot be reached.
    pub fn convert(&self, tensor: &Tensor) -> Result<DeviceArray> {
        let options = self.options_there(tensor.device())?;
        let tensor = self.brought(tensor, self.options.copy)?;
        let array = match (&self.names, self.requested()) {
            (Some(names), _) => matrix_to_arrow(&tensor, names, &options)?,
            (None, Some(requested)) => to_arrow_as(&tensor, options.validity.as_ref(), requested, options.copy)?,
            (None, None) => to_arrow(&tensor, options.validity.as_ref(), options.copy)?,
        };
        self.send(&array)
    }

    /// Converts rows as [`Ragged::to_arrow`] or [`Ragged::to_arrow_as`] does, and takes them to the device that is asked for.
    ///
    /// # Errors
    /// As [`ArrowConversion::convert`]; when there are names, or a validity: that of the rows is their own.
    pub fn convert_ragged(&self, rows: &Ragged) -> Result<DeviceArray> {
        self.check_ragged()?;
        let copy = self.destination().copy_before(rows.offsets().device())?;
        let array = match self.requested() {
            None => rows.to_arrow(copy)?,
            Some(requested) => rows.to_arrow_as(requested, copy)?,
        };
        self.send(&array)
    }

    /// Reports what [`ArrowConversion::convert`] would do to a tensor, and asks no driver. Where the options have no validity, `has_validity`
    /// says that there will be a bool for each row.
    ///
    /// # Errors
    /// When no Arrow type holds the dtype, or names or types do not fit. What else is refused is the error of its row.
    pub fn explain(&self, tensor: &Tensor, has_validity: bool) -> Result<Report> {
        let has_validity = has_validity || self.options.validity.is_some();
        let explain = |tensor: &Tensor, copy| match &self.names {
            Some(names) => {
                let options = ColumnOptions { copy, ..self.options.clone() };
                explain_matrix_to_arrow(tensor, names, &options, has_validity)
            }
            None => explain_to_arrow(tensor, self.requested(), has_validity, copy),
        };
        // The bytes of a column's buffers, as far as its type tells.
        let buffers = |index: usize| {
            let column = self.names.as_ref().map(|_| tensor.column(index));
            let form = column.unwrap_or_else(|| Ok(tensor.clone())).and_then(|column| column.arrow_form()).ok()?;
            let requested = self.options.types.get(index).and_then(Option::as_ref);
            let values = fixed_bytes(requested.unwrap_or(&form.field).data_type(), form.rows)?;
            Some((has_validity.then(|| form.rows.div_ceil(8)), values))
        };
        Report::of_arrow_on((self.device, self.options.copy), tensor, explain, buffers)
    }

    /// Reports what [`ArrowConversion::convert_ragged`] would do to rows.
    ///
    /// # Errors
    /// When no Arrow type holds the values; when there are names, or a validity. What else is refused is the error of its row.
    pub fn explain_ragged(&self, rows: &Ragged) -> Result<Report> {
        self.check_ragged()?;
        explain_ragged_to_arrow_on((self.device, self.options.copy), rows, self.requested())
    }

    /// Refuses what no values could become together with a validity, before that is read.
    ///
    /// # Errors
    /// As [`ArrowConversion::convert`].
    #[cfg(feature = "python")]
    pub(crate) fn check_before_validity(&self, tensor: &Tensor) -> Result<()> {
        let (own, options) = (tensor.device(), self.options_there(tensor.device())?);
        let there = self.destination().comes_before(own).then(|| tensor.relabelled(Device::CPU));
        let tensor = there.as_ref().unwrap_or(tensor);
        match &self.names {
            Some(names) => check_matrix(tensor, names, &options)?,
            None => check_to_arrow(tensor, self.requested(), options.copy)?,
        }
        self.destination().check_stream(own)
    }

    /// Refuses what a matrix's columns have, and rows do not.
    fn check_ragged(&self) -> Result<()> {
        if self.names.is_some() {
            let error =
                Error::argument("names are those of a matrix's columns, and rows of different lengths have none");
            return Err(error.remedy_is("leave names out, or pad the rows"));
        }
        if self.options.validity.is_some() {
            return Err(Error::argument("rows of different lengths have a validity of their own"));
        }
        Ok(())
    }

    /// The type of the only column.
    fn requested(&self) -> Option<&FieldRef> {
        self.options.types.first().and_then(Option::as_ref)
    }

    /// Where a tensor is asked for, to be converted there; `None` takes it where it is.
    #[cfg(feature = "python")]
    pub(crate) fn reads_on(&self) -> Option<Device> {
        self.device.filter(|device| device.is_cpu())
    }

    fn destination(&self) -> Destination {
        Destination::new(self.device, self.options.copy)
    }

    /// A tensor where it is converted.
    fn brought<'a>(&self, tensor: &'a Tensor, copy: CopyMode) -> Result<Cow<'a, Tensor>> {
        match self.destination().comes_before(tensor.device()) {
            false => Ok(Cow::Borrowed(tensor)),
            true => Destination::new(self.device, copy).tensor(tensor.clone()).map(Cow::Owned),
        }
    }

    /// The options for a tensor on `own`, where it is converted: its validity is there, too, and a copy on the way is not made again.
    fn options_there(&self, own: Device) -> Result<Cow<'_, ColumnOptions>> {
        let mut options = Cow::Borrowed(&self.options);
        let copy = self.destination().copy_before(own)?;
        if copy != options.copy {
            options.to_mut().copy = copy;
        }
        if let Some(valid) = &self.options.validity
            && let Cow::Owned(valid) = self.brought(valid, CopyMode::IfNeeded)?
        {
            options.to_mut().validity = Some(valid);
        }
        Ok(options)
    }

    /// An array where it is asked for.
    fn send(&self, array: &DeviceArray) -> Result<DeviceArray> {
        self.destination().array(array).map(Cow::into_owned)
    }
}
