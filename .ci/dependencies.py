"""Fails when a crate that we build on has a licence we do not accept, or needs a newer Rust than we say we do.

Checks the workspace, or the packages whose manifests it is given: those have lock files, and a Rust, of their own.
Of the workspace it also compares docs/dependencies.md with the crates in the wheel whose sources have unsafe code.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
NOTES = ROOT / "docs" / "dependencies.md"
# The platforms that wheels are for.
PLATFORMS = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"]
METADATA = ["cargo", "metadata", "--format-version", "1", "--all-features"]
UNSAFE = re.compile(r"^[^/\n]*\bunsafe\s*(?:\{|fn\b|impl\b|extern\b)", re.MULTILINE)

# Those that `make audit` accepts.
ACCEPTED = set(tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]["allow"])


def accepted(expression):
    """Whether an SPDX expression can be met with accepted licences: AND binds tighter than OR."""
    # Some manifests still write OR as a slash.
    tokens = re.findall(r"\(|\)|[^\s()]+(?: WITH \S+(?<!\)))?", expression.replace("/", " OR "))

    def either():
        result = both()
        while tokens and tokens[0] == "OR":
            tokens.pop(0)
            result = both() or result
        return result

    def both():
        result = one()
        while tokens and tokens[0] == "AND":
            tokens.pop(0)
            result = one() and result
        return result

    def one():
        token = tokens.pop(0)
        if token != "(":
            return token in ACCEPTED
        result = either()
        tokens.pop(0)
        return result

    return either()


def version(text):
    return tuple(int(part) for part in f"{text}.0.0".split(".")[:3])


def check_the_check():
    right = ["MIT", "MIT/GPL-3.0", "(MIT OR GPL-3.0) AND Unicode-3.0", "GPL-3.0 OR Apache-2.0 WITH LLVM-exception"]
    wrong = ["GPL-3.0", "MIT AND GPL-3.0", "(MIT AND GPL-3.0) OR MPL-2.0", "MIT WITH other-exception"]
    assert all(map(accepted, right)), "an accepted licence was refused"
    assert not any(map(accepted, wrong)), "a refused licence was accepted"
    assert version("1.88") < version("1.88.1") < version("1.100")


def faults_of(manifest=None):
    command = [*METADATA, *(["--locked", "--manifest-path", manifest] if manifest else [])]
    metadata = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    ours = set(metadata["workspace_members"])
    packages = metadata["packages"]
    ceiling = min((package["rust_version"] for package in packages if package["id"] in ours), key=version)
    others = [package for package in packages if package["id"] not in ours]
    faults = []
    for package in others:
        name, needs = f"{package['name']} {package['version']}", package["rust_version"]
        if not accepted(package["license"] or "none"):
            faults.append(f"{name}: licence {package['license']}")
        if needs and version(needs) > version(ceiling):
            faults.append(f"{name}: needs Rust {needs}, and we state {ceiling}")
    where = manifest or "workspace"
    print(f"{where}: licences and Rust versions of {len(others)} crates checked, {len(faults)} at fault")
    return faults


def in_wheel():
    """The folder of each crate that is linked into the wheel, by name."""
    command = ["cargo", "tree", "--locked", "--package", "arrow-dlpack-python", "--edges", "normal,no-proc-macro"]
    command += ["--prefix", "none", "--format", "{p}", *(f"--target={platform}" for platform in PLATFORMS)]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    linked = {tuple(line.split()[:2]) for line in lines if line}
    metadata = json.loads(subprocess.run(METADATA, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    packages = ((package["name"], f"v{package['version']}", package) for package in metadata["packages"])
    others = [package for name, number, package in packages if (name, number) in linked and package["source"]]
    return {package["name"]: Path(package["manifest_path"]).parent / "src" for package in others}


def missing_notes():
    folders = in_wheel()
    rows = re.findall(r"^\| ([\w, -]+) \|", NOTES.read_text(), re.MULTILINE)
    noted = {name for row in rows for name in row.split(", ") if name != "crate"}
    found = {name: any(UNSAFE.search(file.read_text()) for file in src.rglob("*.rs")) for name, src in folders.items()}
    print(f"wheel: notes on unsafe code of {len(noted)} crates compared with {len(found)} that are linked")
    unnoted = sorted(name for name in found.keys() - noted if found[name])
    faults = [f"docs/dependencies.md: no note on {name}, which has unsafe code" for name in unnoted]
    return faults + [f"docs/dependencies.md: {name} is not in the wheel" for name in sorted(noted - found.keys())]


def main():
    check_the_check()
    faults = [fault for manifest in sys.argv[1:] or [None] for fault in faults_of(manifest)]
    if not sys.argv[1:]:
        faults += missing_notes()
    sys.exit("\n".join(faults) or None)


if __name__ == "__main__":
    main()
