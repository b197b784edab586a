"""pyarrow as a suite sees it through the package: its data behind stand-ins whose protocol methods are ours.

pyarrow's classes cannot be patched. A stand-in forwards everything to the real object, except what the package does
too: the DLPack and the Arrow methods, and the import of other objects' data.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import arrow_dlpack as ad
import pyarrow as pa
import pyarrow.ipc

from routing.counting import count
from routing.namespace import Namespace

ARROW_METHODS = ("__arrow_c_device_array__", "__arrow_c_array__", "__arrow_c_stream__")


class ArrayCapsules:
    """A producer of the two capsules at hand."""

    def __init__(self, schema: Any, array: Any) -> None:
        self.capsules = schema, array

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self.capsules


class DeviceArrayCapsules:
    """A producer of the two capsules at hand."""

    def __init__(self, schema: Any, array: Any) -> None:
        self.capsules = schema, array

    def __arrow_c_device_array__(self, requested_schema: Any = None, **keywords: Any) -> Any:
        return self.capsules


class StreamCapsule:
    """A producer of the capsule at hand."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.capsule


@contextmanager
def in_words_of_pyarrow(real: Any, requested_schema: Any) -> Iterator[None]:
    """Puts pyarrow's words before the package's in errors of the same type: cases match the text, and go on."""
    try:
        yield
    except ad.CastError as error:
        if isinstance(real, pa.Array):
            source, target = real.type, f"type {pa.DataType._import_from_c_capsule(requested_schema)}"
        else:
            source, target = real.schema, pa.Schema._import_from_c_capsule(requested_schema)
        raise ad.CastError(f"Could not cast {source} to requested {target}: {error}") from error
    except NotImplementedError as error:
        keyword = re.fullmatch("the keyword (.*) is not supported", str(error))
        if keyword is None:
            raise
        raise NotImplementedError(f"Received unsupported keyword argument(s): [{keyword[1]!r}]: {error}") from error


def through(source: Any) -> Any:
    """The data of any producer, imported by the package."""
    count("ad.from_arrow")
    return ad.from_arrow(source)


class Routed:
    """A stand-in for an object of pyarrow's."""

    # What makes pyarrow's object of one of the package's.
    build: Callable[[Any], Any]

    def __init__(self, real: Any) -> None:
        self._real = real

    @property
    def __class__(self) -> type:
        # isinstance() answers as it does for the real object.
        return type(self._real)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)
        return forwarding(value) if callable(value) else routed(value)

    def __eq__(self, other: object) -> bool:
        return self._real == plain(other)

    __hash__ = None

    def __len__(self) -> int:
        return len(self._real)

    def __iter__(self) -> Iterator[Any]:
        return map(routed, self._real)

    def __getitem__(self, key: Any) -> Any:
        return routed(self._real[key])

    def __repr__(self) -> str:
        return f"<routed {self._real!r}>"

    @classmethod
    def rebuilt(cls, real: Any) -> Any:
        """The same data, imported and exported by the package."""
        return cls.build(through(real))

    def _export_to_c(self, *addresses: Any) -> None:
        self.rebuilt(self._real)._export_to_c(*addresses)


class RoutedDLPack(Routed):
    """A stand-in for a tensor, or for what can be one."""

    def _tensor(self) -> ad.Tensor:
        return ad.from_dlpack(self._real)

    def __dlpack__(self, **keywords: Any) -> Any:
        count("Tensor.__dlpack__")
        capsule = self._tensor().__dlpack__(**keywords)
        version = keywords.get("max_version")
        if version is None or version[0] < 1:
            # pyarrow warns of it and the package does not; the cases are about the capsule.
            warnings.warn("an unversioned DLPack capsule", DeprecationWarning, stacklevel=2)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        count("Tensor.__dlpack_device__")
        return self._tensor().__dlpack_device__()


class RoutedTensor(RoutedDLPack):
    """A stand-in for a `pa.Tensor`."""

    @staticmethod
    def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
        """As `pa.Tensor.from_dlpack`."""
        count("ad.from_dlpack")
        return routed(pa.Tensor.from_dlpack(ad.from_dlpack(plain(x), device=device, copy=copy)))


class RoutedArrays(Routed):
    """A stand-in for what has the Arrow array methods."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        with in_words_of_pyarrow(self._real, requested_schema):
            return through(self._real).__arrow_c_array__(requested_schema)

    def __arrow_c_device_array__(self, requested_schema: Any = None, **keywords: Any) -> Any:
        with in_words_of_pyarrow(self._real, requested_schema):
            return through(self._real).__arrow_c_device_array__(requested_schema, **keywords)

    def _export_to_c_device(self, *addresses: Any) -> None:
        self.rebuilt(self._real)._export_to_c_device(*addresses)

    @classmethod
    def _import_from_c_capsule(cls, schema: Any, array: Any) -> Any:
        return routed(cls.build(through(ArrayCapsules(schema, array))))

    @classmethod
    def _import_from_c_device_capsule(cls, schema: Any, array: Any) -> Any:
        return routed(cls.build(through(DeviceArrayCapsules(schema, array))))


class RoutedArray(RoutedArrays, RoutedDLPack):
    """A stand-in for a `pa.Array`."""

    build = staticmethod(pa.array)

    def _tensor(self) -> ad.Tensor:
        return ad.to_tensor(self._real)

    def to_tensor(self, *, allow_nulls: bool = False) -> Any:
        """As `pa.Array.to_tensor`, whose error for nulls is not of the package's type."""
        count("ad.to_tensor")
        try:
            tensor = ad.to_tensor(self._real, nulls="keep" if allow_nulls else "error")
        except ad.NullError as error:
            raise pa.ArrowInvalid("Array contains nulls") from error
        return routed(pa.Tensor.from_dlpack(tensor))

    @staticmethod
    def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
        """As `pa.Array.from_dlpack`."""
        count("ad.to_arrow")
        return routed(pa.array(ad.to_arrow(plain(x), device=device, copy=copy)))


