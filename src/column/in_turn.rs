//! Makes several results of the same chunks, one after the other.

use super::planned::SharedReads;
use crate::arrow::DeviceArray;
use crate::error::{Error, Result};
use crate::kernels::Casts;
use crate::tensor::Tensor;
use crate::transfer::Facts;

/// Has `convert` make each result, and hands it on to `take`: those of a device once all are made. What the host knows of all of
/// them, and the casts that it checks with one more wait, are shared. `check` looks for what the result of other rows would refuse.
///
/// # Errors
/// The one of `convert` or `check` in the lowest row, as `settle` returns it; those of casts, and of `take`.
pub(crate) fn in_turn<R: Copy, E: From<Error>>(
    chunks: &[DeviceArray],
    mut results: impl Iterator<Item = R>,
    facts: Option<&Facts>,
    mut convert: impl FnMut(R, SharedReads<'_>) -> Result<Tensor>,
    check: impl Fn(R, &[DeviceArray]) -> Result<()>,
    settle: impl Fn(Error) -> Error,
    mut take: impl FnMut(R, Tensor) -> Result<(), E>,
) -> Result<(), E> {
    let casts = DeviceArray::readiness_of(chunks).map(|_| Casts::default());
    let mut made = Vec::new();
    while let Some(result) = results.next() {
        match (convert(result, SharedReads { facts, casts: casts.as_ref() }), &casts) {
            (Ok(tensor), None) => take(result, tensor)?,
            (Ok(tensor), Some(_)) => made.push((result, tensor)),
            (Err(error), None) => {
                // A later result may be wrong in a lower row.
                let lowest = results.fold(error, |lowest, result| {
                    let before = DeviceArray::first_rows(chunks, lowest.row().unwrap_or(0));
                    check(result, &before).err().filter(|error| error.is_lower_than(&lowest)).unwrap_or(lowest)
                });
                return Err(settle(lowest).into());
            }
            (Err(error), Some(casts)) => {
                // What is wrong with an earlier result comes first.
                casts.verify()?;
                return Err(settle(error).into());
            }
        }
    }
    casts.map_or(Ok(()), |casts| casts.verify())?;
    made.into_iter().try_for_each(|(result, tensor)| take(result, tensor))
}
