//! The definition of each conversion, one scalar after the other.

use arrow_array::{Array, BooleanArray, FixedSizeListArray};
use arrow_dlpack::Tensor;
use arrow_schema::{DataType, Field};

/// The bytes of an element; `None` where it is null.
pub(crate) type Element = Option<Vec<u8>>;

/// Shows the elements of a column in the order of its storage, nulls of lists passed on to their items.
pub(crate) fn each_element(field: &Field, array: &dyn Array, see: &mut dyn FnMut(Option<&[u8]>)) {
    match array.data_type() {
        DataType::FixedSizeList(item, _) => {
            let lists = array.as_any().downcast_ref::<FixedSizeListArray>().unwrap();
            for row in 0..lists.len() {
                let is_null = lists.is_null(row);
                each_element(item, lists.value(row).as_ref(), &mut |element| see(element.filter(|_| !is_null)));
            }
        }
        DataType::Boolean => {
            let bools = array.as_any().downcast_ref::<BooleanArray>().unwrap();
            for row in 0..bools.len() {
                see(bools.is_valid(row).then(|| [u8::from(bools.value(row))]).as_ref().map(<[u8; 1]>::as_slice));
            }
        }
        other => {
            let (width, data) = (other.primitive_width().unwrap(), array.to_data());
            let is_bool8 = field.extension_type_name() == Some("arrow.bool8");
            for (row, bytes) in
                data.buffers()[0].as_slice().chunks(width).skip(data.offset()).take(array.len()).enumerate()
            {
                let bytes = if is_bool8 { &[u8::from(bytes[0] != 0)] } else { bytes };
                see(array.is_valid(row).then_some(bytes));
            }
        }
    }
}

/// The elements that [`each_element`] shows.
pub(crate) fn elements(field: &Field, array: &dyn Array) -> Vec<Element> {
    let mut elements = Vec::new();
    each_element(field, array, &mut |element| elements.push(element.map(<[u8]>::to_vec)));
    elements
}

/// How far each index of a shape is from the first element, in elements, row-major.
pub(crate) fn positions(shape: &[i64], strides: &[i64]) -> Vec<i64> {
    shape.iter().zip(strides).fold(vec![0], |outer, (extent, stride)| {
        outer.iter().flat_map(|position| (0..*extent).map(move |index| position + index * stride)).collect()
    })
}

/// The bytes of the elements of a host tensor, read one by one in row-major order of its indices.
pub(crate) fn read_bytes(tensor: &Tensor) -> Vec<u8> {
    assert!(tensor.device().is_cpu());
    let itemsize = tensor.dtype().itemsize();
    let start = tensor.as_ptr().cast_const();
    let positions = positions(tensor.shape(), tensor.strides());
    let mut bytes = Vec::with_capacity(positions.len() * itemsize);
    for position in positions {
        let first = start.wrapping_offset(position as isize * itemsize as isize);
        // SAFETY: an element of a host tensor, which the caller keeps alive.
        bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(first, itemsize) });
    }
    bytes
}

/// As [`read_bytes`], the bytes of each element.
pub(crate) fn read(tensor: &Tensor) -> Vec<Vec<u8>> {
    read_bytes(tensor).chunks(tensor.dtype().itemsize()).map(<[u8]>::to_vec).collect()
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
