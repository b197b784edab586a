"""Fields of structs by path, of data on a device: against what the same conversion makes of host memory."""

from __future__ import annotations

import gc

import arrow_dlpack as ad
import driver
import numpy as np
import pyarrow as pa
import pytest
from device_arrow import CUDA, CUDA_HOST, CUDA_MANAGED, DeviceArray, DeviceStream, exported

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


LEAVES = {
    "int32": pa.array(np.arange(ROWS, dtype="int32"), mask=np.arange(ROWS) % 5 == 1),
    "bool": pa.array(np.arange(ROWS) % 3 == 0, mask=np.arange(ROWS) % 5 == 1),
    "pairs": pa.FixedSizeListArray.from_arrays(
        pa.array(np.arange(2 * ROWS, dtype="int16")), 2, mask=pa.array(np.arange(ROWS) % 5 == 1)
    ),
    "codes": pa.array([None if row % 5 == 1 else "abcd"[row % 4] for row in range(ROWS)]).dictionary_encode(),
}


def two_levels(leaf: pa.Array, skipped: int = 0) -> pa.StructArray:
    """Rows of structs with nulls at both levels; the field alone starts `skipped` slots behind its buffers."""
    leaf = leaf[skipped:]
    number = np.arange(len(leaf))
    inner = pa.StructArray.from_arrays([leaf], ["a"], mask=pa.array(number % 7 == 2))
    return pa.StructArray.from_arrays([inner, pa.array(number.astype("float32"))], ["s", "y"])


@pytest.mark.parametrize("kind", [CUDA, CUDA_HOST])
@pytest.mark.parametrize("skipped", [0, 3])
@pytest.mark.parametrize("name", LEAVES)
def test_nulls_of_two_levels_are_joined_on_the_device(name: str, skipped: int, kind: int) -> None:
    whole = two_levels(LEAVES[name], skipped)
    for data in (whole, whole[16:100], whole[13:77], whole[5:5]):
        expected = ad.to_tensors(data, columns=["s.a"], nulls="keep", xp=np)["s.a"]
        kept = ad.validity(data, columns=["s.a"], xp=np).reshape(expected.shape)
        expected = expected[kept]
        source = ad.from_arrow(DeviceArray(data, kind).give())
        valid = ad.validity(source, columns=["s.a"])
        values = ad.to_tensors(source, columns=["s.a"], nulls="keep")["s.a"]
        assert {values.device.type, valid.device.type} <= {CUDA, kind}
        assert np.array_equal(np.array(valid.to_device("cpu")).reshape(kept.shape), kept)
        assert np.array_equal(np.array(values.to_device("cpu"))[kept], expected)
        moved = ad.to_tensors(source, columns=["s.a"], nulls="keep", device="cpu", xp=np)["s.a"]
        assert np.array_equal(moved[kept], expected)
        if len(data):
            with pytest.raises(ad.NullError) as caught:
                ad.to_tensors(source, columns=["s.a"])
            first = int(np.argmin(kept.reshape(len(data), -1)[:, 0]))
            assert (caught.value.column, caught.value.row) == ("s.a", first)


def test_many_fields_of_one_struct_are_joined_in_one_matrix() -> None:
    number = np.arange(ROWS)
    fields = [pa.array(number.astype("float32"), mask=number % (at + 2) == 1) for at in range(20)]
    names = [f"f{at}" for at in range(20)]
    inner = pa.StructArray.from_arrays(fields, names, mask=pa.array(number % 7 == 2))
    data = pa.StructArray.from_arrays([inner], ["s"])
    columns = [f"s.{name}" for name in names]
    made = ad.to_tensor(DeviceArray(data).give(), columns=columns, nulls=-1)
    assert np.array_equal(np.array(made.to_device("cpu")), ad.to_tensor(data, columns=columns, nulls=-1, xp=np))


def test_chunks_of_a_stream_with_nulls_at_two_levels() -> None:
    whole = two_levels(LEAVES["bool"])
    chunks = [whole[:3], whole[3:64], whole[64:]]
    stream = ad.from_arrow(DeviceStream([DeviceArray(chunk) for chunk in chunks]).give())
    made = ad.to_tensors(stream, columns=["s.a"], nulls=True)["s.a"]
    expected = ad.to_tensors(whole, columns=["s.a"], nulls=True, xp=np)["s.a"]
    assert np.array_equal(np.array(made.to_device("cpu")), expected)


def test_joined_bitmaps_are_freed_with_what_reads_them() -> None:
    source = ad.from_arrow(DeviceArray(two_levels(LEAVES["int32"])).give())
    for _ in range(5):
        ad.to_tensors(source, columns=["s.a"], nulls=0)
    assert driver.drain() == 0
    # What was given back is freed by work of the device, too.
    driver.run_all()
    assert ad.memory_stats()["cuda:0"]["pool_used"] == 0


def test_bitmaps_are_kept_until_they_are_joined() -> None:
    array, stream = DeviceArray(two_levels(LEAVES["int32"])), driver.Stream()
    source = ad.from_arrow(array.give())
    driver.settle()
    driver.gate(stream.handle)
    with ad.stream(stream):
        ad.explain(source, columns=["s.a"], nulls="keep")
    del source
    gc.collect()
    driver.run_all()
    ad.collect()
    assert array.node.releases == 0
    driver.open_gates()
    assert driver.soon(lambda: (driver.drain(), array.node.releases) == (0, 1))
    assert driver.races() == 0


def test_bitmaps_of_managed_memory_are_refused_until_the_data_is_on_the_host() -> None:
    data = batch(True, True)
    source = ad.from_arrow(DeviceArray(data, CUDA_MANAGED).give())
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
