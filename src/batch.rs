//! Converts a record batch: every column to its own tensor.

use std::borrow::Cow;

use arrow_schema::FieldRef;

use crate::arrow::DeviceArray;
use crate::column::{ColumnRef, Runner, SharedReads, add_unknowns, check_rows, check_types, convert_column, in_turn};
use crate::error::{Error, Result};
use crate::kernels::gathers_on;
use crate::spec::{Options, Spec};
use crate::tensor::Tensor;
use crate::transfer::{Facts, Unknowns};

/// Converts columns, given with their positions. `runner` runs the last step of each. Hands each tensor on before the
/// next is made; tensors on a device only once all are made. `settle` has the last word on the error of a column.
pub(crate) fn each_tensor<'a, 'o, E: From<Error>>(
    field: &FieldRef,
    chunks: &[DeviceArray],
    columns: impl IntoIterator<Item = (usize, &'a FieldRef), IntoIter: Clone>,
    options: impl Fn(&str) -> Cow<'o, Options>,
    runner: &Runner<'_>,
    settle: impl Fn(Error) -> Error,
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
    let convert = |(index, column): (usize, &FieldRef), shared: SharedReads<'_>| {
        let options = options(column.name());
        let of_column = |chunk| ColumnRef::column(chunk, index);
        match chunks {
            [only] => convert_column(column, &[of_column(only)], &options, shared, runner),
            _ => convert_column(column, &chunks.iter().map(of_column).collect::<Vec<_>>(), &options, shared, runner),
        }
    };
    let check = |(index, column): (usize, &FieldRef), chunks: &[DeviceArray]| {
        let rows: Vec<_> = chunks.iter().map(|chunk| ColumnRef::column(chunk, index)).collect();
        check_rows(&Spec::new(column, &options(column.name()))?, &rows)
    };
    let take = |(_, column), tensor| take(column, tensor);
    in_turn(chunks, columns.clone(), facts.as_ref(), convert, check, settle, take)
}

/// Finds what the host has to know of several columns of a chunk, together; `None` of host memory, and where one column alone needs anything.
///
/// # Errors
/// When the memory is not what the array says, or the driver fails.
fn read_columns<'a, 'o>(
    chunk: &DeviceArray,
    columns: impl IntoIterator<Item = (usize, &'a FieldRef)>,
    options: impl Fn(&str) -> Cow<'o, Options>,
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
