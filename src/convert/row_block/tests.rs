//! Tests rows on their way into a batch: where they are, and what does not fit.

use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Float32Array, Float64Array, Int8Array, Int16Array, RecordBatch,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field};

use super::*;
use crate::alloc::BlockPool;
use crate::arrow::DeviceArray;
use crate::spec::Options;

fn numbers(count: i16) -> DeviceArray {
    let array = Int16Array::from_iter_values(0..count);
    DeviceArray::from_arrow(&array, Arc::new(Field::new("n", DataType::Int16, true))).unwrap()
}

fn append(block: &mut RowBlock, array: &DeviceArray, spec: &Spec) -> Result<()> {
    let leaf = array.view().leaf(spec)?;
    let chunk = ColumnChunk { mask: leaf.logical_mask(array)?, leaf, array };
    block.append_column(spec, &chunk, 0)
}

fn block(array: &DeviceArray, rows: usize, pool: &BlockPool) -> (Spec, RowBlock) {
    let spec = Spec::new(array.field(), &Options::default()).unwrap();
    let layout = Arc::new(RowLayout::of_column(&spec).unwrap());
    let mut block = RowBlock::new(layout.clone());
    block.move_to(pool.take(rows * layout.bytes()).unwrap()).unwrap();
    (spec, block)
}

/// Returns a batch of the columns "a" and "b", of two floats each.
fn floats() -> DeviceArray {
    let column = |at: f32| -> ArrayRef { Arc::new(Float32Array::from(vec![at, at + 1.0])) };
    let batch = RecordBatch::try_from_iter([("a", column(0.0)), ("b", column(10.0))]).unwrap();
    DeviceArray::from_record_batch(&batch).unwrap()
}

/// Returns the spec of a matrix of such a batch, its columns, and a block for its rows.
fn matrix<'a>(
    batch: &'a DeviceArray,
    columns: Option<&[String]>,
    pool: &BlockPool,
) -> (MatrixSpec, MatrixColumns<'a>, RowBlock) {
    let spec = MatrixSpec::new(batch.field(), columns, |_| Options::default(), Some(DType::Float32)).unwrap();
    let chunks = spec.columns().iter().map(|(position, spec)| {
        let leaf = batch.view().struct_field(*position).unwrap().leaf(spec).unwrap();
        ColumnChunk { mask: None, leaf, array: batch }
    });
    let columns = MatrixColumns { rows: batch.len(), columns: chunks.collect(), is_plain: false };
    let layout = Arc::new(RowLayout::of_matrix(&spec).unwrap());
    let mut block = RowBlock::new(layout.clone());
    block.move_to(pool.take(batch.len() * layout.bytes()).unwrap()).unwrap();
    (spec, columns, block)
}

#[test]
fn rows_are_appended_moved_and_exchanged() {
    let pool = BlockPool::new(1, None);
    let five = numbers(5);
    let (spec, mut one) = block(&five, 8, &pool);
    append(&mut one, &five, &spec).unwrap();
    append(&mut one, &five.clipped(&(3..5)), &spec).unwrap();
    assert!(append(&mut one, &five, &spec).is_err(), "there is no room");
    let (_, mut two) = block(&five, 2, &pool);
    append(&mut two, &five.clipped(&(1..3)), &spec).unwrap();
    one.swap(0, &mut two, 1).unwrap();
    one.push(&mut two, 0).unwrap();
    assert!(one.swap(8, &mut two, 0).is_err() && one.swap(0, &mut two, 2).is_err());
    assert!(one.push(&mut two, 1).is_err(), "there is no room");
    two.truncate(1);
    two.move_to(pool.take(64).unwrap()).unwrap();
    append(&mut two, &five, &spec).unwrap();
    assert_eq!((one.rows(), two.rows()), (8, 6));
    assert_eq!(one.into_tensor().unwrap().as_slice::<i16>().unwrap(), [2, 1, 2, 3, 4, 3, 4, 1]);
    assert_eq!(two.into_tensor().unwrap().as_slice::<i16>().unwrap(), [1, 0, 1, 2, 3, 4]);
}

#[test]
fn the_memory_of_a_tensor_is_used_again_when_it_is_gone() {
    let pool = BlockPool::new(1, None);
    let five = numbers(5);
    let (spec, mut one) = block(&five, 5, &pool);
    append(&mut one, &five, &spec).unwrap();
    let tensor = one.into_tensor().unwrap();
    assert!(tensor.is_writable() && tensor.is_copied());
    let (address, clone) = (tensor.as_ptr(), tensor.clone());
    drop(tensor);
    let (_, other) = block(&five, 5, &pool);
    assert_ne!(other.memory.as_ptr(), address, "a clone has it still");
    drop((clone, other));
    let again: Vec<_> = (0..2).map(|_| block(&five, 5, &pool).1.memory.as_ptr()).collect();
    assert!(again.contains(&address));
}

