//! Plans ragged rows as an Arrow array: what is done to each part.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field, FieldRef, Fields};

use super::{Part, Ragged, Values};
use crate::arrow::{counts_in, same_layout};
use crate::column::{placement, plan_to_arrow};
use crate::convert::check_request_on;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Remedy, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::plan::{Action, Plan, refused_copy};
use crate::spec::{CopyMode, VariableShape, casting, is_text, is_utf8, item_of_lists};
use crate::tensor::Tensor;
use crate::transfer::plan_transfer_unasked;

/// The plan for a tensor as a buffer: its elements next to each other.
///
/// # Errors
/// When they are not, and no copy is allowed.
pub(super) fn plan_buffer(tensor: &Tensor, copy: CopyMode) -> Result<Plan> {
    let action = match copy {
        CopyMode::Always => Some(Action::Private),
        _ if tensor.is_row_major() && tensor.is_aligned() => None,
        CopyMode::Never => return Err(refused_copy(&Action::Gather.to_string())),
        CopyMode::IfNeeded => Some(Action::Gather),
    };
    let plan = Plan::of_part(tensor.dtype(), tensor.len(), action);
    Ok(Plan { placement: placement(tensor.device()), ..plan })
}

/// Refuses views of strings, which are made of their plain form.
///
/// # Errors
/// When no copy is allowed.
pub(super) fn require_plain_text(data_type: &DataType, copy: CopyMode) -> Result<()> {
    if copy == CopyMode::Never && matches!(data_type, DataType::Utf8View | DataType::BinaryView) {
        return Err(refused_copy(&format!("views of {data_type}")).remedy_is(Remedy::AllowCopyOrOtherType));
    }
    Ok(())
}

/// Refuses a requested type that no rows on this device could become.
///
/// # Errors
/// When there is no cast, or one is needed and no copy allowed.
pub(super) fn check_requested(device: Device, own: &FieldRef, requested: &FieldRef, copy: CopyMode) -> Result<()> {
    check_request_on(device, own, requested)?;
    let (own, wanted) = (own.data_type(), requested.data_type());
    if copy == CopyMode::Never && !same_layout(own, wanted) && !counts_in(own, wanted) {
        return Err(refused_copy(&casting(own, wanted)));
    }
    Ok(())
}

/// As [`check_requested`], of rows that are `text` or of their `own` type before a cast.
fn check_cast(
    (text, own): (Option<&FieldRef>, &FieldRef),
    device: Device,
    requested: &FieldRef,
    copy: CopyMode,
) -> Result<()> {
    text.map_or(Ok(()), |text| require_plain_text(text.data_type(), copy))?;
    let from = text.filter(|_| !is_text(requested.data_type())).unwrap_or(own);
    check_requested(device, from, requested, copy)
}

impl Ragged {
    /// The plans for the parts of these rows as an Arrow array, of the `requested` type if there is one, and the type that the array has
    /// before a cast to that.
    ///
    /// # Errors
    /// When no Arrow type holds the values. What else is refused is the error of its part.
    pub(crate) fn plan_to_arrow(&self, requested: Option<&FieldRef>, copy: CopyMode) -> Result<(FieldRef, Vec<Part>)> {
        if let Some(device) = self.gathered_on(copy) {
            return self.plan_moved(device, requested, copy);
        }
        let text = self.text(requested);
        let own = self.own_field(text)?;
        let field = requested.or(text).unwrap_or(&own);
        let offsets = self.require_one_device().and_then(|_| plan_buffer(&self.offsets, copy));
        let mut parts = vec![part("offsets", field, &self.offsets, offsets)];
        parts.extend(self.lengths.iter().map(|lengths| part("lengths", field, lengths, plan_buffer(lengths, copy))));
        if let Some(validity) = &self.validity {
            let mut plan = Plan { rows: self.len(), placement: placement(validity.device()), ..Plan::default() };
            if !self.is_empty() {
                plan.add(Action::PackValidity, self.len().div_ceil(8));
            }
            let is_managed = validity.device().device_type() == DLDeviceType::CUDA_MANAGED;
            let plan = if is_managed { Err(plan.refused_on(validity.device())) } else { Ok(plan) };
            parts.push(part("validity", field, validity, plan));
        }
        parts.extend(self.shapes.iter().map(|shapes| part("shapes", field, shapes, plan_to_arrow(shapes, copy))));
        match &self.values {
            Values::Tensor(values) if text.is_some() => {
                let mut part = part("values", field, values, plan_buffer(values, copy));
                if !values.device().is_cpu() && text.is_some_and(|text| self.is_text_read(values, text)) {
                    part.error = part.error.or(values.peek_bytes().err());
                }
                parts.push(part);
            }
            Values::Tensor(values) => {
                let form = values.arrow_form()?;
                parts.push(part("values", &form.field, values, plan_to_arrow(values, copy)));
            }
            Values::Ragged(rows) => {
                let inner = rows.plan_to_arrow(None, copy)?.1;
                parts.extend(
                    inner.into_iter().map(|part| Part { name: format!("values.{}", part.name).into(), ..part }),
                );
            }
        }
        if let Some(values) = parts.last_mut() {
            let (from, to) = (own.data_type(), field.data_type());
            match check_cast((text, &own), self.offsets.device(), field, copy) {
                Ok(()) if same_layout(from, to) || counts_in(from, to) => {}
                Ok(()) => values.plan.add(Action::CastAsRequested, 0),
                Err(error) => values.error = Some(error),
            }
        }
        Ok((own, parts))
    }

