"""Runs the tests of each library in an environment of its own, under `.venv/interop`.

    python tests/python/interop/run.py [--light | --heavy | --only a,b] [--wheel FILE] [--write]

An environment is made once, and again when its requirements change; the wheel is installed again when it changed.
Several environments are made and used at a time; what one of them says is shown when it is done. With `--write` the
findings are written to `results/` and the document is generated from them; without it, findings that differ from those
written down are a failure.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import IO

sys.path.insert(0, str(Path(__file__).parent))
import document
import matrix

ROOT = matrix.HERE.parents[2]
REQUIREMENTS = ROOT / "python" / "requirements" / "interop"
ENVIRONMENTS = ROOT / ".venv" / "interop"
# Environments at a time: each has the threads of its library.
MOST = 4


class LeftOut(Exception):
    """Why a library is not tested here."""


class NotMade(Exception):
    """Why an environment could not be made."""


def satisfies(version: tuple[int, int], wanted: str) -> bool:
    """Whether a version of Python is in a range such as ">=3.12,<3.15"."""
    for clause in filter(None, (part.strip() for part in wanted.split(","))):
        match = re.fullmatch(r"(>=|<|==)(\d+)\.(\d+)", clause)
        if not match:
            raise ValueError(f"a range of Python versions has >=, < and == only: {wanted!r}")
        bound = (int(match[2]), int(match[3]))
        holds = {">=": version >= bound, "<": version < bound, "==": version == bound}[match[1]]
        if not holds:
            return False
    return True


def version_of(python: str) -> tuple[int, int] | None:
    """The version of an interpreter; None for what only looks like one."""
    script = "import sys; print(sys.implementation.name, *sys.version_info[:2])"
    try:
        output = subprocess.run([python, "-c", script], capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    name, major, minor = output.split()
    return (int(major), int(minor)) if name == "cpython" else None


def interpreter(wanted: str) -> str:
    """The path of a Python in the range: this one if it fits, else the first one that is installed."""
    if satisfies(sys.version_info[:2], wanted):
        return sys.executable
    minors = [minor for minor in range(9, 20) if satisfies((3, minor), wanted)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for minor in minors:
        candidates = [shutil.which(f"python3.{minor}"), *sorted(pyenv.glob(f"versions/3.{minor}.*/bin/python"))]
        for candidate in filter(None, candidates):
            if version_of(str(candidate)) == (3, minor):
                return str(candidate)
    raise LeftOut(f"no Python {wanted} was found")


def digest(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def prepare(library: matrix.Library, wheel: Path, log: IO[str]) -> Path:
    """The interpreter of a library's environment, which has its requirements and this wheel."""
    requirements = REQUIREMENTS / f"{library.environment}.txt"
    prefix = ENVIRONMENTS / library.environment
    python = prefix / "bin" / "python"
    stamp = prefix / "stamp"
    base = interpreter(library.python)
    wanted = [digest(requirements), ".".join(map(str, version_of(base) or ()))]
    had = stamp.read_text().split() if stamp.exists() else []
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if had[:2] != wanted:
        print(f"making {prefix.relative_to(ROOT)}", file=log, flush=True)
        stamp.unlink(missing_ok=True)
        run([base, "-m", "venv", "--clear", str(prefix)], log)
        install = [*pip, "--requirement", str(requirements), "pytest", "numpy"]
        try:
            run(install, log)
        except NotMade as why:
            # An index may be out of reach for a moment; pip goes on from what it has.
            print(f"once more: {why}", file=log, flush=True)
            run(install, log)
        had = []
    if had[2:] != [digest(wheel)]:
        run([*pip, "--force-reinstall", "--no-deps", str(wheel)], log)
        stamp.write_text("\n".join([*wanted, digest(wheel)]))
    return python


def run(command: list[str], log: IO[str]) -> None:
    """Runs a command; where it fails, raises `NotMade` with the last line of its errors."""
    done = subprocess.run(command, stdout=log, stderr=subprocess.PIPE, text=True)
    print(done.stderr, end="", file=log, flush=True)
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        free = shutil.disk_usage(ROOT).free / 2**30
        raise NotMade(f"{' '.join(command[1:4])}: {said[0]} ({free:.1f} GiB of disk free)")


