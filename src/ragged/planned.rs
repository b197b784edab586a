//! [`PlannedRagged`]: lists and strings with the plan of each part, level by level, and chunks that are ready to be read.

use std::fmt;

use arrow_schema::{DataType, FieldRef};

use super::Ragged;
use super::device_offsets::DeviceLevel;
use super::elements::{RaggedPart, item_field, leaf_spec, parts, struct_column, unsupported};
use super::level::{Level, RaggedRows, UnreadRows, null_row};
use super::part::Part;
use super::planned_elements::PlannedElements;
use super::variable_shape;
use super::views::ViewRows;
use crate::alloc::{Borrower, SelfCell};
use crate::arrow::DeviceArray;
use crate::column::{ColumnRef, SharedReads, columns, convert_chunks, run_here, to_arrow};
use crate::error::{Error, Remedy, Result};
use crate::plan::{ChunkSize, Placement, Plan};
use crate::spec::{CopyMode, NullPolicy, Options, Spec, VariableShape};
use crate::tensor::Tensor;

/// Ragged rows that are about to be made: what will be done to each part is decided, every offset was checked, and no element was read.
/// Shares the memory of the chunks, and holds what was decoded.
pub(crate) struct PlannedRagged {
    field: FieldRef,
    level: Box<SelfCell<LevelData, PlannedLevels>>,
    /// Of rows that are tensors.
    tensor: Option<PlannedShapes>,
}

/// The chunks of one level of rows.
#[derive(Debug)]
struct LevelData {
    field: FieldRef,
    parts: Vec<RaggedPart>,
    options: Options,
}

/// The plan of a level.
enum PlannedLevels {}

impl Borrower for PlannedLevels {
    type Of<'a> = PlannedLevel<'a>;
}

/// One level of rows, with the plans of its parts.
struct PlannedLevel<'a> {
    rows: Box<dyn RaggedRows + 'a>,
    item: FieldRef,
    options: &'a Options,
    validity: Option<Part>,
    offsets: Part,
    lengths: Option<Part>,
    values: PlannedValues,
}

/// The elements of a level.
enum PlannedValues {
    Rows(PlannedRagged),
    Elements(PlannedElements),
    /// Bytes that are gathered, and then cast by this spec.
    Bytes(Part, Option<Spec>),
    /// Elements on a device, which are planned once the offsets were read.
    Unread,
}

/// The shapes of rows that are tensors.
struct PlannedShapes {
    shapes: PlannedElements,
    /// Extents that every row has.
    uniform: Vec<Option<i64>>,
    /// A bool for each row, true where it has a shape to speak of.
    shown: Tensor,
}

impl fmt::Debug for PlannedRagged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlannedRagged").field("field", &self.field).finish_non_exhaustive()
    }
}

impl PlannedRagged {
    /// Plans chunks of lists or strings. Reads offsets and bitmaps of host memory, and no memory of a device. A copy that is not allowed
    /// is an error of its part: see [`PlannedRagged::refuse`].
    ///
    /// # Errors
    /// When the type has no ragged form, offsets lead out of the elements, or a null is refused.
    pub(crate) fn new(field: &FieldRef, chunks: &[DeviceArray], options: &Options) -> Result<Self> {
        let plan = || {
            // What no data could make possible fails before any is looked at.
            leaf_spec(field, options)?;
            Self::of_level(field.clone(), parts(field, chunks)?, options)
        };
        plan().map_err(|error| error.in_column(field.name()))
    }

    /// Plans the rows of one level.
    pub(super) fn of_level(field: FieldRef, parts: Vec<RaggedPart>, options: &Options) -> Result<Self> {
        let is_on_device = DeviceArray::readiness_of(parts.iter().map(|part| &part.array)).is_some();
        match VariableShape::of(&field)? {
            Some(tensor) if !is_on_device => Self::of_tensors(&field, &tensor, &parts, options),
            _ => {
                let data = LevelData { field: field.clone(), parts, options: options.clone() };
                let level = Box::new(SelfCell::<_, PlannedLevels>::new(data, |data| PlannedLevel::new(data))?);
                Ok(Self { field, level, tensor: None })
            }
        }
    }

