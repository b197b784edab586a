//! Converts values and offsets to an Arrow array over the same memory.

use std::sync::Arc;

use arrow_schema::{DataType, FieldRef};
use smallvec::smallvec;

use super::planned_arrow::{check_requested, plan_buffer, require_plain_text};
use super::{Ragged, Values};
use crate::arrow::{ArrayNode, DeviceArray, array_ready_at, shared_buffer};
use crate::column::{pack_on_device, row_validity, to_arrow};
use crate::convert::request_field;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::kernels::moved;
use crate::plan::{Action, needs_copy};
use crate::spec::{CopyMode, is_text};
use crate::stream_order::Readiness;
use crate::tensor::{Native, Owner, Tensor};
use crate::transfer::Transfer;

impl Ragged {
    /// The rows as an Arrow array, over the same memory where the values allow it: a list for int32 offsets, a large list
    /// for int64, list views where there are lengths, `arrow.variable_shape_tensor` where there are shapes. Rows that came
    /// from Arrow return to their own type, as long as their elements are what it says.
    ///
    /// # Errors
    /// When no Arrow type holds the values, the parts are on several devices, a copy is needed and not allowed, strings are not UTF-8 any
    /// more, or an allocation fails.
    pub fn to_arrow(&self, copy: CopyMode) -> Result<DeviceArray> {
        self.to_form(self.text(None), copy)
    }

    /// The rows as strings or binaries of this field, or as lists for `None`.
    fn to_form(&self, text: Option<&FieldRef>, copy: CopyMode) -> Result<DeviceArray> {
        if let Some(moved) = self.moved_to_gather(copy)? {
            return moved.to_form(text, copy);
        }
        self.require_one_device()?;
        // Whoever lent the offsets may have changed them since they were checked: a read-only flag binds us alone.
        if [Some(&self.offsets), self.lengths.as_ref(), self.shapes.as_ref()]
            .into_iter()
            .flatten()
            .any(|part| !part.is_untouched())
        {
            self.check()?;
        }
        text.map_or_else(|| self.to_lists(copy), |field| self.to_text(field, copy))
    }

    /// As [`Ragged::to_arrow`], as a field of another type: strings of bytes are checked to be UTF-8, all else is a cast
    /// that every value must survive. Lists of strings or binaries are those of their bytes.
    ///
    /// # Errors
    /// When the values cannot be cast to the type, or as [`Ragged::to_arrow`].
    pub fn to_arrow_as(&self, requested: &FieldRef, copy: CopyMode) -> Result<DeviceArray> {
        // What is wrong with the type comes before what is wrong with a value.
        self.check_type(requested, copy)?;
        let array = match self.text(Some(requested)) {
            Some(text) if is_text(requested.data_type()) => {
                self.check()?;
                self.to_text(text, copy)?
            }
            text => self.to_form(text, copy)?,
        };
        check_requested(array.device(), array.field(), requested, copy)?;
        request_field(&array, requested)
    }

    /// Returns rows in page-locked or managed memory on their CUDA device if a kernel has to gather a part of them: it writes that part to memory
    /// of the device, and all buffers of an array are on one device.
    fn moved_to_gather(&self, copy: CopyMode) -> Result<Option<Self>> {
        let moved = |device| self.to_device(&Transfer::to(device, "rows moved to where strided parts are gathered"));
        self.gathered_on(copy).map(moved).transpose()
    }

    fn to_lists(&self, copy: CopyMode) -> Result<DeviceArray> {
        let child = match &self.values {
            Values::Tensor(tensor) => self.elements_to_arrow(tensor, copy)?,
            Values::Ragged(ragged) => ragged.to_arrow(copy).map_err(|error| self.error_at_row(error))?,
        };
        let mut owners =
            Owners { owners: vec![child.owner()], orders: child.readiness().cloned().into_iter().collect() };
        let mut buffers = smallvec![std::ptr::null(), owners.start(&self.offsets, copy)?];
        if let Some(lengths) = &self.lengths {
            buffers.push(owners.start(lengths, copy)?);
        }
        let field = self.list_type(child.field());
        let node = ArrayNode { length: self.len(), buffers, children: vec![child.node()?], ..ArrayNode::default() };
        match &self.shapes {
            None => self.export(node, owners, field),
            Some(shapes) => self.with_shapes(node, owners, &field, shapes, copy),
        }
    }

