//! Runs a [`Conversion`] into memory that is there, and reports what that would do.

use arrow_schema::FieldRef;

use super::run::Run;
use crate::arrow::{Chunks, DeviceArray};
use crate::column::{by, check_column_output, chunks_to_tensor_into, require_copy};
use crate::convert::{matrix_stride, row_stride};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::explain::{Report, explain_column, explain_matrix};
use crate::matrix::{check_matrix_output, write_matrix};
use crate::spec::{Conversion, CopyMode, is_struct};
use crate::tensor::Output;

impl Conversion {
    /// Writes what [`Conversion::to_tensor`] returns into memory that is there: of the result's shape, a matrix with dense rows or dense
    /// columns any distance apart, the rows of a column any distance apart. Its dtype is the default. Data on a CUDA device is written
    /// to memory of the same device, on this thread's stream.
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
        let (field, arrays) = (chunks.field(), chunks.arrays());
        self.explain_output(field, Some(arrays), DeviceArray::device_of(arrays), out, None)
    }

    /// As [`Conversion::explain_write`], of these chunks, or of any data of the type on `own`; `natural` is the dtype of what keeps its own.
    pub(super) fn explain_output(
        &self,
        field: &FieldRef,
        chunks: Option<&[DeviceArray]>,
        own: Device,
        out: &Output<'_>,
        natural: Option<DType>,
    ) -> Result<Report> {
        self.require_whole()?;
        self.explain_by(field, chunks, own, |conversion, field, chunks, device| {
            conversion.explain_output_there(field, chunks, device, out, natural.or(Some(out.dtype())))
        })
    }

    /// The report of what is written where the data is.
    fn explain_output_there(
        &self,
        field: &FieldRef,
        chunks: Option<&[DeviceArray]>,
        device: Device,
        out: &Output<'_>,
        natural: Option<DType>,
    ) -> Result<Report> {
        self.check_columns(field)?;
        // The row says that copies are not allowed, and not which ones.
        let conversion = self.clone().copy(if self.copy == CopyMode::Never { CopyMode::IfNeeded } else { self.copy });
        let options = conversion.matrix().written_to(out);
        let of = |column: &str| conversion.of_or(column, natural);
        let report = if is_struct(field) {
            let columns = self.remaining(field);
            explain_matrix(field, chunks, (columns.as_deref(), self.dtype_or(natural)), &options, of)?
        } else {
            self.refuse_columns(field)?;
            explain_column((None, field), chunks, of(field.name()), &options)
        };
        let report = if chunks.is_some() { report } else { report.unread_on(device) };
        let refusal = self.require_device(device).and_then(|()| match chunks {
            None => self.check_output(field, Some(device), out),
            Some(chunks) if is_struct(field) => {
                check_matrix_output(&*self.matrix_of(field, natural)?, chunks, &self.matrix(), out)
            }
            Some(chunks) => check_column_output(field, chunks, &self.of_or(field.name(), natural), out),
        });
        let misfit = chunks.map_or(Ok(()), |chunks| self.check_room(field, DeviceArray::rows_of(chunks), natural, out));
        let report = if report.is_refused() { report } else { report.refused_by(misfit) };
        Ok(self.leaving_out(field, report.refused_by(refusal)))
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
        let dtype = out.dtype();
        if is_struct(field) {
            let spec = self.matrix_of(field, Some(dtype))?;
            return write_matrix(&spec, chunks, &self.matrix(), out, run.runner);
        }
        self.refuse_columns(field)?;
        let mut options = self.of(field.name());
        options.dtype = options.dtype.or(run.natural).or(Some(dtype));
        let rows = DeviceArray::rows_of(chunks);
        let write = || chunks_to_tensor_into(field, chunks, &options, out, self.threads);
        by(run.runner, rows.saturating_mul(dtype.itemsize()), write)
    }

    /// Validates the conversion into memory that is there against a type, before data of it is read: of the shape, only the number of
    /// rows is left to the data.
    ///
    /// # Errors
    /// As [`Conversion::check`]; when the memory does not fit, or is not where the result would be: `own` is where the data is, as far
    /// as that is known.
    pub(crate) fn check_output(&self, field: &FieldRef, own: Option<Device>, out: &Output<'_>) -> Result<()> {
        if own.is_some_and(Device::is_cpu) {
            out.require_host()?;
            self.require_device(Device::CPU)?;
        }
        self.refuse_columns(field)?;
        self.check_columns(field)?;
        require_copy(self.copy)?;
        let Some(rows) = out.shape().first() else {
            let error = Error::argument("out has no dimension, and the result has one for its rows");
            return Err(error.remedy_is("pass an output of the result's shape").in_column(field.name()));
        };
        self.check_room(field, usize::try_from(*rows).unwrap_or_default(), Some(out.dtype()), out)
    }

    /// Refuses memory that has no room for so many rows of the result; `natural` as for [`Conversion::results`].
    fn check_room(&self, field: &FieldRef, rows: usize, natural: Option<DType>, out: &Output<'_>) -> Result<()> {
        if is_struct(field) {
            return matrix_stride(&*self.matrix_of(field, natural)?, rows, out).map(drop);
        }
        let (spec, _) = self.column(field, natural)?;
        row_stride(&spec, rows, out).map(drop).map_err(|error| error.in_column(field.name()))
    }
}
