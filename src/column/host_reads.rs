//! What has the host to know of columns on a device before they are converted?

use crate::alloc::fallible;
use crate::arrow::{Leaf, Mask};
use crate::convert::{self, ColumnChunk};
use crate::error::{Error, ErrorKind, Result};
use crate::spec::{Element, Nulls, Spec};
use crate::stream_order::Readiness;
use crate::transfer::{Facts, Unknowns};

/// Adds what the host has to know before it can say that a column is a view: whether anything is null, where nulls are refused
/// and their number is not known, and whether bytes are bools that have to be.
pub(crate) fn add_unknowns(unknowns: &mut Unknowns, spec: &Spec, leaf: &Leaf<'_>) {
    if spec.nulls() == Nulls::Refused {
        unknowns.add_bitmaps(leaf.bitmaps(spec.gathers()));
    }
    if spec.element() == Element::Bool8 {
        unknowns.add_bools(leaf.element_bytes(spec.element()));
    }
}

/// Finds which elements of a chunk on a device are null, where nulls are refused. `None` of host memory, whose bitmaps are read
/// already, and where nothing is null.
pub(crate) fn read_nulls<'a>(spec: &Spec, chunk: &ColumnChunk<'a>, facts: Option<&Facts>) -> Result<Option<Mask<'a>>> {
    match chunk.array.readiness() {
        Some(readiness) if spec.nulls() == Nulls::Refused => {
            mask(spec, &chunk.leaf, readiness, facts).map_err(|error| error.in_column(spec.field().name()))
        }
        _ => Ok(None),
    }
}

/// Which elements are null.
fn mask<'a>(spec: &Spec, leaf: &Leaf<'a>, readiness: &Readiness, facts: Option<&Facts>) -> Result<Option<Mask<'a>>> {
    if leaf.known_nulls() == Some(leaf.elements) {
        fallible::require(leaf.elements.div_ceil(8))?;
    }
    // Kernels look at the values that codes stand for.
    let are_gathered = spec.gathers();
    let own;
    let facts = match facts {
        Some(facts) => facts,
        None => {
            let mut unknowns = Unknowns::default();
            unknowns.add_bitmaps(leaf.bitmaps(are_gathered));
            own = unknowns.find(readiness)?;
            &own
        }
    };
    leaf.mask_read(are_gathered, |bits| facts.bits(&bits)?.map(fallible::copied).transpose())
}

/// As [`refuse_known`], of a leaf that is converted on its device, where codes of a dictionary with nulls are refused too.
pub(crate) fn refuse_known_on_device(spec: &Spec, leaf: &Leaf<'_>) -> Result<()> {
    if spec.nulls() == Nulls::Refused {
        let checked = leaf.refuse_counted_values(spec.gathers());
        checked.map_err(|error| error.in_column(spec.field().name()))?;
    }
    refuse_known(spec, leaf.known_nulls())
}

/// Refuses nulls that the arrays have counted, where the spec does.
pub(crate) fn refuse_known(spec: &Spec, nulls: Option<usize>) -> Result<()> {
    match (spec.nulls(), nulls) {
        (Nulls::Refused, Some(nulls)) if nulls > 0 => {
            let reason = format!("{nulls} null{}, which are refused", if nulls == 1 { "" } else { "s" });
            Err(Error::new(ErrorKind::Null, reason)
                .remedy_is(convert::null_remedy(spec))
                .in_column(spec.field().name()))
        }
        _ => Ok(()),
    }
}
