//! Series and frames of polars: to tensors over the same memory, and back.
//!
//! A reference to a series, a column, a chunked array or a frame becomes [`Chunks`], as every method of
//! [`Conversion`](crate::Conversion) takes them. [`from_series`], [`from_chunked`] and [`from_frame`] return the arrays, over the same
//! memory, with their field.
//!
//! ```
//! use arrow_dlpack::{Conversion, CopyMode, NullPolicy};
//! use polars_core::df;
//!
//! let frame = df!("a" => [1.0_f32, 2.0], "b" => [Some(3_i16), None]).unwrap();
//!
//! // A view of a column.
//! let a = frame.column("a").unwrap().as_materialized_series();
//! let view = Conversion::default().copy(CopyMode::Never).to_tensor(a)?;
//! assert_eq!(view.as_ptr().cast_const().cast(), a.f32().unwrap().cont_slice().unwrap().as_ptr());
//!
//! // All columns as the rows of a matrix.
//! let matrix = Conversion::default().nulls(NullPolicy::Nan).to_tensor(&frame)?;
//! assert_eq!((matrix.shape(), &matrix.as_slice::<f32>()?[..3]), (&[2_i64, 2][..], &[1.0, 3.0, 2.0][..]));
//! # Ok::<(), arrow_dlpack::Error>(())
//! ```
//!
//! [`stream`] and [`try_stream`] make a source of any iterator of frames. [`to_series`], [`to_frame`], [`tensor_to_series`] and
//! [`matrix_to_frame`] lead back.
//!
//! | polars | Arrow | tensor |
//! |---|---|---|
//! | Int8 to Int64, UInt8 to UInt64, Float16 to Float64 | the same | a view |
//! | Boolean | Boolean | unpacked |
//! | Date, Datetime, Duration, Time | Date32, Timestamp, Duration, Time64 | a view of ticks |
//! | Decimal | Decimal128 | cast to a dtype |
//! | Categorical, Enum | Dictionary of string views | a view of the codes |
//! | String, Binary | string and binary views | ragged, gathered |
//! | List | LargeList | ragged |
//! | Array | FixedSizeList | a view with inner dimensions |
//! | Struct | Struct | a matrix |
//! | extension types | their storage, under the extension's name | as the storage |
//! | Int128, UInt128, Object, Unknown | none: an error that says what to do | |
//!
//! A frame whose columns are chunked differently becomes as many batches as there are different ends of chunks.
//!
//! This module shows types of polars, which has no 1.0 yet: it is outside of the promise of semver, and follows polars' releases.

mod caught;
mod export;
mod field;
mod frame;
mod import;
mod readable;
mod stream;

use arrow_schema::FieldRef;
use polars_core::prelude::{ChunkedArray, Column, DataFrame, IntoSeries, PolarsDataType, Series};

use crate::arrow::{Chunks, DeviceArray};
use crate::error::{Error, Result, try_from};

pub use export::{matrix_to_frame, tensor_to_series, to_frame, to_series};
pub use stream::{stream, try_stream};

use field::field_of;
use frame::{batches_of, materialised, row_field};
use import::{Dictionaries, chunks_of};

/// Returns the chunks of a series as arrays over the same memory, and their field. Codes have their categories as dictionary.
///
/// # Errors
/// If Arrow has no such dtype, or a code is beyond its categories. Names the column.
///
/// ```
/// use arrow_dlpack::{Chunks, Conversion, polars};
/// use polars_core::prelude::{NamedFrom, Series};
///
/// let (field, chunks) = polars::from_series(&Series::new("x".into(), [1_i32, 2]))?;
/// assert_eq!(Conversion::default().to_tensor(Chunks::new(&field, &chunks))?.as_slice::<i32>()?, [1, 2]);
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
pub fn from_series(series: &Series) -> Result<(FieldRef, Vec<DeviceArray>)> {
    let field = field_of(series.name(), series.dtype())?;
    let chunks = chunks_of(series, &field, &mut Dictionaries::default())?;
    Ok((field, chunks))
}

/// As [`from_series`], of a chunked array.
///
/// # Errors
/// As [`from_series`].
pub fn from_chunked<T: PolarsDataType>(array: &ChunkedArray<T>) -> Result<(FieldRef, Vec<DeviceArray>)>
where
    ChunkedArray<T>: IntoSeries,
{
    from_series(&array.clone().into_series())
}

/// Returns the rows of a frame as batches over the memory of its chunks, and their field. Where the columns have different chunks,
/// a batch ends with each of them.
///
/// # Errors
/// If a column has another number of rows than the frame, or the columns' chunks end in too many different rows; and as
/// [`from_series`].
pub fn from_frame(frame: &DataFrame) -> Result<(FieldRef, Vec<DeviceArray>)> {
    let field = row_field(frame.columns().iter().map(|column| (column.name(), column.dtype())))?;
    let chunks = batches_of(frame, &field, &mut Dictionaries::default())?;
    Ok((field, chunks))
}

try_from! {
    /// As [`from_series`].
    [] &Series => Chunks<'_>, |series| from_series(series).map(Self::from);
    /// As [`from_series`], of the column's series. Polars writes out a column that repeats one value, which is logged.
    [] &Column => Chunks<'_>, |column| from_series(materialised(column)?).map(Self::from);
    /// As [`from_frame`].
    [] &DataFrame => Chunks<'_>, |frame| from_frame(frame).map(Self::from);
}

impl<T: PolarsDataType> TryFrom<&ChunkedArray<T>> for Chunks<'_>
where
    ChunkedArray<T>: IntoSeries,
{
    type Error = Error;

    /// As [`from_chunked`].
    fn try_from(array: &ChunkedArray<T>) -> Result<Self> {
        from_chunked(array).map(Self::from)
    }
}
