"""`help()` and an editor, which reads the stubs, show the same text."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import arrow_dlpack as ad
import pytest
from arrow_dlpack import _native

STUBS = Path(ad.__file__).with_name("_native.pyi")


def documented(body: list[ast.stmt], owner: Any, path: str = "") -> Iterator[tuple[str, str | None, str | None]]:
    """Every function and class of the stubs that there is at run time, with the docstrings of both."""
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or not hasattr(owner, node.name):
            continue
        found = getattr(owner, node.name)
        doc = found.__doc__
        yield f"{path}{node.name}", ast.get_docstring(node), inspect.cleandoc(doc) if doc else None
        if isinstance(node, ast.ClassDef):
            yield from documented(node.body, found, f"{path}{node.name}.")


ALL = list(documented(ast.parse(STUBS.read_text()).body, _native))


@pytest.mark.parametrize(
    ("stub", "runtime"),
    [pytest.param(stub, runtime, id=name) for name, stub, runtime in ALL if stub],
)
def test_stubs_say_what_help_says(stub: str, runtime: str | None):
    assert stub == runtime


@pytest.mark.parametrize(
    "name", [name for name in ad.__all__ if inspect.isroutine(getattr(ad, name)) or inspect.isclass(getattr(ad, name))]
)
def test_every_function_and_class_is_documented_in_both(name: str):
    if not hasattr(_native, name):
        # A module of Python, which has no stubs.
        assert inspect.getdoc(getattr(ad, name))
        return
    docs = [(stub, runtime) for found, stub, runtime in ALL if found == name]
    assert any(stub and runtime for stub, runtime in docs), docs
