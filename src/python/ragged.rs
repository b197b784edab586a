//! The class `Ragged`, and the conversion of lists and strings.

use std::num::NonZero;

use arrow_schema::FieldRef;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use super::answers::answer;
use super::arrow_dunders::{c_array, c_device_array, requested_field};
use super::capsule::schema_capsule;
use super::counts::count;
use super::device_request::result_source;
use super::escapes::type_text;
use super::exchange::{Access, Arrays, memory, namespace};
use super::input::{self, InputChunks};
use super::nulls::parse_nulls;
use super::options::{ElementKeywords, LEGACY, Legacy};
use super::streamed::is_lost;
use super::words::Words;
use super::{Array, Device, device, html, pickle};
use crate::conversion::ArrowConversion;
use crate::error::{Counted, Result};
use crate::explain::Report;
use crate::ragged::{Ragged as CoreRagged, Values};
use crate::spec::{Conversion, CopyMode, NullPolicy, Pad, Side};
use crate::tensor::Tensor as CoreTensor;

/// Columns of fewer rows are converted without letting go of the interpreter, which costs more than they do.
const DETACH_FROM: usize = 1 << 12;

/// Rows of different lengths: row i is `values[offsets[i]:offsets[i + 1]]`, or with lengths
/// `values[offsets[i]:offsets[i] + lengths[i]]`. The Arrow dunders return a list array over the same memory.
///
/// values: an object with `__dlpack__`, or a Ragged for nested lists.
/// offsets: int32 or int64, one more than there are rows; with `lengths`, one per row.
/// lengths: the dtype of the offsets, one per row, for rows that overlap or leave gaps.
/// shapes: int32 of shape (rows, dimensions), for rows that are tensors. The offsets are int32 then.
/// validity: a bool per row, True where the row is valid.
///
/// All are on one device. On CUDA a kernel looks at the offsets, and the call waits for the kernel; so does each
/// conversion to Arrow of offsets that another library may have changed.
///
/// Raises ConversionError if a row reaches beyond the values, or the parts are on several devices.
#[pyclass(frozen, module = "arrow_dlpack")]
#[derive(Debug)]
pub struct Ragged {
    ragged: CoreRagged,
    values: Py<PyAny>,
    offsets: Py<PyAny>,
    lengths: Option<Py<PyAny>>,
    shapes: Option<Py<PyAny>>,
    validity: Option<Py<PyAny>>,
}

impl Ragged {
    /// Ragged rows for Python, their parts as tensors, or as arrays of another library.
    ///
    /// # Errors
    /// What that library raises.
    pub fn new(py: Python<'_>, ragged: CoreRagged, xp: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        Self::made(ragged, &mut Arrays::of(py, Legacy::Copy, Access::AsMade, xp)?)
    }

    pub(super) fn made(ragged: CoreRagged, arrays: &mut Arrays<'_>) -> PyResult<Self> {
        let values = match ragged.values() {
            Values::Ragged(inner) => {
                let inner = Self::made(inner.as_ref().clone(), arrays)?;
                Bound::new(arrays.py(), inner)?.into_any().unbind()
            }
            Values::Tensor(tensor) => arrays.make(tensor.clone())?.unbind(),
        };
        let mut part = |tensor: &CoreTensor| arrays.make(tensor.clone()).map(Bound::unbind);
        let offsets = part(ragged.offsets())?;
        let lengths = ragged.lengths().map(&mut part).transpose()?;
        let shapes = ragged.shapes().map(&mut part).transpose()?;
        let validity = ragged.validity().map(&mut part).transpose()?;
        Ok(Self { ragged, values, offsets, lengths, shapes, validity })
    }

    /// The rows themselves.
    #[must_use]
    pub fn ragged(&self) -> &CoreRagged {
        &self.ragged
    }
}

