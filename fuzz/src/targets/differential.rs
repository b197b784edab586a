//! Is a conversion what its definition says, scalar by scalar, on whatever kernel it runs; and does arrow-rs read what we export as
//! what it was?

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, StructArray, make_array};
use arrow_data::ffi::FFI_ArrowArray;
use arrow_dlpack::arrow::{export_device_array, export_schema};
use arrow_dlpack::{Conversion, CopyMode, DType, DeviceArray, MemoryOrder, NullPolicy, Scalar, Selection};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{DataType, FieldRef};

use super::choices::Choices;
use crate::support::Random;
use crate::support::arrow::{field, list, random_array, shared};
use crate::support::cast::{Value, is_nan, reference_bytes};
use crate::support::column::{DTYPES, TYPES, assert_column};
use crate::support::reference::{each_element, read_bytes};

/// A column, a matrix or an export.
pub(super) fn differential(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    match choices.byte() % 4 {
        0 => column(&mut choices),
        1 => exported(&mut choices),
        _ => matrix(&mut choices),
    }
}

/// Lists within lists, at most: each level multiplies the elements by up to three.
const LEVELS: usize = 4;

/// A type with a tensor form, rarely one of lists.
fn of_type(choices: &mut Choices<'_>) -> DataType {
    let mut chosen = choices.of(&TYPES).clone();
    for _ in 0..LEVELS {
        if !choices.chance(6) {
            break;
        }
        chosen = list(chosen, choices.below(4) as i32);
    }
    chosen
}

/// Lengths around the blocks of 64 that kernels work on, and short ones.
fn rows(choices: &mut Choices<'_>) -> usize {
    match choices.byte() % 4 {
        0 => 60 + choices.below(10),
        1 => choices.below(200),
        _ => choices.below(20),
    }
}

fn dtype(choices: &mut Choices<'_>) -> Option<DType> {
    match choices.byte() % 4 {
        0 => Some(*choices.of(&DTYPES)),
        1 => Some(DType::BFloat16),
        _ => None,
    }
}

fn column(choices: &mut Choices<'_>) {
    let data_type = of_type(choices);
    let chunk = |choices: &mut Choices<'_>| (choices.below(20), rows(choices), *choices.of(&[0, 0, 3, 40]));
    let chunks: Vec<_> = (0..1 + choices.below(3)).map(|_| chunk(choices)).collect();
    let nulls = [
        NullPolicy::Error,
        NullPolicy::Nan,
        NullPolicy::Fill(Scalar::Int(1)),
        NullPolicy::Fill(Scalar::Bool(false)),
        NullPolicy::Keep,
    ];
    let copy = *choices.of(&[CopyMode::IfNeeded, CopyMode::Never, CopyMode::Always]);
    let writable = choices.chance(2) && copy != CopyMode::Never;
    let mut options = Conversion::default().nulls(*choices.of(&nulls)).copy(copy).writable(writable);
    if let Some(dtype) = dtype(choices) {
        options = options.dtype(dtype);
    }
    assert_column(&data_type, &chunks, &options, choices.number() as u64);
}

/// The values of several columns of numbers, each slot a null or bytes of the column's dtype.
struct Columns {
    field: FieldRef,
    arrays: Vec<ArrayRef>,
    dtypes: Vec<DType>,
}

impl Columns {
    fn new(choices: &mut Choices<'_>) -> Self {
        let count = if choices.chance(4) { 1 + choices.below(40) } else { 1 + choices.below(6) };
        let rows = rows(choices);
        let same = choices.chance(2).then(|| choices.of(&DTYPES).to_owned());
        let one_null_in = *choices.of(&[0, 0, 2, 9]);
        let mut random = Random(choices.number() as u64);
        let (mut fields, mut arrays, mut dtypes) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..count {
            let dtype = same.unwrap_or_else(|| *choices.of(&DTYPES));
            let data_type = dtype.to_arrow().unwrap_or(DataType::Boolean);
            let skipped = random.below(70);
            let array = random_array(&data_type, rows + skipped, one_null_in, &mut random).slice(skipped, rows);
            fields.push(field(&format!("c{index}"), data_type));
            arrays.push(array);
            dtypes.push(dtype);
        }
        Self { field: field("", DataType::Struct(fields.into())), arrays, dtypes }
    }

