//! Explains how tensors become Arrow data.

use arrow_schema::FieldRef;

use super::explain_parts;
use super::ragged::part_name;
use super::report::{Report, ReportRow};
use crate::column::plan_to_arrow_as;
use crate::convert::depends_on_values;
use crate::device::Device;
use crate::error::Result;
use crate::matrix::{ColumnOptions, plan_columns};
use crate::plan::Plan;
use crate::ragged::Ragged;
use crate::spec::{CopyMode, NULLS};
use crate::tensor::Tensor;
use crate::transfer::Destination;

/// What only values decide of a cast to a requested type.
const LOST: &str = "a value is none of the requested type";
const NOT_TEXT: &str = "the bytes of a row are not UTF-8";

/// Reports what [`crate::to_arrow`] would do to a tensor, or [`crate::to_arrow_as`] with a `requested` type: one row, of the Arrow type of
/// the result. `has_validity`: with a bool for each row. A requested type of variable length counts no bytes: only values tell them.
///
/// # Errors
/// When no Arrow type holds the dtype. What else is refused is the error of the row.
///
/// ```
/// use arrow_array::Int64Array;
/// use arrow_dlpack::{CopyMode, explain_to_arrow, to_tensor};
/// use arrow_schema::{DataType, Field};
///
/// let tensor = to_tensor(&Int64Array::from(vec![1, 2, 3]))?;
/// assert!(explain_to_arrow(&tensor, None, false, CopyMode::Never)?.rows[0].view);
/// let narrow = Field::new("", DataType::Int8, true).into();
/// let report = explain_to_arrow(&tensor, Some(&narrow), false, CopyMode::IfNeeded)?;
/// assert_eq!((report.rows[0].steps[0].as_str(), report.bytes()), ("cast to the requested type", 3));
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
pub fn explain_to_arrow(
    tensor: &Tensor,
    requested: Option<&FieldRef>,
    has_validity: bool,
    copy: CopyMode,
) -> Result<Report> {
    let field = requested.map_or_else(|| tensor.arrow_form().map(|form| form.field), |field| Ok(field.clone()))?;
    let mut row = ReportRow::of_tensor(&field, tensor);
    row.fill(|row| {
        let (field, plan) = plan_to_arrow_as(tensor, requested, has_validity, copy)?;
        row.take_arrow(&tensor.arrow_form()?.field, &field, &plan);
        requested.map_or(Ok(()), |requested| row.refuse_nulls(requested, tensor, has_validity))
    });
    Ok(Report { rows: vec![row], ..Report::default() })
}

/// Reports what [`crate::matrix_to_arrow`] would do: a row for each column, with its part of what one pass does to all. Where `options` have
/// no validity, `has_validity` says that there will be a bool for each row.
///
/// # Errors
/// When names or types do not fit the matrix. What else is refused is the error of its row, or of all rows.
///
/// ```
/// use arrow_array::{FixedSizeListArray, Float32Array};
/// use arrow_dlpack::{ColumnOptions, explain_matrix_to_arrow, to_tensor};
/// # use arrow_schema::{DataType, Field};
/// # let item = std::sync::Arc::new(Field::new("item", DataType::Float32, true));
/// # let values = std::sync::Arc::new(Float32Array::from(vec![0.0, 1.0, 10.0, 11.0]));
/// # let rows = FixedSizeListArray::new(item, 2, values, None);
///
/// // Two rows of two elements.
/// let matrix = to_tensor(&rows)?;
/// let report = explain_matrix_to_arrow(&matrix, &["x", "y"], &ColumnOptions::default(), false)?;
/// assert_eq!((report.rows[1].column.as_str(), report.rows[1].bytes, report.bytes()), ("y", 8, 16));
/// assert_eq!(report.rows[1].steps, ["rows split into columns"]);
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
pub fn explain_matrix_to_arrow<N: AsRef<str>>(
    matrix: &Tensor,
    names: &[N],
    options: &ColumnOptions,
    has_validity: bool,
) -> Result<Report> {
    let columns = plan_columns(matrix, names, options, has_validity)?;
    let has_validity = has_validity || options.validity.is_some();
    let rows = columns.into_iter().enumerate().map(|(index, column)| {
        let requested = options.types.get(index).and_then(Option::as_ref);
        let mut row = ReportRow::of_tensor(&column.field, &column.tensor);
        row.fill(|row| {
            row.take_arrow(&column.own, &column.field, &column.plan?);
            requested.map_or(Ok(()), |requested| row.refuse_nulls(requested, &column.tensor, has_validity))
        });
        row
    });
    Ok(Report { rows: rows.collect(), ..Report::default() })
}

