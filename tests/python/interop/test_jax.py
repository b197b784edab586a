"""JAX: views of memory that is compact and aligned to 64 bytes, and 64-bit numbers only when asked for."""

from typing import ClassVar

import arrow_dlpack as ad
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
from arrays import LEGACY, VIEW, Battery, Expect
from helpers import address, flags, script

# Before 0.11 it asks for unversioned capsules only.
OLD = jax.__version_info__ < (0, 11)
ALIGNED = "memory that is not aligned to 64 bytes"
COMPACT = Expect(
    "refused", "only compact memory, in any order of dimensions", jax.errors.JaxRuntimeError, "UNIMPLEMENTED"
)
NARROWED = "64-bit numbers become 32-bit ones unless `jax_enable_x64` is set"
ARROW = LEGACY if OLD else VIEW
COMPUTED = Expect("absent", "a slice is computed, and compact")


def narrowed(outcome: str, dtype: str) -> Expect:
    return Expect(outcome, NARROWED, dtype=dtype)


class TestJax(Battery):
    xp = jnp
    alignment = 64
    expected: ClassVar[dict[str, Expect]] = {
        "to arrow": ARROW,
        "to numbers int64": narrowed("copy", "int32"),
        "to numbers uint64": narrowed("copy", "uint32"),
        "to numbers float64": narrowed("copy", "float32"),
        "to temporal int64": narrowed("copy", "int32"),
        "to complex complex128": narrowed("copy", "complex64"),
        "to strided rows": Expect("copy", ALIGNED),
        "to strided columns": COMPACT,
        # A broadcast array of NumPy is read-only, so that a copy of ours is what the older one gets.
        "to strided broadcast": LEGACY if OLD else COMPACT,
        "to negative strides": COMPACT,
        "from numbers int64": narrowed("view", "int32"),
        "from numbers uint64": narrowed("view", "uint32"),
        "from numbers float64": narrowed("view", "float32"),
        "from complex complex128": narrowed("view", "complex64"),
        "from strided": COMPUTED,
    }

    @classmethod
    def make(cls, values):
        return jnp.asarray(values)

    @classmethod
    def make_narrow(cls, dtype):
        return jnp.asarray([0, 1, 2, 4], dtype)

    @classmethod
    def address(cls, theirs):
        return theirs.unsafe_buffer_pointer()


def test_what_does_not_fit_32_bits_is_truncated_silently(cell):
    column = pa.array([2**40 + 7])
    assert jnp.from_dlpack(ad.to_tensor(column)).tolist() == [7]
    cell("to", "numbers", "wrong", f"{NARROWED}; integers are truncated silently, timestamps too")
    with jax.enable_x64(True):
        theirs = jnp.from_dlpack(ad.to_tensor(column, writable=True))
        assert theirs.dtype == "int64"
        assert theirs.tolist() == [2**40 + 7]


def test_memory_of_ours_is_aligned_for_jax(cell):
    """Everything that this package allocates is taken without a copy."""
    columns = [
        ad.to_tensor(pa.array([1, 2, 3], pa.int32()), writable=True),
        ad.to_tensor(pa.array([1, None], pa.float32()), nulls="nan"),
        ad.to_tensor(pa.array([True, False])),
        ad.to_tensor(pa.array([1, 2], pa.int64()), dtype="float32"),
        ad.to_tensor(pa.chunked_array([[1.5], [2.5]], pa.float32())),
        ad.from_dlpack(np.arange(7, dtype="uint8")[1:], copy=True),
    ]
    for tensor in columns:
        assert tensor.copied
        assert address(tensor) % 64 == 0
        assert jnp.from_dlpack(tensor, copy=False).unsafe_buffer_pointer() == address(tensor)
    cell("to", "nulls", "view", "of the memory that this package made")


def test_decoded_memory_is_aligned_for_jax():
    """One of them could be so by chance, and hardly all."""
    columns = [pa.array([1.5, 2.5] * rows, pa.float32()).dictionary_encode() for rows in range(1, 33)]
    tensors = [ad.to_tensor(column, dictionary="values") for column in columns]
    assert all(address(tensor) % 64 == 0 for tensor in tensors)


def test_a_slice_is_copied_by_jax(cell):
    column = pa.array(range(20), pa.float32()).slice(1)
    # The older one takes memory of Arrow only on the caller's word.
    tensor = ad.to_tensor(column, copy=False, legacy="view")
    theirs = jnp.from_dlpack(tensor)
    assert theirs.tolist() == list(range(1, 20))
    assert theirs.unsafe_buffer_pointer() != address(tensor)
    cell("to", "misaligned", "copy", ALIGNED)
    with pytest.raises(ValueError, match="not aligned to 64 bytes"):
        jnp.from_dlpack(tensor, copy=False)
    cell("to", "misaligned", "refused", f"{ALIGNED}, under `copy=False`")


