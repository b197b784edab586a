//! `from_dlpack` and `from_arrow`: import other libraries' exports as this package's classes.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use super::arrow_dunders::is_on_host;
use super::arrow_input::{self, ArrowInput, Unread};
use super::exchange::memory;
use super::input;
use super::options::copy_mode;
use super::sources::{self, Projection, Reads, no_protocol, remedy};
use super::stream::wrap;
use super::{ArrayStream, Tensor, device};
use crate::arrow::DeviceArray;
use crate::device::Device;
use crate::spec::require_values_of_all;
use crate::transfer::Destination;

/// Imports a tensor, like `from_dlpack` of the array API standard.
///
/// device: the device of the result.
/// allocator: as for `to_tensor`.
/// copy: None copies if needed, False never (an error instead), True always, to memory that no other object
///     shares.
#[pyfunction]
#[pyo3(signature = (x, /, *, device=None, allocator=None, copy=None), text_signature = "(x, /, *, device=None, allocator=None, copy=None)")]
pub(super) fn from_dlpack(
    x: &Bound<'_, PyAny>,
    device: Option<&Bound<'_, PyAny>>,
    allocator: Option<&Bound<'_, PyAny>>,
    copy: Option<bool>,
) -> PyResult<Tensor> {
    let _source = memory::scope(allocator, None)?;
    let device = device.map(device::extract).transpose()?;
    let tensor = input::import_dlpack(x, device, copy_mode(copy))?;
    let Some(tensor) = tensor else {
        let (name, remedy) = (x.get_type().name()?, remedy(x, Reads::Tensors)?);
        return Err(PyTypeError::new_err(format!("expected a tensor (with __dlpack__), got {name}{remedy}")));
    };
    Ok(Tensor::new(tensor))
}

/// Imports Arrow data: an Array, a RecordBatch for structs, an ArrayStream for streams and the other sources
/// that `to_tensor` takes. The result shares memory with the source, unless copy=True.
///
/// With sync="host", exports of device data wait on the host until the data is written, and carry no event.
///
/// allocator: as for `to_tensor`.
#[pyfunction]
#[pyo3(signature = (obj, *, device=None, allocator=None, copy=None, sync=None), text_signature = "(obj, *, device=None, allocator=None, copy=None, sync=\"event\")")]
pub(super) fn from_arrow<'py>(
    py: Python<'py>,
    obj: &Bound<'py, PyAny>,
    device: Option<&Bound<'py, PyAny>>,
    allocator: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
    sync: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let _source = memory::scope(allocator, None)?;
    let asked = device.map(device::extract).transpose()?;
    let on_host = sync.map(is_on_host).transpose()?.unwrap_or(false);
    let copy = copy_mode(copy);
    let target = Destination::new(asked, copy);
    let exported = move |array: DeviceArray| if on_host { array.synchronised_on_host() } else { array };
    let streamed = |stream, held| {
        let stream = target.delivered_stream(stream)?;
        let stream = if on_host {
            let (field, device_type) = (stream.field().clone(), stream.device_type());
            let arrays = stream.map(move |array| array.map(exported));
            crate::arrow::DeviceArrayStream::new(field, device_type, arrays)
        } else {
            stream
        };
        Ok(Bound::new(py, ArrayStream::new(stream).holding(held))?.into_any())
    };
    let check = |unread: &Unread<'_>| {
        require_values_of_all(unread.field)?;
        check_stream(target, unread.device)
    };
    match arrow_input::arrow_unless(obj, &check)? {
        Some(ArrowInput::Array(array)) => {
            let array = py.detach(|| target.delivered(&array))?;
            wrap(py, exported(array))
        }
        Some(ArrowInput::Stream(stream)) => streamed(stream, Vec::new()),
        None => {
            let Some(tensor) = input::import_dlpack(obj, asked, copy)? else {
                let opened = sources::open(obj, &Projection::All)?.ok_or_else(|| no_protocol(obj))?;
                let tell = opened.teller();
                check(&opened.unread()).map_err(|error| tell(py, error))?;
                opened.take_over();
                return streamed(opened.stream, opened.held).map_err(|error| tell(py, error));
            };
            // A copy that was asked for is made by now.
            let array = crate::column::to_arrow(&tensor, None, copy.once())?;
            wrap(py, exported(py.detach(|| Destination::new(asked, copy.once()).delivered(&array))?))
        }
    }
}

fn check_stream(target: Destination, own: Option<Device>) -> PyResult<()> {
    Ok(own.map_or(Ok(()), |own| target.check_stream(own))?)
}
