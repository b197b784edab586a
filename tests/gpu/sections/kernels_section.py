"""The kernels on random data: what they make on the device is what the same conversion makes of it on the host.

Where compute-sanitizer is on the path, the same runs once more under each of its tools.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from record import Record

# Fewer rows where each access is checked, and fewer still where the driver is simulated.
SMOKE = "--smoke" in sys.argv
FEW = SMOKE or "--few" in sys.argv
TOOLS = ("memcheck", "racecheck", "synccheck")
SECONDS = 100
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


def check_validity() -> None:
    for name, data in columns(nulls=True):
        made = ad.validity(ad.from_arrow(data).to_device("cuda"))
        assert np.array_equal(bits(made.to_device("cpu")), bits(ad.validity(data))), name


def check_bools_become_bits() -> None:
    data = column("bool", 0, nulls=False)
    tensor = ad.to_tensor(ad.from_arrow(data).to_device("cuda"))
    back = ad.to_arrow(ad.from_dlpack(tensor), type=pa.bool_()).to_device("cpu")
    assert pa.array(back).equals(data)


MATRICES = {
    "one column": ["float32"],
    "four columns": ["float32"] * 4,
    "five columns": ["int16"] * 5,
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


def sanitized(tool: str) -> None:
    """All of the above in a process that the tool watches."""
    path = record.path.with_suffix(f".{tool}")
    command = [
        "compute-sanitizer",
        "--tool",
        tool,
        "--error-exitcode",
        "9",
        sys.executable,
        __file__,
        str(path),
        "--few",
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, env=os.environ)
    found = path.read_text() if path.exists() else "no results"
    path.unlink(missing_ok=True)
    if ran.returncode:
        raise RuntimeError(f"status {ran.returncode}: {found[-600:]} {(ran.stdout + ran.stderr)[-1200:]}")


record.checks(globals())
if not FEW:
    if shutil.which("compute-sanitizer"):
        for tool in TOOLS:
            record.check(f"compute-sanitizer, {tool}", lambda tool=tool: sanitized(tool))
    else:
        record.note("compute-sanitizer", "not on the path")
sys.exit(record.finish())
