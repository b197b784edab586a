//! Makes errors of causes from elsewhere, and turns them into arrow-rs' errors and back.

use std::sync::Arc;

use arrow_schema::ArrowError;

use super::{Error, ErrorKind};

impl Error {
    /// Returns the error of a producer that failed with this cause, of the kind [`ErrorKind::Producer`]. Its reason is
    /// the cause's message, and its `source()` the cause.
    ///
    /// ```
    /// use std::error::Error as _;
    /// use arrow_dlpack::{Error, ErrorKind};
    ///
    /// let error = Error::producer(std::io::Error::other("no network"));
    /// assert_eq!((error.kind(), error.reason()), (ErrorKind::Producer, "no network"));
    /// assert!(error.source().is_some_and(|cause| cause.is::<std::io::Error>()));
    /// ```
    #[must_use]
    pub fn producer(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        let cause: Arc<dyn std::error::Error + Send + Sync> = Arc::from(cause.into());
        Self::new(ErrorKind::Producer, cause.to_string()).caused_by(cause)
    }
}

impl From<ArrowError> for Error {
    /// Keeps arrow-rs' error as the source. [`ArrowError::ExternalError`] becomes the error that it holds: an [`Error`]
    /// as it was, another cause as by [`Error::producer`].
    fn from(error: ArrowError) -> Self {
        let kind = match error {
            ArrowError::ExternalError(cause) => {
                return cause.downcast::<Self>().map_or_else(Self::producer, |own| *own);
            }
            ArrowError::MemoryError(_) | ArrowError::OffsetOverflowError(_) => ErrorKind::Memory,
            ArrowError::CastError(_) | ArrowError::ArithmeticOverflow(_) => ErrorKind::Cast,
            ArrowError::SchemaError(_) | ArrowError::CDataInterface(_) => ErrorKind::Invalid,
            ArrowError::InvalidArgumentError(_) => ErrorKind::Argument,
            ArrowError::NotYetImplemented(_) => ErrorKind::Unsupported,
            _ => ErrorKind::Producer,
        };
        Self::new(kind, error.to_string()).caused_by(Arc::new(error))
    }
}

impl From<Error> for ArrowError {
    /// Returns an [`ArrowError::ExternalError`] that holds the error, with its column, row, remedy and source.
    fn from(error: Error) -> Self {
        Self::ExternalError(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn an_error_returns_from_arrow_as_it_was() {
        let error = Error::new(ErrorKind::Null, "a null").at_row(3).in_column("x").remedy_is("fill it");
        assert_eq!(Error::from(ArrowError::from(error.clone())), error);
        let caused = Error::producer("no network");
        let back = Error::from(ArrowError::from(caused));
        assert_eq!(back.source().unwrap().to_string(), "no network");
    }

    #[test]
    fn an_error_of_arrow_is_kept_as_the_source() {
        let cause = |error: &Error| error.source().unwrap().downcast_ref::<ArrowError>().unwrap().to_string();
        for (error, kind) in [
            (ArrowError::MemoryError("m".to_owned()), ErrorKind::Memory),
            (ArrowError::CastError("m".to_owned()), ErrorKind::Cast),
            (ArrowError::SchemaError("m".to_owned()), ErrorKind::Invalid),
            (ArrowError::InvalidArgumentError("m".to_owned()), ErrorKind::Argument),
            (ArrowError::NotYetImplemented("m".to_owned()), ErrorKind::Unsupported),
            (ArrowError::ComputeError("m".to_owned()), ErrorKind::Producer),
            (ArrowError::ParquetError("m".to_owned()), ErrorKind::Producer),
        ] {
            let text = error.to_string();
            let error = Error::from(error);
            assert_eq!((error.kind(), error.reason(), cause(&error)), (kind, text.as_str(), text.clone()));
        }
        let external = ArrowError::ExternalError(Box::new(std::io::Error::other("no network")));
        let error = Error::from(external);
        assert_eq!((error.kind(), error.reason()), (ErrorKind::Producer, "no network"));
        assert!(error.source().unwrap().is::<std::io::Error>());
    }
}
