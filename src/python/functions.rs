//! The functions of the Python module.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::wrap_pyfunction;

use super::arrow_input::Unread;
use super::categories::CategoryKeywords;
use super::column_names::names;
use super::detach::runner;
use super::device_request::result_source;
use super::errors::null_in_stream;
use super::exchange::{Access, Arrays, memory, namespace};
use super::input::InputChunks;
use super::names::Names;
use super::options::{ElementKeywords, LEGACY, Legacy, read_length};
use super::selection::{Columns, ORDER};
use super::tensor::with_output;
use super::{CopyLog, counts, device, varied};
use crate::batch::each_tensor;
use crate::column::Bits;
use crate::spec::{Conversion, Selection};

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(to_tensor, module)?)?;
    module.add_function(wrap_pyfunction!(to_tensors, module)?)?;
    module.add_function(wrap_pyfunction!(super::ragged::to_ragged, module)?)?;
    module.add_function(wrap_pyfunction!(validity, module)?)?;
    module.add_function(wrap_pyfunction!(super::to_arrow::to_arrow, module)?)?;
    module.add_function(wrap_pyfunction!(super::from_protocols::from_dlpack, module)?)?;
    module.add_function(wrap_pyfunction!(super::from_protocols::from_arrow, module)?)?;
    module.add_function(wrap_pyfunction!(super::explain::explain, module)?)?;
    module.add_function(wrap_pyfunction!(track_copies, module)?)
}

/// Each result as a tensor or an array, by name, handed on as it is made where none of them goes to another device.
fn each_result<'py>(
    py: Python<'py>,
    chunks: &InputChunks,
    conversion: &Conversion,
    mut arrays: Arrays<'py>,
) -> PyResult<Bound<'py, PyDict>> {
    let (field, runner, named) = (chunks.field(), runner(py), PyDict::new(py));
    let is_plain = conversion.selection == Selection::Each(None) && !chunks.is_own;
    if is_plain && !conversion.is_elsewhere(chunks.device()) {
        // The names of all columns are kept as Python's.
        let names = Names::of(py, field, conversion.index)?;
        let each = conversion.of_each();
        let (mut name, of) = (names.iter(), |column: &str| each.of(column));
        let settle = |error| conversion.first_refusal(field, &chunks.arrays, None, error);
        each_tensor(field, &chunks.arrays, names.columns(), of, &runner, settle, |_, tensor| {
            name.next().map_or(Ok(()), |name| named.set_item(name, arrays.make(tensor)?))
        })?;
        return Ok(named);
    }
    conversion.convert_results(field, &chunks.arrays, chunks.run(&runner), |name, made| {
        named.set_item(name, varied::for_python(made, &mut arrays)?)
    })?;
    Ok(named)
}

