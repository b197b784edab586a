//! Makes the plan of a matrix.

use super::{Action, ChunkSize, Placement, Plan, Step, UnreadChunk};
use crate::error::{Error, ErrorKind, Remedy, Result};
use crate::spec::{Element, MatrixOptions, MatrixSpec, MemoryOrder, Nulls, Spec};

/// What the plan needs to know of a matrix's columns together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MatrixData {
    /// Rows of all chunks.
    pub(crate) rows: usize,
    /// Chunks that are not empty.
    pub(crate) chunks: usize,
    /// Whether the elements lie as a row-major matrix has them, none of them being changed.
    pub(crate) is_row_major: bool,
    /// As above, column-major, perhaps with gaps between columns.
    pub(crate) is_column_major: bool,
    /// Null elements that are filled.
    pub(crate) filled: usize,
    /// Whether `filled` is only the most that there can be.
    pub(crate) is_uncounted: bool,
    /// What only the memory of a device tells: bitmaps where nulls are refused, and values that may be null where they are not.
    pub(crate) unread: UnreadChunk,
    /// The bytes that decoding would take for lists of one length that follow each other, and are read where they are.
    pub(crate) shared_bytes: usize,
    /// Where the columns are.
    pub(crate) placement: Placement,
}

impl Plan {
    /// The plan for a matrix. No steps are a view.
    ///
    /// # Errors
    /// When a copy would be needed under [`CopyMode::Never`] or where nothing makes one, or the result is larger than memory can be.
    pub(crate) fn matrix(spec: &MatrixSpec, data: MatrixData, options: &MatrixOptions) -> Result<Self> {
        let too_large = || Error::new(ErrorKind::Memory, "the matrix is larger than memory can be");
        let elements = data.rows.checked_mul(spec.width()).ok_or_else(too_large)?;
        let bytes = data.rows.checked_mul(spec.row_bytes()).filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes.ok_or_else(too_large)?;
        let mut plan = Self { rows: data.rows, elements, placement: data.placement, ..Self::default() };
        if bytes == 0 {
            return Ok(plan);
        }
        let lies = match options.memory_order {
            MemoryOrder::C => data.is_row_major,
            MemoryOrder::F => data.is_column_major,
            MemoryOrder::A => data.is_row_major || data.is_column_major,
        };
        let private = options.copy.asks_for_own(options.writable);
        let bool8 = |(_, column): &(usize, Spec)| column.element() == Element::Bool8;
        if lies && !private {
            if spec.columns().iter().any(bool8) {
                plan.push(Action::Normalise, bytes, true);
                plan.bytes = bytes;
            }
            plan.wait_for_columns(spec, data);
            return Ok(plan);
        }
        if data.chunks > 1 {
            plan.push(Action::Concatenate { chunks: data.chunks }, bytes, false);
        }
        if spec.changes_elements() {
            spec.columns().iter().for_each(|(_, column)| plan.change_column(column));
            plan.take_back_shared(data.shared_bytes);
        }
        if data.filled > 0 {
            let action = Action::Fill { nulls: data.filled, is_counted: !data.is_uncounted };
            plan.push(action, data.filled.saturating_mul(spec.dtype().itemsize()), false);
        }
        if lies {
            plan.push(Action::Private, bytes, false);
        }
        let memory_order = if options.memory_order == MemoryOrder::F { MemoryOrder::F } else { MemoryOrder::C };
        plan.push(Action::PackMatrix { memory_order }, bytes, false);
        plan.bytes = plan.bytes.saturating_add(bytes);
        plan.refuse_steps(options.copy).map_err(|error| match (data.placement, options.memory_order) {
            // In no order is what has to be memory of its own a view.
            _ if private => error,
            (Placement::Views(_), _) if data.is_column_major => error.remedy_is(Remedy::OrderOfView),
            (Placement::Views(device), _) if spec.has_shapes() => error.remedy_is(device.host_remedy()),
            (Placement::Host | Placement::Kernels(_), MemoryOrder::C) if data.is_column_major => {
                error.remedy_is(Remedy::OrderFOrAllowCopy)
            }
            _ => error,
        })?;
        plan.wait_for_columns(spec, data);
        Ok(plan)
    }

