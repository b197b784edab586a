"""The kernels on random data: what they make on the device is what the same conversion makes of it on the host.

With --few they run with fewer rows, as the sections `sanitizer` and `ptx` have them.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
from collections.abc import Iterator
from typing import Any

from record import SMOKE, Record

# Fewer rows where each access is checked, and fewer still where the driver is simulated.
FEW = SMOKE or "--few" in sys.argv
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]

record = Record()
ad: Any = record.need("arrow_dlpack")
np: Any = record.need("numpy")
pa: Any = record.need("pyarrow")
# Neither a multiple of a warp's rows nor of a tile's.
ROWS = 75 if SMOKE else 1_003 if FEW else 300_007


def column(name: str, seed: int, nulls: bool) -> Any:
    """Values that every type has, one row of three of them null; not from the start of their memory."""
    random = np.random.default_rng(seed)
    mask = random.random(ROWS) < 0.3 if nulls else None
    values = random.random(ROWS) < 0.5 if name == "bool" else random.integers(0, 100, ROWS).astype(name)
    return pa.array(values, mask=mask)[5:]


def columns(nulls: bool) -> Iterator[tuple[str, Any]]:
    for seed, name in enumerate(["bool", *INTEGERS, *FLOATS]):
        yield name, column(name, seed, nulls)


def batch(names: list[str], nulls: bool) -> Any:
    arrays = [column(name, seed, nulls) for seed, name in enumerate(names)]
    return pa.record_batch(arrays, names=[f"c{index}" for index in range(len(names))])


def bits(tensor: Any) -> Any:
    """The elements, floats as the bits that they are."""
    array = np.from_dlpack(tensor)
    return array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "f" else array


def same(name: str, data: Any, **keywords: Any) -> None:
    """Moved to the device and converted there, against converted here."""
    expected = ad.to_tensor(data, copy=True, **keywords)
    made = ad.to_tensor(ad.from_arrow(data).to_device("cuda"), copy=True, **keywords)
    assert (made.device.type, made.dtype, made.shape) == (2, expected.dtype, expected.shape), name
    assert np.array_equal(bits(made.to_device("cpu")), bits(expected)), f"{name}: other elements than on the host"


def check_bits_and_plain_copies() -> None:
    for name, data in columns(nulls=False):
        same(name, data)


def check_nulls_are_filled() -> None:
    for name, data in columns(nulls=True):
        same(name, data, nulls=1)
        same(name, data, nulls="keep")
        if name in FLOATS:
            same(name, data, nulls="nan")


def check_casts() -> None:
    for to in [*INTEGERS, *FLOATS]:
        for name, data in columns(nulls=True):
            same(f"{name} to {to}", data, dtype=to, nulls=1)


def check_casts_at_the_bounds() -> None:
    """The ends of every type into every other: the host and the device say the same of each."""
    for name in [*INTEGERS, *FLOATS]:
        info = np.iinfo(name) if name in INTEGERS else np.finfo(name)
        near = [info.min, info.max, 0, 1, *([-1] if info.min < 0 else [])]
        for value in [*near, *([0.5, -0.0, float("inf"), float("nan")] if name in FLOATS else [])]:
            data = pa.array(np.full(40, value, name))
            for to in [*INTEGERS, *FLOATS]:
                outcomes = []
                for source in (data, ad.from_arrow(data).to_device("cuda")):
                    try:
                        outcomes.append(bits(ad.to_tensor(source, dtype=to, copy=True).to_device("cpu")).tobytes())
                    except ad.CastError as error:
                        outcomes.append(str(error))
                assert outcomes[0] == outcomes[1], f"{value} of {name} to {to}: {outcomes}"


def check_casts_that_do_not_fit_are_refused() -> None:
    for values, to in (([1, 300], "uint8"), ([1, -1], "uint64"), ([1.0, 0.5], "int32")):
        data = pa.array(values)
        told = []
        for source in (ad.from_arrow(data), ad.from_arrow(data).to_device("cuda")):
            try:
                ad.to_tensor(source, dtype=to)
            except ad.CastError as error:
                told.append(str(error))
        assert len(told) == 2, f"{values} to {to}: {told}"


def check_values_of_dictionaries() -> None:
    picked = np.random.default_rng(1).integers(0, 60, ROWS)
    for codes in INTEGERS:
        for name, values in columns(nulls=True):
            data = pa.DictionaryArray.from_arrays(pa.array(picked.astype(codes))[5:], values[:60])
            same(f"{name} by {codes}", data, dictionary="values", nulls=1)


def check_codes_without_values_are_refused() -> None:
    told = []
    bad = (60, -1, 127, -128)
    for code in bad:
        picked = np.zeros(ROWS, "int8")
        picked[ROWS // 2] = code
        data = pa.DictionaryArray.from_arrays(pa.array(picked), column("float32", 1, nulls=False)[:60], safe=False)
        try:
            ad.to_tensor(ad.from_arrow(data).to_device("cuda"), dictionary="values")
        except ValueError as error:
            told.append(str(error))
    assert len(told) == len(bad), told
    assert all(f"code {code} " in text for code, text in zip(bad, told, strict=True)), told


def check_codes_are_filled_and_cast() -> None:
    picked = np.random.default_rng(1).integers(0, 60, ROWS)
    values = column("int64", 2, nulls=True)[:60].cast(pa.string())
    for codes in INTEGERS:
        data = pa.DictionaryArray.from_arrays(pa.array(picked.astype(codes))[5:], values)
        same(codes, data, nulls=100)
        for to in ("int64", "uint8", "float32"):
            same(f"{codes} to {to}", data, dictionary="codes", dtype=to, nulls=100)


def check_decimals() -> None:
    """Of every magnitude, so that floats are rounded by all of their digits."""
    random = np.random.default_rng(3)
    for size, of_type, digits in ((4, pa.decimal32, 9), (8, pa.decimal64, 18), (16, pa.decimal128, 38)):
        stored = random.integers(0, 256, (ROWS, size)).astype("uint8")
        stored[:, size // 2 :] //= 2 ** random.integers(0, 8, (ROWS, 1)).astype("uint8")
        # The lower bytes alone, with their sign.
        stored[::2, size // 2 :] = np.where(stored[::2, size // 2 - 1 : size // 2] > 127, 255, 0)
        for scale in (-5, 1, 2, 9, 22, 38):
            data = pa.Array.from_buffers(of_type(digits, scale), ROWS, [None, pa.py_buffer(stored.tobytes())])[5:]
            same(f"{size} bytes, scale {scale}", data, dtype="float64")
            if scale > 0:
                same(f"{size} bytes, scale {scale}", data, dtype="float32")
    whole = pa.array(random.integers(0, 100, ROWS)).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2))
    for to in INTEGERS:
        same(f"decimal128 to {to}", whole, dtype=to)


def check_runs() -> None:
    lengths = np.random.default_rng(4).integers(1, 9, 4_000 if ROWS > 5_000 else 50)
    for ends in ("int16", "int32", "int64"):
        for name, values in columns(nulls=True):
            data = pa.RunEndEncodedArray.from_arrays(pa.array(lengths.cumsum().astype(ends)), values[: len(lengths)])
            same(f"{name} by {ends}", data[5:], nulls=1)


PADS: list[dict[str, Any]] = [
    {"pad": (1, None)},
    {"pad": (1, None), "multiple_of": 8, "side": "left"},
    {"pad": (1, 3), "truncate": "left"},
    {"pad": (1, 4), "truncate": "right", "side": "left"},
]


def padded(name: str, data: Any, **keywords: Any) -> None:
    """The matrix and its validity, against those of the host."""
    expected = ad.to_ragged(data, **keywords)
    made = ad.to_ragged(ad.from_arrow(data).to_device("cuda"), **keywords)
    for ours, theirs in zip(made, expected, strict=True):
        assert (ours.device.type, ours.dtype, ours.shape) == (2, theirs.dtype, theirs.shape), f"{name} {keywords}"
        there = bits(ours.to_device("cpu"))
        assert np.array_equal(there, bits(theirs)), f"{name} {keywords}: other elements than on the host"


def check_rows_that_are_padded() -> None:
    random = np.random.default_rng(5)
    lengths = random.integers(0, 9, ROWS // 5)
    offsets = np.concatenate([[0], lengths.cumsum()])
    for name in ("bool", "int8", "int64", "float32"):
        items = pa.array(random.integers(0, 2, offsets[-1]).astype(name), mask=random.random(offsets[-1]) < 0.2)
        lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)
        large = pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), items)
        views = pa.ListViewArray.from_arrays(
            pa.array(offsets[:-1][::-1].copy(), pa.int32()), pa.array(lengths[::-1].astype("int32")), items
        )
        for pad in PADS:
            for kind, data in (("list", lists), ("large list", large), ("list view", views)):
                padded(f"{kind} of {name}", data[3:], nulls=1, **pad)
        padded(f"{name} as float64", lists, nulls=1, dtype="float64", **PADS[0])
    pairs = pa.FixedSizeListArray.from_arrays(pa.array(random.random(2 * offsets[-1])), 2)
    complexes = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pairs)
    text = pa.array(["x" * length for length in lengths])
    for pad in PADS:
        padded("text", text, **pad)
        padded("complex128", complexes[3:], dtype="complex128", **pad)


def shown(rows: ad.Ragged) -> tuple[np.ndarray, np.ndarray]:
    """Offsets that count from the first element, and the elements of each row after those of the row before.

    The own offsets of list views do not tell: a copy to a device has only items that rows show, and counts from these.
    """
    offsets, values = bits(rows.offsets.to_device("cpu")), bits(rows.values.to_device("cpu"))
    if rows.lengths is None:
        return offsets, values
    lengths = bits(rows.lengths.to_device("cpu"))
    elements = [values[start : start + length] for start, length in zip(offsets, lengths, strict=True)]
    return np.concatenate([[0], lengths.cumsum()]), np.concatenate(elements)


def check_rows_of_chunks() -> None:
    """Offsets that count from another item, of chunks that begin at other rows."""
    lengths = np.random.default_rng(6).integers(0, 9, ROWS // 5)
    for kind in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view):
        rows = pa.array([[length] * length for length in lengths], kind(pa.int16()))
        for first in range(5):
            cuts = [0, first, 7, 7 + len(rows) // 2, len(rows)]
            chunks = pa.chunked_array([rows[start:end] for start, end in itertools.pairwise(cuts)])
            made, expected = ad.to_ragged(ad.from_arrow(chunks).to_device("cuda")), ad.to_ragged(chunks)
            for part in ("offsets", "lengths", "values"):
                ours, theirs = getattr(made, part), getattr(expected, part)
                if ours is None:
                    assert theirs is None
                    continue
                assert (ours.device.type, ours.dtype) == (2, theirs.dtype), f"{kind} {part}"
            assert len(made) == len(expected), kind
            for part, ours, theirs in zip(("offsets", "values"), shown(made), shown(expected), strict=True):
                assert np.array_equal(ours, theirs), f"{kind} {part}"


def check_columns_of_several_elements_in_a_matrix() -> None:
    for nulls in (False, True):
        wide = column("float32", 3, nulls=nulls).slice(0, (ROWS - 5) // 7 * 7)
        wide = pa.FixedSizeListArray.from_arrays(wide, 7)
        names = ["int16", "float64", "bool"]
        data = pa.record_batch([*(column(name, 1, nulls)[: len(wide)] for name in names), wide], names=[*names, "wide"])
        for order in ("C", "F"):
            for dtype in ("float32", "float64"):
                keywords = {"nulls": 2} if nulls else {}
                same(f"{order} {dtype}", data, order=order, dtype=dtype, **keywords)


def check_lists_of_one_length() -> None:
    for name in ("float32", "bool"):
        items = column(name, 5, nulls=False)
        offsets = pa.array(np.arange(1, len(items), 5, dtype="int32"))
        lists = pa.ListArray.from_arrays(offsets, items)
        same(name, lists, length=5)
        numbers = column("int16", 2, nulls=False)[: len(lists)]
        same(f"{name} beside numbers", pa.record_batch([lists, numbers], ["lists", "n"]), length=5, dtype="float64")


def check_validity() -> None:
    for name, data in columns(nulls=True):
        made = ad.validity(ad.from_arrow(data).to_device("cuda"))
        assert np.array_equal(bits(made.to_device("cpu")), bits(ad.validity(data))), name


def check_bools_become_bits() -> None:
    data = column("bool", 0, nulls=False)
    tensor = ad.to_tensor(ad.from_arrow(data).to_device("cuda"))
    back = ad.to_arrow(ad.from_dlpack(tensor), type=pa.bool_()).to_device("cpu")
    assert pa.array(back).equals(data)


def check_strided_tensors_are_gathered() -> None:
    """Along and across rows, backwards, repeated, and permuted: by words of every size."""
    random = np.random.default_rng(6)
    for name in ("bool", "int8", "float16", "float32", "float64", "complex128"):
        whole = random.integers(0, 2 if name == "bool" else 100, (ROWS // 25, 25)).astype(name)
        cube = whole[: ROWS // 50 * 2].reshape(-1, 2, 25)
        parts = {
            "every third": whole[::3],
            "backwards": whole[::-1, ::-1],
            "a column": whole[:, 3],
            "some columns": whole[:, 1:24],
            "transposed": whole[:, 2:23].T,
            "permuted": cube[:, :, 1:].transpose(0, 2, 1),
            "repeated": np.broadcast_to(whole[:, :1], whole.shape),
        }
        for part, view in parts.items():
            made = ad.to_arrow(ad.from_dlpack(view).to_device("cuda"))
            assert made.device.type == 2, part
            assert pa.array(made.to_device("cpu")).equals(pa.array(ad.to_arrow(view))), f"{part} of {name}"


def check_rows_are_split_into_columns() -> None:
    random = np.random.default_rng(7)
    for name in ("bool", "int8", "float16", "float32", "float64"):
        for width in (1, 3, 10, 16, 70):
            rows = random.integers(0, 2 if name == "bool" else 100, (ROWS // width, width)).astype(name)
            valid = random.random(rows.shape) < 0.5
            names = [f"c{index}" for index in range(width)]
            there = ad.from_dlpack(rows).to_device("cuda")
            for validity in (None, valid):
                told = None if validity is None else ad.from_dlpack(validity).to_device("cuda")
                made = pa.array(ad.to_arrow(there, names=names, validity=told).to_device("cpu"))
                expected = pa.array(ad.to_arrow(rows, names=names, validity=validity))
                assert made.equals(expected), f"{width} columns of {name}"


def check_bools_of_bytes() -> None:
    """Bytes that are neither 0 nor 1 are copied, others are only looked at."""
    for stored in ([0, 1, 7, -3] * (ROWS // 4), [0, 1] * (ROWS // 2)):
        data = pa.ExtensionArray.from_storage(pa.bool8(), pa.array(stored, pa.int8()))[3:]
        same("bool8", data)
        made = ad.to_tensor(ad.from_arrow(data).to_device("cuda"))
        assert made.copied == (7 in stored)
        assert np.array_equal(bits(made.to_device("cpu")), bits(ad.to_tensor(data))), "bool8"


def check_nulls_of_lists_and_of_their_items() -> None:
    for name in ("int8", "float32"):
        items = column(name, 1, nulls=True)
        rows = len(items) // 3
        mask = pa.array(np.random.default_rng(8).random(rows) < 0.2)
        data = pa.FixedSizeListArray.from_arrays(items[: 3 * rows], 3, mask=mask)
        same(f"lists of {name}", data[2:], nulls=1)
        made = ad.validity(ad.from_arrow(data).to_device("cuda"))
        assert np.array_equal(bits(made.to_device("cpu")), bits(ad.validity(data))), name


class Uncounted:
    """A batch whose columns do not say how many of their values are null."""

    def __init__(self, batch: Any) -> None:
        self.capsules = batch.__arrow_c_device_array__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
        # The words of an ArrowArray: length, null_count, offset, n_buffers, n_children, buffers, children.
        words = ctypes.c_int64 * 7
        whole = words.from_address(pointer(self.capsules[1], b"arrow_device_array"))
        for child in (ctypes.c_int64 * whole[4]).from_address(whole[6]):
            words.from_address(child)[1] = -1

    def __arrow_c_device_array__(self, *_: Any, **__: Any) -> Any:
        return self.capsules


def check_nulls_are_counted() -> None:
    whole = batch(["int8", "float32", "int64"] * 3, nulls=True)
    whole = whole.set_column(0, "c0", pa.array([None] + [1] * (whole.num_rows - 1), pa.int8()))
    places = []
    for source in (whole, Uncounted(ad.from_arrow(whole).to_device("cuda"))):
        try:
            ad.to_tensors(source)
        except ad.NullError as error:
            places.append((error.column, error.row))
    assert places[0] == places[1] == ("c0", 0), places


class Part:
    """Some columns of a matrix on the device, for `out=`."""

    def __init__(self, matrix: Any, first: int, columns: int) -> None:
        size = np.dtype(matrix.dtype).itemsize
        rows, across = matrix.shape
        whole = matrix.__cuda_array_interface__
        places = {"shape": (rows, columns), "strides": (across * size, size)}
        self.__cuda_array_interface__ = {**whole, **places, "data": (whole["data"][0] + first * size, False)}


def check_outputs_with_gaps() -> None:
    """Of lists, which are made one after the other and then spread, and of columns."""
    rows, random = ROWS // 3, np.random.default_rng(9)
    for name in ("int8", "int16", "float32", "float64"):
        values = random.integers(0, 100, (rows, 3)).astype(name)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 3)
        several = pa.record_batch([pa.array(values[:, place].copy()) for place in range(3)], names=["a", "b", "c"])
        for data, first in itertools.product((lists, several), (0, 1, 4)):
            expected = random.integers(0, 100, (rows, 8)).astype(name)
            made = ad.from_dlpack(expected).to_device("cuda")
            ad.to_tensor(ad.from_arrow(data).to_device("cuda"), out=Part(made, first, 3))
            expected[:, first : first + 3] = values
            assert np.array_equal(bits(made.to_device("cpu")), bits(expected)), f"{name} from {first}"


def check_pairs_are_complex_numbers() -> None:
    random = np.random.default_rng(10)
    for name, to in (("float32", "complex64"), ("float64", "complex128")):
        pairs = [pa.FixedSizeListArray.from_arrays(pa.array(random.random(2 * ROWS).astype(name)), 2) for _ in range(3)]
        data = pa.record_batch(pairs, names=["a", "b", "c"])
        for order in ("C", "F"):
            same(f"{to}, {order}", data, dtype=to, order=order)


MATRICES = {
    "one column": ["float32"],
    "four columns": ["float32"] * 4,
    "five columns": ["int16"] * 5,
    "three columns": ["int8"] * 3,
    "mixed": ["float32", "int8", "bool", "float16", "uint8"],
    "seventy columns": ["float64"] * 70,
    "bools": ["bool"] * 16,
}


def check_matrices() -> None:
    for name, names in MATRICES.items():
        for nulls in (False, True):
            data = batch(names, nulls)
            for order in ("C", "F"):
                same(f"{name}, {order}", data, order=order, nulls=1 if nulls else "error")


def check_matrices_of_another_dtype() -> None:
    for to in ("float32", "float64", "float16"):
        same(f"mixed to {to}", batch(MATRICES["mixed"], nulls=True), dtype=to, nulls=1)


def check_tables_of_chunks() -> None:
    whole = batch(["float32"] * 7, nulls=True)
    cuts = [0, 1, 33, 60, whole.num_rows]
    chunks = [whole.slice(start, end - start) for start, end in itertools.pairwise(cuts)]
    table = pa.Table.from_batches(chunks)
    made = ad.to_tensor(ad.from_arrow(table).to_device("cuda"), nulls=1)
    assert np.array_equal(bits(made.to_device("cpu")), bits(ad.to_tensor(table, nulls=1)))


def check_more_than_a_grid() -> None:
    """More tiles and vectors than the blocks of a launch on the largest devices, so that each block takes several."""
    rows = 200 if FEW else 4_000_000
    nulls = np.arange(rows) % 7 == 3
    columns = [pa.array(np.arange(rows, dtype="float32"), mask=nulls if index % 3 else None) for index in range(16)]
    same("16 columns", pa.record_batch(columns, [f"c{index}" for index in range(16)]), nulls=-1)
    count = 200 if FEW else 260_000_000
    same(
        "bits",
        pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(np.random.default_rng(9).bytes(count // 8))]),
    )


def launched() -> list[str]:
    """The names of the kernels that ran, which only the simulated driver tells."""
    text = ctypes.create_string_buffer(1 << 16)
    ctypes.CDLL("libcuda.so.1").simulated_cuda_report(text, ctypes.c_size_t(len(text)))
    lines = (line.split() for line in text.value.decode().splitlines())
    return [words[1] for words in lines if words[:1] == ["launched:"]]


def check_the_image_that_was_asked_for() -> None:
    image = ad._native._cuda_images()[0]
    record.note("image", image)
    assert image == "PTX" or os.environ.get("CUDA_FORCE_PTX_JIT") != "1"


status = record.run(globals())
if SMOKE:
    record.note("launched", launched())
sys.exit(status)
