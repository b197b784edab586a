//! A source as a stream, with what is known of it before it is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_schema::FieldRef;
use pyo3::prelude::*;

use super::held::HeldObject;
use super::projection::Projection;
use crate::arrow::{DeviceArray, DeviceArrayStream};
use crate::device::Device;
use crate::error::Result;
use crate::ffi::dlpack::DLDeviceType;
use crate::kernels::join_bits;
use crate::python::arrow_input::Unread;
use crate::python::attach::attached;
use crate::python::errors::item_taken;
use crate::spec::{PandasIndex, PathColumns};

/// A source as a stream.
#[derive(Debug)]
pub(in crate::python) struct Opened {
    pub(in crate::python) stream: DeviceArrayStream,
    /// The type of all columns of the source, where the stream has some of them alone.
    pub(in crate::python) whole: Option<FieldRef>,
    /// Which index columns of pandas are among all columns.
    pub(in crate::python) index: PandasIndex,
    /// Whether the object can be opened again, and gives the same rows then.
    pub(in crate::python) again: bool,
    /// Whether an item was taken from an iterator of the caller's.
    pub(in crate::python) is_item_taken: bool,
    /// Whether such an iterator is closed with the stream.
    pub(in crate::python) is_closed: Arc<AtomicBool>,
    /// What the stream refers to, to be shown to the garbage collector by whoever owns the stream.
    pub(in crate::python) held: Vec<HeldObject>,
}

impl Opened {
    /// A stream whose source can be opened again.
    pub(in crate::python) fn new(stream: DeviceArrayStream, index: PandasIndex) -> Self {
        Self {
            stream,
            whole: None,
            index,
            again: true,
            is_item_taken: false,
            is_closed: Arc::default(),
            held: Vec::new(),
        }
    }

    /// As [`Opened::new`]; a frame that gives some columns alone has no type of all of them.
    pub(in crate::python) fn of_frame(stream: DeviceArrayStream, index: PandasIndex, is_part: bool) -> Self {
        let whole = is_part.then(|| stream.field().clone());
        Self { whole, ..Self::new(stream, index) }
    }

    /// The type of all columns of the source.
    pub(in crate::python) fn whole(&self) -> &FieldRef {
        self.whole.as_ref().unwrap_or(self.stream.field())
    }

    /// What is known of the source before it is read on.
    pub(in crate::python) fn unread(&self) -> Unread<'_> {
        Unread { field: self.whole(), ..self.unread_stream() }
    }

    /// What is known of the stream before it is read on.
    pub(in crate::python) fn unread_stream(&self) -> Unread<'_> {
        let device = Some(Device::new(self.stream.device_type(), 0));
        Unread { field: self.stream.field(), index: self.index, device }
    }

    /// The source with these columns alone, if it has not left out the others itself.
    pub(in crate::python) fn narrowed(self, projection: &Projection<'_>) -> Self {
        if self.whole.is_some() {
            return self;
        }
        let whole = self.stream.field().clone();
        let Some(columns) = projection.columns(&whole) else { return self };
        Self { stream: columns_of(self.stream, columns), whole: Some(whole), ..self }
    }

    /// The same source, for as long as which `object` is kept: its stream may read from what goes with it, such as a connection.
    pub(in crate::python) fn holding(mut self, object: Py<PyAny>) -> Self {
        let (field, device_type) = (self.stream.field().clone(), self.stream.device_type());
        let object = HeldObject::new(object);
        self.held.push(object.clone());
        let stream = HeldStream { stream: Some(self.stream), object: Some(object) };
        Self { stream: DeviceArrayStream::new(field, device_type, stream), ..self }
    }

    /// Has an iterator of the caller's closed with the stream, as nobody else reads it on.
    pub(in crate::python) fn take_over(&self) {
        self.is_closed.store(true, Ordering::Release);
    }

    /// What adds to an error of the caller's options that an item is lost, if one is.
    pub(in crate::python) fn teller(&self) -> impl Fn(Python<'_>, PyErr) -> PyErr + use<> {
        let is_item_taken = self.is_item_taken;
        move |py, error| if is_item_taken { item_taken(py, error) } else { error }
    }
}

/// A stream, and the object that it was opened from.
struct HeldStream {
    stream: Option<DeviceArrayStream>,
    object: Option<HeldObject>,
}

impl HeldStream {
    /// Lets the stream go, and then the object.
    fn release(&mut self) {
        drop(self.stream.take());
        let Some(object) = self.object.take() else { return };
        attached(|_| drop(object.take()));
        // The interpreter is going down: whoever still has a reference keeps it.
        std::mem::forget(object.take());
    }
}

impl Iterator for HeldStream {
    type Item = Result<DeviceArray>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.stream.as_mut()?.next();
        if next.is_none() {
            self.release();
        }
        next
    }
}

impl Drop for HeldStream {
    fn drop(&mut self) {
        self.release();
    }
}

/// The stream of some columns of another one.
pub(super) fn columns_of(stream: DeviceArrayStream, columns: PathColumns) -> DeviceArrayStream {
    let (field, device_type) = (columns.field().clone(), stream.device_type());
    DeviceArrayStream::new(field, device_type, stream.map(move |array| array?.at_paths(&columns, join_bits)))
}

/// The stream of one array.
pub(in crate::python) fn stream_of(array: DeviceArray) -> DeviceArrayStream {
    let (field, device_type) = (array.field().clone(), array.device().device_type());
    DeviceArrayStream::new(field, device_type, std::iter::once(Ok(array)))
}

/// A stream without arrays, in host memory.
pub(super) fn stream_of_none(field: FieldRef) -> DeviceArrayStream {
    DeviceArrayStream::new(field, DLDeviceType::CPU, std::iter::empty())
}
