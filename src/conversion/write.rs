//! Runs a [`Conversion`] into memory that is there, and reports what that would do.

use std::borrow::Cow;

use arrow_schema::FieldRef;

use super::explained::KnownData;
use super::run::Run;
use crate::arrow::{Chunks, DeviceArray};
use crate::column::{check_column_output, chunks_to_tensor_into, require_copy, run_step};
use crate::convert::{matrix_stride, row_stride};
use crate::cuda::is_cuda;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Remedy, Result};
use crate::explain::{Report, explain_column, explain_matrix};
use crate::matrix::{check_matrix_output, write_matrix};
use crate::spec::{Conversion, CopyMode, is_struct};
use crate::tensor::Output;

impl Conversion {
    /// Writes what [`Conversion::to_tensor`] returns into memory that is there: of the result's shape, a matrix with dense rows or dense
    /// columns any distance apart, the rows of a column any distance apart. Data on a CUDA device is written to memory of the same device,
    /// on this thread's stream.
    ///
    /// Without [`Conversion::dtype`], the dtype of `out` is requested. So dictionary columns are written as their values, where
    /// [`Conversion::to_tensor`] returns the codes, unless [`Conversion::dictionary`] asks for these.
    ///
    /// # Errors
    /// As [`Conversion::to_tensor`]; when `out` does not fit, or overlaps the data, or copies are not allowed. What `out` holds is
    /// unspecified after an error.
    ///
    /// ```
    /// use arrow_array::Int32Array;
    /// use arrow_dlpack::{Conversion, Output};
    ///
    /// let mut memory = [0_f32; 2];
    /// let mut out = Output::from_slice(&mut memory, &[2])?;
    /// Conversion::default().write(&Int32Array::from(vec![1, 2]), &mut out)?;
    /// assert_eq!(memory, [1.0, 2.0]);
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn write<'a>(&self, data: impl TryInto<Chunks<'a>, Error: Into<Error>>, out: &mut Output<'_>) -> Result<()> {
        let chunks = self.chunks_of(data)?;
        self.check_columns(chunks.field())?;
        self.write_by(chunks.field(), chunks.arrays(), out, Run::default())
    }

    /// Reports what [`Conversion::write`] would do with this data and this memory, as [`Conversion::explain`]. Memory that does not fit is
    /// the error of the result's row.
    ///
    /// # Errors
    /// As [`Conversion::explain`]; for a selection of several results.
    ///
    /// ```
    /// use arrow_array::Int32Array;
    /// use arrow_dlpack::{Conversion, Output};
    ///
    /// let mut memory = [0_f32; 2];
    /// let out = Output::from_slice(&mut memory, &[2])?;
    /// let report = Conversion::default().explain_write(&Int32Array::from(vec![1, 2]), &out)?;
    /// assert_eq!(report.rows[0].steps, ["cast from int32 to float32", "written to out"]);
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn explain_write<'a>(
        &self,
        data: impl TryInto<Chunks<'a>, Error: Into<Error>>,
        out: &Output<'_>,
    ) -> Result<Report> {
        let chunks = self.chunks_of(data)?;
        self.explain_output(chunks.field(), Some(chunks.arrays()), KnownData::of(chunks.arrays()), out)
    }

    /// As [`Conversion::explain_write`], of these chunks, or of any data of the type.
    pub(super) fn explain_output(
        &self,
        field: &FieldRef,
        chunks: Option<&[DeviceArray]>,
        known: KnownData,
        out: &Output<'_>,
    ) -> Result<Report> {
        self.require_whole()?;
        let explain = |conversion: &Self| {
            conversion.explain_by(field, chunks, known.own, |conversion, field, chunks, own| {
                conversion.explain_output_there(field, chunks, KnownData { own, ..known }, out)
            })
        };
        if self.comes_before(known.own) {
            return explain(self);
        }
        // Nothing is sent to another device after it was written.
        let report = explain(&self.clone().device(None))?;
        Ok(match self.require_device(known.own) {
            Ok(()) => report,
            Err(error) => report.refused_by(error),
        })
    }

    /// The report of what is written where the data is.
    fn explain_output_there(
        &self,
        field: &FieldRef,
        chunks: Option<&[DeviceArray]>,
        known: KnownData,
        out: &Output<'_>,
    ) -> Result<Report> {
        self.check_columns(field)?;
        let default_dtype = known.default_dtype.or(Some(out.dtype()));
        // The row says that copies are not allowed, and not which ones.
        let conversion = self.writing().into_owned();
        let conversion = if self.copy == CopyMode::Never { conversion.copy(CopyMode::IfNeeded) } else { conversion };
        let options = conversion.matrix().written_to(out);
        let of = |column: &str| conversion.options_of(column, default_dtype);
        let report = if is_struct(field) {
            let columns = self.remaining(field);
            let dtype = self.dtype_of_all(default_dtype);
            explain_matrix(field, chunks, (columns.as_deref(), dtype), &options, of)?
        } else {
            self.refuse_columns(field)?;
            explain_column((None, field), chunks, of(field.name()), &options)
        };
        let report = if chunks.is_some() { report } else { report.unread_on(known.own) };
        let refusal = match chunks {
            None => self.check_output_of(field, Some(known.own), out, (known.rows, default_dtype)),
            Some(chunks) if is_struct(field) => {
                let spec = self.matrix_of(field, default_dtype);
                spec.and_then(|spec| check_matrix_output(&spec, chunks, &self.matrix(), out))
            }
            Some(chunks) => check_column_output(field, chunks, &self.options_of(field.name(), default_dtype), out),
        };
        let misfit = || self.check_room(field, known.rows?, default_dtype, out).err();
        let refusal = refusal.err().or_else(|| if report.is_refused() { None } else { misfit() });
        let report = match refusal {
            Some(error) => report.refused_by(error),
            None => report,
        };
        Ok(self.leaving_out(field, report))
    }

    /// The conversion of what is written to memory that is there, which is nobody else's: no other copy is made for that.
    fn writing(&self) -> Cow<'_, Self> {
        let mut conversion = Cow::Borrowed(self);
        if self.copy.asks_for_own(self.writable) {
            conversion.to_mut().take_as_own();
        }
        conversion
    }

    /// As [`Conversion::write`], for options whose names were checked.
    pub(crate) fn write_by(
        &self,
        field: &FieldRef,
        chunks: &[DeviceArray],
        out: &mut Output<'_>,
        run: Run<'_>,
    ) -> Result<()> {
        self.require_whole()?;
        if self.device.is_none() && !run.is_own {
            return self.write_there(field, chunks, out, run);
        }
        let there = self.bring(chunks, run)?;
        self.require_device(DeviceArray::device_of(&there.chunks))?;
        there.conversion.write_there(field, &there.chunks, out, run)
    }

    /// As [`Conversion::write_by`], of data where it is converted.
    fn write_there(&self, field: &FieldRef, chunks: &[DeviceArray], out: &mut Output<'_>, run: Run<'_>) -> Result<()> {
        let (conversion, dtype) = (self.writing(), out.dtype());
        if is_struct(field) {
            let spec = self.matrix_of(field, Some(dtype))?;
            return write_matrix(&spec, chunks, &conversion.matrix(), out, run.runner);
        }
        self.refuse_columns(field)?;
        let options = conversion.options_of(field.name(), run.natural.or(Some(dtype)));
        let rows = DeviceArray::rows_of(chunks);
        let write = || chunks_to_tensor_into(field, chunks, &options, out, self.threads);
        run_step(run.runner, rows.saturating_mul(dtype.itemsize()), write)
    }

    /// Validates the conversion into memory that is there against a type, before data of it is read: of the shape, only the number of
    /// rows is left to the data.
    ///
    /// # Errors
    /// As [`Conversion::check`]; when the memory does not fit, or is not where the result would be: `own` is where the data is, as far
    /// as that is known.
    #[cfg(feature = "python")]
    pub(crate) fn check_output(&self, field: &FieldRef, own: Option<Device>, out: &Output<'_>) -> Result<()> {
        self.check_output_of(field, own, out, (None, Some(out.dtype())))
    }

    /// As [`Conversion::check_output`], of data with so many rows, if they are known; `default_dtype` as for [`Conversion::options_of`].
    fn check_output_of(
        &self,
        field: &FieldRef,
        own: Option<Device>,
        out: &Output<'_>,
        (rows, default_dtype): (Option<usize>, Option<DType>),
    ) -> Result<()> {
        match own {
            Some(own) if own.is_cpu() => {
                out.require_host()?;
                self.require_device(Device::CPU)?;
            }
            // A stream may tell the type of its device alone, so that an output on any CUDA device may be right.
            Some(own) if is_cuda(own) && !self.comes_before(own) && out.require_host().is_ok() => {
                out.require_device(own)?;
            }
            _ => {}
        }
        self.refuse_columns(field)?;
        self.check_columns(field)?;
        require_copy(self.copy)?;
        let Some(room) = out.shape().first() else {
            let error = Error::argument("out has no dimension, and the result has one for its rows");
            return Err(error.remedy_is(Remedy::OutputShape).in_column(field.name()));
        };
        self.check_room(field, rows.unwrap_or(usize::try_from(*room).unwrap_or_default()), default_dtype, out)
    }

    /// Refuses memory that has no room for so many rows of the result; `default_dtype` as for [`Conversion::options_of`].
    fn check_room(&self, field: &FieldRef, rows: usize, default_dtype: Option<DType>, out: &Output<'_>) -> Result<()> {
        if is_struct(field) {
            return matrix_stride(&*self.matrix_of(field, default_dtype)?, rows, out).map(drop);
        }
        let (spec, _) = self.column(field, default_dtype)?;
        row_stride(&spec, rows, out).map(drop).map_err(|error| error.in_column(field.name()))
    }
}
