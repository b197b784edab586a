//! Numbers the waits. `make prove-waits` leaves out each in turn, and names the test that then fails.

macro_rules! waits {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal,)+) => {
        /// A place where something waits for work on a device, or is told what to wait for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Wait {
            $($(#[doc = $doc])+ $name = $number,)+
        }

        impl Wait {
            /// Every wait, with its number and what it is.
            pub const ALL: &[(u32, &str, &str)] = &[$(($number, stringify!($name), concat!($($doc),+)),)+];
        }
    };
}

waits! {
    /// The stream that a DLPack consumer names waits for what writes the tensor.
    DlpackStream = 1,
    /// Whoever takes host-visible memory by DLPack without a stream reads at once: the host waits.
    DlpackHostVisible = 2,
    /// An exported array says by its `sync_event` when it is written.
    ExportedEvent = 3,
    /// An export for consumers that know no events: the host waits.
    ExportedOnHost = 4,
    /// A tensor of another library is written when the work is done that its producer put on the stream it was given.
    DlpackImport = 5,
    /// An object with `__cuda_array_interface__` is written when the work is done that its stream has.
    ArrayInterfaceImport = 6,
    /// The stream that is named by our `__cuda_array_interface__` waits for what writes the tensor.
    ArrayInterfaceStream = 7,
    /// This thread's stream waits before a table of C functions hands out a tensor without synchronising.
    ExchangeStream = 8,
    /// Our copy from a device waits for what writes the source.
    CopySource = 9,
    /// The host reads what was copied from a device when the copy is done.
    CopiedToHost = 10,
    /// A copy on a device is written when our stream has done it.
    CopiedOnDevice = 11,
    /// The host reads host-visible memory when it is written.
    HostRead = 12,
    /// Several arrays that become one are written when each is.
    Joined = 13,
    /// Memory that was lent out is freed behind the work of the legacy default stream.
    ReleaseBehindLegacy = 14,
    /// And behind that of the streams that were named by `record_stream`.
    ReleaseBehindRecorded = 15,
    /// Memory that our own work reads is freed behind that work.
    ReleaseBehindOurs = 16,
    /// A tensor that comes through our table of C functions is written when the work is done that this thread's stream has.
    ExchangeImport = 21,
    /// The stream that another library works on waits before its table of C functions makes an array of a tensor of ours.
    ExchangeOutput = 22,
    /// The host reads host-visible memory in the order of a stream: when the work is done that this has.
    HostReadStream = 23,
    /// Our kernels wait for what writes the columns that they read.
    KernelSource = 24,
    /// What our kernels write is written when our stream has run them.
    KernelWritten = 25,
    /// What is copied to a device, to another one, or to page-locked memory is written when our stream has done it.
    Moved = 26,
    /// A page-locked block takes the next bytes when those before are copied from it.
    BlockCopied = 27,
    /// What writes memory of somebody else's is done before our kernels write it.
    OutputFree = 28,
    /// Memory of somebody else's is written when our stream has run the kernels that write it.
    OutputWritten = 29,
    /// Our stream waits for the work of another library before it writes to memory that the library's allocator gave: that may
    /// be in use until then.
    AllocatorStream = 30,
    /// A batch of a loader is written when the loader's stream has copied it to the device.
    BatchCopied = 31,
    /// The page-locked memory of a batch is written again when the batch was copied from it.
    BatchMemory = 32,
}

impl Wait {
    /// Whether a test has asked to leave this wait out, which only a build with `--cfg skip_waits` can do.
    #[cfg(skip_waits)]
    pub(super) fn is_skipped(self) -> bool {
        use std::sync::OnceLock;
        static SKIPPED: OnceLock<Option<u32>> = OnceLock::new();
        let read = || std::env::var("ARROW_DLPACK_SKIP_WAIT").ok().and_then(|number| number.parse().ok());
        *SKIPPED.get_or_init(read) == Some(self as u32)
    }

    #[cfg(not(skip_waits))]
    pub(super) fn is_skipped(self) -> bool {
        false
    }
}
