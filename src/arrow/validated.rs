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
pub(crate) struct Validated(RefCell<HashMap<(Checked, usize), ValidatedArray>>);

#[derive(Debug)]
struct ValidatedArray {
    array: ArrayData,
    /// Whether it was met since the last call of [`Validated::forget_others`].
    is_met: bool,
}

impl Validated {
    /// Returns whether an array of the same type was validated, over the same memory.
    pub(super) fn contains(&self, checked: Checked, array: &ArrayData) -> bool {
        let mut known = self.0.borrow_mut();
        let Some(known) = known.get_mut(&(checked, address(array))).filter(|known| known.array.ptr_eq(array)) else {
            return false;
        };
        if !known.is_met {
            // What kept the memory alive before may be released.
            *known = ValidatedArray { array: array.clone(), is_met: true };
        }
        true
    }

    /// Remembers that an array was validated.
    pub(super) fn insert(&self, checked: Checked, array: &ArrayData) {
        let mut known = self.0.borrow_mut();
        // Without memory for one more it is validated again.
        if known.try_reserve(1).is_ok() {
            known.insert((checked, address(array)), ValidatedArray { array: array.clone(), is_met: true });
        }
    }

    /// Lets go of arrays that were not met since the last call, for a stream whose arrays are released while it is read.
    pub(crate) fn forget_others(&self) {
        self.0.borrow_mut().retain(|_, known| std::mem::take(&mut known.is_met));
    }
}

/// Returns the address of the first buffer, of an array or of a child.
fn address(array: &ArrayData) -> usize {
    let of_children = || array.child_data().iter().map(address).find(|address| *address > 0);
    array.buffers().first().map(|buffer| buffer.as_ptr().addr()).or_else(of_children).unwrap_or(0)
}
