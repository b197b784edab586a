"""NumPy's own DLPack suite, with `np.from_dlpack` routed through `ad.from_dlpack`."""

import re
import subprocess
import sys
import textwrap

import numpy as np

# `test_readonly` asks that NumPy's own unversioned export of read-only memory is refused.
LEFT_OUT = "test_readonly"

PLUGIN = """
import arrow_dlpack as ad
import numpy as np

original, routed = np.from_dlpack, 0

def from_dlpack(x, /, *, device=None, copy=None):
    global routed
    routed += 1
    return original(ad.from_dlpack(x, device=device, copy=copy))

np.from_dlpack = from_dlpack

def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"routed {routed} calls")
"""


def test_passes(tmp_path):
    (tmp_path / "routing.py").write_text(textwrap.dedent(PLUGIN), encoding="utf-8")
    suite = f"{np.__path__[0]}/_core/tests/test_dlpack.py"
    command = [sys.executable, "-m", "pytest", "-p", "routing", "-p", "no:cacheprovider", "-q", "-rfE"]
    command += ["--deselect", f"{suite}::TestDLPack::{LEFT_OUT}", "-k", f"not {LEFT_OUT}", suite]
    environment = {"PYTHONPATH": str(tmp_path), "PATH": ""}
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=environment, cwd=tmp_path
    )
    output = result.stdout + result.stderr
    assert result.returncode == 0, output
    passed, routed = re.search(r"(\d+) passed", output), re.search(r"routed (\d+) calls", output)
    assert passed, output
    assert int(passed[1]) >= 80, output
    assert routed, output
    assert int(routed[1]) >= 80, output
