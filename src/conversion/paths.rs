//! Takes the columns that a [`Conversion`] names by path out of its data.

use crate::arrow::{Chunks, DeviceArrayStream};
use crate::column::check_types;
use crate::error::{Error, Result};
use crate::spec::Conversion;

impl Conversion {
    /// Returns the chunks that the conversion reads of any data: those of [`Conversion::at_paths`].
    ///
    /// # Errors
    /// If the data is none, and as [`Conversion::at_paths`].
    pub(super) fn chunks_of<'a>(&self, data: impl TryInto<Chunks<'a>, Error: Into<Error>>) -> Result<Chunks<'a>> {
        self.at_paths(Chunks::of(data)?)
    }

    /// Returns the chunks that the conversion reads of these: structs of the columns that it names, if it names fields of structs.
    ///
    /// # Errors
    /// For paths that lead to no field, chunks of different types, and nulls of a struct that cannot be those of its field.
    pub(crate) fn at_paths<'a>(&self, chunks: Chunks<'a>) -> Result<Chunks<'a>> {
        let Some(paths) = self.paths(chunks.field())? else { return Ok(chunks) };
        check_types(chunks.field(), chunks.arrays())?;
        let arrays = chunks.arrays().iter().map(|array| array.at_paths(&paths)).collect::<Result<Vec<_>>>()?;
        Ok((paths.field().clone(), arrays).into())
    }

    /// Reads a stream whose arrays are those of [`Conversion::at_paths`] meanwhile.
    ///
    /// # Errors
    /// For paths that lead to no field, and those of `read`.
    pub(crate) fn with_paths<R>(
        &self,
        stream: &mut DeviceArrayStream,
        read: impl FnOnce(&mut DeviceArrayStream) -> Result<R>,
    ) -> Result<R> {
        let Some(paths) = self.paths(stream.field())? else { return read(stream) };
        let before = stream.set_paths(Some(paths));
        let result = read(stream);
        stream.set_paths(before);
        result
    }

    /// Returns a stream of the arrays of [`Conversion::at_paths`].
    ///
    /// # Errors
    /// For paths that lead to no field.
    pub(crate) fn stream_at_paths(&self, mut stream: DeviceArrayStream) -> Result<DeviceArrayStream> {
        if let Some(paths) = self.paths(stream.field())? {
            stream.set_paths(Some(paths));
        }
        Ok(stream)
    }
}
