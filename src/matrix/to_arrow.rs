//! Converts a matrix to a record batch.

use std::collections::{HashMap, HashSet};
use std::num::NonZero;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};
use smallvec::smallvec;

use crate::alloc::fallible;
use crate::arrow::{ArrayNode, DeviceArray, array_ready_at};
#[cfg(feature = "python")]
use crate::column::check_to_arrow;
use crate::column::{
    ColumnNode, as_requested, check_requested, column_node, compared_on_host, form_in, placement, plan_requested,
};
use crate::convert::split_rows;
use crate::error::{Counted, Error, Result};
use crate::kernels::split_columns;
use crate::plan::Plan;
use crate::spec::{CopyMode, TensorField, all_or_errors, setters};
use crate::stream_order::Readiness;
use crate::tensor::{Owner, Tensor};

use super::validity::{DeviceValidity, Validity, is_split};

/// What [`matrix_to_arrow`] makes of a matrix.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ColumnOptions {
    /// A bool for each row, or for each element of each row: whether it is valid.
    pub validity: Option<Tensor>,
    /// The type that each column is returned in, exactly; its own for `None`, and for all columns if there are none.
    pub types: Vec<Option<FieldRef>>,
    /// The metadata of the batch's schema.
    pub metadata: HashMap<String, String>,
    /// Whether elements may be copied, or must be.
    pub copy: CopyMode,
    /// How many threads copy; `None`: as `ARROW_DLPACK_THREADS` says, or one a core.
    pub threads: Option<NonZero<usize>>,
}

impl ColumnOptions {
    setters! { ColumnOptions:
        pub validity: Tensor;
        pub types: Vec<Option<FieldRef>>;
        pub metadata: HashMap<String, String>;
        pub copy: CopyMode;
        pub threads: NonZero<usize>;
    }
}

