"""The figures can be taken, and docs/benchmarks.md is what the results make. How large they are is not tested."""

import json
import subprocess
import sys
from pathlib import Path

from free_threading import skip_without

ROOT = Path(__file__).parents[2]
BENCHES = ROOT / "benches"
RESULTS = ROOT / "docs" / "benchmarks"


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, cwd=ROOT)


def test_every_topic_runs():
    skip_without("duckdb", "polars")
    # Each route is compared with the result that it has to give; one of ours that differs is an error.
    done = run(BENCHES, "--quick", "--without", "torch,datasets")
    assert done.returncode == 0, done.stdout + done.stderr
    for results in RESULTS.glob("*.json"):
        assert f"\n{results.stem}\n" in f"\n{done.stdout}"
    assert "LEFT OUT, as not installed: datasets, torch" in done.stdout


def test_the_page_is_what_the_results_make():
    done = run(BENCHES / "report.py", "--check")
    assert done.returncode == 0, done.stderr


def test_another_figure_makes_another_page(tmp_path: Path):
    for file in RESULTS.glob("*.json"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    changed = tmp_path / "pack.json"
    results = json.loads(changed.read_text(encoding="utf-8"))
    results["tables"][0]["cases"][0]["routes"][0]["ratio"] *= 2
    changed.write_text(json.dumps(results), encoding="utf-8")
    done = run(BENCHES / "report.py", "--check", "--from", tmp_path)
    assert done.returncode == 1
    for made in ("docs/benchmarks.md", "docs/benchmarks/figures.svg", "docs/benchmarks/widths.svg"):
        assert made in done.stderr


def test_an_unknown_topic_is_named():
    done = run(BENCHES, "--quick", "--only", "pack,bitmaps")
    assert done.returncode == 1
    assert "no such topic: bitmaps" in done.stderr
