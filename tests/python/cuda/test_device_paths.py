"""Fields of structs by path, of data on a device: against what the same conversion makes of host memory."""

from __future__ import annotations

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import CUDA, CUDA_MANAGED, DeviceArray, DeviceStream, exported

ROWS = 130


def batch(leaf_nulls: bool, struct_nulls: bool, rows: int = ROWS) -> pa.StructArray:
    """Rows of a struct with a field of a struct, with nulls at either level."""
    number = np.arange(rows)
    leaf = pa.array(number.astype("int32"), mask=number % 5 == 1 if leaf_nulls else None)
    inner = pa.StructArray.from_arrays([leaf], ["a"], mask=pa.array(number % 7 == 2) if struct_nulls else None)
    return pa.StructArray.from_arrays([inner, pa.array(number.astype("float32"))], ["s", "y"])


@pytest.mark.parametrize("kind", [CUDA, CUDA_MANAGED])
@pytest.mark.parametrize(("leaf_nulls", "struct_nulls"), [(False, False), (True, False), (False, True)])
def test_one_level_of_nulls_works_as_in_a_column(kind: int, leaf_nulls: bool, struct_nulls: bool) -> None:
    whole = batch(leaf_nulls, struct_nulls)
    for data in (whole, whole[16:100], whole[13:77], whole[5:5]):
        columns = ["s.a", "y"]
        made = ad.to_tensor(DeviceArray(data, kind).give(), columns=columns, dtype="float64", nulls=-1)
        expected = ad.to_tensor(data, columns=columns, dtype="float64", nulls=-1, xp=np)
        assert np.array_equal(np.array(made.to_device("cpu")), expected)
        alone = ad.to_tensors(DeviceArray(data, kind).give(), columns=["s.a"], nulls=-1)["s.a"]
        wanted = ad.to_tensors(data, columns=["s.a"], nulls=-1, xp=np)["s.a"]
        assert np.array_equal(np.array(alone.to_device("cpu")), wanted)
        moved = ad.to_tensors(DeviceArray(data, kind).give(), columns=["s.a"], nulls=-1, device="cpu", xp=np)["s.a"]
        assert np.array_equal(moved, wanted)


def test_a_field_on_a_device_is_a_view() -> None:
    source = ad.from_arrow(DeviceArray(batch(False, False)[8:40]).give())
    report = ad.explain(source, columns=["s.a"])
    assert [row.how for row in report.rows] == ["view"]
    tensor = ad.to_tensors(source, columns=["s.a"], copy=False)["s.a"]
    assert (tensor.device.type, tensor.copied, tensor.shape) == (CUDA, False, (32,))


def test_chunks_of_a_stream() -> None:
    whole = batch(False, True)
    chunks = [whole[:3], whole[3:64], whole[64:]]
    stream = ad.from_arrow(DeviceStream([DeviceArray(chunk) for chunk in chunks]).give())
    made = ad.to_tensors(stream, columns=["s.a"], nulls=-1)["s.a"]
    expected = ad.to_tensors(whole, columns=["s.a"], nulls=-1, xp=np)["s.a"]
    assert np.array_equal(np.array(made.to_device("cpu")), expected)


def test_a_loader_reads_fields_of_a_device() -> None:
    whole = batch(False, True)
    source = ad.from_arrow(DeviceArray(whole).give())
    # Without a thread: the simulated driver sees no order between one that has waited for a copy and this one.
    loader = ad.Loader(source, batch_size=32, columns={"x": "s.a", "y": "y"}, nulls={"x": -1}, prefetch=0, xp=np)
    made = np.concatenate([rows["x"] for rows in loader])
    assert np.array_equal(made, ad.to_tensors(whole, columns=["s.a"], nulls=-1, xp=np)["s.a"])


def test_bitmaps_of_two_levels_are_refused_until_the_data_is_on_the_host() -> None:
    data = batch(True, True)
    source = ad.from_arrow(DeviceArray(data).give())
    for call in (
        lambda: ad.to_tensors(source, columns=["s.a"], nulls=0),
        lambda: ad.to_tensors(source, columns=["s.a"], nulls=0, device="cpu"),
        lambda: ad.explain(source, columns=["s.a"]),
    ):
        with pytest.raises(ad.ConversionError, match="not joined with those of its fields") as caught:
            call()
        assert caught.value.column == "s.a"
        assert caught.value.remedy
    made = ad.to_tensors(source.to_device("cpu"), columns=["s.a"], nulls=0, xp=np)["s.a"]
    assert np.array_equal(made, ad.to_tensors(data, columns=["s.a"], nulls=0, xp=np)["s.a"])
    with exported(source):
        # The column beside it is no part of that.
        assert ad.to_tensors(source, columns=["y"])["y"].shape == (ROWS,)
