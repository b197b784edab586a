"""The extension modules of other crates, built once."""

from __future__ import annotations

from types import ModuleType

import crates
import pytest


@pytest.fixture(scope="session")
def frames(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The extension of `examples/pyclass`."""
    return crates.load(crates.cargo_build("examples/pyclass/Cargo.toml"), "frames", tmp_path_factory.mktemp("frames"))


@pytest.fixture(scope="session")
def beside(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The extension that uses pyo3-arrow, too."""
    manifest = "tests/python/extensions/beside_pyo3_arrow/Cargo.toml"
    return crates.load(crates.cargo_build(manifest), "beside_pyo3_arrow", tmp_path_factory.mktemp("beside"))


@pytest.fixture(scope="session")
def guests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModuleType]:
    """The extension `guest` in each of its builds."""
    modules = {name: crates.guest(name, tmp_path_factory.mktemp(name)) for name in crates.GUESTS}
    assert len({module.to_tensor for module in modules.values()}) == len(modules)
    return modules


@pytest.fixture(params=crates.GUESTS)
def guest(request: pytest.FixtureRequest, guests: dict[str, ModuleType]) -> ModuleType:
    return guests[request.param]