    /// Refuses a requested type that no such rows could become, before any value is read.
    ///
    /// # Errors
    /// As [`Ragged::plan_to_arrow`], or when there is no cast, or one is needed and no copy allowed.
    pub(super) fn check_type(&self, requested: &FieldRef, copy: CopyMode) -> Result<()> {
        let text = self.text(Some(requested));
        let own = self.own_field(text)?;
        let device = self.gathered_on(copy).unwrap_or_else(|| self.offsets.device());
        check_cast((text, &own), device, requested, copy)
    }

    /// The type of the rows before a cast to a requested one: `text` in plain form, or lists without it.
    fn own_field(&self, text: Option<&FieldRef>) -> Result<FieldRef> {
        text.map_or_else(|| self.arrow_field(), |field| Ok(self.text_field(field)))
    }

    /// The CUDA device that rows in page-locked or managed memory are moved to if a kernel has to gather a part of them.
    pub(super) fn gathered_on(&self, copy: CopyMode) -> Option<Device> {
        let device = self.offsets.device();
        let is_reached = matches!(device.device_type(), DLDeviceType::CUDA_HOST | DLDeviceType::CUDA_MANAGED);
        let is_gathered = |part: &Tensor| copy == CopyMode::Always || !part.is_row_major() || !part.is_aligned();
        let is_moved = is_reached && copy != CopyMode::Never && self.parts().iter().any(is_gathered);
        is_moved.then(|| Device::new(DLDeviceType::CUDA, device.id()))
    }

    /// Whether values and offsets are those of strings.
    pub(super) fn holds_bytes(&self) -> bool {
        let bytes = self.values.as_tensor().is_some_and(|values| values.dtype() == DType::UInt8 && values.ndim() == 1);
        bytes && self.lengths.is_none() && self.shapes.is_none()
    }

    /// The field of the rows, if it is one of lists of these elements; else that of lists of them.
    pub(super) fn list_type(&self, child: &FieldRef) -> FieldRef {
        let kept = self.field.as_ref().filter(|_| self.shapes.is_none());
        // Nulls that a null row brought to its own rows need a place.
        let item = |item: &FieldRef| {
            same_layout(item.data_type(), child.data_type()) && (item.is_nullable() || !child.is_nullable())
        };
        let field = kept.filter(|field| item_of_lists(field.data_type()).is_some_and(item));
        field.cloned().unwrap_or_else(|| Arc::new(self.list_field(child)))
    }

