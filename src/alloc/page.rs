//! Asks the system for the size of its pages: 4 KiB on x86-64, 16 or 64 KiB on some AArch64 machines.

/// Returns the bytes of a page.
pub(crate) fn page_size() -> usize {
    #[cfg(test)]
    if let Some(bytes) = injected::page_size() {
        return bytes;
    }
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

/// Pages of other machines, for the tests of one thread.
#[cfg(test)]
pub(crate) mod injected {
    use std::cell::Cell;
    #[cfg(all(target_os = "linux", not(miri)))]
    use std::ptr::NonNull;

    /// Of usual kernels for x86-64 and AArch64.
    pub(crate) const SIZES: [usize; 3] = [4 << 10, 16 << 10, 64 << 10];

    thread_local! {
        static INJECTED: Cell<Option<usize>> = const { Cell::new(None) };
    }

    pub(in crate::alloc) fn page_size() -> Option<usize> {
        INJECTED.get()
    }

    /// Maps memory that starts on such a page, as a system does that has them.
    #[cfg(all(target_os = "linux", not(miri)))]
    pub(in crate::alloc) fn on_a_page(
        page: usize,
        size: usize,
        map: impl Fn(usize) -> Option<NonNull<u8>>,
    ) -> Option<NonNull<u8>> {
        let whole = size.checked_next_multiple_of(page)?;
        let all = map(whole.checked_add(page)?)?;
        let before = all.addr().get().wrapping_neg() % page;
        let start = NonNull::new(all.as_ptr().wrapping_add(before))?;
        let cut = |from: NonNull<u8>, bytes: usize| {
            // SAFETY: what lies before or behind those pages, of the memory that was just mapped.
            unsafe { libc::munmap(from.as_ptr().cast(), bytes) };
        };
        cut(all, before);
        cut(NonNull::new(start.as_ptr().wrapping_add(whole))?, page - before);
        Some(start)
    }

    /// Runs the work as on a system with pages of so many bytes. Work on other threads still asks the system.
    pub(crate) fn with<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
        struct Restored(Option<usize>);
        impl Drop for Restored {
            fn drop(&mut self) {
                INJECTED.set(self.0);
            }
        }
        let _restored = Restored(INJECTED.replace(Some(bytes)));
        work()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_size_can_be_injected_into_the_work_of_a_thread() {
        let system = page_size();
        for page in injected::SIZES {
            let (here, elsewhere) =
                injected::with(page, || (page_size(), std::thread::spawn(page_size).join().unwrap()));
            assert_eq!((here, elsewhere, page_size()), (page, system, system));
        }
    }

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