    fn array(&self) -> DeviceArray {
        let DataType::Struct(fields) = self.field.data_type() else { unreachable!("a struct") };
        shared(&StructArray::new(fields.clone(), self.arrays.clone(), None), &self.field)
    }

    /// The bytes of the matrix in row-major order; `None` where an element does not fit the dtype.
    fn expected(&self, dtype: DType, fill: i128) -> Option<Vec<u8>> {
        let DataType::Struct(fields) = self.field.data_type() else { unreachable!("a struct") };
        let (rows, row) = (self.arrays.first().map_or(0, |array| array.len()), self.arrays.len() * dtype.itemsize());
        let mut matrix = vec![0; rows * row];
        let fill = reference_bytes(Value::Int(fill), dtype)?;
        let mut fits = true;
        for (index, ((field, array), from)) in fields.iter().zip(&self.arrays).zip(&self.dtypes).enumerate() {
            let mut slots =
                matrix.chunks_mut(row).map(|row| row.chunks_mut(dtype.itemsize()).nth(index).expect("its columns"));
            each_element(field, array, &mut |element| {
                let slot = slots.next().expect("its rows");
                match element {
                    Some(bytes) if *from == dtype => slot.copy_from_slice(bytes),
                    Some(bytes) => match reference_bytes(Value::of(*from, bytes), dtype) {
                        Some(cast) => slot.copy_from_slice(&cast[..dtype.itemsize()]),
                        None => fits = false,
                    },
                    None => slot.copy_from_slice(&fill[..dtype.itemsize()]),
                }
            });
        }
        fits.then_some(matrix)
    }
}

fn matrix(choices: &mut Choices<'_>) {
    let columns = Columns::new(choices);
    let dtype = dtype(choices).unwrap_or(columns.dtypes[0]);
    let fill = choices.below(2);
    let order = *choices.of(&[MemoryOrder::C, MemoryOrder::F, MemoryOrder::A]);
    let options = Conversion::default().select(Selection::Whole(None)).memory_order(order).dtype(dtype);
    let made = options.nulls(NullPolicy::Fill(Scalar::Int(fill as i128))).to_tensor(&columns.array());
    match (made, columns.expected(dtype, fill as i128)) {
        (Ok(made), Some(expected)) => {
            assert_eq!((made.dtype(), made.shape()[1]), (dtype, columns.arrays.len() as i64));
            let found = read_bytes(&made);
            assert_eq!(found.len(), expected.len());
            let size = dtype.itemsize();
            for (found, expected) in found.chunks(size).zip(expected.chunks(size)) {
                assert!(found == expected || is_nan(dtype, found) && is_nan(dtype, expected), "{found:?} {expected:?}");
            }
        }
        (Err(_), None) => {}
        (made, expected) => panic!("{made:?}, not {expected:?}"),
    }
}

/// What we import and export, arrow-rs reads as what it was.
fn exported(choices: &mut Choices<'_>) {
    let data_type = of_type(choices);
    let own = field("x", data_type.clone());
    let (before, rows) = (choices.below(70), rows(choices));
    let mut random = Random(choices.number() as u64);
    let one_null_in = *choices.of(&[0, 2, 9]);
    let array = random_array(&data_type, before + rows + 3, one_null_in, &mut random).slice(before, rows);
    let rows_of: ArrayRef = Arc::new(StructArray::new(vec![own.clone()].into(), vec![array.clone()], None));
    let batch = shared(&rows_of, &field("", rows_of.data_type().clone()));
    let column = batch.column(0).expect("a column");
    let exported = export_device_array(&column).expect("an array of the host");
    let schema = export_schema(column.field()).expect("a type of Arrow");
    let (exported, schema) = (exported.into_raw().array, schema.into_raw());
    // SAFETY: both are `struct ArrowArray` of the C data interface; the struct moves, as ours has no destructor.
    let read = unsafe { (&raw const exported).cast::<FFI_ArrowArray>().read() };
    // SAFETY: both are `struct ArrowSchema` of the C data interface; the struct moves, as ours has no destructor.
    let schema = unsafe { (&raw const schema).cast::<FFI_ArrowSchema>().read() };
    // SAFETY: our own export, of an array that arrow-rs made.
    let data = unsafe { arrow_array::ffi::from_ffi(read, &schema) }.expect("what we export arrow-rs reads");
    data.validate_full().expect("what we export is valid");
    assert_eq!(make_array(data).to_data(), array.to_data());
}
