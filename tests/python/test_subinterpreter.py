"""Subinterpreters are refused with an ImportError; the main interpreter is none the worse for it."""

import subprocess
import sys

import pytest

# Where CPython keeps them, by version.
CREATE = {
    (3, 11): "import _xxsubinterpreters as subs; sub = subs.create(isolated=False)",
    (3, 12): "import _xxsubinterpreters as subs; sub = subs.create(isolated=OWN_LOCK)",
    (3, 13): "import _interpreters as subs; sub = subs.create('isolated' if OWN_LOCK else 'legacy')",
}

CODE = """
import os
import arrow_dlpack as ad
OWN_LOCK = {own_lock}
{create}
read, write = os.pipe()
subs.run_string(sub, f'''
import os
try:
    import arrow_dlpack
except ImportError as error:
    answer = f"ImportError: {{{{error}}}}"
except BaseException as error:
    answer = repr(error)
else:
    answer = "imported"
os.write({{write}}, answer.encode())
''')
print(os.read(read, 1000).decode())
subs.destroy(sub)
# The main interpreter goes on.
print(ad.Device("cpu"))
"""


@pytest.mark.parametrize("own_lock", [False, True])
def test_is_an_import_error(own_lock: bool):
    if own_lock and sys.version_info < (3, 12):
        pytest.skip("CPython 3.11 has no interpreters with a lock of their own")
    code = CODE.format(own_lock=own_lock, create=CREATE[min(sys.version_info[:2], max(CREATE))])
    command = [sys.executable, "-W", "ignore", "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    answer, after = result.stdout.splitlines()
    assert answer.startswith("ImportError: ")
    assert "subinterpreter" in answer
    assert after == "cpu"
