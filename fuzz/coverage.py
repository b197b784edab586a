"""How much of each room do tests reach? Counts regions: parts of code that run as a whole, such as an arm of a match.

python fuzz/coverage.py --folder target/coverage --show src/dlpack/import.rs -- --test hostile -- corpus::

What follows `--` is for `cargo test`. `--show` adds the lines of a file with regions that nothing reached. The code of
unit tests is not counted.
"""

import argparse
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "src"
UNIT_TESTS = re.compile(r"^#\[cfg\(.*\btest\b.*\)\]\nmod ", re.MULTILINE)


def tool(name: str) -> Path:
    """A program of the component llvm-tools: the profiles have the version of the compiler's own LLVM."""
    told = subprocess.run(["rustc", "--print", "target-libdir"], capture_output=True, text=True, check=True).stdout
    path = (Path(told.strip()).parent / "bin" / name).with_suffix(".exe" if os.name == "nt" else "")
    if not path.exists():
        sys.exit("LEFT OUT: the coverage (rustup component add llvm-tools)")
    return path


def programs(arguments: list[str], environment: dict[str, str]) -> list[str]:
    """Builds the tests, and returns their programs."""
    command = ["cargo", "test", "--no-run", "--message-format=json-render-diagnostics", *arguments]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=ROOT, env=environment)
    if built.returncode:
        sys.exit(built.returncode)
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    return [message["executable"] for message in messages if message.get("executable") and message["profile"]["test"]]


def regions(file: dict) -> Iterator[tuple[int, int, int]]:
    """The line, the column and the count of each region of a file, without those of its unit tests."""
    source = Path(file["filename"]).read_text()
    tests = UNIT_TESTS.search(source)
    end = source[: tests.start()].count("\n") if tests else source.count("\n") + 1
    for line, column, count, has_count, is_start, is_gap in file["segments"]:
        if has_count and is_start and not is_gap and line <= end:
            yield line, column, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the counts go")
    parser.add_argument("--show", nargs="*", default=[], metavar="FILE")
    parser.add_argument("cargo", nargs="+", help="arguments of cargo test")
    asked = parser.parse_args()
    merge, report = tool("llvm-profdata"), tool("llvm-cov")
    ours, _, theirs = " ".join(asked.cargo).partition(" -- ")
    shutil.rmtree(asked.folder, ignore_errors=True)
    folder = asked.folder.resolve()
    environment = {
        **os.environ,
        "RUSTC_WORKSPACE_WRAPPER": str(ROOT / "fuzz/instrumented.sh"),
        "LLVM_PROFILE_FILE": str(folder / "%p-%m.profraw"),
    }
    tests = programs(ours.split(), environment)
    for test in tests:
        subprocess.run([test, "--quiet", *theirs.split()], check=True, cwd=ROOT, env=environment)
    counts = folder / "counts.profdata"
    subprocess.run([merge, "merge", "--sparse", "--output", counts, *folder.glob("*.profraw")], check=True)
    objects = [argument for test in tests[1:] for argument in ("--object", test)]
    options = ["--skip-functions", "--instr-profile", counts]
    command = [report, "export", *options, tests[0], *objects, "--sources", SOURCES]
    exported = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    files = {Path(file["filename"]).relative_to(ROOT): list(regions(file)) for file in exported["data"][0]["files"]}

    rooms: dict[str, list[int]] = {}
    for path, found in files.items():
        rooms.setdefault(Path(path.parts[1]).stem, []).extend(count for _, _, count in found)
    print(f"{'room':24} {'regions':>8} {'reached':>8}")
    for room, found in [*sorted(rooms.items()), ("in all", [*itertools.chain.from_iterable(rooms.values())])]:
        reached = sum(count > 0 for count in found)
        print(f"{room:24} {len(found):8} {100 * reached / max(len(found), 1):7.1f}%")
    for path in map(Path, asked.show):
        lines = (ROOT / path).read_text().splitlines()
        missed = Counter(line for line, _, count in files[path] if count == 0)
        print(f"\n{path}: {missed.total()} of {len(files[path])} regions were not reached")
        for line, count in sorted(missed.items()):
            print(f"{line:5} {count:3}  {lines[line - 1].strip()}")


if __name__ == "__main__":
    main()