/// Converts a matrix of shape `(rows, columns)` into a record batch with these names. Of a tensor of more dimensions, each
/// column is what [`crate::to_arrow`] makes of the elements with its index in the second one.
///
/// A view where each column is dense, as in a column-major matrix, on any device; else one pass over the rows into a single block, in
/// host memory or by a kernel.
///
/// # Errors
/// When there are no columns to be named, not as many as names, or two of one name; when the validity or the types do not
/// fit; and as [`crate::to_arrow`] and [`crate::to_arrow_as`], naming the column.
///
/// ```
/// use arrow_array::{Float32Array, cast::AsArray, types::Float32Type};
/// use arrow_dlpack::{ColumnOptions, matrix_to_arrow, to_tensor};
/// # use arrow_array::{Array, FixedSizeListArray};
/// # use arrow_schema::{DataType, Field};
/// # let item = std::sync::Arc::new(Field::new("item", DataType::Float32, true));
/// # let values = std::sync::Arc::new(Float32Array::from(vec![0.0, 1.0, 10.0, 11.0, 20.0, 21.0]));
/// # let rows = FixedSizeListArray::new(item, 2, values, None);
///
/// // Three rows of two elements.
/// let matrix = to_tensor(&rows)?;
/// let batch = matrix_to_arrow(&matrix, &["x", "y"], &ColumnOptions::default())?;
/// let y = batch.column(1)?.to_arrow()?;
/// assert_eq!(y.as_primitive::<Float32Type>().values(), &[1.0, 11.0, 21.0]);
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
pub fn matrix_to_arrow<N: AsRef<str>>(matrix: &Tensor, names: &[N], options: &ColumnOptions) -> Result<DeviceArray> {
    let rows = check_names(matrix, names, options)?;
    let plan = plan(matrix, names.len(), options, options.validity.is_some())?;
    // What is wrong with a type comes before what is wrong with a value.
    check_types(matrix, names, options)?;
    let (on_host, threads) = (matrix.device().is_cpu(), options.threads.map(NonZero::get));
    let moves = plan.as_ref().filter(|plan| plan.moves_values());
    let split = |plan: &Plan| match on_host {
        true => split_rows(matrix, threads, &plan.reasons()),
        false => split_columns(matrix, &plan.reasons()),
    };
    let validity = options.validity.as_ref();
    let on_device = validity.filter(|_| !on_host).map(|valid| DeviceValidity::split(valid, matrix, rows, names.len()));
    let on_device = on_device.transpose()?;
    let compared = validity.filter(|_| on_device.is_some() && matrix.codes_may_be_beyond()).map(compared_on_host);
    let compared = compared.transpose()?;
    let in_host_memory = compared.as_ref().or(validity.filter(|_| on_host));
    let validity = in_host_memory.map(|valid| Validity::of(valid, rows, names.len(), threads)).transpose()?;
    let split = moves.map(|plan| split(plan).map(|split| split.with_trust_of(matrix))).transpose()?;
    // A copy that was asked for is made by now, unless it is made of each column.
    let copy = if plan.is_some() { CopyMode::IfNeeded } else { options.copy };
    let matrix = split.as_ref().unwrap_or(matrix);
    let column = |(index, name): (usize, &N)| {
        let name = name.as_ref();
        let make = || {
            let tensor = matrix.column(index)?;
            let form = form_in(&tensor, options.types.get(index).and_then(Option::as_ref))?;
            let has_validity = options.validity.is_some();
            let plan = Plan::to_arrow(&form, tensor.is_aligned(), has_validity, copy, placement(matrix.device()))?;
            let bitmap = validity.as_ref().and_then(|validity| validity.column(index));
            let mut column = column_node(&tensor, form, &plan, bitmap)?;
            column.field = Arc::new(column.field.as_ref().clone().with_name(name));
            Ok(column)
        };
        make().map_err(|error: Error| error.in_column(name))
    };
    let mut columns = names.iter().enumerate().map(column).collect::<Result<Vec<_>>>()?;
    let mut bits = None;
    if let Some(valid) = on_device {
        // Copies of columns may be elsewhere than they were.
        let device = columns.first().and_then(|column| column.readiness.as_ref()).map(Readiness::device);
        bits = valid.pack(rows, device.unwrap_or_else(|| matrix.device()))?;
        if let Some(bits) = &bits {
            let packed = columns.into_iter().enumerate();
            let packed = packed.map(|(index, column)| column.with_device_bitmap(bits, valid.column_of(index)));
            columns = packed.collect();
        }
    }
    let metadata = &options.metadata;
    let batch = batch(rows, columns, bits.map(|bits| bits.readiness), metadata, matrix.readiness())?;
    match options.types.iter().all(Option::is_none) {
        true => Ok(batch),
        false => in_requested_types(&batch, matrix, names.len(), options),
    }
}

/// A column of a matrix that becomes one of a batch.
#[derive(Debug)]
pub(crate) struct MatrixColumn {
    /// The field of a tensor's own type.
    pub(crate) own: FieldRef,
    /// The field that is asked for.
    pub(crate) field: FieldRef,
    pub(crate) tensor: Tensor,
    /// What is done to it, or why that is refused.
    pub(crate) plan: Result<Plan>,
}

