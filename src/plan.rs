//! [`Plan`]: what a conversion will do to the data at hand, from the spec and the data's structure, without touching
//! values.

mod action;
mod chunk_size;
mod matrix;
mod ragged;
mod refusal;
mod transfer;
mod transfer_step;
mod validity;

use std::fmt;

use smallvec::SmallVec;

pub(crate) use action::Action;
pub(crate) use chunk_size::{ChunkSize, UnreadChunk};
pub(crate) use matrix::MatrixData;
pub(crate) use refusal::{needs_copy, not_allowed, refused_copy};
pub(crate) use transfer_step::{TransferPath, TransferStep};

use crate::copy_log::{self, Copied};
use crate::device::Device;
use crate::error::{Error, ErrorKind, Result};
use crate::ffi::dlpack::DLDeviceType;
use crate::spec::{CopyMode, Element, Nulls, Options, Spec, TensorField};

/// Where data is, and what does the steps of a plan there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Host memory, where one pass does them.
    #[default]
    Host,
    /// Memory that CUDA reaches, where kernels do them.
    Kernels(Device),
    /// A device where nothing does them: only views are made there.
    Views(Device),
    /// A device that they take memory from: the driver copies, and neither a pass of the host nor a kernel does.
    Transfer(Device),
}

impl Placement {
    /// The device; `None` for host memory.
    pub(crate) fn device(self) -> Option<Device> {
        match self {
            Self::Host => None,
            Self::Kernels(device) | Self::Views(device) | Self::Transfer(device) => Some(device),
        }
    }
}

/// What the host waits for, because only the memory of a device tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostWait {
    /// Which elements are null, where nulls are refused.
    Nulls,
    /// Whether bytes are bools, so that they can be a view.
    Bools,
    /// Whether kernels have found a value that does not fit.
    Casts,
    /// Whether kernels have found a code without a value.
    Codes,
    /// Whether the dictionaries of chunks are the same.
    Dictionaries,
    /// Where the items of lists of one length are.
    Lists,
    /// That memory which the host reads in place is written.
    Written,
    /// That a copy to the host is complete.
    Transferred,
}

/// What the host waits for where chunks on a device have dictionaries in memory of their own.
pub(crate) const DICTIONARIES_READ: &str = "dictionaries of several chunks are read, to compare them";

impl fmt::Display for HostWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nulls => "nulls that are not counted are looked for",
            Self::Bools => "bytes that have to be bools are looked at",
            Self::Casts => "whether every value fits is read, once for all columns",
            Self::Codes => "whether every code has a value, and every row a run, is read, once for all columns",
            Self::Dictionaries => DICTIONARIES_READ,
            Self::Lists => "offsets of lists are read, to find whether the lists follow each other",
            Self::Written => "the memory is written",
            Self::Transferred => "the copy is complete",
        })
    }
}

/// One step of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// What happens.
    pub action: Action,
    /// Bytes that the step writes. Steps of one pass write the same bytes once: see [`Plan::bytes`].
    pub bytes: usize,
    /// Whether only the values decide if it is needed.
    pub at_most: bool,
}

/// The steps of a conversion; none for a view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Rows of the result.
    pub rows: usize,
    /// Elements of the result.
    pub elements: usize,
    /// The steps, in order.
    pub steps: SmallVec<[Step; 1]>,
    /// Bytes that move in all, all steps being one pass over the result.
    pub bytes: usize,
    /// Where the data is, and what does the steps.
    pub placement: Placement,
    /// What the host waits for.
    pub waits: SmallVec<[HostWait; 2]>,
}

impl Plan {
    /// The plan for the chunks of a column.
    ///
    /// # Errors
    /// When a copy would be needed under [`CopyMode::Never`] or where nothing makes one, or the result is larger than memory can be.
    pub(crate) fn new(spec: &Spec, chunks: &[ChunkSize], options: &Options, placement: Placement) -> Result<Self> {
        Self::build(spec, chunks, options, placement).map_err(|error| error.in_column(spec.field().name()))
    }

