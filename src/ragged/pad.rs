//! Pads lists and strings to rows of one length.

use std::ops::Range;

use arrow_schema::{DataType, FieldRef};
use smallvec::smallvec;

use super::elements::{RaggedPart, item_field, parts, unsupported};
use super::level::null_row;
use super::part::Part;
use super::variable_shape;
use crate::alloc::fallible;
use crate::arrow::{DeviceArray, Leaf, ListChunk, ViewChunk};
use crate::column::{ColumnRef, require_host, shared_dictionary};
use crate::convert::{ColumnChunk, ListItems, Padder, collect_ints, decode, null_item};
use crate::dtype::DType;
use crate::error::{Error, Remedy, Result};
use crate::plan::{Action, Plan, not_allowed};
use crate::spec::{
    CopyMode, DICTIONARIES, NULLS, NullPolicy, Nulls, Options, Pad, Pattern, Side, Spec, Undecided, may_be_null,
};
use crate::tensor::Tensor;

/// Converts the chunks of a column of lists or strings into a padded matrix, and a bool for each of its items.
///
/// # Errors
/// As [`Conversion::padded`](crate::Conversion::padded).
pub(crate) fn chunks_to_padded(
    field: &FieldRef,
    chunks: &[DeviceArray],
    pad: Pad,
    options: &Options,
) -> Result<(Tensor, Tensor)> {
    let padded = padded(field, chunks, pad, options, false).map_err(|error| error.in_column(field.name()))?;
    Ok((padded.matrix, padded.validity))
}

/// Rows of one length: the results of a group of padded rows.
pub(crate) struct PaddedTensors {
    /// Of shape (rows, length, *inner).
    pub(crate) matrix: Tensor,
    /// A bool for each item, of shape (rows, length): whether it is a valid element of a valid row.
    pub(crate) validity: Tensor,
    /// How many elements of each row were kept, as int64; only if they were asked for.
    pub(crate) lengths: Option<Tensor>,
}

/// As [`chunks_to_padded`], with the lengths of the rows.
///
/// # Errors
/// As [`chunks_to_padded`].
pub(crate) fn chunks_to_padded_group(
    field: &FieldRef,
    chunks: &[DeviceArray],
    pad: Pad,
    options: &Options,
    with_lengths: bool,
) -> Result<PaddedTensors> {
    padded(field, chunks, pad, options, with_lengths).map_err(|error| error.in_column(field.name()))
}

/// What an item of a padded row becomes, and the padding.
///
/// # Errors
/// What no data could make possible.
pub(super) fn item_spec(field: &FieldRef, pad: Pad, options: &Options) -> Result<(Spec, Pattern)> {
    pad.check()?;
    if field.extension_type_name() == Some(variable_shape::NAME) {
        return Err(Error::unsupported(format!("rows of {} cannot be padded: each has a shape", variable_shape::NAME))
            .remedy_is("convert them without pad, or pass the field data of their storage"));
    }
    let item = item_field(field).ok_or_else(|| unsupported(field.data_type()))?;
    if item_field(&item).is_some() {
        return Err(Error::unsupported(format!("nested lists ({}) cannot be padded", field.data_type()))
            .remedy_is("convert them without pad, or flatten one level first"));
    }
    let spec = Spec::new(&item, options)?;
    let padding = Pattern::of(pad.value, spec.dtype())?;
    Ok((spec, padding))
}

fn padded(
    field: &FieldRef,
    chunks: &[DeviceArray],
    pad: Pad,
    options: &Options,
    with_lengths: bool,
) -> Result<PaddedTensors> {
    let (spec, padding) = item_spec(field, pad, options)?;
    let parts = host_parts(field, chunks)?;
    let rows = PaddedRows::new(&spec, &parts, pad, options)?;
    rows.plan.refuse_steps(options.copy)?;
    rows.plan.record(|| format!("column {:?}: {} rows of {}", field.name(), rows.plan.rows, field.data_type()));
    let mut padder = Padder::new(&spec, padding.bytes(), (rows.plan.rows, rows.length), pad.side == Side::Left)?;
    for source in &rows.sources {
        source.write(&mut padder, &|row| pad.kept(row, rows.length))?;
    }
    let (matrix, validity) = padder.finish()?;
    let lengths = with_lengths.then(|| rows.kept_lengths(pad)).transpose()?;
    Ok(PaddedTensors { matrix, validity, lengths })
}

