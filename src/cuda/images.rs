//! Which image of the kernels does a device take: the cubin of its architecture, or the PTX that every driver compiles?

use crate::error::{Error, Result};

/// What `make cubins` packs: the length of the first stream (u32, little-endian), that stream (the index and the aligned cubins), and the
/// stream of the PTX.
#[cfg(feature = "cuda")]
const PACKED: &[u8] = include_bytes!("kernels.lzma");
/// The most memory that decoding may take beside the result, in KiB.
#[cfg(feature = "cuda")]
const MOST_KIB: u32 = 8 << 10;

/// What the start of each cubin is aligned to in its stream.
const ALIGNMENT: usize = 16;
/// Bytes of an entry of the index: the architecture, and the length of the image.
const ENTRY: usize = 8;
/// Bytes before the index: the number of its entries.
const COUNT: usize = 4;
/// The architecture of an entry for PTX.
const PTX: u32 = 0;

/// Images that are compressed together, as one stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ImageKind {
    /// Behind the index, and in its order.
    Cubin,
    Ptx,
}

/// The images of this build, in the order in which they are packed.
#[derive(Debug)]
pub(super) struct Images(Vec<Entry>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    /// Ten times the major compute capability, and the minor one.
    architecture: u32,
    /// Where it begins in its stream.
    start: usize,
    bytes: usize,
}

impl Images {
    /// Reads the index.
    ///
    /// # Errors
    /// If this build has no images, or memory is out.
    pub(super) fn index() -> Result<Self> {
        let count = decode(ImageKind::Cubin, COUNT)?;
        let entries = read_u32(&count, 0).and_then(|count| usize::try_from(count).ok());
        let room = entries.and_then(|entries| entries.checked_mul(ENTRY)).and_then(|bytes| bytes.checked_add(COUNT));
        let index = decode(ImageKind::Cubin, room.ok_or_else(broken)?)?;
        let mut end = index.len();
        let mut found = Vec::new();
        for entry in index.get(COUNT..).unwrap_or_default().chunks_exact(ENTRY) {
            let architecture = read_u32(entry, 0).ok_or_else(broken)?;
            let bytes = read_u32(entry, 4).and_then(|bytes| usize::try_from(bytes).ok()).ok_or_else(broken)?;
            let aligned = end.checked_next_multiple_of(ALIGNMENT).ok_or_else(broken)?;
            let start = if architecture == PTX { 0 } else { aligned };
            end = if architecture == PTX { end } else { start.checked_add(bytes).ok_or_else(broken)? };
            found.push(Entry { architecture, start, bytes });
        }
        Ok(Self(found))
    }

    /// Returns the cubin for a device of this compute capability: that of the same major one with the highest minor one that is
    /// not above it. `None` if this build has none.
    ///
    /// # Errors
    /// As [`Images::index`].
    pub(super) fn cubin(&self, (major, minor): (u32, u32)) -> Result<Option<Vec<u8>>> {
        let runs = |entry: &&Entry| entry.architecture / 10 == major && entry.architecture % 10 <= minor;
        let is_cubin = |entry: &&Entry| entry.architecture != PTX;
        let best = self.0.iter().filter(is_cubin).filter(runs).max_by_key(|entry| entry.architecture);
        best.map(|entry| image(*entry)).transpose()
    }

    /// Returns the PTX, which ends with a NUL.
    ///
    /// # Errors
    /// As [`Images::index`].
    pub(super) fn ptx(&self) -> Result<Vec<u8>> {
        image(*self.0.iter().find(|entry| entry.architecture == PTX).ok_or_else(broken)?)
    }
}

/// Decodes an image, and what is before it in its stream.
fn image(entry: Entry) -> Result<Vec<u8>> {
    let end = entry.start.checked_add(entry.bytes).ok_or_else(broken)?;
    let kind = if entry.architecture == PTX { ImageKind::Ptx } else { ImageKind::Cubin };
    let mut image = decode(kind, end)?;
    if image.len() != end {
        return Err(broken());
    }
    image.drain(..entry.start);
    Ok(image)
}

/// Decodes the first bytes of a stream, or all if that is fewer.
#[cfg(feature = "cuda")]
fn decode(kind: ImageKind, wanted: usize) -> Result<Vec<u8>> {
    use std::io::Read;

    use crate::alloc::fallible;

    let streams = PACKED.split_first_chunk::<COUNT>();
    let halves = streams
        .and_then(|(length, streams)| streams.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?));
    let (cubins, ptx) = halves.ok_or_else(broken)?;
    let packed = if kind == ImageKind::Ptx { ptx } else { cubins };
    let mut decoded = fallible::with_room(wanted)?;
    let reader = lzma_rust2::LzmaReader::new_mem_limit(packed, MOST_KIB, None);
    let most = u64::try_from(wanted).unwrap_or(u64::MAX);
    let read = reader.and_then(|reader| reader.take(most).read_to_end(&mut decoded));
    read.map_err(|error| Error::internal(format!("the kernels of this build cannot be decoded: {error}")))?;
    Ok(decoded)
}

/// Without the feature, no driver is loaded that could use kernels.
#[cfg(not(feature = "cuda"))]
fn decode(_kind: ImageKind, _wanted: usize) -> Result<Vec<u8>> {
    Err(Error::internal("this build has no kernels"))
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*four))
}

fn broken() -> Error {
    Error::internal("the index of the kernels of this build is broken")
}

#[cfg(test)]
#[cfg(feature = "cuda")]
#[cfg(not(miri))]
mod tests {
    use super::*;

    /// The architecture in the header of a cubin: in the lowest byte of the flags, and in the next one from ABI 8 on.
    fn architecture(cubin: &[u8]) -> u32 {
        assert!(cubin.starts_with(b"\x7fELF"));
        let flags = read_u32(cubin, 48).unwrap();
        if cubin[8] >= 8 { flags >> 8 & 0xff } else { flags & 0xff }
    }

    #[test]
    fn a_device_takes_the_cubin_of_its_major_capability() {
        let images = Images::index().unwrap();
        for (capability, expected) in [
            ((7, 0), None),
            ((7, 5), None),
            ((8, 0), Some(80)),
            ((8, 6), Some(80)),
            ((8, 9), Some(80)),
            ((9, 0), Some(90)),
            ((10, 0), Some(100)),
            ((10, 3), Some(100)),
            ((11, 0), None),
            ((12, 0), Some(120)),
            ((12, 1), Some(120)),
            ((13, 0), None),
        ] {
            let cubin = images.cubin(capability).unwrap();
            assert_eq!(cubin.as_deref().map(architecture), expected, "{capability:?}");
        }
    }

    #[test]
    fn a_cubin_of_a_higher_minor_capability_is_not_taken() {
        let images = Images(vec![Entry { architecture: 86, start: 0, bytes: 0 }]);
        assert_eq!(images.cubin((8, 0)).unwrap(), None);
        assert!(images.cubin((8, 9)).unwrap().is_some());
    }

    #[test]
    fn the_ptx_is_the_one_that_is_committed() {
        let mut committed = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/src/cuda/kernels.ptx")).unwrap();
        committed.push(0);
        assert!(Images::index().unwrap().ptx().unwrap() == committed, "run `make cubins`");
    }
}
