//! What the driver says about a pointer.

use crate::block::{Block, Origin, Place};
use crate::error::{Error, Outcome};
use crate::state::State;

/// `CU_DEVICE_INVALID`.
const NO_DEVICE: u64 = -2_i64 as u64;

/// The answer to one question about a pointer, and how many bytes it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) value: u64,
    pub(crate) bytes: usize,
}

fn long(value: u64) -> Answer {
    Answer { value, bytes: 8 }
}

fn short(value: u64) -> Answer {
    Answer { value, bytes: 4 }
}

/// What is said of memory that the driver does not know, where it answers at all.
pub(crate) fn unknown(attribute: u32) -> Outcome<Answer> {
    Ok(match attribute {
        1 | 3 | 4 | 7 | 11 | 12 | 17 | 18 | 19 | 20 => long(0),
        2 | 6 | 8 | 10 | 13 | 14 | 15 | 16 => short(0),
        9 => short(NO_DEVICE),
        _ => return Err(Error::INVALID_VALUE),
    })
}

/// One attribute of a pointer into reserved addresses. What is mapped there is of no context.
fn reserved_attribute(block: &Block, attribute: u32, pointer: u64) -> Outcome<Answer> {
    let mapping = block.mapping(pointer);
    let mapped = || mapping.ok_or(Error::INVALID_VALUE);
    Ok(match attribute {
        // The whole reservation, mapped or not.
        11 => long(block.base),
        12 => long(block.size),
        13 => short(u64::from(mapping.is_some())),
        1 => mapped().map(|_| long(0))?,
        2 => mapped().map(|_| short(2))?,
        3 => mapped().map(|_| long(pointer))?,
        6 | 8 | 10 | 14 | 15 => mapped().map(|_| short(0))?,
        7 => long(block.id),
        9 => short(mapped()?.device as u64),
        16 => mapped().map(|_| short(3))?,
        17 => mapped().map(|_| long(0))?,
        18 => long(mapped()?.range.end - mapped()?.range.start),
        19 | 20 => long(mapped()?.range.start),
        _ => return Err(Error::INVALID_VALUE),
    })
}

impl State {
    /// One attribute of the block that a pointer points into.
    pub(crate) fn pointer_attribute(&self, attribute: u32, pointer: u64) -> Outcome<Answer> {
        let block = self.memory.find_usable(pointer).ok_or(Error::INVALID_VALUE)?;
        if let Origin::Reserved(_) = block.origin {
            return reserved_attribute(block, attribute, pointer);
        }
        let on_host = matches!(block.place, Place::Pinned | Place::Registered);
        Ok(match attribute {
            // Memory of a pool is of no context.
            1 => long(if block.pool.is_none() { block.context as u64 } else { 0 }),
            // Host is 1, device 2. Managed memory counts as the device's.
            2 => short(if on_host { 1 } else { 2 }),
            3 => long(pointer),
            4 if block.place != Place::Device => long(pointer),
            4 => return Err(Error::INVALID_VALUE),
            6 => short(0),
            7 | 20 => long(block.id),
            8 => short(u64::from(block.place == Place::Managed)),
            9 => short(block.device as u64),
            10 => short(u64::from(
                block.place == Place::Device && block.pool.is_none() && matches!(block.origin, Origin::Driver),
            )),
            // Of memory that the driver has not allocated in this process it knows no range.
            11 | 12 if block.place == Place::Registered || matches!(block.origin, Origin::Imported { .. }) => {
                return Err(Error::INVALID_VALUE);
            }
            11 | 19 => long(block.base),
            12 | 18 => long(block.size),
            13 => short(1),
            14 | 15 => short(0),
            16 => short(3),
            17 => long(block.pool.unwrap_or(0) as u64),
            _ => return Err(Error::INVALID_VALUE),
        })
    }
}
