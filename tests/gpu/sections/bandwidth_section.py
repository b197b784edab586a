"""Each kind of kernel against a copy within the device that reads and writes as many bytes (docs/kernels.md).

A conversion is timed on the device. Those for whose end the host waits, to know that each value fits, are timed as a
whole, on data so large that the host's part is a few hundredths.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

from bare import Driver
from record import SMOKE, Record
from timing import CALLS, Route, device_medians, medians

ROWS = 1_000 if SMOKE else 64_000_000
# What docs/kernels.md expects of kernels that do no more than move bytes.
TARGET = 0.85

record = Record()
ad: Any = record.need("arrow_dlpack")
np: Any = record.need("numpy")
pa: Any = record.need("pyarrow")
driver = Driver()


def on_device(data: Any) -> Any:
    return ad.from_arrow(data).to_device("cuda", stream=driver)


def judge(
    name: str, convert: Route, read: int, written: int, target: float | None = TARGET, *, waits: bool = False
) -> None:
    """A conversion that reads and writes so many bytes; whether the host waits for it."""
    nbytes = (read + written) // 2
    source, targets = driver.allocate(nbytes), [driver.allocate(nbytes) for _ in range(CALLS)]
    # Else a cache would have the target.
    turns = itertools.cycle(targets)
    with ad.stream(driver):
        measure = medians if waits else device_medians
        ours, copied = measure(driver, convert, lambda: driver.copy(next(turns), source, nbytes))
    record.figure(f"{name}, GB/s read and written", round((read + written) / ours / 1e9, 1))
    record.judge(f"{name}, to a copy of as many bytes", copied / ours, target)
    for memory in (source, *targets):
        driver.free(memory)


def numbers(dtype: str, rows: int = ROWS) -> Any:
    return np.arange(rows, dtype="int64").astype(dtype)


def some_null(rows: int = ROWS) -> Any:
    """One row in ten."""
    return np.arange(rows) % 10 == 3


def measure_nulls_are_filled() -> None:
    column = on_device(pa.array(numbers("float32"), mask=some_null()))
    judge("nulls filled, float32", lambda: ad.to_tensor(column, nulls=0), 4 * ROWS + ROWS // 8, 4 * ROWS)


def measure_casts() -> None:
    for source, target, read, written in (
        ("int32", "float64", 4, 8),
        ("float64", "float32", 8, 4),
        ("int8", "int64", 1, 8),
    ):
        column = on_device(pa.array(numbers(source)))
        name = f"cast {source} to {target}"
        judge(
            name,
            lambda column=column, to=target: ad.to_tensor(column, dtype=to),
            read * ROWS,
            written * ROWS,
            None,
            waits=True,
        )


def measure_casts_to_rows() -> None:
    rows = ROWS // 16
    batch = on_device(pa.record_batch({f"c{index}": numbers("int32", rows) for index in range(16)}))
    judge(
        "cast 16 x int32 to rows of float32",
        lambda: ad.to_tensor(batch, dtype="float32"),
        4 * ROWS,
        4 * ROWS,
        None,
        waits=True,
    )


def measure_rows() -> None:
    for dtype, size in (("int8", 1), ("int16", 2), ("float32", 4), ("float64", 8)):
        for columns in (3, 16):
            rows = ROWS // columns
            batch = on_device(pa.record_batch({f"c{index}": numbers(dtype, rows) for index in range(columns)}))
            nbytes = rows * columns * size
            judge(
                f"{columns} x {dtype} to rows",
                lambda batch=batch: ad.to_tensor(batch),
                nbytes,
                nbytes,
                None if size < 4 else TARGET,
            )


def measure_rows_with_nulls() -> None:
    rows = ROWS // 16
    columns = {f"c{index}": pa.array(numbers("float32", rows), mask=some_null(rows)) for index in range(16)}
    batch = on_device(pa.record_batch(columns))
    nbytes = 4 * rows * 16
    judge("16 x float32 to rows, nulls filled", lambda: ad.to_tensor(batch, nulls=0), nbytes + rows * 2, nbytes, 0.6)


def measure_columns() -> None:
    rows = ROWS // 16
    batch = on_device(pa.record_batch({f"c{index}": numbers("float32", rows) for index in range(16)}))
    nbytes = 4 * rows * 16
    judge("16 x float32 to columns", lambda: ad.to_tensor(batch, order="F", copy=True), nbytes, nbytes)


def measure_rows_of_an_embedding() -> None:
    width, rows = 64, ROWS // 72
    columns = {f"c{index}": numbers("float32", rows) for index in range(8)}
    wide = pa.FixedSizeListArray.from_arrays(numbers("float32", rows * width), width)
    nbytes = 4 * rows * (width + 8)
    for order, name in (("C", "rows"), ("F", "columns")):
        batch = on_device(pa.record_batch({**columns, "wide": wide}))
        judge(
            f"8 x float32 and {width} in lists to {name}",
            lambda batch=batch, order=order: ad.to_tensor(batch, order=order),
            nbytes,
            nbytes,
            None,
        )


def measure_rows_are_split() -> None:
    rows = ROWS // 16
    batch = on_device(pa.record_batch({f"c{index}": numbers("float32", rows) for index in range(16)}))
    names = [f"c{index}" for index in range(16)]
    with ad.stream(driver):
        matrix = ad.to_tensor(batch)
    nbytes = 4 * rows * 16
    judge("rows of 16 float32 to columns", lambda: ad.to_arrow(matrix, names=names), nbytes, nbytes)


def measure_bits() -> None:
    with ad.stream(driver):
        bools = ad.to_tensor(on_device(pa.array(some_null())))
    judge("bool to bits", lambda: ad.to_arrow(bools, type=pa.bool_()), ROWS, ROWS // 8)


def measure_dictionaries() -> None:
    codes = pa.array(numbers("int32") % 1000)
    column = on_device(pa.DictionaryArray.from_arrays(codes, pa.array(numbers("float32", 1000))))
    name = "values of a dictionary, int32 codes to float32"
    judge(name, lambda: ad.to_tensor(column, dictionary="values"), 4 * ROWS, 4 * ROWS, None, waits=True)


def measure_runs() -> None:
    rows = ROWS // 10 * 10
    ends = pa.array(np.arange(10, rows + 10, 10, dtype="int32"))
    column = on_device(pa.RunEndEncodedArray.from_arrays(ends, pa.array(numbers("float32", rows // 10))))
    judge("runs of 10 to float32", lambda: ad.to_tensor(column), rows // 10 * 8, 4 * rows, None, waits=True)


def measure_decimals() -> None:
    rows = ROWS // 4
    unscaled = np.zeros((rows, 2), dtype="int64")
    unscaled[:, 0] = np.arange(rows)
    column = on_device(pa.Array.from_buffers(pa.decimal128(20, 2), rows, [None, pa.py_buffer(unscaled)], null_count=0))
    judge("decimal128 to float64", lambda: ad.to_tensor(column, dtype="float64"), 16 * rows, 8 * rows, None, waits=True)


def measure_padded_rows() -> None:
    rows = ROWS // 16
    lengths = np.arange(rows, dtype="int64") % 17
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype("int32")
    items = int(offsets[-1])
    column = on_device(pa.ListArray.from_arrays(pa.array(offsets), pa.array(numbers("float32", items))))
    name = "lists of 0 to 16 float32, padded"
    judge(name, lambda: ad.to_ragged(column, pad=(0, 16)), 4 * items + 4 * rows, 80 * rows, None, waits=True)


def measure_offsets() -> None:
    """Of lists without items, so that nothing else is copied."""
    offsets = pa.array(np.zeros(ROWS + 1, dtype="int32"))
    column = on_device(pa.ListArray.from_arrays(offsets, pa.array([], pa.float32())))
    judge("offsets of rows", lambda: ad.to_ragged(column, copy=True), 4 * ROWS, 4 * ROWS, None, waits=True)


sys.exit(record.run(globals()))
