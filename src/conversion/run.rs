//! [`Run`]: how the last step of a conversion is run.

use crate::column::{Runner, run_here};
use crate::dtype::DType;

/// How the last step of a conversion is run, and what is known of the data beside its type.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a> {
    /// The dtype of results whose dtype is not asked for: that of a tensor of complex numbers.
    pub(crate) natural: Option<DType>,
    /// Whether all memory of the data was copied for this conversion alone.
    pub(crate) is_own: bool,
    /// Runs the step that moves the bytes.
    pub(crate) runner: &'a Runner<'a>,
}

impl Default for Run<'_> {
    fn default() -> Self {
        Self { natural: None, is_own: false, runner: &run_here }
    }
}
