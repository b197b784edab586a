//! Converts a record batch: every column to its own tensor.

use arrow_schema::FieldRef;

use crate::arrow::DeviceArray;
use crate::column::{ColumnRef, Runner, Shared, add_unknowns, check_rows, check_types, convert_column};
use crate::error::{Error, Result};
use crate::kernels::{Casts, gathers_on};
use crate::spec::{Options, Spec, all_or_errors};
use crate::tensor::Tensor;
use crate::transfer::{Facts, Unknowns};

/// Converts columns, given with their positions. `runner` runs the last step of each. Hands each tensor on before the
/// next is made; tensors on a device only once all are made.
pub(crate) fn each_tensor<'a, E: From<Error>>(
    field: &FieldRef,
    chunks: &[DeviceArray],
    columns: impl IntoIterator<Item = (usize, &'a FieldRef), IntoIter: Clone>,
    options: impl Fn(&str) -> Options,
    runner: &Runner<'_>,
    mut take: impl FnMut(&'a FieldRef, Tensor) -> Result<(), E>,
) -> Result<(), E> {
    check_types(field, chunks)?;
    let columns = columns.into_iter();
    // One wait tells what the host has to know of all columns.
    let mut filled = chunks.iter().filter(|chunk| chunk.readiness().is_some() && !chunk.is_empty());
    let facts = match (filled.next(), filled.next()) {
        (Some(only), None) => read_columns(only, columns.clone(), &options)?,
        _ => None,
    };
    // A second wait reads whether the values of casts fit.
    let casts = chunks.iter().any(|chunk| chunk.readiness().is_some()).then(Casts::default);
    let mut made = Vec::new();
    // Errors that the types cause come first, for all columns at once, before an error in the data of one.
    let with_others = |error: Error| {
        let specs = columns.clone().map(|(_, column)| Spec::new(column, &options(column.name())));
        all_or_errors(specs).err().unwrap_or(error)
    };
    let convert = |index, column: &FieldRef| {
        let options = options(column.name());
        let shared = Shared { facts: facts.as_ref(), casts: casts.as_ref() };
        let of_column = |chunk| ColumnRef::column(chunk, index);
        match chunks {
            [only] => convert_column(column, &[of_column(only)], &options, shared, runner),
            _ => convert_column(column, &chunks.iter().map(of_column).collect::<Vec<_>>(), &options, shared, runner),
        }
    };
    // A later column may be wrong in a lower row.
    let lowest = |error: Error, failed: usize| {
        let behind = columns.clone().skip_while(|(index, _)| *index != failed).skip(1);
        behind.fold(error, |lowest: Error, (index, column)| {
            let before = DeviceArray::first_rows(chunks, lowest.row().unwrap_or(0));
            let rows: Vec<_> = before.iter().map(|chunk| ColumnRef::column(chunk, index)).collect();
            let checked = Spec::new(column, &options(column.name())).and_then(|spec| check_rows(&spec, &rows));
            checked.err().filter(|error| error.is_lower_than(&lowest)).unwrap_or(lowest)
        })
    };
    for (index, column) in columns.clone() {
        match (convert(index, column), &casts) {
            (Ok(tensor), Some(_)) => made.push((column, tensor)),
            (Err(error), Some(casts)) => {
                // An error of an earlier column comes first.
                casts.verify()?;
                return Err(with_others(error).into());
            }
            (tensor, None) => take(column, tensor.map_err(|error| with_others(lowest(error, index)))?)?,
        }
    }
    casts.map_or(Ok(()), |casts| casts.verify())?;
    made.into_iter().try_for_each(|(column, tensor)| take(column, tensor))
}

/// Finds what the host has to know of several columns of a chunk, together; `None` of host memory, and where one column alone needs anything.
///
/// # Errors
/// When the memory is not what the array says, or the driver fails.
fn read_columns<'a>(
    chunk: &DeviceArray,
    columns: impl IntoIterator<Item = (usize, &'a FieldRef)>,
    options: impl Fn(&str) -> Options,
) -> Result<Option<Facts>> {
    let Some(readiness) = chunk.readiness() else { return Ok(None) };
    let mut unknowns = Unknowns::default();
    for (index, column) in columns {
        // What is wrong with a column is found again when it is converted.
        let Ok(spec) = Spec::new(column, &options(column.name())) else { continue };
        let Ok(leaf) = ColumnRef::column(chunk, index).leaf(&spec) else { continue };
        if spec.decoded().is_none() || gathers_on(&spec, readiness.device()) {
            add_unknowns(&mut unknowns, &spec, &leaf);
        }
    }
    unknowns.find(readiness).map(Some)
}