/// Reports what [`Ragged::to_arrow`] would do, or [`Ragged::to_arrow_as`] with a `requested` type: a row for each part. A cast to the requested
/// type is a step of the last one, and counts no bytes: only values tell them.
///
/// # Errors
/// When no Arrow type holds the values. What else is refused is the error of its row.
///
/// ```
/// use arrow_array::StringArray;
/// use arrow_dlpack::{Conversion, CopyMode, explain_ragged_to_arrow};
///
/// let rows = Conversion::default().ragged(&StringArray::from(vec!["to", "be"]))?;
/// let report = explain_ragged_to_arrow(&rows, None, CopyMode::Never)?;
/// assert_eq!(report.rows.iter().map(|row| row.column.as_str()).collect::<Vec<_>>(), ["offsets", "values"]);
/// assert!(report.rows.iter().all(|row| row.view));
/// # Ok::<(), arrow_dlpack::Error>(())
/// ```
pub fn explain_ragged_to_arrow(rows: &Ragged, requested: Option<&FieldRef>, copy: CopyMode) -> Result<Report> {
    let (own, parts) = rows.plan_to_arrow(requested, copy)?;
    let mut report = explain_parts(requested.unwrap_or(&own), rows.offsets().device(), Ok(parts));
    if let Some(field) = requested {
        let parts = rows.parts_of_refused_nulls(field)?;
        let has_nulls = |row: &&mut ReportRow| parts.iter().any(|part| row.column == part_name(field, part));
        report.rows.iter_mut().filter(has_nulls).for_each(|row| row.add_refused_if(NULLS));
    }
    let is_cast = requested.is_some_and(|field| depends_on_values(own.data_type(), field.data_type()));
    if let Some(row) = report.rows.last_mut() {
        row.refused_if.extend(rows.are_checked_text(requested).then(|| NOT_TEXT.to_owned()));
        row.refused_if.extend(is_cast.then(|| LOST.to_owned()));
    }
    Ok(report)
}

/// As [`explain_ragged_to_arrow`], of an array that goes to a device then.
///
/// # Errors
/// As [`explain_ragged_to_arrow`].
pub(crate) fn explain_ragged_to_arrow_on(
    (device, copy): (Option<Device>, CopyMode),
    rows: &Ragged,
    requested: Option<&FieldRef>,
) -> Result<Report> {
    let left = Destination::new(device, copy).surely_copy_before(rows.offsets().device());
    let report = explain_ragged_to_arrow(rows, requested, left)?;
    let Some(device) = device else { return Ok(report) };
    // Bools of a validity become bits.
    let bytes = |row: &ReportRow| match row.column.ends_with("validity") {
        true => row.result_bytes().map(|bools| bools.div_ceil(8)),
        false => row.result_bytes(),
    };
    Ok(report.arrow_to(device, copy, |_, row| Some((None, bytes(row)?))))
}

impl ReportRow {
    /// The row of a tensor that becomes a column of this field.
    fn of_tensor(field: &FieldRef, tensor: &Tensor) -> Self {
        let shape = tensor.shape().iter().copied().map(Some).collect();
        Self { dtype: Some(tensor.dtype()), shape, device: tensor.device(), ..Self::new(field) }
    }

    /// Sets what the plan of a tensor of its `own` field as a column of `field` says.
    fn take_arrow(&mut self, own: &FieldRef, field: &FieldRef, plan: &Plan) {
        self.arrow_type = field.data_type().to_string();
        self.take(plan);
        if depends_on_values(own.data_type(), field.data_type()) {
            self.refused_if.push(LOST.to_owned());
        }
    }

    /// Says that nulls of a validity, and codes of null values, are refused where the requested field has none.
    fn refuse_nulls(&mut self, requested: &FieldRef, tensor: &Tensor, has_validity: bool) -> Result<()> {
        if has_validity && !requested.is_nullable() || tensor.may_be_refused_nulls(requested)? {
            self.add_refused_if(NULLS);
        }
        Ok(())
    }
}
