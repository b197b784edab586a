//! [`SelfCell`]: a value and another one that borrows from it, moved together.

use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// A type that borrows from its owner for some lifetime.
pub(crate) trait Borrower {
    /// The type, borrowing for `'a`.
    type Of<'a>;
}

/// An owner on the heap, and what borrows from it.
pub(crate) struct SelfCell<O: 'static, B: Borrower> {
    /// Initialised until `drop`. References in it would promise to be valid until the end of each function that the cell is passed to, and
    /// such a function may drop the cell, and the owner with it; `MaybeUninit` promises nothing of what is in it.
    borrower: MaybeUninit<B::Of<'static>>,
    owner: OnHeap<O>,
}

impl<O: 'static, B: Borrower> SelfCell<O, B> {
    /// Moves the owner to the heap, and makes what borrows from it.
    ///
    /// # Errors
    /// Those of `make`; the owner is dropped then.
    pub(crate) fn new<E>(owner: O, make: impl for<'a> FnOnce(&'a O) -> Result<B::Of<'a>, E>) -> Result<Self, E> {
        let owner = OnHeap(NonNull::from(Box::leak(Box::new(owner))));
        let borrower = MaybeUninit::new(make(owner.get())?);
        Ok(Self { borrower, owner })
    }

    /// Calls `work` with both. It serves every lifetime, so it lets no reference out, and puts none in.
    pub(crate) fn with<'s, R>(&'s self, work: impl for<'a> FnOnce(&'a O, &'s B::Of<'a>) -> R) -> R {
        // SAFETY: `new` initialised the borrower, and only `drop` takes it out.
        work(self.owner.get(), unsafe { self.borrower.assume_init_ref() })
    }

    /// As [`SelfCell::with`], for work that changes the borrower.
    pub(crate) fn with_mut<'s, R>(&'s mut self, work: impl for<'a> FnOnce(&'a O, &'s mut B::Of<'a>) -> R) -> R {
        // SAFETY: `new` initialised the borrower, and only `drop` takes it out.
        work(self.owner.get(), unsafe { self.borrower.assume_init_mut() })
    }
}

impl<O: 'static, B: Borrower> Drop for SelfCell<O, B> {
    fn drop(&mut self) {
        // SAFETY: `new` initialised the borrower, and this runs once. The owner, which the borrower may still read, is dropped afterwards,
        // as fields are.
        unsafe { self.borrower.assume_init_drop() };
    }
}

impl<O: fmt::Debug, B: Borrower> fmt::Debug for SelfCell<O, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SelfCell").field("owner", self.owner.get()).finish_non_exhaustive()
    }
}

/// A value on the heap that stays where it is while this is moved, as a `Box`, which claims to be its only user, need not.
struct OnHeap<O: 'static>(NonNull<O>);

impl<O> OnHeap<O> {
    /// The value, for a lifetime that ends in this file only: [`SelfCell`] hands it to work for every lifetime, and drops the borrower
    /// before the value.
    fn get(&self) -> &'static O {
        // SAFETY: `SelfCell::new` leaked a box here, which is aligned, initialised and freed by `drop` alone; nobody has a
        // mutable reference to it. The reference ends before `drop`: the borrower is dropped before, and `work` keeps none.
        unsafe { self.0.as_ref() }
    }
}

impl<O> Drop for OnHeap<O> {
    fn drop(&mut self) {
        // SAFETY: the pointer came from `Box::leak`, and this is the only call that takes the box back.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: the value is owned as by a `Box`, which is `Send` if the value is.
unsafe impl<O: Send> Send for OnHeap<O> {}
// SAFETY: a shared reference only gives shared references to the value, which is `Sync`.
unsafe impl<O: Sync> Sync for OnHeap<O> {}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct Words;

    impl Borrower for Words {
        type Of<'a> = Vec<&'a str>;
    }

    struct Watched<'a>(&'a Arc<str>);

    impl Drop for Watched<'_> {
        fn drop(&mut self) {
            assert!(self.0.starts_with("own"), "the owner is there while the borrower is dropped");
        }
    }

    struct Watches;

    impl Borrower for Watches {
        type Of<'a> = Watched<'a>;
    }

    #[test]
    fn both_are_moved_and_changed_together() {
        let cell = SelfCell::<String, Words>::new("one two".to_owned(), |text| Ok::<_, ()>(text.split(' ').collect()));
        let mut moved = std::thread::spawn(move || cell.unwrap()).join().unwrap();
        moved.with_mut(|text, words| words.extend(text.get(..3)));
        assert_eq!(moved.with(|_, words| words.join("+")), "one+two+one");
        assert!(format!("{moved:?}").contains("one two"));
    }

    #[test]
    fn the_owner_is_dropped_last_and_after_an_error() {
        let owner: Arc<str> = "owner".into();
        let cell = SelfCell::<Arc<str>, Watches>::new(owner.clone(), |owner| Ok::<_, ()>(Watched(owner)));
        assert_eq!(Arc::strong_count(&owner), 2);
        drop(cell);
        assert!(SelfCell::<Arc<str>, Watches>::new(owner.clone(), |_| Err(())).is_err());
        assert_eq!(Arc::strong_count(&owner), 1);
    }
}
