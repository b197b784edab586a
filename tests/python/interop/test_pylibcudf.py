"""pylibcudf without a GPU: it can be imported, and its columns have the device dunder, but none can be made."""

import arrow_dlpack as ad
import numpy as np
import pyarrow as pa
import pylibcudf as plc
import pytest
from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
from frames import DUNDERS

NO_GPU = "without a GPU"


def has_driver() -> bool:
    try:
        load_nvidia_dynamic_lib("cuda")
    except DynamicLibNotFoundError:
        return False
    return True


pytestmark = pytest.mark.skipif(has_driver(), reason="what is tested here is a machine without NVIDIA's driver")


def test_which_dunders_its_types_have(cell):
    for kind in (plc.Column, plc.Table):
        assert {name for name in DUNDERS if hasattr(kind, name)} == {"__arrow_c_array__", "__arrow_c_device_array__"}
        assert not hasattr(kind, "__dlpack_c_exchange_api__")
    cell("from", "exchange API", "absent")
    cell("from", "device", "absent", f"no column can be made {NO_GPU}; the type has the device dunder")


@pytest.mark.parametrize(
    "give",
    [
        lambda: plc.Column.from_arrow(ad.to_arrow(np.arange(3))),
        lambda: plc.Table.from_arrow(ad.from_arrow(pa.table({"x": [1]}))),
        lambda: plc.interop.from_dlpack(ad.from_dlpack(np.arange(3)).__dlpack__()),
    ],
    ids=["column", "table", "dlpack"],
)
def test_nothing_goes_there(cell, give):
    with pytest.raises(DynamicLibNotFoundError, match="NVIDIA driver"):
        give()
    for case in ("numbers", "batch", "device"):
        cell("to", case, "refused", f"no memory {NO_GPU}")


def test_types_are_converted(cell):
    """Types need no memory: ours are read by pyarrow's names."""
    field = pa.field(ad.to_arrow(np.arange(3)))
    assert plc.DataType.from_arrow(field.type).id() == plc.TypeId.INT64
