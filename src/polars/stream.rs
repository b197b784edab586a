//! Iterators of frames as streams.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_schema::FieldRef;
use polars_core::prelude::{DataFrame, Schema};

use super::caught::caught;
use super::frame::{batches_of, row_field};
use super::import::Dictionaries;
use crate::arrow::{DeviceArray, DeviceArrayStream};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};

/// Returns a stream of the rows of these frames, for [`Conversion::read_tensors`](crate::Conversion::read_tensors) and the
/// [loader](crate::loader). Takes the first frame now, for its schema, and each other one when its rows are read.
///
/// # Errors
/// If there is no frame, or as [`try_stream`]. The stream's errors are those of [`try_stream`].
///
/// ```
/// use arrow_dlpack::{Conversion, polars};
/// use polars_core::df;
///
/// let frames = (0..3).map(|day| df!("x" => [day, day + 1], "y" => [0.5, 1.5]).unwrap());
/// let mut stream = polars::stream(frames)?;
/// let matrix = Conversion::default().read_tensor(&mut stream)?;
/// assert_eq!(matrix.shape(), [6, 2]);
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
pub fn stream(frames: impl IntoIterator<Item = DataFrame, IntoIter: Send + 'static>) -> Result<DeviceArrayStream> {
    let mut frames = frames.into_iter();
    let first = frames.next().ok_or_else(|| {
        Error::argument("a stream of no frames has no schema").remedy_is("pass the schema: polars::try_stream")
    })?;
    let schema = caught(|| Ok(first.schema().clone()))?;
    try_stream(&schema, std::iter::once(first).chain(frames).map(Ok::<_, Error>))
}

/// Returns a stream of the rows of frames that may fail, such as those of a query that runs in batches. The frames are taken when
/// their rows are read. After an error the stream ends.
///
/// # Errors
/// If a dtype of the schema has no Arrow type: names every such column. The stream's errors are those of the frames, of the kind
/// [`ErrorKind::Producer`] and with their cause as source; and an error for a frame that has other columns, in names, order or
/// dtypes, or whose columns do not have its number of rows.
pub fn try_stream<E>(
    schema: &Schema,
    frames: impl IntoIterator<Item = Result<DataFrame, E>, IntoIter: Send + 'static>,
) -> Result<DeviceArrayStream>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
{
    let field = row_field(schema.iter())?;
    let batches = FrameBatches {
        schema: schema.clone(),
        field: field.clone(),
        frames: Some(frames.into_iter()),
        ready: VecDeque::new(),
        dictionaries: Dictionaries::default(),
    };
    Ok(DeviceArrayStream::new(field, Device::CPU.device_type(), batches))
}

/// The batches of frames, those of one frame at a time.
struct FrameBatches<I> {
    schema: Schema,
    field: FieldRef,
    /// `None` at the end, and after an error.
    frames: Option<I>,
    ready: VecDeque<DeviceArray>,
    dictionaries: Dictionaries,
}

impl<I, E> Iterator for FrameBatches<I>
where
    I: Iterator<Item = Result<DataFrame, E>>,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Item = Result<DeviceArray>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Some(Ok(batch));
            }
            let frame = self.frames.as_mut()?.next();
            let batches = match frame {
                None => {
                    self.frames = None;
                    return None;
                }
                Some(frame) => frame.map_err(of_producer).and_then(|frame| self.batches(&frame)),
            };
            match batches {
                Ok(batches) => self.ready.extend(batches),
                Err(error) => {
                    self.frames = None;
                    return Some(Err(error));
                }
            }
        }
    }
}

impl<I> FrameBatches<I> {
    fn batches(&mut self, frame: &DataFrame) -> Result<Vec<DeviceArray>> {
        let names = frame.columns().iter().map(|column| column.name());
        if !names.eq(self.schema.iter_names()) {
            let (found, expected) = (frame.get_column_names(), self.schema.iter_names().collect::<Vec<_>>());
            return Err(Error::argument(format!("a frame of the columns {found:?} in a stream of {expected:?}"))
                .remedy_is("select the same columns, in the same order, from each frame"));
        }
        for (column, (name, dtype)) in frame.columns().iter().zip(self.schema.iter()) {
            if column.dtype() != dtype {
                // Categories print alike whatever they are.
                let (found, expected) = (column.dtype().to_string(), dtype.to_string());
                let reason = if found == expected {
                    format!("{found} of other categories than the stream's")
                } else {
                    format!("{found} in a stream of {expected}")
                };
                return Err(Error::argument(reason)
                    .remedy_is("cast the column of each frame to one dtype first")
                    .in_column(name));
            }
        }
        batches_of(frame, &self.field, &mut self.dictionaries)
    }
}

fn of_producer(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let cause = error.into();
    // Errors of this crate keep their kind, column and row.
    match cause.downcast::<Error>() {
        Ok(error) => *error,
        Err(cause) => Error::new(ErrorKind::Producer, cause.to_string()).caused_by(Arc::from(cause)),
    }
}
