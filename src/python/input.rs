//! Reads arguments whole, by the protocols that they offer: Arrow before DLPack.

use std::sync::{Arc, LazyLock};

use arrow_schema::{DataType, Field, FieldRef};
use pyo3::prelude::*;

use smallvec::{SmallVec, smallvec};

pub use super::arrow_input::{ArrowInput, arrow};
use super::arrow_input::{Refuses, Unread, unread};
use super::detach::runner;
use super::pandas::pandas_index;
pub use super::schema::schema;
use super::sources::{self, Projection, no_protocol};
use super::streamed::{Makes, Making, is_in_memory};
use super::tensor_input::dlpack_to_convert;
pub use super::tensor_input::import_dlpack;
use super::{ArrayStream, Tensor};
use crate::arrow::{Chunks, DeviceArray, DeviceArrayStream, empty_on};
use crate::column::Runner;
use crate::conversion::{Run, TensorColumn};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::matrix::Read;
use crate::spec::{Conversion, CopyMode, PandasIndex};
use crate::tensor::Tensor as Core;

/// The chunks of a column or a table: one array, or every array of a stream.
#[derive(Debug)]
pub struct InputChunks {
    /// The type of every chunk of a stream; an array has its own.
    stream_field: Option<FieldRef>,
    /// The chunks, perhaps none.
    pub(super) arrays: SmallVec<[DeviceArray; 1]>,
    /// The results of a stream that was converted while it was read, by name, in host memory.
    pub(super) results: Option<Vec<(String, Core)>>,
    /// The dtype of a tensor of complex numbers, which Arrow knows as pairs of floats.
    natural: Option<DType>,
    /// Which index columns of pandas are among all columns.
    pub(super) index: PandasIndex,
    /// Whether all memory was copied for this call alone.
    pub(super) is_own: bool,
}

impl InputChunks {
    fn one(array: DeviceArray) -> Self {
        Self {
            stream_field: None,
            arrays: smallvec![array],
            results: None,
            natural: None,
            index: PandasIndex::KeepNamed,
            is_own: false,
        }
    }

    /// The type of every chunk.
    #[must_use]
    pub fn field(&self) -> &FieldRef {
        static NOTHING: LazyLock<FieldRef> = LazyLock::new(|| Arc::new(Field::new("", DataType::Null, true)));
        // Without a field of a stream there is an array.
        self.stream_field.as_ref().or_else(|| self.arrays.first().map(DeviceArray::field)).unwrap_or(&NOTHING)
    }

    /// The chunks, perhaps none.
    #[must_use]
    pub fn arrays(&self) -> &[DeviceArray] {
        &self.arrays
    }

    /// Where the rows are: chunks without any may be elsewhere. The CPU, if there are no chunks.
    #[must_use]
    pub fn device(&self) -> Device {
        DeviceArray::device_of(&self.arrays)
    }

    /// How a conversion of these chunks is run.
    pub(super) fn run<'a>(&self, runner: &'a Runner<'a>) -> Run<'a> {
        Run { natural: self.natural, is_own: self.is_own, runner }
    }

    /// Reads an argument whole. Tensors of DLPack are columns too: strided ones are gathered, unless `copy` is `Never`.
    ///
    /// # Errors
    /// `TypeError` for an object that gives no Arrow data and is no tensor, what its dunders raise, or what is wrong with its data.
    pub fn read(object: &Bound<'_, PyAny>, copy: CopyMode) -> PyResult<Self> {
        Self::read_unless(object, &Conversion::default().copy(copy), &|_| Ok(()))
    }

    /// As [`InputChunks::read_unless`]; what `makes` says is made of a stream while it is read, where that saves memory: then there are
    /// results, and no arrays.
    ///
    /// # Errors
    /// As [`InputChunks::read_unless`], and those of the results.
    pub(super) fn read_making(
        object: &Bound<'_, PyAny>,
        conversion: &Conversion,
        refuses: Refuses<'_>,
        makes: Makes<'_>,
    ) -> PyResult<Self> {
        Self::read_by(object, conversion, refuses, Some(makes))
    }

    /// As [`InputChunks::read`], unless the object is a stream the type of which `refuses`: nothing of it is read then. A tensor of a
    /// device comes to the host before, if the conversion asks for that: there it can be strided.
    ///
    /// # Errors
    /// As [`InputChunks::read`], and what `refuses` says.
    pub(super) fn read_unless(
        object: &Bound<'_, PyAny>,
        conversion: &Conversion,
        refuses: Refuses<'_>,
    ) -> PyResult<Self> {
        Self::read_by(object, conversion, refuses, None)
    }

    fn read_by(
        object: &Bound<'_, PyAny>,
        conversion: &Conversion,
        refuses: Refuses<'_>,
        makes: Option<Makes<'_>>,
    ) -> PyResult<Self> {
        let refuses = |unread: &Unread<'_>| refuses(&unread.of_type(&*conversion.type_at_paths(unread.field)?));
        let read = match makes {
            Some(makes) => {
                let makes = |unread: &Unread<'_>| makes(&unread.of_type(&*conversion.type_at_paths(unread.field)?));
                Self::read_columns(object, conversion, &refuses, Some(&makes))?
            }
            None => Self::read_columns(object, conversion, &refuses, None)?,
        };
        if conversion.paths(read.field())?.is_none() {
            return Ok(read);
        }
        // Nulls of structs are joined with those of their fields.
        Ok(object.py().detach(|| read.at_paths(conversion))?)
    }

