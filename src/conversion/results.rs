//! Runs a [`Conversion`] into named results of any form, and validates it against a type.

use arrow_schema::FieldRef;

use super::converted::Converted;
use super::planned::ResultForm;
use super::run::Run;
use super::varied::VariedGroup;
use crate::arrow::{Chunks, DeviceArray};
use crate::dtype::DType;
use crate::error::{Error, Remedy, Result};
#[cfg(feature = "python")]
use crate::spec::all_or_errors;
use crate::spec::{Conversion, ResultSpec};

impl Conversion {
    /// Converts an array, a batch, or the chunks of a column or a table into named results, as [`Conversion::to_tensors`], of groups of any
    /// form.
    ///
    /// # Errors
    /// As [`Conversion::to_tensors`], [`Conversion::padded`] and [`Conversion::ragged`]. Names the group.
    pub fn to_results<'a>(
        &self,
        data: impl TryInto<Chunks<'a>, Error: Into<Error>>,
    ) -> Result<Vec<(String, Converted)>> {
        let chunks = self.chunks_of(data)?;
        self.check_columns(chunks.field())?;
        let mut results = Vec::new();
        self.convert_results(chunks.field(), chunks.arrays(), Run::default(), |name, made| {
            results.push((name.to_owned(), made));
            Ok::<_, Error>(())
        })?;
        Ok(results)
    }

    /// Validates the conversion against a type, before data of it is read.
    ///
    /// # Errors
    /// For whatever no data of the type makes possible; tells all such columns.
    pub fn check(&self, field: &FieldRef) -> Result<()> {
        let field = &*self.type_at_paths(field)?;
        self.check_columns(field)?;
        self.check_groups()?;
        self.check_results(field).map(drop)
    }

    /// Returns the results with rows of one shape, and the groups of others.
    ///
    /// # Errors
    /// As [`Conversion::check`]; tells the errors of both.
    pub(crate) fn check_results(&self, field: &FieldRef) -> Result<(Vec<ResultSpec>, Vec<VariedGroup>)> {
        self.check_results_as(field, None)
    }

    /// As [`Conversion::check_results`]; `natural` as for [`Conversion::results`].
    pub(super) fn check_results_as(
        &self,
        field: &FieldRef,
        natural: Option<DType>,
    ) -> Result<(Vec<ResultSpec>, Vec<VariedGroup>)> {
        match (self.results(field, natural), self.varied(field)) {
            (Ok(fixed), Ok(varied)) => Ok((fixed, varied)),
            (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
            (Err(first), Err(second)) => {
                let both = Error::of_columns([first, second]);
                Err(both.unwrap_or_else(|| Error::internal("two errors are none")))
            }
        }
    }

    /// As [`Conversion::check`], of rows that are lost where a copy of them is refused after they were read.
    #[cfg(feature = "python")]
    pub(crate) fn check_once(&self, field: &FieldRef) -> Result<()> {
        let field = &*self.type_at_paths(field)?;
        self.check(field)?;
        let (results, varied) = self.check_results(field)?;
        let matrix = self.matrix();
        let fixed = results.iter().map(|result| result.require_view(&matrix, |column| self.of(column)));
        all_or_errors(fixed.chain(varied.iter().map(|group| group.require_view()))).map(drop)
    }

    /// Refuses groups of which a result is no tensor with rows of one shape.
    ///
    /// # Errors
    /// Names all such groups.
    pub(super) fn require_fixed_rows(&self) -> Result<()> {
        let refused = self.selection.varied().map(|(name, _)| {
            let reason = "its rows differ in length, or are passed through as Arrow";
            Error::argument(reason).remedy_is(Remedy::ToResults).in_group(name)
        });
        Error::of_columns(refused).map_or(Ok(()), Err)
    }

    /// As [`Conversion::to_results`], for options whose names were checked; hands each result on.
    pub(crate) fn convert_results<E: From<Error>>(
        &self,
        field: &FieldRef,
        chunks: &[DeviceArray],
        run: Run<'_>,
        mut take: impl FnMut(&str, Converted) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.selection.varied().next().is_none() {
            return self.convert_each(field, chunks, run, |name, tensor| take(name, tensor.into()));
        }
        self.check_groups()?;
        let made = self.convert_asked(field, chunks, ResultForm::Results, run)?;
        made.into_iter().try_for_each(|(name, result)| take(&name, result))
    }
}
