//! One column, both ways: the entry points that make a spec, a plan, and run it.

mod into;

use std::sync::Arc;

use arrow_schema::{Field, FieldRef};
use smallvec::{SmallVec, smallvec};

use crate::arrow::{ArrayNode, DeviceArray, counts_in, host_array, pack_bits, same_layout, shared_buffer};
use crate::convert::{self, ColumnChunk, compact};
use crate::copy_log::{self, Copied};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{Chunk, Plan};
use crate::spec::{CopyMode, Element, NullPolicy, Options, Spec};
use crate::tensor::{Owner, Tensor};

pub use into::chunks_to_tensor_into;
pub(crate) use into::{overlap, require_copy};

/// A chunk of a column: an array, or one column of an array of structs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnRef<'a> {
    array: &'a DeviceArray,
    column: Option<usize>,
}

impl<'a> ColumnRef<'a> {
    /// The array itself.
    pub(crate) fn whole(array: &'a DeviceArray) -> Self {
        Self { array, column: None }
    }

    /// One column of an array of structs.
    pub(crate) fn column(array: &'a DeviceArray, index: usize) -> Self {
        Self { array, column: Some(index) }
    }

    // Inlined, as the chunk is too large to be handed on without a copy of it.
    #[inline(always)]
    pub(crate) fn chunk(&self, spec: &Spec) -> Result<ColumnChunk<'a>> {
        require_host(self.array.device(), spec.field().name())?;
        let view = self.array.view();
        let leaf = match self.column {
            None => view.leaf(spec)?,
            Some(index) => view.struct_field(index)?.leaf(spec)?,
        };
        let mask = leaf.logical_mask(self.array).map_err(|error| error.in_column(spec.field().name()))?;
        Ok(ColumnChunk { mask, leaf, array: self.array })
    }

    fn rows(&self) -> usize {
        self.array.len()
    }

    /// The column with its runs, or its dictionary's values, written out.
    fn decode(&self, spec: &Spec, field: &FieldRef) -> Result<DeviceArray> {
        require_host(self.array.device(), spec.field().name())?;
        match self.column {
            None => convert::decode(self.array, field),
            Some(index) => convert::decode(&self.array.column(index)?, field),
        }
    }
}

/// Refuses memory that is not the host's.
pub(crate) fn require_host(device: Device, column: &str) -> Result<()> {
    if device.is_cpu() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Device, format!("the data is on {device}, and this build converts host memory only"))
        .remedy_is("copy it to the CPU with the library that made it")
        .in_column(column))
}

