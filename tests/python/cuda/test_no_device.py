"""Machines without a driver, without a device, or without memory left; and processes that end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import arrow_dlpack as ad
import driver
import fakes
import numpy as np
import pytest

VALUES = np.arange(1 << 18, dtype="int32")
HERE = Path(__file__).parent
PRELUDE = f"""
import sys
sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]
import arrow_dlpack as ad, driver, fakes, numpy as np
from arrow_dlpack import _native
"""


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


class Claims:
    """An object that says that it is on CUDA."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (fakes.CUDA, 0)

    def __dlpack__(self, **_: object) -> object:
        raise AssertionError("asked for a capsule")


def test_no_driver(tmp_path: Path) -> None:
    code = """
class Claims:
    def __dlpack_device__(self): return (2, 0)
    def __dlpack__(self, **_): raise AssertionError
try:
    ad.from_dlpack(Claims())
except BufferError as error:
    print(error)
with ad.stream(1):
    print(np.from_dlpack(ad.from_dlpack(np.arange(3))).tolist())
"""
    ran = run(code, LD_LIBRARY_PATH=str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    # Where a real driver is installed, there is one.
    if "there is no CUDA driver on this machine" not in ran.stdout:
        pytest.skip("a CUDA driver is installed on this machine")
    assert 'use device="cpu"' in ran.stdout
    assert "[0, 1, 2]" in ran.stdout


@pytest.mark.no_devices
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells what a process has loaded")
def test_the_first_use_of_a_device_loads_the_driver() -> None:
    code = """
from pathlib import Path
import arrow_dlpack as ad, pyarrow as pa
def is_loaded(): return "libcuda" in Path("/proc/self/maps").read_text()
table = pa.table({"a": [1.0, None], "b": [3, 4]})
tensor = ad.to_tensor(table, nulls=0)
ad.to_arrow(tensor, names=["a", "b"]), list(ad.Loader(table, batch_size=1, nulls=0)), ad.explain(table)
ad.memory_stats(), ad.collect(), ad.empty_cache()
print(is_loaded())
ad.warm_up("cuda")
print(is_loaded())
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert (ran.stdout, ran.stderr) == ("False\nTrue\n", "")


@pytest.mark.no_devices
def test_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMULATED_CUDA_DEVICES", "0")
    with pytest.raises(BufferError, match=r'finds no device.*use device="cpu"'):
        ad.from_dlpack(Claims())


def test_no_memory_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMULATED_CUDA_MEMORY", str(VALUES.nbytes * 5 // 2))
    pool, stream = fakes.Pool(), driver.Stream()
    tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle))
    copy = ad.from_dlpack(tensor, copy=True)
    with pytest.raises(
        MemoryError, match=f"cuda:0 has no memory for {VALUES.nbytes} bytes: {VALUES.nbytes} bytes are in use"
    ):
        ad.from_dlpack(tensor, copy=True)
    # All is usable as before.
    assert np.array_equal(np.from_dlpack(copy.to_device("cpu")), VALUES)
    del copy
    driver.settle()
    assert np.array_equal(np.from_dlpack(ad.from_dlpack(tensor, copy=True).to_device("cpu")), VALUES)


def test_deferred_frees_are_looked_for_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMULATED_CUDA_MEMORY", str(VALUES.nbytes * 5 // 2))
    pool, stream = fakes.Pool(), driver.Stream()
    tensor = ad.from_dlpack(fakes.Torch(pool, VALUES, stream=stream.handle))
    for _ in range(4):
        fakes.cupy(ad.from_dlpack(tensor, copy=True), stream.handle).release()
        driver.settle()


class TestTheEnd:
    def test_of_the_interpreter_with_work_under_way(self) -> None:
        code = """
pool, stream = fakes.Pool(), driver.Stream()
tensor = ad.from_dlpack(fakes.Torch(pool, np.arange(6, dtype="int32"), stream=stream.handle))
other = ad.from_dlpack(fakes.Torch(pool, np.arange(6, dtype="int32"), stream=stream.handle))
driver.gate(driver.LEGACY)
held = fakes.Held(tensor.__dlpack__(max_version=(1, 0)))
copy = ad.from_dlpack(other, copy=True)
held.release()
del tensor, copy
print(_native.collect())
"""
        ran = run(code)
        assert (ran.returncode, ran.stdout.strip()) == (0, "2"), ran.stderr
        assert ran.stderr == ""

    @pytest.mark.parametrize("function", ["cuThreadExchangeStreamCaptureMode", "cuEventQuery", "cuEventRecord"])
    def test_of_the_driver(self, function: str) -> None:
        code = f"""
pool, stream = fakes.Pool(), driver.Stream()
tensor = ad.from_dlpack(fakes.Torch(pool, np.arange(6, dtype="int32"), stream=stream.handle))
fakes.Held(tensor.__dlpack__(max_version=(1, 0))).release()
for nth in range(1, 50):
    # CUDA_ERROR_DEINITIALIZED.
    driver.fail({function!r}, nth, 4)
del tensor
"""
        ran = run(code)
        assert ran.returncode == 0, ran.stderr
        assert ran.stderr == ""
