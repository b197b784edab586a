//! Converts a tensor to an Arrow array of a requested type.

use arrow_schema::FieldRef;

use super::to_arrow::{array_of, plan, to_arrow};
use super::to_tensor;
use crate::arrow::{DeviceArray, counts_in, same_layout};
use crate::convert::{self, check_request, check_request_on, fixed_bytes};
use crate::cuda::is_cuda;
use crate::dtype::DType;
use crate::error::Result;
use crate::plan::{Action, Plan, refused_copy};
use crate::spec::{CopyMode, Element, NullPolicy, Options, TensorField, casting};
use crate::tensor::Tensor;

/// How a column that a tensor became gets to be of a requested type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// Its memory is of that type, too.
    Shared,
    /// Its values are cast.
    Cast,
    /// Its values are cast to float32 first: Arrow's casts see bytes where the type is an extension.
    CastBySingle,
}

impl Request {
    /// # Errors
    /// When no copy is allowed and values are cast, or could not be.
    fn new(own: &FieldRef, requested: &FieldRef, dtype: DType, copy: CopyMode) -> Result<Self> {
        let (from, to) = (own.data_type(), requested.data_type());
        if same_layout(from, to) || counts_in(from, to) {
            return Ok(Self::Shared);
        }
        let request = if dtype == DType::BFloat16 { Self::CastBySingle } else { Self::Cast };
        if copy != CopyMode::Never {
            return Ok(request);
        }
        if request == Self::Cast {
            // Where there is no cast, to allow a copy does not help.
            check_request(own, requested)?;
        }
        Err(refused_copy(&casting(from, to)))
    }
}

/// Returns the Arrow form of a tensor that becomes a column of the `requested` type: bits for bools on a CUDA device if bits are requested,
/// because only kernels can pack them there. Otherwise the tensor's own form; [`as_requested`] casts that on the host.
///
/// # Errors
/// When no Arrow type holds the dtype.
pub(crate) fn form_in(tensor: &Tensor, requested: Option<&FieldRef>) -> Result<TensorField> {
    if tensor.dtype() == DType::Bool && is_cuda(tensor.device()) {
        let form = requested.map(|field| TensorField::new(DType::Bool, tensor.shape(), tensor.strides(), Some(field)));
        if let Some(form) = form.transpose()?.filter(|form| form.element == Element::Bits) {
            return Ok(form);
        }
    }
    tensor.arrow_form()
}

/// Refuses a type that no values of a tensor could become where it is.
///
/// # Errors
/// When there is no cast, or one is needed and no copy allowed.
pub(crate) fn check_requested(tensor: &Tensor, requested: &FieldRef, copy: CopyMode) -> Result<()> {
    let form = form_in(tensor, Some(requested))?;
    match Request::new(&form.field, requested, form.dtype, copy)? {
        Request::CastBySingle => check_request_on(tensor.device(), &single(tensor)?.field, requested),
        Request::Shared | Request::Cast => check_request_on(tensor.device(), &form.field, requested),
    }
}

/// Returns the form that a tensor's values have as float32.
fn single(tensor: &Tensor) -> Result<TensorField> {
    TensorField::new(DType::Float32, tensor.shape(), tensor.strides(), None)
}

/// Adds to the plan for a tensor as a column of this form what the `requested` type takes.
///
/// # Errors
/// When values are cast, and no copy is allowed.
pub(crate) fn plan_requested(
    plan: &mut Plan,
    (tensor, form): (&Tensor, &TensorField),
    requested: &FieldRef,
    has_validity: bool,
    copy: CopyMode,
) -> Result<()> {
    let wanted = requested.data_type();
    let request = Request::new(&form.field, requested, form.dtype, copy)?;
    let mut own = form.field.clone();
    if request == Request::CastBySingle {
        plan.add(Action::Cast { from: form.element, to: DType::Float32 }, form.elements.saturating_mul(4));
        if has_validity {
            plan.add(Action::PackValidity, form.rows.div_ceil(8));
        }
        own = single(tensor)?.field;
    }
    if Request::new(&own, requested, DType::Float32, CopyMode::IfNeeded)? == Request::Cast {
        plan.add(Action::CastAsRequested, fixed_bytes(wanted, form.rows).unwrap_or(0));
    }
    Ok(())
}

/// The plan for a tensor as a column, in the `requested` type if there is one, and the field of that.
///
/// # Errors
/// As [`to_arrow`] or [`to_arrow_as`], before anything is copied.
pub(crate) fn plan_to_arrow_as(
    tensor: &Tensor,
    requested: Option<&FieldRef>,
    has_validity: bool,
    copy: CopyMode,
) -> Result<(FieldRef, Plan)> {
    let form = form_in(tensor, requested)?;
    let mut plan = plan(tensor, &form, has_validity, copy)?;
    let Some(requested) = requested else { return Ok((form.field, plan)) };
    check_requested(tensor, requested, copy)?;
    plan_requested(&mut plan, (tensor, &form), requested, has_validity, copy)?;
    Ok((requested.clone(), plan))
}

/// Refuses what no values of a tensor could become together with a validity, before that is read.
///
/// # Errors
/// As [`to_arrow`], or as [`to_arrow_as`] with `requested`.
#[cfg(feature = "python")]
pub(crate) fn check_to_arrow(tensor: &Tensor, requested: Option<&FieldRef>, copy: CopyMode) -> Result<()> {
    plan(tensor, &form_in(tensor, requested)?, true, copy)?;
    requested.map_or(Ok(()), |requested| check_requested(tensor, requested, copy))
}

/// As [`to_arrow`], in the type of `requested`, exactly: every value survives the way there and back.
///
/// # Errors
/// As [`to_arrow`], and when a value does not survive, or a cast is needed and no copy allowed.
pub fn to_arrow_as(
    tensor: &Tensor,
    valid: Option<&Tensor>,
    requested: &FieldRef,
    copy: CopyMode,
) -> Result<DeviceArray> {
    let form = form_in(tensor, Some(requested))?;
    // What is wrong with the type comes before what is wrong with a value.
    plan(tensor, &form, valid.is_some(), copy)?;
    check_requested(tensor, requested, copy)?;
    let array = array_of(tensor, form, valid, copy)?;
    as_requested(&array, tensor.dtype(), valid, requested, copy)
}

/// A column that was made of a tensor of this dtype, in the type of `requested`.
///
/// # Errors
/// As [`to_arrow_as`].
pub(crate) fn as_requested(
    array: &DeviceArray,
    dtype: DType,
    valid: Option<&Tensor>,
    requested: &FieldRef,
    copy: CopyMode,
) -> Result<DeviceArray> {
    match Request::new(array.field(), requested, dtype, copy)? {
        Request::Shared | Request::Cast => convert::request_field(array, requested),
        Request::CastBySingle => {
            let single = to_tensor(array, &Options::default().dtype(DType::Float32).nulls(NullPolicy::Keep))?;
            convert::request_field(&to_arrow(&single, valid, CopyMode::IfNeeded)?, requested)
        }
    }
}
