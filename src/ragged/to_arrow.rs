//! Converts values and offsets to an Arrow array over the same memory.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field, FieldRef, Fields};

use super::{Ragged, Values};
use crate::arrow::{ArrayNode, DeviceArray, array_ready_at, same_layout, shared_buffer};
use crate::column::{pack_on_device, row_validity, to_arrow};
use crate::convert::{compact, request_field};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::kernels::moved;
use crate::plan::{Action, needs_copy, refused_copy};
use crate::spec::{CopyMode, PRIVATE, VariableShape, casting, is_text};
use crate::stream_order::Readiness;
use crate::tensor::{Native, Owner, Tensor};
use crate::transfer::Transfer;

impl Ragged {
    /// The rows as an Arrow array, over the same memory where the values allow it: a list for int32 offsets, a large list
    /// for int64, list views where there are lengths, `arrow.variable_shape_tensor` where there are shapes. Rows that came
    /// from Arrow return to their own type, as long as their elements are what it says.
    ///
    /// # Errors
    /// When no Arrow type holds the values, a copy is needed and not allowed, strings are not UTF-8 any more, or an allocation fails.
    pub fn to_arrow(&self, copy: CopyMode) -> Result<DeviceArray> {
        if let Some(moved) = self.moved_to_gather(copy)? {
            return moved.to_arrow(copy);
        }
        // Whoever lent the offsets may have changed them since they were checked: a read-only flag binds us alone.
        if [Some(&self.offsets), self.lengths.as_ref(), self.shapes.as_ref()]
            .into_iter()
            .flatten()
            .any(|part| !part.is_untouched())
        {
            self.check()?;
        }
        match &self.field {
            Some(field) if is_text(field.data_type()) && self.holds_bytes() => self.to_text(field, copy),
            _ => self.to_lists(copy),
        }
    }

    /// As [`Ragged::to_arrow`], as a field of another type: strings of bytes are checked to be UTF-8, all else is a cast
    /// that every value must survive.
    ///
    /// # Errors
    /// When the values cannot be cast to the type, or as [`Ragged::to_arrow`].
    pub fn to_arrow_as(&self, requested: &FieldRef, copy: CopyMode) -> Result<DeviceArray> {
        let array = if is_text(requested.data_type()) && self.holds_bytes() {
            self.check()?;
            self.to_text(requested, copy)?
        } else {
            self.to_arrow(copy)?
        };
        let (from, to) = (array.field().data_type(), requested.data_type());
        if copy == CopyMode::Never && !same_layout(from, to) {
            return Err(refused_copy(&casting(from, to)));
        }
        request_field(&array, requested)
    }

    /// Returns rows in page-locked or managed memory on their CUDA device if a kernel has to gather a part of them: it writes that part to memory
    /// of the device, and all buffers of an array are on one device.
    fn moved_to_gather(&self, copy: CopyMode) -> Result<Option<Self>> {
        let device = self.offsets.device();
        let is_reached = matches!(device.device_type(), DLDeviceType::CUDA_HOST | DLDeviceType::CUDA_MANAGED);
        let is_gathered = |part: &Tensor| copy == CopyMode::Always || !part.is_row_major() || !part.is_aligned();
        if !is_reached || copy == CopyMode::Never || !self.parts().iter().any(is_gathered) {
            return Ok(None);
        }
        let device = Device::new(DLDeviceType::CUDA, device.id());
        self.to_device(&Transfer::to(device, "rows moved to where strided parts are gathered")).map(Some)
    }

    /// Whether values and offsets are those of strings.
    fn holds_bytes(&self) -> bool {
        let bytes = self.values.as_tensor().is_some_and(|values| values.dtype() == DType::UInt8 && values.ndim() == 1);
        bytes && self.lengths.is_none() && self.shapes.is_none()
    }

    fn to_lists(&self, copy: CopyMode) -> Result<DeviceArray> {
        let child = match &self.values {
            Values::Tensor(tensor) => self.elements_to_arrow(tensor, copy)?,
            Values::Ragged(ragged) => ragged.to_arrow(copy).map_err(|error| self.error_at_row(error))?,
        };
        let mut owners =
            Owners { owners: vec![child.owner()], orders: child.readiness().cloned().into_iter().collect() };
        let mut buffers = vec![std::ptr::null(), owners.start(&self.offsets, copy)?];
        if let Some(lengths) = &self.lengths {
            buffers.push(owners.start(lengths, copy)?);
        }
        let kept = self.field.as_ref().filter(|_| self.shapes.is_none());
        // Nulls that a null row brought to its own rows need a place.
        let item = |item: &FieldRef| {
            same_layout(item.data_type(), child.field().data_type())
                && (item.is_nullable() || !child.field().is_nullable())
        };
        let field = match kept.map(|field| field.data_type()) {
            Some(
                DataType::List(own) | DataType::LargeList(own) | DataType::ListView(own) | DataType::LargeListView(own),
            ) if item(own) => kept.cloned(),
            _ => None,
        };
        let field = field.unwrap_or_else(|| Arc::new(self.list_field(child.field())));
        let node = ArrayNode { length: self.len(), buffers, children: vec![child.node()?], ..ArrayNode::default() };
        match &self.shapes {
            None => self.export(node, owners, field),
            Some(shapes) => self.with_shapes(node, owners, &field, shapes, copy),
        }
    }