/// Calls `work` with the chunks, which must be in host memory, and with the plan for them.
fn planned<R>(
    spec: &Spec,
    chunks: &[ColumnRef<'_>],
    options: &Options,
    work: impl FnOnce(&Plan, &[ColumnChunk<'_>]) -> Result<R>,
) -> Result<R> {
    if let Some(field) = spec.decoded() {
        if options.copy == CopyMode::Never {
            // Refused before anything is decoded.
            let chunk = |chunk: &ColumnRef<'_>| Chunk { rows: chunk.rows(), nulls: 0, aligned: true };
            Plan::new(spec, &chunks.iter().map(chunk).collect::<Vec<_>>(), options)?;
        }
        let decoded = chunks.iter().map(|chunk| chunk.decode(spec, field)).collect::<Result<Vec<_>>>()?;
        return planned_as_stored(spec, &columns(&decoded), options, work);
    }
    planned_as_stored(spec, chunks, options, work)
}

/// As [`planned`], for columns that are not decoded, or are by now.
#[inline]
fn planned_as_stored<'a, R>(
    spec: &Spec,
    chunks: &[ColumnRef<'a>],
    options: &Options,
    work: impl FnOnce(&Plan, &[ColumnChunk<'_>]) -> Result<R>,
) -> Result<R> {
    // Most columns have one chunk, and their conversion takes about as long as a collection does.
    if let [only] = chunks {
        let only = only.chunk(spec)?;
        let plan = Plan::new(spec, &[only.size(spec)], options)?;
        return work(&plan, &[only]);
    }
    let mut before = 0;
    let chunk = |chunk: &ColumnRef<'a>| {
        let made = chunk.chunk(spec).map_err(|error| match error.row() {
            Some(row) => error.at_row(before + row),
            None => error,
        });
        before += chunk.rows();
        made
    };
    let chunks = chunks.iter().map(chunk).collect::<Result<Vec<_>>>()?;
    let sizes: Vec<Chunk> = chunks.iter().map(|chunk| chunk.size(spec)).collect();
    work(&Plan::new(spec, &sizes, options)?, &chunks)
}

/// Runs the last step of a conversion, knowing its plan: without the interpreter, say, where bytes move.
pub(crate) type Runner<'a> = dyn Fn(&Plan, &(dyn Fn() -> Result<Tensor> + Sync)) -> Result<Tensor> + 'a;

/// Converts the chunks of a column into one tensor of shape `(rows, *inner)`.
pub(crate) fn convert_chunks(
    spec: &Spec,
    chunks: &[ColumnRef<'_>],
    options: &Options,
    runner: &Runner<'_>,
) -> Result<Tensor> {
    let run =
        |plan: &Plan, chunks: &[ColumnChunk<'_>]| runner(plan, &|| convert::run(spec, plan, chunks, options.copy));
    if spec.decoded().is_none() && !spec.has_codes() {
        // Of the branches the one that most columns take: nothing is moved on the way out.
        return planned_as_stored(spec, chunks, options, run);
    }
    let convert = |runner: &Runner<'_>| {
        planned(spec, chunks, options, |plan, chunks| {
            let dictionary = shared_dictionary(spec, chunks)?;
            let tensor = runner(plan, &|| convert::run(spec, plan, chunks, options.copy))?;
            Ok(match dictionary {
                // Slots of nulls, kept as they are, can hold any code.
                Some(dictionary) => tensor.with_dictionary(dictionary, chunks.iter().all(|chunk| chunk.mask.is_none())),
                None => tensor,
            })
        })
    };
    if spec.decoded().is_none() {
        return convert(runner);
    }
    // Decoding moves bytes too: as many as these, if nothing refuses it.
    let rows = chunks.iter().fold(0_usize, |rows, chunk| rows.saturating_add(chunk.rows()));
    let bytes = rows.saturating_mul(spec.row_elements()).saturating_mul(spec.element().stored_bytes());
    runner(&Plan { rows, bytes, ..Plan::default() }, &|| convert(&run_here))
}

/// The dictionary that the codes of all chunks are of; `None` where the elements are no codes.
///
/// # Errors
/// When chunks have different dictionaries: the same code would stand for different values.
pub(crate) fn shared_dictionary<'a>(
    spec: &Spec,
    chunks: impl IntoIterator<Item = &'a ColumnChunk<'a>, IntoIter: Clone>,
) -> Result<Option<DeviceArray>> {
    let Some(values) = spec.dictionary_values() else { return Ok(None) };
    let chunks = chunks.into_iter();
    let mut filled = chunks.clone().filter(|chunk| chunk.leaf.rows > 0).peekable();
    let Some(chunk) = filled.next().or(chunks.clone().next()) else {
        let empty = arrow_array::new_empty_array(values);
        return DeviceArray::from_arrow(&empty, Arc::new(Field::new("", values.clone(), true))).map(Some);
    };
    let Some(first) = chunk.array.dictionary_of(&chunk.leaf)? else { return Ok(None) };
    if filled.peek().is_some() {
        let values = first.to_arrow()?;
        for chunk in filled {
            let dictionary =
                chunk.array.dictionary_of(&chunk.leaf)?.map(|dictionary| dictionary.to_arrow()).transpose()?;
            if dictionary.is_none_or(|dictionary| dictionary.as_ref() != values.as_ref()) {
                return Err(Error::unsupported(
                    "the chunks have different dictionaries, so their codes mean different things",
                )
                .remedy_is("pass dictionary=\"values\", or unify the dictionaries first")
                .in_column(spec.field().name()));
            }
        }
    }
    Ok(Some(first))
}

/// Runs a conversion at once.
pub(crate) fn run_here(_plan: &Plan, convert: &(dyn Fn() -> Result<Tensor> + Sync)) -> Result<Tensor> {
    convert()
}

/// What [`convert_chunks`] would do, or why it would refuse, nulls included.
pub(crate) fn plan_chunks(spec: &Spec, chunks: &[ColumnRef<'_>], options: &Options) -> Result<Plan> {
    planned(spec, chunks, options, |plan, chunks| {
        shared_dictionary(spec, chunks)?;
        convert::check_nulls(spec, chunks).map(|()| plan.clone())
    })
}

/// The chunks as columns.
fn columns(chunks: &[DeviceArray]) -> SmallVec<[ColumnRef<'_>; 1]> {
    match chunks {
        [only] => smallvec![ColumnRef::whole(only)],
        _ => chunks.iter().map(ColumnRef::whole).collect(),
    }
}

/// Converts the chunks of a column into one tensor of shape `(rows, *inner)`; no chunks give a tensor of no rows.
///
/// A view of the only chunk where layout and options allow it, else one pass over all of them.
///
/// # Errors
/// When a chunk's field is of another type than `field`, or as [`to_tensor`].
pub fn chunks_to_tensor(field: &FieldRef, chunks: &[DeviceArray], options: &Options) -> Result<Tensor> {
    chunks_to_tensor_by(field, chunks, options, &run_here)
}

/// As [`chunks_to_tensor`], the last step by `runner`.
pub(crate) fn chunks_to_tensor_by(
    field: &FieldRef,
    chunks: &[DeviceArray],
    options: &Options,
    runner: &Runner<'_>,
) -> Result<Tensor> {
    check_types(field, chunks)?;
    convert_chunks(&Spec::new(field, options)?, &columns(chunks), options, runner)
}

/// Refuses chunks of another type than the field's.
pub(crate) fn check_types(field: &FieldRef, chunks: &[DeviceArray]) -> Result<()> {
    let differs =
        |chunk: &&DeviceArray| !Arc::ptr_eq(chunk.field(), field) && chunk.field().data_type() != field.data_type();
    match chunks.iter().find(differs) {
        None => Ok(()),
        Some(chunk) => {
            let (found, expected) = (chunk.field().data_type(), field.data_type());
            Err(Error::invalid(format!("a chunk of type {found} in a column of {expected}")).in_column(field.name()))
        }
    }
}

/// Converts an array into a tensor of shape `(rows, *inner)`, where fixed-size lists give the inner shape.
///
/// A view where layout and options allow it: it shares the array's memory and is read-only.
///
/// # Errors
/// With the column's name, the reason and a remedy: the type has no tensor form, a copy is needed and not allowed, a
/// null or a value is refused, the memory is not the host's, or memory cannot be had.
///
/// ```
/// use arrow_array::Int32Array;
/// use arrow_dlpack::{DType, NullPolicy, Options, array_to_tensor};
///
/// let column = Int32Array::from(vec![Some(1), None, Some(3)]);
/// let options = Options::default().dtype(DType::Float32).nulls(NullPolicy::Nan);
/// let tensor = array_to_tensor(&column, &options)?;
/// assert_eq!(tensor.shape(), [3]);
/// assert!(tensor.as_slice::<f32>()?[1].is_nan());
///
/// let view = array_to_tensor(&Int32Array::from(vec![1, 2, 3]), &Options::default())?;
/// assert!(!view.is_copied() && !view.is_writable());
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
pub fn array_to_tensor(array: &dyn arrow_array::Array, options: &Options) -> Result<Tensor> {
    let field = Field::new("", array.data_type().clone(), true);
    to_tensor(&DeviceArray::from_arrow(array, Arc::new(field))?, options)
}

/// As [`array_to_tensor`], for an imported array with its field.
///
/// # Errors
/// As [`array_to_tensor`].
pub fn to_tensor(array: &DeviceArray, options: &Options) -> Result<Tensor> {
    convert_chunks(&Spec::new(array.field(), options)?, &[ColumnRef::whole(array)], options, &run_here)
}

/// A bool tensor of the shape that the values have, true where a value is valid. A null list makes all its elements
/// null.
///
/// # Errors
/// When the field is a struct, the memory is not the host's, or memory cannot be had.
pub fn validity(field: &FieldRef, chunks: &[DeviceArray]) -> Result<Tensor> {
    check_types(field, chunks)?;
    let options = Options::default();
    let spec = Spec::of_validity(field)?;
    planned(&spec, &columns(chunks), &options, |plan, chunks| convert::validity(&spec, plan, chunks))
        .map_err(|error| error.in_column(field.name()))
}

/// Converts a tensor into an array: 1-d as a plain column, n-d as `arrow.fixed_shape_tensor` rows, 0-d as one row. Bools
/// become `arrow.bool8`. A tensor that came from Arrow returns to its own type.
///
/// `valid`, a bool for each row, becomes the validity bitmap. A view where the layout allows it.
///
/// # Errors
/// When no Arrow type holds the dtype, a copy is needed and not allowed, `valid` does not fit, or memory cannot be had.
///
/// ```
/// use arrow_array::{Float64Array, cast::AsArray, types::Float64Type};
/// use arrow_dlpack::{CopyMode, Options, array_to_tensor, to_arrow};
///
/// let tensor = array_to_tensor(&Float64Array::from(vec![1.0, 2.0]), &Options::default())?;
/// let array = to_arrow(&tensor, None, CopyMode::Never)?.to_arrow()?;
/// assert_eq!(array.as_primitive::<Float64Type>().values(), &[1.0, 2.0]);
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
pub fn to_arrow(tensor: &Tensor, valid: Option<&Tensor>, copy: CopyMode) -> Result<DeviceArray> {
    require_host(tensor.device(), "")?;
    let form = tensor.arrow_form()?;
    let plan = Plan::to_arrow(&form, tensor.is_aligned(), valid.is_some(), copy)?;
    // The field says in which order the elements lie: a copy keeps that order.
    let lying = if form.viewable && !tensor.is_row_major() { tensor.in_memory_order() } else { None };
    let tensor = lying.as_ref().unwrap_or(tensor);
    let tensor = if plan.moves_values() { compact(tensor, &plan.reasons())? } else { tensor.clone() };
    let mut owner = tensor.owner().clone();
    let mut values = if tensor.is_empty() { std::ptr::dangling() } else { tensor.as_ptr().cast_const() };
    if form.element == Element::Bits && !tensor.is_empty() {
        let (bits, _) = pack_bools(&tensor, "bools packed to bits")?;
        (values, owner) = shared_buffer(bits, owner);
    }
    let (mut validity, mut nulls) = (std::ptr::null(), 0);
    let bitmap = valid.map(|valid| row_validity(valid, form.rows)).transpose()?;
    let dictionary = tensor.dictionary().filter(|_| form.has_codes());
    if let Some(dictionary) = dictionary.filter(|_| tensor.codes_may_be_beyond()) {
        let row_elements = form.elements.checked_div(form.rows).unwrap_or(0);
        check_codes(&tensor, dictionary.len(), row_elements, bitmap.as_ref().map(|(bits, _)| bits.as_slice()))?;
    }
    if let Some((bitmap, count)) = bitmap {
        (validity, owner) = shared_buffer(bitmap, owner);
        nulls = count;
    }
    let mut lengths: SmallVec<[usize; 4]> = SmallVec::from_slice(&[form.rows]);
    for size in &form.lists {
        // The innermost product is the number of elements, which exists.
        lengths.push(lengths.last().map_or(0, |length| length.saturating_mul(*size)));
    }
    let mut node: Option<ArrayNode> = None;
    for length in lengths.into_iter().rev() {
        let buffers = if node.is_none() { vec![std::ptr::null(), values] } else { vec![std::ptr::null()] };
        let children = node.into_iter().collect();
        node = Some(ArrayNode { length, null_count: Some(0), buffers, children, ..ArrayNode::default() });
    }
    let mut node = node.unwrap_or_default();
    node.null_count = Some(nulls);
    if let Some(dictionary) = dictionary {
        owner = set_dictionary(&mut node, dictionary, owner)?;
    }
    if let Some(bitmap) = node.buffers.first_mut() {
        *bitmap = validity;
    }
    let field = if nulls > 0 && !form.field.is_nullable() {
        Arc::new(form.field.as_ref().clone().with_nullable(true))
    } else {
        form.field
    };
    host_array(node.export(&owner)?, field)
}

/// As [`to_arrow`], in the type of `requested`, exactly: every value survives the way there and back.
///
/// # Errors
/// As [`to_arrow`], and when a value does not survive, or a cast is needed and no copy allowed.
pub fn to_arrow_as(
    tensor: &Tensor,
    valid: Option<&Tensor>,
    requested: &FieldRef,
    copy: CopyMode,
) -> Result<DeviceArray> {
    let array = to_arrow(tensor, valid, copy)?;
    let (own, wanted) = (array.field().data_type(), requested.data_type());
    if same_layout(own, wanted) || counts_in(own, wanted) {
        return convert::request_field(&array, requested);
    }
    if copy == CopyMode::Never {
        return Err(Error::new(ErrorKind::Copy, format!("a copy is needed (cast from {own} to {wanted})"))
            .remedy_is("pass copy=None to allow it"));
    }
    // Arrow's casts know nothing of extension types: what they would see are bytes.
    if tensor.dtype() == DType::BFloat16 {
        let single = to_tensor(&array, &Options::default().dtype(DType::Float32).nulls(NullPolicy::Keep))?;
        return convert::request_field(&to_arrow(&single, valid, CopyMode::IfNeeded)?, requested);
    }
    convert::request_field(&array, requested)
}

/// Puts a dictionary under the codes of a tensor's node; returns what keeps both alive.
///
/// # Errors
/// When counts are negative, which those of checked arrays are not.
fn set_dictionary(node: &mut ArrayNode, dictionary: &DeviceArray, owner: Owner) -> Result<Owner> {
    let mut leaf = node;
    while !leaf.children.is_empty() {
        let Some(child) = leaf.children.first_mut() else { break };
        leaf = child;
    }
    leaf.dictionary = Some(Box::new(ArrayNode::of(dictionary)?));
    Ok(Arc::new((dictionary.owner(), owner)))
}

/// Refuses codes that are not below `length`, but in rows that are null in the bitmap `valid`.
fn check_codes(codes: &Tensor, length: usize, row_elements: usize, valid: Option<&[u8]>) -> Result<()> {
    let is_null = |index: usize| {
        let row = index.checked_div(row_elements).unwrap_or(0);
        valid.and_then(|bits| bits.get(row / 8)).is_some_and(|byte| byte >> (row % 8) & 1 == 0)
    };
    macro_rules! first_beyond {
        ($($dtype:ident => $type:ty),+) => {
            match codes.dtype() {
                $(DType::$dtype => codes.as_slice::<$type>()?.iter().enumerate().find_map(|(index, code)| {
                    let inside = usize::try_from(*code).is_ok_and(|code| code < length) || is_null(index);
                    (!inside).then(|| (index, code.to_string()))
                }),)+
                other => Some((0, other.to_string())),
            }
        };
    }
    let beyond = first_beyond!(
        Int8 => i8, Int16 => i16, Int32 => i32, Int64 => i64, UInt8 => u8, UInt16 => u16, UInt32 => u32, UInt64 => u64
    );
    match beyond {
        None => Ok(()),
        Some((index, code)) => {
            let error = Error::invalid(format!("the code {code} is beyond the dictionary's {length} values"))
                .at_row(index.checked_div(row_elements).unwrap_or(0))
                .remedy_is("tell which rows are null with to_arrow(validity=), or set it to a code that there is");
            Err(error.in_column(codes.field().map_or("", |field| field.name())))
        }
    }
}

/// A bit for each bool of a row-major tensor, and how many are false.
fn pack_bools(tensor: &Tensor, why: &str) -> Result<(Vec<u8>, usize)> {
    let packed = pack_bits(tensor.as_bytes()?.iter().map(|byte| *byte != 0));
    copy_log::record(|| Copied {
        what: format!("tensor of bool {:?}", tensor.shape()),
        why: why.to_owned(),
        bytes: packed.0.len(),
    });
    Ok(packed)
}

/// The bitmap of a bool tensor with an element for each row, and how many are null.
pub(crate) fn row_validity(valid: &Tensor, rows: usize) -> Result<(Vec<u8>, usize)> {
    if valid.dtype() != DType::Bool
        || usize::try_from(valid.shape().first().copied().unwrap_or(1)) != Ok(rows)
        || valid.ndim() > 1
    {
        return Err(Error::argument(format!(
            "validity must be one bool for each of the {rows} rows, and is {} of shape {:?}",
            valid.dtype(),
            valid.shape()
        )));
    }
    require_host(valid.device(), "")?;
    let dense = if valid.is_row_major() { valid.clone() } else { compact(valid, "strided validity gathered")? };
    pack_bools(&dense, "validity packed to bits")
}
