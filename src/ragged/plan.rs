//! What a conversion would do to each part: `explain` of lists and strings.

use arrow_schema::{DataType, FieldRef};

use super::convert::{GATHERED, hiding_matters, item_field, leaf_column, leaf_spec, parts, struct_column, unsupported};
use super::level::{Level, Part, refuse_copy};
use super::on_device;
use super::variable_shape::VariableShape;
use crate::arrow::{DeviceArray, ViewChunk};
use crate::column::{ColumnRef, check_types, plan_chunks};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::spec::{NullPolicy, Options, Spec};

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
        Self {
            name: name.to_owned(),
            arrow_type: field.data_type().to_string(),
            dtype,
            shape: vec![i64::try_from(count).ok()],
            steps,
            bytes,
            at_most: false,
            waits: Vec::new(),
            error: refused.map(|error| error.in_column(field.name())),
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
            }
            Err(error) => part.error = Some(error),
        }
        part
    }
}

/// Whether a type has a ragged form.
pub(crate) fn is_ragged(field: &FieldRef) -> bool {
    item_field(field).is_some() || matches!(VariableShape::of(field), Ok(Some(_)))
}

/// What would happen to the parts of these chunks.
///
/// # Errors
/// When there would be no parts at all: what the types, the offsets or null rows refuse.
pub(crate) fn plan_parts(field: &FieldRef, chunks: &[DeviceArray], options: &Options) -> Result<Vec<PartPlan>> {
    let plan = || {
        leaf_spec(field, options)?;
        if let Some(order) = DeviceArray::order_of(chunks) {
            check_types(field, chunks)?;
            return on_device::plan(field, chunks, plan_schema(field, options)?, options, order);
        }
        let mut plans = Vec::new();
        plan_level(field, &parts(field, chunks)?, options, "", &mut plans)?;
        Ok(plans)
    };
    plan().map_err(|error: Error| error.in_column(field.name()))
}

fn plan_level(
    field: &FieldRef,
    parts: &[Part],
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
        let mut bytes = 0_usize;
        for part in parts {
            let views: ViewChunk<'_> = part.array.views()?;
            for row in 0..views.rows() {
                bytes = bytes.saturating_add(views.bytes(row)?.map_or(0, <[u8]>::len));
            }
        }
        let gathered = |rows: usize| if rows == 0 { Vec::new() } else { vec![GATHERED.to_owned()] };
        plans.push(PartPlan::new("offsets", field, DType::Int64, rows + 1, gathered(rows), options));
        values.push(PartPlan::new("values", &item, DType::UInt8, bytes, gathered(bytes), options));
    } else {
        let level = Level::new(list_field, lists, options)?;
        plans.extend(level.plan());
        let items = level.items(&item, |array| hiding_matters(&item, array, options))?;
        if item_field(&item).is_some() {
            plan_level(&item, &items, options, "values.", &mut values)?;
        } else {
            let (spec, arrays, options) = leaf_column(&item, &items, options)?;
            values.push(PartPlan::of_column("values", &spec, &arrays, &options));
        }
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
        let allowed = options.clone().copy(crate::spec::CopyMode::IfNeeded);
        let why = vec!["bits unpacked to bytes".to_owned()];
        plans.push(PartPlan::new("validity", field, DType::Bool, rows, why, &allowed));
    }
    plans.append(&mut values);
    for plan in plans.iter_mut().skip(first) {
        plan.name.insert_str(0, path);
    }
    Ok(())
}

/// What may have to happen to the parts of any data of this field.
///
/// # Errors
/// When the type has no ragged form under these options.
pub(crate) fn plan_schema(field: &FieldRef, options: &Options) -> Result<Vec<PartPlan>> {
    let spec = leaf_spec(field, options)?;
    let mut plans = plan_parts(field, &[], options)?;
    let gathered = matches!(field.data_type(), DataType::Utf8View | DataType::BinaryView);
    // Rows of list views are not rebased.
    let views: Vec<String> =
        plans.iter().filter_map(|plan| plan.name.strip_suffix("lengths").map(str::to_owned)).collect();
    for plan in &mut plans {
        let of_views = plan.name.strip_suffix("offsets").is_some_and(|path| views.iter().any(|view| view == path));
        if let Some(rows) = plan.shape.first_mut() {
            *rows = None;
        }
        let is_values = plan.name.ends_with("values");
        let step = match plan.name.rsplit('.').next() {
            Some("offsets" | "values") if gathered => Some((GATHERED, false)),
            Some("offsets") if !of_views => Some(("offsets of a slice rebased, if it is one", true)),
            _ => None,
        };
        plan.at_most = step.is_some_and(|(_, only_if_found)| only_if_found);
        plan.steps.extend(step.map(|(text, _)| text.to_owned()));
        if is_values && !gathered {
            let steps = spec.possible_steps(options);
            plan.at_most = !steps.is_empty() && steps.iter().all(|step| step.only_if_found);
            plan.steps = steps.into_iter().map(|step| step.text).collect();
        }
    }
    Ok(plans)
}
