"""Does the library build with each PyO3 of its range, the oldest Rust of a feature, a linked driver, the next arrow?

It builds in target/versions, with lock files of its own that start as the repository's. docs/versions.md has the table.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "target" / "versions"
# The ends of the range in Cargo.toml, and what exists with each: pyo3-arrow uses 0.30.
PYO3 = {"0.29": ["async", "cuda", "ndarray", "python"], "0.30": ["async", "cuda", "ndarray", "python", "pyo3-arrow"]}
# pyo3-arrow uses arrow 59 until its next release, and polars uses none.
NEXT_ARROW, WITH_NEXT_ARROW = "60", ["async", "cuda", "ndarray", "python"]
# Polars takes ten minutes of one core, and its manifests tell no version of Rust.
SLOW = {"polars"}

PROBE = """[workspace]

[package]
name = "probe"
version = "0.0.0"
edition = "2024"

[lib]
path = "lib.rs"

[dependencies]
arrow-dlpack = {{ path = "{root}", features = [{features}] }}
{more}
"""


def run(*command, cwd=None):
    print("+", *command, flush=True)
    return subprocess.run(command, cwd=cwd, check=False, stderr=subprocess.PIPE, text=True)


def check(folder, *, toolchain=None, features=()):
    """Whether the package in the folder builds; prints the compiler's errors."""
    command = ["cargo", *([f"+{toolchain}"] if toolchain else []), "check", "--quiet"]
    command += ["--manifest-path", str(folder / "Cargo.toml"), "--target-dir", str(FOLDER / "build")]
    done = run(*command, *(["--features", ",".join(features)] if features else []))
    print(done.stderr, end="" if done.returncode else "\n", flush=True)
    return done


def probe(name, features, more=""):
    """A package that depends on the library, with its lock file."""
    folder = FOLDER / name
    folder.mkdir(parents=True, exist_ok=True)
    quoted = ", ".join(f'"{feature}"' for feature in features)
    (folder / "Cargo.toml").write_text(PROBE.format(root=str(ROOT), features=quoted, more=more))
    (folder / "lib.rs").write_text("")
    shutil.copyfile(ROOT / "Cargo.lock", folder / "Cargo.lock")
    return folder


def is_locked(folder, name, version):
    """Whether the lock file has a release of this version: as a dependency of other features, it may have more."""
    return f'name = "{name}"\nversion = "{version}.' in (folder / "Cargo.lock").read_text()


def with_pyo3(version, features):
    folder = probe(f"pyo3-{version}", features, f'pyo3 = {{ version = "{version}", default-features = false }}')
    if check(folder).returncode:
        return [f"PyO3 {version}: does not build"]
    return [] if is_locked(folder, "pyo3", version) else [f"PyO3 {version}: another one was built"]


def stated():
    """The oldest Rust of each feature, from docs/versions.md; the first is that of no feature."""
    rows = re.findall(r"^\| (?:`([\w-]+)`|none) \| (\d+\.\d+) \|", (ROOT / "docs" / "versions.md").read_text(), re.M)
    return dict(rows)


def with_oldest_rust(slow):
    versions = stated()
    manifest = (ROOT / "Cargo.toml").read_text()
    features = set(re.findall(r"^([\w-]+) = \[", manifest.split("[features]")[1].split("[dependencies]")[0], re.M))
    faults = [f"docs/versions.md: no Rust for the feature {name}" for name in features - {"default"} - set(versions)]
    least = re.search(r'rust-version = "([\d.]+)"', manifest)[1]
    if versions.get("") != least:
        faults.append(f"docs/versions.md: {versions.get('')} without features, and Cargo.toml says {least}")
    for feature, minor in versions.items():
        version = f"{minor}.0"
        what = feature or "no feature"
        if feature in SLOW and not slow:
            print(f"LEFT OUT: {what} with Rust {version} (it takes long: SLOW=1 builds it)")
            continue
        if subprocess.run(["cargo", f"+{version}", "--version"], check=False, capture_output=True).returncode:
            print(f"LEFT OUT: {what} with Rust {version} (rustup toolchain install {version} --profile minimal)")
            continue
        folder = probe(f"rust-{feature or 'none'}", [feature] if feature else [])
        if check(folder, toolchain=version).returncode:
            faults.append(f"Rust {version}: {what} does not build")
    return faults


def with_linked_driver():
    """Beside a crate whose cudarc links the driver, as candle's does: cudarc then has no functions that load it."""
    features = "['cuda-version-from-build-system', 'dynamic-linking', 'driver', 'std']"
    cudarc = f'cudarc = {{ version = "0.19", default-features = false, features = {features} }}'
    folder = probe("linked-driver", ["cuda"], cudarc)
    return ["a linked CUDA driver: does not build"] if check(folder).returncode else []


def with_next_arrow():
    """The library's sources under a manifest that asks for the next arrow."""
    folder = FOLDER / "arrow"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "src").symlink_to(ROOT / "src")
    for name in ("README.md", "Cargo.lock"):
        shutil.copyfile(ROOT / name, folder / name)
    manifest = (ROOT / "Cargo.toml").read_text()
    # Without tests and examples, whose dependencies have arrows of their own; without other members.
    manifest = re.sub(
        r"^\[(dev-dependencies|profile\..*|\[test\]|\[example\])\]\n(?:[^\[\n].*\n|\n)*", "", manifest, flags=re.M
    )
    manifest = re.sub(r"^members = .*$", 'members = ["."]', manifest, flags=re.M)
    manifest, count = re.subn(r'^(arrow-\w+ = \{ version = )"[^"]*"', rf'\1"{NEXT_ARROW}"', manifest, flags=re.M)
    if count == 0:
        return ["Cargo.toml: no arrow to replace"]
    (folder / "Cargo.toml").write_text(manifest)
    done = check(folder, features=WITH_NEXT_ARROW)
    if "failed to select a version" in done.stderr and "candidate versions found" in done.stderr:
        print(f"LEFT OUT: arrow {NEXT_ARROW} (the registry has none yet)")
        return []
    if done.returncode:
        return [f"arrow {NEXT_ARROW}: does not build"]
    return [] if is_locked(folder, "arrow-array", NEXT_ARROW) else [f"arrow {NEXT_ARROW}: another one was built"]


def main():
    faults = [fault for version, features in PYO3.items() for fault in with_pyo3(version, features)]
    faults += with_oldest_rust("--slow" in sys.argv)
    faults += with_linked_driver()
    faults += with_next_arrow()
    print(f"versions checked, {len(faults)} at fault")
    sys.exit("\n".join(faults) or None)


if __name__ == "__main__":
    main()
