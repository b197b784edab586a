"""A column of cuDF becomes a tensor of torch on the GPU, and a tensor a column: no copy, and no wait of the host.

    python examples/cudf_interchange.py

cuDF works on one stream and torch on another. The column comes by Arrow's device protocol with an event, which
torch's stream waits for; the result goes back in the same way, and cuDF's stream waits for its event.
`pylibcudf.Column` is what has the protocol; where cudf is installed too, the result is shown as one of its Series.

Without pylibcudf, torch or a GPU it says what is missing, and ends well.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from typing import Any

import arrow_dlpack as ad

ROWS = 1_000_000


def to_torch(column: Any, stream: Any) -> Any:
    """The column's memory as a tensor, for work on `stream`. Nulls are an error without `nulls=` of `to_tensor`."""
    import torch

    with torch.cuda.stream(stream), ad.stream(stream):
        tensor = ad.to_tensor(column)
        # When nobody has the tensor any more cuDF may use its memory again, but not before this stream is done.
        tensor.record_stream(stream)
        return torch.from_dlpack(tensor)


def to_column(tensor: Any, stream: Any) -> Any:
    """A tensor that `stream` writes as a column, which keeps it."""
    import pylibcudf
    import torch

    with torch.cuda.stream(stream), ad.stream(stream):
        return pylibcudf.Column.from_arrow(ad.to_arrow(ad.from_dlpack(tensor)))


def main() -> int:
    """Go there and back, or say why that cannot be done here."""
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    missing = _missing()
    if missing:
        print(f"{(__doc__ or '').strip()}\n\nNot run: {missing}.")
        return 0

    import pylibcudf
    import torch

    # From the host, on cuDF's own stream.
    column = pylibcudf.Column.from_arrow(ad.to_arrow(torch.arange(ROWS, dtype=torch.float32)))
    stream = torch.cuda.Stream()
    with ad.track_copies() as log:
        tensor = to_torch(column, stream)
        with torch.cuda.stream(stream):
            doubled = tensor * 2
        back = to_column(doubled, stream)
    print(f"{ROWS:,} rows to torch and back; copies on the way: {len(log)}")
    with torch.cuda.stream(stream):
        # The first wait of the host is for what it compares.
        found = to_torch(back, stream).cpu()
    right = torch.equal(found, torch.arange(ROWS, dtype=torch.float32) * 2)
    print(f"column of {back.size():,} rows, {back.null_count()} nulls: {'as expected' if right else 'WRONG'}")
    if find_spec("cudf") is not None:
        import cudf

        print(cudf.Series.from_pylibcudf(back).head())
    return 0 if right else 1


def _missing() -> str | None:
    """What is not there that is needed."""
    for package in ("pylibcudf", "torch"):
        if find_spec(package) is None:
            return f"{package} is not installed"
    import torch

    return None if torch.cuda.is_available() else "there is no GPU that torch can use on this machine"


if __name__ == "__main__":
    sys.exit(main())
