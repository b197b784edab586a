"""The fixture that looks for leaks finds one."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent

LEAKS = """
import arrow_dlpack as ad
import producers
import pyarrow as pa

kept = []

def test_memory():
    kept.append(ad.to_tensor(pa.array(range(1000))))

def test_never_released():
    kept.append(ad.from_dlpack(producers.dlpack()[1]))

def test_released_twice():
    producer, tensor = producers.dlpack()
    ad.from_dlpack(tensor)
    producers._delete(producers.ctypes.addressof(producer.managed))

def test_child_never_released():
    schema = producers.Schema(b"+s", children=[producers.Schema(b"i")])
    kept.append(schema.capsule())

def test_clean():
    ad.from_dlpack(producers.dlpack()[1])
    ad.to_tensor(pa.array(range(1000)))
"""


def test_leaks_are_found(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    pytester.makeconftest((HERE / "conftest.py").read_text(encoding="utf-8"))
    pytester.makepyfile(LEAKS)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    # A leak shows when the fixture is torn down, after the test itself has passed.
    result.assert_outcomes(passed=5, errors=4)
    result.stdout.fnmatch_lines(
        [
            "*the test left *bytes of pyarrow's memory behind*",
            "*a DLPack tensor was released 0 times, not 1*",
            "*a DLPack tensor was released 2 times, not 1*",
            "*an ArrowSchema b'+s' was released 0 times, not 1*",
        ]
    )
