//! Adds to a report how data and results get to another device.

use std::sync::Arc;

use arrow_schema::{DataType, FieldRef};

use super::report::{Report, ReportRow};
use crate::alloc::ALIGNMENT;
use crate::arrow::DeviceArray;
use crate::column::{ColumnRef, refuse_counted};
use crate::device::Device;
use crate::error::Result;
use crate::ffi::dlpack::DLDeviceType;
use crate::plan::Plan;
use crate::ragged::is_ragged;
#[cfg(feature = "python")]
use crate::spec::NULLS;
use crate::spec::{CopyMode, Spec};
use crate::tensor::Tensor;
use crate::transfer::{Destination, EvenLists, bytes_of_copy, plan_transfer_unasked};

const OFFSETS_READ: &str = "the ends of offsets, which tell how many bytes that is, are read";

/// Where the column of a spec is in an array: the array itself, unless it is one of structs.
fn column_of<'a>(array: &'a DeviceArray, spec: &Spec) -> ColumnRef<'a> {
    let position = match array.field().data_type() {
        DataType::Struct(fields) => fields.iter().position(|field| Arc::ptr_eq(field, spec.field())),
        _ => None,
    };
    position.map_or_else(|| ColumnRef::whole(array), |position| ColumnRef::column(array, position))
}

/// The lists of a spec that become rows of one length, with that length.
fn length_of(spec: &Spec) -> Option<(&Spec, usize)> {
    spec.lists().first().filter(|_| spec.is_of_lists()).map(|length| (spec, *length))
}

/// Where the offsets of these columns of an array are, whose lists are to have these lengths.
fn even_lists(array: &DeviceArray, lists: &[(&Spec, usize)]) -> Vec<EvenLists> {
    let offsets = |spec: &Spec| column_of(array, spec).whole_array().and_then(|column| column.list_ints()).ok();
    let of = |(spec, length): &(&Spec, usize)| Some(EvenLists { offsets: offsets(spec)?.0, length: *length });
    lists.iter().filter_map(of).collect()
}

impl ReportRow {
    /// Bytes of the result, where its shape is known.
    pub(super) fn result_bytes(&self) -> Option<usize> {
        let extent = |extent: &Option<i64>| usize::try_from((*extent)?).ok();
        let elements =
            self.shape.iter().map(extent).try_fold(1_usize, |elements, extent| elements.checked_mul(extent?));
        elements?.checked_mul(self.dtype?.itemsize())
    }

    /// Data that is moved whole before it is converted.
    fn moved(field: &FieldRef, own: Device, device: Device, copy: CopyMode) -> Self {
        let mut whole = Self { device: own, view: true, ..Self::new(field) };
        whole.send(device, copy);
        whole
    }

    fn is_copied(&self) -> bool {
        self.error.is_none() && !self.view
    }

    /// Adds the transfer to a device, behind what is there.
    fn send(&mut self, device: Device, copy: CopyMode) {
        self.send_bytes(device, copy, self.result_bytes().or(self.arrow_bytes).unwrap_or(0));
    }

    /// As [`ReportRow::send`], of so many bytes.
    fn send_bytes(&mut self, device: Device, copy: CopyMode, bytes: usize) {
        if self.error.is_some() {
            return;
        }
        match self.plan_way(self.device, device, copy, bytes) {
            Ok(None) => return self.send_made(device, copy, bytes),
            Ok(Some(plan)) => self.take_transfer(&plan),
            Err(error) => (self.error, self.view) = (Some(error), false),
        }
        self.device = device;
    }

    /// Plans a transfer of so many bytes; `None` where nothing has to be done.
    fn plan_way(&self, own: Device, device: Device, copy: CopyMode, bytes: usize) -> Result<Option<Plan>> {
        let step = plan_transfer_unasked(own, device)?;
        let plan = Plan::transfer(step, bytes);
        plan.refuse_steps(copy)?;
        Ok((!step.is_nothing()).then_some(plan))
    }

