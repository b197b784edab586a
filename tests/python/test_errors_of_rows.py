"""The rows that errors of lists and strings name."""

from __future__ import annotations

import arrow_dlpack as ad
import pyarrow as pa
import pytest

TEXT = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary_view()]


@pytest.mark.parametrize("data_type", TEXT, ids=str)
def test_a_byte_is_that_of_its_string(data_type: pa.DataType):
    texts = pa.array(["ab", "", None, "cdé", "é"], data_type)
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 1, 3, 5], pa.int32()), texts)
    for column, row in ((texts, 3), (texts[1:], 2), (lists, 3), (lists[1:], 2)):
        for data in (column, pa.chunked_array([column[:2], column[2:]])):
            with pytest.raises(ad.CastError) as caught:
                ad.to_ragged(data, dtype="int8", nulls="keep")
            assert caught.value.row == row
