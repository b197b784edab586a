//! Decodes items of padded rows on their device, before they are padded: into scratch memory, by the kernels for columns.

use super::source::KernelSource;
use super::{Check, Shape, check_source, run};
use crate::arrow::Leaf;
use crate::cuda::{Current, DeviceBuffer, Stream};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::spec::{Element, Spec};
use crate::stream_order::{Readiness, allocate_scratch};
use crate::transfer::host_address;

/// The items of a chunk of padded rows, and how they are decoded first.
#[derive(Debug)]
pub(crate) struct PaddedItems {
    source: KernelSource,
    decoding: Option<Decoding>,
}

/// What is gathered for the items that rows show, into memory with room for all items up to the last of these.
#[derive(Debug)]
struct Decoding {
    /// The elements before the first one that is gathered. They are zero.
    before: usize,
    /// The values of a dictionary or of runs, as integers of their size or as bools; `None` if the items are codes.
    values: Option<(KernelSource, DType)>,
    /// Which elements are valid; `None` if the items' own bitmaps tell.
    validity: Option<KernelSource>,
}

/// Where items are decoded.
#[derive(Clone, Copy)]
pub(super) struct Decoder<'a> {
    pub(super) current: &'a Current,
    pub(super) readiness: &'a Readiness,
    pub(super) stream: Stream,
}

/// Returns whether the items of a spec are decoded before they are padded: their values, or which of their codes stand for a null.
pub(crate) fn decodes_items(spec: &Spec) -> bool {
    spec.decoded().is_some() || spec.has_codes()
}

impl PaddedItems {
    /// Returns the items up to the last one that a row shows; `shown` has only those from the first such item on. `None` if there is no
    /// kernel.
    pub(crate) fn new(spec: &Spec, items: &Leaf<'_>, shown: &Leaf<'_>) -> Option<Self> {
        if !decodes_items(spec) {
            return KernelSource::new(spec, items).map(|source| Self { source, decoding: None });
        }
        let source = KernelSource::of_items(spec, items)?;
        let before = items.elements.checked_sub(shown.elements)?;
        let stored = match spec.element().stored_bytes() {
            _ if spec.element() == Element::Bits => DType::Bool,
            1 => DType::UInt8,
            2 => DType::UInt16,
            4 => DType::UInt32,
            8 => DType::UInt64,
            _ => return None,
        };
        let values = match spec.decoded() {
            Some(_) => Some((KernelSource::stored_values(spec.element(), shown)?, stored)),
            None => None,
        };
        let validity = match shown.gathered_values()?.validity {
            Some(validity) => Some(KernelSource::value_validity(shown, validity)?),
            None => None,
        };
        Some(Self { source, decoding: Some(Decoding { before, values, validity }) })
    }

    /// Returns the items as kernels pad them, and the check of their codes or runs. Adds the memory that they lie in to `scratch`.
    ///
    /// # Errors
    /// As [`super::pack`].
    pub(super) fn decoded(
        self,
        decoder: Decoder<'_>,
        scratch: &mut Vec<DeviceBuffer>,
    ) -> Result<(KernelSource, Option<Check>)> {
        let Decoder { current, readiness, stream } = decoder;
        let Self { mut source, decoding } = self;
        check_source(readiness, current, &source)?;
        let Some(Decoding { before, values, validity }) = decoding else { return Ok((source, None)) };
        let (elements, mut check) = (source.elements, None);
        if let Some((values, dtype)) = values {
            let (buffer, found) = decoder.gathered(values, before, dtype)?;
            let start = host_address(buffer.start())?;
            source = source.holding(start..start.saturating_add(elements.saturating_mul(dtype.itemsize())));
            scratch.push(buffer);
            check = found;
        }
        if let Some(validity) = validity {
            let (bools, found) = decoder.gathered(validity, before, DType::Bool)?;
            let bytes = elements.div_ceil(8);
            let bits = allocate_scratch(current, bytes.max(1), stream)?;
            let packed = match elements {
                0 => Ok(()),
                // SAFETY: `gathered` has allocated a byte for each element in the order of `stream`, and written all of them there; the
                // bits were allocated in that order too, one for each. Both are freed behind the kernel, in stream order.
                _ => unsafe { current.pack_bits(bools.start(), elements as u64, bits.start(), stream) },
            };
            source = source.valid_by(host_address(bits.start())?, bytes);
            scratch.extend([bools, bits]);
            packed?;
            // Either pass finds the same codes and runs.
            check = check.or(found);
        }
        Ok((source, check))
    }
}

impl Decoder<'_> {
    /// Gathers elements into scratch memory behind `before` elements of zero, and returns the check of their codes or runs.
    fn gathered(self, source: KernelSource, before: usize, dtype: DType) -> Result<(DeviceBuffer, Option<Check>)> {
        let Self { current, readiness, stream } = self;
        check_source(readiness, current, &source)?;
        let shape = Shape { rows: source.elements, columns: 1, dtype, is_row_major: false };
        let too_large = || Error::new(ErrorKind::Memory, "the decoded items are larger than memory can be");
        let zeros = before.checked_mul(dtype.itemsize()).ok_or_else(too_large)?;
        let bytes = zeros.checked_add(shape.bytes()?).ok_or_else(too_large)?;
        let buffer = allocate_scratch(current, bytes.max(1), stream)?;
        if zeros > 0 {
            // SAFETY: the scratch memory was allocated in the order of `stream`, with room for `before` elements and those that follow.
            unsafe { current.set_memory(buffer.start(), 0, zeros, stream) }?;
        }
        if source.elements == 0 {
            return Ok((buffer, None));
        }
        let out = buffer.start().saturating_add(zeros as u64);
        let check = run(current, readiness, &[vec![source]], shape, (out, shape.dense()), stream)?;
        Ok((buffer, check))
    }
}
