//! The definition of each conversion, one scalar after the other.

use arrow_array::{Array, BooleanArray, FixedSizeListArray};
use arrow_dlpack::Tensor;
use arrow_schema::{DataType, Field};

/// The bytes of an element; `None` where it is null.
pub(crate) type Element = Option<Vec<u8>>;

/// The elements of a column in the order of its storage, nulls of lists passed on to their items.
pub(crate) fn elements(field: &Field, array: &dyn Array) -> Vec<Element> {
    (0..array.len()).flat_map(|row| row_elements(field, array, row)).collect()
}

fn row_elements(field: &Field, array: &dyn Array, row: usize) -> Vec<Element> {
    match array.data_type() {
        DataType::FixedSizeList(item, _) => {
            let lists = array.as_any().downcast_ref::<FixedSizeListArray>().unwrap();
            let items = elements(item, lists.value(row).as_ref());
            if lists.is_null(row) { vec![None; items.len()] } else { items }
        }
        _ if array.is_null(row) => vec![None],
        DataType::Boolean => {
            vec![Some(vec![u8::from(array.as_any().downcast_ref::<BooleanArray>().unwrap().value(row))])]
        }
        other => {
            let (width, data) = (other.primitive_width().unwrap(), array.to_data());
            let start = (data.offset() + row) * width;
            let mut bytes = data.buffers()[0].as_slice()[start..start + width].to_vec();
            if field.extension_type_name() == Some("arrow.bool8") {
                bytes[0] = u8::from(bytes[0] != 0);
            }
            vec![Some(bytes)]
        }
    }
}

/// Every index of a shape, row-major.
pub(crate) fn indices(shape: &[i64]) -> Vec<Vec<i64>> {
    let Some((extent, rest)) = shape.split_first() else { return vec![Vec::new()] };
    let rest = indices(rest);
    (0..*extent).flat_map(|index| rest.iter().map(move |tail| [&[index], tail.as_slice()].concat())).collect()
}

/// How far each index of a shape is from the first element, in elements, row-major.
pub(crate) fn positions(shape: &[i64], strides: &[i64]) -> Vec<i64> {
    let position = |index: &Vec<i64>| index.iter().zip(strides).map(|(index, stride)| index * stride).sum();
    indices(shape).iter().map(position).collect()
}

/// The bytes of each element of a host tensor, read one by one in row-major order of its indices.
pub(crate) fn read(tensor: &Tensor) -> Vec<Vec<u8>> {
    assert!(tensor.device().is_cpu());
    let itemsize = tensor.dtype().itemsize();
    let start = tensor.as_ptr().cast_const();
    let element = |position: i64| {
        let first = start.wrapping_offset(position as isize * itemsize as isize);
        // SAFETY: an element of a host tensor, which the caller keeps alive.
        unsafe { std::slice::from_raw_parts(first, itemsize) }.to_vec()
    };
    positions(tensor.shape(), tensor.strides()).into_iter().map(element).collect()
}

/// The elements of each row of a matrix.
pub(crate) fn read_rows(matrix: &Tensor) -> Vec<Vec<Vec<u8>>> {
    let columns = matrix.shape()[1] as usize;
    read(matrix).chunks(columns.max(1)).map(<[Vec<u8>]>::to_vec).collect()
}

/// The bools of a tensor, in row-major order of its indices.
pub(crate) fn read_bools(tensor: &Tensor) -> Vec<bool> {
    assert_eq!(tensor.dtype(), arrow_dlpack::DType::Bool);
    read(tensor).iter().map(|byte| byte[0] == 1).collect()
}
