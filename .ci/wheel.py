"""Takes out of a wheel what two builds of one commit differ in: whoever builds it again can compare one hash.

The compiler and maturin leave a serial number, a time and the folder of the checkout, all in the bill of materials.
"""

import base64
import hashlib
import json
import sys
import zipfile
from pathlib import Path

# What stands for the folder of the checkout in names of packages.
ANYWHERE = "path+file:///arrow-dlpack"


def normalised(bill, root):
    """The bill of materials without its serial number and time, and with the checkout at one place."""
    bill.pop("serialNumber", None)
    bill.get("metadata", {}).pop("timestamp", None)
    return json.dumps(bill, indent=2).replace(f"path+{root.as_uri()}", ANYWHERE).encode()


def record(name, files):
    """The RECORD of so many files: https://packaging.python.org/en/latest/specifications/recording-installed-packages/."""
    lines = []
    for file, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{file},,\n" if file == name else f"{file},sha256={digest},{len(content)}\n")
    return "".join(lines).encode()


def rewrite(wheel, root):
    """Writes the wheel anew, its files in their order, and returns its hash."""
    with zipfile.ZipFile(wheel) as old:
        entries = old.infolist()
        files = {entry.filename: old.read(entry) for entry in entries}
    for name, content in files.items():
        if "/sboms/" in name:
            files[name] = normalised(json.loads(content), root)
    for name in files:
        if name.endswith(".dist-info/RECORD"):
            files[name] = record(name, files)
    with zipfile.ZipFile(wheel.with_suffix(".new"), "w", zipfile.ZIP_DEFLATED) as new:
        for entry in entries:
            new.writestr(entry, files[entry.filename], compresslevel=9)
    wheel.with_suffix(".new").replace(wheel)
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def main():
    root = Path(__file__).parent.parent.resolve()
    for wheel in map(Path, sys.argv[1:]):
        print(f"{rewrite(wheel, root)}  {wheel}")


if __name__ == "__main__":
    main()
