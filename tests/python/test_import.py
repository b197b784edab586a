"""Importing the package loads nobody else, and everything public says what it is."""

import inspect
import json
import subprocess
import sys
import types
from importlib import metadata
from pathlib import Path

import arrow_dlpack as ad
import pytest


def run(code: str) -> str:
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_loads_no_third_party_module():
    code = """
import json, sys
before = set(sys.modules)
import arrow_dlpack
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    loaded = {name.partition(".")[0] for name in json.loads(run(code))}
    assert "arrow_dlpack" in loaded
    assert loaded - set(sys.stdlib_module_names) == {"arrow_dlpack"}


def test_uses_no_third_party_module():
    # A producer of its own kind of memory is enough to work with.
    here = Path(__file__).parent
    code = f"""
import sys
import types
before = {{name.partition(".")[0] for name in sys.modules}}
sys.path.insert(0, {str(here)!r})
import arrow_dlpack as ad, producers
tensor = ad.from_dlpack(producers.dlpack()[1])
array = ad.to_arrow(tensor)
back = ad.to_tensor(array, dtype="float32")
assert memoryview(back).tolist() == [[0, 1, 2], [3, 4, 5]]
print(ad.explain(array))
with ad.track_copies() as log:
    ad.to_tensor(array, copy=True)
try:
    ad.to_tensor(producers.arrow(producers.Schema(), producers.Array(null_count=1, buffers=[bytes(1), bytes(12)])))
except ad.NullError as error:
    assert error.row == 0
else:
    raise AssertionError
loaded = {{name.partition(".")[0] for name in sys.modules}} - before - set(sys.stdlib_module_names)
assert loaded == {{"arrow_dlpack", "producers"}}, loaded
"""
    assert "FixedSizeList" in run(code)


def test_has_no_dependencies():
    assert not metadata.requires("arrow-dlpack")
    assert metadata.version("arrow-dlpack") == ad.__version__


def test_the_package_is_typed():
    files = {Path(str(file)).name for file in metadata.files("arrow-dlpack") or []}
    assert {"py.typed", "__init__.py", "_native.pyi"} <= files


def test_all_is_what_is_public():
    # Modules such as `arrow_dlpack.torch` are there once something has imported them.
    names = [name for name in dir(ad) if not isinstance(getattr(ad, name), types.ModuleType)]
    assert sorted(ad.__all__) == sorted(name for name in names if not name.startswith("_") or name == "__version__")
    namespace: dict = {}
    exec("from arrow_dlpack import *", namespace)
    assert set(ad.__all__) <= set(namespace)


@pytest.mark.parametrize("name", [name for name in ad.__all__ if name != "__version__"])
def test_everything_has_a_docstring(name: str):
    public = getattr(ad, name)
    assert inspect.getdoc(public)
    assert public.__module__ in ("arrow_dlpack", "arrow_dlpack._native")
    if inspect.isclass(public) and not issubclass(public, Exception):
        missing = [
            member for member, value in vars(public).items() if not member.startswith("_") and not inspect.getdoc(value)
        ]
        assert not missing
    if inspect.isbuiltin(public):
        assert inspect.signature(public) is not None


def test_classes_are_made_by_functions():
    for cls in (ad.Tensor, ad.Array, ad.RecordBatch, ad.ArrayStream, ad.Report, ad.ReportRow, ad.CopyEntry, ad.CopyLog):
        with pytest.raises(TypeError):
            cls()
        with pytest.raises(TypeError):
            type("Sub", (cls,), {})


def test_objects_cannot_be_changed():
    tensor = ad.Device("cpu")
    with pytest.raises(AttributeError):
        tensor.id = 3
    with pytest.raises(AttributeError):
        tensor.anything = 3
