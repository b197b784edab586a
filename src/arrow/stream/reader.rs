//! Streams of a reader of record batches, and readers of a stream.

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};

use super::DeviceArrayStream;
use crate::arrow::import::DeviceArray;
use crate::arrow::record_batch::{field_of, schema_of};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::dlpack::DLDeviceType;

impl DeviceArrayStream {
    /// Returns a stream of a reader's record batches, as arrays of structs. Each batch is read only when it is needed.
    /// An error of the reader is the source of the stream's.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use arrow_dlpack::DeviceArrayStream;
    /// use arrow_dlpack::arrow_array::{ArrayRef, Int32Array, RecordBatch, RecordBatchIterator};
    ///
    /// let column: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    /// let batch = RecordBatch::try_from_iter([("a", column)])?;
    /// let reader = RecordBatchIterator::new([Ok(batch.clone())], batch.schema());
    /// let mut reader = DeviceArrayStream::from_reader(reader).into_reader()?;
    /// assert_eq!(reader.next().transpose()?, Some(batch));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn from_reader(reader: impl RecordBatchReader + Send + 'static) -> Self {
        let field = field_of(&reader.schema());
        let of_stream = field.clone();
        let arrays = reader.map(move |batch| DeviceArray::of_stream(&batch?, &of_stream));
        Self::new(field, DLDeviceType::CPU, arrays)
    }

    /// Returns a reader of the stream's arrays of structs as record batches. It returns errors as
    /// [`ArrowError::ExternalError`], which [`Error::from`] unwraps.
    ///
    /// # Errors
    /// If the arrays are not structs, or not in host memory.
    pub fn into_reader(self) -> Result<Box<dyn RecordBatchReader + Send>> {
        let schema = schema_of(self.field())?;
        if self.device_type() != DLDeviceType::CPU {
            let device = Device::new(self.device_type(), 0);
            return Err(Error::new(ErrorKind::Device, format!("the stream's arrays are on {device}"))
                .remedy_is(device.host_remedy()));
        }
        Ok(Box::new(Reader { schema, stream: self }))
    }
}

/// The record batches of a stream of arrays of structs.
struct Reader {
    schema: SchemaRef,
    stream: DeviceArrayStream,
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let array = self.stream.next()?;
        // An array may differ from the schema in names and nullability.
        let array = array.and_then(|array| array.relabel(self.stream.field().clone()));
        Some(array.and_then(|array| array.to_batch_of(self.schema.clone())).map_err(ArrowError::from))
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
