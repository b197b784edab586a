//! Plans each part of a conversion of lists and strings, for `explain`.

use arrow_schema::{DataType, Field, FieldRef};

use super::convert::{
    GATHERED, hiding_matters, in_row, item_field, leaf_column, leaf_spec, parts, struct_column, unsupported,
};
use super::level::{Level, RaggedPart, null_row, refuse_copy};
use super::on_device;
use super::variable_shape::VariableShape;
use crate::arrow::{DeviceArray, ViewChunk};
use crate::column::{ColumnRef, check_types, plan_chunks};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::plan::Action;
use crate::spec::{
    ABOVE_1, CopyMode, DICTIONARIES, NULLS, NullPolicy, Options, PossibleStep, Spec, Undecided, may_be_null,
    unless_one_chunk,
};

/// What would happen to one part of ragged rows.
#[derive(Clone, Debug)]
pub(crate) struct PartPlan {
    /// The attributes that lead to it, such as `values.offsets`.
    pub(crate) name: String,
    pub(crate) arrow_type: String,
    pub(crate) dtype: DType,
    /// `None` where only data tells.
    pub(crate) shape: Vec<Option<i64>>,
    pub(crate) steps: Vec<String>,
    pub(crate) bytes: usize,
    /// Whether only data that was not looked at decides if the steps are needed.
    pub(crate) at_most: bool,
    /// What data that was not looked at may hold, for which the conversion would be refused.
    pub(crate) refused_if: Vec<String>,
    /// What the host would wait for.
    pub(crate) waits: Vec<&'static str>,
    pub(crate) error: Option<Error>,
}

impl PartPlan {
    /// A part of `count` integers or bytes, with the reasons to copy it.
    pub(super) fn new(
        name: &str,
        field: &FieldRef,
        dtype: DType,
        count: usize,
        steps: Vec<String>,
        options: &Options,
    ) -> Self {
        let bytes = if steps.is_empty() { 0 } else { count.saturating_mul(dtype.itemsize()) };
        let refused = if bytes > 0 { refuse_copy(options, name, &steps.join(", "), bytes).err() } else { None };
        let part = Self::of_shape(name, field, dtype, vec![i64::try_from(count).ok()]);
        Self { steps, bytes, error: refused.map(|error| error.in_column(field.name())), ..part }
    }

    /// A part of which only type and shape are known.
    pub(super) fn of_shape(name: &str, field: &FieldRef, dtype: DType, shape: Vec<Option<i64>>) -> Self {
        Self {
            name: name.to_owned(),
            arrow_type: field.data_type().to_string(),
            dtype,
            shape,
            steps: Vec::new(),
            bytes: 0,
            at_most: false,
            refused_if: Vec::new(),
            waits: Vec::new(),
            error: None,
        }
    }

    /// A part that is a column of its own.
    fn of_column(name: &str, spec: &Spec, arrays: &[DeviceArray], options: &Options) -> Self {
        let mut part = Self::new(name, spec.field(), spec.dtype(), 0, Vec::new(), options);
        let chunks: Vec<_> = arrays.iter().map(ColumnRef::whole).collect();
        let rows = arrays.iter().map(DeviceArray::len).sum::<usize>();
        part.shape =
            std::iter::once(i64::try_from(rows).ok()).chain(spec.inner_shape().iter().copied().map(Some)).collect();
        match plan_chunks(spec, &chunks, options) {
            Ok(plan) => {
                part.steps = plan.steps.iter().map(|step| step.action.to_string()).collect();
                (part.bytes, part.at_most) = (plan.bytes, !plan.is_view() && !plan.is_copy());
                if part.at_most && options.copy == CopyMode::Never {
                    part.refused_if.push(ABOVE_1.to_owned());
                    (part.steps, part.bytes, part.at_most) = (Vec::new(), 0, false);
                }
            }
            Err(error) => part.error = Some(error),
        }
        part
    }
}

/// Whether a type has a ragged form.
pub(crate) fn is_ragged(field: &FieldRef) -> bool {
    item_field(field).is_some() || !matches!(VariableShape::of(field), Ok(None))
}

/// What would happen to the parts of these chunks.
///
/// # Errors
/// When there would be no parts at all: what the types, the offsets or null rows refuse.
pub(crate) fn plan_parts(field: &FieldRef, chunks: &[DeviceArray], options: &Options) -> Result<Vec<PartPlan>> {
    let plan = || {
        leaf_spec(field, options)?;
        if let Some(readiness) = DeviceArray::readiness_of(chunks) {
            check_types(field, chunks)?;
            return on_device::plan(field, chunks, plan_schema(field, options, false)?, options, readiness);
        }
        let mut plans = Vec::new();
        plan_level(field, &parts(field, chunks)?, options, "", &mut plans)?;
        Ok(plans)
    };
    plan().map_err(|error: Error| error.in_column(field.name()))
}

