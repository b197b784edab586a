//! Conversions of whatever the tests have at hand.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_dlpack::{Conversion, CopyMode, DeviceArray, Ragged, Result, Tensor, polars};
use arrow_schema::{Field, FieldRef};
use polars_core::prelude::{ChunkedArray, DataFrame, IntoSeries, PolarsDataType, Series};

/// Chunks with their field.
#[derive(Clone, Debug)]
pub struct Chunks {
    /// The field of all chunks.
    pub field: FieldRef,
    /// The chunks.
    pub arrays: Vec<DeviceArray>,
}

impl Chunks {
    /// The field of all chunks.
    #[must_use]
    pub fn field(&self) -> &FieldRef {
        &self.field
    }

    /// The chunks.
    #[must_use]
    pub fn arrays(&self) -> &[DeviceArray] {
        &self.arrays
    }
}

/// What is chunks of a column or of a table.
pub trait Source {
    /// The chunks.
    ///
    /// # Errors
    /// When there are none.
    fn chunks(&self) -> Result<Chunks>;
}

/// The chunks of any data.
///
/// # Errors
/// When there are none.
pub fn chunks<S: Source + ?Sized>(source: &S) -> Result<Chunks> {
    source.chunks()
}

/// As [`polars::to_series`].
///
/// # Errors
/// As [`polars::to_series`].
pub fn to_series<S: Source + ?Sized>(source: &S, copy: CopyMode) -> Result<Series> {
    let chunks = source.chunks()?;
    polars::to_series(&chunks.field, &chunks.arrays, copy)
}

/// As [`polars::to_frame`].
///
/// # Errors
/// As [`polars::to_frame`].
pub fn to_frame<S: Source + ?Sized>(source: &S, copy: CopyMode) -> Result<DataFrame> {
    let chunks = source.chunks()?;
    polars::to_frame(&chunks.field, &chunks.arrays, copy)
}

/// Methods of a `Conversion` that take any source.
pub trait Convert {
    /// As [`Conversion::to_tensor`].
    ///
    /// # Errors
    /// As [`Conversion::to_tensor`].
    fn tensor<S: Source + ?Sized>(&self, source: &S) -> Result<Tensor>;
    /// As [`Conversion::to_tensors`].
    ///
    /// # Errors
    /// As [`Conversion::to_tensors`].
    fn tensors<S: Source + ?Sized>(&self, source: &S) -> Result<Vec<(String, Tensor)>>;
    /// Rows of different lengths.
    ///
    /// # Errors
    /// As [`Conversion::ragged`].
    fn rows<S: Source + ?Sized>(&self, source: &S) -> Result<Ragged>;
    /// As [`Conversion::validity`].
    ///
    /// # Errors
    /// As [`Conversion::validity`].
    fn valid<S: Source + ?Sized>(&self, source: &S) -> Result<Tensor>;
}

/// The chunks as a conversion takes them.
fn data(chunks: &Chunks) -> arrow_dlpack::Chunks<'_> {
    arrow_dlpack::Chunks::new(&chunks.field, &chunks.arrays)
}

impl Convert for Conversion {
    fn tensor<S: Source + ?Sized>(&self, source: &S) -> Result<Tensor> {
        let chunks = source.chunks()?;
        self.to_tensor(data(&chunks))
    }

    fn tensors<S: Source + ?Sized>(&self, source: &S) -> Result<Vec<(String, Tensor)>> {
        let chunks = source.chunks()?;
        self.to_tensors(data(&chunks))
    }

    fn rows<S: Source + ?Sized>(&self, source: &S) -> Result<Ragged> {
        let chunks = source.chunks()?;
        self.ragged(data(&chunks))
    }

    fn valid<S: Source + ?Sized>(&self, source: &S) -> Result<Tensor> {
        let chunks = source.chunks()?;
        self.validity(data(&chunks))
    }
}

fn of_array(array: &dyn Array) -> Result<Chunks> {
    let field: FieldRef = Arc::new(Field::new("", array.data_type().clone(), true));
    let arrays = vec![DeviceArray::from_arrow(array, field.clone())?];
    Ok(Chunks { field, arrays })
}

fn of((field, arrays): (FieldRef, Vec<DeviceArray>)) -> Chunks {
    Chunks { field, arrays }
}

impl<S: Source + ?Sized> Source for &S {
    fn chunks(&self) -> Result<Chunks> {
        (**self).chunks()
    }
}

impl Source for Chunks {
    fn chunks(&self) -> Result<Chunks> {
        Ok(self.clone())
    }
}

impl Source for Series {
    fn chunks(&self) -> Result<Chunks> {
        polars::from_series(self).map(of)
    }
}

impl<T: PolarsDataType> Source for ChunkedArray<T>
where
    Self: IntoSeries,
{
    fn chunks(&self) -> Result<Chunks> {
        polars::from_chunked(self).map(of)
    }
}

impl Source for DataFrame {
    fn chunks(&self) -> Result<Chunks> {
        polars::from_frame(self).map(of)
    }
}

impl Source for DeviceArray {
    fn chunks(&self) -> Result<Chunks> {
        Ok(Chunks { field: self.field().clone(), arrays: vec![self.clone()] })
    }
}

impl Source for Vec<DeviceArray> {
    fn chunks(&self) -> Result<Chunks> {
        Ok(Chunks { field: self[0].field().clone(), arrays: self.clone() })
    }
}

impl Source for RecordBatch {
    fn chunks(&self) -> Result<Chunks> {
        DeviceArray::from_record_batch(self)?.chunks()
    }
}

impl Source for ArrayRef {
    fn chunks(&self) -> Result<Chunks> {
        of_array(self.as_ref())
    }
}

impl Source for dyn Array + '_ {
    fn chunks(&self) -> Result<Chunks> {
        of_array(self)
    }
}

macro_rules! arrays {
    ($($name:ident),+) => {
        $(impl Source for arrow_array::$name {
            fn chunks(&self) -> Result<Chunks> {
                of_array(self)
            }
        })+
    };
}
arrays!(
    BooleanArray,
    Float32Array,
    Int64Array,
    Int8Array,
    StringViewArray,
    TimestampMicrosecondArray,
    TimestampSecondArray
);
