//! Takes a DLPack tensor for the column that a [`Conversion`] converts.

use std::borrow::Cow;

use super::run::Run;
use crate::arrow::DeviceArray;
use crate::column::{Runner, plan_to_arrow, run_here, run_step, to_arrow};
use crate::dtype::DType;
use crate::error::Result;
use crate::spec::Conversion;
use crate::tensor::Tensor;

/// A tensor as a column.
#[derive(Debug)]
pub(crate) struct TensorColumn {
    pub(crate) array: DeviceArray,
    /// The dtype of a tensor of complex numbers, which are pairs of floats in the column.
    pub(crate) natural: Option<DType>,
    /// Whether all memory was copied for this conversion alone.
    pub(crate) is_own: bool,
}

impl TensorColumn {
    /// How a conversion of this column alone is run.
    fn run<'a>(&self, runner: &'a Runner<'a>) -> Run<'a> {
        Run { natural: self.natural, is_own: self.is_own, runner }
    }
}

impl Conversion {
    /// Converts a DLPack tensor as [`Conversion::to_tensor`] does the column that [`crate::to_arrow`] makes of it: casts its values, takes it
    /// to another device. Strided elements are gathered before. Complex numbers stay what they are, unless another dtype is asked for.
    ///
    /// # Errors
    /// As [`Conversion::to_tensor`] and [`crate::to_arrow`].
    ///
    /// ```
    /// use arrow_array::Int32Array;
    /// use arrow_dlpack::{Conversion, DType, to_tensor};
    ///
    /// let tensor = to_tensor(&Int32Array::from(vec![1, 2]))?;
    /// let wider = Conversion::default().dtype(DType::Float64).convert_tensor(&tensor)?;
    /// assert_eq!(wider.as_slice::<f64>()?, [1.0, 2.0]);
    /// # Ok::<(), arrow_dlpack::Error>(())
    /// ```
    pub fn convert_tensor(&self, tensor: &Tensor) -> Result<Tensor> {
        // Before anything is moved.
        self.require_whole()?;
        self.check_rows(&tensor.arrow_form()?.field)?;
        let column = self.column_of(tensor, &run_here)?;
        self.convert_whole(column.array.field(), std::slice::from_ref(&column.array), column.run(&run_here))
    }

    /// A tensor as a column, where it is converted. One of a device comes to the host before, if the result is asked for there, and is
    /// gathered after.
    ///
    /// # Errors
    /// When it cannot come to the host; when no Arrow type holds it, or elements have to be gathered and no copy is allowed.
    pub(crate) fn column_of(&self, tensor: &Tensor, runner: &Runner<'_>) -> Result<TensorColumn> {
        let (mut tensor, mut is_own) = (Cow::Borrowed(tensor), false);
        if self.comes_before(tensor.device()) {
            let destination = self.destination();
            is_own = destination.is_copied_from(tensor.device())?;
            tensor = Cow::Owned(run_step(runner, usize::MAX, || destination.tensor(tensor.into_owned()))?);
        }
        let natural = tensor.dtype().if_complex();
        // A copy that is asked for is made of the column, once.
        let copy = self.copy.once();
        if tensor.is_aligned() && tensor.is_row_major() {
            return Ok(TensorColumn { array: to_arrow(&tensor, None, copy)?, natural, is_own });
        }
        let plan = plan_to_arrow(&tensor, copy)?;
        let array = run_step(runner, plan.bytes, || to_arrow(&tensor, None, copy))?;
        Ok(TensorColumn { array, natural, is_own: is_own || plan.moves_values() })
    }
}