class RoutedStream(Routed):
    """A stand-in for what has a stream only."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return through(StreamCapsule(self._real.__arrow_c_stream__())).__arrow_c_stream__(requested_schema)

    @classmethod
    def _import_from_c_capsule(cls, capsule: Any) -> Any:
        return routed(cls.build(through(StreamCapsule(capsule))))


class RoutedReader(RoutedStream):
    """A stand-in for a `pa.RecordBatchReader`."""

    build = staticmethod(pa.RecordBatchReader.from_stream)


class RoutedChunks(RoutedStream):
    """A stand-in for a `pa.ChunkedArray`."""

    build = staticmethod(pa.chunked_array)


class RoutedTable(RoutedStream):
    """A stand-in for a `pa.Table`."""

    build = staticmethod(pa.table)


class RoutedBatch(RoutedArrays, RoutedStream):
    """A stand-in for a `pa.RecordBatch`."""

    build = staticmethod(pa.record_batch)


class RoutedWriter(Routed):
    """A stand-in for a writer, which takes stand-ins."""

    def __enter__(self) -> RoutedWriter:
        self._real.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._real.__exit__(*exception)


STAND_INS: tuple[tuple[type, type[Routed]], ...] = (
    (pa.RecordBatch, RoutedBatch),
    (pa.Array, RoutedArray),
    (pa.ChunkedArray, RoutedChunks),
    (pa.Table, RoutedTable),
    (pa.RecordBatchReader, RoutedReader),
    (pa.Tensor, RoutedTensor),
    (pa.FixedShapeTensorScalar, RoutedDLPack),
    (pa.ipc.RecordBatchStreamWriter, RoutedWriter),
)


class Kind:
    """A stand-in for a class of pyarrow's data: its functions take and give stand-ins."""

    def __init__(self, real: type, stand_in: type[Routed]) -> None:
        self._real, self._stand_in = real, stand_in

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(plain(instance), self._real)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return forwarding(self._real)(*arguments, **keywords)

    def __getattr__(self, name: str) -> Any:
        if not hasattr(self._real, name):
            raise AttributeError(f"{self._real.__name__} has no attribute {name!r}")
        if name in ("from_dlpack", "_import_from_c_capsule", "_import_from_c_device_capsule"):
            return getattr(self._stand_in, name)
        if name in ("_export_to_c", "_export_to_c_device"):
            return lambda stand_in, *addresses: getattr(stand_in, name)(*addresses)
        if name in ("_import_from_c", "_import_from_c_device"):
            imported = getattr(self._real, name)
            return lambda *addresses: routed(self._stand_in.rebuilt(imported(*addresses)))
        value = getattr(self._real, name)
        return forwarding(value) if callable(value) else value


def routed(value: Any) -> Any:
    """`value`, with stand-ins for pyarrow's data."""
    if isinstance(value, Routed):
        return value
    if type(value) in (list, tuple):
        return type(value)(map(routed, value))
    return next((stand_in(value) for real, stand_in in STAND_INS if isinstance(value, real)), value)


def plain(value: Any) -> Any:
    """`value`, with pyarrow's data for its stand-ins."""
    if isinstance(value, Routed):
        return value._real
    if type(value) in (list, tuple):
        return type(value)(map(plain, value))
    if type(value) is dict:
        return {key: plain(each) for key, each in value.items()}
    if inspect.isgenerator(value):
        return map(plain, value)
    return value


def forwarding(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of pyarrow's, called with real objects, or what the package imported of others'; gives stand-ins."""

    def forwarded(*arguments: Any, **keywords: Any) -> Any:
        first, *others = arguments or (None,)
        if arguments and is_foreign(first):
            return routed(function(through(first), *plain(others), **plain(keywords)))
        return routed(function(*plain(list(arguments)), **plain(keywords)))

    return forwarded


def is_foreign(value: Any) -> bool:
    """Whether pyarrow would import this by an Arrow method."""
    real = isinstance(value, Routed | Kind) or any(isinstance(value, real) for real, _ in STAND_INS)
    return not real and any(hasattr(value, method) for method in ARROW_METHODS)


class ExtensionType(pa.ExtensionType):
    """pyarrow's, whose arrays are made of stand-ins."""

    def wrap_array(self, storage: Any) -> Any:
        """As `pa.ExtensionType.wrap_array`."""
        return forwarding(super().wrap_array)(storage)


def replaced() -> dict[str, Any]:
    """pyarrow's names that make, are or hold data."""
    found: dict[str, Any] = {"ExtensionType": ExtensionType}
    for name, value in vars(pa).items():
        if isinstance(value, type):
            stand_in = next((stand_in for real, stand_in in STAND_INS if issubclass(value, real)), None)
            if stand_in:
                found[name] = Kind(value, stand_in)
        elif name in ("array", "chunked_array", "record_batch", "table"):
            found[name] = forwarding(value)
    streams = {name: forwarding(getattr(pa.ipc, name)) for name in ("new_stream", "open_stream")}
    return {**found, "ipc": Namespace(pa.ipc, streams)}
