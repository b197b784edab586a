//! Reports of a conversion, from its data or its type to where the results are asked for.

use arrow_schema::FieldRef;

use super::planned::ResultForm;
use crate::arrow::{Chunks, DeviceArray};
#[cfg(feature = "python")]
use crate::column::plan_to_arrow;
use crate::column::{check_types, to_arrow};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Remedy, Result};
use crate::explain::{Report, explain, explain_matrix, explain_parts, explain_spec, explain_stream, explain_tensor};
use crate::ragged::{PlannedPadded, plan_padded_type};
use crate::spec::{Conversion, CopyMode, MemoryOrder, Pad, Selection, is_struct};
#[cfg(feature = "python")]
use crate::tensor::Output;
use crate::tensor::Tensor;

/// What a report is about.
#[cfg(feature = "python")]
#[derive(Debug)]
pub(crate) enum Subject {
    /// The chunks of a column, or of the columns of structs.
    Chunks(FieldRef, Vec<DeviceArray>),
    /// Its type, and where it is.
    Type(FieldRef, Device),
    /// A tensor, which becomes a column first.
    Tensor(Tensor),
}

/// What is known of data beside its type.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownData {
    /// Where it is.
    pub(super) own: Device,
    /// Its rows, unless that is a stream that was not read, or a type.
    pub(super) rows: Option<usize>,
    /// The dtype of results for which no dtype is asked: that of a tensor of complex numbers.
    pub(super) default_dtype: Option<DType>,
}

impl KnownData {
    /// What chunks say.
    pub(super) fn of(chunks: &[DeviceArray]) -> Self {
        let (own, rows) = (DeviceArray::device_of(chunks), Some(DeviceArray::rows_of(chunks)));
        Self { own, rows, default_dtype: None }
    }
}

/// What is asked about it.
#[cfg(feature = "python")]
#[derive(Debug)]
pub(crate) enum Question<'o, 'm> {
    /// Its conversion into the results of the selection.
    Results,
    /// That of the only result's validity.
    Validity,
    /// That of a column into rows of one length.
    Padded(Pad),
    /// That into memory that is there.
    Write(&'o Output<'m>),
}

