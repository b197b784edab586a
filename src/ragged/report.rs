//! Reports what would be done to each part of ragged rows: of data at hand, or of any data of a type.

use arrow_schema::{DataType, Field, FieldRef};

use super::device_offsets::ends_read;
use super::device_padded::CODES_READ;
use super::elements::{RaggedPart, element_spec, item_field, leaf_spec};
use super::level::{SPAN_ELEMENTS, UnreadRows, has_lengths, rebased_if_slice};
use super::padded::plan_padded_type;
use super::part::Part;
use super::planned::PlannedRagged;
use super::planned_elements::PlannedElements;
use crate::arrow::{DeviceArray, empty_on};
use crate::cuda::is_cuda;
use crate::device::Device;
use crate::error::Result;
use crate::kernels::has_kernel;
use crate::plan::{Action, DICTIONARIES_READ, HostWait, needs_copy};
use crate::spec::{
    CopyMode, DICTIONARIES, NULLS, NULLS_READ, NullPolicy, Nulls, Options, PRIVATE, Pad, PossibleStep, Spec, Undecided,
    VariableShape, may_be_null, unless_one_chunk,
};
use crate::stream_order::unknown_runtime;

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
        Some(unread) => parts_on_device(planned, unread).map_err(|error| error.in_column(planned.field().name())),
    }
}

/// What will be done to the parts of rows on a device, as far as the arrays tell without their memory: the outermost level, and of
/// others the type.
fn parts_on_device(planned: &PlannedRagged, level: UnreadRows) -> Result<Vec<Part>> {
    let (field, options, known) = (planned.field(), &planned.options(), planned.parts());
    let mut plans = plan_schema_on(field, level.device, options, level.chunks > 1)?;
    plans.retain(|part| part.name != "validity" || known.iter().any(|known| known.name == "validity"));
    for part in &mut plans {
        if let Some(known) = known.iter().find(|known| known.name == part.name) {
            *part = known.clone();
            part.waits.extend(level.waits.iter().filter(|_| part.name == "offsets"));
        }
    }
    set_levels_below(&mut plans, planned, level.items);
    Ok(plans)
}

/// Sets what the structs tell of the levels below the outermost one, whose elements are these: which of them have bitmaps, and with that what
/// the host waits for.
fn set_levels_below(plans: &mut Vec<Part>, planned: &PlannedRagged, mut items: Vec<RaggedPart>) {
    let (mut item, options, mut name) = (planned.item(), planned.options(), "values".to_owned());
    while item_field(&item).is_some() {
        // What is refused waits for nothing.
        let Ok(inner) = PlannedRagged::of_level(item, items, &options) else { return };
        let Some(unread) = inner.unread() else { return };
        let offsets = plans.iter_mut().find(|part| part.name == format!("{name}.offsets"));
        offsets.into_iter().for_each(|part| part.waits.clone_from(&unread.waits));
        let has_validity = inner.parts().iter().any(|part| part.name == "validity");
        plans.retain(|part| has_validity || part.name != format!("{name}.validity"));
        (item, items) = (inner.item(), unread.items);
        name.push_str(".values");
    }
    let Ok(spec) = element_spec(&item, &options) else { return };
    // Of codes and of runs, what they stand for is looked at.
    let is_plain = spec.decoded().is_none() && !spec.has_codes();
    let items = items.into_iter().map(|part| part.array).collect();
    let values = PlannedElements::new("values", spec, items, options).part();
    if is_plain && values.error.is_none() && !values.plan.waits.contains(&HostWait::Nulls) {
        let values = plans.iter_mut().find(|part| part.name == name);
        values.into_iter().for_each(|part| part.waits.retain(|wait| *wait != NULLS_READ));
    }
}

/// What the host may wait for to make the values of rows on a device, of which no array tells more than the type; `is_made`: kernels
/// surely make them.
fn waits_of_values(leaf: &Spec, is_made: bool, are_compared: bool) -> impl Iterator<Item = &'static str> {
    let is_refused = leaf.nulls() == Nulls::Refused;
    let may_look_up = leaf.has_codes() && matches!(leaf.nulls(), Nulls::Filled(_));
    let waits = [
        (is_refused && may_be_null(leaf.field())).then_some(NULLS_READ),
        (is_made && leaf.is_checked_cast()).then_some("whether every value fits is read"),
        (is_made && leaf.decoded().is_some() || may_look_up).then_some(CODES_READ),
        are_compared.then_some(DICTIONARIES_READ),
    ];
    waits.into_iter().flatten()
}