/// Converts a column to a tensor of shape (rows, *inner), or the columns of a batch, a table or a stream to a
/// matrix of shape (rows, columns).
///
/// Returns a read-only view that shares memory with the source, if layout and options allow it. Else one pass copies
/// the data. A strided tensor is gathered before it. `track_copies` records each copy.
///
/// obj: Arrow data of any library (a column, record batch, table, data frame, query or stream), a tensor with
///     `__dlpack__`, an iterable of Arrow data, or a data set or file that is read in batches.
/// dtype: a name such as "float32" or NumPy's "f4", or a type of Python, NumPy, Arrow, polars, pandas, torch or
///     another library that stands for a dtype. Casts check each value; floats take the nearest one, and refuse a
///     finite number beyond their range. Without a dtype, the columns of a matrix are promoted: numbers of one kind
///     to the wider one, integers with floats as in NumPy, bools to the dtype of the other columns. Ticks, unscaled
///     decimals and dictionary codes only join columns of their own kind. The dtype of a column takes part in the
///     promotion.
/// nulls: "error", "nan", "keep" (undefined values in a view, zero in a copy: `validity` of `obj` says which), or a
///     number that fills them. A float is rounded to the nearest; an integer or bool must hold the number exactly.
/// decimal: "unscaled" for the stored integers. None is the values, which need a dtype unless the scale is 0. Decimals
///     of 128 and 256 bits always need a dtype.
/// unit: "s", "ms", "us" or "ns": timestamps, durations, dates and times as numbers of that unit. An integer dtype,
///     int64 by default, takes whole numbers alone; a float dtype takes the division. None is their own ticks, and so
///     is their own unit: int32 for times of 32 bits.
/// length: the number of elements that each row of a column of lists has, which makes it a tensor of shape
///     (rows, length). A row of another length is an error. A dict names some columns, as for the other options.
/// dictionary: "codes" for the indices into the dictionary, "values" for the decoded values. None is the codes,
///     or the values if a dtype is requested. Chunks with different dictionaries have no common codes: an
///     error.
/// categories: a list of strings, bytes or integers, or an Arrow array of them: each value becomes the int32 code
///     that is its position there, whatever the column's layout or dictionary. A dtype casts the codes, and the
///     fill of `nulls` is a code. A dict names columns. `Tensor.dictionary` is the array.
/// unknown: the code of values that are none of the `categories`, also a dict by column. "error" names the row and
///     the value.
///
/// Each of these options can be a dict by column name.
///
/// order: the memory order of a matrix of columns: "C" row-major, "F" column-major, "A" column-major if that is a
///     view, else row-major. One column and a tensor are row-major.
/// columns: the names of the columns of a matrix, in this order; a field of a struct by its path, such as "s.a". None
///     takes all columns except the index of a pandas data frame.
/// device: the device of the result. The data is moved there. If the source or the result is in host memory,
///     the host converts.
/// allocator: where the memory of a result on a device comes from. None is a pool of this package; "cuMemAlloc"
///     is memory that other processes can open by legacy CUDA IPC handles. An object with `allocate(nbytes,
///     stream)`, which returns an address that is a multiple of 256, and `deallocate(address, nbytes, stream)`,
///     such as a memory resource of RMM, is called with a stream that has `__cuda_stream__`. With xp=torch or
///     cupy, None is that library's own allocator.
/// copy: None copies if needed, False never (an error instead), True always.
/// writable: True for memory that no other object shares, False for a read-only result, even if it is a copy.
///     None returns a read-only view, or else a writable copy. One `ReadOnlyViewWarning` is issued if the
///     library of `xp` ignores the read-only flag, as torch does.
/// legacy: what an unversioned DLPack capsule of read-only memory holds: "copy", "view" or "error".
/// out: a writable tensor of any library with the result's shape, which is filled and returned. Its dtype is
///     the default, and asks for the values of a dictionary as `dtype` does. A matrix has dense rows or dense
///     columns, at any distance. After an error its contents are undefined.
/// threads: the number of threads for large data; None is ARROW_DLPACK_THREADS, or one per core.
/// xp: an array namespace, or its name ("numpy", "torch", "jax", ...); the result is its array.
///     JAX makes 64-bit numbers 32-bit ones, and truncates integers, unless jax_enable_x64 is set.
///
/// Raises ConversionError (a BufferError and a ValueError), which names reason and remedy, and column and row where
/// one is at fault; TypeError for an object with neither Arrow data nor a tensor.
#[pyfunction]
#[pyo3(signature = (obj, *, dtype=None, nulls=None, order="C", columns=None, decimal=None, dictionary=None, unit=None, length=None, categories=None, unknown=None, device=None, allocator=None, copy=None, writable=None, legacy="copy", out=None, threads=None, xp=None), text_signature = "(obj, *, dtype=None, nulls=\"error\", order=\"C\", columns=None, decimal=None, dictionary=None, unit=None, length=None, categories=None, unknown=\"error\", device=None, allocator=None, copy=None, writable=None, legacy=\"copy\", out=None, threads=None, xp=None)")]
#[allow(clippy::too_many_arguments, reason = "one Python keyword each")]
fn to_tensor<'py>(
    py: Python<'py>,
    obj: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
    nulls: Option<&Bound<'py, PyAny>>,
    order: &str,
    columns: Option<&Bound<'py, PyAny>>,
    decimal: Option<&Bound<'py, PyAny>>,
    dictionary: Option<&Bound<'py, PyAny>>,
    unit: Option<&Bound<'py, PyAny>>,
    length: Option<&Bound<'py, PyAny>>,
    categories: Option<&Bound<'py, PyAny>>,
    unknown: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    allocator: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
    writable: Option<bool>,
    legacy: &str,
    out: Option<&Bound<'py, PyAny>>,
    threads: Option<&Bound<'py, PyAny>>,
    xp: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let xp = namespace(xp)?;
    let xp = xp.as_ref();
    let mut arrays = Arrays::of(py, LEGACY.parse(legacy)?, Access::of(writable), xp)?;
    if out.is_some() && xp.is_some() {
        return Err(PyValueError::new_err("out is returned as it is: pass out or xp, not both"));
    }
    // Read before the data: a wrong option must not consume a stream.
    let mut conversion = Conversion { memory_order: ORDER.parse(order)?, ..Conversion::default() };
    conversion.threads = threads.map(counts::threads).transpose()?;
    memory::source(allocator)?;
    if let Some(columns) = columns {
        conversion.selection = Selection::Whole(Some(names(columns)?));
    }
    ElementKeywords { dtype, nulls, decimal, dictionary, unit, length }.read_into(&mut conversion, copy, writable)?;
    CategoryKeywords { categories, unknown }.read_into(&mut conversion)?;
    conversion.device = device.map(device::extract).transpose()?;
    let refused = |error| null_in_stream(obj, error);
    if let Some(out) = out {
        let written = write_into(out, obj, conversion, allocator);
        return written.map(|()| out.clone()).map_err(refused);
    }
    let refuses = |unread: &Unread<'_>| {
        unread.check(obj, &conversion)?;
        arrays.foresee(copy)
    };
    let makes = |unread: &Unread<'_>| unread.making(&conversion);
    let mut chunks = InputChunks::read_making(obj, &conversion, &refuses, &makes).map_err(refused)?;
    let _source = result_source(chunks.device(), device, allocator, xp)?;
    let runner = runner(py);
    if let Some((_, made)) = chunks.results.take().and_then(|mut results| results.pop()) {
        return arrays.make(conversion.send_one(made, &runner)?);
    }
    conversion.check_columns(chunks.field())?;
    conversion.index = chunks.index;
    let made = conversion.convert_whole(chunks.field(), &chunks.arrays, chunks.run(&runner));
    arrays.make(made.map_err(|error| refused(error.into()))?)
}

