//! [`PlannedPadded`]: the plan that pads lists or strings to rows of one length, with the chunks.

use std::fmt;
use std::ops::Range;

use arrow_schema::{DataType, FieldRef};

use super::device_padded::DevicePadded;
use super::elements::{parts, spanned};
use super::level::null_row;
use super::pad_rules::{both, item_spec, longer_row, outside_rows, plan_schema};
use super::part::Part;
use crate::alloc::{Borrower, SelfCell, fallible};
use crate::arrow::{DeviceArray, Leaf, ListChunk, Validated, ViewChunk, empty_on};
use crate::column::{ColumnRef, shared_dictionary};
use crate::convert::{ColumnChunk, LOOK_UP, ListItems, Padder, collect_ints, decode, in_rounds, null_item};
use crate::copy_log::rows_of;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::plan::{Action, Plan};
use crate::spec::{CopyMode, NullPolicy, Nulls, Options, Pad, Pattern, Side, Spec};
use crate::tensor::Tensor;

/// Plans the padding of any data of this field on a device: the matrix, and its validity.
///
/// # Errors
/// If rows of this type cannot be padded so. A copy that is not allowed is an error of the parts.
pub(crate) fn plan_padded_type(field: &FieldRef, device: Device, pad: Pad, options: &Options) -> Result<Vec<Part>> {
    if !device.is_cpu() {
        return match PlannedPadded::new(field, &[empty_on(field.clone(), device)?], pad, options)? {
            PlannedPadded::Device(rows) => Ok(rows.parts_of_type()),
            PlannedPadded::Host(_) => Err(Error::internal("host memory of a device")),
        };
    }
    let (spec, _) = item_spec(field, pad, options).map_err(|error| error.in_column(field.name()))?;
    Ok(plan_schema(field, &spec, pad, options))
}

/// The plan of padded rows, before any element is read. Shares the memory of the chunks.
#[derive(Debug)]
pub(crate) enum PlannedPadded {
    Host(HostPadded),
    Device(DevicePadded),
}

impl PlannedPadded {
    /// Plans chunks of lists or strings. Reads offsets and bitmaps of host memory, and no memory of a device.
    ///
    /// # Errors
    /// If rows of this type cannot be padded so, whatever the data; for a row that is a refused null or too long; when dictionaries differ,
    /// or the result is larger than the address space. What only the memory of a device tells is an error of [`PlannedPadded::run`].
    pub(crate) fn new(field: &FieldRef, chunks: &[DeviceArray], pad: Pad, options: &Options) -> Result<Self> {
        let planned = if DeviceArray::readiness_of(chunks).is_some() {
            DevicePadded::new(field, chunks, pad, options).map(Self::Device)
        } else {
            HostPadded::new(field, chunks, pad, options).map(Self::Host)
        };
        planned.map_err(|error| error.without_categories().in_column(field.name()))
    }

    /// Refuses a copy that is not allowed, or that no backend makes.
    ///
    /// # Errors
    /// Names the column.
    pub(crate) fn refuse(&self) -> Result<()> {
        match self {
            Self::Host(rows) => rows.refuse(),
            Self::Device(rows) => rows.refuse(),
        }
    }

    /// Returns the plans of the matrix and of its validity.
    ///
    /// # Errors
    /// For a null element that the conversion would refuse.
    pub(crate) fn parts(&self) -> Result<Vec<Part>> {
        match self {
            Self::Host(rows) => rows.parts(),
            Self::Device(rows) => rows.parts(),
        }
    }

    /// Returns the matrix, and a bool for each of its items, true where it is valid.
    ///
    /// # Errors
    /// As [`PlannedPadded::refuse`]; for a null element that is refused, and a value that a cast cannot take; when an allocation fails.
    /// Of a device also as [`PlannedPadded::new`].
    pub(crate) fn run(&self) -> Result<(Tensor, Tensor)> {
        match self {
            Self::Host(rows) => rows.run(),
            Self::Device(rows) => rows.run().map_err(Error::without_categories),
        }
    }

    /// Returns the plan that counts the elements of each row.
    pub(crate) fn lengths_part(&self) -> Part {
        match self {
            Self::Host(rows) => rows.lengths_part(),
            Self::Device(rows) => rows.lengths_part(),
        }
    }

    /// Returns how many elements each row keeps; a null row keeps none.
    ///
    /// # Errors
    /// When an allocation fails; of a device, as [`PlannedPadded::run`].
    pub(crate) fn lengths(&self) -> Result<Tensor> {
        match self {
            Self::Host(rows) => rows.lengths(),
            Self::Device(rows) => rows.lengths(),
        }
    }
}

