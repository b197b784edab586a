"""What is asked of one run of one peer's suite."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple


class Differs(NamedTuple):
    """A case that fails through the package: why that is right, and a pattern of what the failure shows."""

    reason: str
    shows: str


@dataclass(frozen=True)
class Suite:
    """One run: the files and cases of a peer, the shim that routes them, and every case that does not simply pass.

    A case is named as pytest does, without the folder: `test_array.py::test_c_array_protocol`, for all its parameters,
    or with `[...]` for one set of them.
    """

    name: str
    # Modules whose folder holds the files, or "$VARIABLE/folder" for a checkout that the environment names.
    folder: str
    # Files, or cases of files.
    cases: tuple[str, ...]
    # The module of this package that has `namespaces()`.
    shim: str
    # Fewer cases than this passed: the peer changed, or the shim no longer reaches them.
    at_least: int
    differs: dict[str, Differs] = field(default_factory=dict)
    # Not run, with the reason; such as cases that do not touch what the shim routes.
    left_out: dict[str, str] = field(default_factory=dict)
    # Skipped by the suite itself, with what its reason has to say.
    skips: dict[str, str] = field(default_factory=dict)
    # Further arguments of pytest, and of the environment.
    arguments: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    def dump(self, path: Path) -> None:
        """Writes the suite for the plugin."""
        path.write_text(json.dumps(dataclasses.asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Suite:
        """Reads what `dump` wrote."""
        fields = json.loads(path.read_text(encoding="utf-8"))
        fields["differs"] = {case: Differs(*row) for case, row in fields["differs"].items()}
        return cls(**fields)