/// The plans for the columns of a matrix, each with its part of what is done to all in one pass. Of a validity with a bool for each row,
/// which all share, the first column has the bytes.
///
/// # Errors
/// When names or types do not fit the matrix.
pub(crate) fn plan_columns<N: AsRef<str>>(
    matrix: &Tensor,
    names: &[N],
    options: &ColumnOptions,
    has_validity: bool,
) -> Result<Vec<MatrixColumn>> {
    check_names(matrix, names, options)?;
    let has_validity = has_validity || options.validity.is_some();
    let together = plan(matrix, names.len(), options, has_validity);
    let column = |(index, name): (usize, &N)| {
        let name = name.as_ref();
        let tensor = matrix.column(index)?;
        let requested = options.types.get(index).and_then(Option::as_ref);
        let requested = requested.map(|field| Arc::new(field.as_ref().clone().with_name(name)));
        let own = tensor.arrow_form()?.field;
        let field = requested.clone().unwrap_or_else(|| Arc::new(own.as_ref().clone().with_name(name)));
        let make = || {
            let together = together.clone()?;
            // As after that pass, which leaves dense columns.
            let copy = if together.is_some() { CopyMode::IfNeeded } else { options.copy };
            let form = form_in(&tensor, requested.as_ref())?;
            let (form, is_aligned) = match together {
                Some(_) => (TensorField { viewable: true, ..form }, true),
                None => (form, tensor.is_aligned()),
            };
            let mut own = Plan::to_arrow(&form, is_aligned, has_validity, copy, placement(matrix.device()))?;
            if index > 0 && options.validity.as_ref().is_none_or(|validity| validity.ndim() < 2) {
                own.shares_validity();
            }
            if let Some(requested) = &requested {
                check_requested(&tensor, requested, options.copy)?;
                plan_requested(&mut own, (&tensor, &form), requested, has_validity, options.copy)?;
            }
            if options.validity.as_ref().is_some_and(is_split) {
                own.splits_validity();
            }
            let mut plan = together.map(|plan| plan.of_one_column(names.len())).unwrap_or_default();
            plan.append(&own);
            plan.placement = own.placement;
            Ok(plan)
        };
        let plan = make().map_err(|error: Error| error.in_column(name));
        Ok(MatrixColumn { own, field, plan, tensor })
    };
    names.iter().enumerate().map(column).collect()
}

/// Refuses what no values of a matrix could become together with a validity, before that is read.
///
/// # Errors
/// As [`matrix_to_arrow`].
#[cfg(feature = "python")]
pub(crate) fn check_matrix<N: AsRef<str>>(matrix: &Tensor, names: &[N], options: &ColumnOptions) -> Result<()> {
    check_names(matrix, names, options)?;
    let plan = plan(matrix, names.len(), options, options.validity.is_some())?;
    let check = |(index, name): (usize, &N)| {
        let column = matrix.column(index)?;
        if plan.is_none() {
            check_to_arrow(&column, None, options.copy)?;
        }
        check_type(&column, (index, name.as_ref()), options)
    };
    let columns = names.iter().enumerate();
    all_or_errors(columns.map(|column| check(column).map_err(|error| error.in_column(column.1.as_ref())))).map(drop)
}

/// Refuses types that no values of a matrix's columns could become. Names all such columns.
fn check_types<N: AsRef<str>>(matrix: &Tensor, names: &[N], options: &ColumnOptions) -> Result<()> {
    if options.types.iter().all(Option::is_none) {
        return Ok(());
    }
    let check = |(index, name): (usize, &N)| {
        let checked = matrix.column(index).and_then(|column| check_type(&column, (index, name.as_ref()), options));
        checked.map_err(|error| error.in_column(name.as_ref()))
    };
    all_or_errors(names.iter().enumerate().map(check)).map(drop)
}

fn check_type(column: &Tensor, (index, name): (usize, &str), options: &ColumnOptions) -> Result<()> {
    let Some(Some(requested)) = options.types.get(index) else { return Ok(()) };
    let requested = Arc::new(requested.as_ref().clone().with_name(name));
    check_requested(column, &requested, options.copy)
}

/// Refuses names that are none of this tensor's columns, and options that do not fit them; returns the number of rows.
fn check_names<N: AsRef<str>>(matrix: &Tensor, names: &[N], options: &ColumnOptions) -> Result<usize> {
    let &[rows, columns, ..] = matrix.shape() else {
        let reason =
            format!("names are those of a matrix's columns, and the tensor has the shape {:?}", matrix.shape());
        return Err(Error::argument(reason).remedy_is("leave names out, or reshape it to (rows, columns)"));
    };
    if usize::try_from(columns) != Ok(names.len()) {
        let reason = format!("{} for {}", Counted(names.len(), "name"), Counted(columns, "column"));
        return Err(Error::argument(reason).remedy_is("pass a name for each column"));
    }
    let mut seen = HashSet::with_capacity(names.len());
    if let Some(twice) = names.iter().map(AsRef::as_ref).find(|name| !seen.insert(*name)) {
        let error = Error::argument("more than one column has this name").remedy_is("give each column one of its own");
        return Err(error.in_column(twice));
    }
    if !options.types.is_empty() && options.types.len() != names.len() {
        let reason = format!("{} for {}", Counted(options.types.len(), "type"), Counted(columns, "column"));
        return Err(Error::argument(reason).remedy_is("pass one type, or a type for each column"));
    }
    usize::try_from(rows).map_err(|_| Error::internal("a negative extent"))
}

