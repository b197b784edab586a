"""TensorFlow: takes capsules only, unversioned ones, of compact tensors."""

from typing import ClassVar

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf
from arrays import FLOAT8, LEGACY, Battery, Expect
from helpers import address

COMPACT = Expect("refused", "only row-major memory", tf.errors.InvalidArgumentError, "strides")
NO_FLOAT8 = Expect("refused", "takes none by DLPack", tf.errors.InvalidArgumentError, "Type Codes")
COMPUTED = Expect("absent", "a slice is computed, and compact")

KNOWN = ["float8_e4m3fn", "float8_e5m2"]
UNKNOWN = Expect("absent", "float8_e4m3fn and float8_e5m2 only", (AttributeError, tf.errors.UnimplementedError))


class Namespace:
    """What `xp=` asks for: a from_dlpack of objects."""

    @staticmethod
    def from_dlpack(tensor):
        return tf.experimental.dlpack.from_dlpack(tensor.__dlpack__())


class TestTensorFlow(Battery):
    xp = Namespace
    expected: ClassVar[dict[str, Expect]] = {
        "to arrow": LEGACY,
        "to float8": NO_FLOAT8,
        "to strided columns": COMPACT,
        "to strided transposed": COMPACT,
        # A broadcast array of NumPy is read-only.
        "to strided broadcast": LEGACY,
        "to negative strides": COMPACT,
        "from strided": COMPUTED,
        "from float8": Expect("refused", "exports none by DLPack", tf.errors.InvalidArgumentError, "not supported"),
        **{f"from float8 {name}": UNKNOWN for name in FLOAT8 if name not in KNOWN},
    }

    @classmethod
    def make(cls, values):
        return tf.constant(values)

    @classmethod
    def make_narrow(cls, dtype):
        known = getattr(tf.dtypes.experimental, dtype, None) or getattr(tf, dtype)
        return tf.cast(tf.constant([0.5, 1, 2, 4]), known)

    @classmethod
    def dtype(cls, theirs):
        return theirs.dtype.name

    @classmethod
    def values(cls, theirs):
        return theirs.numpy()


def test_objects_are_not_taken(cell):
    """Only a capsule is, so that the library is no array namespace."""
    tensor = ad.to_tensor(pa.array([1, 2]))
    with pytest.raises(TypeError, match="capsule"):
        tf.experimental.dlpack.from_dlpack(tensor)
    with pytest.raises(TypeError, match="from_dlpack"):
        ad.to_tensor(pa.array([1, 2]), xp=tf)
    # A versioned capsule is not taken either.
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.experimental.dlpack.from_dlpack(tensor.__dlpack__(max_version=(1, 3)))


def test_read_only(cell):
    column = pa.array([1.0, 2.0])
    with ad.track_copies() as log:
        theirs = Namespace.from_dlpack(ad.to_tensor(column))
    assert log.bytes == 16
    assert address(theirs) != column.buffers()[1].address
    cell("to", "read-only", "copy", LEGACY.note)
    vouched = Namespace.from_dlpack(ad.to_tensor(column, legacy="view"))
    assert address(vouched) == column.buffers()[1].address
    cell("to", "read-only", "view", '`legacy="view"`: tensors are immutable')
    # Its capsules are unversioned, and cannot say that they may be written to.
    assert not ad.from_dlpack(tf.constant([1, 2])).writable
    cell("from", "read-only", "view", "unversioned capsules: taken as read-only")


def test_keywords_that_it_does_not_know():
    theirs = tf.constant([1, 2])
    with pytest.raises(RuntimeError, match="copy=True"):
        theirs.__dlpack__(copy=True)
    # The copy is made here.
    copy = ad.from_dlpack(theirs, copy=True)
    assert address(copy) != address(theirs)
    assert np.from_dlpack(copy).tolist() == [1, 2]


def test_device_names(cell):
    theirs = tf.constant([1, 2])
    assert theirs.device.endswith("/device:CPU:0")
    with pytest.raises(ad.ConversionError, match="CPU:0"):
        ad.from_dlpack(theirs, device=theirs.device)
    cell("from", "device", "refused", "`device=tensor.device`, which is the path of a job")


def test_buffer_protocol(cell):
    tensor = ad.to_tensor(pa.array([1.5, 2.5]))
    theirs = tf.constant(np.asarray(tensor))
    assert theirs.numpy().tolist() == [1.5, 2.5]
    assert address(theirs) != address(tensor)
    cell("to", "buffer protocol", "copy", "`tf.constant(np.asarray(tensor))`")


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "float16", "float32", "bfloat16"])
def test_dtypes_of_tensorflow(dtype):
    assert ad.to_tensor(pa.array([1, 0]), dtype=getattr(tf, dtype)).dtype == dtype


@pytest.mark.parametrize("dtype", [tf.string, tf.qint8, tf.resource], ids=str)
def test_types_of_tensorflow_that_are_no_dtypes(dtype):
    with pytest.raises(ValueError, match="is not a dtype"):
        ad.to_tensor(pa.array([1, 0]), dtype=dtype)
