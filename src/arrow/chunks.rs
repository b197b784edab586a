//! Combines the chunks of a column: what a conversion reads, the `Readiness` of all, their first rows, an array without rows.

use std::sync::Arc;

use arrow_array::types::{ArrowDictionaryKeyType, ArrowPrimitiveType, ByteArrayType, ByteViewType, RunEndIndexType};
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, FixedSizeBinaryArray, FixedSizeListArray, GenericByteArray,
    GenericByteViewArray, GenericListArray, GenericListViewArray, MapArray, NullArray, OffsetSizeTrait, PrimitiveArray,
    RecordBatch, RunArray, StructArray, UnionArray,
};
use arrow_schema::{Field, FieldRef};

use super::record_batch::field_of;
use super::same_schema::nullable_in_either;
use super::{ArrayNode, DeviceArray, array_ready_at};
use crate::alloc::fallible;
use crate::device::Device;
use crate::error::{Error, Result, from, try_from};
use crate::stream_order::Readiness;

/// The data of a conversion: the chunks of a column or of a table, and their field.
///
/// Methods of [`Conversion`](crate::Conversion) take whatever becomes `Chunks`: a [`DeviceArray`], a [`RecordBatch`] or an [`ArrayRef`], a
/// slice or a `Vec` of one of these, or a reference to any array of arrow-rs. A column of arrays has no name. Chunks of `DeviceArray`s are
/// borrowed. All chunks have one type; columns of record batches may differ in nullability.
///
/// ```
/// use arrow_array::{Float32Array, RecordBatch};
/// use arrow_dlpack::{Chunks, Conversion, DeviceArray};
/// use std::sync::Arc;
///
/// let prices = Float32Array::from(vec![0.5, 1.5]);
/// let tensor = Conversion::default().to_tensor(&prices)?;
/// assert_eq!(tensor.as_slice::<f32>()?, [0.5, 1.5]);
///
/// let batch = RecordBatch::try_from_iter([("price", Arc::new(prices) as _)]).unwrap();
/// let matrix = Conversion::default().to_tensor(&batch)?;
/// assert_eq!(matrix.shape(), [2, 1]);
///
/// // A column of two arrays, and a table of two batches.
/// assert_eq!(Conversion::default().to_tensor(&[batch.column(0).clone(), batch.column(0).clone()])?.shape(), [4]);
/// assert_eq!(Conversion::default().to_tensor(&[batch.clone(), batch.clone()])?.shape(), [4, 1]);
///
/// // A table of two chunks. A table without chunks needs its field.
/// let chunks = vec![DeviceArray::from_record_batch(&batch)?; 2];
/// assert_eq!(Conversion::default().to_tensor(&chunks)?.shape(), [4, 1]);
/// assert_eq!(Conversion::default().to_tensor(Chunks::new(chunks[0].field(), &[]))?.shape(), [0, 1]);
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Chunks<'a>(ChunkArrays<'a>);

#[derive(Clone, Debug)]
enum ChunkArrays<'a> {
    Borrowed(&'a FieldRef, &'a [DeviceArray]),
    Own(Box<DeviceArray>),
    Several(FieldRef, Vec<DeviceArray>),
}

impl<'a> Chunks<'a> {
    /// Chunks of a column or of a table, perhaps none. A conversion refuses a chunk of another type than the field's.
    #[must_use]
    pub const fn new(field: &'a FieldRef, arrays: &'a [DeviceArray]) -> Self {
        Self(ChunkArrays::Borrowed(field, arrays))
    }

    /// The chunks that any data is.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn of(data: impl TryInto<Self, Error: Into<Error>>) -> Result<Self> {
        data.try_into().map_err(Into::into)
    }

    /// The field of all chunks.
    #[must_use]
    pub fn field(&self) -> &FieldRef {
        match &self.0 {
            ChunkArrays::Borrowed(field, _) => field,
            ChunkArrays::Own(array) => array.field(),
            ChunkArrays::Several(field, _) => field,
        }
    }

    /// The chunks.
    #[must_use]
    pub fn arrays(&self) -> &[DeviceArray] {
        match &self.0 {
            ChunkArrays::Borrowed(_, arrays) => arrays,
            ChunkArrays::Own(array) => std::slice::from_ref(array),
            ChunkArrays::Several(_, arrays) => arrays,
        }
    }
}