/// What may have to happen to the parts of any data of this field on a device: of a stream, none of whose arrays is read.
///
/// # Errors
/// As [`plan_schema`].
pub(crate) fn plan_ragged_type(field: &FieldRef, device: Device, options: &Options) -> Result<Vec<Part>> {
    if !device.is_cpu() {
        // Refuses the types of which nothing there makes views.
        plan_parts(field, &[empty_on(field.clone(), device)?], options)?;
    }
    plan_schema_on(field, device, options, true)
}

/// What may have to happen to the parts of any data of this field, which may be `in_chunks`.
///
/// # Errors
/// When the type has no ragged form under these options.
pub(crate) fn plan_schema(field: &FieldRef, options: &Options, in_chunks: bool) -> Result<Vec<Part>> {
    plan_schema_on(field, Device::CPU, options, in_chunks)
}

/// As [`plan_schema`], of data on this device.
fn plan_schema_on(field: &FieldRef, device: Device, options: &Options, in_chunks: bool) -> Result<Vec<Part>> {
    let spec = leaf_spec(field, options)?;
    let mut plans = plan_parts(field, &[], options)?;
    let levels = levels(field)?;
    for plan in &mut plans {
        if let Some(rows) = plan.shape.first_mut() {
            *rows = None;
        }
        let depth = plan.name.matches("values.").count();
        let Some(level) = levels.get(depth) else { continue };
        plan_possible(plan, (level, &spec), device, options, in_chunks);
        plan.error = plan.error.take().map(|error| error.in_column(field.name()));
    }
    Ok(plans)
}

