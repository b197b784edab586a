//! [`Plan`]: what a conversion will do to the data at hand, from the spec and the data's structure, without touching
//! values.

mod matrix;
mod ragged;

use std::fmt;

use smallvec::SmallVec;

pub(crate) use matrix::MatrixData;

use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::spec::{CopyMode, Element, MemoryOrder, Nulls, Options, Spec, TensorField};

/// What the plan needs to know of one chunk of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkSize {
    /// Rows of the chunk.
    pub rows: usize,
    /// Null elements among its rows, those of nested lists included.
    pub nulls: usize,
    /// Whether typed access to its values is aligned.
    pub aligned: bool,
}

/// Something that a conversion does, and why it cannot be a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum Action {
    /// Runs, or codes of a dictionary, become the values they stand for.
    Decode,
    /// Bits become bytes.
    Unpack,
    /// Bytes other than 0 and 1 become 1.
    Normalise,
    /// Values change their type.
    Cast {
        /// How the source holds its elements.
        from: Element,
        /// The dtype of the result.
        to: DType,
    },
    /// Null slots are written.
    Fill {
        /// How many.
        nulls: usize,
    },
    /// Chunks become one block.
    Concatenate {
        /// How many that are not empty.
        chunks: usize,
    },
    /// Values move to where typed access is aligned.
    Realign {
        /// The dtype that asks for it.
        dtype: DType,
    },
    /// Strided elements move next to each other.
    Gather,
    /// Columns become a matrix.
    PackMatrix {
        /// In which order its elements lie.
        memory_order: MemoryOrder,
    },
    /// The elements of each column of a matrix move next to each other.
    Split,
    /// Bools become bits.
    Pack,
    /// Bools become the bits of a validity bitmap.
    PackValidity,
    /// Views of strings move next to each other.
    GatherViews,
    /// The offsets of a slice start at 0 again.
    RebaseOffsets,
    /// Null rows give up their elements.
    EmptyNullRows,
    /// Rows get one length.
    Pad {
        /// Elements of each row; `None` is that of the longest row, which only data tells.
        length: Option<usize>,
    },
    /// The caller asked for memory of its own.
    Private,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decode => f.write_str("decoded"),
            Self::Unpack => f.write_str("bits unpacked to bytes"),
            Self::Normalise => f.write_str("bytes above 1 set to 1"),
            Self::Cast { from, to } => write!(f, "cast from {from} to {to}"),
            Self::Fill { nulls } => write!(f, "{nulls} null{} filled", if *nulls == 1 { "" } else { "s" }),
            Self::Concatenate { chunks } => write!(f, "{chunks} chunks joined"),
            Self::Realign { dtype } => write!(f, "values not aligned for {dtype} realigned"),
            Self::Gather => f.write_str("strided elements gathered"),
            Self::PackMatrix { memory_order: MemoryOrder::F } => f.write_str("packed column-major"),
            Self::PackMatrix { .. } => f.write_str("packed row-major"),
            Self::Split => f.write_str("rows split into columns"),
            Self::Pack => f.write_str("bools packed to bits"),
            Self::PackValidity => f.write_str("validity packed to bits"),
            Self::GatherViews => f.write_str("views gathered"),
            Self::RebaseOffsets => f.write_str("offsets of a slice rebased"),
            Self::EmptyNullRows => f.write_str("null rows made empty"),
            Self::Pad { length: Some(length) } => write!(f, "rows padded to {length} elements"),
            Self::Pad { length: None } => f.write_str("rows padded to the length of the longest one"),
            Self::Private => f.write_str("memory of its own asked for"),
        }
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
}

impl Plan {
    /// The plan for the chunks of a column.
    ///
    /// # Errors
    /// When a copy would be needed under [`CopyMode::Never`], or the result is larger than memory can be.
    pub(crate) fn new(spec: &Spec, chunks: &[ChunkSize], options: &Options) -> Result<Self> {
        Self::build(spec, chunks, options).map_err(|error| error.in_column(spec.field().name()))
    }

