"""Builds of one commit in two folders are one wheel, and its RECORD tells what is in it."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.util
import io
import json
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
INFO = "arrow_dlpack-0.1.0.dist-info"


def script() -> Any:
    specification = importlib.util.spec_from_file_location("wheel", ROOT / ".ci" / "wheel.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def built(folder: Path, serial: str) -> Path:
    """What maturin makes of a checkout in this folder."""
    folder.mkdir(parents=True)
    bill = {
        "serialNumber": f"urn:uuid:{serial}",
        "metadata": {"timestamp": f"2026-11-{serial}", "component": {"bom-ref": f"path+{folder.as_uri()}#crate@0.1.0"}},
        "components": [{"bom-ref": f"path+{folder.as_uri()}/python#crate@0.1.0"}],
    }
    wheel = folder / "arrow_dlpack-0.1.0-cp311-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in {
            "arrow_dlpack/__init__.py": "answer = 42\n",
            "arrow_dlpack/_native.abi3.so": "code" * 1000,
            f"{INFO}/sboms/crate.cyclonedx.json": json.dumps(bill),
            f"{INFO}/RECORD": f"of {folder}",
        }.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = 0o755 << 16
            file.writestr(entry, content)
    return wheel


def test_two_folders_make_one_wheel(tmp_path: Path):
    wheels = [built(tmp_path / "one", "11"), built(tmp_path / "another" / "folder", "22")]
    assert wheels[0].read_bytes() != wheels[1].read_bytes()
    hashes = {script().rewrite(wheel, wheel.parent) for wheel in wheels}
    assert len(hashes) == 1
    assert [file.name for wheel in wheels for file in wheel.parent.iterdir()] == [wheel.name for wheel in wheels]
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    assert hashlib.sha256(wheels[0].read_bytes()).hexdigest() in hashes


def test_record_lists_each_file_with_its_hash(tmp_path: Path):
    wheel = built(tmp_path / "one", "11")
    script().rewrite(wheel, wheel.parent)
    with zipfile.ZipFile(wheel) as file:
        lines = list(csv.reader(io.TextIOWrapper(file.open(f"{INFO}/RECORD"))))
        assert [line[0] for line in lines] == file.namelist()
        assert lines[-1] == [f"{INFO}/RECORD", "", ""]
        for name, digest, size in lines[:-1]:
            content = file.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
            assert (digest, int(size)) == (f"sha256={expected}", len(content))
        bill = json.loads(file.read(f"{INFO}/sboms/crate.cyclonedx.json"))
        assert bill["components"] == [{"bom-ref": "path+file:///arrow-dlpack/python#crate@0.1.0"}]
        assert file.infolist()[1].external_attr >> 16 == 0o755
