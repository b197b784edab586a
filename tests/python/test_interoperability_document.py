"""docs/interoperability.md is what the written results generate, and every library is accounted for."""

import re
import sys
from pathlib import Path

import pytest

INTEROP = Path(__file__).parent / "interop"
sys.path.insert(0, str(INTEROP))

import document  # noqa: E402
import matrix  # noqa: E402

LIBRARIES = matrix.libraries()
TESTED = [library for library in LIBRARIES.values() if not library.why_not]
IN_THE_DOCUMENT = [library for library in TESTED if library.table]


def test_the_document_is_generated():
    assert document.PATH.read_text(encoding="utf-8") == document.generate(), "python tests/python/interop/document.py"


@pytest.mark.parametrize("library", TESTED, ids=lambda library: library.name)
def test_every_library_has_tests_and_pins(library: matrix.Library):
    assert library.file.exists()
    pins = normal(pins_of(library).read_text(encoding="utf-8"))
    assert all(f"\n{normal(name)}==" in pins for name in library.distributions)


@pytest.mark.parametrize("library", IN_THE_DOCUMENT, ids=lambda library: library.name)
def test_every_library_has_results(library: matrix.Library):
    results = matrix.read_results(library)
    assert results is not None
    assert results["library"] == library.name
    assert set(results["versions"]) == set(library.distributions)
    assert results["cells"]


@pytest.mark.parametrize("library", IN_THE_DOCUMENT, ids=lambda library: library.name)
def test_results_are_of_the_versions_that_are_pinned(library: matrix.Library):
    results = matrix.read_results(library)
    assert results is not None
    text = pins_of(library).read_text(encoding="utf-8")
    pins = dict(line.split("==") for line in text.splitlines() if "==" in line and not line.startswith("#"))
    pinned = {normal(name): version for name, version in pins.items()}
    for name, version in results["versions"].items():
        # What a distribution adds to its version says how it was built.
        assert pinned[normal(name)].partition("+")[0] == version.partition("+")[0], name


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins_of(library: matrix.Library) -> Path:
    return matrix.HERE.parents[2] / "python" / "requirements" / "interop" / f"{library.environment}.txt"


def test_no_results_of_unknown_libraries():
    assert {file.stem for file in matrix.RESULTS.glob("*.json")} == {library.name for library in IN_THE_DOCUMENT}


def test_every_test_file_is_of_a_library():
    files = {library.file.name for library in TESTED}
    assert {file.name for file in INTEROP.glob("test_*.py")} == files


@pytest.mark.parametrize("library", IN_THE_DOCUMENT, ids=lambda library: library.name)
def test_cells_are_of_the_matrix(library: matrix.Library):
    results = matrix.read_results(library)
    assert results is not None
    assert set(results["cells"]) <= set(matrix.CASES)
    for halves in results["cells"].values():
        assert set(halves) <= set(matrix.DIRECTIONS)
        for outcomes in halves.values():
            assert set(outcomes) <= set(matrix.OUTCOMES)