    /// `arrow.variable_shape_tensor`: a list of elements and a shape in each row.
    fn of_tensors(
        field: &FieldRef,
        tensor: &VariableShape<'_>,
        parts: &[RaggedPart],
        options: &Options,
    ) -> Result<Self> {
        let (data_field, data) = struct_column(field, tensor.data, parts)?;
        let rows = Self::of_level(data_field, data, options).map_err(Error::without_rows_filled)?;
        let plan_shapes = || {
            let (shape_field, shape) = struct_column(field, tensor.shape, parts)?;
            let arrays: Vec<_> = shape.into_iter().map(|part| part.array).collect();
            let own = Options::default().copy(options.copy).writable(options.writable).nulls(NullPolicy::Keep);
            let spec = Spec::new(&shape_field, &own)?;
            let shown = rows.level.with(|_, level| level.rows.validity())?;
            check_shown(&arrays, &spec, shown.peek_bytes()?, options)?;
            let shapes = PlannedElements::new("shapes", spec, arrays, own);
            Ok(PlannedShapes { shapes, uniform: tensor.uniform.clone(), shown })
        };
        let shapes = plan_shapes().map_err(|error| rows.refused().unwrap_or(error))?;
        Ok(Self { field: field.clone(), tensor: Some(shapes), ..rows })
    }

    /// Why the first part that is refused cannot be made, as far as no value decides it.
    fn refused(&self) -> Option<Error> {
        let shapes = || self.tensor.as_ref().and_then(|tensor| tensor.shapes.refused().cloned());
        self.level.with(|_, level| level.refused()).or_else(shapes)
    }

    /// Refuses the copies that are not allowed, or that nothing makes.
    ///
    /// # Errors
    /// Names the column.
    pub(crate) fn refuse(&self) -> Result<()> {
        self.refused().map_or(Ok(()), |error| Err(error.in_column(self.field.name())))
    }

    pub(crate) fn field(&self) -> &FieldRef {
        &self.field
    }

    /// What will be done to each part, in the order of a report; of a device only to those of the outermost level.
    pub(super) fn parts(&self) -> Vec<Part> {
        let (own, values) = self.level.with(|_, level| (level.own_parts(), level.values_parts()));
        let shapes = self.tensor.as_ref().map(|tensor| tensor.shapes.part());
        let [offsets, lengths, validity] = own;
        [offsets, lengths, shapes, validity].into_iter().flatten().chain(values).collect()
    }

    /// What a report needs to know of rows on a device, whose elements nobody has looked at; `None` of host memory.
    pub(super) fn unread(&self) -> Option<UnreadRows> {
        self.level.with(|_, level| level.rows.unread())
    }

    /// The field of the elements.
    pub(super) fn item(&self) -> FieldRef {
        self.level.with(|_, level| level.item.clone())
    }

    /// The options of the elements.
    pub(super) fn options(&self) -> Options {
        self.level.with(|data, _| data.options.clone())
    }

    /// The rows.
    ///
    /// # Errors
    /// As [`PlannedRagged::refuse`]; for a value that a cast cannot take; when an allocation fails, or what only the memory of a device
    /// tells is refused.
    pub(crate) fn run(mut self) -> Result<Ragged> {
        self.refuse()?;
        self.make().map_err(|error| error.in_column(self.field.name()))
    }

    fn make(&mut self) -> Result<Ragged> {
        let rows = self.level.with_mut(|_, level| level.run())?;
        let shapes = self.tensor.as_mut().map(|tensor| tensor.run(&rows)).transpose()?;
        Ok(Ragged { shapes, field: Some(self.field.clone()), ..rows })
    }
}

impl PlannedShapes {
    fn run(&mut self, rows: &Ragged) -> Result<Tensor> {
        let (shapes, shown) = (self.shapes.run()?, self.shown.peek_bytes()?);
        let is_shown = |row: usize| shown.get(row).is_some_and(|shown| *shown != 0);
        variable_shape::check_rows(&shapes, &rows.offsets, is_shown)?;
        variable_shape::check_uniform(&shapes, &self.uniform, is_shown)?;
        Ok(shapes)
    }
}

