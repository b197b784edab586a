//! Asks the system for the size of its pages: 4 KiB on x86-64, 16 or 64 KiB on some AArch64 machines.

/// Returns the bytes of a page.
pub(crate) fn page_size() -> usize {
    #[cfg(unix)]
    {
        static ASKED: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        *ASKED.get_or_init(|| {
            // SAFETY: reads a number of the system, and has no conditions.
            let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
            usize::try_from(bytes).ok().filter(|bytes| bytes.is_power_of_two()).unwrap_or(LARGEST)
        })
    }
    #[cfg(not(unix))]
    LARGEST
}

/// The largest page of the systems that say nothing: a multiple of all smaller ones.
const LARGEST: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    #[cfg_attr(miri, ignore = "Miri unmaps no parts of what was mapped")]
    fn the_system_has_pages_of_that_size() {
        let page = page_size();
        assert!(page.is_power_of_two() && page >= 4 << 10, "{page}");
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: fresh memory, wherever the system has room.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), 2 * page, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        assert!(start.addr().is_multiple_of(page));
        // SAFETY: mapped above, and not used. The system unmaps from the start of a page only.
        assert_eq!(unsafe { libc::munmap(start.cast::<u8>().wrapping_add(page / 2).cast(), page) }, -1);
        // SAFETY: the second page of those, and then the first one: not used.
        assert_eq!(unsafe { libc::munmap(start.cast::<u8>().wrapping_add(page).cast(), page) }, 0);
        // SAFETY: the first page, which is still mapped and not used.
        assert_eq!(unsafe { libc::munmap(start, page) }, 0);
    }
}