def test_values_of_ragged_slices_are_copied_by_jax(cell):
    """Offsets of a slice are made anew, and aligned; its values start within those of the column."""
    column = pa.array([[1], [2, 3], [4]], pa.list_(pa.float32())).slice(1)
    ours = ad.to_ragged(column)
    theirs = ad.to_ragged(column, xp=jnp)
    assert theirs.values.tolist() == [2, 3, 4]
    assert theirs.values.unsafe_buffer_pointer() != address(ours.values)
    cell("to", "lists", "copy", ALIGNED)
    assert jnp.from_dlpack(ours.offsets).unsafe_buffer_pointer() == address(ours.offsets)
    assert theirs.offsets.tolist() == [0, 2, 3]


def test_read_only(cell):
    column = pa.array([1, 2], pa.int32())
    theirs = jnp.from_dlpack(ad.to_tensor(column))
    assert (theirs.unsafe_buffer_pointer() == column.buffers()[1].address) != OLD
    cell("to", "read-only", ARROW.outcome, "arrays are immutable")
    if OLD:
        vouched = jnp.from_dlpack(ad.to_tensor(column, legacy="view"))
        assert vouched.unsafe_buffer_pointer() == column.buffers()[1].address
        cell("to", "read-only", "view", '`legacy="view"`: arrays are immutable')
    tensor = ad.from_dlpack(jnp.arange(3))
    assert not tensor.writable
    assert flags(tensor) & 1
    cell("from", "read-only", "view", "arrays are immutable, and so are their tensors")


def test_device(cell):
    tensor = ad.to_tensor(pa.array([1, 2], pa.int32()), writable=True)
    cpu = jax.devices("cpu")[0]
    theirs = jnp.from_dlpack(tensor, device=cpu)
    assert theirs.unsafe_buffer_pointer() == address(tensor)
    cell("to", "device", "view", '`device=jax.devices("cpu")[0]`')
    assert ad.from_dlpack(jnp.arange(3), device=cpu).device == ad.Device("cpu")


def test_copy_made_by_jax():
    source = jnp.arange(3)
    copy = ad.from_dlpack(source, copy=True)
    assert address(copy) != source.unsafe_buffer_pointer()
    assert copy.writable


def test_buffer_protocol(cell):
    tensor = ad.to_tensor(pa.array([1, 2], pa.int32()))
    theirs = jnp.asarray(memoryview(tensor))
    assert theirs.tolist() == [1, 2]
    assert theirs.unsafe_buffer_pointer() != address(tensor)
    cell("to", "buffer protocol", "copy", "`jnp.asarray(memoryview(tensor))`")


def test_a_tensor_without_a_deleter_aborts_jax_but_not_through_us():
    code = """
import sys
import arrow_dlpack as ad, jax.numpy as jnp, producers
producer, source = producers.dlpack(versioned=False, deleter=False)
source = producers.Only("__dlpack__", lambda **_: producer.capsule())
type(source).__dlpack_device__ = lambda self: (1, 0)
theirs = jnp.from_dlpack(ad.from_dlpack(source) if sys.argv[1] == "ours" else source)
assert theirs.tolist() == [[0, 1, 2], [3, 4, 5]]
del theirs
"""
    assert script(code, "ours").returncode == 0
    assert script(code, "theirs").returncode < 0


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float32", "bfloat16"])
def test_dtypes_of_jax(dtype):
    for given in (getattr(jnp, "bool_" if dtype == "bool" else dtype), jnp.dtype(dtype)):
        assert ad.to_tensor(pa.array([1, 0]), dtype=given).dtype == dtype


def test_xp_by_name():
    for name in ("jax", "jax.numpy"):
        assert isinstance(ad.to_tensor(pa.array([1, 2], pa.int32()), xp=name), jax.Array)


class TestBatches:
    """A loader shares its batches out by the index of the process, as arrays of jax."""

    def test_of_this_process(self):
        numbers = pa.array(range(10), pa.float32())
        table = pa.table({"a": numbers, "b": numbers, "y": pa.array(range(10), pa.int32())})
        options = {"batch_size": 4, "columns": {"x": ["a", "b"], "y": "y"}, "xp": jnp}
        ours = {"rank": jax.process_index(), "world_size": jax.process_count()}
        found = list(ad.Loader(table, **options, **ours))
        assert all(isinstance(value, jax.Array) for batch in found for value in batch.values())
        assert jnp.concatenate([batch["y"] for batch in found]).tolist() == [*range(10)]
        # What other processes would have.
        shares = [ad.Loader(table, **options, rank=rank, world_size=3) for rank in range(3)]
        assert [[batch["y"].tolist() for batch in share] for share in shares] == [
            [[0, 1, 2, 3]],
            [[4, 5, 6, 7]],
            [[8, 9]],
        ]

    def test_stay_as_they_are_while_the_ring_turns(self):
        table = pa.table({"x": pa.array(range(1000), pa.float32())})
        held = list(ad.Loader(table, batch_size=10, columns=["x"], xp="jax.numpy"))
        assert jnp.concatenate(held)[:, 0].tolist() == [*range(1000)]
