"""Builds extension modules of other crates that link this one, with cargo, and loads them."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[3]
# Seconds: a cold build of the crate and its dependencies, on a busy machine.
PATIENCE = 1800


def cargo_build(manifest: str, *flags: str) -> Path:
    """Builds a crate in debug, and returns the path of its shared library."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    command = ["cargo", "build", "--locked", "--message-format=json-render-diagnostics"]
    command += ["--manifest-path", str(ROOT / manifest), "--target-dir", str(target), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    artifacts = [json.loads(line) for line in done.stdout.splitlines()]
    made = [
        artifact["filenames"]
        for artifact in artifacts
        if artifact["reason"] == "compiler-artifact" and Path(artifact["manifest_path"]) == ROOT / manifest
    ]
    assert len(made) == 1, made
    return Path(made[0][0])


def load(library: Path, name: str, folder: Path) -> ModuleType:
    """Loads a copy of a shared library as the extension module `name`, which a later build does not overwrite."""
    copied = folder / f"{name}.abi3.so"
    shutil.copyfile(library, copied)
    spec = importlib.util.spec_from_file_location(name, copied)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The same source as two extensions: with other versions of PyO3, without CUDA and with it.
GUESTS = {name: f"tests/python/extensions/{name}/Cargo.toml" for name in ("guest", "guest_pyo3_0_29")}


def guest(name: str, folder: Path) -> ModuleType:
    """One of the builds of the extension `guest`."""
    return load(cargo_build(GUESTS[name]), "guest", folder)
