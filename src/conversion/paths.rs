//! Takes the columns that a [`Conversion`] names by path out of its data.

use crate::arrow::{Chunks, DeviceArrayStream};
use crate::column::check_types;
use crate::error::{Error, Result};
use crate::kernels::join_bits;
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
        let arrays =
            chunks.arrays().iter().map(|array| array.at_paths(&paths, join_bits)).collect::<Result<Vec<_>>>()?;
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
        let before = stream.set_paths(Some((paths, join_bits)));
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
            stream.set_paths(Some((paths, join_bits)));
        }
        Ok(stream)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Array, ArrayRef, Int32Array, RecordBatch, StructArray};
    use arrow_schema::{DataType, Field};

    use super::*;
    use crate::arrow::DeviceArray;
    use crate::device::Device;

    fn stream() -> DeviceArrayStream {
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
        let fields = vec![Field::new("a", DataType::Int32, false)];
        let structs: ArrayRef = Arc::new(StructArray::new(fields.into(), vec![numbers], None));
        let batch = DeviceArray::from_record_batch(&RecordBatch::try_from_iter([("s", structs)]).unwrap()).unwrap();
        let field = batch.field().clone();
        DeviceArrayStream::new(field, Device::CPU.device_type(), std::iter::repeat_n(Ok(batch), 2))
    }

    #[test]
    fn a_stream_has_the_columns_of_paths_while_it_is_read_by_them() {
        let conversion = Conversion::default().columns(["s.a"]);
        let (mut stream, field) = (stream(), stream().field().clone());
        let matrix = conversion.read_tensor(&mut stream).unwrap();
        assert_eq!((matrix.shape(), matrix.as_slice::<i32>().unwrap()), (&[4_i64, 1][..], &[1, 2, 1, 2][..]));
        assert_eq!(stream.field(), &field);
        assert!(Conversion::default().columns(["s.b"]).read_tensor(&mut stream).is_err());
        assert_eq!(stream.field(), &field);
    }

    #[test]
    fn a_stream_at_paths_has_their_columns() {
        let mut stream = Conversion::default().columns(["s.a"]).stream_at_paths(stream()).unwrap();
        assert_eq!(
            stream.field().data_type(),
            &DataType::Struct(vec![Field::new("s.a", DataType::Int32, false)].into())
        );
        let array = stream.next().unwrap().unwrap().to_arrow().unwrap();
        assert_eq!(array.data_type(), stream.field().data_type());
    }
}