/// What padding these chunks would do, or any data of this field where they are `None`: to the matrix, and to its validity.
///
/// # Errors
/// What keeps both from being made, other than a copy that is not allowed.
pub(crate) fn plan_padded(
    field: &FieldRef,
    chunks: Option<&[DeviceArray]>,
    pad: Pad,
    options: &Options,
) -> Result<Vec<Part>> {
    let plan = || {
        let (spec, _) = item_spec(field, pad, options)?;
        match chunks {
            Some(chunks) => plan_chunks(field, &spec, &host_parts(field, chunks)?, pad, options),
            None => Ok(plan_schema(field, &spec, pad, options)),
        }
    };
    plan().map_err(|error| error.in_column(field.name()))
}

fn plan_chunks(field: &FieldRef, spec: &Spec, parts: &[RaggedPart], pad: Pad, options: &Options) -> Result<Vec<Part>> {
    let rows = PaddedRows::new(spec, parts, pad, options)?;
    let error = rows.plan.refuse_steps(options.copy).err().map(|error| error.in_column(field.name()));
    if error.is_none() {
        rows.refuse_nulls(pad)?;
    }
    let both = both(field, spec, (Some(rows.plan.rows), Some(rows.length)), options);
    let [values, validity] = both.map(|part| Part { error: error.clone(), ..part });
    let [matrix, flags] = rows.plans();
    Ok(vec![Part { plan: matrix, ..values }, Part { plan: flags, ..validity }])
}

fn plan_schema(field: &FieldRef, spec: &Spec, pad: Pad, options: &Options) -> Vec<Part> {
    let longer =
        pad.length.filter(|_| pad.truncate.is_none()).map(|length| format!("rows have more than {length} elements"));
    let nulls = options.nulls == NullPolicy::Error && may_be_null(field);
    let refused_if = nulls.then(|| NULLS.to_owned()).into_iter().chain(longer);
    let refused_if: Vec<_> = refused_if.chain(spec.has_codes().then(|| DICTIONARIES.to_owned())).collect();
    let is_refused = pad.length != Some(0) && options.copy == CopyMode::Never;
    let error = is_refused.then(|| {
        not_allowed("a copy is needed of any rows (rows are padded)")
            .remedy_is(Remedy::AllowCopyOrNoPad)
            .in_column(field.name())
    });
    let of_values: Vec<_> = Plan::padding_actions(spec, pad.length).collect();
    let actions = [of_values, vec![Action::Pad { length: pad.length }]];
    let parts = both(field, spec, (None, pad.length), options).into_iter().zip(actions);
    let part = |(part, actions): (Part, Vec<Action>)| {
        let steps = actions.iter().filter(|_| pad.length != Some(0)).map(Action::to_string).collect();
        let undecided = Undecided { steps, at_most: false, refused_if: refused_if.clone() };
        Part { undecided: Some(undecided), error: error.clone(), ..part }
    };
    parts.map(part).collect()
}

/// The chunks of a column, in host memory: nothing pads rows on a device.
fn host_parts(field: &FieldRef, chunks: &[DeviceArray]) -> Result<Vec<RaggedPart>> {
    let parts = parts(field, chunks)?;
    chunks.iter().try_for_each(|chunk| require_host(chunk.device(), field.name())).map(|()| parts)
}