    fn build(spec: &Spec, chunks: &[ChunkSize], options: &Options, placement: Placement) -> Result<Self> {
        let too_large = || Error::new(ErrorKind::Memory, "the result is larger than memory can be");
        let rows = chunks.iter().try_fold(0_usize, |rows, chunk| rows.checked_add(chunk.rows)).ok_or_else(too_large)?;
        let elements = rows.checked_mul(spec.row_elements()).ok_or_else(too_large)?;
        let bytes = elements
            .checked_mul(spec.dtype().itemsize())
            .filter(|bytes| isize::try_from(*bytes).is_ok())
            .ok_or_else(too_large)?;
        let mut plan = Self { rows, elements, placement, ..Self::default() };
        if elements == 0 {
            return Ok(plan);
        }
        plan.decode(spec, rows);
        let decoded = plan.steps.len();
        let mut step = |action| plan.steps.push(Step { action, bytes, at_most: false });
        let filled = chunks.iter().filter(|chunk| chunk.rows > 0);
        let joined = filled.clone().filter(|chunk| !chunk.continues).count();
        if joined > 1 {
            step(Action::Concatenate { chunks: joined });
        }
        if filled.clone().any(|chunk| chunk.continues) {
            step(Action::EmptyNullRows);
        }
        if spec.element() == Element::Bits {
            step(Action::Unpack);
        } else if filled.clone().any(|chunk| !chunk.aligned) {
            step(Action::Realign { dtype: spec.element().dtype() });
        }
        if spec.is_cast() {
            step(Action::Cast { from: spec.element(), to: spec.dtype() });
        }
        // What was decoded is memory of its own already.
        if spec.decoded().is_none() && options.copy.asks_for_own(options.writable) {
            step(Action::Private);
        }
        let nulls = chunks.iter().map(|chunk| chunk.nulls).sum::<usize>();
        // Kept nulls are zero in a copy, and what was decoded is one.
        let are_written = match spec.nulls() {
            Nulls::Filled(_) => true,
            Nulls::Kept => spec.decoded().is_some(),
            Nulls::Refused => false,
        };
        if are_written && nulls > 0 {
            let bytes = nulls.saturating_mul(spec.dtype().itemsize());
            let is_counted = filled.clone().all(|chunk| chunk.is_counted);
            plan.steps.push(Step { action: Action::Fill { nulls, is_counted }, bytes, at_most: false });
        }
        // Kernels decode in the same pass.
        if plan.steps.len() > decoded || (decoded > 0 && placement != Placement::Host) {
            plan.bytes = plan.bytes.saturating_add(bytes);
        }
        plan.refuse_steps(options.copy)?;
        if spec.element() == Element::Bool8 {
            let at_most = plan.steps.len() == decoded;
            plan.steps.push(Step { action: Action::Normalise, bytes, at_most });
            if at_most {
                plan.bytes = plan.bytes.saturating_add(bytes);
            }
        }
        plan.wait_for(spec, filled.map(|chunk| chunk.unread).fold(UnreadChunk::default(), UnreadChunk::and));
        Ok(plan)
    }

    /// Adds what the host waits for of a column on a device.
    fn wait_for(&mut self, spec: &Spec, unread: UnreadChunk) {
        let is_copy = self.is_copy();
        let are_looked_up = is_copy && unread.null_values && spec.nulls() != Nulls::Refused;
        let waits = [
            (HostWait::Nulls, unread.bitmaps && spec.nulls() == Nulls::Refused),
            (HostWait::Bools, !is_copy && spec.element() == Element::Bool8),
            (HostWait::Casts, is_copy && spec.is_checked_cast()),
            (HostWait::Codes, spec.gathers() || are_looked_up),
            (HostWait::Dictionaries, spec.has_codes() && unread.dictionary),
        ];
        if self.placement != Placement::Host {
            for (wait, waits) in waits {
                if waits && !self.waits.contains(&wait) {
                    self.waits.push(wait);
                }
            }
        }
    }