    /// These chunks, as structs of the columns that the conversion names, if it names fields of structs.
    fn at_paths(self, conversion: &Conversion) -> Result<Self> {
        let chunks = conversion.at_paths(Chunks::new(self.field(), &self.arrays))?;
        let (field, arrays) = (chunks.field().clone(), chunks.arrays().iter().cloned().collect());
        Ok(Self { stream_field: Some(field), arrays, ..self })
    }

    /// As [`InputChunks::read_by`], of the columns of the source, not those that the conversion reads of them by path.
    pub(super) fn read_columns(
        object: &Bound<'_, PyAny>,
        conversion: &Conversion,
        refuses: Refuses<'_>,
        makes: Option<Makes<'_>>,
    ) -> PyResult<Self> {
        let py = object.py();
        if let Ok(own) = object.cast_exact::<Tensor>() {
            return Self::of_tensor(py, own.get().tensor(), conversion);
        }
        if let Ok(stream) = object.cast_exact::<ArrayStream>() {
            let unread = unread(stream.get());
            refuses(&unread)?;
            let making = makes.map(|makes| makes(&unread)).transpose()?;
            return stream.get().read_by(py, |stream| Self::of_stream(py, stream, making.as_ref()));
        }
        let projection = Projection::of(conversion);
        let selected = sources::relation(object, &projection)?;
        let object = selected.as_ref().unwrap_or(object);
        match sources::exported(object, &projection, refuses, &mut false)? {
            Some((input, _)) => {
                let index = pandas_index(object, input.field())?;
                let making = match (&input, makes) {
                    (ArrowInput::Stream(stream), Some(makes)) if !is_in_memory(object)? => {
                        let device = Device::new(stream.device_type(), 0);
                        Some(makes(&Unread { field: stream.field(), index, device: Some(device) })?)
                    }
                    _ => None,
                };
                Ok(Self { index, ..Self::of_input(py, input, making.as_ref())? })
            }
            None => {
                // A copy that is asked for is made of the column, once.
                if let Some(tensor) = dlpack_to_convert(object, conversion.copy.once())? {
                    return Self::of_tensor(py, &tensor, conversion);
                }
                let opened = sources::open(object, &projection)?.ok_or_else(|| no_protocol(object))?;
                let (index, tell) = (opened.index, opened.teller());
                refuses(&opened.unread()).map_err(|error| tell(py, error))?;
                let unread = opened.unread_stream();
                let making = makes.map(|makes| makes(&unread)).transpose().map_err(|error| tell(py, error))?;
                Ok(Self { index, ..Self::of_input(py, ArrowInput::Stream(opened.stream), making.as_ref())? })
            }
        }
    }

    /// Reads Arrow data whole.
    ///
    /// # Errors
    /// What is wrong with its data.
    #[inline]
    pub(super) fn of_arrow(py: Python<'_>, input: ArrowInput) -> PyResult<Self> {
        Self::of_input(py, input, None)
    }

    #[inline]
    fn of_input(py: Python<'_>, input: ArrowInput, making: Option<&Making>) -> PyResult<Self> {
        match input {
            ArrowInput::Array(array) => Ok(Self::one(array)),
            ArrowInput::Stream(mut stream) => {
                let read = Self::of_stream(py, &mut stream, making);
                py.detach(|| drop(stream));
                Ok(read?)
            }
        }
    }

    /// Reads a stream to its end: its arrays, or what is made of them.
    fn of_stream(py: Python<'_>, stream: &mut DeviceArrayStream, making: Option<&Making>) -> Result<Self> {
        let device = Device::new(stream.device_type(), 0);
        // The producer may need the interpreter on a thread of its own.
        let (field, read) = py.detach(|| match making {
            Some(Making { conversion, results }) => conversion.with_paths(stream, |stream| {
                let field = stream.field().clone();
                conversion.read(stream, results).map(|read| (field, read))
            }),
            None => Ok((stream.field().clone(), Read::Arrays(stream.read_to_end()?))),
        })?;
        let (mut arrays, results) = match read {
            Read::Arrays(arrays) => (arrays, None),
            Read::Tensors(tensors) => {
                let results = making.map_or([].as_slice(), |making| making.results.as_slice());
                let names = results.iter().map(|result| result.name().to_owned());
                (SmallVec::new(), Some(names.zip(tensors).collect()))
            }
        };
        if arrays.is_empty() && !device.is_cpu() {
            arrays.push(empty_on(field.clone(), device)?);
        }
        let index = PandasIndex::KeepNamed;
        Ok(Self { stream_field: Some(field), arrays, results, natural: None, index, is_own: false })
    }

    fn of_tensor(py: Python<'_>, tensor: &Core, conversion: &Conversion) -> PyResult<Self> {
        let TensorColumn { array, natural, is_own } = conversion.column_of(tensor, &runner(py))?;
        Ok(Self { natural, is_own, ..Self::one(array) })
    }
}