/// Writes what `to_tensor` makes of an argument into the memory of `out`, which is looked at before anything is read.
fn write_into(
    out: &Bound<'_, PyAny>,
    obj: &Bound<'_, PyAny>,
    mut conversion: Conversion,
    allocator: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let py = obj.py();
    with_output(out, |memory| {
        let chunks = InputChunks::read_unless(obj, &conversion, &|unread| {
            unread.check_device(&conversion)?;
            Ok(conversion.clone().index(unread.index).check_output(unread.field, unread.device, memory)?)
        })?;
        let _source = memory::scope(allocator, None)?;
        conversion.check_columns(chunks.field())?;
        conversion.index = chunks.index;
        Ok(conversion.write_by(chunks.field(), &chunks.arrays, memory, chunks.run(&runner(py)))?)
    })
}

/// Converts columns of a batch, a table or a stream to a dict of tensors by name. With a dict for `columns`,
/// converts named groups, and packs each list of columns into a matrix.
///
/// columns: the names of the columns, in this order, and fields of structs by their path, such as "s.a"; or a dict
///     such as {"x": ["a", "b"], "y": "label"}, in which a list becomes a matrix, and a single name that column, each
///     also as a `group` with options of its own. `padded` rows become a matrix, `ragged` rows a Ragged, and
///     columns of `arrow` a RecordBatch. None takes all columns except the index of a pandas data frame.
/// dtype, nulls: as for `to_tensor`. A dict may also name groups: their dtype is that of the tensor, and their
///     null policy that of columns without one of their own.
///
/// The other keywords are those of `to_tensor`. A null row is null in each of its columns.
#[pyfunction]
#[pyo3(signature = (obj, *, columns=None, dtype=None, nulls=None, order="C", decimal=None, dictionary=None, unit=None, length=None, categories=None, unknown=None, device=None, allocator=None, copy=None, writable=None, legacy="copy", threads=None, xp=None), text_signature = "(obj, *, columns=None, dtype=None, nulls=\"error\", order=\"C\", decimal=None, dictionary=None, unit=None, length=None, categories=None, unknown=\"error\", device=None, allocator=None, copy=None, writable=None, legacy=\"copy\", threads=None, xp=None)")]
#[allow(clippy::too_many_arguments, reason = "one Python keyword each")]
fn to_tensors<'py>(
    py: Python<'py>,
    obj: &Bound<'py, PyAny>,
    columns: Option<Columns>,
    dtype: Option<&Bound<'py, PyAny>>,
    nulls: Option<&Bound<'py, PyAny>>,
    order: &str,
    decimal: Option<&Bound<'py, PyAny>>,
    dictionary: Option<&Bound<'py, PyAny>>,
    unit: Option<&Bound<'py, PyAny>>,
    length: Option<&Bound<'py, PyAny>>,
    categories: Option<&Bound<'py, PyAny>>,
    unknown: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    allocator: Option<&Bound<'py, PyAny>>,
    copy: Option<bool>,
    writable: Option<bool>,
    legacy: &str,
    threads: Option<&Bound<'py, PyAny>>,
    xp: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let mut conversion =
        ElementKeywords { dtype, nulls, decimal, dictionary, unit, length }.conversion(copy, writable)?;
    CategoryKeywords { categories, unknown }.read_into(&mut conversion)?;
    memory::source(allocator)?;
    let xp = namespace(xp)?;
    let xp = xp.as_ref();
    let arrays = Arrays::of(py, LEGACY.parse(legacy)?, Access::of(writable), xp)?;
    conversion.memory_order = ORDER.parse(order)?;
    conversion.threads = threads.map(counts::threads).transpose()?;
    conversion.selection = Columns::each(columns);
    conversion.device = device.map(device::extract).transpose()?;
    // No schema is needed to tell, and a wrong option must not consume a stream.
    conversion.check_groups()?;
    let refused = |error| null_in_stream(obj, error);
    let refuses = |unread: &Unread<'_>| {
        unread.check(obj, &conversion)?;
        arrays.foresee(copy)
    };
    let makes = |unread: &Unread<'_>| unread.making(&conversion);
    let mut chunks = InputChunks::read_making(obj, &conversion, &refuses, &makes).map_err(refused)?;
    conversion.check_columns(chunks.field())?;
    let _source = result_source(chunks.device(), device, allocator, xp)?;
    if let Some(made) = chunks.results.take() {
        let (names, tensors): (Vec<_>, Vec<_>) = made.into_iter().unzip();
        let (named, mut arrays) = (PyDict::new(py), arrays);
        for (name, tensor) in names.iter().zip(conversion.send(tensors, &runner(py))?) {
            named.set_item(name, arrays.make(tensor)?)?;
        }
        return Ok(named);
    }
    conversion.index = chunks.index;
    each_result(py, &chunks, &conversion, arrays).map_err(refused)
}

