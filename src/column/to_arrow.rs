//! Converts a tensor to an Arrow array.

use std::sync::Arc;

use arrow_schema::FieldRef;
use smallvec::{SmallVec, smallvec};

use super::require_host;
#[cfg(feature = "python")]
use super::{chunks_to_tensor_by, run_here};
use crate::alloc::fallible;
use crate::arrow::{ArrayNode, DeviceArray, DeviceBitmaps, array_ready_at};
use crate::convert::{self, compact};
use crate::copy_log::{self, Copied};
use crate::cuda::is_cuda;
use crate::device::Device;
use crate::dtype::DType;
#[cfg(feature = "python")]
use crate::error::ErrorKind;
use crate::error::{Error, Remedy, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::kernels::{self, moved};
use crate::plan::{Placement, Plan};
use crate::spec::{CopyMode, Element, TensorField};
#[cfg(feature = "python")]
use crate::spec::{Options, Spec};
use crate::stream_order::Readiness;
use crate::tensor::{Owner, Tensor};
use crate::transfer::{Transfer, array_to_device, tensor_to_device};

/// Converts a tensor into an array: 1-d as a plain column, n-d as `arrow.fixed_shape_tensor` rows, 0-d as one row. Bools
/// become `arrow.bool8`. A tensor that came from Arrow returns to its own type.
///
/// `valid`, a bool for each row, becomes the validity bitmap. A view where the layout allows it.
///
/// # Errors
/// When no Arrow type holds the dtype, a copy is needed and not allowed, `valid` does not fit, or an allocation fails.
///
/// ```
/// use arrow_array::{Float64Array, cast::AsArray, types::Float64Type};
/// use arrow_dlpack::{CopyMode, to_arrow, to_tensor};
///
/// let tensor = to_tensor(&Float64Array::from(vec![1.0, 2.0]))?;
/// let array = to_arrow(&tensor, None, CopyMode::Never)?.to_arrow()?;
/// assert_eq!(array.as_primitive::<Float64Type>().values(), &[1.0, 2.0]);
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
pub fn to_arrow(tensor: &Tensor, valid: Option<&Tensor>, copy: CopyMode) -> Result<DeviceArray> {
    array_of(tensor, tensor.arrow_form()?, valid, copy)
}

/// A tensor as an array of this form.
pub(super) fn array_of(
    tensor: &Tensor,
    form: TensorField,
    valid: Option<&Tensor>,
    copy: CopyMode,
) -> Result<DeviceArray> {
    let (plan, rows) = (plan(tensor, &form, valid.is_some(), copy)?, form.rows);
    let on_device = valid.filter(|_| !tensor.device().is_cpu());
    on_device.map(|valid| require_validity_on(tensor.device(), valid)).transpose()?;
    let bitmap = match on_device {
        None => valid.map(|valid| Bitmap::of_rows(valid, rows)).transpose()?,
        Some(valid) if tensor.codes_may_be_beyond() => Some(Bitmap::of_rows(&compared_on_host(valid)?, rows)?),
        Some(_) => None,
    };
    let mut column = column_node(tensor, form, &plan, bitmap)?;
    if let Some(valid) = on_device {
        require_row_bools(valid, rows)?;
        // A copy of the values may be elsewhere than they were.
        let device = column.readiness.as_ref().map_or(tensor.device(), Readiness::device);
        if let Some(bits) = pack_on_device(std::slice::from_ref(valid), rows, device)? {
            column = column.with_device_bitmap(&bits, 0);
            column.readiness = Readiness::joined(column.readiness.into_iter().chain([bits.readiness]))?;
        }
    }
    let ColumnNode { node, field, owner, readiness } = column;
    array_ready_at(node.export(&owner)?, field, readiness)
}

/// Copies the validity of dictionary codes to the host, which compares the codes of valid rows with the dictionary.
///
/// # Errors
/// When the copy to the host fails.
pub(crate) fn compared_on_host(valid: &Tensor) -> Result<Tensor> {
    tensor_to_device(valid, &Transfer::to(Device::CPU, "validity of codes that are compared with their dictionary"))
}

/// Refuses a validity on another device than the values.
///
/// # Errors
/// Names both devices.
pub(crate) fn require_validity_on(values: Device, valid: &Tensor) -> Result<()> {
    if valid.device() == values {
        return Ok(());
    }
    let reason = format!("the values are on {values}, and their validity is on {}", valid.device());
    Err(Error::argument(reason).remedy_is("move the validity to the device of the values"))
}

/// Packs columns of bools on one device into bits beside values on `device`, by kernels, without counting the nulls; `None` if there are no rows or no columns.
/// Each column is a tensor of `rows` elements that [`require_validity_on`] accepted.
///
/// # Errors
/// When an allocation fails.
pub(crate) fn pack_on_device(columns: &[Tensor], rows: usize, device: Device) -> Result<Option<DeviceBitmaps>> {
    let dense = |valid: &Tensor| match valid.is_row_major() {
        true => Ok(valid.clone()),
        false => moved(valid, "strided validity gathered"),
    };
    let columns = columns.iter().map(dense).collect::<Result<Vec<_>>>()?;
    if rows == 0 || columns.is_empty() {
        return Ok(None);
    }
    let readiness = Readiness::joined(columns.iter().filter_map(Tensor::readiness).cloned())?;
    let readiness = readiness.ok_or_else(|| Error::internal("validity on a device without an order"))?;
    let starts: Vec<_> = columns.iter().map(|valid| valid.as_ptr().addr()).collect();
    let bits = kernels::pack_bits(&readiness, &starts, rows, device)?;
    columns.iter().for_each(|valid| record_packed(valid, "validity packed to bits"));
    Ok(Some(bits))
}

/// The plan for a tensor as an array of this form.
///
/// # Errors
/// When a copy is needed and not allowed, or the tensor is on a device that cannot make it.
pub(super) fn plan(tensor: &Tensor, form: &TensorField, has_validity: bool, copy: CopyMode) -> Result<Plan> {
    Plan::to_arrow(form, tensor.is_aligned(), has_validity, copy, placement(tensor.device()))
}

/// The plan for a tensor as a column.
///
/// # Errors
/// As [`to_arrow`], before anything is copied.
pub(crate) fn plan_to_arrow(tensor: &Tensor, copy: CopyMode) -> Result<Plan> {
    plan(tensor, &tensor.arrow_form()?, false, copy)
}

/// What does the steps for a tensor on this device.
pub(crate) fn placement(device: Device) -> Placement {
    match device {
        host if host.is_cpu() => Placement::Host,
        device if is_cuda(device) => Placement::Kernels(device),
        device => Placement::Views(device),
    }
}

/// The bits of a column's rows, set where they are valid: some of the bytes of a block that columns may share.
#[derive(Clone, Debug)]
pub(crate) struct Bitmap {
    pub(crate) block: Arc<Vec<u8>>,
    /// The first of the column's bytes.
    pub(crate) start: usize,
    pub(crate) nulls: usize,
}

impl Bitmap {
    /// The bitmap of a bool tensor with an element for each row.
    pub(crate) fn of_rows(valid: &Tensor, rows: usize) -> Result<Self> {
        row_validity(valid, rows).map(|(bits, nulls)| Self { block: Arc::new(bits), start: 0, nulls })
    }

    /// The bitmap of lists' items, of which so many make a row: null in rows that are null in `valid`.
    fn of_items(valid: &[u8], rows: usize, row_items: usize) -> Result<Self> {
        let mut bits = fallible::zeroed(rows.saturating_mul(row_items).div_ceil(8))?;
        let mut nulls = 0;
        // Products are at most the number of items, which exists.
        for row in 0..rows {
            let is_valid = valid.get(row / 8).is_some_and(|byte| byte >> (row % 8) & 1 == 1);
            nulls += if is_valid { 0 } else { row_items };
            for item in (row * row_items..).take(if is_valid { row_items } else { 0 }) {
                bits.get_mut(item / 8).into_iter().for_each(|byte| *byte |= 1 << (item % 8));
            }
        }
        Ok(Self { block: Arc::new(bits), start: 0, nulls })
    }

    fn bits(&self) -> &[u8] {
        self.block.get(self.start..).unwrap_or(&[])
    }
}

/// A column that is not exported yet: what its struct says, its field, and what keeps its memory alive.
pub(crate) struct ColumnNode {
    pub(crate) node: ArrayNode,
    pub(crate) field: FieldRef,
    pub(crate) owner: Owner,
    /// When the memory is written, on a device.
    pub(crate) readiness: Option<Readiness>,
}

impl ColumnNode {
    /// Returns the same column of a device with column `index` of `bits` as its validity bitmap. The caller joins the stream order of both.
    pub(crate) fn with_device_bitmap(mut self, bits: &DeviceBitmaps, index: usize) -> Self {
        if let Some(bitmap) = self.node.buffers.first_mut() {
            *bitmap = bits.column(index);
        }
        self.node.null_count = None;
        self.owner = Arc::new((bits.owner.clone(), self.owner));
        if !self.field.is_nullable() {
            self.field = Arc::new(self.field.as_ref().clone().with_nullable(true));
        }
        self
    }
}

/// Returns a tensor as a column of `form`, by running `plan`, which was made for this tensor and this form.
///
/// # Errors
/// When codes are none of their dictionary, or an allocation fails.
pub(crate) fn column_node(
    tensor: &Tensor,
    form: TensorField,
    plan: &Plan,
    bitmap: Option<Bitmap>,
) -> Result<ColumnNode> {
    let tensor = in_form(tensor, &form, plan)?;
    let Elements { values, mut owner, readiness } = Elements::new(&tensor, &form)?;
    let dictionary = tensor.dictionary().filter(|_| form.has_codes());
    // The dictionary stays on its device when the codes are moved.
    let there = Transfer::to(tensor.device(), "the dictionary of codes that were moved");
    let dictionary = dictionary.map(|dictionary| array_to_device(dictionary, &there)).transpose()?;
    let mut leaf =
        ArrayNode { null_count: Some(0), buffers: smallvec![std::ptr::null(), values], ..ArrayNode::default() };
    if let Some(dictionary) = dictionary.as_ref().filter(|_| tensor.codes_may_be_beyond())
        && let Some(items) = null_items(&tensor, &form, dictionary.len(), bitmap.as_ref())?
    {
        leaf.buffers = smallvec![items.bits().as_ptr(), values];
        leaf.null_count = Some(items.nulls);
        owner = Arc::new((items.block, owner));
    }
    let mut node = in_lists(leaf, &form);
    let mut nulls = 0;
    if let Some(own) = node.buffers.first_mut() {
        *own = bitmap.as_ref().map_or(std::ptr::null(), |bitmap| bitmap.bits().as_ptr());
    }
    if let Some(bitmap) = bitmap {
        nulls = bitmap.nulls;
        owner = Arc::new((bitmap.block, owner));
    }
    node.null_count = Some(nulls);
    if let Some(dictionary) = dictionary {
        owner = set_dictionary(&mut node, &dictionary, owner)?;
    }
    let field = if nulls > 0 && !form.field.is_nullable() {
        Arc::new(form.field.as_ref().clone().with_nullable(true))
    } else {
        form.field
    };
    Ok(ColumnNode { node, field, owner, readiness })
}

/// The tensor with its elements in the order of the form: moved, if the plan says so.
fn in_form(tensor: &Tensor, form: &TensorField, plan: &Plan) -> Result<Tensor> {
    // The field says in which order the elements lie: a copy keeps that order.
    let lying = if form.viewable && !tensor.is_row_major() { tensor.in_memory_order() } else { None };
    let tensor = lying.as_ref().unwrap_or(tensor);
    if plan.moves_values() { Ok(moved(tensor, &plan.reasons())?.with_trust_of(tensor)) } else { Ok(tensor.clone()) }
}

/// The buffer of values of a column.
struct Elements {
    values: *const u8,
    owner: Owner,
    readiness: Option<Readiness>,
}

impl Elements {
    /// The memory of a tensor in its form; bools are packed, if that has bits.
    fn new(tensor: &Tensor, form: &TensorField) -> Result<Self> {
        let (owner, readiness) = (tensor.owner().clone(), tensor.readiness().cloned());
        if form.element != Element::Bits || tensor.is_empty() {
            let values = if tensor.is_empty() { std::ptr::dangling() } else { tensor.as_ptr().cast_const() };
            return Ok(Self { values, owner, readiness });
        }
        let packed = if let Some(bools) = &readiness {
            let device = Device::new(DLDeviceType::CUDA, tensor.device().id());
            let bits = kernels::pack_bits(bools, &[tensor.as_ptr().addr()], tensor.len(), device)?;
            Self { values: bits.column(0), owner: bits.owner, readiness: Some(bits.readiness) }
        } else {
            let (bits, _) = convert::pack_bools(tensor.peek_bytes()?)?;
            Self { values: bits.as_ptr().cast_const(), owner: Arc::new((bits, owner)), readiness: None }
        };
        record_packed(tensor, "bools packed to bits");
        Ok(packed)
    }
}

/// Refuses codes that are none of their dictionary's `values`, but in null rows. If such rows are lists, whose items are read by themselves,
/// returns the bitmap under which these items are null, too.
fn null_items(tensor: &Tensor, form: &TensorField, values: usize, bitmap: Option<&Bitmap>) -> Result<Option<Bitmap>> {
    let row_elements = form.elements.checked_div(form.rows).unwrap_or(0);
    let read = tensor_to_device(tensor, &Transfer::to(Device::CPU, "codes compared with their dictionary"))?;
    let valid = bitmap.map(Bitmap::bits);
    let are_beyond = check_codes(&read, values, row_elements, valid)?;
    match valid {
        Some(valid) if are_beyond && tensor.device().is_cpu() && !form.lists.is_empty() => {
            Bitmap::of_items(valid, form.rows, row_elements).map(Some)
        }
        _ => Ok(None),
    }
}

/// The values of a form in its fixed-size lists, none of which is null.
fn in_lists(leaf: ArrayNode, form: &TensorField) -> ArrayNode {
    let mut lengths: SmallVec<[usize; 4]> = SmallVec::from_slice(&[form.rows]);
    for size in &form.lists {
        // The innermost product is the number of elements, which exists.
        lengths.push(lengths.last().map_or(0, |length| length.saturating_mul(*size)));
    }
    let mut lengths = lengths.into_iter().rev();
    let leaf = ArrayNode { length: lengths.next().unwrap_or(0), ..leaf };
    lengths.fold(leaf, |node, length| ArrayNode {
        length,
        null_count: Some(0),
        buffers: smallvec![std::ptr::null()],
        children: vec![node],
        ..ArrayNode::default()
    })
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

/// Refuses codes that are not below `length`, but in rows that are null in the bitmap `valid`. Returns whether there are such codes in those.
fn check_codes(codes: &Tensor, length: usize, row_elements: usize, valid: Option<&[u8]>) -> Result<bool> {
    let mut are_beyond = false;
    let is_null = |index: usize| {
        let row = index.checked_div(row_elements).unwrap_or(0);
        valid.and_then(|bits| bits.get(row / 8)).is_some_and(|byte| byte >> (row % 8) & 1 == 0)
    };
    macro_rules! first_beyond {
        ($($dtype:ident => $type:ty),+) => {
            match codes.dtype() {
                $(DType::$dtype => codes.peek::<$type>()?.iter().enumerate().find_map(|(index, code)| {
                    if usize::try_from(*code).is_ok_and(|code| code < length) {
                        return None;
                    }
                    let is_null = is_null(index);
                    are_beyond |= is_null;
                    (!is_null).then(|| (index, code.to_string()))
                }),)+
                other => Some((0, other.to_string())),
            }
        };
    }
    let beyond = first_beyond!(
        Int8 => i8, Int16 => i16, Int32 => i32, Int64 => i64, UInt8 => u8, UInt16 => u16, UInt32 => u32, UInt64 => u64
    );
    match beyond {
        None => Ok(are_beyond),
        Some((index, code)) => {
            let error = Error::invalid(format!("the code {code} is beyond the dictionary's {length} values"))
                .at_row(index.checked_div(row_elements).unwrap_or(0))
                .remedy_is(Remedy::TellNulls);
            Err(error.in_column(codes.field().map_or("", |field| field.name())))
        }
    }
}

/// Puts it on the record that a bool tensor became bits.
fn record_packed(tensor: &Tensor, why: &str) {
    copy_log::record(|| Copied {
        what: format!("tensor of bool {:?}", tensor.shape()),
        why: why.to_owned(),
        bytes: tensor.len().div_ceil(8),
    });
}

/// The bitmap of a bool tensor with an element for each row, and how many are null.
pub(crate) fn row_validity(valid: &Tensor, rows: usize) -> Result<(Vec<u8>, usize)> {
    require_row_bools(valid, rows)?;
    require_host(valid.device(), "")?;
    let dense = if valid.is_row_major() { valid.clone() } else { compact(valid, "strided validity gathered")? };
    let mut bits = fallible::zeroed(rows.div_ceil(8))?;
    let nulls = convert::pack_bools_into(dense.peek_bytes()?, &mut bits).zeros;
    record_packed(&dense, "validity packed to bits");
    Ok((bits, nulls))
}

/// Refuses what is no bool tensor with an element for each row.
pub(crate) fn require_row_bools(valid: &Tensor, rows: usize) -> Result<()> {
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
    Ok(())
}

/// Refuses an array that is no validity of rows, before it is read.
///
/// # Errors
/// When it has no bool for each row.
#[cfg(feature = "python")]
pub(crate) fn check_row_bools(field: &FieldRef) -> Result<()> {
    let spec = Spec::new(field, &Options::default())?;
    if spec.dtype() == DType::Bool && spec.inner_shape().is_empty() {
        return Ok(());
    }
    Err(Error::argument(format!("validity must be one bool for each row, and is of {}", field.data_type())))
}

/// Returns an array that [`check_row_bools`] accepted as the validity of rows.
///
/// # Errors
/// When a bool is null itself, or the array cannot be converted.
#[cfg(feature = "python")]
pub(crate) fn row_bools(field: &FieldRef, chunks: &[DeviceArray]) -> Result<Tensor> {
    chunks_to_tensor_by(field, chunks, &Options::default(), &run_here).map_err(|error| match error.kind() {
        ErrorKind::Null => {
            let own = Error::new(ErrorKind::Null, "the validity has nulls, the first one here");
            let own = own.remedy_is(Remedy::BoolOfEachRow);
            error.row().map_or(own.clone(), |row| own.at_row(row))
        }
        _ => error,
    })
}
