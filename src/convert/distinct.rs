//! Visits the values that the rows of a column have: those of runs and dictionaries once, and only if a row has them.

use arrow_data::ArrayData;
use arrow_schema::DataType;

use super::codes::Codes;
use super::repeat::{RowMap, Runs, child};
use super::rounds::{LOOK_UP, in_rounds};
use crate::alloc::fallible;
use crate::arrow::DeviceArray;
use crate::categories::{Key, Slots, Visit, visit};
use crate::error::{Error, Result, catch_panic};

/// What takes a value.
type Add<'a> = dyn FnMut(Key<'_>) -> Result<()> + 'a;

/// Calls `add` with each value of the rows of an array in host memory; not with nulls.
///
/// # Errors
/// If the contents break the Arrow format, or the type has no values that can be categories; those of `add`.
pub(crate) fn each_value(array: &DeviceArray, add: &mut Add<'_>) -> Result<()> {
    if array.is_empty() {
        return Ok(());
    }
    // Runs have no bitmap for the nulls of enclosing structs.
    let (own, enclosing) = match array.field().data_type() {
        DataType::RunEndEncoded(_, _) => array.split_inherited()?,
        _ => (array.clone(), None),
    };
    let mut used = None;
    if let Some(mask) = enclosing {
        let mut seen = fallible::with_room(array.len())?;
        seen.extend((0..array.len()).map(|row| mask.is_valid(row)));
        used = Some(seen);
    }
    let data = own.to_arrow_unlogged()?.to_data();
    let visited = catch_panic(|| each_used(&data, used.as_deref(), add));
    visited.map_err(|error| error.in_column(array.field().name()))
}

/// As [`each_value`], of the slots of a valid array that are `used`; all without these.
fn each_used(data: &ArrayData, used: Option<&[bool]>, add: &mut Add<'_>) -> Result<()> {
    let broken = || Error::invalid("an array has fewer values than slots");
    let child_data = |index: usize| data.child_data().get(index).ok_or_else(broken);
    match data.data_type() {
        DataType::Dictionary(_, _) => {
            let values = child_data(0)?;
            each_used(values, Some(&mapped(values.len(), &Codes(data), used)?), add)
        }
        DataType::RunEndEncoded(_, _) => {
            let values = child_data(1)?;
            each_used(values, Some(&mapped(values.len(), &Runs(data), used)?), add)
        }
        DataType::FixedSizeList(_, size) => {
            let size = usize::try_from(*size).map_err(|_| broken())?;
            let items = child(data, size)?;
            let is_used = |list: usize| is_set(used, list) && data.nulls().is_none_or(|nulls| nulls.is_valid(list));
            let mut seen = fallible::with_room(items.len())?;
            seen.extend((0..data.len()).flat_map(|list| std::iter::repeat_n(is_used(list), size)));
            each_used(&items, Some(&seen), add)
        }
        _ => visit(data, AddAll { data, used, add })
            .unwrap_or_else(|| Err(Error::unsupported(format!("values of {} cannot be categories", data.data_type())))),
    }
}

fn is_set(used: Option<&[bool]>, slot: usize) -> bool {
    used.is_none_or(|used| used.get(slot).copied().unwrap_or(false))
}

/// Which of so many values the rows that are used map to.
fn mapped(values: usize, rows: &impl RowMap, used: Option<&[bool]>) -> Result<Vec<bool>> {
    let mut seen = fallible::with_room(values)?;
    seen.extend(std::iter::repeat_n(false, values));
    let mut row = 0_usize;
    rows.for_each(&(0..rows.len()), |slot, count| {
        let own = row..row.saturating_add(count);
        row = own.end;
        if let Some(seen) = slot.and_then(|slot| seen.get_mut(slot)) {
            *seen = *seen || own.into_iter().any(|row| is_set(used, row));
        }
    });
    Ok(seen)
}

struct AddAll<'a, 'b> {
    data: &'a ArrayData,
    used: Option<&'a [bool]>,
    add: &'a mut Add<'b>,
}

impl Visit for AddAll<'_, '_> {
    type Out = Result<()>;

    fn visit<'a>(self, slots: impl Slots<'a>) -> Result<()> {
        let lead_out = || Error::invalid("offsets or views lead out of the values");
        let is_valid = |slot: usize| self.data.nulls().is_none_or(|nulls| nulls.is_valid(slot));
        in_rounds(self.data.len(), LOOK_UP, |mut rows| {
            rows.try_for_each(|slot| match is_set(self.used, slot) && is_valid(slot) {
                true => (self.add)(slots.key(slot).ok_or_else(lead_out)?),
                false => Ok(()),
            })
        })
    }
}
