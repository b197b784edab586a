//! Columns as matrices, which must be what each column is alone.

use arrow_dlpack::{
    DeviceArray, MatrixOptions, MemoryOrder, NullPolicy, Options, Tensor, explain_matrix, explain_matrix_schema,
    matrix_to_tensor, matrix_to_tensor_into, matrix_validity, to_tensors, validity,
};

use super::exercise::{Errors, option_sets};
use super::tensors::touch;
use crate::support::dlpack::{Memory, output};
use crate::support::reference::{read, read_rows};

/// Does everything that makes a matrix of an array's columns; of other arrays, shows that they are none.
pub(super) fn matrices(array: &DeviceArray, errors: &mut Errors<'_>) {
    let names: Vec<&str> = array.columns().iter().map(|column| column.name().as_str()).collect();
    // Most columns are no numbers, so that all together are no matrix: each alone may be one.
    let selections = std::iter::once(None).chain(names.iter().map(|name| Some(*name)));
    for (number, selected) in selections.enumerate() {
        // Each column with some of the options, so that all are used by some.
        let sets = option_sets().into_iter().skip(number % 3).step_by(3);
        for (options, order) in sets.zip([MemoryOrder::C, MemoryOrder::F, MemoryOrder::A].into_iter().cycle()) {
            let mut matrix = MatrixOptions::default().memory_order(order).copy(options.copy).writable(options.writable);
            matrix.columns = selected.map(|name| vec![name.to_owned()]);
            one(array, &matrix, &options, errors);
        }
        let mut options = MatrixOptions::default();
        options.columns = selected.map(|name| vec![name.to_owned()]);
        valid(array, &options, errors);
    }
}

/// The validity of columns, which is that of each.
fn valid(array: &DeviceArray, options: &MatrixOptions, errors: &mut Errors<'_>) {
    let chunks = [array.clone(), array.clone()];
    errors.keep(matrix_validity(array.field(), &chunks, options)).inspect(touch);
    let Some(made) = errors.keep(matrix_validity(array.field(), &chunks[..1], options)) else { return };
    touch(&made);
    if made.len() >= 1 << 12 || made.shape()[1] == 0 {
        return;
    }
    let is_chosen = |name: &String| options.columns.as_ref().is_none_or(|names| names.contains(name));
    let chosen = (0..array.columns().len()).filter(|index| is_chosen(array.columns()[*index].name()));
    let columns: Option<Vec<Tensor>> = chosen
        .map(|index| {
            let column = errors.keep(array.column(index))?;
            errors.keep(validity(column.field(), std::slice::from_ref(&column)))
        })
        .collect();
    columns.into_iter().for_each(|columns| assert_same(&made, &columns));
}

fn one(array: &DeviceArray, matrix: &MatrixOptions, options: &Options, errors: &mut Errors<'_>) {
    let (field, chunks) = (array.field(), std::slice::from_ref(array));
    let of = |_: &str| options.clone();
    let made = errors.keep(matrix_to_tensor(field, chunks, matrix, of));
    let report = errors.keep(explain_matrix(field, chunks, matrix, of));
    if let (Some(made), Some(report)) = (&made, report) {
        assert_eq!(report.matrices[0].dtype, Some(made.dtype()));
        assert!(report.matrices[0].error.is_none() && report.to_string().contains("matrix"));
    }
    errors.keep(explain_matrix_schema(field, matrix, of));
    let Some(made) = made else { return };
    assert_eq!(made.shape()[0], array.len() as i64);
    touch(&made);
    // What kept nulls hold is anything.
    if made.len() >= 1 << 12 || options.nulls == NullPolicy::Keep {
        return;
    }
    let typed = |_: &str| options.clone().dtype(made.dtype());
    if let Some(columns) = errors.keep(to_tensors(field, chunks, matrix.columns.as_deref(), typed))
        && made.shape()[1] > 0
    {
        assert_same(&made, &columns.into_iter().map(|(_, tensor)| tensor).collect::<Vec<_>>());
    }
    written(array, matrix, options, &made, errors);
    errors.keep(matrix_to_tensor(field, &[array.clone(), array.clone()], matrix, of)).inspect(touch);
}

/// The columns of the matrix are these.
fn assert_same(matrix: &Tensor, columns: &[Tensor]) {
    let (rows, columns) = (read_rows(matrix), columns.iter().map(read).collect::<Vec<_>>());
    for (number, row) in rows.iter().enumerate() {
        assert_eq!(row.len(), columns.len());
        for (value, column) in row.iter().zip(&columns) {
            assert_eq!(value, &column[number], "row {number}");
        }
    }
}

/// The same matrix in memory that is there.
fn written(array: &DeviceArray, matrix: &MatrixOptions, options: &Options, made: &Tensor, errors: &mut Errors<'_>) {
    let bytes = vec![0xEE; made.nbytes()];
    let memory = Memory::new(&bytes, made.dtype(), made.shape(), &[made.shape()[1].max(1), 1], 0).import().0;
    let Some(memory) = errors.keep(memory) else { return };
    let mut out = output(&memory).expect("fresh memory can be written");
    let chunks = std::slice::from_ref(array);
    let of = |_: &str| options.clone();
    if errors.keep(matrix_to_tensor_into(array.field(), chunks, matrix, of, &mut out)).is_some() {
        assert_eq!(read(&memory), read(made));
    }
}
