//! In which language does an error name the way out: Rust's or Python's?

use std::sync::atomic::{AtomicBool, Ordering};

/// Whose words a remedy uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "python"), allow(dead_code, reason = "nobody asks in Python without the feature"))]
pub(crate) enum Language {
    /// In types and methods of this crate.
    Rust,
    /// In keywords and functions of the package.
    Python,
}

/// Whether this process has the Python package.
static IN_PYTHON: AtomicBool = AtomicBool::new(false);

impl Language {
    /// Returns the language for messages of C streams, which do not tell their consumer.
    pub(crate) fn of_consumers() -> Self {
        if IN_PYTHON.load(Ordering::Relaxed) { Self::Python } else { Self::Rust }
    }

    /// Marks that this process has the Python package.
    #[cfg(feature = "python")]
    pub(crate) fn python_is_here() {
        IN_PYTHON.store(true, Ordering::Relaxed);
    }
}