impl<'a> PlannedLevel<'a> {
    fn new(LevelData { field, parts, options }: &'a LevelData) -> Result<Self> {
        let item = item_field(field);
        let is_on_device = DeviceArray::readiness_of(parts.iter().map(|part| &part.array)).is_some();
        let (rows, item): (Box<dyn RaggedRows>, FieldRef) = match (field.data_type(), item) {
            _ if is_on_device => {
                let (level, item) = DeviceLevel::new(field, parts, options)?;
                (Box::new(level), item)
            }
            (DataType::Utf8View | DataType::BinaryView, Some(item)) => {
                (Box::new(ViewRows::new(field, parts, options)?), item)
            }
            (_, Some(item)) => (Box::new(Level::new(field, parts, options)?), item),
            (_, None) => return Err(unsupported(field)),
        };
        let [validity, lengths] = [rows.validity_part(), rows.lengths_part()].map(|part| part.map(Part::checked));
        let level = Self {
            validity,
            offsets: rows.offsets_part().checked(),
            lengths,
            values: PlannedValues::Unread,
            rows,
            item,
            options,
        };
        match level.plan_values() {
            Ok(values) => Ok(Self { values, ..level }),
            Err(error) => Err(level.refused().unwrap_or(error)),
        }
    }

    /// Plans the elements that the rows span, where they are known.
    fn plan_values(&self) -> Result<PlannedValues> {
        let Self { rows, item, options, .. } = self;
        if let Some(part) = rows.bytes_part(item) {
            let spec = Spec::new(item, &of_own(options))?;
            return Ok(PlannedValues::Bytes(part.checked(), spec.is_cast().then_some(spec)));
        }
        let at_row = |error| at_row(rows.as_ref(), item, options, error);
        let plan = || {
            let Some(items) = rows.items(item)? else { return Ok(PlannedValues::Unread) };
            if item_field(item).is_some() {
                return PlannedRagged::of_level(item.clone(), items, options).map(PlannedValues::Rows);
            }
            let (spec, arrays, options) = rows.column(item, &items)?;
            let continues = items.iter().map(|item| item.follows).collect();
            let elements = PlannedElements::of_pieces("values", spec, (arrays, continues), options);
            Ok(PlannedValues::Elements(elements.map_err(at_row)))
        };
        plan().map_err(at_row)
    }

    /// Why the first part that is refused cannot be made.
    fn refused(&self) -> Option<Error> {
        let own = [self.validity.as_ref(), Some(&self.offsets), self.lengths.as_ref()];
        own.into_iter().flatten().find_map(|part| part.error.clone()).or_else(|| self.values.refused())
    }

    /// Offsets, lengths and validity.
    fn own_parts(&self) -> [Option<Part>; 3] {
        [Some(self.offsets.clone()), self.lengths.clone(), self.validity.clone()]
    }

    fn values_parts(&self) -> Vec<Part> {
        match &self.values {
            PlannedValues::Rows(rows) => {
                let inner = rows.parts().into_iter();
                inner.map(|part| Part { name: format!("values.{}", part.name).into(), ..part }).collect()
            }
            PlannedValues::Elements(elements) => vec![elements.part()],
            PlannedValues::Bytes(part, None) => vec![part.clone()],
            PlannedValues::Bytes(part, Some(spec)) => {
                let chunk = ChunkSize::without_nulls(part.plan.rows);
                let (dtype, part) = (spec.dtype(), part.clone());
                vec![match Plan::new(spec, &[chunk], &of_own(self.options), Placement::Host) {
                    Ok(cast) => Part { dtype, plan: part.plan.then(cast), ..part },
                    Err(error) => Part { dtype, error: part.error.or(Some(error)), plan: part.plan, ..part },
                }]
            }
            PlannedValues::Unread => Vec::new(),
        }
    }

