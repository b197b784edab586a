"""Every figure, ours and the peers': `python benches [--only pack,back] [--quick]`.

Each topic runs in a process of its own, so that none finds memory that another left. The results go to
docs/benchmarks/, and the page is made anew from all that lie there. With `--quick` everything is small, nothing is
written, and the numbers mean nothing: it shows that everything runs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measure
import report
import results

HERE = Path(__file__).resolve().parent

# Each is a script here; in the order of the page.
TOPICS = [
    "yardstick",
    "views",
    "exchange",
    "columns",
    "pack",
    "kernels",
    "fresh",
    "isa",
    "small",
    "back",
    "bitmap",
    "nullable",
    "loader",
    "scaling",
    "memory",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", metavar="A,B", help=f"of {', '.join(TOPICS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    parser.add_argument("--without", default="", metavar="A,B", help="peers to leave out, though installed")
    arguments = parser.parse_args()
    chosen = list(filter(None, arguments.only.split(","))) or TOPICS
    unknown = [topic for topic in chosen if topic not in TOPICS]
    if unknown:
        sys.exit(f"error: no such topic: {', '.join(unknown)}; there are {', '.join(TOPICS)}")
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) if arguments.quick else results.RESULTS
        for topic in chosen:
            more = ["--quick"] if arguments.quick else []
            command = [
                sys.executable,
                str(HERE / f"{topic}.py"),
                "--to",
                str(folder),
                "--without",
                arguments.without,
                *more,
            ]
            subprocess.run(command, env=os.environ | measure.ONE_THREAD, check=True)
        measured = results.read(folder)
        if not arguments.quick:
            report.write(measured)
    left_out = sorted({name for result in measured.values() for name in result["left_out"]})
    if left_out:
        print(f"LEFT OUT, as not installed: {', '.join(left_out)}")
    if not arguments.quick:
        print(f"\n{report.summary({topic: measured[topic] for topic in chosen})}\n")
    print(f"{len(chosen)} topics in {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