/// What is done to the columns of a matrix together. Those of a tensor of more dimensions go one by one.
///
/// # Errors
/// If copies are refused, or the validity cannot be packed where the values are.
fn plan(matrix: &Tensor, columns: usize, options: &ColumnOptions, has_validity: bool) -> Result<Option<Plan>> {
    if columns == 0 || matrix.ndim() != 2 {
        return Ok(None);
    }
    // Columns differ in nothing but their address.
    let form = matrix.column(0)?.arrow_form()?;
    let (is_aligned, placement) = (matrix.is_aligned(), placement(matrix.device()));
    if has_validity {
        // The bits are packed where the passed tensor is; splitting its columns first does not change that.
        let dense = TensorField { viewable: true, ..form.clone() };
        Plan::to_arrow(&dense, true, true, CopyMode::IfNeeded, placement)?;
    }
    Plan::to_columns(&form, columns, is_aligned, options.copy, placement).map(Some)
}

/// Returns a batch of the columns of a matrix with each in the type that is asked for.
fn in_requested_types(
    own: &DeviceArray,
    matrix: &Tensor,
    columns: usize,
    options: &ColumnOptions,
) -> Result<DeviceArray> {
    let column = |index| {
        let column = request(own, matrix, index, options)?;
        Ok(ColumnNode {
            node: ArrayNode::of(&column)?,
            field: column.field().clone(),
            owner: column.owner(),
            readiness: column.readiness().cloned(),
        })
    };
    let columns = Error::lowest_or_all((0..columns).map(column))?;
    batch(own.len(), columns, None, &options.metadata, matrix.readiness())
}

/// A column of a batch in the type that is asked for.
fn request(batch: &DeviceArray, matrix: &Tensor, index: usize, options: &ColumnOptions) -> Result<DeviceArray> {
    let array = batch.column(index)?;
    let Some(Some(requested)) = options.types.get(index) else { return Ok(array) };
    let requested = Arc::new(requested.as_ref().clone().with_name(array.field().name()));
    let valid = match &options.validity {
        Some(valid) if valid.ndim() > 1 => Some(valid.column(index)?),
        valid => valid.clone(),
    };
    as_requested(&array, matrix.dtype(), valid.as_ref(), &requested, options.copy)
        .map_err(|error| error.in_column(requested.name()))
}

/// Returns an array of structs of these columns. Its stream order joins those of the columns and of their `bits`; it is `readiness` if
/// none has one.
fn batch(
    rows: usize,
    columns: Vec<ColumnNode>,
    bits: Option<Readiness>,
    metadata: &HashMap<String, String>,
    readiness: Option<&Readiness>,
) -> Result<DeviceArray> {
    let mut owners: Vec<Owner> = Vec::new();
    let (mut fields, mut children) = (fallible::with_room(columns.len())?, fallible::with_room(columns.len())?);
    let mut orders: Vec<Readiness> = Vec::new();
    for ColumnNode { node, field, owner, readiness: own } in columns {
        // Most often it is the same one for all.
        orders.extend(own.filter(|own| !orders.last().is_some_and(|last| last.is_same(own))));
        fields.push(field);
        children.push(node);
        // Most often it is the same one for all.
        if !owners.last().is_some_and(|last| Arc::ptr_eq(last, &owner)) {
            owners.push(owner);
        }
    }
    let buffers = smallvec![std::ptr::null()];
    let node = ArrayNode { length: rows, null_count: Some(0), buffers, children, ..ArrayNode::default() };
    let owner: Owner = Arc::new(owners);
    let field = Field::new("", DataType::Struct(fields.into()), false).with_metadata(metadata.clone());
    orders.extend(bits);
    let readiness = if orders.is_empty() { readiness.cloned() } else { Readiness::joined(orders)? };
    array_ready_at(node.export(&owner)?, Arc::new(field), readiness)
}
