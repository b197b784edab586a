//! Record batches of arrow-rs as arrays of structs, and back.

use std::sync::Arc;

use arrow_array::{Array, RecordBatch, RecordBatchOptions, StructArray};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};

use super::import::DeviceArray;
use crate::error::{Error, ErrorKind, Result, try_from};

impl DeviceArray {
    /// Shares a record batch, as an array of structs. The metadata of its schema becomes that of the field.
    ///
    /// # Errors
    /// If a column is nested deeper than 63 levels, or memory for its bitmaps cannot be allocated.
    pub fn from_record_batch(batch: &RecordBatch) -> Result<Self> {
        Self::of_stream(batch, &field_of(batch.schema_ref()))
    }

    /// Like [`DeviceArray::from_record_batch`], for a table or a stream of this field. A batch of another schema is under its own field, which
    /// the stream refuses if the layouts differ; one that differs in nullability alone is under this field, unless it may have nulls that this
    /// field says there are none of.
    pub(super) fn of_stream(batch: &RecordBatch, field: &FieldRef) -> Result<Self> {
        let is_same = matches!(field.data_type(), DataType::Struct(fields) if batch.schema_ref().fields() == fields);
        let own = if is_same { field.clone() } else { field_of(batch.schema_ref()) };
        Self::from_arrow(&StructArray::from(batch.clone()), own)?.part_of(field)
    }

    /// Returns an array of structs as a record batch over the same memory. The field's metadata becomes that of the
    /// schema. Metadata that is not UTF-8 is text that begins with U+10FFFE and has a character for each byte; exports by the C data
    /// interface have the bytes again.
    ///
    /// # Errors
    /// If this is not an array of structs, a struct is null, or as [`DeviceArray::to_arrow`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// use arrow_dlpack::DeviceArray;
    /// use arrow_dlpack::arrow_array::{ArrayRef, Int32Array, RecordBatch};
    ///
    /// let column: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    /// let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
    /// let array = DeviceArray::try_from(&batch)?;
    /// assert_eq!(array.to_record_batch()?, batch);
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn to_record_batch(&self) -> Result<RecordBatch> {
        self.to_batch_of(schema_of(self.field())?)
    }

    /// Like [`DeviceArray::to_record_batch`], with a schema of this array's columns.
    pub(super) fn to_batch_of(&self, schema: SchemaRef) -> Result<RecordBatch> {
        let array = self.to_arrow()?;
        let structs = array.as_any().downcast_ref::<StructArray>();
        let structs = structs.ok_or_else(|| Error::internal("an array of structs became another one"))?;
        if let Some(row) = structs.nulls().and_then(|nulls| nulls.iter().position(|valid| !valid)) {
            let reason = "a null struct, and a record batch has no null rows";
            return Err(Error::new(ErrorKind::Null, reason)
                .remedy_is("leave out these rows, or read the columns: DeviceArray::column hands the nulls on")
                .at_row(row)
                .in_column(self.field().name()));
        }
        let rows = RecordBatchOptions::new().with_row_count(Some(structs.len()));
        Ok(RecordBatch::try_new_with_options(schema, structs.columns().to_owned(), &rows)?)
    }
}

/// Returns the field of the arrays of structs that hold batches of this schema.
pub(crate) fn field_of(schema: &Schema) -> FieldRef {
    let data_type = DataType::Struct(schema.fields().clone());
    Arc::new(Field::new("", data_type, false).with_metadata(schema.metadata().clone()))
}

/// Returns the schema of the record batches that arrays of this field hold.
///
/// # Errors
/// If the field is not of structs.
pub(crate) fn schema_of(field: &Field) -> Result<SchemaRef> {
    let DataType::Struct(fields) = field.data_type() else {
        return Err(Error::argument(format!("an array of {} is no record batch", field.data_type()))
            .remedy_is("use DeviceArray::to_arrow, or make a column of it")
            .in_column(field.name()));
    };
    Ok(Arc::new(Schema::new_with_metadata(fields.clone(), field.metadata().clone())))
}

try_from! {
    /// As [`DeviceArray::from_record_batch`].
    [] &RecordBatch => DeviceArray, |batch| Self::from_record_batch(batch);
    /// As [`DeviceArray::from_record_batch`].
    [] RecordBatch => DeviceArray, |batch| Self::from_record_batch(&batch);
    /// As [`DeviceArray::to_record_batch`].
    [] &DeviceArray => RecordBatch, |array| array.to_record_batch();
    /// As [`DeviceArray::to_record_batch`].
    [] DeviceArray => RecordBatch, |array| array.to_record_batch();
}