from! {
    ['a] &'a DeviceArray => Chunks<'a>, |array| Self::new(array.field(), std::slice::from_ref(array));
    [] DeviceArray => Chunks<'_>, |array| Self(ChunkArrays::Own(Box::new(array)));
    /// As [`Chunks::new`], for chunks that nobody else keeps.
    [] (FieldRef, Vec<DeviceArray>) => Chunks<'_>, |(field, arrays)| Self(ChunkArrays::Several(field, arrays));
}

try_from! {
    ['a] &'a [DeviceArray] => Chunks<'a>, |arrays| match arrays {
        [first, ..] => Ok(Self::new(first.field(), arrays)),
        [] => Err(no_chunks()),
    };
    ['a, const N: usize] &'a [DeviceArray; N] => Chunks<'a>, |arrays| arrays.as_slice().try_into();
    ['a] &'a Vec<DeviceArray> => Chunks<'a>, |arrays| arrays.as_slice().try_into();
    [] Vec<DeviceArray> => Chunks<'_>, |arrays| {
        let field = arrays.first().ok_or_else(no_chunks)?.field().clone();
        Ok(Self::from((field, arrays)))
    };
    [] &RecordBatch => Chunks<'_>, |batch| DeviceArray::from_record_batch(batch).map(Self::from);
    [] RecordBatch => Chunks<'_>, |batch| Self::try_from(&batch);
    [] &[RecordBatch] => Chunks<'_>, |batches| {
        let field = field_of_all(batches)?;
        let arrays = fallible::collected(batches.iter().map(|batch| DeviceArray::of_stream(batch, &field)))?;
        Ok(Self::from((field, arrays)))
    };
    [const N: usize] &[RecordBatch; N] => Chunks<'_>, |batches| batches.as_slice().try_into();
    [] &Vec<RecordBatch> => Chunks<'_>, |batches| batches.as_slice().try_into();
    [] Vec<RecordBatch> => Chunks<'_>, |batches| batches.as_slice().try_into();
    [] &dyn Array => Chunks<'_>, |array| DeviceArray::from_arrow(array, unnamed(array)).map(Self::from);
    [] &ArrayRef => Chunks<'_>, |array| array.as_ref().try_into();
    [] ArrayRef => Chunks<'_>, |array| array.as_ref().try_into();
    [] &[ArrayRef] => Chunks<'_>, |arrays| {
        let field = unnamed(arrays.first().ok_or_else(no_chunks)?);
        let chunk = |array: &ArrayRef| {
            let is_same = array.data_type() == field.data_type();
            DeviceArray::from_arrow(array, if is_same { field.clone() } else { unnamed(array) })
        };
        let arrays = fallible::collected(arrays.iter().map(chunk))?;
        Ok(Self::from((field, arrays)))
    };
    [const N: usize] &[ArrayRef; N] => Chunks<'_>, |arrays| arrays.as_slice().try_into();
    [] &Vec<ArrayRef> => Chunks<'_>, |arrays| arrays.as_slice().try_into();
    [] Vec<ArrayRef> => Chunks<'_>, |arrays| arrays.as_slice().try_into();
}

/// The field of the first batch, with the columns nullable that are nullable in any batch of the same columns.
fn field_of_all(batches: &[RecordBatch]) -> Result<FieldRef> {
    let schema = batches.first().ok_or_else(no_chunks)?.schema_ref();
    let mut field = field_of(schema);
    for other in batches.iter().map(RecordBatch::schema_ref).filter(|other| *other != schema) {
        field = nullable_in_either(field, &field_of(other));
    }
    Ok(field)
}