    fn run(&mut self) -> Result<Ragged> {
        if let Some(offsets) = self.rows.read_offsets()? {
            self.offsets = offsets.checked();
            self.offsets.error.clone().map_or(Ok(()), Err)?;
        }
        let rows = &self.rows;
        let validity = self.validity.as_ref().map(|part| part.make(|_| rows.validity())).transpose()?;
        let offsets = self.offsets.make(|plan| rows.offsets(plan))?;
        let lengths = self.lengths.as_ref().map(|part| part.make(|plan| rows.lengths(plan))).transpose()?;
        if matches!(self.values, PlannedValues::Unread) {
            self.values = self.plan_values()?;
            self.values.refused().map_or(Ok(()), Err)?;
        }
        let (rows, options) = (&self.rows, self.options);
        let at_row = |error| at_row(rows.as_ref(), &self.item, options, error);
        let values = match &mut self.values {
            PlannedValues::Rows(inner) => inner.make().map_err(at_row)?.into(),
            PlannedValues::Elements(elements) => elements.run().map_err(at_row)?.into(),
            PlannedValues::Bytes(part, cast) => {
                // Errors of the gathering are those of rows already.
                let bytes = part.make(|_| rows.bytes())?;
                match cast {
                    None => bytes.into(),
                    Some(spec) => cast_bytes(bytes, spec, &self.item, options).map_err(at_row)?.into(),
                }
            }
            PlannedValues::Unread => return Err(Error::internal("elements without a plan")),
        };
        Ok(Ragged { values, offsets, lengths, shapes: None, validity, field: None })
    }
}

impl PlannedValues {
    fn refused(&self) -> Option<Error> {
        match self {
            Self::Rows(rows) => rows.refused(),
            Self::Elements(elements) => elements.refused().cloned(),
            Self::Bytes(part, _) => part.error.clone(),
            Self::Unread => None,
        }
    }
}

/// Bytes that were gathered, cast.
fn cast_bytes(bytes: Tensor, spec: &Spec, item: &FieldRef, options: &Options) -> Result<Tensor> {
    let array = to_arrow(&bytes, None, CopyMode::IfNeeded)?.relabel(item.clone())?;
    let chunks = columns(std::slice::from_ref(&array));
    convert_chunks(spec, &chunks, &of_own(options), SharedReads::default(), &run_here)
}

/// The options for elements that are ours already, without nulls.
fn of_own(options: &Options) -> Options {
    options.clone().copy(CopyMode::IfNeeded).writable(false).nulls(NullPolicy::Keep)
}

/// The error of an element of these rows, at the row that has it.
fn at_row(rows: &dyn RaggedRows, item: &FieldRef, options: &Options, error: Error) -> Error {
    let convert = |items: Vec<RaggedPart>| {
        if item_field(item).is_some() {
            return PlannedRagged::of_level(item.clone(), items, options)?.run().map(drop);
        }
        let (spec, arrays, options) = rows.column(item, &items)?;
        PlannedElements::new("values", spec, arrays, options).run().map(drop)
    };
    rows.at_row(item, error, &convert)
}

/// Refuses rows that are tensors without a shape, and null shapes of others: `shown` tells which have one to speak of.
fn check_shown(shapes: &[DeviceArray], spec: &Spec, shown: &[u8], options: &Options) -> Result<()> {
    let mut first = 0;
    for array in shapes {
        let mask = ColumnRef::whole(array).chunk(spec)?.mask;
        for row in 0..array.len() {
            let elements = row * spec.row_elements()..(row + 1) * spec.row_elements();
            let is_shown = shown.get(first + row).is_some_and(|shown| *shown != 0);
            if !is_shown && options.nulls != NullPolicy::Keep {
                // An empty row has no place in a shape that is not.
                return Err(null_row(first + row).remedy_is(Remedy::KeepRows));
            }
            if is_shown && mask.as_ref().is_some_and(|mask| elements.into_iter().any(|at| !mask.is_valid(at))) {
                return Err(Error::invalid("the shape of a tensor is null").at_row(first + row));
            }
        }
        first += array.len();
    }
    Ok(())
}