/// The plan of padded rows in host memory, with every offset checked, and items decoded where the spec says so.
pub(crate) struct HostPadded {
    field: FieldRef,
    pad: Pad,
    padding: Pattern,
    copy: CopyMode,
    /// Items per padded row.
    length: usize,
    /// The matrix and its validity, made in one pass.
    plan: Plan,
    rows: SelfCell<PadData, PadRows>,
}

/// The chunks of rows that are padded.
#[derive(Debug)]
struct PadData {
    spec: Spec,
    chunks: Vec<DeviceArray>,
}

/// The rows of each chunk.
enum PadRows {}

impl Borrower for PadRows {
    type Of<'a> = Vec<PadSource<'a>>;
}

impl fmt::Debug for HostPadded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostPadded").field("field", &self.field).field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl HostPadded {
    fn new(field: &FieldRef, chunks: &[DeviceArray], pad: Pad, options: &Options) -> Result<Self> {
        let (spec, padding) = item_spec(field, pad, options)?;
        // Refuses chunks of another type, as for ragged rows.
        parts(field, chunks)?;
        let data = PadData { spec, chunks: fallible::copied(chunks)? };
        let mut planned = None;
        let rows = SelfCell::<_, PadRows>::new(data, |PadData { spec, chunks }| {
            let mut sources = sources_of(chunks)?;
            let (length, plan) = plan_rows(spec, &mut sources, pad, options)?;
            if plan.refuse_steps(options.copy).is_ok() {
                take_items(&mut sources, spec)?;
            }
            planned = Some((length, plan));
            Ok::<_, Error>(sources)
        })?;
        let (length, plan) = planned.ok_or_else(|| Error::internal("padded rows without a plan"))?;
        Ok(Self { field: field.clone(), pad, padding, copy: options.copy, length, plan, rows })
    }

    fn refuse(&self) -> Result<()> {
        self.plan.refuse_steps(self.copy).map_err(|error| error.in_column(self.field.name()))
    }

    fn parts(&self) -> Result<Vec<Part>> {
        let error = self.refuse().err();
        if error.is_none() {
            self.rows.with(|data, sources| self.refuse_nulls(&data.spec, sources))?;
        }
        let items = self.plan.rows.saturating_mul(self.length);
        let flags = Plan::of_part(DType::Bool, items, [Action::Pad { length: Some(self.length) }]);
        let matrix = Plan { bytes: self.plan.bytes.saturating_sub(flags.bytes), ..self.plan.clone() };
        let extents = (Some(self.plan.rows), Some(self.length));
        let both = self.rows.with(|data, _| both(&self.field, &data.spec, extents, self.copy));
        let part = |(part, plan)| Part { plan, error: error.clone(), ..part };
        Ok(both.into_iter().zip([matrix, flags]).map(part).collect())
    }

    /// Refuses null elements as [`HostPadded::run`] does.
    fn refuse_nulls(&self, spec: &Spec, sources: &[PadSource<'_>]) -> Result<()> {
        let mut first = 0;
        for source in sources.iter().filter(|_| self.plan.is_copy() && spec.nulls() == Nulls::Refused) {
            if let Some(row) = source.null_row(spec, &|row| self.pad.kept(row, self.length)) {
                return Err(null_item(spec).at_row(first + row).in_column(self.field.name()));
            }
            first += source.rows();
        }
        Ok(())
    }

    fn run(&self) -> Result<(Tensor, Tensor)> {
        self.refuse()?;
        let made = self.rows.with(|data, sources| self.write(&data.spec, sources));
        made.map_err(|error| error.in_column(self.field.name()))
    }

    fn lengths_part(&self) -> Part {
        let counted = (DType::Int64, self.plan.rows);
        let part = Part::new("lengths", &self.field, counted, [Action::CountLengths], self.copy);
        Part { error: self.refuse().err(), ..part }.checked()
    }

    fn lengths(&self) -> Result<Tensor> {
        let count = |sources: &Vec<PadSource<'_>>| {
            let mut lengths = fallible::with_room(self.plan.rows)?;
            for source in sources {
                for row in 0..source.rows() {
                    lengths.push(self.pad.kept(0..source.length(row)?.unwrap_or(0), self.length).len());
                }
            }
            collect_ints(DType::Int64, lengths.len(), lengths.into_iter())
        };
        self.lengths_part().make(|_| self.rows.with(|_, sources| count(sources)))
    }

    fn write(&self, spec: &Spec, sources: &[PadSource<'_>]) -> Result<(Tensor, Tensor)> {
        let (field, plan) = (&self.field, &self.plan);
        plan.record(|| rows_of(field.name(), plan.rows, field.data_type()));
        let is_left = self.pad.side == Side::Left;
        let mut padder = Padder::new(spec, self.padding.bytes(), (plan.rows, self.length), is_left)?;
        // A row of few items takes as long as a look-up.
        let row_bytes = plan.bytes.checked_div(plan.rows).unwrap_or(0).saturating_add(LOOK_UP);
        for source in sources {
            source.write(spec, &mut padder, row_bytes, &|row| self.pad.kept(row, self.length))?;
        }
        padder.finish()
    }
}