/// The field of an array that has no name.
fn unnamed(array: &dyn Array) -> FieldRef {
    Arc::new(Field::new("", array.data_type().clone(), true))
}

/// The error of chunks that have no first one, whose field would be that of all.
fn no_chunks() -> Error {
    Error::argument("no chunks have no type").remedy_is("pass Chunks::new with their field")
}

// Arrays of arrow-rs, one by one: an `impl` for all of them would forbid that of record batches.
try_from! {
    [T: ArrowPrimitiveType] &PrimitiveArray<T> => Chunks<'_>, |array| Self::try_from(array as &dyn Array);
    [] &NullArray => Chunks<'_>, |array| Self::try_from(array as &dyn Array);
    [] &BooleanArray => Chunks<'_>, |array| Self::try_from(array as &dyn Array);
    [] &FixedSizeBinaryArray => Chunks<'_>, |array| Self::try_from(array as &dyn Array);
    [] &FixedSizeListArray => Chunks<'_>, |array| Self::try_from(array as &dyn Array);
    [] &StructArray => Chunks<'_>, |array| Self::try_from(array as &dyn Array);
    [] &MapArray => Chunks<'_>, |array| Self::try_from(array as &dyn Array);
    [] &UnionArray => Chunks<'_>, |array| Self::try_from(array as &dyn Array);
    [T: ByteArrayType] &GenericByteArray<T> => Chunks<'_>, |array| Self::try_from(array as &dyn Array);
    [T: ByteViewType] &GenericByteViewArray<T> => Chunks<'_>, |array| Self::try_from(array as &dyn Array);
    [O: OffsetSizeTrait] &GenericListArray<O> => Chunks<'_>, |array| Self::try_from(array as &dyn Array);
    [O: OffsetSizeTrait] &GenericListViewArray<O> => Chunks<'_>, |array| Self::try_from(array as &dyn Array);
    [K: ArrowDictionaryKeyType] &DictionaryArray<K> => Chunks<'_>, |array| Self::try_from(array as &dyn Array);
    [R: RunEndIndexType] &RunArray<R> => Chunks<'_>, |array| Self::try_from(array as &dyn Array);
}

impl DeviceArray {
    /// Returns the readiness of chunks that are on a device: that of the first one with rows, because the others are
    /// not read.
    pub(crate) fn readiness_of<'a, I>(chunks: I) -> Option<&'a Readiness>
    where
        I: IntoIterator<Item = &'a Self, IntoIter: Clone>,
    {
        let chunks = chunks.into_iter();
        chunks.clone().filter(|chunk| !chunk.is_empty()).chain(chunks).find_map(Self::readiness)
    }

    /// The rows of all chunks.
    pub(crate) fn rows_of(chunks: &[Self]) -> usize {
        chunks.iter().fold(0, |rows, chunk| rows.saturating_add(chunk.len()))
    }

    /// Where rows are: chunks without any may be elsewhere. The CPU, if there are no chunks.
    pub(crate) fn device_of(chunks: &[Self]) -> Device {
        let filled = chunks.iter().find(|chunk| !chunk.is_empty());
        filled.or(chunks.first()).map_or(Device::CPU, Self::device)
    }

    /// The first rows of all chunks.
    pub(crate) fn first_rows(chunks: &[Self], rows: usize) -> Vec<Self> {
        let mut left = rows;
        let first = |chunk: &Self| {
            let chunk = chunk.clipped(&(0..left));
            left = left.saturating_sub(chunk.len());
            chunk
        };
        chunks.iter().map(first).collect()
    }

    /// Joins the readiness of all chunks with rows; `None` if none of them is on a device.
    ///
    /// # Errors
    /// If they are on different devices, or the driver fails.
    pub(crate) fn joined_readiness<'a>(chunks: impl IntoIterator<Item = &'a Self>) -> Result<Option<Readiness>> {
        let filled = chunks.into_iter().filter(|chunk| !chunk.is_empty());
        Readiness::joined(filled.filter_map(|chunk| chunk.readiness().cloned()))
    }
}