    /// Adds the way of a result that kernels may have to make: on CUDA, also where its data is in host memory that CUDA reaches.
    fn send_made(&mut self, device: Device, copy: CopyMode, bytes: usize) {
        let made = Device::new(DLDeviceType::CUDA, self.device.id());
        if !(self.kernel && self.at_most) {
            return;
        }
        if let Ok(Some(plan)) = self.plan_way(made, device, copy, bytes) {
            self.take_transfer(&plan);
            self.at_most = true;
            self.steps.last_mut().into_iter().for_each(|step| step.push_str(", if a kernel made it"));
        }
    }

    /// Adds what the plan of a transfer says.
    fn take_transfer(&mut self, plan: &Plan) {
        self.waits.extend(plan.waits.iter().map(ToString::to_string));
        if plan.is_view() {
            return;
        }
        self.steps.extend(plan.steps.iter().map(|step| step.action.to_string()));
        self.is_sent = true;
        self.bytes = self.bytes.saturating_add(plan.bytes);
        (self.view, self.at_most) = (false, !plan.is_copy() && (self.view || self.at_most));
    }
}

impl Report {
    /// The report of the same conversion, the results of which go to a device: each row says how, and how many bytes it takes.
    /// Nothing is asked of a driver.
    pub(crate) fn then_to(mut self, device: Device, copy: CopyMode) -> Self {
        for row in self.rows.iter_mut().chain(&mut self.matrices) {
            row.send(device, copy);
        }
        self
    }

    /// The report of the same array, or batch, which goes to a device: `buffers` gives the bytes of the bitmap and of the values that a row
    /// stands for. All buffers go to one block.
    pub(super) fn arrow_to(
        mut self,
        device: Device,
        copy: CopyMode,
        buffers: impl Fn(usize, &ReportRow) -> Option<(Option<usize>, usize)>,
    ) -> Self {
        let mut end = 0_usize;
        for (index, row) in self.rows.iter_mut().enumerate() {
            let start = end;
            if let Some((bitmap, values)) = buffers(index, row) {
                for bytes in bitmap.into_iter().chain([values]) {
                    end = end.checked_next_multiple_of(ALIGNMENT).unwrap_or(end).saturating_add(bytes);
                }
            }
            row.send_bytes(device, copy, end.saturating_sub(start));
        }
        self
    }

    /// The report of tensors that become Arrow data on their way to a device: on the host, if that is one of the two. `explain` reports what
    /// becomes of a tensor where it is; `buffers` gives the bytes of the bitmap and of the values that the column of a row has then.
    ///
    /// # Errors
    /// As `explain`.
    pub(crate) fn of_arrow_on(
        destination: (Option<Device>, CopyMode),
        tensor: &Tensor,
        explain: impl Fn(&Tensor, CopyMode) -> Result<Self>,
        buffers: impl Fn(usize) -> Option<(Option<usize>, usize)>,
    ) -> Result<Self> {
        let ((device, copy), own) = (destination, tensor.device());
        let Some(device) = device else { return explain(tensor, copy) };
        let destination = Destination::new(Some(device), copy);
        let left = destination.surely_copy_before(own);
        if !destination.comes_before(own) {
            return Ok(explain(tensor, left)?.arrow_to(device, copy, |index, _| buffers(index)));
        }
        let mut report = explain(&tensor.relabelled(device), left)?;
        let shape = tensor.shape().iter().copied().map(Some).collect();
        let whole = ReportRow {
            device: own,
            view: true,
            dtype: Some(tensor.dtype()),
            shape,
            ..ReportRow::of_type("", String::new())
        };
        let whole = report.transfer.insert(whole);
        whole.send_bytes(device, copy, tensor.nbytes());
        for row in &mut report.rows {
            row.error = whole.error.clone().or(row.error.take());
            row.view = row.view && row.error.is_none();
            if whole.is_copied() {
                row.steps.insert(0, format!("moved to {device} first"));
                row.at_most = whole.at_most && (row.view || row.at_most);
                row.view = false;
            }
        }
        Ok(report)
    }

