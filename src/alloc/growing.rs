//! A host buffer that grows without a copy once it is large.

use std::mem::MaybeUninit;

use super::block::HUGE_PAGES_FROM;
use super::fallible::out_of_memory;
use super::{HostBuffer, mapped};
use crate::error::Result;

/// A block that is written from its start to its end, and whose size is not known in advance.
#[derive(Debug)]
pub(crate) struct GrowingBuffer {
    memory: HostBuffer,
    written: usize,
}

impl GrowingBuffer {
    /// No bytes yet.
    ///
    /// # Errors
    /// Never.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { memory: HostBuffer::uninitialised(0)?, written: 0 })
    }

    /// How many bytes were written.
    pub(crate) fn len(&self) -> usize {
        self.written
    }

    /// Returns room for `bytes` more, behind the written ones.
    ///
    /// # Errors
    /// If the allocation fails. Nothing changes then.
    pub(crate) fn spare(&mut self, bytes: usize) -> Result<&mut [MaybeUninit<u8>]> {
        let refused = || out_of_memory(bytes);
        let end = self.written.checked_add(bytes).ok_or_else(refused)?;
        if end > self.memory.len() {
            self.grow(end)?;
        }
        self.memory.as_uninit_mut().get_mut(self.written..end).ok_or_else(refused)
    }

    /// Counts bytes of [`GrowingBuffer::spare`] as written.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.written = self.written.saturating_add(bytes).min(self.memory.len());
    }

    /// Returns the written bytes, without the room behind them.
    ///
    /// # Errors
    /// If the memory for a copy of a small block cannot be allocated.
    pub(crate) fn into_buffer(mut self) -> Result<HostBuffer> {
        if self.written == 0 {
            return HostBuffer::uninitialised(0);
        }
        let unused = self.memory.len() - self.written;
        if self.memory.len() < HUGE_PAGES_FROM && unused > self.written / 8 {
            self.move_to(HostBuffer::uninitialised(self.written)?);
        }
        mapped::truncate(&mut self.memory, self.written);
        Ok(self.memory)
    }

    /// Makes room for `needed` bytes in all, and for some more if possible.
    fn grow(&mut self, needed: usize) -> Result<()> {
        let present = self.memory.len();
        // Small blocks are copied, so they grow faster. At most an eighth of a large block may stay unused.
        let step = if needed < HUGE_PAGES_FROM { present.clamp(1 << 12, HUGE_PAGES_FROM) } else { present / 8 };
        let roomy = needed.max(present.saturating_add(step));
        if roomy >= HUGE_PAGES_FROM && mapped::grow(&mut self.memory, self.written, roomy, needed)? {
            return Ok(());
        }
        let memory = HostBuffer::uninitialised(roomy).or_else(|_| HostBuffer::uninitialised(needed))?;
        self.move_to(memory);
        Ok(())
    }

    /// Copies the written bytes to another block, which has room for them.
    fn move_to(&mut self, mut memory: HostBuffer) {
        let from = self.memory.as_uninit_mut().get(..self.written);
        if let (Some(to), Some(from)) = (memory.as_uninit_mut().get_mut(..self.written), from) {
            to.copy_from_slice(from);
        }
        self.memory = memory;
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::HUGE_PAGE;
    use super::*;
    use crate::error::ErrorKind;

    /// Bytes that rise by one from each to the next: `value` is that of place 0.
    fn rising(value: u8, from: usize, len: usize) -> Vec<u8> {
        let first = value.wrapping_add(from.to_le_bytes()[0]);
        let turn: Vec<u8> = (0..=u8::MAX).map(|step| first.wrapping_add(step)).collect();
        let mut bytes = turn.repeat(len.div_ceil(turn.len()));
        bytes.truncate(len);
        bytes
    }

    fn append(buffer: &mut GrowingBuffer, bytes: usize, value: u8) {
        let written = rising(value, buffer.len(), bytes);
        let spare = buffer.spare(bytes).unwrap();
        assert_eq!(spare.len(), bytes);
        // SAFETY: there is room for these bytes, which are elsewhere.
        unsafe { spare.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(written.as_ptr(), bytes) };
        buffer.advance(bytes);
    }

    fn check(buffer: &HostBuffer, len: usize, value: u8) {
        assert_eq!((buffer.len(), buffer.as_ptr().addr() % super::super::ALIGNMENT), (len, 0));
        // SAFETY: `append` wrote every byte.
        let found = unsafe { std::slice::from_raw_parts(buffer.as_ptr(), len) };
        assert!(found == rising(value, 0, len), "{len} bytes from {value} on");
    }

    #[test]
    fn what_was_written_stays_while_the_block_grows() {
        for pieces in [
            &[][..],
            &[1],
            &[64, 1, 5000],
            &[HUGE_PAGES_FROM],
            &[100, HUGE_PAGES_FROM, 7],
            &[HUGE_PAGES_FROM / 4; 21],
            &[HUGE_PAGES_FROM - 1, 1, 1],
            // What is not used of a block that is not mapped goes beyond the huge page that the last byte is in.
            &[HUGE_PAGE / 2 + HUGE_PAGE / 32, HUGE_PAGE / 2 - HUGE_PAGE / 32],
        ] {
            for value in 0..2 {
                let mut buffer = GrowingBuffer::new().unwrap();
                pieces.iter().for_each(|bytes| append(&mut buffer, *bytes, value));
                let len = pieces.iter().sum();
                assert_eq!(buffer.len(), len);
                check(&buffer.into_buffer().unwrap(), len, value);
            }
        }
    }

    #[test]
    fn large_blocks_have_little_room_that_is_not_used() {
        let mut buffer = GrowingBuffer::new().unwrap();
        for _ in 0..40 {
            append(&mut buffer, HUGE_PAGES_FROM / 4, 0);
            let written = buffer.len();
            assert!(
                written < 2 * HUGE_PAGES_FROM || buffer.memory.len() <= written + written / 7 + HUGE_PAGES_FROM,
                "{written}"
            );
        }
        let (memory, written) = (buffer.memory.layout.size(), buffer.len());
        assert!(memory >= written);
        let allocated = buffer.into_buffer().unwrap().layout.size();
        // On other systems nothing is mapped, so no pages can be returned.
        if cfg!(all(target_os = "linux", not(miri))) {
            assert!(allocated <= written.next_multiple_of(HUGE_PAGE));
        }
    }

    #[test]
    fn no_more_is_written_than_there_is_room_for() {
        let mut buffer = GrowingBuffer::new().unwrap();
        buffer.spare(100).unwrap();
        buffer.advance(usize::MAX);
        assert_eq!(buffer.len(), buffer.memory.len());
    }

    #[test]
    fn memory_that_cannot_be_had_is_an_error_that_changes_nothing() {
        let mut buffer = GrowingBuffer::new().unwrap();
        append(&mut buffer, HUGE_PAGES_FROM + 5, 3);
        for bytes in [usize::MAX, usize::MAX / 2, 1 << 55] {
            assert_eq!(buffer.spare(bytes).unwrap_err().kind(), ErrorKind::Memory);
        }
        append(&mut buffer, HUGE_PAGES_FROM, 3);
        check(&buffer.into_buffer().unwrap(), 2 * HUGE_PAGES_FROM + 5, 3);
    }
}