fn plan_level(
    field: &FieldRef,
    parts: &[RaggedPart],
    options: &Options,
    path: &str,
    plans: &mut Vec<PartPlan>,
) -> Result<()> {
    let tensor = VariableShape::of(field)?;
    let data = tensor.as_ref().map(|tensor| struct_column(field, tensor.data, parts)).transpose()?;
    let (list_field, lists) = data.as_ref().map_or((field, parts), |(field, parts)| (field, parts.as_slice()));
    let item = item_field(list_field).ok_or_else(|| unsupported(field.data_type()))?;
    let first = plans.len();
    let mut values = Vec::new();
    let rows = parts.iter().map(|part| part.array.len()).sum();
    if matches!(field.data_type(), DataType::Utf8View | DataType::BinaryView) {
        let bytes = gathered_bytes(parts, options)?;
        let gathered = |rows: usize| if rows == 0 { Vec::new() } else { vec![GATHERED.to_owned()] };
        plans.push(PartPlan::new("offsets", field, DType::Int64, rows + 1, gathered(rows), options));
        let spec = Spec::new(&item, options)?;
        let mut part = PartPlan::new("values", &item, DType::UInt8, bytes, gathered(bytes), options);
        part.dtype = spec.dtype();
        if spec.is_cast() && bytes > 0 {
            let action = Action::Cast { from: spec.element(), to: spec.dtype() };
            part.steps.push(action.to_string());
            part.bytes = part.bytes.saturating_add(bytes.saturating_mul(spec.dtype().itemsize()));
        }
        values.push(part);
    } else {
        let level = Level::new(list_field, lists, options)?;
        plans.extend(level.plan());
        let items = level.items(&item, |array| hiding_matters(&item, array, options))?;
        let planned = if item_field(&item).is_some() {
            plan_level(&item, &items, options, "values.", &mut values)
        } else {
            leaf_column(&item, &items, options).map(|(spec, arrays, options)| {
                values.push(PartPlan::of_column("values", &spec, &arrays, &options));
            })
        };
        // Refused first is what comes first.
        let refused = |plans: &[PartPlan]| plans.iter().skip(first).find_map(|plan| plan.error.clone());
        planned.map_err(|error| refused(plans).unwrap_or_else(|| in_row(&level, &item, options, error)))?;
    }
    if let Some(tensor) = &tensor {
        let (shape_field, shapes) = struct_column(field, tensor.shape, parts)?;
        let options = options.clone().nulls(NullPolicy::Keep);
        let options = Options { dtype: None, ..options };
        let arrays: Vec<_> = shapes.into_iter().map(|part| part.array).collect();
        plans.push(PartPlan::of_column("shapes", &Spec::new(&shape_field, &options)?, &arrays, &options));
    }
    if options.nulls == NullPolicy::Keep {
        // Always allowed: Arrow has bits.
        let allowed = options.clone().copy(CopyMode::IfNeeded);
        let why = vec!["bits unpacked to bytes".to_owned()];
        plans.push(PartPlan::new("validity", field, DType::Bool, rows, why, &allowed));
    }
    plans.append(&mut values);
    for plan in plans.iter_mut().skip(first) {
        plan.name.insert_str(0, path);
    }
    Ok(())
}

/// Bytes of all strings that are shown.
///
/// # Errors
/// When a row is null, and that is refused.
fn gathered_bytes(parts: &[RaggedPart], options: &Options) -> Result<usize> {
    let (mut bytes, mut first) = (0_usize, 0);
    for part in parts {
        let views: ViewChunk<'_> = part.array.views()?;
        for row in (0..views.rows()).filter(|row| !part.is_hidden(*row)) {
            match views.bytes(row).map_err(|error| error.at_row(first + row))? {
                None if options.nulls == NullPolicy::Error => return Err(null_row(first + row)),
                shown => bytes = bytes.saturating_add(shown.map_or(0, <[u8]>::len)),
            }
        }
        first += views.rows();
    }
    Ok(bytes)
}

/// What may have to happen to the parts of any data of this field, which may be `in_chunks`.
///
/// # Errors
/// When the type has no ragged form under these options.
pub(crate) fn plan_schema(field: &FieldRef, options: &Options, in_chunks: bool) -> Result<Vec<PartPlan>> {
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
        // Validity is always allowed: Arrow has bits.
        let copy = if part == "validity" { CopyMode::IfNeeded } else { options.copy };
        match Undecided::new(&steps, copy) {
            Ok(undecided) => {
                (plan.steps, plan.at_most) = (undecided.steps, undecided.at_most);
                plan.refused_if = undecided.refused_if;
            }
            Err(error) => plan.error = Some(error.in_column(field.name())),
        }
        let nulls = match part {
            "offsets" => level.is_nullable(),
            "values" => may_be_null(spec.field()),
            _ => false,
        };
        if nulls && options.nulls == NullPolicy::Error {
            plan.refused_if.push(NULLS.to_owned());
        }
        if part == "values" && in_chunks && spec.has_codes() {
            plan.refused_if.push(DICTIONARIES.to_owned());
        }
        let is_runs = matches!(spec.field().data_type(), DataType::RunEndEncoded(_, _));
        if part == "values" && in_chunks && is_runs && spec.is_cast() {
            plan.refused_if.push("null rows span runs".to_owned());
        }
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
    let step = |text: &str, only_if| PossibleStep { text: text.to_owned(), only_if };
    let is_gathered = matches!(level.data_type(), DataType::Utf8View | DataType::BinaryView);
    let has_lengths = matches!(level.data_type(), DataType::ListView(_) | DataType::LargeListView(_));
    let mut steps = match part {
        "validity" => return vec![step("bits unpacked to bytes", None)],
        "offsets" if is_gathered => return vec![step(GATHERED, None)],
        "values" => spec.possible_steps(options),
        _ if options.copy == CopyMode::Always || options.writable => vec![step(&Action::Private.to_string(), None)],
        _ => Vec::new(),
    };
    if part == "values" && is_gathered {
        steps.retain(|step| step.only_if.is_none() && step.text != Action::Private.to_string());
        steps.insert(0, step(GATHERED, None));
        return steps;
    }
    if part == "offsets" && !has_lengths {
        steps.push(step("offsets of a slice rebased, if it is one", Some("they are those of a slice")));
    }
    if in_chunks && matches!(options.nulls, NullPolicy::Nan | NullPolicy::Fill(_)) && part != "shapes" {
        steps.push(step("null rows made empty, if they span elements", Some("null rows span elements")));
    }
    if in_chunks { unless_one_chunk(steps) } else { steps }
}
