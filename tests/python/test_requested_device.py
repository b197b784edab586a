"""The keywords of the device dunders: met or refused, and none on the host dunders."""

from unittest.mock import ANY

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
from producers import capsule_name

SOURCES = {
    "Tensor": (lambda: ad.from_dlpack(np.arange(3)), "array"),
    "Array": (lambda: ad.to_arrow(np.arange(3)), "array"),
    "RecordBatch": (lambda: ad.from_arrow(pa.record_batch({"x": [1]})), "array"),
    "ArrayStream": (lambda: ad.from_arrow(pa.table({"x": [1]})), "stream"),
}


every = pytest.mark.parametrize("source", SOURCES)


def device_dunder_of(source: str):
    make, form = SOURCES[source]
    return getattr(make(), f"__arrow_c_device_{form}__")


def host_dunder_of(source: str):
    make, form = SOURCES[source]
    return getattr(make(), f"__arrow_c_{form}__")


def is_answer(answer: object) -> bool:
    capsule = answer[1] if isinstance(answer, tuple) else answer
    return capsule_name(capsule).startswith(b"arrow_device_array")


@pytest.mark.parametrize("device", [None, 1, (1, 0), (1, -1), (1, 5), "cpu", ad.Device("cpu")], ids=repr)
@every
def test_the_cpu_is_where_the_data_is(source: str, device):
    device_dunder = device_dunder_of(source)
    assert is_answer(device_dunder(requested_device=device))


@pytest.mark.parametrize("device", [2, 3, 13, 99, -1, (2, 0), (2, 1), (14, 0), "cuda:0", ad.Device("cuda")], ids=repr)
@every
def test_another_device_is_a_buffer_error(source: str, device):
    device_dunder = device_dunder_of(source)
    with pytest.raises(BufferError):
        device_dunder(requested_device=device)
    # Nothing was consumed by asking.
    assert is_answer(device_dunder())


@pytest.mark.parametrize("device", [(1,), (1, 0, 0), ("cpu", 0), 1.5, ...], ids=repr)
@every
def test_what_is_no_device_is_an_error(source: str, device):
    device_dunder = device_dunder_of(source)
    with pytest.raises((TypeError, ValueError)):
        device_dunder(requested_device=device)


@every
def test_an_unknown_keyword_with_a_value_is_not_implemented(source: str):
    device_dunder = device_dunder_of(source)
    with pytest.raises(NotImplementedError, match="nonsense"):
        device_dunder(nonsense=1)
    with pytest.raises(NotImplementedError):
        device_dunder(requested_device=(1, 0), stream=0)


@every
def test_an_unknown_keyword_without_a_value_is_ignored(source: str):
    device_dunder = device_dunder_of(source)
    assert is_answer(device_dunder(nonsense=None, requested_device=None, requested_schema=None))


@every
def test_host_dunders_take_a_schema_and_no_more(source: str):
    host_dunder = host_dunder_of(source)
    for keywords in ({"requested_device": (1, 0)}, {"requested_device": None}, {"nonsense": None}):
        with pytest.raises(TypeError):
            host_dunder(**keywords)
    with pytest.raises(TypeError):
        host_dunder(None, None)
    assert host_dunder(requested_schema=None) is not None


def test_to_device():
    for make, _ in SOURCES.values():
        source = make()
        assert str(source.device) == "cpu"
        assert source.to_device("cpu") is source
        assert source.to_device((1, 0)) is source
        with pytest.raises(BufferError):
            source.to_device("cuda:0")
        with pytest.raises(TypeError):
            source.to_device(3)


def test_to_device_of_a_tensor_takes_a_stream():
    tensor = ad.from_dlpack(np.arange(3))
    assert tensor.to_device("cpu", stream=None) is tensor
    with pytest.raises(BufferError):
        tensor.to_device("cpu", stream=1)


def test_devices():
    assert ad.Device("cpu") == ad.Device((1, 0)) == ad.Device((1, -1)) == "cpu"
    assert ad.Device("cuda") == ad.Device("cuda:0") == (2, 0)
    assert ad.Device("cuda:1") != ad.Device("cuda:0")
    assert len({ad.Device("cpu"), ad.Device((1, 3)), ad.Device("cuda:1")}) == 2
    device = ad.Device("rocm:3")
    assert (device.type, device.id, str(device), repr(device)) == (10, 3, "rocm:3", 'Device("rocm:3")')
    assert ad.Device(device) == device
    assert ad.Device("cpu") != "nonsense"
    assert ad.Device("cpu") != 5
    # The other operand may know more.
    assert ad.Device("cpu") == ANY
    assert ad.group("x") == ANY


def test_devices_of_arguments():
    for device in ("cpu", (1, 0), ad.Device("cpu")):
        assert ad.to_tensor(pa.array([1]), device=device).size == 1
        assert len(ad.to_arrow(np.arange(3), device=device)) == 3
        assert len(ad.from_arrow(pa.array([1]), device=device)) == 1
        assert ad.validity(pa.array([1]), device=device).size == 1
        assert ad.to_tensors(pa.record_batch({"x": [1]}), device=device)["x"].size == 1
    for device in ("cuda", (2, 0)):
        for call in (
            lambda device: ad.to_tensor(pa.array([1]), device=device),
            lambda device: ad.to_tensor(pa.array([], pa.int8()), device=device),
            lambda device: ad.to_tensor(pa.chunked_array([], pa.int8()), device=device),
            lambda device: ad.to_arrow(np.arange(3), device=device),
            lambda device: ad.from_arrow(pa.array([1]), device=device),
            lambda device: ad.from_arrow(pa.chunked_array([[1]]), device=device),
            lambda device: ad.validity(pa.array([1]), device=device),
            lambda device: ad.to_tensors(pa.record_batch({"x": [1]}), device=device),
        ):
            with pytest.raises(BufferError, match="device"):
                call(device)
