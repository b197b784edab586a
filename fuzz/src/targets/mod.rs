//! The fuzz targets by name. Bytes choose a valid structure and its faults, or options and data: any bytes are a case, and
//! a change of one byte is a change of one choice.

#![allow(unsafe_code, reason = "reads C structs as other libraries do")]
#![allow(clippy::expect_used, clippy::panic, reason = "a target that fails is a finding")]
#![allow(clippy::indexing_slicing, reason = "a target that fails is a finding")]
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "any number is a choice"
)]

mod choices;
mod differential;
mod loader;
mod options;
mod structs;
mod uses;

/// A target with its name.
pub(crate) type Target = (&'static str, fn(&[u8]));

/// Every target. Those of structs only import, so that they are quick; the others convert.
pub(crate) const ALL: &[Target] = &[
    ("arrow_array", structs::arrow_array),
    ("arrow_device", structs::arrow_device),
    ("arrow_schema", structs::arrow_schema),
    ("arrow_stream", structs::arrow_stream),
    ("dlpack", structs::dlpack),
    ("uses", uses::uses),
    ("conversions", uses::conversions),
    ("options", options::options),
    ("loader", loader::loader),
    ("differential", differential::differential),
];