def test(library: matrix.Library, python: Path, arguments: argparse.Namespace, log: IO[str]) -> str:
    """Runs the tests of one library in a process of their own; what came of it."""
    prefix = str(python.parent.parent)
    variables = {name: value.replace("{prefix}", prefix) for name, value in library.env.items()}
    # The distribution that was installed is tested, not the sources.
    variables |= {"PYTHONNOUSERSITE": "1", "PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [str(python), "-m", "pytest", "--quiet", str(library.file), "--library", library.name]
    command += arguments.pytest
    if arguments.write:
        command.append("--write-results")
    try:
        ran = subprocess.run(
            command,
            cwd=matrix.HERE,
            env=os.environ | variables,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=arguments.timeout,
        )
    except subprocess.TimeoutExpired:
        return f"failed: not done after {arguments.timeout} s"
    return "passed" if ran.returncode == 0 else f"failed: exit status {ran.returncode}"


def tested(library: matrix.Library, wheel: Path, arguments: argparse.Namespace, log: IO[str]) -> str:
    """What came of a library, and how long it took."""
    start = time.monotonic()
    print(f"\n== {library.title} ({library.name})", file=log, flush=True)
    try:
        if library.why_not:
            raise LeftOut(library.why_not)
        outcome = test(library, prepare(library, wheel, log), arguments, log)
    except LeftOut as why:
        outcome = f"LEFT OUT: {why}"
    except NotMade as error:
        outcome = f"failed: the environment could not be made ({error})"
    return f"{outcome} ({time.monotonic() - start:.0f} s)"


def in_one_environment(
    libraries: list[matrix.Library], wheel: Path, arguments: argparse.Namespace
) -> tuple[dict[str, str], str]:
    """What came of libraries one after another, and what was said meanwhile."""
    print(f"testing {', '.join(library.name for library in libraries)}", flush=True)
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        outcomes = {library.name: tested(library, wheel, arguments, log) for library in libraries}
        if arguments.discard:
            for environment in {library.environment for library in libraries if library.environment}:
                shutil.rmtree(ENVIRONMENTS / environment, ignore_errors=True)
        log.seek(0)
        return outcomes, log.read()


def by_environment(libraries: list[matrix.Library]) -> Iterator[list[matrix.Library]]:
    """The libraries of each environment."""
    for environment in dict.fromkeys(library.environment for library in libraries):
        yield [library for library in libraries if library.environment == environment]


def chosen(arguments: argparse.Namespace) -> list[matrix.Library]:
    """The libraries asked for. What cannot be tested is among them only when it is asked for by name."""
    known = matrix.libraries()
    if arguments.only:
        names = arguments.only.split(",")
        unknown = [name for name in names if name not in known]
        if unknown:
            sys.exit(f"error: no such library: {', '.join(unknown)}; there are {', '.join(known)}")
        return [known[name] for name in names]
    kinds = {True: arguments.heavy or not arguments.light, False: arguments.light or not arguments.heavy}
    return [library for library in known.values() if not library.why_not and kinds[library.heavy]]


def find_wheel(given: str | None) -> Path:
    if given:
        return Path(given).resolve()
    wheels = sorted((ROOT / "dist").glob("*.whl"))
    if len(wheels) != 1:
        sys.exit(f"error: dist/ has {len(wheels)} wheels, and one is needed: `make wheel`, or pass --wheel")
    return wheels[0]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--light", action="store_true", help="only libraries that are small")
    choice.add_argument("--heavy", action="store_true", help="only libraries that are not")
    choice.add_argument("--only", metavar="A,B", help="only these, by their names in environments.toml")
    parser.add_argument("--write", action="store_true", help="write the findings down, and the document")
    parser.add_argument("--wheel", help="the wheel to test; by default the one in dist/")
    parser.add_argument("--discard", action="store_true", help="remove each environment when it is done: 5 GB in all")
    parser.add_argument("--timeout", type=int, default=600, help="seconds for the tests of one library")
    parser.add_argument("pytest", nargs="*", help="more for pytest, after --")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    wheel = find_wheel(arguments.wheel)
    libraries = chosen(arguments)
    outcomes = dict.fromkeys((library.name for library in libraries), "")
    with ThreadPoolExecutor(min(os.cpu_count() or 1, MOST)) as pool:
        groups = by_environment(libraries)
        started = [pool.submit(in_one_environment, group, wheel, arguments) for group in groups]
        try:
            for done in as_completed(started):
                found, said = done.result()
                print(said, end="", flush=True)
                outcomes |= found
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if arguments.write:
        document.write()
    print("\n" + "\n".join(f"{name:20} {outcome}" for name, outcome in outcomes.items()))
    sys.exit(any(outcome.startswith("failed") for outcome in outcomes.values()))


if __name__ == "__main__":
    main()