impl Conversion {
    /// Reports what the conversion of this data would do: a row for each column, and one for each matrix; and how they get to where the
    /// results are asked for. Of lists and strings, a row for each part of [`Conversion::ragged`]. Reads no value that a plan does not
    /// read, and asks no driver.
    ///
    /// # Errors
    /// When a selected column does not exist, or a chunk is of another type. What is wrong with a column is in its row.
    ///
    /// ```
    /// use arrow_array::Int32Array;
    /// use arrow_dlpack::{Conversion, DType};
    ///
    /// let report = Conversion::default().dtype(DType::Float64).explain(&Int32Array::from(vec![1, 2]))?;
    /// assert_eq!((report.rows[0].steps[0].as_str(), report.bytes()), ("cast from int32 to float64", 16));
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn explain<'a>(&self, data: impl TryInto<Chunks<'a>, Error: Into<Error>>) -> Result<Report> {
        let chunks = self.chunks_of(data)?;
        self.explain_any(
            chunks.field(),
            Some(chunks.arrays()),
            ResultForm::Results,
            DeviceArray::device_of(chunks.arrays()),
        )
    }

    /// Reports what the conversion of any data of a type on `device` would do, as far as both decide it: of a stream, before it is read.
    ///
    /// # Errors
    /// When a selected column does not exist. What is wrong with a column is in its row.
    pub fn explain_type(&self, field: &FieldRef, device: Device) -> Result<Report> {
        self.explain_any(field, None, ResultForm::Results, device)
    }

    /// As [`Conversion::explain`], for [`Conversion::padded`]: a row for the matrix, and one for its validity.
    ///
    /// # Errors
    /// When columns are selected, or a matrix that is not row-major: the data is one column, and is padded row by row.
    ///
    /// ```
    /// use arrow_array::StringArray;
    /// use arrow_dlpack::{Conversion, Pad, Scalar};
    ///
    /// let text = StringArray::from(vec!["to", "be", "or"]);
    /// let report = Conversion::default().explain_padded(&text, Pad::new(Scalar::Int(0)).length(4))?;
    /// assert_eq!(report.rows[0].shape, [Some(3), Some(4)]);
    /// assert_eq!(report.bytes(), 24);
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn explain_padded<'a>(&self, data: impl TryInto<Chunks<'a>, Error: Into<Error>>, pad: Pad) -> Result<Report> {
        let chunks = self.chunks_of(data)?;
        self.explain_any(
            chunks.field(),
            Some(chunks.arrays()),
            ResultForm::Padded(pad),
            DeviceArray::device_of(chunks.arrays()),
        )
    }

    /// As [`Conversion::explain`], for [`Conversion::validity`].
    ///
    /// # Errors
    /// As [`Conversion::explain`]; where columns are selected, and the data is no struct; where a column has rows of structs.
    ///
    /// ```
    /// use arrow_array::Int8Array;
    /// use arrow_dlpack::Conversion;
    ///
    /// let report = Conversion::default().explain_validity(&Int8Array::from(vec![Some(1), None]))?;
    /// assert_eq!((report.rows[0].steps[0].as_str(), report.bytes()), ("bits unpacked to bytes", 2));
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn explain_validity<'a>(&self, data: impl TryInto<Chunks<'a>, Error: Into<Error>>) -> Result<Report> {
        let chunks = self.chunks_of(data)?;
        self.explain_any(
            chunks.field(),
            Some(chunks.arrays()),
            ResultForm::Validity,
            DeviceArray::device_of(chunks.arrays()),
        )
    }

    /// Reports what this question asks about a subject.
    ///
    /// # Errors
    /// As [`Conversion::explain`], [`Conversion::explain_validity`], [`Conversion::explain_padded`] and [`Conversion::explain_write`].
    #[cfg(feature = "python")]
    pub(crate) fn explain_subject(&self, subject: Subject, question: Question<'_, '_>) -> Result<Report> {
        let asked = match question {
            Question::Results => match subject {
                Subject::Tensor(tensor) => return self.explain_tensor(&tensor),
                _ => ResultForm::Results,
            },
            Question::Validity => ResultForm::Validity,
            Question::Padded(pad) => ResultForm::Padded(pad),
            Question::Write(out) => {
                return self.explain_columns_of(subject, |field, chunks, known| {
                    self.explain_output(field, chunks, known, out)
                });
            }
        };
        self.explain_columns_of(subject, |field, chunks, known| self.explain_any(field, chunks, asked, known.own))
    }

    /// Calls `explain` with what is known of a subject: its type, its chunks if they are at hand, and more. Returns that report, with the
    /// gathering of a strided tensor.
    #[cfg(feature = "python")]
    fn explain_columns_of(
        &self,
        subject: Subject,
        explain: impl Fn(&FieldRef, Option<&[DeviceArray]>, KnownData) -> Result<Report>,
    ) -> Result<Report> {
        let tensor = match subject {
            Subject::Chunks(field, chunks) => return explain(&field, Some(&chunks), KnownData::of(&chunks)),
            Subject::Type(field, own) => {
                return explain(&field, None, KnownData { own, rows: None, default_dtype: None });
            }
            Subject::Tensor(tensor) => tensor,
        };
        let form = tensor.arrow_form()?;
        let (own, rows, default_dtype) = (tensor.device(), Some(form.rows), tensor.dtype().if_complex());
        let known = KnownData { own, rows, default_dtype };
        if let Ok(column) = to_arrow(&tensor, None, CopyMode::Never) {
            return explain(column.field(), Some(std::slice::from_ref(&column)), known);
        }
        let report = explain(&form.field, None, known)?;
        if self.comes_before(own) || report.is_refused() {
            return Ok(report);
        }
        Ok(match plan_to_arrow(&tensor, self.copy) {
            Ok(plan) => report.after_gather(&plan),
            Err(error) => report.refused_by(error),
        })
    }

    /// The report of the conversion of these chunks, or of any data of the type on `own`. Data that is copied to the host first is
    /// described by its type alone.
    pub(super) fn explain_any(
        &self,
        field: &FieldRef,
        chunks: Option<&[DeviceArray]>,
        asked: ResultForm,
        own: Device,
    ) -> Result<Report> {
        self.explain_by(field, chunks, own, |conversion, field, chunks, device| {
            conversion.explain_there(field, chunks, asked, device)
        })
    }

    /// As [`Conversion::explain_any`]; `there` reports the conversion of chunks, or of any data of a type, on the device where it is made.
    pub(super) fn explain_by(
        &self,
        field: &FieldRef,
        chunks: Option<&[DeviceArray]>,
        own: Device,
        there: impl Fn(&Self, &FieldRef, Option<&[DeviceArray]>, Device) -> Result<Report>,
    ) -> Result<Report> {
        let at_paths = chunks.map(|chunks| self.at_paths(Chunks::new(field, chunks))).transpose()?;
        let chunks = at_paths.as_ref().map(Chunks::arrays);
        let field = &*self.type_at_paths(field)?;
        let Some(target) = self.device else { return there(self, field, chunks, own) };
        let conversion = self.by_way_of(self.destination().is_surely_copied_from(own), own);
        if !self.comes_before(own) {
            return Ok(there(&conversion, field, chunks, own)?.then_to(target, self.copy));
        }
        let report = there(&conversion, field, None, target)?;
        Ok(match chunks {
            Some(chunks) => self.explain_moved(report, field, chunks),
            None => report.after_moves(field, own, target, self.copy),
        })
    }

    /// The report of the conversion where the data is.
    fn explain_there(
        &self,
        field: &FieldRef,
        chunks: Option<&[DeviceArray]>,
        asked: ResultForm,
        device: Device,
    ) -> Result<Report> {
        match asked {
            ResultForm::Validity => self.check_columns_of_validity(field)?,
            _ => self.check_columns(field)?,
        }
        match asked {
            ResultForm::Results | ResultForm::Ragged => {}
            ResultForm::Padded(pad) => {
                self.check_padded()?;
                self.refuse_length()?;
                let options = &self.of(field.name());
                let parts = match chunks {
                    Some(chunks) => PlannedPadded::new(field, chunks, pad, options).and_then(|rows| rows.parts()),
                    None => plan_padded_type(field, device, pad, options),
                };
                return Ok(explain_parts(field, device, parts));
            }
            ResultForm::Validity => {
                self.require_whole()?;
                chunks.map_or(Ok(()), |chunks| check_types(field, chunks))?;
                let report = explain_spec(&self.validity_of(field)?, chunks, &self.matrix());
                return Ok(self.leaving_out(field, if chunks.is_none() { report.unread_on(device) } else { report }));
            }
        }
        self.refuse_columns(field)?;
        let of = |column: &str| self.of(column);
        let columns = self.remaining(field);
        let report = match (&self.selection, chunks) {
            (Selection::Named(groups), _) => self.explain_named(field, chunks, groups, device)?,
            (Selection::Whole(_), _) if is_struct(field) => {
                explain_matrix(field, chunks, (columns.as_deref(), self.dtype.all()), &self.matrix(), of)?
            }
            (_, Some(_)) => explain(field, chunks, columns.as_deref(), of)?,
            (_, None) => return Ok(self.leaving_out(field, explain_stream(field, device, columns.as_deref(), of)?)),
        };
        Ok(self.leaving_out(field, if chunks.is_none() { report.unread_on(device) } else { report }))
    }

    /// Refuses what padded rows have not: several columns, and a choice of memory order.
    fn check_padded(&self) -> Result<()> {
        let is_plain = matches!(self.selection, Selection::Whole(None) | Selection::Each(None));
        if is_plain && self.memory_order == MemoryOrder::C {
            return Ok(());
        }
        let reason = "one column is padded, row by row: there are no columns and no memory order to choose";
        Err(Error::argument(reason).remedy_is(Remedy::NoPadOfColumns))
    }

    /// The report, with the columns that are left out.
    pub(super) fn leaving_out(&self, field: &FieldRef, report: Report) -> Report {
        let takes_all = matches!(self.selection, Selection::Whole(None) | Selection::Each(None));
        Report { left_out: if takes_all { self.index.left_out(field) } else { Vec::new() }, ..report }
    }

    /// The report of data that comes to the host before it is converted, from one of its type.
    pub(super) fn explain_moved(&self, report: Report, field: &FieldRef, chunks: &[DeviceArray]) -> Report {
        report.after_move(field, chunks, self.device.unwrap_or(Device::CPU), self.copy)
    }

    /// As [`Conversion::explain`], of a DLPack tensor, which becomes a column first: strided elements are gathered for that.
    ///
    /// # Errors
    /// When no Arrow type holds the tensor, or columns are selected or have options: it has none.
    pub fn explain_tensor(&self, tensor: &Tensor) -> Result<Report> {
        self.check_rows(&tensor.arrow_form()?.field)?;
        if !self.comes_before(tensor.device()) {
            let own = tensor.device();
            let conversion = self.by_way_of(self.destination().is_surely_copied_from(own), own);
            let report = explain_tensor(tensor, |column| conversion.of(column))?;
            return Ok(match self.device {
                Some(target) => report.then_to(target, self.copy),
                None => report,
            });
        }
        // Bools become bits by a kernel, before they are moved.
        match to_arrow(tensor, None, CopyMode::Never) {
            Ok(array) => self.explain_any(
                array.field(),
                Some(std::slice::from_ref(&array)),
                ResultForm::Results,
                tensor.device(),
            ),
            Err(_) => self.explain_any(&tensor.arrow_form()?.field, None, ResultForm::Results, tensor.device()),
        }
    }
}