#[pymethods]
impl Ragged {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.values)?;
        visit.call(&self.offsets)?;
        [&self.lengths, &self.shapes, &self.validity].into_iter().try_for_each(|part| visit.call(part))
    }

    #[new]
    #[pyo3(signature = (values, offsets, lengths=None, shapes=None, validity=None))]
    fn from_parts(
        values: &Bound<'_, PyAny>,
        offsets: &Bound<'_, PyAny>,
        lengths: Option<&Bound<'_, PyAny>>,
        shapes: Option<&Bound<'_, PyAny>>,
        validity: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let py = values.py();
        let inner: Values = match values.cast_exact::<Self>() {
            Ok(ragged) => ragged.get().ragged.clone().into(),
            Err(_) => tensor(values, "values")?.into(),
        };
        let offsets = tensor(offsets, "offsets")?;
        let optional = |object: Option<&Bound<'_, PyAny>>, name| object.map(|object| tensor(object, name)).transpose();
        let (lengths, shapes) = (optional(lengths, "lengths")?, optional(shapes, "shapes")?);
        let validity = optional(validity, "validity")?;
        let made = Self::new(py, CoreRagged::new(inner, offsets, lengths, shapes, validity)?, None)?;
        match values.cast_exact::<Self>() {
            Ok(values) => Ok(Self { values: values.clone().into_any().unbind(), ..made }),
            Err(_) => Ok(made),
        }
    }

    /// The elements of all rows: a tensor of shape (elements, *inner), or a Ragged for nested lists.
    #[getter]
    fn values(&self, py: Python<'_>) -> Py<PyAny> {
        self.values.clone_ref(py)
    }

    /// Where rows start, and without lengths also where the last one ends.
    #[getter]
    fn offsets(&self, py: Python<'_>) -> Py<PyAny> {
        self.offsets.clone_ref(py)
    }

    /// How many elements each row has, for list views alone.
    #[getter]
    fn lengths(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.lengths.as_ref().map(|part| part.clone_ref(py))
    }

    /// The shape of each row, for arrow.variable_shape_tensor alone.
    #[getter]
    fn shapes(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.shapes.as_ref().map(|part| part.clone_ref(py))
    }

    /// A bool for each row, True where it is valid; only where nulls were kept.
    #[getter]
    fn validity(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.validity.as_ref().map(|part| part.clone_ref(py))
    }

    /// The memory's device.
    #[getter]
    fn device(&self) -> Device {
        Device(self.ragged.offsets().device())
    }

    /// `Ragged[T]`, for annotations: T is the type of the parts.
    #[classmethod]
    #[pyo3(signature = (parts, /))]
    fn __class_getitem__<'py>(cls: &Bound<'py, PyType>, parts: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        cls.py().import("types")?.getattr("GenericAlias")?.call1((cls, parts))
    }

    fn __len__(&self) -> usize {
        self.ragged.len()
    }

    fn __repr__(&self) -> String {
        let values = match self.ragged.values() {
            Values::Ragged(inner) => Counted(inner.len(), "row").to_string(),
            Values::Tensor(tensor) => format!("{} {:?}", tensor.dtype(), tensor.shape()),
        };
        let parts = [("lengths", &self.lengths), ("shapes", &self.shapes), ("validity", &self.validity)];
        let parts: String =
            parts.iter().filter(|(_, part)| part.is_some()).map(|(name, _)| format!(", {name}")).collect();
        let origin =
            self.ragged.field().map(|field| format!(", from {}", type_text(field.data_type()))).unwrap_or_default();
        let (rows, offsets) = (Counted(self.ragged.len(), "row"), self.ragged.offsets().dtype());
        format!("Ragged({rows}, values={values}, offsets={offsets}{parts}{origin})")
    }

    /// A table of the parts, for notebooks. No element is read.
    fn _repr_html_(&self) -> String {
        let rows = &self.ragged;
        let mut attributes =
            vec![("rows", rows.len().to_string()), ("values", values_text(rows)), ("offsets", part(rows.offsets()))];
        let parts = [("lengths", rows.lengths()), ("shapes", rows.shapes()), ("validity", rows.validity())];
        attributes.extend(parts.into_iter().filter_map(|(name, tensor)| Some((name, part(tensor?)))));
        attributes.extend([("device", rows.offsets().device().to_string()), ("bytes", bytes(rows).to_string())]);
        attributes.extend(rows.field().map(|field| ("from", html::field(field))));
        html::attributes("Ragged", &attributes)
    }

    /// Pickles by value: rows in host memory, each part as its own library pickles it.
    fn __reduce_ex__<'py>(&self, py: Python<'py>, protocol: u32) -> PyResult<Bound<'py, PyTuple>> {
        let _ = protocol;
        let (lengths, shapes) = (self.lengths.as_ref(), self.shapes.as_ref());
        let parts = [Some(&self.values), Some(&self.offsets), lengths, shapes, self.validity.as_ref()];
        pickle::ragged(py, &self.ragged, parts)
    }

    /// The same memory under another object.
    fn __copy__(&self, py: Python<'_>) -> Self {
        let part = |part: &Option<Py<PyAny>>| part.as_ref().map(|part| part.clone_ref(py));
        Self {
            ragged: self.ragged.clone(),
            values: self.values.clone_ref(py),
            offsets: self.offsets.clone_ref(py),
            lengths: part(&self.lengths),
            shapes: part(&self.shapes),
            validity: part(&self.validity),
        }
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        schema_capsule(py, self.ragged.to_arrow(CopyMode::IfNeeded)?.field())
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        c_array(py, &self.requested(requested_schema)?, None)
    }

    #[pyo3(signature = (requested_schema=None, **kwargs))]
    fn __arrow_c_device_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        c_device_array(py, &self.requested(requested_schema)?, None, kwargs)
    }
}

