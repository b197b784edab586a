//! `setters!`: writes the methods that set a field and return the whole value.

/// Writes, for each row `visibility field: Argument`, the method of the field's name that sets it. The argument is the field's type, or
/// becomes it.
macro_rules! setters {
    ($owner:ident: $($(#[$doc:meta])* $visibility:vis $field:ident: $argument:ty;)*) => {$(
        #[doc = concat!("Sets [`", stringify!($owner), "::", stringify!($field), "`].")]
        $(#[$doc])*
        #[must_use]
        $visibility fn $field(mut self, $field: $argument) -> Self {
            self.$field = $field.into();
            self
        }
    )*};
}
pub(crate) use setters;
