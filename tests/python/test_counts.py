"""Integer arguments: Python's and NumPy's are taken; bools, floats and text are a TypeError that names the argument."""

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest

TABLE = pa.table({"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0]})
BATCH = TABLE.to_batches()[0]
MATRIX = np.arange(6.0).reshape(3, 2)


def loader(**options):
    return ad.Loader(TABLE, **{"batch_size": 1, **options})


def epoch(value):
    loader().set_epoch(value)


# What takes an integer, what it is called in the error, and a value that is right.
ARGUMENTS = {
    "to_tensor threads": (lambda value: ad.to_tensor(TABLE, threads=value), "threads", 1),
    "to_tensors threads": (lambda value: ad.to_tensors(TABLE, columns={"x": ["a", "b"]}, threads=value), "threads", 1),
    "to_arrow threads": (lambda value: ad.to_arrow(MATRIX, names=["a", "b"], threads=value), "threads", 1),
    "Tensor.to_device threads": (lambda value: ad.to_tensor(BATCH["a"]).to_device("cpu", threads=value), "threads", 1),
    "Array.to_device threads": (lambda value: ad.from_arrow(BATCH["a"]).to_device("cpu", threads=value), "threads", 1),
    "RecordBatch.to_device threads": (lambda value: ad.from_arrow(BATCH).to_device("cpu", threads=value), "threads", 1),
    "ArrayStream.to_device threads": (lambda value: ad.from_arrow(TABLE).to_device("cpu", threads=value), "threads", 1),
    "batch_size": (lambda value: loader(batch_size=value), "batch_size", 1),
    "shuffle_buffer": (lambda value: loader(shuffle_buffer=value), "shuffle_buffer", 1),
    "shuffle_bytes": (lambda value: loader(shuffle_bytes=value), "shuffle_bytes", 1),
    "seed": (lambda value: loader(shuffle_buffer=8, seed=value), "seed", 1),
    "prefetch": (lambda value: loader(prefetch=value), "prefetch", 1),
    "threads": (lambda value: loader(threads=value), "threads", 1),
    "rank": (lambda value: loader(rank=value, world_size=2), "rank", 1),
    "world_size": (lambda value: loader(world_size=value), "world_size", 1),
    "epoch": (epoch, "epoch", 1),
    "pad": (lambda value: ad.to_ragged(pa.array([[1], [2, 3]]), pad=(0, value)), "the length of pad", 2),
    "device type": (lambda value: ad.to_tensor(TABLE, device=(value, 0)), "device_type", 1),
    "device id": (lambda value: ad.to_tensor(TABLE, device=(1, value)), "device_id", 0),
    "Device": (lambda value: ad.Device((value, 0)), "device_type", 1),
    "requested_device": (
        lambda value: ad.from_arrow(BATCH).__arrow_c_device_array__(requested_device=value),
        "device",
        1,
    ),
    "RecordBatch.column": (lambda value: ad.from_arrow(BATCH).column(value), "the position of a column", 1),
    "RecordBatch[]": (lambda value: ad.from_arrow(BATCH)[value], "the position of a column", 1),
    "Report[]": (lambda value: ad.explain(BATCH)[value], "the position of a row", 1),
}


@pytest.mark.parametrize("wrong", [True, False, np.True_, np.False_, np.array(True), 1.0, np.float64(1)], ids=repr)
@pytest.mark.parametrize("argument", ARGUMENTS)
def test_a_bool_or_a_float_is_no_count(argument, wrong):
    call, name, _ = ARGUMENTS[argument]
    with pytest.raises(TypeError, match=name):
        call(wrong)


@pytest.mark.parametrize("kind", [int, np.int64, np.uint8], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("argument", ARGUMENTS)
def test_integers_of_python_and_numpy_are_counts(argument, kind):
    call, _, right = ARGUMENTS[argument]
    call(kind(right))


# A number that is no device, and a position that is none, are errors of other classes.
COUNTS = [argument for argument, (_, name, _) in ARGUMENTS.items() if not name.startswith(("device", "the position"))]


@pytest.mark.parametrize("argument", COUNTS)
@pytest.mark.parametrize("value", [-1, -(2**80), 2**80])
def test_an_integer_beyond_the_range_is_a_value_error(argument, value):
    call, name, _ = ARGUMENTS[argument]
    with pytest.raises(ValueError, match=name):
        call(value)


@pytest.mark.parametrize("argument", COUNTS)
def test_an_integer_that_is_too_large_is_not_asked_to_be_larger(argument):
    call, name, _ = ARGUMENTS[argument]
    with pytest.raises(ValueError, match=name) as caught:
        call(2**80)
    assert "or more" not in str(caught.value)


@pytest.mark.parametrize(
    "key", ["version", "seed", "epoch", "next_lane", "batch_size", "shuffle_buffer", "rows", "conversion"]
)
def test_a_bool_is_no_number_of_a_state(key):
    source = loader(shuffle_buffer=4, seed=1)
    state = source.state_dict()
    with pytest.raises(ValueError, match=f'"{key}" cannot be True'):
        source.load_state_dict({**state, key: True})


def test_a_bool_is_no_number_of_rows_of_a_state():
    state = loader().state_dict()
    with pytest.raises(ValueError, match='"taken" cannot be'):
        loader().load_state_dict({**state, "taken": [True]})
