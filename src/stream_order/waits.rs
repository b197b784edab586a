//! Numbers the waits, and the places that keep memory until its uses end. `make prove-waits` leaves out each in turn, and
//! names the test that then fails.

macro_rules! waits {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal,)+) => {
        /// A place that waits for work on a device, that sets what to wait for, or that sets what memory is kept for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        #[cfg_attr(not(feature = "python"), allow(dead_code, reason = "some are of the protocols of Python"))]
        pub(crate) enum Wait {
            $($(#[doc = $doc])+ $name = $number,)+
        }
    };
}

waits! {
    /// The stream that a DLPack consumer names waits until the tensor is written.
    DlpackStream = 1,
    /// A consumer that takes host-visible memory by DLPack without a stream reads at once: the host waits.
    DlpackHostVisible = 2,
    /// An exported array tells by its `sync_event` when it is written.
    ExportedEvent = 3,
    /// The host waits before an export to consumers that ignore events.
    ExportedOnHost = 4,
    /// An imported DLPack tensor is written when its producer's work on the named stream is done.
    DlpackImport = 5,
    /// An object with `__cuda_array_interface__` is written when the work of its stream is done.
    ArrayInterfaceImport = 6,
    /// The stream that our `__cuda_array_interface__` names waits until the tensor is written.
    ArrayInterfaceStream = 7,
    /// This thread's stream waits before our exchange table hands out a tensor without synchronising.
    ExchangeStream = 8,
    /// Our copy from a device waits until the source is written.
    CopySource = 9,
    /// The host reads a copy from a device when the copy is done.
    CopiedToHost = 10,
    /// A copy on a device is written when our stream has done it.
    CopiedOnDevice = 11,
    /// The host reads host-visible memory when it is written.
    HostRead = 12,
    /// Arrays that are joined into one are written when each is.
    Joined = 13,
    /// Lent memory is freed behind the work of the legacy default stream.
    ReleaseBehindLegacy = 14,
    /// Lent memory is freed behind the work of the streams that `record_stream` named.
    ReleaseBehindRecorded = 15,
    /// Memory that our own work reads is freed behind that work.
    ReleaseBehindOurs = 16,
    /// A tensor imported by our exchange table is written when this thread's stream has done its work.
    ExchangeImport = 21,
    /// Another library's stream waits before its exchange table makes an array of a tensor of ours.
    ExchangeOutput = 22,
    /// The host reads host-visible memory in the order of a stream: when that stream's work is done.
    HostReadStream = 23,
    /// Our kernels wait until the columns that they read are written.
    KernelSource = 24,
    /// Results of kernels are written when our stream has run the kernels.
    KernelWritten = 25,
    /// Copies to a device or to page-locked memory are written when our stream has done them.
    Moved = 26,
    /// A staging buffer is refilled when the copy from it is done.
    BlockCopied = 27,
    /// Our kernels write the caller's memory after the work that writes it.
    OutputFree = 28,
    /// The caller's memory is written when our stream has run the kernels that write it.
    OutputWritten = 29,
    /// Our stream waits for another library's work before it writes memory of that library's allocator.
    AllocatorStream = 30,
    /// A loader's batch is written when the loader's stream has copied it to the device.
    BatchCopied = 31,
    /// The page-locked memory of a batch is rewritten when the batch was copied from it.
    BatchMemory = 32,
    /// A tensor of a producer that was given no stream of ours is written when the legacy default stream, or the stream that a
    /// caller names, has done its work.
    DlpackDefault = 33,
    /// Our copy to ordinary host memory waits until the source is written.
    CopySourceToHost = 34,
    /// Our copy to page-locked memory waits until the source is written.
    CopySourceToPinned = 35,
    /// A copy to page-locked memory is written when our stream has done it.
    MovedToPinned = 36,
    /// The host reads whether values fit when the kernels have looked at them.
    MisfitsWritten = 37,
    /// Our memory is freed behind the work that writes it.
    OwnKept = 38,
    /// The page-locked block of a table is reused behind the copy from it.
    TableKept = 39,
    /// What uses memory under another device's name uses the memory.
    RelabelledParts = 40,
    /// What uses joined memory uses each part.
    JoinedParts = 41,
    /// Parts of memory that is lent are lent.
    LentParts = 42,
    /// Memory that a stream of a caller waits for is lent.
    LentToStream = 43,
    /// Memory that DLPack exports is lent.
    LentByDlpack = 44,
    /// Memory that our exchange table hands out is lent.
    LentByExchange = 45,
    /// Memory that our `__cuda_array_interface__` names is lent.
    LentByArrayInterface = 46,
    /// Memory that an exported `ArrowDeviceArray` has is lent.
    LentByArrow = 47,
    /// Memory is freed behind the work on the stream that our `__cuda_array_interface__` names.
    ArrayInterfaceKept = 48,
    /// The reaper releases memory when the work behind it is done.
    ReaperWaits = 49,
    /// The stream that the library of `out` works on waits until our stream has written it.
    OutputTaken = 50,
    /// Memory is freed behind the work on the stream of PyTorch that was the current one when its exchange table took the memory.
    ReleaseBehindLibrary = 51,
    /// Our kernels write the caller's memory after our work that reads it.
    OutputRead = 52,
    /// Page-locked and managed memory that is handed out as the CPU's is lent.
    LentAsHost = 53,
}

impl Wait {
    /// Returns whether a test leaves this wait out, which only a build with `--cfg skip_waits` can do.
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

    /// Returns what is kept here; nothing if a test leaves it out.
    pub(super) fn kept<T>(self, kept: Vec<T>) -> Vec<T> {
        if self.is_skipped() { Vec::new() } else { kept }
    }
}
