"""ml_dtypes: NumPy from 2.5 takes bfloat16 and float8 once their dtypes are registered."""

from typing import ClassVar

import arrow_dlpack as ad
import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
from arrays import BFLOAT16, FLOAT8, Expect, narrow
from helpers import address, script
from test_numpy import TestNumPy as OfNumPy

REGISTERED = (
    "once the dtype is registered, such as by `numpy.dtypes.register_dlpack_dtype((4, 16), "
    "numpy.dtype(ml_dtypes.bfloat16))`: the numbers are the type code of dlpack.h and the bits"
)
CODES = {"bfloat16": BFLOAT16, **FLOAT8}
for name, code in CODES.items():
    np.dtypes.register_dlpack_dtype((code, 16 if code == BFLOAT16 else 8), np.dtype(getattr(ml_dtypes, name)))


class TestMlDtypes(OfNumPy):
    """All that NumPy takes, and these dtypes too."""

    expected: ClassVar[dict[str, Expect]] = {
        f"{direction} {case}": Expect("view", REGISTERED)
        for direction in ("to", "from")
        for case in ("bfloat16", "float8")
    }

    @classmethod
    def make_narrow(cls, dtype):
        return np.array([0, 0.5, 1, 2], getattr(ml_dtypes, dtype))


# Its tests are run as those of NumPy.
del OfNumPy


def test_unregistered_types_say_what_to_do():
    code = """
import numpy as np
from arrays import BFLOAT16, narrow
np.from_dlpack(narrow(BFLOAT16))
"""
    done = script(code)
    assert done.returncode == 1
    assert "BufferError" in done.stderr
    assert "dtype" in done.stderr


def test_values_are_kept_by_way_of_arrow(cell):
    values = np.array([0.5, 1.5, -2], ml_dtypes.bfloat16)
    column = ad.to_arrow(values, copy=False)
    assert column.type == "FixedSizeBinary(2)"
    back = ad.to_tensor(column, xp=np)
    assert back.dtype == ml_dtypes.bfloat16
    assert back.ctypes.data == values.ctypes.data
    assert back.tolist() == [0.5, 1.5, -2]
    wide = pa.array(ad.to_arrow(values, type=pa.float32()))
    assert wide.to_pylist() == [0.5, 1.5, -2]
    cell("from", "bfloat16", "copy", "to a float column, `to_arrow(type=)`")


def test_casts_to_bfloat16(cell):
    theirs = ad.to_tensor(pa.array([0.5, 1.5, None]), dtype="bfloat16", nulls=-2, xp=np)
    assert theirs.dtype == ml_dtypes.bfloat16
    assert theirs.tolist() == [0.5, 1.5, -2]
    cell("to", "bfloat16", "copy", 'a float column with `dtype="bfloat16"`')


def test_dtypes_as_options():
    """Anything whose str() ends in a name of a dtype."""
    tensor = ad.to_tensor(pa.array([1.5]), dtype=ml_dtypes.bfloat16)
    assert tensor.dtype == "bfloat16"
    assert ad.to_tensor(pa.array([1.5]), dtype=np.dtype(ml_dtypes.bfloat16)).dtype == "bfloat16"


@pytest.mark.parametrize("name", ["float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"])
def test_types_of_less_than_a_byte(name):
    assert not hasattr(np.zeros(1, getattr(ml_dtypes, name)), "__arrow_c_array__")
    with pytest.raises(BufferError):
        ad.from_dlpack(np.zeros(2, getattr(ml_dtypes, name)))


def test_read_only_is_kept(cell):
    column = ad.to_arrow(narrow(BFLOAT16))
    theirs = ad.to_tensor(column, xp=np)
    assert theirs.ctypes.data == address(ad.to_tensor(column))
    assert not theirs.flags.writeable
    cell("to", "read-only", "view", "the flag is kept: the array is not writeable")
