//! The driver's error codes that the simulator answers with, their names and texts.

use std::ffi::CStr;

/// A `CUresult` other than success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Error(pub(crate) u32);

/// What a driver call answers.
pub(crate) type Outcome<T = ()> = Result<T, Error>;

/// Declares each code once, as a constant and as a row of [`TABLE`].
macro_rules! codes {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        #[allow(dead_code, reason = "some are only injected, by number")]
        impl Error {
            $(pub(crate) const $name: Error = Error($code);)*
        }

        /// Code, name without its prefix, and text.
        const TABLE: &[(u32, &CStr, &CStr)] = &[
            (0, c"CUDA_SUCCESS", c"no error"),
            $(($code, codes!(@name $name), $text),)*
        ];
    };
    (@name $name:ident) => {
        match CStr::from_bytes_with_nul(concat!("CUDA_ERROR_", stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a name of an error ends where it ends"),
        }
    };
}

codes! {
    INVALID_VALUE = 1, c"invalid argument";
    OUT_OF_MEMORY = 2, c"out of memory";
    NOT_INITIALIZED = 3, c"initialization error";
    DEINITIALIZED = 4, c"driver shutting down";
    NO_DEVICE = 100, c"no CUDA-capable device is detected";
    INVALID_DEVICE = 101, c"invalid device ordinal";
    INVALID_IMAGE = 200, c"device kernel image is invalid";
    NO_BINARY_FOR_GPU = 209, c"no kernel image is available for execution on the device";
    INVALID_CONTEXT = 201, c"invalid device context";
    ECC_UNCORRECTABLE = 214, c"uncorrectable ECC error encountered";
    PEER_ACCESS_UNSUPPORTED = 217, c"peer access is not supported between these two devices";
    INVALID_PTX = 218, c"a PTX JIT compilation failed";
    NVLINK_UNCORRECTABLE = 220, c"uncorrectable NVLink error detected during the execution";
    UNSUPPORTED_PTX_VERSION = 222, c"the provided PTX was compiled with an unsupported toolchain";
    CONTAINED = 226, c"an exception occurred on the device that is contained there";
    INVALID_SOURCE = 300, c"device kernel image is invalid";
    INVALID_HANDLE = 400, c"invalid resource handle";
    ILLEGAL_STATE = 401, c"the operation cannot be performed in the present state";
    NOT_FOUND = 500, c"named symbol not found";
    NOT_READY = 600, c"device not ready";
    ILLEGAL_ADDRESS = 700, c"an illegal memory access was encountered";
    LAUNCH_OUT_OF_RESOURCES = 701, c"too many resources requested for launch";
    LAUNCH_TIMEOUT = 702, c"the launch timed out and was terminated";
    PEER_ACCESS_ALREADY_ENABLED = 704, c"peer access is already enabled";
    PEER_ACCESS_NOT_ENABLED = 705, c"peer access has not been enabled";
    CONTEXT_IS_DESTROYED = 709, c"context is destroyed";
    HOST_MEMORY_ALREADY_REGISTERED = 712, c"part or all of the requested memory range is already mapped";
    HOST_MEMORY_NOT_REGISTERED = 713, c"pointer does not correspond to a registered memory region";
    ILLEGAL_INSTRUCTION = 715, c"an illegal instruction was encountered";
    MISALIGNED_ADDRESS = 716, c"misaligned address";
    LAUNCH_FAILED = 719, c"unspecified launch failure";
    NOT_PERMITTED = 800, c"operation not permitted";
    NOT_SUPPORTED = 801, c"operation not supported";
    STREAM_CAPTURE_UNSUPPORTED = 900, c"operation not permitted when stream is capturing";
    STREAM_CAPTURE_INVALIDATED = 901, c"operation failed due to a previous error during capture";
    STREAM_CAPTURE_MERGE = 902, c"operation would result in a merge of separate capture sequences";
    STREAM_CAPTURE_UNMATCHED = 903, c"capture was not ended in the same stream as it began";
    STREAM_CAPTURE_UNJOINED = 904, c"capturing stream has unjoined work";
    STREAM_CAPTURE_ISOLATION = 905, c"dependency created on uncaptured work in another stream";
    STREAM_CAPTURE_IMPLICIT = 906, c"operation would make the legacy stream depend on a capturing blocking stream";
    CAPTURED_EVENT = 907, c"operation not permitted on an event last recorded in a capturing stream";
    STREAM_CAPTURE_WRONG_THREAD = 908, c"attempt to terminate a thread-local capture sequence from another thread";
    EXTERNAL_DEVICE = 911, c"an asynchronous error occurred in a device outside of CUDA";
    UNKNOWN = 999, c"unknown error";
}

impl Error {
    /// Whether the code says that the context is lost: every later call in it answers the same.
    pub(crate) fn is_sticky(self) -> bool {
        matches!(self.0, 214 | 220 | 226 | 700 | 702 | 710 | 714..=719 | 721 | 810 | 911)
    }

    /// The name and the text of a code, success included.
    pub(crate) fn describe(code: u32) -> Option<(&'static CStr, &'static CStr)> {
        TABLE.iter().find(|row| row.0 == code).map(|row| (row.1, row.2))
    }
}