    /// The report of a conversion on another device than that of the chunks, for which they are moved there whole before: of this report,
    /// made of types alone, as only types and lengths are known then. How the chunks are moved stands in
    /// [`Report::transfer`]. Nothing is asked of a driver.
    pub(crate) fn after_move(
        mut self,
        field: &FieldRef,
        chunks: &[DeviceArray],
        device: Device,
        copy: CopyMode,
    ) -> Self {
        let filled = || chunks.iter().filter(|chunk| !chunk.is_empty());
        if filled().count() < 2 {
            for row in self.rows.iter_mut().chain(&mut self.matrices) {
                // An array is one chunk, and is aligned where it is copied to.
                row.take_one_chunk();
            }
        }
        let mut whole = ReportRow::moved(field, DeviceArray::device_of(chunks), device, copy);
        let rows = chunks.iter().try_fold(0_usize, |rows, chunk| rows.checked_add(chunk.len()));
        let rows = rows.and_then(|rows| i64::try_from(rows).ok());
        whole.shape = vec![rows];
        let lists: Vec<_> =
            self.rows.iter().chain(&self.matrices).flat_map(|row| &row.specs).filter_map(length_of).collect();
        if whole.is_copied() && !whole.at_most {
            let bytes_of = |lists: &[(&Spec, usize)]| {
                let add = |bytes: usize, chunk| bytes.checked_add(bytes_of_copy(chunk, &even_lists(chunk, lists))?);
                filled().try_fold(0_usize, add)
            };
            if bytes_of(&[]).is_none() {
                whole.waits.insert(0, OFFSETS_READ.to_owned());
            }
            match bytes_of(&lists) {
                Some(bytes) => whole.bytes = bytes,
                None => whole.shape = vec![None],
            }
        }
        let is_of_rows = is_ragged(field) && lists.is_empty();
        let mut report = self.behind(whole, device, rows.filter(|_| !is_of_rows));
        for row in report.rows.iter_mut().chain(&mut report.matrices).filter(|row| row.error.is_none()) {
            let refused = |spec| chunks.iter().find_map(|array| refuse_counted(spec, &column_of(array, spec)).err());
            row.error = row.specs.iter().find_map(refused);
            row.view = row.view && row.error.is_none();
        }
        report
    }

    /// As [`Report::after_move`], of each array of a stream on `own`, none of which is read: how many bytes that is nobody knows.
    pub(crate) fn after_moves(self, field: &FieldRef, own: Device, device: Device, copy: CopyMode) -> Self {
        let mut whole = ReportRow::moved(field, own, device, copy);
        whole.shape = vec![None];
        self.behind(whole, device, None)
    }

    /// The report of a result that is a copy, of a column whose elements a plan gathers first: of this report, which was made of its type. It
    /// is one aligned chunk then.
    #[cfg(feature = "python")]
    pub(crate) fn after_gather(mut self, plan: &Plan) -> Self {
        for row in &mut self.rows {
            row.take_one_chunk();
            // No element of a tensor is null.
            row.refused_if.retain(|condition| condition != NULLS);
            row.shape.first_mut().into_iter().for_each(|rows| *rows = i64::try_from(plan.rows).ok());
            row.steps.splice(0..0, plan.steps.iter().map(|step| step.action.to_string()));
            row.bytes = plan.bytes.saturating_add(row.result_bytes().unwrap_or(0));
            row.at_most = false;
        }
        self
    }

    /// The report of what is done when `whole` is moved; of so many rows, where that is known.
    fn behind(mut self, whole: ReportRow, device: Device, rows: Option<i64>) -> Self {
        let is_copied = whole.is_copied();
        for row in self.rows.iter_mut().chain(&mut self.matrices) {
            row.device = device;
            row.error = whole.error.clone().or(row.error.take());
            if let Some(extent @ None) = row.shape.first_mut() {
                *extent = rows;
            }
            if !row.view && row.error.is_none() {
                row.bytes = row.result_bytes().unwrap_or(0);
            }
            row.view = row.view && row.error.is_none();
            if is_copied {
                row.steps.insert(0, format!("moved to {device} first"));
                row.at_most = whole.at_most && (row.view || row.at_most);
                row.view = false;
            }
        }
        self.transfer = Some(whole);
        self
    }
}
