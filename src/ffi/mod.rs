//! The C structs of DLPack and of the Arrow C data, stream and device interfaces, and nothing else.

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
