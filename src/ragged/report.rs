//! Reports what would be done to each part of ragged rows: of data at hand, or of any data of a type.

use arrow_schema::{DataType, Field, FieldRef};
use smallvec::SmallVec;

use super::device_offsets::ENDS_READ;
use super::device_padded::CODES_READ;
use super::elements::{item_field, leaf_spec};
use super::level::{UnreadRows, has_lengths};
use super::padded::plan_padded_type;
use super::part::Part;
use super::planned::PlannedRagged;
use crate::arrow::{DeviceArray, empty_on};
use crate::cuda::is_cuda;
use crate::device::Device;
use crate::error::Result;
use crate::kernels::has_kernel;
use crate::plan::{Action, needs_copy};
use crate::spec::{
    CHUNKS, CopyMode, DICTIONARIES, NULLS, NULLS_READ, NullPolicy, Nulls, Options, PRIVATE, Pad, PossibleStep, Spec,
    Undecided, VariableShape, may_be_null, unless_one_chunk,
};

/// Whether a type has a ragged form.
pub(crate) fn is_ragged(field: &FieldRef) -> bool {
    item_field(field).is_some() || !matches!(VariableShape::of(field), Ok(None))
}

/// Whether a conversion of a column makes values and offsets of it: of lists without a length, and of strings without categories.
pub(crate) fn is_rows(field: &FieldRef, options: &Options) -> bool {
    is_ragged(field) && options.categories.is_none() && options.length.is_none()
}

/// What would be done to the parts of these chunks.
///
/// # Errors
/// When there would be no parts at all: what the types, the offsets or null rows refuse.
pub(crate) fn plan_parts(field: &FieldRef, chunks: &[DeviceArray], options: &Options) -> Result<Vec<Part>> {
    parts_of(&PlannedRagged::new(field, chunks, options)?)
}

/// What will be done to the parts of planned rows.
///
/// # Errors
/// When the type has no ragged form under its options, which the plan has ruled out.
pub(crate) fn parts_of(planned: &PlannedRagged) -> Result<Vec<Part>> {
    match planned.unread() {
        None => Ok(planned.parts()),
        Some(unread) => parts_on_device(planned, &unread).map_err(|error| error.in_column(planned.field().name())),
    }
}

/// What will be done to the parts of rows on a device, as far as the arrays tell without their memory: the outermost level, and of
/// others the type.
fn parts_on_device(planned: &PlannedRagged, level: &UnreadRows) -> Result<Vec<Part>> {
    let (field, options, known) = (planned.field(), &planned.options(), planned.parts());
    let device = level.device;
    let leaf = leaf_spec(field, options)?;
    let by_kernel = is_cuda(device) && has_kernel(&leaf);
    let mut plans = plan_schema(field, options, false)?;
    // Of no rows, this may be an array that stands for a stream, whose rows may be null.
    plans
        .retain(|part| part.name != "validity" || level.is_empty || known.iter().any(|known| known.name == "validity"));
    let names: Vec<_> = plans.iter().map(|part| part.name.clone()).collect();
    for part in &mut plans {
        if let Some(known) = known.iter().find(|known| known.name == part.name) {
            *part = known.clone();
            part.waits.extend(level.waits.iter().filter(|_| part.name == "offsets"));
            continue;
        }
        let has_lengths = |path: &str| names.iter().any(|name| name.strip_suffix("lengths") == Some(path));
        if part.name.strip_suffix("offsets").is_some_and(|path| !has_lengths(path)) {
            // Others than the offsets of a slice start at 0, and those of a slice are refused.
            part.undecided = None;
            part.waits.push(ENDS_READ);
        }
        let certain = part.undecided.as_ref().filter(|undecided| !undecided.at_most);
        let steps = certain.map(|undecided| undecided.steps.join(", ")).unwrap_or_default();
        let are_values = part.name.ends_with("values");
        let is_converted = if are_values { by_kernel } else { is_cuda(device) && part.name.ends_with("validity") };
        if are_values {
            part.waits.extend(waits_of_values(&leaf, is_converted && certain.is_some()));
        }
        if !steps.is_empty() && !is_converted {
            let error = needs_copy(device, &steps);
            part.error = part.error.take().or(Some(error.in_column(field.name())));
        }
    }
    Ok(plans)
}

/// What the host may wait for to make the values of rows on a device, of which no array tells more than the type; `is_made`: kernels
/// surely make them.
fn waits_of_values(leaf: &Spec, is_made: bool) -> impl Iterator<Item = &'static str> {
    let is_refused = leaf.nulls() == Nulls::Refused;
    let may_look_up = leaf.has_codes() && matches!(leaf.nulls(), Nulls::Filled(_));
    let waits = [
        (is_refused && may_be_null(leaf.field())).then_some(NULLS_READ),
        (is_made && leaf.is_checked_cast()).then_some("whether every value fits is read"),
        (is_made && leaf.decoded().is_some() || may_look_up).then_some(CODES_READ),
    ];
    waits.into_iter().flatten()
}

/// What may have to happen to the parts of any data of this field on a device: of a stream, none of whose arrays is read.
///
/// # Errors
/// As [`plan_schema`].
pub(crate) fn plan_ragged_type(field: &FieldRef, device: Device, options: &Options) -> Result<Vec<Part>> {
    if device.is_cpu() { plan_schema(field, options, true) } else { plan_stream_on(field, device, options) }
}

