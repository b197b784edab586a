//! `from!` and `try_from!`: conversions between types as tables; those of `try_from!` fail with [`Error`](super::Error).

/// Implements `From<Source> for Target` for each row `[generics] Source => Target, |value| made`.
macro_rules! from {
    ($($(#[$doc:meta])* [$($generics:tt)*] $source:ty => $target:ty, |$value:pat_param| $made:expr;)*) => {$(
        impl<$($generics)*> From<$source> for $target {
            $(#[$doc])*
            fn from($value: $source) -> Self {
                $made
            }
        }
    )*};
}

/// Implements `TryFrom<Source> for Target` for each row, as [`from`] does.
macro_rules! try_from {
    ($($(#[$doc:meta])* [$($generics:tt)*] $source:ty => $target:ty, |$value:ident| $made:expr;)*) => {$(
        impl<$($generics)*> TryFrom<$source> for $target {
            type Error = $crate::error::Error;

            $(#[$doc])*
            fn try_from($value: $source) -> $crate::error::Result<Self> {
                $made
            }
        }
    )*};
}
pub(crate) use {from, try_from};
