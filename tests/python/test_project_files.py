"""Documents, templates and workflows name commands and files that exist, and versions that agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))
DOCUMENTS = [
    *(ROOT / name for name in ("CONTRIBUTING.md", "README.md", "SECURITY.md")),
    *(ROOT / "docs" / name for name in ("design.md", "releasing.md", "testing.md")),
]
NAMING_TARGETS = [
    *DOCUMENTS,
    *WORKFLOWS,
    *ROOT.glob(".github/*.md"),
    *ROOT.glob(".github/ISSUE_TEMPLATE/*.yml"),
    ROOT / ".pre-commit-config.yaml",
]


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def targets() -> set[str]:
    phony = re.findall(r"^\.PHONY:(.*)$", read(ROOT / "Makefile"), re.MULTILINE)
    return {target for line in phony for target in line.split()}


@pytest.mark.parametrize("path", NAMING_TARGETS, ids=named)
def test_make_targets_exist(path: Path):
    # A command, in a fence or in backticks; not "make" in a sentence.
    commands = re.findall(r"(?:^\s*|`|run: )make ((?:[a-z][a-z0-9-]* ?)+)", read(path), re.MULTILINE)
    assert {word for command in commands for word in command.split()} <= targets()


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_paths_exist(path: Path):
    top = "|".join(re.escape(entry.name) for entry in ROOT.iterdir() if entry.is_dir())
    spans = re.findall(r"`([^`\n]+)`", read(path))
    paths = {word for span in spans for word in span.split() if re.match(rf"(?:{top})/", word)}
    # What a build makes, and names with a part for the reader to fill in.
    made = re.compile(r"^(target|dist|\.venv)/|NAME|\*")
    missing = [name for name in sorted(paths) if not made.search(name) and not (ROOT / name.rstrip("/")).exists()]
    assert not missing


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_linked_files_exist(path: Path):
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", read(path))
    assert not [link for link in links if not (path.parent / link).exists()]


def test_workflows_run_our_targets_on_pinned_actions():
    for path in WORKFLOWS:
        text = read(path)
        assert re.search(r"^permissions:\n  contents: read$", text, re.MULTILINE), path
        assert "concurrency:" in text, path
        assert "timeout-minutes:" in text, path
        # A tag can be moved; Dependabot reads the comment.
        assert all(re.search(r"@[0-9a-f]{40} # v[\d.]+$", action) for action in re.findall(r"uses: (.+)", text)), path
        runs = re.findall(r"run: (.+)", text)
        assert any(run.startswith("make ") for run in runs), path
        assert all(re.match(r"make |rustup (toolchain install|default) ", run) for run in runs), path


def test_pypi_links_to_the_documents():
    urls = tomllib.loads(read(ROOT / "python/pyproject.toml"))["project"]["urls"]
    found = [re.fullmatch(rf"{urls['Repository']}/(?:tree|blob)/main/(.+)", url) for url in urls.values()]
    files = {match[1] for match in found if match}
    assert files == {"docs", "CHANGELOG.md"}
    assert all((ROOT / name).exists() for name in files)


def test_ci_runs_the_oldest_and_the_newest_python():
    project = tomllib.loads(read(ROOT / "python/pyproject.toml"))["project"]
    listed = [text.rpartition(" ")[2] for text in project["classifiers"] if re.search(r":: 3\.\d+$", text)]
    assert project["requires-python"] == f">={listed[0]}"
    matrix = re.search(r"python: \[(.+)\]", read(ROOT / ".github/workflows/ci.yml"))
    assert matrix is not None
    assert re.findall(r'"([\d.]+)"', matrix[1]) == [listed[0], listed[-1]]


def test_ci_builds_with_the_oldest_rust_and_for_other_systems():
    ci = read(ROOT / ".github/workflows/ci.yml")
    oldest = tomllib.loads(read(ROOT / "Cargo.toml"))["workspace"]["package"]["rust-version"]
    assert f"rustup toolchain install {oldest}.0 " in ci
    platforms = re.search(r"^PLATFORMS \?= (.+)$", read(ROOT / "Makefile"), re.MULTILINE)
    assert platforms is not None
    assert f"--target {','.join(platforms[1].split())}\n" in ci


def test_ci_runs_what_a_checkout_runs():
    steps = re.findall(r"^step (make .+)$", read(ROOT / ".ci/run"), re.MULTILINE)
    ci = read(ROOT / ".github/workflows/ci.yml")
    assert steps
    for step in steps:
        words = step.split()
        assert any(set(words) <= set(line.split()) for line in ci.splitlines()), step


def test_one_line_length():
    length = tomllib.loads(read(ROOT / "ruff.toml"))["line-length"]
    assert tomllib.loads(read(ROOT / "rustfmt.toml"))["max_width"] == length
    assert f"max_line_length = {length}" in read(ROOT / ".editorconfig")


def locked(path: Path) -> dict[str, set[str]]:
    """The versions of each crate in a lock file."""
    versions: dict[str, set[str]] = {}
    for package in tomllib.loads(read(path))["package"]:
        versions.setdefault(package["name"], set()).add(package["version"])
    return versions


# Packages with lock files of their own that CI builds.
BUILT_BESIDE = [
    *(ROOT / folder / "Cargo.toml" for folder in ("fuzz", "tests/polars", "examples/pyclass")),
    *sorted(ROOT.glob("tests/python/extensions/*/Cargo.toml")),
]


@pytest.mark.parametrize("manifest", BUILT_BESIDE, ids=named)
def test_what_the_workspace_has_built_is_used_again(manifest: Path):
    """The same versions and the same profile: else cargo would build each crate once more."""
    workspace, own = locked(ROOT / "Cargo.lock"), locked(manifest.with_name("Cargo.lock"))
    other = {name for name in own.keys() & workspace.keys() if not own[name] <= workspace[name]}
    of_another_pyo3 = {name for name in own if name.startswith("pyo3")} if "pyo3_0_29" in str(manifest) else set()
    assert other == of_another_pyo3, "copy Cargo.lock of the workspace there, and run cargo metadata"
    profile = tomllib.loads(read(manifest))["profile"]["dev"]
    expected = tomllib.loads(read(ROOT / "Cargo.toml"))["profile"]["dev"]
    assert profile["debug"] == profile["package"]["arrow-dlpack"]["debug"] == expected["debug"]
    assert profile["package"]["*"] == expected["package"]["*"]


def test_one_version():
    version = tomllib.loads(read(ROOT / "Cargo.toml"))["workspace"]["package"]["version"]
    for lock in (ROOT / "Cargo.lock", *(manifest.with_name("Cargo.lock") for manifest in BUILT_BESIDE)):
        assert locked(lock)["arrow-dlpack"] == {version}, lock
    # Until the first release the changelog has no version of its own.
    headings = re.findall(r"^## \[(.+?)\]", read(ROOT / "CHANGELOG.md"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1:2] in ([], [version])


def test_the_makefile_uses_no_variable_before_it_has_a_value():
    """`:=` takes what is there: an unset variable is an empty text, and its folder is that of the root."""
    lines = re.sub(r"\\\n", "", read(ROOT / "Makefile")).splitlines()
    assignments = [match for line in lines if (match := re.match(r"(?:export )?(\w+) *(:=|\?=|=)(.*)", line))]
    of_make = {match[1] for match in assignments}
    known: set[str] = set()
    for name, operator, value in (match.groups() for match in assignments):
        used = set(re.findall(r"\$\((\w+)\)", value)) & of_make
        assert operator != ":=" or used <= known, name
        known.add(name)
