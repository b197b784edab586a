import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import GenericAlias, ModuleType, TracebackType
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    NoReturn,
    Protocol,
    SupportsFloat,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    final,
    overload,
)

from typing_extensions import CapsuleType

_ArrayT_co = TypeVar("_ArrayT_co", covariant=True)
_BatchT_co = TypeVar("_BatchT_co", covariant=True)

class _ArrayNamespace(Protocol[_ArrayT_co]):
    """A module such as numpy, whose `from_dlpack` makes its own arrays.

    Type checkers do not see torch's `from_dlpack` as one of its module, so a second overload takes any module or its
    name."""

    def from_dlpack(self, x: Any, /) -> _ArrayT_co: ...

class _ArrowSchemaExportable(Protocol):
    def __arrow_c_schema__(self) -> object: ...

class _ArrowArrayExportable(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

class _ArrowStreamExportable(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class _ArrowDeviceArrayExportable(Protocol):
    def __arrow_c_device_array__(
        self, requested_schema: object | None = None, **kwargs: Any
    ) -> tuple[object, object]: ...

class _ArrowDeviceStreamExportable(Protocol):
    def __arrow_c_device_stream__(self, requested_schema: object | None = None, **kwargs: Any) -> object: ...

class _DLPackExportable(Protocol):
    # Producers take different keywords, so this protocol requires none.
    @property
    def __dlpack__(self) -> Any: ...

_ArrowData: TypeAlias = (
    _ArrowArrayExportable | _ArrowStreamExportable | _ArrowDeviceArrayExportable | _ArrowDeviceStreamExportable
)

class _ToReader(Protocol):
    def to_reader(self) -> Any: ...

class _Scannable(Protocol):
    def scanner(self) -> Any: ...

class _IterBatches(Protocol):
    def iter_batches(self) -> Any: ...

class _CollectBatches(Protocol):
    def collect_batches(self) -> Any: ...

class _ToArrowReader(Protocol):
    def to_arrow_reader(self) -> Any: ...

class _FetchRecordBatch(Protocol):
    def fetch_record_batch(self) -> Any: ...

class _ToBatches(Protocol):
    def to_batches(self) -> Any: ...

class _DataSet(Protocol):
    def with_format(self, type: str) -> Any: ...
    def iter(self, batch_size: int) -> Any: ...

# Data sets, files and queries that are read in batches.
_Batches: TypeAlias = (
    _ToReader | _Scannable | _IterBatches | _CollectBatches | _ToArrowReader | _FetchRecordBatch | _ToBatches | _DataSet
)
_Source: TypeAlias = _ArrowData | _Batches | Iterable[_ArrowData | _Batches]
_Shard: TypeAlias = _Source | Callable[[], _Source] | tuple[_Source | Callable[[], _Source], SupportsIndex | None]
_Data: TypeAlias = _Source | _DLPackExportable
# A name, a tuple (device_type, device_id), a Device, or another library's device object.
_Device: TypeAlias = str | tuple[int, int] | Device | object
# A name such as "float32", a NumPy code such as "f4", or a type object of any library: dtypes and scalar types, Arrow
# types with `__arrow_c_schema__`, and Python's float, int, bool and complex.
_DType: TypeAlias = str | object

class _CudaStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...

class _OlderTorchStream(Protocol):
    @property
    def cuda_stream(self) -> int: ...

class _OlderCupyStream(Protocol):
    @property
    def ptr(self) -> int: ...
    def wait_event(self, event: Any, /) -> Any: ...

# 1 for the legacy default stream, 2 for the per-thread one, a handle, or an object such as PyTorch's streams.
_Stream: TypeAlias = SupportsIndex | _CudaStream | _OlderTorchStream | _OlderCupyStream

class _MemoryResource(Protocol):
    """Allocates device memory. Addresses are multiples of 256."""

    def allocate(self, nbytes: int, stream: Any, /) -> int: ...
    def deallocate(self, address: int, nbytes: int, stream: Any, /) -> Any: ...

# Allocates the results on a device; the object may be a memory resource of RMM.
_Allocator: TypeAlias = Literal["cuMemAlloc"] | _MemoryResource
_LoaderNulls: TypeAlias = Literal["error", "nan"] | bool | SupportsIndex | SupportsFloat
_Nulls: TypeAlias = Literal["keep"] | _LoaderNulls
# A value of `columns={...}` that becomes tensors, and one of any form.
_Group: TypeAlias = str | Sequence[str] | Group
_AnyGroup: TypeAlias = _Group | _VariedGroup
_Decimal: TypeAlias = Literal["unscaled"]
_Unit: TypeAlias = Literal["s", "ms", "us", "ns"]
_Dictionary: TypeAlias = Literal["codes", "values"]
_Categories: TypeAlias = (
    Sequence[str]
    | Sequence[bytes]
    | Sequence[SupportsIndex]
    | _ArrowArrayExportable
    | _ArrowStreamExportable
    | _DLPackExportable
)
_Unknown: TypeAlias = Literal["error"] | SupportsIndex
_OutT = TypeVar("_OutT", bound=_DLPackExportable)
_Legacy: TypeAlias = Literal["copy", "view", "error"]
_Order: TypeAlias = Literal["C", "F", "A"]

__version__: str

class ConversionError(BufferError, ValueError):
    """A conversion that is impossible as requested. `column` and `row` say where, `reason` why, `remedy` what helps."""

    column: str | None
    row: int | None
    reason: str | None
    remedy: str | None

class CopyError(ConversionError):
    """A copy is needed, and `copy=False` forbids it."""

class NullError(ConversionError):
    """A null that the null policy refuses, or that the result cannot represent."""

class CastError(ConversionError):
    """A value that does not fit the requested type."""

class UnsupportedTypeError(ConversionError):
    """A type or layout that the other protocol cannot represent."""

class InternalError(ConversionError):
    """A bug in this package. `remedy` says where to report it."""

class ReadOnlyViewWarning(UserWarning):
    """Warns that a library which ignores the read-only flag received a view of read-only memory."""

@final
class Device:
    """Where memory is: a device type, with the codes that DLPack and Arrow share, and an ordinal."""

    def __new__(cls, device: _Device) -> Device: ...
    @property
    def type(self) -> int: ...
    @property
    def id(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Tensor:
    """Strided n-dimensional data of one dtype on one device, in any library's memory.

    Views of Arrow data are read-only, because libraries treat Arrow memory as immutable.
    """

    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def device(self) -> Device: ...
    @property
    def writable(self) -> bool: ...
    @property
    def copied(self) -> bool: ...
    @property
    def dictionary(self) -> Array | RecordBatch | None:
        """The dictionary that the elements are codes of: `categories=`, or that of a dictionary column. None for other
        tensors, and for matrices."""
    # Raises AttributeError unless the memory is the host's, and for bfloat16 and float8.
    @property
    def __array_interface__(self) -> dict[str, Any]: ...
    # Raises AttributeError unless the memory is a CUDA device's, and for bfloat16 and float8.
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    # DLPack's exchange API: a table of C functions, for consumers in C.
    __dlpack_c_exchange_api__: ClassVar[CapsuleType]
    def to_device(
        self,
        device: _Device,
        /,
        *,
        stream: _Stream | None = None,
        threads: SupportsIndex | None = None,
        allocator: _Allocator | None = None,
    ) -> Tensor:
        """Returns the data on another device: itself if it is there, the same memory if that device reaches it, else a
        copy. A result on the CPU is complete.

        stream: the CUDA stream of the copies; None is this thread's, see `stream`.
        threads: the number of threads that copy host memory; None is ARROW_DLPACK_THREADS, or one per core.
        allocator: as for `to_tensor`.
        """

    def record_stream(self, stream: _Stream, /) -> None:
        """Names a stream that uses the memory. The memory is freed, or returned to its owner, only behind the work
        that the stream has when the last reference is dropped.

        Call it for work on non-blocking streams that no other stream waits for. The stream must live until then: an
        object that owns its stream is kept.

        stream: a number as DLPack passes it, or an object that `stream` takes.
        """

    def __dlpack__(
        self,
        *,
        stream: _Stream | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __arrow_c_schema__(self) -> CapsuleType: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[CapsuleType, CapsuleType]: ...
    def __arrow_c_device_array__(
        self, requested_schema: object | None = None, **kwargs: Any
    ) -> tuple[CapsuleType, CapsuleType]: ...
    if sys.version_info >= (3, 12):
        # Before 3.12 the buffer protocol has no methods in Python.
        def __buffer__(self, flags: int, /) -> memoryview: ...
        def __release_buffer__(self, buffer: memoryview, /) -> None: ...

    # Shares the memory; pickle and deepcopy copy host memory.
    def __copy__(self) -> Tensor: ...
    # A TypeError: Python would take the memory for text.
    def __int__(self) -> NoReturn: ...
    def __float__(self) -> NoReturn: ...
    def _repr_html_(self) -> str: ...
    def __len__(self) -> int: ...

@final
class Array:
    """An Arrow array with its field, in any library's memory.

    The device dunder accepts `requested_device=`, a pair (device_type, device_id) or a device type, and moves
    the data there. With `sync="host"` it waits until the data is written and exports no event, for consumers
    that ignore events.
    """

    @property
    def type(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def nullable(self) -> bool: ...
    @property
    def device(self) -> Device: ...
    def to_device(
        self,
        device: _Device,
        /,
        *,
        stream: _Stream | None = None,
        threads: SupportsIndex | None = None,
        allocator: _Allocator | None = None,
    ) -> Array:
        """Returns the data on another device: itself if it is there, the same memory if that device reaches it, else a
        copy of what the rows need. A result on the CPU is complete.

        stream: the CUDA stream of the copies; None is this thread's, see `stream`.
        threads: the number of threads that copy host memory; None is ARROW_DLPACK_THREADS, or one per core.
        allocator: as for `to_tensor`.
        """

    def __arrow_c_schema__(self) -> CapsuleType: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[CapsuleType, CapsuleType]: ...
    def __arrow_c_device_array__(
        self, requested_schema: object | None = None, **kwargs: Any
    ) -> tuple[CapsuleType, CapsuleType]: ...
    def __dlpack__(
        self,
        *,
        stream: _Stream | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    # Shares the memory; pickle and deepcopy copy host memory.
    def __copy__(self) -> Array: ...
    def __len__(self) -> int: ...

@final
class RecordBatch:
    """An Arrow record batch: named columns of one length, in any library's memory. Every array of structs is one.

    The device dunders accept the keywords of `Array`'s.
    """

    @property
    def num_rows(self) -> int: ...
    @property
    def num_columns(self) -> int: ...
    @property
    def column_names(self) -> list[str]: ...
    @property
    def device(self) -> Device: ...
    def column(self, key: str | int) -> Array: ...
    def to_device(
        self,
        device: _Device,
        /,
        *,
        stream: _Stream | None = None,
        threads: SupportsIndex | None = None,
        allocator: _Allocator | None = None,
    ) -> RecordBatch:
        """Returns the data on another device: itself if it is there, the same memory if that device reaches it, else a
        copy of what the rows need. A result on the CPU is complete.

        stream: the CUDA stream of the copies; None is this thread's, see `stream`.
        threads: the number of threads that copy host memory; None is ARROW_DLPACK_THREADS, or one per core.
        allocator: as for `to_tensor`.
        """

    def __arrow_c_schema__(self) -> CapsuleType: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[CapsuleType, CapsuleType]: ...
    def __arrow_c_device_array__(
        self, requested_schema: object | None = None, **kwargs: Any
    ) -> tuple[CapsuleType, CapsuleType]: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> CapsuleType: ...
    def __arrow_c_device_stream__(self, requested_schema: object | None = None, **kwargs: Any) -> CapsuleType: ...
    def __getitem__(self, key: str | int, /) -> Array: ...
    def __contains__(self, name: object, /) -> bool: ...
    # Shares the memory; pickle and deepcopy copy host memory.
    def __copy__(self) -> RecordBatch: ...
    def _repr_html_(self) -> str: ...
    def __len__(self) -> int: ...

@final
class ArrayStream:
    """Iterates over Arrow arrays or record batches, and reads each on request. A stream can be read once.

    The device dunder accepts the keywords of `Array`'s. The arrays of a stream can be on several devices of one
    type; each is moved from where it is.
    """

    @property
    def type(self) -> str: ...
    @property
    def column_names(self) -> list[str]: ...
    @property
    def device(self) -> Device: ...
    def close(self) -> None: ...
    def to_device(
        self,
        device: _Device,
        /,
        *,
        stream: _Stream | None = None,
        threads: SupportsIndex | None = None,
        allocator: _Allocator | None = None,
    ) -> ArrayStream:
        """Returns the stream with its arrays on another device, each moved when it is read. Consumes this stream,
        unless it is on the CPU and is to stay there.

        stream, threads, allocator: as for `Array.to_device`.
        """

    def __arrow_c_schema__(self) -> CapsuleType: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> CapsuleType: ...
    def __arrow_c_device_stream__(self, requested_schema: object | None = None, **kwargs: Any) -> CapsuleType: ...
    def __iter__(self) -> ArrayStream: ...
    # RecordBatch for a stream of structs, Array for any other.
    def __next__(self) -> RecordBatch | Array: ...

@final
class Ragged(Generic[_ArrayT_co]):
    """Rows of different lengths: row i is `values[offsets[i]:offsets[i + 1]]`, or with lengths
    `values[offsets[i]:offsets[i] + lengths[i]]`. The Arrow dunders return a list array over the same memory.

    values: an object with `__dlpack__`, or a Ragged for nested lists.
    offsets: int32 or int64, one more than there are rows; with `lengths`, one per row.
    lengths: the dtype of the offsets, one per row, for rows that overlap or leave gaps.
    shapes: int32 of shape (rows, dimensions), for rows that are tensors. The offsets are int32 then.
    validity: a bool per row, True where the row is valid.

    All are on one device. On CUDA a kernel looks at the offsets, and the call waits for the kernel; so does each
    conversion to Arrow of offsets that another library may have changed.

    Raises ConversionError if a row reaches beyond the values, or the parts are on several devices.
    """

    def __new__(
        cls,
        values: _DLPackExportable | Ragged[Any],
        offsets: _DLPackExportable,
        lengths: _DLPackExportable | None = None,
        shapes: _DLPackExportable | None = None,
        validity: _DLPackExportable | None = None,
    ) -> Ragged[Tensor]: ...
    # An array of the elements; for nested lists, a Ragged.
    @property
    def values(self) -> Any: ...
    @property
    def offsets(self) -> _ArrayT_co: ...
    @property
    def lengths(self) -> _ArrayT_co | None: ...
    @property
    def shapes(self) -> _ArrayT_co | None: ...
    @property
    def validity(self) -> _ArrayT_co | None: ...
    @property
    def device(self) -> Device: ...
    def __arrow_c_schema__(self) -> CapsuleType: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[CapsuleType, CapsuleType]: ...
    def __arrow_c_device_array__(
        self, requested_schema: object | None = None, **kwargs: Any
    ) -> tuple[CapsuleType, CapsuleType]: ...
    def __class_getitem__(cls, parts: Any, /) -> GenericAlias: ...
    # Shares the memory; pickle and deepcopy copy host memory.
    def __copy__(self) -> Ragged[_ArrayT_co]: ...
    def _repr_html_(self) -> str: ...
    def __len__(self) -> int: ...

@final
class Group:
    """Columns that become one result, and its options: what `group`, `padded`, `ragged` and `arrow` return."""

    @property
    def columns(self) -> str | list[str]:
        """The name of the column that is a result of its own, or the list of those that become a matrix or an Arrow
        batch."""

    @property
    def dtype(self) -> str | None:
        """The name of the tensor's dtype, or None."""

    @property
    def nulls(self) -> _Nulls | None:
        """What happens to nulls, or None."""

    @property
    def validity(self) -> str | None:
        """The name of the validity, or None."""

    @property
    def lengths(self) -> str | None:
        """The name of the lengths of padded rows, or None."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

class _VariedGroup(Protocol):
    """A `Group` that becomes no tensor: rows of different lengths, or an Arrow batch."""

    @property
    def columns(self) -> str | list[str]: ...
    @property
    def lengths(self) -> None: ...

@final
class LoaderIterator(Generic[_BatchT_co]):
    """The batches of one epoch of a Loader. Its thread ends, and the source is released, when it is dropped,
    closed or exhausted."""

    def close(self) -> None:
        """Ends the epoch: waits for the thread, and releases the source and the batches that were not handed out."""

    def __iter__(self) -> LoaderIterator[_BatchT_co]: ...
    def __next__(self) -> _BatchT_co: ...
    def __class_getitem__(cls, batch: Any, /) -> GenericAlias: ...

@final
class Loader(Generic[_BatchT_co]):
    """Yields training batches of `batch_size` rows from an Arrow stream, prefetched on a native thread.

    A batch is a matrix of all columns or of those that `columns` lists, or a dict of named groups. No other
    object shares its memory, which the loader reuses after the batch is dropped; but columns of `arrow` may be
    over the memory of the source.

    source: Arrow data of any library (a table, data frame, query or stream), an iterable of it, a data set or
        file that is read in batches, or a callable without arguments that returns one of these. Each `iter()`
        starts an epoch: it reads the source again, or calls the callable. A reader, an iterator or the result
        of a connection can be read once.
    batch_size: rows per batch; the last batch may have fewer.
    columns: a list of names, or a dict {name: column, list of columns that become a matrix, or `group` of these
        with options of its own, or `padded`, `ragged` or `arrow` columns}. None takes all columns except the index
        of a pandas data frame.
    dtype, nulls, decimal, dictionary, unit, length: as for `to_tensors`, each also as a dict by column, dtype and
        nulls also by group. nulls="keep" is an error, unless the `group` has a validity.
    categories, unknown: as for `to_tensor`, for all columns or as a dict by column. An unknown value is an error of
        the batch for which its row is read.
    xp: an array namespace, or its name ("numpy", "torch", "jax", ...); batches are its arrays.
    device: where the batches are: "cpu"; "cuda", copied ahead on a stream of the loader; "cuda_host",
        page-locked memory.
    allocator: as for `to_tensor`, for batches on a device; called on the thread that makes them. None is the device's
        pool, with any `xp`: with a library's own allocator, copies would wait for that library's work.
    shuffle_buffer: the number of rows that the shuffle holds back. Each new row replaces a random row of the
        buffer, which goes into the batch. 0 keeps the source's order. If the buffer holds all rows, every order
        is equally likely; a small buffer only mixes rows that are near each other.
    shuffle_bytes: the most bytes of the rows in that buffer, of all lanes; None sets no limit. A row counts the bytes
        of its values, and 8 for the place of each string and list of `padded`, `ragged` and `arrow`. More bytes are an
        error of the batch that needs them: the order does not depend on it.
    seed: the seed of the shuffle, together with the epoch's number. None draws a random seed; `state_dict()`
        contains it. Without a shuffle no seed is used, and the state has None.
    drop_last: whether to leave out a last batch with fewer rows.
    prefetch: the number of batches to make ahead; 0 makes each batch on request, without a thread.
    threads: the number of threads that convert a large batch; None is ARROW_DLPACK_THREADS, or one per core.
    rank, world_size: batch k belongs to rank k % world_size. All ranks get the same number of batches.
    sources: the parts of a source, instead of `source`: a list of sources or callables, each also as (source, rows)
        with its number of rows, or None. All have one schema. The threads that read them open them.
    lanes: the number of equal parts that the rows of `sources` are cut into. Batch k has the next rows of lane
        k % lanes, so that a rank reads only its lanes if world_size divides their number. Each lane shuffles by
        itself, in an equal part of the buffer. More than one needs the number of rows of each of `sources`.
    shuffle_shards: whether each epoch permutes `sources`; None does if there is a shuffle_buffer.
    readers: the number of threads that read lanes.
    verify: what a loaded state is compared with, by hashes of sampled rows: "replay", the rows that are read
        again; "all", which makes it an error if rows that were taken have no hashes: those of other ranks' lanes.
    worker: (v, V) makes only the rank's batches j with j % V == v, for a worker process v of V of the rank.
        world_size * V must divide `lanes`, so that no worker reads the rows of another.

    A pickle holds the source, if that can be pickled, the options and the state of `state_dict()`. The new
    loader continues from there.

    The seed, epoch, rank, world size, the sizes above and the source's rows alone determine the order of the
    rows. The source has to yield the same rows in the same order each time, as tables and files do, and a query
    with ORDER BY over a unique key.
    """

    @overload
    def __new__(
        cls,
        source: _Source | Callable[[], _Source] | None = None,
        *,
        batch_size: SupportsIndex,
        columns: Sequence[str] | None = None,
        dtype: _DType | Mapping[str, _DType] | None = None,
        nulls: _LoaderNulls | Mapping[str, _LoaderNulls] | None = "error",
        decimal: _Decimal | Mapping[str, _Decimal] | None = None,
        dictionary: _Dictionary | Mapping[str, _Dictionary] | None = None,
        unit: _Unit | Mapping[str, _Unit] | None = None,
        length: SupportsIndex | Mapping[str, SupportsIndex] | None = None,
        categories: _Categories | Mapping[str, _Categories | None] | None = None,
        unknown: _Unknown | Mapping[str, _Unknown] = "error",
        xp: None = None,
        device: _Device | None = None,
        allocator: _Allocator | None = None,
        shuffle_buffer: SupportsIndex = 0,
        shuffle_bytes: SupportsIndex | None = None,
        seed: SupportsIndex | None = None,
        drop_last: bool = False,
        prefetch: SupportsIndex = 2,
        threads: SupportsIndex | None = None,
        rank: SupportsIndex = 0,
        world_size: SupportsIndex = 1,
        sources: Sequence[_Shard] | None = None,
        lanes: SupportsIndex = 1,
        shuffle_shards: bool | None = None,
        readers: SupportsIndex = 1,
        verify: Literal["replay", "all"] = "replay",
        worker: tuple[SupportsIndex, SupportsIndex] | None = None,
    ) -> Loader[Tensor]: ...
    @overload
    def __new__(
        cls,
        source: _Source | Callable[[], _Source] | None = None,
        *,
        batch_size: SupportsIndex,
        columns: Sequence[str] | None = None,
        dtype: _DType | Mapping[str, _DType] | None = None,
        nulls: _LoaderNulls | Mapping[str, _LoaderNulls] | None = "error",
        decimal: _Decimal | Mapping[str, _Decimal] | None = None,
        dictionary: _Dictionary | Mapping[str, _Dictionary] | None = None,
        unit: _Unit | Mapping[str, _Unit] | None = None,
        length: SupportsIndex | Mapping[str, SupportsIndex] | None = None,
        categories: _Categories | Mapping[str, _Categories | None] | None = None,
        unknown: _Unknown | Mapping[str, _Unknown] = "error",
        xp: _ArrayNamespace[_ArrayT_co],
        device: _Device | None = None,
        allocator: _Allocator | None = None,
        shuffle_buffer: SupportsIndex = 0,
        shuffle_bytes: SupportsIndex | None = None,
        seed: SupportsIndex | None = None,
        drop_last: bool = False,
        prefetch: SupportsIndex = 2,
        threads: SupportsIndex | None = None,
        rank: SupportsIndex = 0,
        world_size: SupportsIndex = 1,
        sources: Sequence[_Shard] | None = None,
        lanes: SupportsIndex = 1,
        shuffle_shards: bool | None = None,
        readers: SupportsIndex = 1,
        verify: Literal["replay", "all"] = "replay",
        worker: tuple[SupportsIndex, SupportsIndex] | None = None,
    ) -> Loader[_ArrayT_co]: ...
    @overload
    def __new__(
        cls,
        source: _Source | Callable[[], _Source] | None = None,
        *,
        batch_size: SupportsIndex,
        columns: Sequence[str] | None = None,
        dtype: _DType | Mapping[str, _DType] | None = None,
        nulls: _LoaderNulls | Mapping[str, _LoaderNulls] | None = "error",
        decimal: _Decimal | Mapping[str, _Decimal] | None = None,
        dictionary: _Dictionary | Mapping[str, _Dictionary] | None = None,
        unit: _Unit | Mapping[str, _Unit] | None = None,
        length: SupportsIndex | Mapping[str, SupportsIndex] | None = None,
        categories: _Categories | Mapping[str, _Categories | None] | None = None,
        unknown: _Unknown | Mapping[str, _Unknown] = "error",
        xp: ModuleType | str,
        device: _Device | None = None,
        allocator: _Allocator | None = None,
        shuffle_buffer: SupportsIndex = 0,
        shuffle_bytes: SupportsIndex | None = None,
        seed: SupportsIndex | None = None,
        drop_last: bool = False,
        prefetch: SupportsIndex = 2,
        threads: SupportsIndex | None = None,
        rank: SupportsIndex = 0,
        world_size: SupportsIndex = 1,
        sources: Sequence[_Shard] | None = None,
        lanes: SupportsIndex = 1,
        shuffle_shards: bool | None = None,
        readers: SupportsIndex = 1,
        verify: Literal["replay", "all"] = "replay",
        worker: tuple[SupportsIndex, SupportsIndex] | None = None,
    ) -> Loader[Any]: ...
    @overload
    def __new__(
        cls,
        source: _Source | Callable[[], _Source] | None = None,
        *,
        batch_size: SupportsIndex,
        columns: Mapping[str, _Group],
        dtype: _DType | Mapping[str, _DType] | None = None,
        nulls: _Nulls | Mapping[str, _Nulls] | None = "error",
        decimal: _Decimal | Mapping[str, _Decimal] | None = None,
        dictionary: _Dictionary | Mapping[str, _Dictionary] | None = None,
        unit: _Unit | Mapping[str, _Unit] | None = None,
        length: SupportsIndex | Mapping[str, SupportsIndex] | None = None,
        categories: _Categories | Mapping[str, _Categories | None] | None = None,
        unknown: _Unknown | Mapping[str, _Unknown] = "error",
        xp: None = None,
        device: _Device | None = None,
        allocator: _Allocator | None = None,
        shuffle_buffer: SupportsIndex = 0,
        shuffle_bytes: SupportsIndex | None = None,
        seed: SupportsIndex | None = None,
        drop_last: bool = False,
        prefetch: SupportsIndex = 2,
        threads: SupportsIndex | None = None,
        rank: SupportsIndex = 0,
        world_size: SupportsIndex = 1,
        sources: Sequence[_Shard] | None = None,
        lanes: SupportsIndex = 1,
        shuffle_shards: bool | None = None,
        readers: SupportsIndex = 1,
        verify: Literal["replay", "all"] = "replay",
        worker: tuple[SupportsIndex, SupportsIndex] | None = None,
    ) -> Loader[dict[str, Tensor]]: ...
    @overload
    def __new__(
        cls,
        source: _Source | Callable[[], _Source] | None = None,
        *,
        batch_size: SupportsIndex,
        columns: Mapping[str, _Group],
        dtype: _DType | Mapping[str, _DType] | None = None,
        nulls: _Nulls | Mapping[str, _Nulls] | None = "error",
        decimal: _Decimal | Mapping[str, _Decimal] | None = None,
        dictionary: _Dictionary | Mapping[str, _Dictionary] | None = None,
        unit: _Unit | Mapping[str, _Unit] | None = None,
        length: SupportsIndex | Mapping[str, SupportsIndex] | None = None,
        categories: _Categories | Mapping[str, _Categories | None] | None = None,
        unknown: _Unknown | Mapping[str, _Unknown] = "error",
        xp: _ArrayNamespace[_ArrayT_co],
        device: _Device | None = None,
        allocator: _Allocator | None = None,
        shuffle_buffer: SupportsIndex = 0,
        shuffle_bytes: SupportsIndex | None = None,
        seed: SupportsIndex | None = None,
        drop_last: bool = False,
        prefetch: SupportsIndex = 2,
        threads: SupportsIndex | None = None,
        rank: SupportsIndex = 0,
        world_size: SupportsIndex = 1,
        sources: Sequence[_Shard] | None = None,
        lanes: SupportsIndex = 1,
        shuffle_shards: bool | None = None,
        readers: SupportsIndex = 1,
        verify: Literal["replay", "all"] = "replay",
        worker: tuple[SupportsIndex, SupportsIndex] | None = None,
    ) -> Loader[dict[str, _ArrayT_co]]: ...
    @overload
    def __new__(
        cls,
        source: _Source | Callable[[], _Source] | None = None,
        *,
        batch_size: SupportsIndex,
        columns: Mapping[str, _Group],
        dtype: _DType | Mapping[str, _DType] | None = None,
        nulls: _Nulls | Mapping[str, _Nulls] | None = "error",
        decimal: _Decimal | Mapping[str, _Decimal] | None = None,
        dictionary: _Dictionary | Mapping[str, _Dictionary] | None = None,
        unit: _Unit | Mapping[str, _Unit] | None = None,
        length: SupportsIndex | Mapping[str, SupportsIndex] | None = None,
        categories: _Categories | Mapping[str, _Categories | None] | None = None,
        unknown: _Unknown | Mapping[str, _Unknown] = "error",
        xp: ModuleType | str,
        device: _Device | None = None,
        allocator: _Allocator | None = None,
        shuffle_buffer: SupportsIndex = 0,
        shuffle_bytes: SupportsIndex | None = None,
        seed: SupportsIndex | None = None,
        drop_last: bool = False,
        prefetch: SupportsIndex = 2,
        threads: SupportsIndex | None = None,
        rank: SupportsIndex = 0,
        world_size: SupportsIndex = 1,
        sources: Sequence[_Shard] | None = None,
        lanes: SupportsIndex = 1,
        shuffle_shards: bool | None = None,
        readers: SupportsIndex = 1,
        verify: Literal["replay", "all"] = "replay",
        worker: tuple[SupportsIndex, SupportsIndex] | None = None,
    ) -> Loader[dict[str, Any]]: ...
    @overload
    def __new__(
        cls,
        source: _Source | Callable[[], _Source] | None = None,
        *,
        batch_size: SupportsIndex,
        columns: Mapping[str, _AnyGroup],
        dtype: _DType | Mapping[str, _DType] | None = None,
        nulls: _Nulls | Mapping[str, _Nulls] | None = "error",
        decimal: _Decimal | Mapping[str, _Decimal] | None = None,
        dictionary: _Dictionary | Mapping[str, _Dictionary] | None = None,
        unit: _Unit | Mapping[str, _Unit] | None = None,
        length: SupportsIndex | Mapping[str, SupportsIndex] | None = None,
        categories: _Categories | Mapping[str, _Categories | None] | None = None,
        unknown: _Unknown | Mapping[str, _Unknown] = "error",
        xp: object | None = None,
        device: _Device | None = None,
        allocator: _Allocator | None = None,
        shuffle_buffer: SupportsIndex = 0,
        shuffle_bytes: SupportsIndex | None = None,
        seed: SupportsIndex | None = None,
        drop_last: bool = False,
        prefetch: SupportsIndex = 2,
        threads: SupportsIndex | None = None,
        rank: SupportsIndex = 0,
        world_size: SupportsIndex = 1,
        sources: Sequence[_Shard] | None = None,
        lanes: SupportsIndex = 1,
        shuffle_shards: bool | None = None,
        readers: SupportsIndex = 1,
        verify: Literal["replay", "all"] = "replay",
        worker: tuple[SupportsIndex, SupportsIndex] | None = None,
    ) -> Loader[dict[str, Any]]: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def epoch(self) -> int:
        """The epoch of the current iteration, or of the next `iter()`."""

    @property
    def left_out(self) -> int | None:
        """How many rows of the epoch that ended last are in no batch of any rank; None before an epoch has ended, and
        after a state was loaded. Of several iterations at once the latest alone counts."""

    def set_epoch(self, epoch: SupportsIndex) -> None:
        """Sets the epoch of the next `iter()`. Each epoch has its own order. Keeps a loaded state of the same epoch."""

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the iteration, as a dict that JSON can hold.

        `load_state_dict` of a loader with the same source, seed, shuffle_buffer and columns continues after the last
        batch that was handed out, also with another batch_size, world_size or drop_last.
        """

    def fingerprint(self) -> dict[str, Any]:
        """Returns a dict that is equal for all ranks that read the same source with the same options and are in step.

        It has the options that determine the order, the columns, the number of rows, and hashes of the rows that
        were read: of the epoch that has just ended, or of the current one. A rank has the `hashes` of the shards that
        it has opened: compare those of two ranks that are of the same shard and number of samples.
        """

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a state of `state_dict`: the next `iter()` continues from there.

        Raises ConversionError (a ValueError) for a state of other options or of another source. `iter()` raises it
        if the difference shows only when the source is opened, and the first batch if its rows have changed.
        """

    def __iter__(self) -> LoaderIterator[_BatchT_co]: ...
    # Shares the source and copies the state; pickle and deepcopy copy the source, too.
    def __copy__(self) -> Loader[_BatchT_co]: ...
    def __bool__(self) -> bool: ...
    # Raises ValueError for a source that can be read once, and was.
    def _refuse_spent(self) -> None: ...
    # Raises TypeError if the source does not know its number of rows.
    def __len__(self) -> int: ...
    def __class_getitem__(cls, batch: Any, /) -> GenericAlias: ...

@final
class ReportRow:
    """What a conversion would do to one column."""

    @property
    def column(self) -> str: ...
    @property
    def arrow_type(self) -> str: ...
    @property
    def dtype(self) -> str | None: ...
    @property
    def shape(self) -> tuple[int | None, ...]: ...
    @property
    def view(self) -> bool: ...
    @property
    def how(self) -> str: ...
    @property
    def device(self) -> Device: ...
    @property
    def steps(self) -> list[str]: ...
    @property
    def kernel(self) -> bool: ...
    @property
    def waits(self) -> list[str]: ...
    @property
    def bytes(self) -> int: ...
    @property
    def refused_if(self) -> list[str]: ...
    @property
    def promotion(self) -> str | None: ...
    @property
    def error(self) -> str | None: ...

@final
class Report:
    """What a conversion would do, column by column. Prints as a table."""

    @property
    def rows(self) -> list[ReportRow]: ...
    @property
    def matrices(self) -> list[ReportRow]: ...
    @property
    def transfer(self) -> ReportRow | None: ...
    @property
    def left_out(self) -> list[str]: ...
    @property
    def notes(self) -> list[str]: ...
    @property
    def bytes(self) -> int: ...
    def __getitem__(self, key: str | int, /) -> ReportRow: ...
    def __contains__(self, name: object, /) -> bool: ...
    def __iter__(self) -> Iterator[ReportRow]: ...
    def _repr_html_(self) -> str: ...
    def __len__(self) -> int: ...

@final
class CopyEntry:
    """One copy: what was copied, why, and its bytes."""

    @property
    def what(self) -> str: ...
    @property
    def why(self) -> str: ...
    @property
    def bytes(self) -> int: ...

@final
class CopyLog:
    """The copies that this package makes on this thread inside a `with track_copies()` block."""

    @property
    def entries(self) -> list[CopyEntry]: ...
    @property
    def bytes(self) -> int: ...
    def __enter__(self) -> CopyLog: ...
    def __exit__(
        self,
        exception_type: type[BaseException] | None = None,
        exception: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None: ...
    def __iter__(self) -> Iterator[CopyEntry]: ...
    def _repr_html_(self) -> str: ...
    def __len__(self) -> int: ...

@final
class StreamContext:
    """A `with` block in which this thread uses a given CUDA stream."""

    def __enter__(self) -> StreamContext: ...
    def __exit__(
        self,
        exception_type: type[BaseException] | None = None,
        exception: BaseException | None = None,
        traceback: TracebackType | None = None,
        /,
    ) -> None: ...

def statistics(
    source: Any,
    statistics: Mapping[str, Literal["mean", "min", "max", "std", "mode", "count", "null_count"]],
    *,
    limit: SupportsIndex = 1_000_000,
) -> dict[str, int | float]:
    """Returns a statistic of each of some columns of a source, as a dict by name: fills for `nulls=` of any loader or
    function. Reads the source once, array by array.

    Nulls and NaN are no values. "mean" and "std" are floats: sums of integers are exact, those of floats are
    compensated. "std" divides by the number of values. "min", "max" and "mode" are values of the column; the mode is
    the most frequent one, of several the lowest. "count" is the number of values, "null_count" that of nulls, also of
    columns that are no numbers, except structs: name their fields. Temporal columns count in their ticks, values of
    lists of a fixed size one by one, other lists as one value each.

    source: Arrow data of any library, an iterable of it, a data set or file that is read in batches, or a callable
        that returns one of these: as for `Loader`. Or shards: a list of (source, rows), such as that of
        `parquet_shards`, which are read one after the other.
    statistics: a dict of "mean", "min", "max", "std", "mode", "count" or "null_count" by column. A column without
        values has only counts: all others are an error.
    limit: the most different values of a column whose "mode" is asked for; more are an error. They are in memory.
    """

@overload
def to_tensor(
    obj: _Data,
    *,
    dtype: _DType | Mapping[str, _DType] | None = None,
    nulls: _Nulls | Mapping[str, _Nulls] | None = "error",
    order: _Order = "C",
    columns: Sequence[str] | None = None,
    decimal: _Decimal | Mapping[str, _Decimal] | None = None,
    dictionary: _Dictionary | Mapping[str, _Dictionary] | None = None,
    unit: _Unit | Mapping[str, _Unit] | None = None,
    length: SupportsIndex | Mapping[str, SupportsIndex] | None = None,
    categories: _Categories | Mapping[str, _Categories | None] | None = None,
    unknown: _Unknown | Mapping[str, _Unknown] = "error",
    device: _Device | None = None,
    allocator: _Allocator | None = None,
    copy: bool | None = None,
    writable: bool | None = None,
    legacy: _Legacy = "copy",
    out: None = None,
    threads: SupportsIndex | None = None,
    xp: None = None,
) -> Tensor:
    """Converts a column to a tensor of shape (rows, *inner), or the columns of a batch, a table or a stream to a
    matrix of shape (rows, columns).

    Returns a read-only view that shares memory with the source, if layout and options allow it. Else one pass copies
    the data. A strided tensor is gathered before it. `track_copies` records each copy.

    obj: Arrow data of any library (a column, record batch, table, data frame, query or stream), a tensor with
        `__dlpack__`, an iterable of Arrow data, or a data set or file that is read in batches.
    dtype: a name such as "float32" or NumPy's "f4", or a type of Python, NumPy, Arrow, polars, pandas, torch or
        another library that stands for a dtype. Casts check each value; floats take the nearest one, and refuse a
        finite number beyond their range. Without a dtype, the columns of a matrix are promoted: numbers of one kind
        to the wider one, integers with floats as in NumPy, bools to the dtype of the other columns. Ticks, unscaled
        decimals and dictionary codes only join columns of their own kind. The dtype of a column takes part in the
        promotion.
    nulls: "error", "nan", "keep" (undefined values in a view, zero in a copy: `validity` of `obj` says which), or a
        number that fills them. A float is rounded to the nearest; an integer or bool must hold the number exactly.
    decimal: "unscaled" for the stored integers. None is the values, which need a dtype unless the scale is 0. Decimals
        of 128 and 256 bits always need a dtype.
    unit: "s", "ms", "us" or "ns": timestamps, durations, dates and times as numbers of that unit. An integer dtype,
        int64 by default, takes whole numbers alone; a float dtype takes the division. None is their own ticks, and so
        is their own unit: int32 for times of 32 bits.
    length: the number of elements that each row of a column of lists has, which makes it a tensor of shape
        (rows, length). A row of another length is an error. A dict names some columns, as for the other options.
    dictionary: "codes" for the indices into the dictionary, "values" for the decoded values. None is the codes,
        or the values if a dtype is requested. Chunks with different dictionaries have no common codes: an
        error.
    categories: a list of strings, bytes or integers, or an Arrow array of them: each value becomes the int32 code
        that is its position there, whatever the column's layout or dictionary. A dtype casts the codes, and the
        fill of `nulls` is a code. A dict names columns. `Tensor.dictionary` is the array.
    unknown: the code of values that are none of the `categories`, also a dict by column. "error" names the row and
        the value.

    Each of these options can be a dict by column name.

    order: the memory order of a matrix of columns: "C" row-major, "F" column-major, "A" column-major if that is a
        view, else row-major. One column and a tensor are row-major.
    columns: the names of the columns of a matrix, in this order; a field of a struct by its path, such as "s.a". None
        takes all columns except the index of a pandas data frame.
    device: the device of the result. The data is moved there. If the source or the result is in host memory,
        the host converts.
    allocator: where the memory of a result on a device comes from. None is a pool of this package; "cuMemAlloc"
        is memory that other processes can open by legacy CUDA IPC handles. An object with `allocate(nbytes,
        stream)`, which returns an address that is a multiple of 256, and `deallocate(address, nbytes, stream)`,
        such as a memory resource of RMM, is called with a stream that has `__cuda_stream__`. With xp=torch or
        cupy, None is that library's own allocator.
    copy: None copies if needed, False never (an error instead), True always.
    writable: True for memory that no other object shares, False for a read-only result, even if it is a copy.
        None returns a read-only view, or else a writable copy. One `ReadOnlyViewWarning` is issued if the
        library of `xp` ignores the read-only flag, as torch does.
    legacy: what an unversioned DLPack capsule of read-only memory holds: "copy", "view" or "error".
    out: a writable tensor of any library with the result's shape, which is filled and returned. Its dtype is
        the default, and asks for the values of a dictionary as `dtype` does. A matrix has dense rows or dense
        columns, at any distance. After an error its contents are undefined.
    threads: the number of threads for large data; None is ARROW_DLPACK_THREADS, or one per core.
    xp: an array namespace, or its name ("numpy", "torch", "jax", ...); the result is its array.
        JAX makes 64-bit numbers 32-bit ones, and truncates integers, unless jax_enable_x64 is set.

    Raises ConversionError (a BufferError and a ValueError), which names reason and remedy, and column and row where
    one is at fault; TypeError for an object with neither Arrow data nor a tensor.
    """

@overload
def to_tensor(
    obj: _Data,
    *,
    dtype: _DType | Mapping[str, _DType] | None = None,
    nulls: _Nulls | Mapping[str, _Nulls] | None = "error",
    order: _Order = "C",
    columns: Sequence[str] | None = None,
    decimal: _Decimal | Mapping[str, _Decimal] | None = None,
    dictionary: _Dictionary | Mapping[str, _Dictionary] | None = None,
    unit: _Unit | Mapping[str, _Unit] | None = None,
    length: SupportsIndex | Mapping[str, SupportsIndex] | None = None,
    categories: _Categories | Mapping[str, _Categories | None] | None = None,
    unknown: _Unknown | Mapping[str, _Unknown] = "error",
    device: _Device | None = None,
    allocator: _Allocator | None = None,
    copy: bool | None = None,
    writable: bool | None = None,
    legacy: _Legacy = "copy",
    out: None = None,
    threads: SupportsIndex | None = None,
    xp: _ArrayNamespace[_ArrayT_co],
) -> _ArrayT_co: ...
@overload
def to_tensor(
    obj: _Data,
    *,
    dtype: _DType | Mapping[str, _DType] | None = None,
    nulls: _Nulls | Mapping[str, _Nulls] | None = "error",
    order: _Order = "C",
    columns: Sequence[str] | None = None,
    decimal: _Decimal | Mapping[str, _Decimal] | None = None,
    dictionary: _Dictionary | Mapping[str, _Dictionary] | None = None,
    unit: _Unit | Mapping[str, _Unit] | None = None,
    length: SupportsIndex | Mapping[str, SupportsIndex] | None = None,
    categories: _Categories | Mapping[str, _Categories | None] | None = None,
    unknown: _Unknown | Mapping[str, _Unknown] = "error",
    device: _Device | None = None,
    allocator: _Allocator | None = None,
    copy: bool | None = None,
    writable: bool | None = None,
    legacy: _Legacy = "copy",
    out: None = None,
    threads: SupportsIndex | None = None,
    xp: ModuleType | str,
) -> Any: ...
@overload
def to_tensor(
    obj: _Data,
    *,
    dtype: _DType | Mapping[str, _DType] | None = None,
    nulls: _Nulls | Mapping[str, _Nulls] | None = "error",
    order: _Order = "C",
    columns: Sequence[str] | None = None,
    decimal: _Decimal | Mapping[str, _Decimal] | None = None,
    dictionary: _Dictionary | Mapping[str, _Dictionary] | None = None,
    unit: _Unit | Mapping[str, _Unit] | None = None,
    length: SupportsIndex | Mapping[str, SupportsIndex] | None = None,
    categories: _Categories | Mapping[str, _Categories | None] | None = None,
    unknown: _Unknown | Mapping[str, _Unknown] = "error",
    device: _Device | None = None,
    allocator: _Allocator | None = None,
    copy: bool | None = None,
    writable: bool | None = None,
    legacy: _Legacy = "copy",
    out: _OutT,
    threads: SupportsIndex | None = None,
    xp: None = None,
) -> _OutT: ...
@overload
def to_tensors(
    obj: _Source,
    *,
    columns: Sequence[str] | Mapping[str, _Group] | None = None,
    dtype: _DType | Mapping[str, _DType] | None = None,
    nulls: _Nulls | Mapping[str, _Nulls] | None = "error",
    order: _Order = "C",
    decimal: _Decimal | Mapping[str, _Decimal] | None = None,
    dictionary: _Dictionary | Mapping[str, _Dictionary] | None = None,
    unit: _Unit | Mapping[str, _Unit] | None = None,
    length: SupportsIndex | Mapping[str, SupportsIndex] | None = None,
    categories: _Categories | Mapping[str, _Categories | None] | None = None,
    unknown: _Unknown | Mapping[str, _Unknown] = "error",
    device: _Device | None = None,
    allocator: _Allocator | None = None,
    copy: bool | None = None,
    writable: bool | None = None,
    legacy: _Legacy = "copy",
    threads: SupportsIndex | None = None,
    xp: None = None,
) -> dict[str, Tensor]:
    """Converts columns of a batch, a table or a stream to a dict of tensors by name. With a dict for `columns`,
    converts named groups, and packs each list of columns into a matrix.

    columns: the names of the columns, in this order, and fields of structs by their path, such as "s.a"; or a dict
        such as {"x": ["a", "b"], "y": "label"}, in which a list becomes a matrix, and a single name that column, each
        also as a `group` with options of its own. `padded` rows become a matrix, `ragged` rows a Ragged, and
        columns of `arrow` a RecordBatch. None takes all columns except the index of a pandas data frame.
    dtype, nulls: as for `to_tensor`. A dict may also name groups: their dtype is that of the tensor, and their
        null policy that of columns without one of their own.

    The other keywords are those of `to_tensor`. A null row is null in each of its columns.
    """

@overload
def to_tensors(
    obj: _Source,
    *,
    columns: Sequence[str] | Mapping[str, _Group] | None = None,
    dtype: _DType | Mapping[str, _DType] | None = None,
    nulls: _Nulls | Mapping[str, _Nulls] | None = "error",
    order: _Order = "C",
    decimal: _Decimal | Mapping[str, _Decimal] | None = None,
    dictionary: _Dictionary | Mapping[str, _Dictionary] | None = None,
    unit: _Unit | Mapping[str, _Unit] | None = None,
    length: SupportsIndex | Mapping[str, SupportsIndex] | None = None,
    categories: _Categories | Mapping[str, _Categories | None] | None = None,
    unknown: _Unknown | Mapping[str, _Unknown] = "error",
    device: _Device | None = None,
    allocator: _Allocator | None = None,
    copy: bool | None = None,
    writable: bool | None = None,
    legacy: _Legacy = "copy",
    threads: SupportsIndex | None = None,
    xp: _ArrayNamespace[_ArrayT_co],
) -> dict[str, _ArrayT_co]: ...
@overload
def to_tensors(
    obj: _Source,
    *,
    columns: Sequence[str] | Mapping[str, _Group] | None = None,
    dtype: _DType | Mapping[str, _DType] | None = None,
    nulls: _Nulls | Mapping[str, _Nulls] | None = "error",
    order: _Order = "C",
    decimal: _Decimal | Mapping[str, _Decimal] | None = None,
    dictionary: _Dictionary | Mapping[str, _Dictionary] | None = None,
    unit: _Unit | Mapping[str, _Unit] | None = None,
    length: SupportsIndex | Mapping[str, SupportsIndex] | None = None,
    categories: _Categories | Mapping[str, _Categories | None] | None = None,
    unknown: _Unknown | Mapping[str, _Unknown] = "error",
    device: _Device | None = None,
    allocator: _Allocator | None = None,
    copy: bool | None = None,
    writable: bool | None = None,
    legacy: _Legacy = "copy",
    threads: SupportsIndex | None = None,
    xp: ModuleType | str,
) -> dict[str, Any]: ...
@overload
def to_tensors(
    obj: _Source,
    *,
    columns: Mapping[str, _AnyGroup],
    dtype: _DType | Mapping[str, _DType] | None = None,
    nulls: _Nulls | Mapping[str, _Nulls] | None = "error",
    order: _Order = "C",
    decimal: _Decimal | Mapping[str, _Decimal] | None = None,
    dictionary: _Dictionary | Mapping[str, _Dictionary] | None = None,
    unit: _Unit | Mapping[str, _Unit] | None = None,
    length: SupportsIndex | Mapping[str, SupportsIndex] | None = None,
    categories: _Categories | Mapping[str, _Categories | None] | None = None,
    unknown: _Unknown | Mapping[str, _Unknown] = "error",
    device: _Device | None = None,
    allocator: _Allocator | None = None,
    copy: bool | None = None,
    writable: bool | None = None,
    legacy: _Legacy = "copy",
    threads: SupportsIndex | None = None,
    xp: object | None = None,
) -> dict[str, Any]: ...
@overload
def to_ragged(
    obj: _Data,
    *,
    dtype: _DType | Mapping[str, _DType] | None = None,
    nulls: _Nulls | Mapping[str, _Nulls] | None = "error",
    decimal: _Decimal | Mapping[str, _Decimal] | None = None,
    dictionary: _Dictionary | Mapping[str, _Dictionary] | None = None,
    unit: _Unit | Mapping[str, _Unit] | None = None,
    device: _Device | None = None,
    allocator: _Allocator | None = None,
    copy: bool | None = None,
    writable: bool | None = None,
    legacy: _Legacy = "copy",
    pad: None = None,
    truncate: Literal["error"] = "error",
    side: Literal["right"] = "right",
    multiple_of: Literal[1] = 1,
    xp: None = None,
) -> Ragged[Tensor]:
    """Converts lists and strings to values and offsets: a Ragged, of views if layout and options allow it.

    With pad=(value, length), returns a matrix of shape (rows, length, *inner), whose rows are padded, and a bool
    for each of its items, True where a valid row has a valid element. A length of None is that of the longest
    row.

    obj: a column of Arrow data, as for `to_tensor`: lists, large lists, list views, nested lists, strings,
        binaries or arrow.variable_shape_tensor. Strings return their bytes as uint8.
    dtype, decimal, dictionary, unit: as for `to_tensor`, of the elements.
    nulls: "error" refuses null rows and null elements. "keep" returns null rows as `validity`, and leaves the
        values of null elements undefined. "nan" or a number fills null elements, and null rows become empty,
        but those of arrow.variable_shape_tensor, whose shapes have no place for that.
        With pad, null rows are padding unless nulls="error", and so are null elements that are kept.
    truncate: what happens to rows that are longer than the length of pad: "error"; "left" drops their first
        elements, "right" their last.
    side: where the padding of a row goes: "right", after its elements, or "left", before them.
    multiple_of: the length of the longest row is rounded up to a multiple of this, for a length of None.
    device, allocator, copy, writable, legacy, xp: as for `to_tensor`.

    The offsets of a slice are copied, so that they start at 0. The values of list views are those of the whole
    child.
    """

@overload
def to_ragged(
    obj: _Data,
    *,
    dtype: _DType | Mapping[str, _DType] | None = None,
    nulls: _Nulls | Mapping[str, _Nulls] | None = "error",
    decimal: _Decimal | Mapping[str, _Decimal] | None = None,
    dictionary: _Dictionary | Mapping[str, _Dictionary] | None = None,
    unit: _Unit | Mapping[str, _Unit] | None = None,
    device: _Device | None = None,
    allocator: _Allocator | None = None,
    copy: bool | None = None,
    writable: bool | None = None,
    legacy: _Legacy = "copy",
    pad: None = None,
    truncate: Literal["error"] = "error",
    side: Literal["right"] = "right",
    multiple_of: Literal[1] = 1,
    xp: _ArrayNamespace[_ArrayT_co],
) -> Ragged[_ArrayT_co]: ...
@overload
def to_ragged(
    obj: _Data,
    *,
    dtype: _DType | Mapping[str, _DType] | None = None,
    nulls: _Nulls | Mapping[str, _Nulls] | None = "error",
    decimal: _Decimal | Mapping[str, _Decimal] | None = None,
    dictionary: _Dictionary | Mapping[str, _Dictionary] | None = None,
    unit: _Unit | Mapping[str, _Unit] | None = None,
    device: _Device | None = None,
    allocator: _Allocator | None = None,
    copy: bool | None = None,
    writable: bool | None = None,
    legacy: _Legacy = "copy",
    pad: None = None,
    truncate: Literal["error"] = "error",
    side: Literal["right"] = "right",
    multiple_of: Literal[1] = 1,
    xp: ModuleType | str,
) -> Ragged[Any]: ...
@overload
def to_ragged(
    obj: _Data,
    *,
    dtype: _DType | Mapping[str, _DType] | None = None,
    nulls: _Nulls | Mapping[str, _Nulls] | None = "error",
    decimal: _Decimal | Mapping[str, _Decimal] | None = None,
    dictionary: _Dictionary | Mapping[str, _Dictionary] | None = None,
    unit: _Unit | Mapping[str, _Unit] | None = None,
    device: _Device | None = None,
    allocator: _Allocator | None = None,
    copy: bool | None = None,
    writable: bool | None = None,
    legacy: _Legacy = "copy",
    pad: tuple[bool | SupportsIndex | SupportsFloat, SupportsIndex | None],
    truncate: Literal["error", "left", "right"] = "error",
    side: Literal["left", "right"] = "right",
    multiple_of: SupportsIndex = 1,
    xp: None = None,
) -> tuple[Tensor, Tensor]: ...
@overload
def to_ragged(
    obj: _Data,
    *,
    dtype: _DType | Mapping[str, _DType] | None = None,
    nulls: _Nulls | Mapping[str, _Nulls] | None = "error",
    decimal: _Decimal | Mapping[str, _Decimal] | None = None,
    dictionary: _Dictionary | Mapping[str, _Dictionary] | None = None,
    unit: _Unit | Mapping[str, _Unit] | None = None,
    device: _Device | None = None,
    allocator: _Allocator | None = None,
    copy: bool | None = None,
    writable: bool | None = None,
    legacy: _Legacy = "copy",
    pad: tuple[bool | SupportsIndex | SupportsFloat, SupportsIndex | None],
    truncate: Literal["error", "left", "right"] = "error",
    side: Literal["left", "right"] = "right",
    multiple_of: SupportsIndex = 1,
    xp: _ArrayNamespace[_ArrayT_co],
) -> tuple[_ArrayT_co, _ArrayT_co]: ...
@overload
def to_ragged(
    obj: _Data,
    *,
    dtype: _DType | Mapping[str, _DType] | None = None,
    nulls: _Nulls | Mapping[str, _Nulls] | None = "error",
    decimal: _Decimal | Mapping[str, _Decimal] | None = None,
    dictionary: _Dictionary | Mapping[str, _Dictionary] | None = None,
    unit: _Unit | Mapping[str, _Unit] | None = None,
    device: _Device | None = None,
    allocator: _Allocator | None = None,
    copy: bool | None = None,
    writable: bool | None = None,
    legacy: _Legacy = "copy",
    pad: tuple[bool | SupportsIndex | SupportsFloat, SupportsIndex | None],
    truncate: Literal["error", "left", "right"] = "error",
    side: Literal["left", "right"] = "right",
    multiple_of: SupportsIndex = 1,
    xp: ModuleType | str,
) -> tuple[Any, Any]: ...
@overload
def validity(
    obj: _Data,
    *,
    bits: Literal[False] = False,
    order: _Order = "C",
    columns: Sequence[str] | None = None,
    length: SupportsIndex | Mapping[str, SupportsIndex] | None = None,
    device: _Device | None = None,
    xp: None = None,
) -> Tensor:
    """Returns a bool for each value, True where it is valid, in the shape of the values: (rows, columns) for a
    batch, a table or an array of structs.

    With bits=True, returns a view of a column's bitmap: its bytes, and the position of the first row's bit in
    them; or None if no row is null.

    All elements of a null list are null. A null row is null in each column. A matrix takes columns of any type but
    fixed-size binary: lists of a fixed size, and those with a `length`, have a bool for each element, all others one
    for each row.

    order: the memory order of a matrix: "C" row-major, "F" column-major; "A" is "C".
    length: the number of elements that each row of a column of lists has, or a dict by column, as for `to_tensor`: a
        bool for each element. Without it, lists of any length have one for each row.
    columns: the names of the columns of a matrix, in this order; a field of a struct by its path, such as "s.a". None
        takes all columns except the index of a pandas data frame.

    A bitmap can be on any device. Row i is valid if `(bytes[(offset + i) // 8] >> ((offset + i) % 8)) & 1` is
    1. The bitmap does not mark nulls inside a row, nor codes that stand for a null value of a dictionary.
    """

@overload
def validity(
    obj: _Data,
    *,
    bits: Literal[False] = False,
    order: _Order = "C",
    columns: Sequence[str] | None = None,
    length: SupportsIndex | Mapping[str, SupportsIndex] | None = None,
    device: _Device | None = None,
    xp: _ArrayNamespace[_ArrayT_co],
) -> _ArrayT_co: ...
@overload
def validity(
    obj: _Data,
    *,
    bits: Literal[False] = False,
    order: _Order = "C",
    columns: Sequence[str] | None = None,
    length: SupportsIndex | Mapping[str, SupportsIndex] | None = None,
    device: _Device | None = None,
    xp: ModuleType | str,
) -> Any: ...
@overload
def validity(
    obj: _Data,
    *,
    bits: Literal[True],
    order: _Order = "C",
    columns: Sequence[str] | None = None,
    length: None = None,
    device: _Device | None = None,
    xp: None = None,
) -> tuple[Tensor, int] | None: ...
@overload
def validity(
    obj: _Data,
    *,
    bits: Literal[True],
    order: _Order = "C",
    columns: Sequence[str] | None = None,
    length: None = None,
    device: _Device | None = None,
    xp: _ArrayNamespace[_ArrayT_co],
) -> tuple[_ArrayT_co, int] | None: ...
@overload
def validity(
    obj: _Data,
    *,
    bits: Literal[True],
    order: _Order = "C",
    columns: Sequence[str] | None = None,
    length: None = None,
    device: _Device | None = None,
    xp: ModuleType | str,
) -> tuple[Any, int] | None: ...
@overload
def to_arrow(
    x: _DLPackExportable | Ragged[Any],
    *,
    type: _ArrowSchemaExportable | None = None,
    validity: _Data | None = None,
    names: None = None,
    copy: bool | None = None,
    device: _Device | None = None,
    allocator: _Allocator | None = None,
    threads: SupportsIndex | None = None,
) -> Array:
    """Converts a tensor or a Ragged to an Arrow array; with names, a matrix to a record batch of its columns.

    Rows of n-dimensional tensors become arrow.fixed_shape_tensor, a 0-dimensional tensor one row, bools
    arrow.bool8. The result is a view if the layout allows it: the columns of a matrix must be dense, as those of a
    column-major one are. One pass splits a row-major matrix.

    A tensor that came from Arrow returns to the type of its column, but for these: lists with `length=` become
    fixed-size lists, runs and dictionaries with dictionary="values" their values, and values in another dtype or
    `unit=` that dtype's type. Bools are packed to bits again, which is a copy. Nulls that nulls="keep" kept return as
    values, unless `validity` is passed: `to_arrow(x, validity=ad.validity(column))`. Of values that were written to it
    since, only codes are compared with what their type allows.

    x: an object with `__dlpack__`, or a Ragged, which becomes a list array.
    type: the Arrow type or field of the result; a value that it cannot hold exactly is an error, such as 0.1 of
        float64 as float32. With names it is that of every column, or a schema with these names, a dict by name, or a
        list, in which None keeps a column's own type.
    validity: a bool per row, True where it is valid, which becomes the validity bitmap, also under copy=False. With
        names also of shape (rows, columns): a bitmap for each column.
    names: the names of the matrix's columns, all different. If it has more dimensions, the rows of a column
        have the rest.
    copy: None copies if needed, False never (an error instead), True always.
    device: the device of the result. The data is moved there.
    allocator: as for `to_tensor`.
    threads: the number of threads that split a matrix; None is ARROW_DLPACK_THREADS, or one per core.

    Raises ConversionError (a BufferError and a ValueError), which names reason and remedy, and column and row where
    one is at fault; TypeError for an object that is not a tensor.
    """

@overload
def to_arrow(
    x: _DLPackExportable,
    *,
    type: _ArrowSchemaExportable
    | Mapping[str, _ArrowSchemaExportable | None]
    | Sequence[_ArrowSchemaExportable | None]
    | None = None,
    validity: _Data | None = None,
    names: Iterable[str],
    copy: bool | None = None,
    device: _Device | None = None,
    allocator: _Allocator | None = None,
    threads: SupportsIndex | None = None,
) -> RecordBatch: ...
def from_dlpack(
    x: _DLPackExportable,
    /,
    *,
    device: _Device | None = None,
    allocator: _Allocator | None = None,
    copy: bool | None = None,
) -> Tensor:
    """Imports a tensor, like `from_dlpack` of the array API standard.

    device: the device of the result.
    allocator: as for `to_tensor`.
    copy: None copies if needed, False never (an error instead), True always, to memory that no other object
        shares.
    """

def from_arrow(
    obj: _Data,
    *,
    device: _Device | None = None,
    allocator: _Allocator | None = None,
    copy: bool | None = None,
    sync: Literal["event", "host"] = "event",
) -> Array | RecordBatch | ArrayStream:
    """Imports Arrow data: an Array, a RecordBatch for structs, an ArrayStream for streams and the other sources
    that `to_tensor` takes. The result shares memory with the source, unless copy=True.

    With sync="host", exports of device data wait on the host until the data is written, and carry no event.

    allocator: as for `to_tensor`.
    """

@overload
def categories(source: Any, columns: str, *, limit: SupportsIndex = 1_000_000) -> Array:
    """Returns the different values that a column of a source has, as an array for `categories=`; of a list of columns,
    a dict of them by name. Reads the source once, array by array.

    The values are in ascending order, of their bytes or of their numbers, so they depend neither on the order of the
    rows nor on how the source is cut. Nulls are no values. The type is string, binary or int64; uint64 if a value
    needs it. Values of a dictionary that no row has do not count.

    source: Arrow data of any library, an iterable of it, a data set or file that is read in batches, or a callable
        that returns one of these: as for `Loader`. Or shards: a list of (source, rows), such as that of
        `parquet_shards`, which are read one after the other.
    columns: the name of a column, or a list of names.
    limit: the most values of a column; more are an error. The values and one array of the source are in memory.
    """

@overload
def categories(source: Any, columns: Sequence[str], *, limit: SupportsIndex = 1_000_000) -> dict[str, Array]: ...
def explain(
    obj_or_schema: _Data | _ArrowSchemaExportable,
    *,
    columns: Sequence[str] | Mapping[str, _AnyGroup] | None = None,
    dtype: _DType | Mapping[str, _DType] | None = None,
    nulls: _Nulls | Mapping[str, _Nulls] | None = "error",
    order: _Order | None = None,
    decimal: _Decimal | Mapping[str, _Decimal] | None = None,
    dictionary: _Dictionary | Mapping[str, _Dictionary] | None = None,
    unit: _Unit | Mapping[str, _Unit] | None = None,
    length: SupportsIndex | Mapping[str, SupportsIndex] | None = None,
    categories: _Categories | Mapping[str, _Categories | None] | None = None,
    unknown: _Unknown | Mapping[str, _Unknown] = "error",
    device: _Device | None = None,
    copy: bool | None = None,
    writable: bool | None = None,
    validity: bool = False,
    out: _DLPackExportable | None = None,
    pad: tuple[bool | SupportsIndex | SupportsFloat, SupportsIndex | None] | None = None,
    truncate: Literal["error", "left", "right"] = "error",
    side: Literal["left", "right"] = "right",
    multiple_of: SupportsIndex = 1,
    to_arrow: bool = False,
    type: _ArrowSchemaExportable
    | Mapping[str, _ArrowSchemaExportable | None]
    | Sequence[_ArrowSchemaExportable | None]
    | None = None,
    names: Iterable[str] | None = None,
) -> Report:
    """Reports what a conversion would do with this data, or with any data of this schema. Reads no stream.

    For one column, reports what `to_tensor` would do; of lists and strings what `to_ragged` would do to each part, and
    with `pad` to the matrix and its validity. For a batch or a table, reports what `to_tensors` would do to each
    column: its lists and strings are refused, and the row says what to do with them. For the matrix of `to_tensor`,
    pass `order`, such as order="C". With `order`, or with a dict for `columns`, reports the matrices, and each column
    in them; the validity of a `group` has a row under its name. With `device`, reports the transfer of the result;
    `Report.transfer` is the data that moves to the CPU before its conversion, of which the rows know only types and
    lengths.

    validity: True for what `validity` would do, with columns, order, length and device alone.
    out: memory, for what `to_tensor(..., out=out)` would write to it. Memory that does not fit is an error of the row.
        `explain` writes nothing.

    to_arrow: True for what `to_arrow` would do to a tensor or the parts of a Ragged, with type, names, copy and device
        alone; validity=True then stands for a bool per row. A row has the Arrow type of the result, and a type of
        variable length counts no bytes.
    type: as for `to_arrow`.
    names: as for `to_arrow`.

    Does not call a driver, so the report lacks facts that only device memory has. A schema, or a stream without a
    `device` attribute, counts as host memory. A stream on a device that does not say which counts as on device
    0.
    """

def group(
    columns: str | Sequence[str],
    *,
    dtype: _DType | None = None,
    nulls: _Nulls | None = None,
    validity: str | None = None,
) -> Group:
    """Returns columns that become one tensor of a dict, with options of their own: a value of `columns={...}` in
    `to_tensors`, `explain` and `Loader`.

    columns: the name of a column, which is a tensor of its own; or a list of names, which become a matrix.
    dtype: the dtype of the tensor; its columns then have none of their own. None is the one that the call's
        `dtype` has under the group's name, or for all.
    nulls: what happens to the nulls of columns that the call's `nulls` does not name. None is what it has under
        the group's name, or for all.
    validity: the name of one more result: a bool array of the tensor's shape, True where the value is valid. It
        is there whether or not there are nulls. None makes none.
    """

def padded(
    column: str,
    *,
    value: SupportsFloat | SupportsIndex = 0,
    length: SupportsIndex | None = None,
    multiple_of: SupportsIndex = 1,
    truncate: Literal["error", "left", "right"] = "error",
    side: Literal["left", "right"] = "right",
    lengths: str | None = None,
    validity: str | None = None,
    dtype: _DType | None = None,
    nulls: _Nulls | None = None,
) -> Group:
    """Returns a column of lists or strings that becomes a padded matrix of a dict, of shape (rows, length, *inner): a
    value of `columns={...}` in `to_tensors`, `explain` and `Loader`.

    column: the name of a column of lists, large lists, list views, fixed-size lists, strings or binaries. Strings are
        their bytes as uint8.
    value: the padding, exact in an integer or bool, and rounded in a float.
    length: the length of each row. None is that of the longest row of the result, which in a `Loader` is one batch.
    multiple_of: a length of None is rounded up to a multiple of this.
    truncate: what happens to rows that are longer than `length`: "error"; "left" drops their first elements, "right"
        their last.
    side: where the padding of a row goes: "right", after its elements, or "left", before them.
    lengths: the name of one more result: the number of elements of each row that were kept, as int64; 0 of a null row.
    validity: the name of one more result: bools of shape (rows, length), False for padding and for nulls.
    dtype, nulls: as for `group`, of the elements. Null rows are padding unless nulls="error", and so are null elements
        that are kept.
    """

def ragged(column: str, *, dtype: _DType | None = None, nulls: _Nulls | None = None) -> _VariedGroup:
    """Returns a column of lists or strings that becomes a `Ragged` of a dict: a value of `columns={...}` in
    `to_tensors`, `explain` and `Loader`.

    column: the name of a column of lists, large lists, list views, nested lists, strings, binaries or
        arrow.variable_shape_tensor. Strings are their bytes as uint8.
    dtype, nulls: as for `to_ragged`, of the elements; None is what the call has for the group, or for all.
    """

def arrow(*columns: str) -> _VariedGroup:
    """Returns columns of any types that are passed through as a `RecordBatch` of a dict: a value of `columns={...}` in
    `to_tensors`, `explain` and `Loader`.

    The batch has the rows of the other results, and shares memory with the source where they lie in one chunk, in
    order.
    """

def track_copies() -> CopyLog:
    """Logs every copy that this package makes inside a `with` block on this thread: what, why, bytes.

    The copy that unpickling makes, and so `copy.deepcopy`, has no entry.
    """

def stream(stream: _Stream, /) -> StreamContext:
    """Sets the CUDA stream of this thread inside a `with` block; outside, it is the legacy default stream. Blocks
    can be nested.

    stream: 1 for the legacy default stream, 2 for the per-thread default stream, a handle, or an object with
        `__cuda_stream__`, `cuda_stream` (PyTorch before 2.10) or `ptr` (CuPy before 14), whose 0 is the legacy default
        stream. The stream must live until the block ends, and then as long as tensors that an exchange table gave
        to others in the block: an object that owns its stream is kept as long.
    """

def memory_stats() -> dict[str, dict[str, int]]:
    """Returns the bytes of memory that this package uses and caches, by the name of each device in use;
    "cuda_host" is page-locked memory. Does not wait for a device. The dict is empty if no device is in use.

    A device has "pool_used" and "pool_reserved" of its pool, their maxima "pool_used_peak" and
    "pool_reserved_peak", "unpooled_used" and "unpooled_kept" of cuMemAlloc, and "allocators_used" of other
    allocators. "waiting_blocks" counts blocks without owners that device work may still use, of other libraries
    too; "waiting_bytes" are those of this package. Page-locked memory has "used" and "kept". "reaper" has
    "released_blocks": blocks that the package's thread has returned by itself, of all devices.
    """

def collect() -> int:
    """Returns to its owners all memory whose device work is done, and returns the number of blocks that still wait
    for a device. Does not wait for a device.

    A thread of this package does this by itself as work ends. Call it to know that memory is back now, for example
    before another library allocates. `ARROW_DLPACK_REAPER=0` in the environment turns the thread off; then imports
    and exports look at what waits.
    """

def empty_cache() -> None:
    """Frees the device and page-locked memory that is cached for later results and copies. The host may wait for
    all work of the devices. Memory in use, also by deferred frees, stays."""

def warm_up(device: _Device, /) -> None:
    """Prepares a CUDA device for later calls: starts it, loads the kernels, which a driver may have to compile for a
    second or two, and creates the memory pool, a stream and a page-locked staging buffer. The host may wait for the
    device.

    Nobody has to call this: the first call that needs one of these makes it. Call it before you measure times or
    capture a CUDA graph.

    device: a CUDA device, such as "cuda", "cuda:1", (2, 0) or the device object of another library.

    Raises ConversionError (a BufferError and a ValueError) if it is no CUDA device, if there is no such device or no
    driver, or if the driver fails; also a MemoryError if memory is out.
    """
