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
def guests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModuleType]:
    """The extension `guest` in each of its builds."""
    modules = {name: crates.guest(name, tmp_path_factory.mktemp(name)) for name in crates.GUESTS}
    assert len({module.to_tensor for module in modules.values()}) == len(modules)
    return modules


@pytest.fixture(params=crates.GUESTS)
def guest(request: pytest.FixtureRequest, guests: dict[str, ModuleType]) -> ModuleType:
    return guests[request.param]
