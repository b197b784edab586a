"""Random columns of lists that all have one length."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

Rows = Sequence[int | None]
LISTS = {
    pa.list_: pa.ListArray,
    pa.large_list: pa.LargeListArray,
    pa.list_view: pa.ListViewArray,
    pa.large_list_view: pa.LargeListViewArray,
}


def lists_of_two(random: random.Random, item: Callable[[Rows], pa.Array]) -> Callable[[Rows], pa.Array]:
    """A column of lists of two items, most of which follow each other."""
    make_list, kind = random.choice(list(LISTS.items()))
    # Whether null lists are empty, lists lie apart or overlap, and one of them has another length.
    are_empty, step, is_wrong = random.random() < 0.3, random.choice([2, 2, 2, 3, 1]), random.random() < 0.1
    has_nulls = random.random() < 0.2

    def build(rows: Rows) -> pa.Array:
        lengths = [0 if row is None and are_empty else 2 for row in rows]
        if is_wrong and rows and rows[0] is not None:
            lengths[0] = 1
        is_view = "View" in kind.__name__
        starts = np.arange(len(rows)) * step if is_view else np.cumsum([0, *lengths])
        picks = [None if has_nulls and at % 5 == 3 else at % 4 for at in range(3 * len(rows) + 2)]
        width = pa.int64() if "Large" in kind.__name__ else pa.int32()
        mask = pa.array([row is None for row in rows], pa.bool_()) if None in rows else None
        items = item(picks)
        data_type = make_list(items.type)
        if is_view:
            return kind.from_arrays(pa.array(starts, width), pa.array(lengths, width), items, data_type, mask=mask)
        return kind.from_arrays(pa.array(starts, width), items, data_type, mask=mask)

    return build