/// What would be done to the parts of each array of a stream on a device, none of which is read.
///
/// # Errors
/// As [`plan_parts`].
fn plan_stream_on(field: &FieldRef, device: Device, options: &Options) -> Result<Vec<Part>> {
    let mut parts = plan_parts(field, &[empty_on(field.clone(), device)?], options)?;
    let names: Vec<_> = parts.iter().map(|part| part.name.clone()).collect();
    let levels = levels(field)?;
    for part in &mut parts {
        if let Some(rows) = part.shape.first_mut() {
            *rows = None;
        }
        let Some(path) = part.name.strip_suffix("offsets").filter(|_| part.error.is_none()) else { continue };
        // Nothing there joins them, and kept nulls alone leave them as they are.
        let depth = path.matches("values.").count();
        let nulls = options.nulls != NullPolicy::Keep && levels.get(depth).is_some_and(|level| level.is_nullable());
        let conditions = [path.is_empty().then_some(CHUNKS), nulls.then_some(NULLS)];
        let refused_if = conditions.into_iter().flatten().map(str::to_owned).collect();
        // Of no rows they were one offset that is made, and of others they are views.
        (part.plan.steps, part.plan.bytes) = (SmallVec::new(), 0);
        part.undecided = Some(Undecided { refused_if, ..Undecided::default() });
        let has_lengths = names.iter().any(|name| name.strip_suffix("lengths") == Some(path));
        if !has_lengths && !part.waits.contains(&ENDS_READ) {
            part.waits.push(ENDS_READ);
        }
    }
    Ok(parts)
}

/// What may have to happen to the parts of any data of this field, which may be `in_chunks`.
///
/// # Errors
/// When the type has no ragged form under these options.
pub(crate) fn plan_schema(field: &FieldRef, options: &Options, in_chunks: bool) -> Result<Vec<Part>> {
    let spec = leaf_spec(field, options)?;
    let mut plans = plan_parts(field, &[], options)?;
    let levels = levels(field)?;
    for plan in &mut plans {
        if let Some(rows) = plan.shape.first_mut() {
            *rows = None;
        }
        let depth = plan.name.matches("values.").count();
        let Some(level) = levels.get(depth) else { continue };
        let part = plan.name.rsplit('.').next().unwrap_or_default();
        let steps = possible_steps(part, level, &spec, options, in_chunks);
        let mut undecided = Undecided::new(&steps, plan.copy).unwrap_or_else(|error| {
            plan.error = Some(error.in_column(field.name()));
            Undecided::default()
        });
        let refused_if = &mut undecided.refused_if;
        let nulls = match part {
            "offsets" => level.is_nullable(),
            "values" => may_be_null(spec.field()),
            _ => false,
        };
        let is_runs = matches!(spec.field().data_type(), DataType::RunEndEncoded(_, _));
        let is_values = part == "values" && in_chunks;
        refused_if.extend((nulls && options.nulls == NullPolicy::Error).then(|| NULLS.to_owned()));
        refused_if.extend((is_values && spec.has_codes()).then(|| DICTIONARIES.to_owned()));
        refused_if.extend((is_values && is_runs && spec.is_cast()).then(|| "null rows span runs".to_owned()));
        plan.undecided = Some(undecided);
    }
    Ok(plans)
}

/// The fields of the levels, outermost first.
fn levels(field: &FieldRef) -> Result<Vec<FieldRef>> {
    let mut level = match VariableShape::of(field)? {
        Some(tensor) => tensor.data.1.clone(),
        None => field.clone(),
    };
    let mut levels = Vec::new();
    while let Some(item) = item_field(&level) {
        levels.push(std::mem::replace(&mut level, item));
    }
    Ok(levels)
}

/// What may have to happen to a part of rows of this level; `spec` is that of the innermost elements.
fn possible_steps(part: &str, level: &Field, spec: &Spec, options: &Options, in_chunks: bool) -> Vec<PossibleStep> {
    let certain = |action: Action| PossibleStep { text: action.to_string(), only_if: None };
    let if_found = |action: Action, what: &str, condition| PossibleStep {
        text: format!("{action}, {what}"),
        only_if: Some(condition),
    };
    let is_gathered = matches!(level.data_type(), DataType::Utf8View | DataType::BinaryView);
    let mut steps = match part {
        "validity" => return vec![certain(Action::UnpackValidity)],
        "offsets" if is_gathered => return vec![certain(Action::GatherViews)],
        "values" => spec.possible_steps(options),
        _ if options.copy.asks_for_own(options.writable) => vec![certain(Action::Private)],
        _ => Vec::new(),
    };
    if part == "values" && is_gathered {
        steps.retain(|step| step.only_if.is_none() && step.text != PRIVATE);
        steps.insert(0, certain(Action::GatherViews));
        return steps;
    }
    if part == "offsets" && !has_lengths(level) {
        steps.push(if_found(Action::RebaseOffsets, "if it is one", "they are those of a slice"));
    }
    if in_chunks && matches!(options.nulls, NullPolicy::Nan | NullPolicy::Fill(_)) && part != "shapes" {
        steps.push(if_found(Action::EmptyNullRows, "if they span elements", "null rows span elements"));
    }
    if in_chunks { unless_one_chunk(steps) } else { steps }
}

/// Refuses what no data of this field could make possible: rows, or with `pad` rows of one length.
///
/// # Errors
/// Names the column.
pub(crate) fn check_ragged(field: &FieldRef, pad: Option<Pad>, options: &Options) -> Result<()> {
    let check = || match pad {
        Some(pad) => refused_part(plan_padded_type(field, Device::CPU, pad, options)?),
        None if options.copy == CopyMode::Never => refused_part(plan_schema(field, options, true)?),
        None => leaf_spec(field, options).map(drop),
    };
    check().map_err(|error| error.in_column(field.name()))
}

fn refused_part(parts: Vec<Part>) -> Result<()> {
    parts.into_iter().try_for_each(|part| part.error.map_or(Ok(()), Err))
}
