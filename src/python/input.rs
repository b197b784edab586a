//! Reads arguments by the protocols that they offer: Arrow before DLPack, device dunders before host dunders.

use std::sync::{Arc, LazyLock};

use arrow_schema::{DataType, Field, FieldRef};
use pyo3::exceptions::{PyException, PyNotImplementedError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use smallvec::{SmallVec, smallvec};

use super::capsule::{
    array_from_capsule, call_if_present, device_array_from_capsule, device_stream_from_capsule, schema_from_capsule,
    stream_from_capsule,
};
use super::exchange::is_package_tensor;
use super::pandas::pandas_index;
pub use super::schema::schema;
use super::sources::{self, no_protocol};
use super::streamed::{Makes, Making, is_in_memory};
use super::tensor_input::dlpack_to_convert;
pub use super::tensor_input::import_dlpack;
use super::{Array, ArrayStream, RecordBatch, Tensor};
use crate::arrow::{DeviceArray, DeviceArrayStream, empty_on};
use crate::column::Runner;
use crate::conversion::Run;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::matrix::{Read, Worker};
use crate::plan::Plan;
use crate::spec::{Conversion, CopyMode, PandasIndex};
use crate::tensor::Tensor as Core;
use crate::transfer::Destination;

/// Arrow data that an argument gave.
#[derive(Debug)]
#[non_exhaustive]
pub enum ArrowInput {
    /// One array.
    Array(DeviceArray),
    /// A stream, not yet read.
    Stream(DeviceArrayStream),
}

impl ArrowInput {
    /// The type of every array.
    #[must_use]
    pub fn field(&self) -> &FieldRef {
        match self {
            Self::Array(array) => array.field(),
            Self::Stream(stream) => stream.field(),
        }
    }
}

/// Asks an object for Arrow data, through the first dunder that it has: device array, array, device stream, stream.
/// `None` for an object with none of them.
///
/// # Errors
/// What the dunder raises, or what is wrong with its capsules.
pub fn arrow(object: &Bound<'_, PyAny>) -> PyResult<Option<ArrowInput>> {
    arrow_unless(object, &|_| Ok(()))
}

/// What is known of a stream before it is read.
pub(super) struct Unread<'a> {
    pub(super) field: &'a FieldRef,
    /// Which index columns of pandas are among all columns.
    pub(super) index: PandasIndex,
    /// A device of the type that its arrays are on.
    pub(super) device: Option<Device>,
}

/// Refuses options that do not go together with what is known of a stream.
pub(super) type Refuses<'a> = &'a dyn Fn(&Unread<'_>) -> PyResult<()>;

/// As [`arrow`], unless the object is a stream that `refuses` refuses: nothing of it is read then, and a reader that would be
/// moved away is not even opened, where it tells its type.
///
/// # Errors
/// As [`arrow`], and what `refuses` says.
pub(super) fn arrow_unless(object: &Bound<'_, PyAny>, refuses: Refuses<'_>) -> PyResult<Option<ArrowInput>> {
    if let Ok(stream) = object.cast_exact::<ArrayStream>() {
        refuses(&unread(stream.get()))?;
        return stream.get().take().map(|stream| Some(ArrowInput::Stream(stream)));
    }
    if object.is_exact_instance_of::<Tensor>() || is_package_tensor(object) {
        return Ok(None);
    }
    let mut refusal = None;
    if let Some(array) = array_or_refusal(object, &mut refusal)? {
        return Ok(Some(ArrowInput::Array(array)));
    }
    match (stream_unless(object, refuses)?, refusal) {
        (None, Some(refusal)) => Err(refusal),
        (stream, _) => Ok(stream.map(ArrowInput::Stream)),
    }
}

fn unread(stream: &ArrayStream) -> Unread<'_> {
    Unread { field: stream.field(), index: PandasIndex::KeepNamed, device: Some(stream.device()) }
}

