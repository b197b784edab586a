//! Structs of the C interfaces with up to three faults: are they refused, or read as the format says, and released once?

use std::sync::LazyLock;

use super::choices::{BASES, Choices};
use crate::generator::exercise::{Outcome, Place, Use, exercise_as, read_type};
use crate::generator::streams::{self, Flaw};
use crate::generator::tensors::{self, Description};
use crate::generator::wrong::What;

/// What happens to an array that was accepted: nothing but its release, or a little.
const USES: &[&[Use]] = &[&[], &[Use::Read], &[Use::Again], &[Use::Stream], &[Use::Convert(1)]];

/// An array of the host, with its schema.
pub(super) fn arrow_array(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let base = choices.of(&BASES);
    let wrongs = choices.wrongs(base.wrongs());
    let uses = choices.of(USES);
    let _ = exercise_as(&base.node, &wrongs, Place::CPU, uses);
}

/// An array of any device, with its schema.
pub(super) fn arrow_device(bytes: &[u8]) {
    static ODD: LazyLock<Vec<Place>> = LazyLock::new(Place::odd);
    let mut choices = Choices(bytes);
    let base = choices.of(&BASES);
    let mut place = *choices.of(&ODD);
    match choices.byte() % 5 {
        1 => place.device_id = choices.number(),
        2 => place.sync_event = choices.number() as usize,
        3 => place.reserved = choices.number(),
        _ => {}
    }
    let wrongs = choices.wrongs(base.wrongs());
    let uses = choices.of(USES);
    let _ = exercise_as(&base.node, &wrongs, place, uses);
}

/// A schema without an array.
pub(super) fn arrow_schema(bytes: &[u8]) {
    let mut choices = Choices(bytes);
    let base = choices.of(&BASES);
    let mut wrongs = choices.wrongs(base.in_schema());
    // A format or a name of the fuzzer's own.
    if let Some(wrong) = wrongs.last_mut() {
        match choices.byte() % 4 {
            1 => wrong.what = What::Format(Some(choices.text(24))),
            2 => wrong.what = What::Name(Some(choices.text(24))),
            3 => wrong.what = What::Flags(choices.number()),
            _ => {}
        }
    }
    let _ = read_type(&base.node, &wrongs);
}

/// A stream of the host or of a device, with flaws of its own, of its schema and of its batches.
pub(super) fn arrow_stream(bytes: &[u8]) {
    static OWN: LazyLock<Vec<Flaw>> = LazyLock::new(streams::flaws);
    let mut choices = Choices(bytes);
    let base = choices.of(&BASES);
    let on_device = choices.chance(2);
    let mut flaws: Vec<Flaw> = (0..choices.below(4))
        .map(|_| match choices.byte() % 3 {
            0 => choices.of(&OWN).clone(),
            1 => Flaw::Schema(choices.wrong(base.wrongs())),
            _ => Flaw::Batch(choices.below(3), choices.wrong(base.wrongs())),
        })
        .collect();
    let one = *choices.of(streams::Use::ALL);
    // Most cases need no third batch.
    flaws.push(Flaw::Batches(3 - choices.below(4)));
    let _ = streams::exercise_as(&base.node, &flaws, on_device, &[one], &mut Outcome::default());
}

/// A managed tensor, versioned or legacy.
pub(super) fn dlpack(bytes: &[u8]) {
    static TENSORS: LazyLock<Vec<(Description, Vec<tensors::Flaw>)>> =
        LazyLock::new(|| Description::bases().into_iter().map(|base| (base.clone(), base.flaws())).collect());
    let mut choices = Choices(bytes);
    let (base, all) = choices.of(&TENSORS);
    let versioned = !choices.chance(2);
    let mut description = base.clone();
    for _ in 0..choices.below(4) {
        let flaw = choices.of(all).clone();
        description.apply(&if choices.chance(2) { flaw.with_number(choices.number()) } else { flaw });
    }
    let one = *choices.of(tensors::Use::ALL);
    let _ = tensors::exercise_as(&description, versioned, &[one], &mut Outcome::default());
}
