"""Checks that the library in a wheel lists its crates, and no crate that the wheel's bill of materials lacks.

`cargo auditable` puts that list into a section of its own: https://github.com/rust-secure-code/cargo-auditable/blob/master/PARSING.md.
"""

import json
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path


def listed(library):
    """The name and version of each crate that the library lists."""
    with tempfile.TemporaryDirectory() as folder:
        packed = Path(folder, "packed")
        subprocess.run(["objcopy", "--dump-section", f".dep-v0={packed}", library, Path(folder, "rest")], check=True)
        # objcopy succeeds without the section, too.
        if not packed.exists():
            sys.exit(f"{library} does not list the crates that it was made of")
        packages = json.loads(zlib.decompress(packed.read_bytes()))["packages"]
    return {(package["name"], package["version"]) for package in packages if package.get("kind") != "build"}


def billed(bill):
    """The name and version of each crate of a bill of materials."""
    components = [bill["metadata"]["component"], *bill["components"]]
    return {(component["name"], component["version"]) for component in components}


def main():
    for wheel in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
            libraries = [archive.extract(name, folder) for name in archive.namelist() if name.endswith(".so")]
            bills = [json.loads(archive.read(name)) for name in archive.namelist() if "/sboms/" in name]
            if not libraries:
                sys.exit(f"{wheel} has no library")
            crates = set().union(*(listed(library) for library in libraries))
        if missing := crates - set().union(*map(billed, bills)):
            sys.exit(f"{wheel}: the library lists crates that the bill of materials lacks: {sorted(missing)}")
        print(f"{len(crates)} crates are listed in {wheel}")


if __name__ == "__main__":
    main()
