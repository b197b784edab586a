//! The C structs of DLPack and of the Arrow C data and device interfaces, and nothing else.
//!
//! Foreign enumerations are transparent integers with constants, never Rust enums: an unknown value from a newer
//! producer must be a value, not undefined behaviour. Sizes and offsets are asserted when the crate is compiled.

pub mod arrow_device;
pub mod dlpack;

/// Asserts size and field offsets of a C struct on 64-bit targets, at compile time.
macro_rules! assert_layout {
    ($type:ty, size = $size:expr, align = $align:expr, $($field:ident @ $offset:expr),+ $(,)?) => {
        #[cfg(target_pointer_width = "64")]
        const _: () = {
            assert!(size_of::<$type>() == $size);
            assert!(align_of::<$type>() == $align);
            $(assert!(std::mem::offset_of!($type, $field) == $offset);)+
        };
    };
}
pub(crate) use assert_layout;
