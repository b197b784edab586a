//! Are two arrays the same rows of the same memory?

use super::foreign::{buffer, child, dictionary};
use super::import::DeviceArray;
use super::view::{Leaf, LeafDictionary};
use crate::ffi::arrow_device::ArrowArray;

impl DeviceArray {
    /// Returns whether both are the same rows of the same memory, which is not read. Both are alive, so that no other values have taken
    /// the place of the one's.
    pub(crate) fn is_same_memory(&self, other: &Self) -> bool {
        let (one, other) = (self.view(), other.view());
        one.field.data_type() == other.field.data_type()
            && (one.offset, one.length) == (other.offset, other.length)
            && one.inherited.is_empty()
            && other.inherited.is_empty()
            && is_same(one.array, other.array)
    }
}

impl Leaf<'_> {
    /// Returns whether the codes of both stand for values in the same memory, which is not read.
    pub(crate) fn shares_dictionary(&self, other: &Leaf<'_>) -> bool {
        let (Some(LeafDictionary { array: one, .. }), Some(LeafDictionary { array: other, .. })) =
            (self.dictionary(), other.dictionary())
        else {
            return false;
        };
        is_same(one, other)
    }

    /// Returns whether there are no values that a code could stand for.
    pub(crate) fn has_empty_dictionary(&self) -> bool {
        self.dictionary().is_some_and(|dictionary| dictionary.array.length == 0)
    }
}

/// Returns whether checked arrays of one type are the same rows of the same buffers.
fn is_same(one: &ArrowArray, other: &ArrowArray) -> bool {
    if std::ptr::eq(one, other) {
        return true;
    }
    let counts = |array: &ArrowArray| (array.length, array.offset, array.n_buffers, array.n_children);
    let mut buffers =
        (0..).map(|index| (buffer(one, index), buffer(other, index))).take_while(|both| *both != (None, None));
    let mut children = (0..).map_while(|index| child(one, index).ok().zip(child(other, index).ok()));
    let has_same_dictionary = || match (dictionary(one), dictionary(other)) {
        (None, None) => true,
        (Some(one), Some(other)) => is_same(one, other),
        _ => false,
    };
    counts(one) == counts(other)
        && buffers.all(|(one, other)| one == other)
        && children.all(|(one, other)| is_same(one, other))
        && has_same_dictionary()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Array, ArrayRef, DictionaryArray, Int8Array, Int32Array, ListArray, StringArray, StructArray};
    use arrow_schema::Field;

    use crate::arrow::DeviceArray;
    use crate::spec::{DictionaryMode, Options, Spec};

    fn codes(values: ArrayRef) -> DeviceArray {
        let array = DictionaryArray::new(Int8Array::from(vec![0, 1, 1]), values);
        let field = Arc::new(Field::new("x", array.data_type().clone(), true));
        DeviceArray::from_arrow(&array, field).unwrap()
    }

    fn shares(one: &DeviceArray, other: &DeviceArray) -> bool {
        let options = Options::default().dictionary(DictionaryMode::Codes);
        let spec = Spec::new(one.field(), &options).unwrap();
        one.view().leaf(&spec).unwrap().shares_dictionary(&other.view().leaf(&spec).unwrap())
    }

    fn text(values: &[&str]) -> ArrayRef {
        Arc::new(StringArray::from(values.to_vec()))
    }

    #[test]
    fn only_the_same_rows_of_the_same_memory_are_shared() {
        let values = text(&["a", "b", "c"]);
        let one = codes(values.clone());
        assert!(shares(&one, &codes(values.clone())));
        assert!(shares(&one, &one.slice(1, 2).unwrap()));
        for other in [text(&["a", "b", "c"]), values.slice(0, 2), values.slice(1, 2)] {
            assert!(!shares(&one, &codes(other)));
        }
        assert!(!shares(&codes(values.slice(0, 2)), &codes(values.slice(1, 2))));
    }

    #[test]
    fn arrays_are_the_same_memory_if_they_are_the_same_rows() {
        let values = text(&["a", "b", "c"]);
        let array = |values: &ArrayRef| {
            let field = Arc::new(Field::new("", values.data_type().clone(), true));
            DeviceArray::from_arrow(values.as_ref(), field).unwrap()
        };
        let one = array(&values);
        assert!(one.is_same_memory(&one) && one.is_same_memory(&array(&values)));
        for other in [array(&text(&["a", "b", "c"])), one.slice(0, 2).unwrap(), one.text_as_bytes()] {
            assert!(!one.is_same_memory(&other) && !other.is_same_memory(&one));
        }
    }

    #[test]
    fn the_nulls_of_a_struct_make_other_rows_of_its_column() {
        let values = text(&["a", "b", "c"]);
        let column = |nulls: Option<Vec<bool>>| {
            let fields = vec![Field::new("a", values.data_type().clone(), true)];
            let rows = StructArray::new(fields.into(), vec![values.clone()], nulls.map(Into::into));
            let field = Arc::new(Field::new("", rows.data_type().clone(), true));
            DeviceArray::from_arrow(&rows, field).unwrap().column(0).unwrap()
        };
        let (bare, hidden) = (column(None), column(Some(vec![true, false, true])));
        assert!(bare.is_same_memory(&column(None)));
        assert!(!bare.is_same_memory(&hidden) && !hidden.is_same_memory(&bare));
    }

    #[test]
    fn values_have_children_and_dictionaries_of_their_own() {
        let lists = |items: ArrayRef| -> ArrayRef {
            let item = Arc::new(Field::new_list_field(items.data_type().clone(), true));
            let offsets = arrow_buffer::OffsetBuffer::new(vec![0, 1, 2].into());
            Arc::new(ListArray::new(item, offsets, items, None))
        };
        let items: ArrayRef = Arc::new(Int32Array::from(vec![5, 6]));
        let nested =
            |values: ArrayRef| -> ArrayRef { Arc::new(DictionaryArray::new(Int8Array::from(vec![0, 1]), values)) };
        let values = text(&["a", "b"]);
        let (list, inner) = (lists(items.clone()), nested(values));
        for (one, other, is_same) in [
            (list.clone(), list.clone(), true),
            (list, lists(items), false),
            (inner.clone(), inner.clone(), true),
            (inner, nested(text(&["a", "b"])), false),
        ] {
            assert_eq!(shares(&codes(one), &codes(other)), is_same);
        }
    }
}