    /// The field of the array that these rows become.
    pub(super) fn arrow_field(&self) -> Result<FieldRef> {
        let child = match &self.values {
            Values::Tensor(values) => values.arrow_form()?.field,
            Values::Ragged(rows) => match rows.field.as_ref().filter(|field| is_text(field.data_type())) {
                Some(field) if rows.holds_bytes() => field.clone(),
                _ => rows.arrow_field()?,
            },
        };
        let lists = self.list_type(&child);
        if self.shapes.is_some() { Ok(self.shaped_type(&lists)?.0) } else { Ok(lists) }
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

    /// The field of rows of many dimensions, and whether their elements are its first column.
    pub(super) fn shaped_type(&self, list_field: &FieldRef) -> Result<(FieldRef, bool)> {
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
        Ok(match kept.and_then(|(field, fields)| Some((field.clone(), fits(fields)?))) {
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
        })
    }

    /// The field of the bytes as strings or binaries, in plain form.
    pub(super) fn text_field(&self, field: &FieldRef) -> FieldRef {
        let data_type = match (is_utf8(field.data_type()), self.offsets.dtype()) {
            (true, DType::Int32) => DataType::Utf8,
            (true, _) => DataType::LargeUtf8,
            (false, DType::Int32) => DataType::Binary,
            (false, _) => DataType::LargeBinary,
        };
        Arc::new(field.as_ref().clone().with_data_type(data_type))
    }

    /// The field of strings or binaries that the rows become, before a cast to any other `requested` type; `None` if they become lists.
    pub(super) fn text<'a>(&'a self, requested: Option<&'a FieldRef>) -> Option<&'a FieldRef> {
        // Lists that are asked for are those of the bytes.
        let given = requested.filter(|field| is_text(field.data_type()) || item_of_rows(field.data_type()).is_some());
        given.or(self.field.as_ref()).filter(|field| is_text(field.data_type()) && self.holds_bytes())
    }

    /// The names of the parts whose nulls a requested type refuses, if they have any.
    ///
    /// # Errors
    /// As [`Tensor::arrow_form`].
    pub(crate) fn parts_of_refused_nulls(&self, requested: &Field) -> Result<Vec<String>> {
        let is_refused = self.validity.is_some() && !requested.is_nullable();
        let mut parts: Vec<String> = is_refused.then(|| "validity".to_owned()).into_iter().collect();
        let rows = match requested.data_type() {
            DataType::Struct(fields) => fields.find("data").map(|(_, data)| data.data_type()),
            other => Some(other),
        };
        match (&self.values, rows.and_then(item_of_rows)) {
            (Values::Ragged(rows), Some(item)) => {
                parts.extend(rows.parts_of_refused_nulls(item)?.into_iter().map(|part| format!("values.{part}")));
            }
            (Values::Tensor(values), Some(item)) if values.may_be_refused_nulls(item)? => {
                parts.push("values".to_owned());
            }
            _ => {}
        }
        Ok(parts)
    }

    /// Whether the rows are refused where their bytes are not UTF-8.
    pub(crate) fn are_checked_text(&self, requested: Option<&FieldRef>) -> bool {
        let values = self.values.as_tensor();
        self.text(requested).zip(values).is_some_and(|(field, values)| self.is_text_read(values, field))
    }

    /// Whether bytes are read, to see that they are UTF-8 as `field` says. A producer of Arrow data vouches for its strings: bytes and offsets
    /// in its memory, as they lie there. Offsets lie within the bytes, so that without bytes every row is the empty string.
    pub(super) fn is_text_read(&self, values: &Tensor, field: &FieldRef) -> bool {
        let trusted = values.is_untouched()
            && self.offsets.is_untouched()
            && self.field.as_ref().is_some_and(|own| own.data_type() == field.data_type());
        is_utf8(field.data_type()) && !trusted && !values.is_empty()
    }

    /// As [`Ragged::plan_to_arrow`], of rows that are moved to a device before.
    fn plan_moved(
        &self,
        device: Device,
        requested: Option<&FieldRef>,
        copy: CopyMode,
    ) -> Result<(FieldRef, Vec<Part>)> {
        let step = plan_transfer_unasked(self.offsets.device(), device)?;
        // Nobody vouches for copies, as nobody does for lent memory.
        let is_copied = Plan::transfer(step, 0).is_copy();
        let there = |part: &Tensor| part.relabelled(device);
        let there = |part: &Tensor| if is_copied { there(part).into_lent() } else { there(part) };
        let there: Vec<_> = self.parts().iter().map(there).collect();
        let (own, mut parts) = self.with_parts(&mut there.into_iter())?.plan_to_arrow(requested, copy)?;
        for part in &mut parts {
            let bytes = part.elements().unwrap_or(0).saturating_mul(part.dtype.itemsize());
            part.plan = Plan::transfer(step, bytes).then(std::mem::take(&mut part.plan));
        }
        Ok((own, parts))
    }
}

/// The items of lists, those of a fixed size included.
fn item_of_rows(data_type: &DataType) -> Option<&FieldRef> {
    match data_type {
        DataType::FixedSizeList(item, _) => Some(item),
        other => item_of_lists(other),
    }
}

/// A part of rows that becomes one of an array: by this plan, or refused.
fn part(name: &'static str, field: &FieldRef, tensor: &Tensor, plan: Result<Plan>) -> Part {
    let shape = tensor.shape().iter().copied().map(Some).collect();
    let (plan, error) = plan.map_or_else(|error: Error| (Plan::default(), Some(error)), |plan| (plan, None));
    Part { error, ..Part::of_plan(name, field, tensor.dtype(), shape, plan, CopyMode::IfNeeded) }
}
