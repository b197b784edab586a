//! Reads what the host has to know of columns on a device before they are converted.

use std::ops::Range;

use smallvec::SmallVec;

use crate::alloc::fallible;
use crate::arrow::{Leaf, Mask};
use crate::convert::{self, ColumnChunk};
use crate::error::{Error, ErrorKind, Result};
use crate::spec::{Element, Nulls, Spec};
use crate::stream_order::Readiness;
use crate::transfer::{HostRead, read_to_host};

/// The addresses of what the host has to know before it can say that a column is a view: bitmaps, where nulls are refused and
/// their number is not known, and bytes that have to be bools.
pub(crate) fn needed(spec: &Spec, leaf: &Leaf<'_>) -> SmallVec<[Range<usize>; 1]> {
    let mut ranges = SmallVec::new();
    if spec.nulls() == Nulls::Refused {
        ranges.extend(leaf.bitmaps());
    }
    if spec.element() == Element::Bool8 {
        ranges.push(leaf.element_bytes(spec.element()));
    }
    ranges
}

/// Reads which elements of a chunk on a device are null, where nulls are refused. `None` of host memory, whose bitmaps are read
/// already.
pub(crate) fn read_nulls<'a>(
    spec: &Spec,
    chunk: &ColumnChunk<'a>,
    host_read: Option<&HostRead>,
) -> Result<Option<Mask<'a>>> {
    match chunk.array.readiness() {
        Some(readiness) if spec.nulls() == Nulls::Refused => {
            mask(&chunk.leaf, readiness, host_read).map_err(|error| error.in_column(spec.field().name()))
        }
        _ => Ok(None),
    }
}

/// Which elements are null.
fn mask<'a>(leaf: &Leaf<'a>, readiness: &Readiness, host_read: Option<&HostRead>) -> Result<Option<Mask<'a>>> {
    if leaf.known_nulls() == Some(leaf.elements) {
        fallible::require(leaf.elements.div_ceil(8))?;
    }
    let ranges: SmallVec<[Range<usize>; 1]> = leaf.bitmaps().collect();
    let own = match host_read {
        Some(_) => None,
        None => Some(read_to_host(readiness, &ranges)?),
    };
    leaf.mask_read(|start, bytes| {
        let host_read = own.as_ref().or(host_read);
        host_read.map_or(Ok(Vec::new()), |host_read| host_read.require(start.addr(), bytes).and_then(fallible::copied))
    })
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
