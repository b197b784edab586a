"""Runs the suite for a real GPU: python run.py OUT [GROUP | SECTION]...

Each section is a process with a limit of its own. The sections come in groups that end within 8 minutes each, the most
valuable first, and all of them within 30. Whatever becomes of a section, OUT/<section>.json says so, and OUT/report.md
has the figures of all beside what they have to reach. OUT/results.tar has all of these in one file. Needs a driver,
Python with NumPy, pyarrow, torch and CuPy, and the folder that `make gpu-bundle` makes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import report

# The limit of each section, in seconds.
GROUPS: dict[str, dict[str, int]] = {
    "first": {"driver": 100, "kernels": 150, "torch": 110, "cupy": 60, "figures": 50},
    "second": {"transfers": 220, "loader": 170, "processes": 40, "smoke": 50},
    "third": {"sanitizer": 430, "jax": 40},
    "fourth": {"bandwidth": 120, "expandable": 120, "ptx": 100},
}
LIMITS = {section: limit for group in GROUPS.values() for section, limit in group.items()}
HERE = Path(__file__).resolve().parent
MOST_TEXT = 3000


def bundle() -> Path:
    """In the bundle this file lies beside the wheel; in a checkout the bundle is dist/gpu."""
    for folder in (HERE, HERE.parents[1] / "dist" / "gpu"):
        if (folder / "MANIFEST").exists():
            return folder
    sys.exit("no bundle: run make gpu-bundle")


def chosen(names: list[str]) -> list[str]:
    unknown = [name for name in names if name not in GROUPS and name not in LIMITS]
    if unknown:
        sys.exit(f"no group or section {', '.join(unknown)}; there are: {', '.join([*GROUPS, *LIMITS])}")
    sections = [section for name in names or GROUPS for section in GROUPS.get(name, {name: 0})]
    return list(dict.fromkeys(sections))


def limit(section: str, options: list[str]) -> int:
    """The seconds that a section may take. A simulated driver computes by the processor, beside other tests."""
    return LIMITS[section] * (3 if "--smoke" in options else 1)


def run(section: str, program: Path, found: Path, options: list[str], environment: dict[str, str]) -> bool:
    """Runs a section, and sees to it that its file says how it ended; whether all of it passed."""
    found.unlink(missing_ok=True)
    most = limit(section, options)
    ended = "failed: "
    # In a file, as a pipe would be held open by what a section leaves behind.
    with tempfile.TemporaryFile() as output:
        try:
            command = [sys.executable, str(program), str(found), *options]
            ran = subprocess.run(
                command, env=environment, timeout=most, check=False, stdout=output, stderr=subprocess.STDOUT
            )
            ended += f"the process ended with status {ran.returncode}"
        except subprocess.TimeoutExpired:
            ended += f"not within {most} s"
        output.seek(0)
        text = output.read().decode(errors="replace")
    print(text, end="", flush=True)
    results = read(found)
    if "failed" not in results:
        # It was cut off: what it had is there, and where it stood.
        checks = results.setdefault("checks", {})
        checks["the section comes to its end"] = f"{ended}: {text[-MOST_TEXT:]}"
        results["failed"] = [name for name, outcome in checks.items() if outcome != "passed"]
        found.write_text(json.dumps(results, indent=1) + "\n")
    return not results["failed"]


def read(found: Path) -> dict[str, Any]:
    """What a section has written; nothing, where it has not, or not whole."""
    try:
        results = json.loads(found.read_text())
    except (OSError, ValueError):
        return {}
    return results if isinstance(results, dict) else {}


def pack(out: Path) -> None:
    """One file of all results, for machines that return few."""
    with tarfile.open(out / "results.tar", "w") as archive:
        for path in [*sorted(out.glob("*.json")), out / "report.md"]:
            archive.add(path, path.name)


def main(arguments: list[str]) -> int:
    options = [argument for argument in arguments if argument.startswith("--")]
    names = [argument for argument in arguments if not argument.startswith("--")]
    if not names:
        sys.exit(__doc__)
    out = Path(names[0]).absolute()
    out.mkdir(parents=True, exist_ok=True)
    sections, source = chosen(names[1:]), bundle()
    passed = []
    with tempfile.TemporaryDirectory() as site:
        # A wheel is an archive of what is installed; pip need not be there.
        for wheel in source.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)
        path = [site, str(source / "sections"), *os.environ.get("PYTHONPATH", "").split(":")]
        # Else streams share 8 queues of the device, and a wait that is parked on one holds up others (docs/cuda.md).
        environment = {"CUDA_DEVICE_MAX_CONNECTIONS": "32", **os.environ}
        environment |= {"PYTHONPATH": ":".join(filter(None, path)), "GPU_BUNDLE": str(source)}
        for section in sections:
            print(f"== {section}", flush=True)
            program = source / "sections" / f"{section}_section.py"
            passed.append(run(section, program, out / f"{section}.json", options, environment))
            report.write(out, list(LIMITS))
            pack(out)
    print(out / "report.md")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
