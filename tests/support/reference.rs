//! The definition of each conversion, one scalar after the other.

use arrow_array::{Array, BooleanArray, FixedSizeListArray};
use arrow_dlpack::Tensor;
use arrow_schema::{DataType, Field};

/// The bytes of an element; `None` where it is null.
pub(crate) type Element = Option<Vec<u8>>;

/// The elements of a column in the order of its storage, nulls of lists passed on to their items.
pub(crate) fn elements(field: &Field, array: &dyn Array) -> Vec<Element> {
    let bytes_of: Box<dyn Fn(usize) -> Vec<u8>> = match array.data_type() {
        DataType::FixedSizeList(item, _) => {
            let lists = array.as_any().downcast_ref::<FixedSizeListArray>().unwrap();
            let items = |row| {
                let items = elements(item, lists.value(row).as_ref());
                if lists.is_null(row) { vec![None; items.len()] } else { items }
            };
            return (0..lists.len()).flat_map(items).collect();
        }
        DataType::Boolean => {
            let bools = array.as_any().downcast_ref::<BooleanArray>().unwrap();
            Box::new(|row| vec![u8::from(bools.value(row))])
        }
        other => {
            let (width, data) = (other.primitive_width(), array.to_data());
            let is_bool8 = field.extension_type_name() == Some("arrow.bool8");
            Box::new(move |row| {
                let width = width.unwrap();
                let start = (data.offset() + row) * width;
                let bytes = &data.buffers()[0].as_slice()[start..start + width];
                if is_bool8 { vec![u8::from(bytes[0] != 0)] } else { bytes.to_vec() }
            })
        }
    };
    (0..array.len()).map(|row| array.is_valid(row).then(|| bytes_of(row))).collect()
}

/// How far each index of a shape is from the first element, in elements, row-major.
pub(crate) fn positions(shape: &[i64], strides: &[i64]) -> Vec<i64> {
    shape.iter().zip(strides).fold(vec![0], |outer, (extent, stride)| {
        outer.iter().flat_map(|position| (0..*extent).map(move |index| position + index * stride)).collect()
    })
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