    fn build(spec: &Spec, chunks: &[ChunkSize], options: &Options) -> Result<Self> {
        let too_large = || Error::new(ErrorKind::Memory, "the result is larger than memory can be");
        let rows = chunks.iter().try_fold(0_usize, |rows, chunk| rows.checked_add(chunk.rows)).ok_or_else(too_large)?;
        let elements = rows.checked_mul(spec.row_elements()).ok_or_else(too_large)?;
        let bytes = elements
            .checked_mul(spec.dtype().itemsize())
            .filter(|bytes| isize::try_from(*bytes).is_ok())
            .ok_or_else(too_large)?;
        let mut plan = Self { rows, elements, steps: SmallVec::new(), bytes: 0 };
        if elements == 0 {
            return Ok(plan);
        }
        if spec.decoded().is_some() {
            let stored = plan.elements.saturating_mul(spec.element().stored_bytes());
            plan.steps.push(Step { action: Action::Decode, bytes: stored, at_most: false });
            plan.bytes = stored;
        }
        let decoded = plan.steps.len();
        let mut step = |action| plan.steps.push(Step { action, bytes, at_most: false });
        let filled = chunks.iter().filter(|chunk| chunk.rows > 0);
        if filled.clone().count() > 1 {
            step(Action::Concatenate { chunks: filled.clone().count() });
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
        if spec.decoded().is_none() && (options.copy == CopyMode::Always || options.writable) {
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
            plan.steps.push(Step { action: Action::Fill { nulls }, bytes, at_most: false });
        }
        if plan.steps.len() > decoded {
            plan.bytes = plan.bytes.saturating_add(bytes);
        }
        if options.copy == CopyMode::Never {
            plan.refuse_copy()?;
        }
        if spec.element() == Element::Bool8 {
            let at_most = plan.steps.len() == decoded;
            plan.steps.push(Step { action: Action::Normalise, bytes, at_most });
            if at_most {
                plan.bytes = plan.bytes.saturating_add(bytes);
            }
        }
        Ok(plan)
    }

    /// The plan for a tensor that becomes a column with `validity` as its bitmap.
    ///
    /// # Errors
    /// When a copy would be needed under [`CopyMode::Never`].
    pub(crate) fn to_arrow(form: &TensorField, aligned: bool, validity: bool, copy: CopyMode) -> Result<Self> {
        let bytes = form.elements.saturating_mul(form.dtype.itemsize());
        let mut plan = Self { rows: form.rows, elements: form.elements, steps: SmallVec::new(), bytes: 0 };
        if form.elements > 0 {
            let mut step = |action, bytes: usize| {
                plan.steps.push(Step { action, bytes, at_most: false });
                plan.bytes = plan.bytes.saturating_add(bytes);
            };
            match (form.viewable, aligned, copy) {
                (false, _, _) => step(Action::Gather, bytes),
                (true, false, _) => step(Action::Realign { dtype: form.dtype }, bytes),
                (true, true, CopyMode::Always) if form.element != Element::Bits => step(Action::Private, bytes),
                _ => {}
            }
            if form.element == Element::Bits {
                step(Action::Pack, form.elements.div_ceil(8));
            }
        }
        if copy == CopyMode::Never {
            plan.refuse_copy()?;
        }
        if validity {
            let bytes = form.rows.div_ceil(8);
            plan.steps.push(Step { action: Action::PackValidity, bytes, at_most: false });
            plan.bytes = plan.bytes.saturating_add(bytes);
        }
        Ok(plan)
    }

    /// The plan for a matrix whose `columns` columns, each of this form, become those of a batch.
    ///
    /// # Errors
    /// When a copy would be needed under [`CopyMode::Never`].
    pub(crate) fn to_columns(form: &TensorField, columns: usize, aligned: bool, copy: CopyMode) -> Result<Self> {
        let allowed = if copy == CopyMode::Never { CopyMode::IfNeeded } else { copy };
        let mut plan = Self::to_arrow(form, aligned, false, allowed)?;
        plan.elements = plan.elements.saturating_mul(columns);
        plan.bytes = plan.bytes.saturating_mul(columns);
        for step in &mut plan.steps {
            step.bytes = step.bytes.saturating_mul(columns);
            if step.action == Action::Gather {
                step.action = Action::Split;
            }
        }
        if copy == CopyMode::Never {
            plan.refuse_copy()?;
        }
        Ok(plan)
    }

    /// Whether a tensor's elements move before anything else is done with them.
    pub(crate) fn moves_values(&self) -> bool {
        let moves =
            |action| matches!(action, Action::Gather | Action::Split | Action::Realign { .. } | Action::Private);
        self.steps.iter().any(|step| moves(step.action))
    }

    /// Refuses the steps that are there, where no copy is allowed.
    pub(crate) fn refuse_copy(&self) -> Result<()> {
        if self.steps.is_empty() {
            return Ok(());
        }
        let (mut writable_only, mut padded) = (true, false);
        for step in &self.steps {
            writable_only &= step.action == Action::Private;
            padded |= matches!(step.action, Action::Pad { .. });
        }
        let remedy = match (writable_only, padded) {
            (true, _) => Remedy::AllowCopyOrReadOnly,
            (false, true) => Remedy::AllowCopyOrNoPad,
            (false, false) => Remedy::AllowCopy,
        };
        Err(Error::new(ErrorKind::Copy, format!("a copy of {} bytes is needed ({})", self.bytes, self.reasons()))
            .remedy_is(remedy))
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

    /// Whether the elements, decoded where they have to be, are the result as they lie, or may be.
    pub(crate) fn takes_elements_as_they_lie(&self) -> bool {
        self.steps.iter().all(|step| step.at_most || step.action == Action::Decode)
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
    use crate::spec::{NullPolicy, Scalar};

    const CHUNK: ChunkSize = ChunkSize { rows: 10, nulls: 0, aligned: true };

    fn plan(data_type: DataType, chunks: &[ChunkSize], options: &Options) -> Result<Plan> {
        Plan::new(&Spec::new(&Arc::new(Field::new("x", data_type, true)), options)?, chunks, options)
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
            (DataType::Int32, vec![null], fill, Action::Fill { nulls: 1 }),
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
    fn sizes_that_cannot_be_are_errors() {
        let huge = ChunkSize { rows: usize::MAX, ..CHUNK };
        assert_eq!(plan(DataType::Int8, &[huge, huge], &Options::default()).unwrap_err().kind(), ErrorKind::Memory);
        assert_eq!(plan(DataType::Int64, &[huge], &Options::default()).unwrap_err().kind(), ErrorKind::Memory);
    }
}
