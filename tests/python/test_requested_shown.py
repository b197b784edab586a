"""requested_schema casts what rows show: values beside a slice, under nulls and without a code are nobody's."""

from __future__ import annotations

import arrow_dlpack as ad
import pyarrow as pa
import pytest


def test_an_error_is_that_of_the_column_that_has_it():
    numbers = [pa.array([3, 1], pa.int32()), pa.array([1, 300])]
    source = pa.StructArray.from_arrays(numbers, ["f", "g"], mask=pa.array([True, False]))
    for inner, strict in (("int8", False), ("int8", True), ("int32", True)):
        fields = [pa.field("f", pa.type_for_alias(inner), not strict), pa.field("g", pa.int8())]
        with pytest.raises(ad.CastError) as caught:
            pa.array(ad.from_arrow(source), pa.struct(fields))
        assert (caught.value.column, caught.value.row) == ("g", 1)