/// Sets what may have to happen to a part of rows of this level, whose innermost elements have this spec.
fn plan_possible(
    plan: &mut Part,
    (level, spec): (&FieldRef, &Spec),
    device: Device,
    options: &Options,
    in_chunks: bool,
) {
    let part = plan.name.rsplit('.').next().unwrap_or_default().to_owned();
    let (is_values, is_on_host) = (part == "values", device.is_cpu());
    let is_gathered = matches!(level.data_type(), DataType::Utf8View | DataType::BinaryView);
    let has_kernels = is_cuda(device) && !is_gathered && (!is_values || has_kernel(spec));
    let is_made = is_on_host || has_kernels;
    let mut steps = possible_steps(&part, level, spec, options, in_chunks);
    // Nothing on a device makes null rows empty.
    steps.retain(|step| is_on_host || step.only_if != Some(SPAN_ELEMENTS));
    let is_certain = steps.iter().any(|step| step.only_if.is_none());
    // What nothing makes there is refused, as if no copy were allowed.
    let copy = match (is_made, is_certain) {
        (true, _) => plan.copy,
        (false, true) => CopyMode::IfNeeded,
        (false, false) => CopyMode::Never,
    };
    let mut undecided = Undecided::new(&steps, copy).unwrap_or_else(|error| {
        plan.error = Some(error);
        Undecided::default()
    });
    if !is_made && is_certain {
        plan.error = plan.error.take().or_else(|| Some(needs_copy(device, &undecided.steps.join(", "))));
    }
    let are_null = match part.as_str() {
        "offsets" => level.is_nullable(),
        "values" => may_be_null(spec.field()),
        _ => false,
    };
    let are_emptied = matches!(options.nulls, NullPolicy::Nan | NullPolicy::Fill(_));
    let may_span_nulls = !is_on_host && part == "offsets" && are_null && are_emptied;
    let are_joined = is_values && in_chunks;
    let refused_if = &mut undecided.refused_if;
    refused_if.extend((are_null && options.nulls == NullPolicy::Error).then(|| NULLS.to_owned()));
    refused_if.extend(may_span_nulls.then(|| SPAN_ELEMENTS.to_owned()));
    refused_if.extend((are_joined && spec.has_codes()).then(|| DICTIONARIES.to_owned()));
    if !is_on_host && part == "offsets" {
        plan.waits.extend(ends_read(level, may_span_nulls));
        let is_read = !has_lengths(level) && !is_cuda(device);
        plan.error = plan.error.take().or_else(|| is_read.then(|| unknown_runtime(device)));
    }
    if !is_on_host && is_values {
        let are_compared = in_chunks && spec.has_codes() && options.copy != CopyMode::Never;
        plan.waits.extend(waits_of_values(spec, is_made && is_certain, are_compared));
    }
    plan.undecided = Some(undecided);
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
        steps.push(rebased_if_slice());
    }
    if in_chunks && matches!(options.nulls, NullPolicy::Nan | NullPolicy::Fill(_)) && part != "shapes" {
        let text = format!("{}, if they span elements", Action::EmptyNullRows);
        steps.push(PossibleStep { text, only_if: Some(SPAN_ELEMENTS) });
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::device::Device;
    use crate::dtype::DType;
    use crate::ffi::dlpack::DLDeviceType;
    use crate::spec::{CHUNKS, JOINED, Scalar};

    fn list(item: DataType, nullable: bool) -> FieldRef {
        Arc::new(Field::new("c", DataType::List(Arc::new(Field::new("item", item, nullable))), nullable))
    }

    fn part_on(device: Device, name: &str, field: &FieldRef, options: &Options, in_chunks: bool) -> Part {
        let parts = plan_schema_on(field, device, options, in_chunks).unwrap();
        parts.into_iter().find(|part| part.name == name).unwrap()
    }

    fn refused_if(name: &str, field: &FieldRef, options: &Options, in_chunks: bool) -> Vec<String> {
        part_on(Device::CPU, name, field, options, in_chunks).undecided.unwrap().refused_if
    }

    fn steps(name: &str, field: &FieldRef, options: &Options, in_chunks: bool) -> Vec<String> {
        part_on(Device::CPU, name, field, options, in_chunks).undecided.unwrap().steps
    }

    #[test]
    fn nulls_are_refused_where_there_may_be_some_and_the_policy_says_so() {
        let (plain, keep) = (Options::default(), Options::default().nulls(NullPolicy::Keep));
        for name in ["offsets", "values"] {
            assert_eq!(refused_if(name, &list(DataType::Int64, true), &plain, true), [NULLS]);
            assert!(refused_if(name, &list(DataType::Int64, false), &plain, true).is_empty());
            assert!(refused_if(name, &list(DataType::Int64, true), &keep, true).is_empty());
        }
        assert!(refused_if("validity", &list(DataType::Int64, true), &keep, true).is_empty());
    }

    #[test]
    fn dictionaries_of_several_chunks_alone_may_differ() {
        let codes = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        for (item, name, in_chunks, is_refused) in [
            (codes.clone(), "values", true, true),
            (codes.clone(), "values", false, false),
            (codes, "offsets", true, false),
            (DataType::Int8, "values", true, false),
        ] {
            let expected: &[&str] = if is_refused { &[DICTIONARIES] } else { &[] };
            // Values of a dictionary may be null.
            let options = Options::default().nulls(NullPolicy::Keep);
            assert_eq!(refused_if(name, &list(item, false), &options, in_chunks), expected);
        }
    }

    #[test]
    fn runs_that_null_rows_span_are_cast_too() {
        let fields = [("run_ends", DataType::Int32), ("values", DataType::Int64)];
        let [ends, values] = fields.map(|(name, data_type)| Arc::new(Field::new(name, data_type, false)));
        let options = Options::default().dtype(DType::Int8).nulls(NullPolicy::Keep);
        let field = list(DataType::RunEndEncoded(ends, values), true);
        assert!(refused_if("values", &field, &options, true).is_empty());
    }

    #[test]
    fn what_is_done_to_offsets_depends_on_the_type_and_the_options() {
        let field = list(DataType::Int64, true);
        let views = Field::new("c", DataType::ListView(Arc::new(Field::new("item", DataType::Int64, true))), true);
        let views = Arc::new(views);
        let (plain, own) = (Options::default(), Options::default().copy(CopyMode::Always));
        let rebased = "offsets of a slice rebased, if it is one";
        assert_eq!(steps("offsets", &field, &plain, true), [JOINED, rebased]);
        assert_eq!(steps("offsets", &field, &plain, false), [rebased]);
        assert!(steps("offsets", &views, &plain, false).is_empty());
        assert_eq!(steps("offsets", &views, &plain, true), [JOINED]);
        assert_eq!(steps("offsets", &field, &own, false), [PRIVATE, rebased]);
        assert_eq!(steps("lengths", &views, &own, true), [PRIVATE]);
        let never = Options::default().copy(CopyMode::Never);
        assert_eq!(refused_if("lengths", &views, &never.nulls(NullPolicy::Keep), true), [CHUNKS]);
    }

    #[test]
    fn null_rows_that_span_elements_are_emptied_where_nulls_are_filled() {
        let field = list(DataType::Int64, true);
        let emptied = "null rows made empty, if they span elements".to_owned();
        let filled = [NullPolicy::Nan, NullPolicy::Fill(Scalar::Int(0))];
        for nulls in filled.into_iter().chain([NullPolicy::Keep, NullPolicy::Error]) {
            let options = Options::default().dtype(DType::Float32).nulls(nulls);
            for name in ["offsets", "values"] {
                let is_filled = filled.contains(&nulls);
                assert_eq!(steps(name, &field, &options, true).contains(&emptied), is_filled, "{name} {nulls:?}");
                assert!(!steps(name, &field, &options, false).contains(&emptied));
            }
        }
    }

    #[test]
    fn texts_in_views_are_gathered_and_nothing_else() {
        let texts: FieldRef = Arc::new(Field::new("c", DataType::Utf8View, true));
        let options = Options::default().copy(CopyMode::Always).nulls(NullPolicy::Fill(Scalar::Int(0)));
        for name in ["offsets", "values"] {
            assert_eq!(steps(name, &texts, &options, true), ["views gathered"]);
        }
        let cast = steps("values", &texts, &options.dtype(DType::Int16), true);
        assert_eq!(cast, ["views gathered", "cast from uint8 to int16"]);
    }

    #[test]
    fn offsets_on_a_device_are_read_and_elements_as_their_options_ask() {
        let metal = Device::new(DLDeviceType::METAL, 0);
        let field = list(DataType::Int64, true);
        let views = Field::new("c", DataType::ListView(Arc::new(Field::new("item", DataType::Int64, true))), true);
        let views: FieldRef = Arc::new(views);
        let plain = Options::default();
        let offsets = part_on(metal, "offsets", &field, &plain, false);
        assert_eq!(offsets.waits, ["the first and the last offset are read"]);
        assert!(offsets.error.unwrap().reason().contains("whose runtime is not known"));
        let offsets = part_on(metal, "offsets", &views, &plain, false);
        assert!(offsets.waits.is_empty() && offsets.error.is_none());
        let offsets = part_on(metal, "offsets", &views, &plain.clone().nulls(NullPolicy::Fill(Scalar::Int(0))), false);
        assert_eq!(offsets.waits, ["whether null rows span elements is read"]);
        assert_eq!(offsets.undecided.unwrap().refused_if, [SPAN_ELEMENTS]);
        assert_eq!(part_on(metal, "values", &field, &plain, false).waits, [NULLS_READ]);
        assert!(part_on(Device::CPU, "values", &field, &plain, false).waits.is_empty());
        assert!(part_on(Device::CPU, "offsets", &field, &plain, false).waits.is_empty());
    }

    #[test]
    fn dictionaries_on_a_device_are_read_where_chunks_may_have_several() {
        let metal = Device::new(DLDeviceType::METAL, 0);
        let codes = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
        let (codes, plain) = (list(codes, false), Options::default());
        let waits = |field: &FieldRef, options: &Options, in_chunks| {
            part_on(metal, "values", field, options, in_chunks).waits.contains(&DICTIONARIES_READ)
        };
        assert!(waits(&codes, &plain, true));
        assert!(!waits(&codes, &plain, false));
        assert!(!waits(&codes, &plain.clone().copy(CopyMode::Never), true));
        assert!(!waits(&list(DataType::Int8, false), &plain, true));
    }
}