impl Ragged {
    /// The rows of parts that were pickled.
    pub(super) fn of_parts(parts: [Option<Bound<'_, PyAny>>; 5], field: Option<FieldRef>) -> PyResult<Self> {
        let [Some(values), Some(offsets), lengths, shapes, validity] = parts else {
            return Err(PyTypeError::new_err("rows have values and offsets"));
        };
        let optional = [lengths.as_ref(), shapes.as_ref(), validity.as_ref()];
        let made = Self::from_parts(&values, &offsets, optional[0], optional[1], optional[2])?;
        let ragged = match field {
            Some(field) => made.ragged.with_field(field)?,
            None => made.ragged,
        };
        let (values, offsets) = (values.unbind(), offsets.unbind());
        let [lengths, shapes, validity] = [lengths, shapes, validity].map(|part| part.map(Bound::unbind));
        Ok(Self { ragged, values, offsets, lengths, shapes, validity })
    }

    fn requested(&self, requested_schema: Option<&Bound<'_, PyAny>>) -> PyResult<crate::arrow::DeviceArray> {
        Ok(match requested_field(requested_schema)? {
            None => self.ragged.to_arrow(CopyMode::IfNeeded),
            Some(field) => self.ragged.to_arrow_as(&field, CopyMode::IfNeeded),
        }?)
    }
}

fn part(tensor: &CoreTensor) -> String {
    format!("{} {}", tensor.dtype(), html::tuple(tensor.shape()))
}

fn values_text(rows: &CoreRagged) -> String {
    match rows.values() {
        Values::Ragged(inner) => format!("{} of {}", Counted(inner.len(), "row"), values_text(inner)),
        Values::Tensor(tensor) => part(tensor),
    }
}

/// Bytes of all parts.
fn bytes(rows: &CoreRagged) -> usize {
    let values = match rows.values() {
        Values::Ragged(inner) => bytes(inner),
        Values::Tensor(tensor) => tensor.nbytes(),
    };
    let others = [Some(rows.offsets()), rows.lengths(), rows.shapes(), rows.validity()];
    others.into_iter().flatten().fold(values, |bytes, tensor| bytes.saturating_add(tensor.nbytes()))
}

/// A tensor argument.
fn tensor(object: &Bound<'_, PyAny>, name: &str) -> PyResult<CoreTensor> {
    input::import_dlpack(object, None, CopyMode::IfNeeded)?.ok_or_else(|| {
        let found = object.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string());
        PyTypeError::new_err(format!("{name} must be a tensor (with __dlpack__), and is {found}"))
    })
}

