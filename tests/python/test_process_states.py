"""Forks and the end of the process, in each state of a loader, a stream or a capsule: all processes end well."""

from __future__ import annotations

import os
import textwrap

import pytest
from test_loader_process import run

# How each state is reached; `thing` is what the child and the parent then have.
STATES = {
    "a loader that has not begun": "thing = ad.Loader(numbered(20, 5), batch_size=4)",
    "an epoch that nobody has read": "thing = iter(ad.Loader(numbered(20, 5), batch_size=4))",
    "an epoch in its middle": "thing = iter(ad.Loader(numbered(20, 5), batch_size=4)); held = next(thing)",
    "an epoch without a thread": "thing = iter(ad.Loader(numbered(9), batch_size=4, prefetch=0)); held = next(thing)",
    "an epoch at its end": "thing = iter(ad.Loader(numbered(20, 5), batch_size=4)); held = list(thing)",
    "a closed epoch": "thing = iter(ad.Loader(numbered(20, 5), batch_size=4)); held = next(thing); thing.close()",
    "an epoch that failed": """
        def fail():
            yield numbered(5)
            raise OSError("gone")
        thing = iter(ad.Loader(fail(), batch_size=5))
        held = next(thing)
        try:
            next(thing)
        except OSError:
            pass
    """,
    "an epoch whose reader waits for its source": """
        entered, leave = threading.Event(), threading.Event()
        def wait():
            yield numbered(5)
            entered.set()
            leave.wait(60)
        thing = iter(ad.Loader(wait(), batch_size=5, prefetch=1))
        held = next(thing)
        assert entered.wait(60)
    """,
    "an epoch of several readers": """
        sources = [((lambda: numbered(20, 5)), 20) for _ in range(4)]
        thing = iter(ad.Loader(sources=sources, lanes=4, readers=3, batch_size=4))
        held = next(thing)
    """,
    "a stream that nobody has read": "thing = ad.from_arrow(numbered(20, 5))",
    "a stream in its middle": "thing = ad.from_arrow(numbered(20, 5)); held = next(thing)",
    "a stream of a generator": "thing = ad.from_arrow(one for one in numbered(9, 5).to_batches()); held = next(thing)",
    "a closed stream": "thing = ad.from_arrow(numbered(20, 5)); held = next(thing); thing.close()",
    "a stream in a capsule": "thing = ad.from_arrow(numbered(20, 5)).__arrow_c_stream__()",
    "an array in capsules": "thing = ad.to_arrow(np.arange(5)).__arrow_c_array__()",
    "a tensor in capsules": "thing = [ad.to_tensor(pa.array([1])).__dlpack__(max_version=(n, 0)) for n in (0, 1)]",
}

WHOLE = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15], [16, 17, 18, 19]]
CHUNKS = [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14], [15, 16, 17, 18, 19]]
# The rows that are still to be read, batch by batch; capsules are not read.
RESTS = {
    "a loader that has not begun": WHOLE,
    "an epoch that nobody has read": WHOLE,
    "an epoch in its middle": WHOLE[1:],
    "an epoch without a thread": [[4, 5, 6, 7], [8]],
    "an epoch at its end": [],
    "a closed epoch": [],
    "an epoch that failed": [],
    "an epoch whose reader waits for its source": [],
    "an epoch of several readers": [batch for batch in WHOLE for _ in range(4)][1:],
    "a stream that nobody has read": CHUNKS,
    "a stream in its middle": CHUNKS[1:],
    "a stream of a generator": [[5, 6, 7, 8]],
    "a closed stream": [],
    "a stream in a capsule": None,
    "an array in capsules": None,
    "a tensor in capsules": None,
}

# Each use of it: read on, refused to a child that would read on, let go, or left to the end of the process.
USES = {
    "is read on": """
        def rows(one):
            return rows_of(one) if hasattr(one, "__dlpack__") else pa.record_batch(one)["row"].to_pylist()
        is_read = isinstance(thing, ad.Loader) or hasattr(thing, "__next__")
        found = [rows(one) for one in thing] if is_read else None
        assert found == rest, found
    """,
    "is refused": """
        try:
            next(thing)
        except RuntimeError as error:
            assert "which this one was forked from" in str(error), error
        else:
            raise AssertionError("a child read on in an epoch of its parent")
    """,
    "is let go": "del thing; gc.collect()",
    "is left": "",
}

PROGRAM = """
import gc, warnings
warnings.simplefilter("ignore")
{state}
rest = {rest}
if {fork}:
    settle_before_fork()
child = os.fork() if {fork} else None
if child == 0:
    if "leave" in globals():
        leave.set()
{child}
    # A new epoch and a conversion of the child's own.
    assert len(list(ad.Loader(numbered(20, 5), batch_size=4))) == 5
    assert loader_threads() == 0
    sys.exit(7)
if child:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
if "leave" in globals():
    leave.set()
{parent}
assert len(list(ad.Loader(numbered(20, 5), batch_size=4))) == 5
print("done", flush=True)
"""


def ends_well(state: str, *, fork: bool, child: str, parent: str) -> None:
    part = textwrap.dedent
    code = PROGRAM.format(
        state=part(STATES[state]).strip(),
        rest=RESTS[state],
        fork=fork,
        child=textwrap.indent(part(USES[child]).strip() or "pass", "    "),
        parent=part(USES[parent]).strip(),
    )
    result = run(code, "-X", "dev", "-W", "ignore")
    assert (result.returncode, result.stdout, result.stderr) == (0, "done\n", ""), f"{state}, {child}, {parent}"


@pytest.mark.parametrize("state", STATES)
def test_the_process_ends_well(state: str):
    ends_well(state, fork=False, child="is left", parent="is left")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(("child", "parent"), [("is read on", "is let go"), ("is left", "is read on")])
def test_a_fork_and_its_parent_end_well(child: str, parent: str, state: str):
    if child == "is read on" and "epoch" in state:
        child = "is refused"
    ends_well(state, fork=True, child=child, parent=parent)