/// Returns an array without slots on a device.
pub(crate) fn empty_on(field: FieldRef, device: Device) -> Result<DeviceArray> {
    let empty = DeviceArray::from_arrow(arrow_array::new_empty_array(field.data_type()).as_ref(), field.clone())?;
    array_ready_at(ArrayNode::of(&empty)?.export(&empty.owner())?, field, Readiness::written(device))
}

#[cfg(test)]
mod tests {
    use arrow_array::{Int32Array, Int64Array};

    use super::*;
    use crate::error::ErrorKind;

    fn batch(values: ArrayRef) -> RecordBatch {
        RecordBatch::try_from_iter([("n", values)]).unwrap()
    }

    fn rows<'a>(data: impl TryInto<Chunks<'a>, Error: Into<Error>>) -> Result<usize> {
        Chunks::of(data).map(|chunks| DeviceArray::rows_of(chunks.arrays()))
    }

    #[test]
    fn batches_and_arrays_are_chunks_however_they_are_held() {
        let batches = vec![batch(Arc::new(Int32Array::from(vec![1]))), batch(Arc::new(Int32Array::from(vec![2, 3])))];
        let arrays = || batches.iter().map(DeviceArray::from_record_batch).collect::<Result<Vec<_>>>().unwrap();
        let found = [
            rows(&batches),
            rows(batches.as_slice()),
            rows(&[batches[0].clone(), batches[1].clone()]),
            rows(arrays()),
            rows(batches[1].clone()).map(|rows| rows + 1),
            rows(&NullArray::new(3)),
        ];
        assert!(found.iter().all(|rows| matches!(rows, Ok(3))), "{found:?}");
        let chunks = Chunks::of(&batches).unwrap();
        assert!(chunks.arrays().iter().all(|array| Arc::ptr_eq(array.field(), chunks.field())));
    }

    #[test]
    fn no_batches_are_no_chunks_and_batches_of_another_schema_are_refused() {
        for error in [rows(&Vec::<RecordBatch>::new()), rows(Vec::<DeviceArray>::new())].map(Result::unwrap_err) {
            assert!(error.kind() == ErrorKind::Argument && error.remedy().is_some(), "{error}");
        }
        let batches = [batch(Arc::new(Int32Array::from(vec![1]))), batch(Arc::new(Int64Array::from(vec![2])))];
        assert!(crate::Conversion::default().to_tensor(&batches).is_err());
    }

    #[test]
    fn arrays_are_the_chunks_of_a_column() {
        let arrays: Vec<ArrayRef> = vec![Arc::new(Int32Array::from(vec![1, 2])), Arc::new(Int32Array::from(vec![3]))];
        let read = |tensor: Result<crate::Tensor>| tensor.and_then(|tensor| tensor.to_vec::<i32>()).unwrap();
        let conversion = crate::Conversion::default();
        assert_eq!(read(conversion.to_tensor(&arrays)), [1, 2, 3]);
        assert_eq!(read(conversion.to_tensor(arrays.as_slice())), [1, 2, 3]);
        assert_eq!(read(conversion.to_tensor(arrays.clone())), [1, 2, 3]);
        assert_eq!(read(conversion.to_tensor(&[arrays[0].clone(), arrays[1].clone()])), [1, 2, 3]);
        assert_eq!(read(conversion.to_tensor(arrays[1].clone())), [3]);
        assert_eq!(read(conversion.to_tensor(vec![batch(arrays[0].clone()), batch(arrays[1].clone())])), [1, 2, 3]);
        let other: ArrayRef = Arc::new(Int64Array::from(vec![4]));
        let error = conversion.to_tensor(&[arrays[0].clone(), other]).unwrap_err();
        assert_eq!((error.kind(), error.remedy().as_deref()), (ErrorKind::Invalid, Some("give all chunks one schema")));
        assert_eq!(conversion.to_tensor(&Vec::<ArrayRef>::new()).unwrap_err().kind(), ErrorKind::Argument);
    }
}