    fn wait_for_columns(&mut self, spec: &MatrixSpec, data: MatrixData) {
        if self.placement != Placement::Host {
            spec.columns().iter().for_each(|(_, column)| self.wait_for(column, data.unread));
        }
    }

    /// The part that a column has in the plan of its matrix; `nulls` is what all its chunks together have, of which `shared_rows` are lists
    /// that follow each other.
    pub(crate) fn of_matrix_column(&self, column: &Spec, nulls: ChunkSize, shared_rows: usize) -> Self {
        let elements = self.rows.saturating_mul(column.row_elements());
        let mut own = Self { rows: self.rows, elements, placement: self.placement, ..Self::default() };
        let bytes = elements.saturating_mul(column.dtype().itemsize());
        if self.is_copy() {
            own.change_column(column);
            if shared_rows > 0 {
                own.take_back_shared(shared_rows.saturating_mul(column.decoded_row_bytes()));
            }
            own.fill(column, nulls.nulls, nulls.is_counted);
            // A matrix that is copied is packed at last.
            if let Some(last) = self.steps.last() {
                own.push(last.action, bytes, false);
            }
            own.bytes = own.bytes.saturating_add(bytes);
        } else if column.element() == Element::Bool8 && !self.is_view() {
            own.push(Action::Normalise, bytes, true);
            own.bytes = bytes;
        }
        if self.rows > 0 {
            own.wait_for(column, nulls.unread);
        }
        own
    }

    /// The steps that change a column's elements, but for nulls.
    fn change_column(&mut self, column: &Spec) {
        let elements = self.rows.saturating_mul(column.row_elements());
        let bytes = elements.saturating_mul(column.dtype().itemsize());
        self.decode(column, self.rows);
        match column.element() {
            Element::Bits => self.push(Action::Unpack, bytes, false),
            Element::Bool8 => self.push(Action::Normalise, bytes, true),
            _ => {}
        }
        if column.is_cast() {
            self.push(Action::Cast { from: column.element(), to: column.dtype() }, bytes, false);
        }
    }

    /// The step that writes so many nulls, if the column's are written.
    fn fill(&mut self, column: &Spec, nulls: usize, is_counted: bool) {
        if nulls > 0 && matches!(column.nulls(), Nulls::Filled(_)) {
            self.push(Action::Fill { nulls, is_counted }, nulls.saturating_mul(column.dtype().itemsize()), false);
        }
    }

    /// Adds the step that decodes so many rows of a column, if it is decoded.
    pub(super) fn decode(&mut self, column: &Spec, rows: usize) {
        if column.decoded().is_some() {
            let bytes = rows.saturating_mul(column.decoded_row_bytes());
            self.push(Action::decoding(column), bytes, false);
            // On a device the pass that writes the result decodes.
            if self.placement == Placement::Host {
                self.bytes = self.bytes.saturating_add(bytes);
            }
        }
    }

    /// Takes so many bytes from the step that decodes, and the step too if no other bytes are decoded.
    fn take_back_shared(&mut self, bytes: usize) {
        let Some(at) = self.steps.iter().position(|step| bytes > 0 && step.action == Action::Decode) else { return };
        self.bytes = self.bytes.saturating_sub(bytes);
        match self.steps.get_mut(at).filter(|step| step.bytes > bytes) {
            Some(step) => step.bytes -= bytes,
            None => _ = self.steps.remove(at),
        }
    }

