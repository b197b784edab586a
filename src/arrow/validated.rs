//! [`Validated`]: which arrays a conversion has validated, so that it validates the values of many slices of one array once.

use std::cell::RefCell;
use std::collections::HashMap;

use arrow_data::ArrayData;

/// What was validated of an array.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Checked {
    /// Its contents, and those of its children.
    Contents,
    /// That it has ends of runs.
    RunEnds,
}

/// The children of arrays that one conversion has validated. Keeps them alive, so that no other array can take their addresses.
#[derive(Debug, Default)]
pub(crate) struct Validated(RefCell<HashMap<(Checked, usize), ArrayData>>);

impl Validated {
    /// Returns whether an array of the same type was validated, over the same memory.
    pub(super) fn contains(&self, checked: Checked, array: &ArrayData) -> bool {
        self.0.borrow().get(&(checked, address(array))).is_some_and(|known| known.ptr_eq(array))
    }

    /// Remembers that an array was validated.
    pub(super) fn insert(&self, checked: Checked, array: &ArrayData) {
        let mut known = self.0.borrow_mut();
        // Without memory for one more it is validated again.
        if known.try_reserve(1).is_ok() {
            known.insert((checked, address(array)), array.clone());
        }
    }
}

/// Returns the address of the first buffer, of an array or of a child.
fn address(array: &ArrayData) -> usize {
    let of_children = || array.child_data().iter().map(address).find(|address| *address > 0);
    array.buffers().first().map(|buffer| buffer.as_ptr().addr()).or_else(of_children).unwrap_or(0)
}
