"""Compiles an extension module against this interpreter, and loads it."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent


def compiler(variable: str, default: str) -> list[str]:
    """The command of a compiler, which the environment may name."""
    command = shlex.split(os.environ.get(variable, default))
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(f"{command[0]} was not found; install it, or name another one in {variable}")
    return command


def build(name: str, command: list[str], folder: Path) -> ModuleType:
    """Runs `command` with the headers of this interpreter, so that it makes the module `name` in `folder`."""
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").exists():
        raise FileNotFoundError(f"{include}/Python.h was not found; install the headers of {sys.executable}")
    target = folder / (name + sysconfig.get_config_var("EXT_SUFFIX"))
    whole = [*command, "-shared", "-fPIC", "-pthread", "-I", include, "-o", str(target)]
    done = subprocess.run(whole, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(whole)}\n{done.stderr}")
    spec = importlib.util.spec_from_file_location(name, target)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build_c(folder: Path, name: str = "c_consumer") -> ModuleType:
    """A file in C, with every warning an error."""
    flags = [
        "-std=c11",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-parameter",
        "-Wno-missing-field-initializers",
    ]
    return build(name, [*compiler("CC", "cc"), *flags, str(HERE / f"{name}.c")], folder)


def build_nanobind(folder: Path) -> ModuleType:
    """`nanobind_arrays.cpp`, with nanobind's own code, which its package brings along as sources."""
    spec = importlib.util.find_spec("nanobind")
    assert spec is not None
    assert spec.origin is not None
    nanobind = Path(spec.origin).parent
    flags = ["-std=c++17", "-O1", "-fvisibility=hidden", "-fno-strict-aliasing", "-DNDEBUG"]
    headers = ["-I", str(nanobind / "include"), "-I", str(nanobind / "ext" / "robin_map" / "include")]
    sources = [str(HERE / "nanobind_arrays.cpp"), str(nanobind / "src" / "nb_combined.cpp")]
    return build("nanobind_arrays", [*compiler("CXX", "c++"), *flags, *headers, *sources], folder)
