//! Does each use of an array with up to three faults give the right data, or an error?

use super::choices::{BASES, Choices};
use crate::generator::exercise::{Place, Use, converse, exercise_as};

/// One use of an array of the host.
pub(super) fn uses(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let one = *choices.of(Use::all());
    let base = choices.of(&BASES);
    let wrongs = choices.wrongs(base.wrongs());
    let _ = exercise_as(&base.node, &wrongs, Place::CPU, &[one]);
}

/// An array as the type of another, both with faults.
pub(super) fn conversions(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let base = choices.of(&BASES);
    let wrongs = choices.wrongs(base.wrongs());
    let requested = choices.of(&BASES);
    let requested_wrongs = choices.wrongs(requested.wrongs());
    let _ = converse((&base.node, &wrongs), (&requested.node, &requested_wrongs));
}