#[test]
fn rows_of_matrices_follow_each_other_and_may_have_no_bytes() {
    let pool = BlockPool::new(1, None);
    let batch = floats();
    for (columns, expected) in [(None, &[0.0, 10.0, 1.0, 11.0][..]), (Some(&[][..]), &[])] {
        let (spec, columns, mut block) = matrix(&batch, columns, &pool);
        block.append_matrix(&spec, &columns, 0, 1).unwrap();
        let tensor = block.into_tensor().unwrap();
        assert_eq!(tensor.shape(), [2, i64::try_from(spec.columns().len()).unwrap()]);
        assert_eq!(tensor.as_slice::<f32>().unwrap(), expected);
    }
}

#[test]
fn rows_without_elements_need_no_memory() {
    let item = Arc::new(Field::new("item", DataType::Float64, true));
    let lists =
        FixedSizeListArray::new(item, 0, Arc::new(Float64Array::from(vec![0.0; 0])), Some(NullBuffer::new_valid(3)));
    let field = Field::new("lists", lists.data_type().clone(), true);
    let lists = DeviceArray::from_arrow(&lists, Arc::new(field)).unwrap();
    let spec = Spec::new(lists.field(), &Options::default()).unwrap();
    let mut one = RowBlock::new(Arc::new(RowLayout::of_column(&spec).unwrap()));
    append(&mut one, &lists, &spec).unwrap();
    append(&mut one, &lists.clipped(&(1..3)), &spec).unwrap();
    assert_eq!(one.into_tensor().unwrap().shape(), [5, 0]);
}

#[test]
fn columns_of_another_dtype_or_layout_are_refused() {
    let pool = BlockPool::new(1, None);
    let five = numbers(5);
    let (_, mut one) = block(&five, 10, &pool);
    let wide = Spec::new(five.field(), &Options::default().dtype(DType::Float64)).unwrap();
    assert!(append(&mut one, &five, &wide).is_err());
    let bytes = Int8Array::from(vec![1; 4]);
    let bytes = DeviceArray::from_arrow(&bytes, Arc::new(Field::new("b", bytes.data_type().clone(), true))).unwrap();
    let (_, mut other) = block(&bytes, 4, &pool);
    let spec = Spec::new(bytes.field(), &Options::default()).unwrap();
    append(&mut other, &bytes, &spec).unwrap();
    append(&mut one, &five, &Spec::new(five.field(), &Options::default()).unwrap()).unwrap();
    assert!(one.swap(0, &mut other, 0).is_err() && one.push(&mut other, 0).is_err());
    assert_eq!((one.rows(), other.rows()), (5, 4));
}

#[test]
fn rows_of_another_width_are_refused() {
    let pool = BlockPool::new(1, None);
    let batch = floats();
    let (_, both, mut wide) = matrix(&batch, None, &pool);
    let (spec, one, _) = matrix(&batch, Some(&["a".to_owned()]), &pool);
    assert!(wide.append_matrix(&spec, &one, 0, 1).is_err());
    assert!(!wide.append_all_valid(&both).unwrap(), "the rows are no bools");
    assert_eq!(wide.rows(), 0);

    let item = Arc::new(Field::new("item", DataType::Int8, true));
    let pairs = FixedSizeListArray::new(item, 2, Arc::new(Int8Array::from(vec![1, 2])), None);
    let pairs = DeviceArray::from_arrow(&pairs, Arc::new(Field::new("x", pairs.data_type().clone(), true))).unwrap();
    let bytes = Int8Array::from(vec![1]);
    let bytes = DeviceArray::from_arrow(&bytes, Arc::new(Field::new("x", DataType::Int8, true))).unwrap();
    let (of_pairs, mut values) = block(&pairs, 1, &pool);
    let of_bytes = Spec::new(bytes.field(), &Options::default()).unwrap();
    assert!(append(&mut values, &bytes, &of_bytes).is_err());
    let leaf = bytes.view().leaf(&of_bytes).unwrap();
    let chunk = ColumnChunk { mask: None, leaf, array: &bytes };
    let mut valid = RowBlock::new(Arc::new(RowLayout::of_validity(&of_pairs).unwrap()));
    valid.move_to(pool.take(2).unwrap()).unwrap();
    assert!(valid.append_validity(&chunk).is_err(), "one bool of two");
    let (_, mut one) = block(&bytes, 1, &pool);
    assert!(one.append_validity(&chunk).is_err(), "bytes are no bools");
    assert_eq!([values.rows(), valid.rows(), one.rows()], [0; 3]);
}