/// The matrix and its validity, of which only types and shapes are known.
fn both(field: &FieldRef, spec: &Spec, (rows, length): (Option<usize>, Option<usize>), options: &Options) -> [Part; 2] {
    let extent = |extent: Option<usize>| extent.and_then(|extent| i64::try_from(extent).ok());
    let shape = smallvec![extent(rows), extent(length)];
    let inner = spec.inner_shape().iter().copied().map(Some);
    let matrix = [extent(rows), extent(length)].into_iter().chain(inner).collect();
    [
        Part::of_plan("values", field, spec.dtype(), matrix, Plan::default(), options.copy),
        Part::of_plan("validity", field, DType::Bool, shape, Plan::default(), options.copy),
    ]
}

/// Rows that were checked, and what is done to pad them.
struct PaddedRows<'a> {
    sources: Vec<PadSource<'a>>,
    length: usize,
    plan: Plan,
}

impl<'a> PaddedRows<'a> {
    /// # Errors
    /// When a row is null and that is refused, or is too long; when dictionaries differ, or the result is larger than memory can be.
    fn new(spec: &'a Spec, parts: &'a [RaggedPart], pad: Pad, options: &Options) -> Result<Self> {
        let sources = parts.iter().map(|part| PadSource::new(part, spec)).collect::<Result<Vec<_>>>()?;
        let (mut rows, mut longest) = (0, 0);
        for source in &sources {
            for row in 0..source.rows() {
                let at_row = |error: Error| error.at_row(rows + row);
                match source.length(row).map_err(at_row)? {
                    None if options.nulls == NullPolicy::Error => return Err(null_row(rows + row)),
                    Some(length) if pad.truncate.is_none() && pad.length.is_some_and(|most| length > most) => {
                        let most = pad.length.unwrap_or(0);
                        let reason = format!("the row has {length} elements, and is padded to {most}");
                        let remedy = Remedy::LongerRow { length: length.to_string() };
                        return Err(at_row(Error::argument(reason)).remedy_is(remedy));
                    }
                    length => longest = longest.max(length.unwrap_or(0)),
                }
            }
            rows += source.rows();
        }
        if spec.has_codes() {
            let items: Vec<_> = sources.iter().filter_map(PadSource::items).collect();
            let chunks = items.iter().map(|items| ColumnRef::whole(items).chunk(spec)).collect::<Result<Vec<_>>>()?;
            shared_dictionary(spec, &chunks)?;
        }
        let decoded = sources.iter().filter_map(PadSource::items).map(|items| items.len()).sum();
        let length = pad.length_of(longest)?;
        let plan = Plan::padded(spec, rows, length, decoded)?;
        Ok(Self { sources, length, plan })
    }

    /// The plan as the parts of it that make the matrix, and its validity.
    fn plans(&self) -> [Plan; 2] {
        let validity = Plan::of_part(
            DType::Bool,
            self.plan.rows.saturating_mul(self.length),
            [Action::Pad { length: Some(self.length) }],
        );
        [Plan { bytes: self.plan.bytes.saturating_sub(validity.bytes), ..self.plan.clone() }, validity]
    }

    /// How many elements of each row are kept; none of a null row.
    fn kept_lengths(&self, pad: Pad) -> Result<Tensor> {
        let mut lengths = fallible::with_room(self.plan.rows)?;
        for source in &self.sources {
            for row in 0..source.rows() {
                lengths.push(pad.kept(0..source.length(row)?.unwrap_or(0), self.length).len());
            }
        }
        let plan = Plan::of_part(DType::Int64, lengths.len(), [Action::CountLengths]);
        plan.record(|| format!("lengths of {} rows", plan.rows));
        collect_ints(DType::Int64, lengths.len(), lengths.into_iter())
    }

    /// Refuses null elements as the conversion does.
    fn refuse_nulls(&self, pad: Pad) -> Result<()> {
        let mut first = 0;
        for source in &self.sources {
            let null = if self.plan.is_copy() { source.null_row(&|row| pad.kept(row, self.length))? } else { None };
            if let Some((row, spec)) = null {
                return Err(null_item(spec).at_row(first + row));
            }
            first += source.rows();
        }
        Ok(())
    }
}