    /// Adds a step, or its bytes to the same one that is there.
    pub(super) fn push(&mut self, action: Action, bytes: usize, at_most: bool) {
        match self.steps.iter_mut().find(|step| step.action == action) {
            Some(step) => step.bytes = step.bytes.saturating_add(bytes),
            None => self.steps.push(Step { action, bytes, at_most }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::{DataType, Field};

    use super::*;
    use crate::spec::{CopyMode, NullPolicy, Options, Scalar};

    fn spec(types: &[DataType]) -> MatrixSpec {
        let fields: Vec<_> =
            types.iter().enumerate().map(|(index, of)| Field::new(index.to_string(), of.clone(), true)).collect();
        let field = Arc::new(Field::new("", DataType::Struct(fields.into()), false));
        let fill = |_: &str| Options::default().nulls(NullPolicy::Fill(Scalar::Int(0)));
        MatrixSpec::new(&field, None, fill, None).unwrap()
    }

    const LYING: MatrixData = MatrixData {
        rows: 10,
        chunks: 1,
        is_row_major: false,
        is_column_major: true,
        filled: 0,
        is_uncounted: false,
        unread: UnreadChunk { bitmaps: false, null_values: false, dictionary: false },
        shared_bytes: 0,
        placement: Placement::Host,
    };

    fn reasons(types: &[DataType], data: MatrixData, options: &MatrixOptions) -> Result<String> {
        Plan::matrix(&spec(types), data, options).map(|plan| plan.reasons())
    }

    #[test]
    fn what_lies_in_the_order_asked_for_is_a_view() {
        let two = [DataType::Int32, DataType::Int32];
        for (memory_order, expected) in
            [(MemoryOrder::C, "packed row-major"), (MemoryOrder::F, ""), (MemoryOrder::A, "")]
        {
            let options = MatrixOptions { memory_order, ..MatrixOptions::default() };
            assert_eq!(reasons(&two, LYING, &options).unwrap(), expected);
            let never = MatrixOptions { copy: CopyMode::Never, ..options.clone() };
            assert_eq!(reasons(&two, LYING, &never).is_ok(), memory_order != MemoryOrder::C);
            let writable = MatrixOptions { writable: true, ..options };
            assert!(reasons(&two, LYING, &writable).unwrap().contains("packed"));
        }
        let rows = MatrixData { is_row_major: true, is_column_major: false, ..LYING };
        for (memory_order, expected) in
            [(MemoryOrder::C, ""), (MemoryOrder::F, "packed column-major"), (MemoryOrder::A, "")]
        {
            let options = MatrixOptions { memory_order, ..MatrixOptions::default() };
            assert_eq!(reasons(&two, rows, &options).unwrap(), expected);
        }
        let error = reasons(&two, LYING, &MatrixOptions { copy: CopyMode::Never, ..MatrixOptions::default() });
        assert!(error.unwrap_err().remedy().unwrap().contains("MemoryOrder::F"));
    }

    #[test]
    fn each_step_stands_once_with_the_bytes_of_all_columns() {
        let types = [DataType::Boolean, DataType::Int8, DataType::Int8, DataType::Float32];
        let data = MatrixData { rows: 10, chunks: 3, filled: 6, ..MatrixData::default() };
        let plan = Plan::matrix(&spec(&types), data, &MatrixOptions::default()).unwrap();
        assert_eq!(
            plan.reasons(),
            "3 chunks joined, bits unpacked to bytes, cast from bool to float32, cast from int8 to float32, \
             6 nulls filled, packed row-major"
        );
        assert_eq!((plan.bytes, plan.steps[3].bytes, plan.elements), (160, 80, 40));
    }

    #[test]
    fn without_elements_nothing_moves() {
        let options = MatrixOptions { copy: CopyMode::Never, writable: true, ..MatrixOptions::default() };
        assert_eq!(reasons(&[DataType::Boolean], MatrixData::default(), &options).unwrap(), "");
        let most = isize::MAX.unsigned_abs();
        for (rows, fits) in [(most / 8, true), (most / 8 + 1, false)] {
            let data = MatrixData { rows, chunks: 1, is_column_major: true, ..MatrixData::default() };
            let options = MatrixOptions { memory_order: MemoryOrder::F, ..MatrixOptions::default() };
            assert_eq!(reasons(&[DataType::Int32, DataType::Int32], data, &options).is_ok(), fits, "{rows}");
        }
        let huge = MatrixData { rows: usize::MAX / 4, chunks: 1, ..MatrixData::default() };
        assert_eq!(reasons(&[DataType::Int64], huge, &options).unwrap_err().kind(), ErrorKind::Memory);
    }
}
