//! Runs a [`Conversion`] into named results of any form, and validates it against a type.

use std::collections::HashMap;

use arrow_schema::FieldRef;

use super::converted::Converted;
use super::run::Run;
use super::varied::VariedGroup;
use crate::arrow::{Chunks, DeviceArray};
use crate::error::{Error, Remedy, Result};
#[cfg(feature = "python")]
use crate::spec::all_or_errors;
use crate::spec::{Conversion, ResultSpec, Selection};

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
        match (self.results(field, None), self.varied(field)) {
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
        let fixed = results.iter().map(|result| result.require_view(self.copy, |column| self.of(column)));
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
        let Selection::Named(groups) = &self.selection else {
            return self.convert_each(field, chunks, run, |name, tensor| take(name, tensor.into()));
        };
        if self.selection.varied().next().is_none() {
            return self.convert_each(field, chunks, run, |name, tensor| take(name, tensor.into()));
        }
        self.check_groups()?;
        let there = self.bring(chunks, run)?;
        let mut made = HashMap::new();
        let fixed = groups.iter().filter(|(_, group)| group.has_fixed_rows()).cloned().collect();
        let conversion = there.conversion.as_ref().clone().select(Selection::Named(fixed));
        conversion.convert_each_there(field, &there.chunks, run, |name, tensor| {
            made.insert(name.to_owned(), Converted::Tensor(tensor));
            Ok::<_, Error>(())
        })?;
        for group in there.conversion.varied(field)? {
            let parts = there.chunks.iter().map(|chunk| group.part_of(chunk)).collect::<Result<Vec<_>>>()?;
            let results = group.convert(&parts, there.conversion.copy)?;
            made.extend(group.group.result_names(&group.name).map(str::to_owned).zip(results));
        }
        // In the order of the selection.
        for name in self.selection.names() {
            let result = made.remove(name).ok_or_else(|| Error::internal("a group without its result"))?;
            take(name, self.send_result(result, run)?)?;
        }
        Ok(())
    }

    /// A result, where it is asked for.
    fn send_result(&self, result: Converted, run: Run<'_>) -> Result<Converted> {
        Ok(match result {
            Converted::Tensor(tensor) => Converted::Tensor(self.send_one(tensor, run.worker)?),
            Converted::Ragged(rows) => self.send_rows(*rows, run.worker)?.into(),
            Converted::Arrow(batch) => Converted::Arrow(self.destination().array(&batch)?.into_owned()),
        })
    }
}