    /// The field of a list of these elements.
    fn list_field(&self, item: &FieldRef) -> Field {
        let name = self.field.as_ref().map_or("", |field| field.name());
        let item = Arc::new(item.as_ref().clone().with_name("item").with_nullable(true));
        let wide = self.offsets.dtype() == DType::Int64;
        let data_type = match (self.lengths.is_some(), wide) {
            (false, false) => DataType::List(item),
            (false, true) => DataType::LargeList(item),
            (true, false) => DataType::ListView(item),
            (true, true) => DataType::LargeListView(item),
        };
        Field::new(name, data_type, true)
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
        let kept = self.field.as_ref().and_then(|field| match field.data_type() {
            DataType::Struct(fields) => Some((field, fields)),
            _ => None,
        });
        let ndim = self.shapes.as_ref().and_then(|shapes| shapes.shape().get(1)).copied().unwrap_or(0);
        let ndim = i32::try_from(ndim).map_err(|_| Error::unsupported(format!("{ndim} dimensions")))?;
        let extents = DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Int32, false)), ndim);
        let own = [list_field.as_ref().clone().with_name("data"), Field::new("shape", extents, false)];
        let fits = |fields: &Fields| {
            let find = |field: &Field| fields.iter().position(|own| own.name() == field.name());
            let same = |own: &Field| {
                fields.find(own.name()).is_some_and(|(_, field)| same_layout(field.data_type(), own.data_type()))
            };
            (fields.len() == 2 && own.iter().all(same)).then(|| find(&own[0]) == Some(0))
        };
        let (field, data_first) = match kept.and_then(|(field, fields)| Some((field.clone(), fits(fields)?))) {
            Some(kept) => kept,
            None => {
                let name = self.field.as_ref().map_or("", |field| field.name());
                let entries = [(EXTENSION_TYPE_NAME_KEY, VariableShape::NAME), (EXTENSION_TYPE_METADATA_KEY, "{}")];
                let of_rows = || entries.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
                // The order of the elements is there, whatever type they have by now.
                let metadata: HashMap<_, _> = kept.map_or_else(of_rows, |(field, _)| field.metadata().clone());
                let data_type = DataType::Struct(own.iter().cloned().collect());
                (Arc::new(Field::new(name, data_type, true).with_metadata(metadata)), true)
            }
        };
        let mut children = vec![list, shapes.node()?];
        if !data_first {
            children.reverse();
        }
        let node = ArrayNode { length: self.len(), buffers: vec![std::ptr::null()], children, ..ArrayNode::default() };
        self.export(node, owners, field)
    }

    /// Strings or binaries over the bytes.
    fn to_text(&self, field: &FieldRef, copy: CopyMode) -> Result<DeviceArray> {
        let Values::Tensor(values) = &self.values else { return self.to_lists(copy) };
        let text = matches!(field.data_type(), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
        // A producer of Arrow data vouches for its strings: bytes and offsets in its memory, as they lie there.
        let trusted = values.is_untouched()
            && self.offsets.is_untouched()
            && self.field.as_ref().is_some_and(|own| own.data_type() == field.data_type());
        // Offsets lie within the bytes, so that without bytes every row is the empty string.
        if text && !trusted && !values.is_empty() {
            match self.offsets.dtype() {
                DType::Int32 => self.check_text::<i32>(values)?,
                _ => self.check_text::<i64>(values)?,
            }
        }
        let data_type = match (text, self.offsets.dtype()) {
            (true, DType::Int32) => DataType::Utf8,
            (true, _) => DataType::LargeUtf8,
            (false, DType::Int32) => DataType::Binary,
            (false, _) => DataType::LargeBinary,
        };
        let mut owners = Owners::default();
        let buffers = vec![std::ptr::null(), owners.start(&self.offsets, copy)?, owners.start(values, copy)?];
        let node = ArrayNode { length: self.len(), buffers, ..ArrayNode::default() };
        let own = Arc::new(field.as_ref().clone().with_data_type(data_type));
        let array = self.export(node, owners, own)?;
        // Views are made of their plain form, by a copy.
        match field.data_type() {
            DataType::Utf8View | DataType::BinaryView if copy == CopyMode::Never => {
                let error = refused_copy(&format!("views of {}", field.data_type()));
                Err(error.remedy_is(Remedy::AllowCopyOrOtherType))
            }
            DataType::Utf8View | DataType::BinaryView => request_field(&array, field),
            _ => Ok(array),
        }
    }

    fn check_text<T: Native + Into<i64>>(&self, values: &Tensor) -> Result<()> {
        let dense = if values.is_row_major() { values.clone() } else { compact(values, "strided values gathered")? };
        let (bytes, offsets) = (dense.peek_bytes()?, self.offsets.peek::<T>()?);
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
        let why = match copy {
            CopyMode::Always => PRIVATE,
            _ if tensor.is_row_major() && tensor.is_aligned() => "",
            CopyMode::Never => return Err(refused_copy("strided elements gathered")),
            CopyMode::IfNeeded => "strided elements gathered",
        };
        let tensor = if why.is_empty() { tensor.clone() } else { moved(tensor, why)? };
        self.owners.push(tensor.owner().clone());
        self.orders.extend(tensor.readiness().cloned());
        Ok(if tensor.is_empty() { std::ptr::dangling::<u64>().cast() } else { tensor.as_ptr().cast_const() })
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int32Type;
    use arrow_array::{ArrayRef, BinaryArray, BinaryViewArray, ListArray};
    use arrow_buffer::{Buffer, OffsetBuffer};

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