/// Returns where the rows of each chunk are.
///
/// # Errors
/// For rows whose offsets lead out of the items; names the row among those of all chunks.
fn sources_of(chunks: &[DeviceArray]) -> Result<Vec<PadSource<'_>>> {
    let mut sources = fallible::with_room(chunks.len())?;
    let mut first = 0_usize;
    for array in chunks {
        let source = PadSource::new(array).map_err(|error| error.behind(first))?;
        first = first.saturating_add(source.rows());
        sources.push(source);
    }
    Ok(sources)
}

/// Takes the items of all sources that have not taken theirs.
fn take_items(sources: &mut [PadSource<'_>], spec: &Spec) -> Result<()> {
    let (mut before, known) = (0, Validated::default());
    sources.iter_mut().try_for_each(|source| {
        source.take_items(spec, before, &known)?;
        before += source.rows();
        Ok(())
    })
}

/// Returns the length of padded rows, and the plan that pads them.
///
/// # Errors
/// As [`PlannedPadded::new`].
fn plan_rows(spec: &Spec, sources: &mut [PadSource<'_>], pad: Pad, options: &Options) -> Result<(usize, Plan)> {
    let (mut rows, mut longest) = (0, 0);
    for source in &*sources {
        in_rounds(source.rows(), size_of::<usize>(), |mut part| {
            part.try_for_each(|row| {
                let at_row = |error: Error| error.at_row(rows + row);
                match source.length(row).map_err(at_row)? {
                    None if options.nulls == NullPolicy::Error => return Err(null_row(rows + row)),
                    Some(length) if pad.truncate.is_none() && pad.length.is_some_and(|most| length > most) => {
                        return Err(at_row(longer_row(length, pad.length.unwrap_or(0))));
                    }
                    length => longest = longest.max(length.unwrap_or(0)),
                }
                Ok(())
            })
        })?;
        rows += source.rows();
    }
    if spec.has_codes() {
        // Items that are codes need no decoding, so this makes no copy before it is allowed.
        take_items(sources, spec)?;
        shared_codes(spec, sources)?;
    }
    let decoded = sources.iter().map(PadSource::spanned).sum();
    let length = pad.length_of(longest)?;
    Ok((length, Plan::padded(spec, rows, length, decoded)?))
}

/// Refuses chunks with different dictionaries.
fn shared_codes(spec: &Spec, sources: &[PadSource<'_>]) -> Result<()> {
    let items = |source| match source {
        &PadSource::Lists { items: Some((ref items, _)), .. } => Some(items),
        _ => None,
    };
    let arrays: Vec<_> = sources.iter().filter_map(items).map(|items| items.with(|array, _| array.clone())).collect();
    let chunks = arrays.iter().map(|array| ColumnRef::whole(array).chunk(spec)).collect::<Result<Vec<_>>>()?;
    shared_dictionary(spec, &chunks).map(drop)
}

/// Returns the elements of a row that truncation keeps.
type Truncation<'a> = dyn Fn(Range<usize>) -> Range<usize> + 'a;

/// Returns the items that rows span: of list views only those that rows show, and what lies between these.
fn span_of(list: &ListChunk<'_>) -> Range<usize> {
    if list.lengths().is_none() {
        return list.span();
    }
    spanned((0..list.rows).filter(|row| !list.is_null(*row)).map(|row| list.row(row)))
}

/// Where the rows of a chunk are.
enum PadSource<'a> {
    /// The rows, and once copies are allowed, the items that they span, with the position of the first one.
    Lists {
        list: Box<ListChunk<'a>>,
        items: Option<(SelfCell<DeviceArray, PadItems>, usize)>,
    },
    Views {
        views: ViewChunk<'a>,
        array: &'a DeviceArray,
    },
}

/// The items of a chunk, decoded where the spec says so.
enum PadItems {}

impl Borrower for PadItems {
    type Of<'a> = ColumnChunk<'a>;
}

impl<'a> PadSource<'a> {
    fn new(array: &'a DeviceArray) -> Result<Self> {
        Ok(match array.field().data_type() {
            DataType::Utf8View | DataType::BinaryView => Self::Views { views: array.views()?, array },
            _ => Self::Lists { list: Box::new(array.lists()?), items: None },
        })
    }

    fn rows(&self) -> usize {
        match self {
            Self::Lists { list, .. } => list.rows,
            Self::Views { views, .. } => views.rows(),
        }
    }

    /// Returns the length of a row; `None` if it is null.
    fn length(&self, row: usize) -> Result<Option<usize>> {
        match self {
            Self::Lists { list, .. } => Ok((!list.is_null(row)).then(|| list.row(row).len())),
            // Checks that the view is in bounds before its length decides about an allocation.
            Self::Views { views, .. } => Ok(views.bytes(row)?.map(<[u8]>::len)),
        }
    }

    /// Returns how many items the rows of lists span.
    fn spanned(&self) -> usize {
        match self {
            Self::Lists { list, .. } => span_of(list).len(),
            Self::Views { .. } => 0,
        }
    }

    /// Takes the items that the rows of lists span, decodes them where the spec says so, and joins their nulls to one mask. The rows follow
    /// `before` others.
    fn take_items(&mut self, spec: &Spec, before: usize, known: &Validated) -> Result<()> {
        if let Self::Lists { list, items: items @ None } = self {
            let span = span_of(list);
            let array = list.items.clipped(&span);
            let at_row = |error: Error| {
                let Some(item) = error.row().map(|item| span.start.saturating_add(item)) else { return error };
                let is_in = |row: &usize| !list.is_null(*row) && list.row(*row).contains(&item);
                match (0..list.rows).find(is_in) {
                    Some(row) => error.at_row(before.saturating_add(row)),
                    None => outside_rows(item, &error),
                }
            };
            let array = spec.decoded().map_or_else(|| Ok(array.clone()), |field| decode(&array, spec, field, known));
            let chunk =
                SelfCell::new(array.map_err(at_row)?, |array| ColumnRef::whole(array).chunk(spec)).map_err(at_row)?;
            *items = Some((chunk, span.start));
        }
        Ok(())
    }

    /// Returns the first row that keeps a null element.
    fn null_row(&self, spec: &Spec, kept: &Truncation<'_>) -> Option<usize> {
        let Self::Lists { list, items: Some((items, first)) } = self else { return None };
        let per_item = spec.row_elements();
        items.with(|_, chunk| {
            let mask = chunk.mask.as_ref()?;
            let has_null = |row: &usize| {
                let row = kept(list.row(*row));
                let elements = row.start.saturating_sub(*first) * per_item..row.end.saturating_sub(*first) * per_item;
                elements.into_iter().any(|element| !mask.is_valid(element))
            };
            (0..list.rows).filter(|row| !list.is_null(*row)).find(has_null)
        })
    }

    /// Writes all rows.
    fn write(&self, spec: &Spec, padder: &mut Padder<'_>, row_bytes: usize, kept: &Truncation<'_>) -> Result<()> {
        match self {
            Self::Lists { items: None, .. } => Err(Error::internal("rows that are padded without their elements")),
            Self::Lists { list, items: Some((items, first)) } => items.with(|_, chunk| {
                let items = ListItems::new(spec, chunk)?;
                in_rounds(list.rows, row_bytes, |rows| {
                    // By a reference of the closure's own: by the captured reference to it, each row would load its members again.
                    let padder = &mut *padder;
                    for row in rows {
                        let row = (!list.is_null(row)).then(|| kept(list.row(row)));
                        let row = row.map(|row| row.start.saturating_sub(*first)..row.end.saturating_sub(*first));
                        padder.push(&items, row)?;
                    }
                    Ok(())
                })
            }),
            Self::Views { views, array } => in_rounds(views.rows(), row_bytes, |mut rows| {
                rows.try_for_each(|row| {
                    let bytes = views.bytes(row)?;
                    let chunk = ColumnChunk { leaf: Leaf::of_bytes(bytes.unwrap_or(&[])), mask: None, array };
                    padder.push(&ListItems::new(spec, &chunk)?, bytes.map(|bytes| kept(0..bytes.len())))
                })
            }),
        }
    }
}