    /// `arrow.variable_shape_tensor`: the list and the shapes as a struct.
    fn with_shapes(
        &self,
        mut list: ArrayNode,
        mut owners: Owners,
        list_field: &FieldRef,
        shapes: &Tensor,
        copy: CopyMode,
    ) -> Result<DeviceArray> {
        let shapes = to_arrow(shapes, None, copy)?;
        owners.owners.push(shapes.owner());
        owners.orders.extend(shapes.readiness().cloned());
        list.null_count = Some(0);
        let (field, data_first) = self.shaped_type(list_field)?;
        let mut children = vec![list, shapes.node()?];
        if !data_first {
            children.reverse();
        }
        let node =
            ArrayNode { length: self.len(), buffers: smallvec![std::ptr::null()], children, ..ArrayNode::default() };
        self.export(node, owners, field)
    }

    /// Strings or binaries over the bytes.
    fn to_text(&self, field: &FieldRef, copy: CopyMode) -> Result<DeviceArray> {
        let Values::Tensor(values) = &self.values else { return self.to_lists(copy) };
        let is_read = self.is_text_read(values, field);
        // Refuses memory that is not the CPU's, before a copy of it may leave the host.
        if is_read && !values.device().is_cpu() {
            values.peek_bytes()?;
        }
        // The bytes that are checked are those of the array: strided ones are gathered once.
        let values = &laid_out(values, copy)?;
        if is_read {
            match self.offsets.dtype() {
                DType::Int32 => self.check_text::<i32>(values)?,
                _ => self.check_text::<i64>(values)?,
            }
        }
        let mut owners = Owners::default();
        let buffers = smallvec![std::ptr::null(), owners.start(&self.offsets, copy)?, owners.keep(values)];
        let node = ArrayNode { length: self.len(), buffers, ..ArrayNode::default() };
        let array = self.export(node, owners, self.text_field(field))?;
        require_plain_text(field.data_type(), copy)?;
        match field.data_type() {
            DataType::Utf8View | DataType::BinaryView => {
                // As offsets do, views need a place for nulls that a null row or a gap brought.
                let nullable = field.is_nullable() || array.field().is_nullable();
                request_field(&array, &Arc::new(field.as_ref().clone().with_nullable(nullable)))
            }
            _ => Ok(array),
        }
    }

    /// Refuses bytes that are no text; they lie next to each other.
    fn check_text<T: Native + Into<i64>>(&self, values: &Tensor) -> Result<()> {
        let (bytes, offsets) = (values.peek_bytes()?, self.offsets.peek::<T>()?);
        let at = |offset: &T| usize::try_from((*offset).into()).unwrap_or(usize::MAX);
        let (first, last) = (offsets.first().map_or(0, at), offsets.last().map_or(0, at));
        // One pass over all of it, then only its boundaries, is faster than a pass over each row.
        let whole = bytes.get(first..last).map(std::str::from_utf8);
        if let Some(Ok(text)) = whole
            && offsets.iter().all(|offset| at(offset).checked_sub(first).is_some_and(|at| text.is_char_boundary(at)))
        {
            return Ok(());
        }
        let is_text = |ends: &[T]| match ends {
            [start, end] => bytes.get(at(start)..at(end)).is_some_and(|row| std::str::from_utf8(row).is_ok()),
            _ => false,
        };
        // The bytes of null rows are refused too, but the row to name is one that has a value.
        let wrong = offsets.windows(2).enumerate().position(|(row, ends)| !is_text(ends) && self.is_valid(row));
        let error = Error::new(ErrorKind::Cast, "the bytes are not UTF-8");
        Err(wrong.map_or(error.clone(), |row| error.at_row(row)).remedy_is(Remedy::BinaryType))
    }

    /// The array, with the validity of rows.
    fn export(&self, mut node: ArrayNode, mut owners: Owners, field: FieldRef) -> Result<DeviceArray> {
        node.null_count = Some(0);
        if let (Some(validity), Some(bitmap)) = (&self.validity, node.buffers.first_mut()) {
            if validity.device().is_cpu() {
                let (bits, nulls) = row_validity(validity, self.len())?;
                let (start, owner) = shared_buffer(bits, Arc::new(()));
                *bitmap = start;
                node.null_count = Some(nulls);
                owners.owners.push(owner);
            } else if validity.device().device_type() == DLDeviceType::CUDA_MANAGED {
                return Err(needs_copy(validity.device(), &Action::PackValidity.to_string()));
            } else if let Some(bits) =
                pack_on_device(std::slice::from_ref(validity), self.len(), self.offsets.device())?
            {
                *bitmap = bits.column(0);
                // Nobody counts them on a device.
                node.null_count = None;
                owners.owners.push(bits.owner);
                owners.orders.push(bits.readiness);
            }
        }
        let nullable = node.null_count != Some(0) && !field.is_nullable();
        let field = if nullable { Arc::new(field.as_ref().clone().with_nullable(true)) } else { field };
        let (owner, readiness): (Owner, _) = (Arc::new(owners.owners), Readiness::joined(owners.orders)?);
        array_ready_at(node.export(&owner)?, field, readiness)
    }
}

