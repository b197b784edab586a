//! Columns as matrices, which must be what each column is alone.

use arrow_dlpack::{Chunks, Conversion, Device, DeviceArray, MemoryOrder, NullPolicy, PerColumn, Selection, Tensor};
use arrow_schema::DataType;

use super::exercise::{Errors, option_sets};
use super::tensors::touch;
use crate::support::dlpack::{Memory, output};
use crate::support::reference::{read, read_rows};

/// Does everything that makes a matrix of an array's columns; of other arrays, shows that they are none.
pub(super) fn matrices(array: &DeviceArray, errors: &mut Errors<'_>) {
    if !matches!(array.field().data_type(), DataType::Struct(_)) {
        let chosen = Conversion::default().select(Selection::Whole(names_of(Some("x"))));
        assert!(errors.keep(chosen.to_tensor(array)).is_none() && errors.keep(chosen.validity(array)).is_none());
        return;
    }
    let names: Vec<&str> = array.columns().iter().map(|column| column.name().as_str()).collect();
    // Most columns are no numbers, so that all together are no matrix: each alone may be one.
    let selections = std::iter::once(None).chain(names.iter().map(|name| Some(*name)));
    for (number, selected) in selections.enumerate() {
        // Each column with some of the options, so that all are used by some.
        let sets = option_sets().into_iter().skip(number % 3).step_by(3);
        for (options, order) in sets.zip([MemoryOrder::C, MemoryOrder::F, MemoryOrder::A].into_iter().cycle()) {
            one(array, selected, &options.memory_order(order), errors);
        }
        valid(array, selected, errors);
    }
}

/// The names of the selected columns: one, or all.
fn names_of(selected: Option<&str>) -> Option<Vec<String>> {
    selected.map(|name| vec![name.to_owned()])
}

/// The validity of columns, which is that of each.
fn valid(array: &DeviceArray, selected: Option<&str>, errors: &mut Errors<'_>) {
    let options = Conversion::default().select(Selection::Whole(names_of(selected)));
    let chunks = [array.clone(), array.clone()];
    errors.keep(options.validity(Chunks::new(array.field(), &chunks))).inspect(touch);
    let Some(made) = errors.keep(options.validity(Chunks::new(array.field(), &chunks[..1]))) else { return };
    touch(&made);
    if made.len() >= 1 << 12 || made.shape()[1] == 0 {
        return;
    }
    let is_chosen = |name: &String| selected.is_none_or(|selected| selected == name);
    let chosen = (0..array.columns().len()).filter(|index| is_chosen(array.columns()[*index].name()));
    let columns: Option<Vec<Tensor>> = chosen
        .map(|index| {
            let column = errors.keep(array.column(index))?;
            errors.keep(Conversion::default().validity(&column))
        })
        .collect();
    columns.into_iter().for_each(|columns| assert_same(&made, &columns));
}

fn one(array: &DeviceArray, selected: Option<&str>, options: &Conversion, errors: &mut Errors<'_>) {
    let field = array.field();
    let matrix = &options.clone().select(Selection::Whole(names_of(selected)));
    let made = errors.keep(matrix.to_tensor(array));
    let report = errors.keep(matrix.explain(array));
    if let (Some(made), Some(report)) = (&made, report) {
        assert_eq!(report.matrices[0].dtype, Some(made.dtype()));
        assert!(report.matrices[0].error.is_none() && report.to_string().contains("matrix"));
    }
    errors.keep(matrix.explain_type(field, Device::CPU));
    let Some(made) = made else { return };
    assert_eq!(made.shape()[0], array.len() as i64);
    touch(&made);
    // What kept nulls hold is anything.
    if made.len() >= 1 << 12 || options.nulls == PerColumn::All(NullPolicy::Keep) {
        return;
    }
    let each = options.clone().dtype(made.dtype()).select(Selection::Each(names_of(selected)));
    if let Some(columns) = errors.keep(each.to_tensors(array))
        && made.shape()[1] > 0
    {
        assert_same(&made, &columns.into_iter().map(|(_, tensor)| tensor).collect::<Vec<_>>());
    }
    written(array, matrix, &made, errors);
    errors.keep(matrix.to_tensor(Chunks::new(field, &[array.clone(), array.clone()]))).inspect(touch);
}

/// The columns of the matrix are these: a tensor of shape (rows, k, ...) is k * ... columns, in row-major order.
fn assert_same(matrix: &Tensor, columns: &[Tensor]) {
    let columns = columns.iter().map(|column| (read(column), column.shape()[1..].iter().product::<i64>() as usize));
    let columns = columns.collect::<Vec<_>>();
    for (number, row) in read_rows(matrix).iter().enumerate() {
        let of_row = |(values, width): &(Vec<Vec<u8>>, usize)| values[number * width..][..*width].to_vec();
        assert_eq!(row, &columns.iter().flat_map(of_row).collect::<Vec<_>>(), "row {number}");
    }
}

/// The same matrix in memory that is there.
fn written(array: &DeviceArray, matrix: &Conversion, made: &Tensor, errors: &mut Errors<'_>) {
    let bytes = vec![0xEE; made.nbytes()];
    let memory = Memory::new(&bytes, made.dtype(), made.shape(), &[made.shape()[1].max(1), 1], 0).import().0;
    let Some(memory) = errors.keep(memory) else { return };
    let mut out = output(&memory).expect("fresh memory can be written");
    if errors.keep(matrix.write(array, &mut out)).is_some() {
        assert_eq!(read(&memory), read(made));
    }
}
