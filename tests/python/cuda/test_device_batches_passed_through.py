"""Columns on a device that a group of `arrow` passes through: as they are, or not at all."""

from __future__ import annotations

from typing import Any

import arrow_dlpack as ad
import pyarrow as pa
import pytest
from device_arrow import CUDA, CUDA_HOST, CUDA_MANAGED, DeviceArray, DeviceStream

BATCH = pa.record_batch({"a": pa.array([1, None, 3]), "b": pa.array(["x", "y", None])})
GROUPS = {"g": ad.arrow("b", "a")}
EXPECTED = BATCH.select(["b", "a"])


def on(kind: int, *rows: int) -> Any:
    """A batch of so many rows, or a stream of several, in this memory."""
    made = [DeviceArray(BATCH.slice(0, count).to_struct_array(), kind) for count in rows]
    return ad.from_arrow(DeviceStream(made, kind).give() if len(made) > 1 else made[0].give())


@pytest.mark.parametrize("kind", [CUDA, CUDA_HOST, CUDA_MANAGED])
def test_one_batch_with_rows_is_passed_through(kind: int) -> None:
    for rows in ((3,), (0, 3, 0)):
        source = on(kind, *rows)
        (row,) = ad.explain(source, columns=GROUPS)
        assert (row.how, row.kernel, row.refused_if) == (
            "view",
            False,
            ["rows are in several chunks"] if len(rows) > 1 else [],
        )
        with ad.track_copies() as log:
            made = ad.to_tensors(source, columns=GROUPS)["g"]
        assert (len(log), made.device.type) == (0, kind)
        assert pa.record_batch(made.to_device("cpu")).equals(EXPECTED)


@pytest.mark.parametrize("kind", [CUDA, CUDA_HOST, CUDA_MANAGED])
@pytest.mark.parametrize(("rows", "keywords"), [((3, 2), {}), ((3,), {"copy": True}), ((3, 0), {"copy": True})])
def test_nothing_on_a_device_joins_rows(kind: int, rows: tuple[int, ...], keywords: dict[str, Any]) -> None:
    source = on(kind, *rows)
    (row,) = ad.explain(source, columns=GROUPS, **keywords)
    with pytest.raises(ad.ConversionError, match=r"rows joined into one Arrow batch.*\.to_device\(\"cpu\"\)") as caught:
        ad.to_tensors(source, columns=GROUPS, **keywords)
    if keywords:
        assert row.error == str(caught.value)
    else:
        assert (row.how, row.kernel, row.refused_if) == ("view", False, ["rows are in several chunks"])
    # What the error says helps.
    again = on(kind, *rows).to_device("cpu")
    made = ad.to_tensors(again, columns=GROUPS, **keywords)["g"]
    assert pa.record_batch(made).num_rows == sum(rows)


@pytest.mark.parametrize("device", ["cuda:0", "cuda_host"])
def test_explain_knows_the_bytes_that_go_to_a_device(device: str) -> None:
    rows = range(1000)
    structs = pa.array([None if row % 4 == 0 else {"x": row, "y": "q" * (row % 3)} for row in rows])
    columns = [
        pa.array([None if row % 5 == 0 else row for row in rows], pa.int16()),
        pa.array(["x" * (row % 7) for row in rows]),
        pa.array([[row] * (row % 3) for row in rows]),
        pa.array([row % 3 == 0 for row in rows]),
        pa.array(["a", "b"] * 500).dictionary_encode(),
        structs,
    ]
    whole = pa.table(dict(zip("istbdr", columns, strict=True)))
    for source in (whole, whole.slice(101, 333)):
        for groups in ({"g": ad.arrow(*"istbdr")}, {"g": ad.arrow("s"), "x": "b", "h": ad.arrow("i", "r")}):
            report = ad.explain(source, columns=groups, device=device)
            with ad.track_copies() as log:
                ad.to_tensors(source, columns=groups, device=device)
            assert report.bytes == log.bytes > 0
    # Rows that are joined first are copied twice; the second time with padding between the bitmap and the values.
    numbers = pa.chunked_array([columns[0].slice(1, 200), columns[0].slice(300)])
    report = ad.explain(pa.table({"i": numbers}), columns={"g": ad.arrow("i")}, device=device)
    with ad.track_copies() as log:
        ad.to_tensors(pa.table({"i": numbers}), columns={"g": ad.arrow("i")}, device=device)
    assert 2 * 900 * 2 <= report.bytes <= log.bytes < report.bytes + 64
    assert len(log) == 2