/// What keeps the buffers of an array alive, and when those on a device are written.
#[derive(Default)]
struct Owners {
    owners: Vec<Owner>,
    orders: Vec<Readiness>,
}

impl Owners {
    /// Where a tensor's elements start, next to each other; a copy of them if one is asked for or needed.
    fn start(&mut self, tensor: &Tensor, copy: CopyMode) -> Result<*const u8> {
        Ok(self.keep(&laid_out(tensor, copy)?))
    }

    /// As [`Owners::start`], of a tensor of [`laid_out`].
    fn keep(&mut self, tensor: &Tensor) -> *const u8 {
        self.owners.push(tensor.owner().clone());
        self.orders.extend(tensor.readiness().cloned());
        if tensor.is_empty() { std::ptr::dangling::<u64>().cast() } else { tensor.as_ptr().cast_const() }
    }
}

/// A tensor with its elements next to each other; a copy of them if one is asked for or needed.
fn laid_out(tensor: &Tensor, copy: CopyMode) -> Result<Tensor> {
    let plan = plan_buffer(tensor, copy)?;
    if plan.is_view() { Ok(tensor.clone()) } else { moved(tensor, &plan.reasons()) }
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int32Type;
    use arrow_array::{ArrayRef, BinaryArray, BinaryViewArray, ListArray};
    use arrow_buffer::{Buffer, OffsetBuffer};
    use arrow_schema::Field;

    use super::*;
    use crate::Conversion;
    use crate::error::Language;
    use crate::spec::NullPolicy;

    fn field(data_type: DataType) -> FieldRef {
        Arc::new(Field::new("x", data_type, true))
    }

    fn ragged(array: ArrayRef) -> Ragged {
        let array = DeviceArray::from_arrow(&array, field(array.data_type().clone())).unwrap();
        Conversion::default().ragged(&array).unwrap()
    }

    fn refusal(error: &Error) -> (&str, Option<String>, Option<String>) {
        assert_eq!(error.kind(), ErrorKind::Copy, "{error}");
        (error.reason(), error.remedy(), error.remedy_in(Language::Python))
    }

    #[test]
    fn each_copy_that_is_not_allowed_is_to_be_allowed() {
        let allow = (Some("pass CopyMode::IfNeeded to allow it".into()), Some("pass copy=None to allow it".into()));
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>([Some([1, 2].map(Some)), Some([3, 4].map(Some))]);
        let rows = ragged(Arc::new(lists));
        let wider = field(DataType::List(Arc::new(Field::new("item", DataType::Int64, true))));
        let error = rows.to_arrow_as(&wider, CopyMode::Never).unwrap_err();
        let (reason, remedy, python) = refusal(&error);
        assert!(reason.starts_with("a copy is needed (cast from List"), "{reason}");
        assert_eq!((remedy, python), allow);

        let strided = Tensor::from_vec(vec![0, 9, 2, 9, 4, 9], &[3, 2]).unwrap().column(0).unwrap();
        let error = Owners::default().start(&strided, CopyMode::Never).unwrap_err();
        let (reason, remedy, python) = refusal(&error);
        assert_eq!(reason, "a copy is needed (strided elements gathered)");
        assert_eq!((remedy, python), allow);
    }

    #[test]
    fn views_that_are_not_allowed_can_be_another_type_too() {
        let rows = ragged(Arc::new(BinaryViewArray::from_iter_values([b"ab", b"cd"])));
        let error = rows.to_arrow(CopyMode::Never).unwrap_err();
        let (reason, remedy, python) = refusal(&error);
        assert_eq!(reason, "a copy is needed (views of BinaryView)");
        assert_eq!(remedy.as_deref(), Some("pass CopyMode::IfNeeded to allow it, or another type"));
        assert_eq!(python.as_deref(), Some("pass copy=None to allow it, or another type"));
    }

    #[test]
    fn bytes_that_are_no_text_are_those_of_a_row_that_is_not_null() {
        // The bytes of the null row are no text either.
        let offsets = OffsetBuffer::new(vec![0, 1, 2, 3].into());
        let bytes = || Buffer::from_slice_ref(b"\xff\xffa");
        for (valid, row) in
            [([false, true, true], Some(1)), ([true, true, true], Some(0)), ([false, false, true], None)]
        {
            let rows = BinaryArray::new(offsets.clone(), bytes(), Some(valid.to_vec().into()));
            let array = DeviceArray::from_arrow(&rows, field(DataType::Binary)).unwrap();
            let rows = Conversion::default().nulls(NullPolicy::Keep).ragged(&array).unwrap();
            let error = rows.to_arrow_as(&field(DataType::Utf8), CopyMode::Never).unwrap_err();
            assert_eq!((error.kind(), error.row()), (ErrorKind::Cast, row), "{error}");
        }
    }
}