/// Tells which elements of a row remain.
type Kept<'a> = dyn Fn(Range<usize>) -> Range<usize> + 'a;

/// Where the rows of a chunk are.
enum PadSource<'a> {
    Lists { list: ListChunk<'a>, spec: &'a Spec },
    Views { views: ViewChunk<'a>, array: &'a DeviceArray, spec: &'a Spec },
}

impl<'a> PadSource<'a> {
    fn new(part: &'a RaggedPart, spec: &'a Spec) -> Result<Self> {
        Ok(match part.array.field().data_type() {
            DataType::Utf8View | DataType::BinaryView => {
                Self::Views { views: part.array.views()?, array: &part.array, spec }
            }
            _ => Self::Lists { list: part.array.lists()?, spec },
        })
    }

    fn rows(&self) -> usize {
        match self {
            Self::Lists { list, .. } => list.rows,
            Self::Views { views, .. } => views.rows(),
        }
    }

    /// The length of a row, if it is not null.
    fn length(&self, row: usize) -> Result<Option<usize>> {
        match self {
            Self::Lists { list, .. } => Ok((!list.is_null(row)).then(|| list.row(row).len())),
            // Inside the buffers, or nothing is allocated by it.
            Self::Views { views, .. } => Ok(views.bytes(row)?.map(<[u8]>::len)),
        }
    }

    /// The elements that the rows of lists span.
    fn items(&self) -> Option<DeviceArray> {
        match self {
            Self::Lists { list, .. } => Some(list.items.clipped(&list.span())),
            Self::Views { .. } => None,
        }
    }

    /// The first row with a null element among those that are kept, where those are refused.
    fn null_row(&self, kept: &Kept<'_>) -> Result<Option<(usize, &'a Spec)>> {
        let Self::Lists { list, spec } = self else { return Ok(None) };
        if spec.nulls() != Nulls::Refused {
            return Ok(None);
        }
        let (array, first) = decoded(list, spec)?;
        let chunk = ColumnRef::whole(&array).chunk(spec)?;
        let Some(mask) = chunk.mask else { return Ok(None) };
        let per_item = spec.row_elements();
        let has_null = |row: &usize| {
            let row = kept(list.row(*row));
            let elements = row.start.saturating_sub(first) * per_item..row.end.saturating_sub(first) * per_item;
            elements.into_iter().any(|element| !mask.is_valid(element))
        };
        Ok((0..list.rows).filter(|row| !list.is_null(*row)).find(has_null).map(|row| (row, *spec)))
    }

    fn write(&self, padder: &mut Padder<'_>, kept: &Kept<'_>) -> Result<()> {
        match self {
            Self::Lists { list, spec } => {
                let (array, first) = decoded(list, spec)?;
                let chunk = ColumnRef::whole(&array).chunk(spec)?;
                let items = ListItems::new(spec, &chunk)?;
                (0..list.rows).try_for_each(|row| {
                    let row = (!list.is_null(row)).then(|| kept(list.row(row)));
                    padder.push(&items, row.map(|row| row.start.saturating_sub(first)..row.end.saturating_sub(first)))
                })
            }
            Self::Views { views, array, spec } => (0..views.rows()).try_for_each(|row| {
                let bytes = views.bytes(row)?;
                let chunk = ColumnChunk { leaf: Leaf::of_bytes(bytes.unwrap_or(&[])), mask: None, array };
                padder.push(&ListItems::new(spec, &chunk)?, bytes.map(|bytes| kept(0..bytes.len())))
            }),
        }
    }
}

/// The elements of rows, and the position of the first one: those that the rows span, with runs or a dictionary's values written
/// out, or all where they are as they are stored.
fn decoded(list: &ListChunk<'_>, spec: &Spec) -> Result<(DeviceArray, usize)> {
    let span = list.span();
    match spec.decoded() {
        Some(field) => Ok((decode(&list.items.clipped(&span), field)?, span.start)),
        None => Ok((list.items.clone(), 0)),
    }
}
