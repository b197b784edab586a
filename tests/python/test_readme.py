"""The README's Python runs as it stands."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def blocks(text: str) -> list[tuple[int, str]]:
    """Line number and code of every Python block."""
    found = re.finditer(r"^```python\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    return [(text[: match.start(1)].count("\n"), match[1]) for match in found]


def test_readme():
    found = blocks(README.read_text(encoding="utf-8"))
    assert len(found) >= 2, "the README lost its examples"
    namespace: dict[str, object] = {"__name__": "readme"}
    for line, code in found:
        # Padded, so that a traceback names the README's own line.
        exec(compile("\n" * line + code, str(README), "exec"), namespace)
