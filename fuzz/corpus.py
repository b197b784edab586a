"""Keeps the corpora of the fuzz targets as text: a case a line, in hexadecimal digits.

python fuzz/corpus.py unpack NAME FOLDER   writes each case of fuzz/corpus/NAME.txt to a file of FOLDER
python fuzz/corpus.py pack NAME FOLDER     writes the files of FOLDER to fuzz/corpus/NAME.txt, the shortest first
"""

import hashlib
import sys
from pathlib import Path

# The cases of a target take no more: the shortest come first, and what is left over stays with whoever ran the fuzzer.
LIMIT = 28_000


def unpack(text: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for line in text.read_text().split() if text.exists() else []:
        case = bytes.fromhex(line)
        (folder / hashlib.sha1(case).hexdigest()).write_bytes(case)


def pack(text: Path, folder: Path) -> None:
    lines = sorted({path.read_bytes().hex() for path in folder.iterdir()} - {""}, key=lambda line: (len(line), line))
    size = kept = 0
    for line in lines:
        size += len(line) + 1
        kept += size <= LIMIT
    text.parent.mkdir(exist_ok=True)
    text.write_text("".join(f"{line}\n" for line in lines[:kept]))
    print(f"{text.name}: {kept} of {len(lines)} cases")


if __name__ == "__main__":
    command, name, folder = sys.argv[1:]
    text = Path(__file__).parent / "corpus" / f"{name}.txt"
    {"pack": pack, "unpack": unpack}[command](text, Path(folder))