/// Runs work that takes long with many rows, or waits for a device.
fn run<R: Send>(
    py: Python<'_>,
    chunks: &InputChunks,
    conversion: &Conversion,
    work: impl Fn() -> Result<R> + Sync,
) -> Result<R> {
    let rows = crate::arrow::DeviceArray::rows_of(&chunks.arrays);
    if conversion.device.is_none() && rows < DETACH_FROM { work() } else { py.detach(&work) }
}

/// Converts lists and strings to values and offsets: a Ragged, of views if layout and options allow it.
///
/// With pad=(value, length), returns a matrix of shape (rows, length, *inner), whose rows are padded, and a bool
/// for each of its items, True where a valid row has a valid element. A length of None is that of the longest
/// row.
///
/// obj: a column of Arrow data, as for `to_tensor`: lists, large lists, list views, nested lists, strings,
///     binaries or arrow.variable_shape_tensor. Strings return their bytes as uint8.
/// dtype, decimal, dictionary, unit: as for `to_tensor`, of the elements.
/// nulls: "error" refuses null rows and null elements. "keep" returns null rows as `validity`, and leaves the
///     values of null elements undefined. "nan" or a number fills null elements, and null rows become empty,
///     but those of arrow.variable_shape_tensor, whose shapes have no place for that.
///     With pad, null rows are padding unless nulls="error", and so are null elements that are kept.
/// truncate: what happens to rows that are longer than the length of pad: "error"; "left" drops their first
///     elements, "right" their last.
/// side: where the padding of a row goes: "right", after its elements, or "left", before them.
/// multiple_of: the length of the longest row is rounded up to a multiple of this, for a length of None.
/// device, allocator, copy, writable, legacy, xp: as for `to_tensor`.
///
/// The offsets of a slice are copied, so that they start at 0. The values of list views are those of the whole
/// child.
#[pyfunction]
#[pyo3(signature = (obj, *, dtype=None, nulls=None, decimal=None, dictionary=None, unit=None, device=None, allocator=None, copy=None, writable=None, legacy="copy", pad=None, truncate=None, side=None, multiple_of=None, xp=None), text_signature = "(obj, *, dtype=None, nulls=\"error\", decimal=None, dictionary=None, unit=None, device=None, allocator=None, copy=None, writable=None, legacy=\"copy\", pad=None, truncate=\"error\", side=\"right\", multiple_of=1, xp=None)")]
#[allow(clippy::too_many_arguments, reason = "one Python keyword each")]
pub(super) fn to_ragged<'py>(
    py: Python<'py>,
    obj: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
    nulls: Option<&Bound<'py, PyAny>>,
    decimal: Option<&Bound<'py, PyAny>>,
    dictionary: Option<&Bound<'py, PyAny>>,
    unit: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    allocator: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
    writable: Option<bool>,
    legacy: &str,
    pad: Option<&Bound<'py, PyAny>>,
    truncate: Option<&str>,
    side: Option<&str>,
    multiple_of: Option<&Bound<'py, PyAny>>,
    xp: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let legacy = LEGACY.parse(legacy)?;
    let mut conversion =
        ElementKeywords { dtype, nulls, decimal, dictionary, unit, length: None }.conversion(copy, writable)?;
    conversion.device = device.map(device::extract).transpose()?;
    let pad = PadKeywords { pad, truncate, side, multiple_of }.read()?;
    memory::source(allocator)?;
    let xp = namespace(xp)?;
    let xp = xp.as_ref();
    let mut arrays = Arrays::of(py, legacy, Access::of(writable), xp)?;
    let chunks = InputChunks::read_unless(obj, &conversion, &|unread| {
        unread.check_device(&conversion)?;
        conversion.check_ragged(unread.field, pad, is_lost(obj, conversion.copy)?)?;
        if pad.is_none() { arrays.foresee(copy) } else { Ok(()) }
    })?;
    conversion.check_columns(chunks.field())?;
    let _source = result_source(chunks.device(), device, allocator, xp)?;
    let (field, columns, is_own) = (chunks.field(), &chunks.arrays, chunks.is_own);
    let Some(pad) = pad else {
        let ragged = run(py, &chunks, &conversion, || conversion.convert_ragged(field, columns, is_own))?;
        return Ok(Bound::new(py, Ragged::made(ragged, &mut arrays)?)?.into_any());
    };
    let work = || conversion.convert_padded(field, columns, pad, is_own);
    let (matrix, valid) = run(py, &chunks, &conversion, work)?;
    Ok(PyTuple::new(py, [arrays.make(matrix)?, arrays.make(valid)?])?.into_any())
}