    /// The plan for a tensor that becomes a column with `validity` as its bitmap.
    ///
    /// # Errors
    /// When a copy would be needed under [`CopyMode::Never`] or where nothing makes one.
    pub(crate) fn to_arrow(
        form: &TensorField,
        aligned: bool,
        validity: bool,
        copy: CopyMode,
        placement: Placement,
    ) -> Result<Self> {
        let bytes = form.elements.saturating_mul(form.dtype.itemsize());
        let mut plan = Self { rows: form.rows, elements: form.elements, placement, ..Self::default() };
        if form.elements > 0 {
            match (form.viewable, aligned, copy) {
                (false, _, _) => plan.add(Action::Gather, bytes),
                (true, false, _) => plan.add(Action::Realign { dtype: form.dtype }, bytes),
                (true, true, CopyMode::Always) if form.element != Element::Bits => plan.add(Action::Private, bytes),
                _ => {}
            }
            if form.element == Element::Bits {
                plan.add(Action::Pack, form.elements.div_ceil(8));
            }
        }
        // Nobody allocates managed memory for a bitmap.
        if let Placement::Kernels(device) = placement
            && validity
            && device.device_type() == DLDeviceType::CUDA_MANAGED
        {
            plan.placement = Placement::Views(device);
        }
        plan.refuse_steps(copy)?;
        if validity {
            plan.add(Action::PackValidity, form.rows.div_ceil(8));
            // Arrow has bits, so that this copy is always allowed.
            plan.refuse_steps(CopyMode::IfNeeded)?;
        }
        Ok(plan)
    }

    /// The plan for a matrix whose `columns` columns, each of this form, become those of a batch.
    ///
    /// # Errors
    /// When a copy would be needed under [`CopyMode::Never`] or where nothing makes one.
    pub(crate) fn to_columns(
        form: &TensorField,
        columns: usize,
        aligned: bool,
        copy: CopyMode,
        placement: Placement,
    ) -> Result<Self> {
        let allowed = if copy == CopyMode::Never { CopyMode::IfNeeded } else { copy };
        let mut plan = Self { placement, ..Self::to_arrow(form, aligned, false, allowed, Placement::Host)? };
        plan.elements = plan.elements.saturating_mul(columns);
        plan.bytes = plan.bytes.saturating_mul(columns);
        for step in &mut plan.steps {
            step.bytes = step.bytes.saturating_mul(columns);
            if step.action == Action::Gather {
                step.action = Action::Split;
            }
        }
        plan.refuse_steps(copy)?;
        Ok(plan)
    }

    /// The part of one of so many columns that the plan treats alike, before each is looked at by itself.
    pub(crate) fn of_one_column(&self, columns: usize) -> Self {
        let part = |bytes: usize| bytes.checked_div(columns).unwrap_or(0);
        let steps = self.steps.iter().filter(|step| step.action.moves_values());
        let steps: SmallVec<[Step; 1]> = steps.map(|step| Step { bytes: part(step.bytes), ..*step }).collect();
        let bytes = steps.iter().fold(0_usize, |bytes, step| bytes.saturating_add(step.bytes));
        Self { elements: part(self.elements), steps, bytes, ..self.clone() }
    }

    /// Takes the bytes of the validity out of the plan for a column that shares the bits of another one.
    pub(crate) fn shares_validity(&mut self) {
        for step in self.steps.iter_mut().filter(|step| step.action == Action::PackValidity) {
            self.bytes = self.bytes.saturating_sub(step.bytes);
            step.bytes = 0;
        }
    }

    /// Adds the step of a validity with a bool for each element, whose columns are dense only after it.
    pub(crate) fn splits_validity(&mut self) {
        let packs = self.steps.iter().position(|step| step.action == Action::PackValidity);
        let split = Step { action: Action::SplitValidity, bytes: self.rows, at_most: false };
        self.steps.insert(packs.unwrap_or(self.steps.len()), split);
        self.bytes = self.bytes.saturating_add(split.bytes);
    }

    /// Adds the steps of a plan that runs after this one.
    pub(crate) fn append(&mut self, next: &Self) {
        self.steps.extend(next.steps.iter().copied());
        self.waits.extend(next.waits.iter().copied().filter(|wait| !self.waits.contains(wait)).collect::<Vec<_>>());
        self.bytes = self.bytes.saturating_add(next.bytes);
    }

