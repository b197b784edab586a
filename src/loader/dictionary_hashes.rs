//! Which hashes of dictionaries of codes are known?

/// The hashes of the dictionaries of codes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DictionaryHashes {
    /// Of all of them, once each column had one.
    pub(crate) all: Option<u64>,
    /// Of that of each column, once it had one. Empty in states of one column, and in those of earlier versions.
    pub(crate) each: Vec<Option<u64>>,
}

impl DictionaryHashes {
    /// Whether no dictionary is known.
    #[cfg(feature = "python")]
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_none() && self.each.iter().all(Option::is_none)
    }

    /// Adds those of other columns.
    pub(crate) fn add(&mut self, more: &Self) {
        self.all = self.all.or(more.all);
        if self.each.is_empty() {
            self.each.clone_from(&more.each);
        }
        self.each.iter_mut().zip(&more.each).for_each(|(own, more)| *own = own.or(*more));
    }
}