/// The keywords that say how rows are padded, as they were passed.
pub(super) struct PadKeywords<'a, 'py> {
    pub(super) pad: Option<&'a Bound<'py, PyAny>>,
    pub(super) truncate: Option<&'a str>,
    pub(super) side: Option<&'a str>,
    pub(super) multiple_of: Option<&'a Bound<'py, PyAny>>,
}

impl PadKeywords<'_, '_> {
    /// Returns how rows are padded; `None` where they are not.
    pub(super) fn read(self) -> PyResult<Option<Pad>> {
        let (truncate, side) =
            (TRUNCATE.parse(self.truncate.unwrap_or("error"))?, SIDE.parse(self.side.unwrap_or("right"))?);
        let multiple_of = self.multiple_of.map(|multiple| count("multiple_of", multiple, 1)).transpose()?;
        let multiple_of = multiple_of.and_then(NonZero::new).unwrap_or(NonZero::<usize>::MIN);
        let Some(pad) = self.pad else {
            if truncate.is_none() && side == Side::Right && multiple_of.get() == 1 {
                return Ok(None);
            }
            let reason = "truncate, side and multiple_of say how rows are padded: pass pad=(value, length) too";
            return Err(PyValueError::new_err(reason));
        };
        Ok(Some(parse_pad(pad)?.multiple_of(multiple_of).truncate(truncate).side(side)))
    }
}

/// The words of `truncate=`.
pub(super) const TRUNCATE: Words<Option<Side>> =
    Words { keyword: "truncate", words: &[("error", None), ("left", Some(Side::Left)), ("right", Some(Side::Right))] };
/// The words of `side=`.
pub(super) const SIDE: Words<Side> = Words { keyword: "side", words: &[("left", Side::Left), ("right", Side::Right)] };

/// `pad=(value, length)`.
fn parse_pad(object: &Bound<'_, PyAny>) -> PyResult<Pad> {
    let wrong = || PyTypeError::new_err("pad must be a tuple (value, length): a number, and an int or None");
    let pair = object.cast::<PyTuple>().map_err(|_| wrong())?;
    let (value, length) = pair.extract::<(Bound<'_, PyAny>, Option<Bound<'_, PyAny>>)>().map_err(|_| wrong())?;
    let length = length.map(|length| count("the length of pad", &length, 0)).transpose()?;
    match answer(object.py(), parse_nulls(&value))? {
        Some(NullPolicy::Fill(value)) => Ok(Pad::new(value).length(length)),
        _ => Err(wrong()),
    }
}

/// `to_arrow` of ragged rows.
pub(super) fn to_arrow<'py>(
    ragged: &Bound<'py, Ragged>,
    conversion: &ArrowConversion,
    has_validity: bool,
) -> PyResult<Bound<'py, PyAny>> {
    require_own_validity(has_validity)?;
    let (py, rows) = (ragged.py(), &ragged.get().ragged);
    Ok(Bound::new(py, Array::new(py.detach(|| conversion.convert_ragged(rows))?))?.into_any())
}

/// Reports what [`to_arrow`] would do.
pub(super) fn explain_to_arrow(
    ragged: &Bound<'_, Ragged>,
    conversion: &ArrowConversion,
    has_validity: bool,
) -> PyResult<Report> {
    require_own_validity(has_validity)?;
    Ok(conversion.explain_ragged(&ragged.get().ragged)?)
}

/// Refuses a validity beside that of the rows.
fn require_own_validity(has_validity: bool) -> PyResult<()> {
    match has_validity {
        true => Err(PyTypeError::new_err("validity belongs to the Ragged: pass it there")),
        false => Ok(()),
    }
}