    /// Adds a step in a pass of its own.
    pub(crate) fn add(&mut self, action: Action, bytes: usize) {
        self.steps.push(Step { action, bytes, at_most: false });
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Whether a tensor's elements move before anything else is done with them.
    pub(crate) fn moves_values(&self) -> bool {
        self.steps.iter().any(|step| step.action.moves_values())
    }

    /// The plan for a result that is written to the caller's memory.
    pub(crate) fn into_output(mut self, itemsize: usize) -> Self {
        self.bytes = self.elements.saturating_mul(itemsize);
        self.steps.push(Step { action: Action::WriteOutput, bytes: self.bytes, at_most: false });
        self
    }

    /// Adds the copy that was made by the plan to the copy log, where bytes moved. `what` was copied.
    pub(crate) fn record(&self, what: impl FnOnce() -> String) {
        if self.bytes > 0 {
            copy_log::record(|| self.copied(&what()));
        }
    }

    /// The entry of the copy log for what was copied by the plan.
    pub(crate) fn copied(&self, what: &str) -> Copied {
        let place = self.placement.device().map_or_else(String::new, |device| format!(" on {device}"));
        Copied { what: format!("{what}{place}"), why: self.reasons(), bytes: self.bytes }
    }

    /// Whether the result shares memory with its source, whatever the values are.
    #[must_use]
    pub(crate) fn is_view(&self) -> bool {
        self.steps.is_empty()
    }

    /// Whether bytes move in any case.
    #[must_use]
    pub(crate) fn is_copy(&self) -> bool {
        self.steps.iter().any(|step| !step.at_most)
    }

    /// Whether the stored values can be the result, once they are decoded, unless the values themselves forbid it.
    pub(crate) fn may_return_stored_values(&self) -> bool {
        let is_decoded = self.placement == Placement::Host;
        self.steps.iter().all(|step| step.at_most || is_decoded && step.action.is_decoding())
    }

    /// Why bytes move, in words; empty for a view.
    #[must_use]
    pub(crate) fn reasons(&self) -> String {
        let steps = self.steps.iter().map(|step| {
            let bound = if step.at_most { " at most" } else { "" };
            format!("{}{bound}", step.action)
        });
        steps.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::{DataType, Field};

    use super::*;
    use crate::dtype::DType;
    use crate::spec::{NullPolicy, Scalar};

    const CHUNK: ChunkSize = ChunkSize {
        rows: 10,
        nulls: 0,
        is_counted: true,
        unread: UnreadChunk { bitmaps: false, null_values: false, dictionary: false },
        aligned: true,
        continues: false,
    };

    fn plan(data_type: DataType, chunks: &[ChunkSize], options: &Options) -> Result<Plan> {
        Plan::new(&Spec::new(&Arc::new(Field::new("x", data_type, true)), options)?, chunks, options, Placement::Host)
    }

    #[test]
    fn one_aligned_chunk_is_a_view() {
        let plan = plan(DataType::Int64, &[CHUNK, ChunkSize { rows: 0, ..CHUNK }], &Options::default()).unwrap();
        assert!(plan.is_view());
        assert_eq!((plan.rows, plan.bytes), (10, 0));
    }

    #[test]
    fn each_reason_to_copy_is_a_step_and_an_error_without_permission() {
        let fill = Options::default().nulls(NullPolicy::Fill(Scalar::Int(0)));
        let misaligned = ChunkSize { aligned: false, ..CHUNK };
        let null = ChunkSize { nulls: 1, ..CHUNK };
        let plain = Options::default();
        for (data_type, chunks, options, action) in [
            (DataType::Boolean, vec![CHUNK], plain.clone(), Action::Unpack),
            (DataType::Int8, vec![CHUNK, CHUNK], plain.clone(), Action::Concatenate { chunks: 2 }),
            (DataType::Int32, vec![misaligned], plain.clone(), Action::Realign { dtype: DType::Int32 }),
            (DataType::Int32, vec![null], fill, Action::Fill { nulls: 1, is_counted: true }),
            (DataType::Int32, vec![CHUNK], plain.writable(true), Action::Private),
        ] {
            let made = plan(data_type.clone(), &chunks, &options).unwrap();
            assert_eq!(made.steps.iter().map(|step| step.action).collect::<Vec<_>>(), [action]);
            assert_eq!(
                made.bytes,
                made.elements
                    * Spec::new(&Arc::new(Field::new("x", data_type.clone(), true)), &options)
                        .unwrap()
                        .dtype()
                        .itemsize()
            );
            let error = plan(data_type, &chunks, &options.copy(CopyMode::Never)).unwrap_err();
            assert_eq!((error.kind(), error.column()), (ErrorKind::Copy, Some("x")));
            assert!(error.reason().contains(&action.to_string()) && error.remedy().is_some(), "{error}");
        }
    }

    #[test]
    fn any_chunk_may_be_the_one_that_is_misaligned() {
        let misaligned = ChunkSize { aligned: false, ..CHUNK };
        let realign = Action::Realign { dtype: DType::Int32 };
        for (chunks, others) in [
            (vec![ChunkSize { rows: 0, ..CHUNK }, misaligned], 0),
            (vec![CHUNK, misaligned], 1),
            (vec![CHUNK, CHUNK, misaligned], 1),
        ] {
            let made = plan(DataType::Int32, &chunks, &Options::default()).unwrap();
            assert_eq!(made.steps.iter().map(|step| step.action).skip(others).collect::<Vec<_>>(), [realign]);
        }
        // Nothing is read of a chunk without rows.
        let made = plan(DataType::Int32, &[CHUNK, ChunkSize { rows: 0, ..misaligned }], &Options::default()).unwrap();
        assert!(made.is_view());
    }

    #[test]
    fn without_elements_nothing_moves() {
        let options = Options::default().writable(true).copy(CopyMode::Never);
        assert!(plan(DataType::Boolean, &[], &options).unwrap().is_view());
        let lists = DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Boolean, true)), 0);
        assert!(plan(lists, &[CHUNK, CHUNK], &options).unwrap().is_view());
    }

    #[test]
    fn only_decoded_bytes_above_1_are_set_to_1_once_more() {
        let item = Field::new("values", DataType::Int8, true)
            .with_metadata([("ARROW:extension:name".to_owned(), "arrow.bool8".to_owned())].into());
        let ends = Field::new("run_ends", DataType::Int32, false);
        let runs = DataType::RunEndEncoded(Arc::new(ends), Arc::new(item));
        let made = plan(runs.clone(), &[CHUNK], &Options::default()).unwrap();
        let step = |action, at_most| Step { action, bytes: 10, at_most };
        assert_eq!(made.steps.as_slice(), [step(Action::Decode, false), step(Action::Normalise, true)]);
        assert_eq!((made.bytes, made.is_copy()), (20, true));
        // Where the decoded bytes are joined, the same pass sets them to 1.
        let made = plan(runs, &[CHUNK, CHUNK], &Options::default()).unwrap();
        assert_eq!(made.steps.last().map(|step| (step.action, step.at_most)), Some((Action::Normalise, false)));
        assert_eq!(made.bytes, 40);
    }

    #[test]
    fn bools_are_packed_without_a_copy_of_their_bytes() {
        let (rows, copy) = (10, CopyMode::Always);
        for (dtype, field, expected, bytes) in [
            (DType::Bool, Some(DataType::Boolean), vec![Action::Pack], 2),
            (DType::Int8, None, vec![Action::Private], 10),
        ] {
            let field = field.map(|data_type| Arc::new(Field::new("x", data_type, true)));
            let form = TensorField::new(dtype, &[rows], &[1], field.as_ref()).unwrap();
            let made = Plan::to_arrow(&form, true, false, copy, Placement::Host).unwrap();
            assert_eq!(made.steps.iter().map(|step| step.action).collect::<Vec<_>>(), expected, "{dtype}");
            assert_eq!(made.bytes, bytes, "{dtype}");
        }
    }

    #[test]
    fn sizes_that_cannot_be_are_errors() {
        let most = isize::MAX.unsigned_abs();
        for (data_type, rows) in [(DataType::Int8, most), (DataType::Int64, most / 8)] {
            let chunk = |rows| ChunkSize { rows, ..CHUNK };
            assert!(plan(data_type.clone(), &[chunk(rows)], &Options::default()).is_ok(), "{data_type}");
            let error = plan(data_type, &[chunk(rows), chunk(1)], &Options::default()).unwrap_err();
            assert_eq!((error.kind(), error.column()), (ErrorKind::Memory, Some("x")));
        }
        let huge = ChunkSize { rows: usize::MAX, ..CHUNK };
        assert_eq!(plan(DataType::Int8, &[huge, huge], &Options::default()).unwrap_err().kind(), ErrorKind::Memory);
        assert_eq!(plan(DataType::Int64, &[huge], &Options::default()).unwrap_err().kind(), ErrorKind::Memory);
    }
}