/// Returns a bool for each value, True where it is valid, in the shape of the values: (rows, columns) for a
/// batch, a table or an array of structs.
///
/// With bits=True, returns a view of a column's bitmap: its bytes, and the position of the first row's bit in
/// them; or None if no row is null.
///
/// All elements of a null list are null. A null row is null in each column. A matrix takes columns of any type but
/// fixed-size binary: lists of a fixed size, and those with a `length`, have a bool for each element, all others one
/// for each row.
///
/// order: the memory order of a matrix: "C" row-major, "F" column-major; "A" is "C".
/// length: the number of elements that each row of a column of lists has, or a dict by column, as for `to_tensor`: a
///     bool for each element. Without it, lists of any length have one for each row.
/// columns: the names of the columns of a matrix, in this order; a field of a struct by its path, such as "s.a". None
///     takes all columns except the index of a pandas data frame.
///
/// A bitmap can be on any device. Row i is valid if `(bytes[(offset + i) // 8] >> ((offset + i) % 8)) & 1` is
/// 1. The bitmap does not mark nulls inside a row, nor codes that stand for a null value of a dictionary.
#[pyfunction]
#[pyo3(signature = (obj, *, bits=false, order="C", columns=None, length=None, device=None, xp=None), text_signature = "(obj, *, bits=False, order=\"C\", columns=None, length=None, device=None, xp=None)")]
#[allow(clippy::too_many_arguments, reason = "one Python keyword each")]
fn validity<'py>(
    py: Python<'py>,
    obj: &Bound<'py, PyAny>,
    bits: bool,
    order: &str,
    columns: Option<&Bound<'py, PyAny>>,
    length: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
    xp: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    // Read before the data: a wrong option must not consume a stream.
    let mut conversion = Conversion::default().memory_order(ORDER.parse(order)?);
    conversion.length = read_length(length)?;
    if bits {
        conversion.require_bitmap()?;
    }
    let conversion = conversion.select(Selection::Whole(columns.map(names).transpose()?));
    let conversion = conversion.device(device.map(device::extract).transpose()?);
    let xp = namespace(xp)?;
    let xp = xp.as_ref();
    let mut arrays = Arrays::of(py, Legacy::Copy, Access::AsMade, xp)?;
    let refuse = |unread: &Unread<'_>| unread.check_validity(&conversion, bits);
    let makes = |unread: &Unread<'_>| unread.making_validity(&conversion, bits);
    let mut chunks = InputChunks::read_making(obj, &conversion, &refuse, &makes)?;
    let conversion = conversion.index(chunks.index);
    conversion.refuse_columns(chunks.field())?;
    let _source = result_source(chunks.device(), device, None, xp)?;
    if let Some((_, made)) = chunks.results.take().and_then(|mut results| results.pop()) {
        return arrays.make(conversion.send_one(made, &runner(py))?);
    }
    if bits {
        return match py.detach(|| conversion.bits_of(chunks.field(), &chunks.arrays))? {
            None => Ok(py.None().into_bound(py)),
            Some(Bits { bytes, offset }) => (arrays.make(bytes)?, offset).into_pyobject(py).map(Bound::into_any),
        };
    }
    arrays.make(py.detach(|| conversion.convert_validity(chunks.field(), &chunks.arrays))?)
}

/// Logs every copy that this package makes inside a `with` block on this thread: what, why, bytes.
///
/// The copy that unpickling makes, and so `copy.deepcopy`, has no entry.
#[pyfunction]
fn track_copies() -> CopyLog {
    CopyLog::default()
}