/// Asks an object for an array alone, and no stream: `None` where it has none, or refuses to be one.
///
/// # Errors
/// What the dunder raises, or what is wrong with its capsules.
pub(super) fn array(object: &Bound<'_, PyAny>) -> PyResult<Option<DeviceArray>> {
    array_or_refusal(object, &mut None)
}

/// The array of the first dunder that gives one. Without one, `refusal` is the first that there was: a chunked array may
/// have the array dunders for the case of one chunk, and a device dunder may be there for others than this one.
fn array_or_refusal(object: &Bound<'_, PyAny>, refusal: &mut Option<PyErr>) -> PyResult<Option<DeviceArray>> {
    if let Ok(array) = object.cast_exact::<Array>() {
        return Ok(Some(array.get().0.clone()));
    }
    if let Ok(batch) = object.cast_exact::<RecordBatch>() {
        return Ok(Some(batch.get().0.clone()));
    }
    let py = object.py();
    type Import = fn(&Bound<'_, PyAny>, FieldRef) -> PyResult<DeviceArray>;
    let dunders: [(_, Import); 2] = [
        (intern!(py, "__arrow_c_device_array__"), device_array_from_capsule),
        (intern!(py, "__arrow_c_array__"), array_from_capsule),
    ];
    for (dunder, import) in dunders {
        match call_if_present(object, dunder) {
            Ok(None) => {}
            Ok(Some(pair)) => return array_of_pair(&pair, dunder, import).map(Some),
            Err(error) if refuses_as_array(py, &error) => _ = refusal.get_or_insert(error),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn refuses_as_array(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyNotImplementedError>(py) || error.get_type(py).is(py.get_type::<PyValueError>())
}

fn array_of_pair(
    pair: &Bound<'_, PyAny>,
    dunder: &Bound<'_, PyString>,
    import: fn(&Bound<'_, PyAny>, FieldRef) -> PyResult<DeviceArray>,
) -> PyResult<DeviceArray> {
    let capsules = pair.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
    let Some(capsules) = capsules else {
        return Err(PyTypeError::new_err(format!("{dunder} must return two capsules, and returned {}", pair.repr()?)));
    };
    let (schema, array) = (capsules.get_borrowed_item(0)?, capsules.get_borrowed_item(1)?);
    import(&array, schema_from_capsule(&schema)?)
}

fn stream_unless(object: &Bound<'_, PyAny>, refuses: Refuses<'_>) -> PyResult<Option<DeviceArrayStream>> {
    let py = object.py();
    let (on_device, on_host) = (intern!(py, "__arrow_c_device_stream__"), intern!(py, "__arrow_c_stream__"));
    // What has a length can be asked for its stream again; the reader of another library is gone once it was asked.
    if !has_length(object)? {
        let has_devices = object.hasattr(on_device)?;
        if (has_devices || object.hasattr(on_host)?)
            && let Some(field) = told_schema(object)?
        {
            let index = pandas_index(object, &field)?;
            refuses(&Unread { field: &field, index, device: (!has_devices).then_some(Device::CPU) })?;
        }
    }
    let stream = match call_if_present(object, on_device)? {
        Some(capsule) => Some(device_stream_from_capsule(&capsule)?),
        None => call_if_present(object, on_host)?.map(|capsule| stream_from_capsule(&capsule)).transpose()?,
    };
    if let Some(stream) = &stream {
        let (index, device) = (pandas_index(object, stream.field())?, Device::new(stream.device_type(), 0));
        refuses(&Unread { field: stream.field(), index, device: Some(device) })?;
    }
    Ok(stream)
}

/// Whether the type has a length, as containers have: their dunders can be called again and again. Readers have none.
pub(super) fn has_length(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    object.get_type().hasattr(intern!(object.py(), "__len__"))
}

/// The type that a reader tells before it is opened; opening it tells all the same.
fn told_schema(object: &Bound<'_, PyAny>) -> PyResult<Option<FieldRef>> {
    schema(object).or_else(|error| match error.is_instance_of::<PyException>(object.py()) {
        true => Ok(None),
        false => Err(error),
    })
}

/// The chunks of a column or a table: one array, or every array of a stream.
#[derive(Debug)]
pub struct InputChunks {
    /// The type of every chunk of a stream; an array has its own.
    stream_field: Option<FieldRef>,
    /// The chunks, perhaps none.
    pub(super) arrays: SmallVec<[DeviceArray; 1]>,
    /// What was made of a stream instead, by name, in host memory.
    pub(super) results: Option<Vec<(String, Core)>>,
    /// The dtype of a tensor of complex numbers, which Arrow knows as pairs of floats.
    complex: Option<DType>,
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
            complex: None,
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
    pub(super) fn run<'a>(&self, runner: &'a Runner<'a>, worker: &'a Worker<'a>) -> Run<'a> {
        Run { natural: self.natural(), is_own: self.is_own, runner, worker }
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
        let (py, copy, to_host) = (object.py(), conversion.copy, Some(conversion.destination()));
        // A copy that is asked for is made of the column, once.
        let of_tensor = if copy == CopyMode::Always { CopyMode::IfNeeded } else { copy };
        if let Ok(own) = object.cast_exact::<Tensor>() {
            return Self::of_tensor(py, own.get().tensor(), of_tensor, to_host);
        }
        if let Ok(stream) = object.cast_exact::<ArrayStream>() {
            let unread = unread(stream.get());
            refuses(&unread)?;
            let making = makes.map(|makes| makes(&unread)).transpose()?;
            return stream.get().read_by(py, |stream| Self::of_stream(py, stream, making.as_ref()));
        }
        match arrow_unless(object, refuses)? {
            Some(input) => {
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
                if let Some(tensor) = dlpack_to_convert(object, of_tensor)? {
                    return Self::of_tensor(py, &tensor, of_tensor, to_host);
                }
                let opened = sources::open(object)?.ok_or_else(|| no_protocol(object))?;
                let (index, tell) = (opened.index, opened.teller());
                refuses(&opened.unread()).map_err(|error| tell(py, error))?;
                let making = makes.map(|makes| makes(&opened.unread())).transpose().map_err(|error| tell(py, error))?;
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
        let (field, device) = (stream.field().clone(), Device::new(stream.device_type(), 0));
        // The producer may need the interpreter on a thread of its own.
        let read = py.detach(|| match making {
            Some(making) => making.conversion.read(stream, &making.results),
            None => stream.read_to_end().map(Read::Arrays),
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
        Ok(Self { stream_field: Some(field), arrays, results, complex: None, index, is_own: false })
    }

    fn of_tensor(py: Python<'_>, tensor: &Core, copy: CopyMode, to_host: Option<Destination>) -> PyResult<Self> {
        if let Some(host) = to_host.filter(|to_host| to_host.is_host() && !tensor.device().is_cpu()) {
            let is_own = host.is_copied_from(tensor.device())?;
            let there = py.detach(|| host.tensor(tensor.clone()))?;
            let made = Self::of_tensor(py, &there, copy, None)?;
            return Ok(Self { is_own, ..made });
        }
        let complex = tensor.dtype().component().is_some().then(|| tensor.dtype());
        // Elements that have to be gathered or realigned are copied for this call alone.
        let lies = tensor.is_aligned() && tensor.is_row_major();
        let is_own = !lies && Plan::to_arrow(&tensor.arrow_form()?, tensor.is_aligned(), false, copy)?.moves_values();
        Ok(Self { complex, is_own, ..Self::one(crate::column::to_arrow(tensor, None, copy)?) })
    }

    /// The dtype of a tensor of complex numbers, which stay what they are unless another dtype is asked for.
    #[must_use]
    pub fn natural(&self) -> Option<DType> {
        self.complex
    }
}
