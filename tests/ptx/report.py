"""Write docs/kernels.md: what each kernel reads and writes, and what of a multiprocessor it takes.

usage: python tests/ptx/report.py KERNELS.ptx OUT.md

Registers, spills and shared memory are what ptxas says; occupancy follows from them by the formula of NVIDIA's
occupancy calculator. No GPU is needed, so that a regression shows in any test run.
"""

from __future__ import annotations

import re
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pack

THREADS = 256
WARP = 32


@dataclass(frozen=True)
class Machine:
    """A multiprocessor, by the table of technical specifications in the CUDA C++ Programming Guide."""

    name: str
    warps: int
    blocks: int
    shared: int
    # Bytes a second of the whole device, and its multiprocessors, by the data sheet.
    bandwidth: float
    multiprocessors: int

    @property
    def needed(self) -> float:
        """Bytes under way on a multiprocessor at full bandwidth, by Little's law."""
        return self.bandwidth * LATENCY / self.multiprocessors


# Of memory under load, in seconds: a round figure for all, which nothing here has measured.
LATENCY = 700e-9
MACHINES = {
    80: Machine("A100 80 GB", 64, 32, 164 << 10, 2.04e12, 108),
    90: Machine("H200", 64, 32, 228 << 10, 4.8e12, 132),
    100: Machine("B200", 64, 32, 228 << 10, 8.0e12, 148),
    120: Machine("RTX 5090", 48, 24, 100 << 10, 1.79e12, 170),
}
REGISTERS_OF_A_QUARTER = 16384
REGISTER_UNIT, SHARED_UNIT, SHARED_OF_A_BLOCK = 256, 128, 1024


@dataclass(frozen=True)
class Family:
    """Kernels of one name and several sizes of elements, which are `w` bytes."""

    name: str
    read: str
    written: str
    # Bytes that a thread has asked for before it needs the first of them, by the size of an element; 0 for no size.
    flight: dict[int, int]
    reason: str


WIDE = {1: 16, 2: 16, 4: 16, 8: 16, 16: 16}
ONE = {1: 1, 2: 2, 4: 4, 8: 8, 16: 16}
FAMILIES = [
    Family(
        "unpack_bits",
        "1/8 a value",
        "1 a value",
        {0: 4},
        "eight times as much is written as read, and stores are not waited for; each is of 16 bytes. An H100 reaches "
        "0.76 of a memset of the output, the kernel alone",
    ),
    Family("pack_bits", "1 a value", "1/8 a value", {0: 16}, "loads of 16 bytes, aligned or joined of two"),
    Family(
        "count_nulls",
        "1/8 a value",
        "8 a block",
        {0: 16},
        "loads of 16 bytes, and one atomic a block; one launch for 160 bitmaps",
    ),
    Family(
        "join_validity",
        "1/8 a value and level",
        "1/8 a value",
        {0: 1},
        "none: it reads bit by bit; a small part of what is written afterwards",
    ),
    Family("find_no_bool", "1 a value", "none", {0: 16}, "loads of 16 bytes, and one comparison for them"),
    Family("normalise_bools", "1 a value", "1 a value", {0: 16}, "loads and stores of 16 bytes"),
    Family("store_table", "none", "8 a word", {0: 0}, "none: at most 3,840 bytes, of the launch's parameter"),
    Family("keep_misfits", "8 a column", "32 a column", {0: 8}, "none: at most a value for each column"),
    Family(
        "measure_rows",
        "4 or 8 a row, twice with list views",
        "8 a row if lengths are kept, else 48 in all",
        {0: 8},
        "neighbours read neighbouring offsets, each once from memory; two atomics a block, and one a thread that "
        "finds a fault",
    ),
    Family(
        "place_rows",
        "4 or 8 a padded row",
        "4 or 8 an element, 1 an item",
        {0: 8},
        "more is written than read, and a thread reads a row's offsets, from the cache, for four elements, whose "
        "32-bit codes it stores as a vector if they are aligned; no division in the loop. An H200 reaches 0.47 of a "
        "copy",
    ),
    Family(
        "shift_offsets",
        "4 or 8 an offset",
        "4 or 8 an offset",
        {0: 4},
        "none: one offset of a thread after the other, which is little beside the elements that rows have",
    ),
    Family(
        "expand_runs",
        "2 to 8 a run, three times",
        "4 a row, 8 with run ends of 64 bits",
        {0: 8},
        "a block looks at 256 run ends at a time for the first run of its 1,024 rows, and sets a bit where each other "
        "run begins; neighbours write neighbouring codes. The kernels that cast then gather the values by them",
    ),
    Family(
        "spread_rows",
        "1 a byte",
        "1 a byte",
        {0: 16},
        "loads and stores of 16 bytes, and no division in the loop; for rows that no words of 4 bytes are aligned for",
    ),
    Family(
        "copy_strided",
        "w a word",
        "w a word",
        {0: 16},
        "words of 1 to 8 bytes, four of a thread at once: 16 KB or more under way from 4 bytes on, less of narrower "
        "words; neighbours read and write neighbours, by way of shared memory. An H200 reaches 0.87 of a copy with "
        "words of 8 bytes, and 0.45 with 4, as it takes a hundred instructions for each",
    ),
    Family(
        "transpose",
        "4 a word",
        "4 a word",
        {4: 64},
        "rows to contiguous columns, of 4 bytes: 16 loads of a thread before its stores of 16 bytes, in registers, and "
        "a few instructions for each. An H200 reaches 0.82 to 0.98 of a copy, by the number of columns",
    ),
    Family(
        "fill_nulls",
        "1/8 a bool, 16 each 16 bools with a null",
        "16 each 16 bools with a null",
        {0: 2},
        "none: of each 16 bools it reads two or three bytes of the bitmap, and the bools only where one is null",
    ),
    Family(
        "pack_columns",
        "w a value",
        "w a value",
        WIDE,
        "loads and stores of 16 bytes; two loads for each where the column is not aligned so",
    ),
    Family(
        "cast_columns",
        "1 to 16 a value",
        "w a value",
        {0: 16},
        "frequent casts, of aligned elements and of the values of codes: four elements of a thread at once, in "
        "registers, here of 4 bytes. An H200 reaches 0.79 to 1 of a copy between 4 and 8 bytes, and 0.57 to 0.65 "
        "between 1 or 2 bytes and 4, as a cast takes more instructions than a copy; 0.7 through codes",
    ),
    Family(
        "pad_columns",
        "w a value shown, 4 or 8 an element",
        "w an element",
        {16: 20},
        "stores of 16 bytes; loads of 16 bytes that lie beside each other within a row, if the column is aligned so",
    ),
    Family(
        "pack_rows",
        "w a value",
        "w a value",
        {1: 8, 2: 16, 4: 32, 8: 32, 16: 32},
        "8 to 32 bytes of several columns at once, and whole lines written by way of shared memory; nulls are filled "
        "there, by a load of the bitmap for each 16 rows. An H100 reaches 0.96 of a copy for 3 to 64 columns of 4 "
        "bytes, the kernel alone, and 0.91 with nulls; those of 1 byte have less under way than it needs",
    ),
    Family(
        "cast_rows",
        "1 to 16 a value",
        "w a value",
        {0: 16},
        "as cast_columns; by way of shared memory whole rows are written, or up to 128 bytes of them. An H200 reaches "
        "0.64 of a copy between 4 bytes, 0.84 from 8 to 4, and 0.45 from 1 to 4",
    ),
    Family(
        "cast_any",
        "1 to 16 a value",
        "w a value",
        {0: 4},
        "none: all other casts, to rows and columns, one element of a thread after the other, here of 4 bytes",
    ),
]


@dataclass(frozen=True)
class Usage:
    """What ptxas says of a kernel."""

    registers: int
    stack: int
    spilled: int
    shared: int

    def warps(self, machine: Machine) -> int:
        """The warps that are on a multiprocessor at once, in whole blocks."""
        of_a_warp = -(-self.registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
        of_a_block = THREADS // WARP
        by_registers = REGISTERS_OF_A_QUARTER // of_a_warp * 4 // of_a_block
        shared = -(-self.shared // SHARED_UNIT) * SHARED_UNIT + SHARED_OF_A_BLOCK
        blocks = min(machine.warps // of_a_block, machine.blocks, machine.shared // shared, by_registers)
        return blocks * of_a_block


ENTRY = re.compile(
    r"entry function '(?P<name>\w+)'.*?\n.*?\n"
    r"\s*(?P<stack>\d+) bytes stack frame, (?P<spilled>\d+) bytes spill stores.*?\n"
    r".*?Used (?P<registers>\d+) registers(?P<rest>[^\n]*)"
)


def usages(said: str) -> dict[str, Usage]:
    """What ptxas says, by kernel."""
    found = {}
    for entry in ENTRY.finditer(said):
        shared = re.search(r"(\d+) bytes smem", entry["rest"])
        numbers = (int(entry[key]) for key in ("registers", "stack", "spilled"))
        found[entry["name"]] = Usage(*numbers, shared=int(shared[1]) if shared else 0)
    return found


def family_of(kernel: str) -> tuple[Family, int]:
    """The family of a kernel, and the bytes of its elements; 0 if it has one size alone."""
    for family in FAMILIES:
        if kernel == family.name:
            return family, 0
        if match := re.fullmatch(rf"{family.name}_(\d+)", kernel):
            return family, int(match[1])
    raise LookupError(f"{kernel} is not in FAMILIES")


def report(said: dict[int, str]) -> str:
    """The page, from what ptxas says for each architecture."""
    found = {architecture: usages(text) for architecture, text in said.items()}
    kernels = sorted(next(iter(found.values())), key=lambda name: (FAMILIES.index(family_of(name)[0]), family_of(name)))
    needed = ", ".join(f"{m.name} (sm_{a}) {m.needed / 1000:.0f} KB" for a, m in MACHINES.items())
    prose = [
        f"Blocks have {THREADS} threads. For each architecture: registers of a thread, warps that are on a",
        "multiprocessor at once, and the KB that their threads have asked for before they need the",
        "first of them. Spills",
        "are named where there are any. Stores are not waited for, and do not count. By Little's",
        "law, full bandwidth needs",
        f"bandwidth times latency under way. At {LATENCY * 1e9:.0f} ns, a round figure for memory under load, that is",
        f"for a multiprocessor of {needed}.",
    ]
    lines = [
        "# Kernels",
        "",
        "What each kernel of `src/cuda/kernels.cu` moves, and what of a multiprocessor it takes. `make cubins`",
        "writes this page from what ptxas says, and a test compares it: a register more, a spill or a block less is a",
        "change of this page. [gpu-results.md](gpu-results.md) has what a GPU has measured.",
        "",
        "## Bytes, and why they should move at 0.85 of a copy",
        "",
        "An element has `w` bytes, the number at the end of a kernel's name, or those of the output. `tests/gpu`",
        "measures.",
        "",
        "| kernel | bytes read | bytes written | why |",
        "|---|---|---|---|",
    ]
    lines += [f"| `{family.name}` | {family.read} | {family.written} | {family.reason} |" for family in FAMILIES]
    lines += [
        "",
        "## Registers, occupancy, bytes under way",
        "",
        textwrap.fill(" ".join(prose), 118),
        "",
        "| kernel | shared memory | " + " | ".join(f"sm_{a} ({m.warps} warps)" for a, m in MACHINES.items()) + " |",
        "|---" * (2 + len(MACHINES)) + "|",
    ]
    for kernel in kernels:
        family, size = family_of(kernel)
        cells = []
        for architecture, machine in MACHINES.items():
            usage = found[architecture][kernel]
            warps = usage.warps(machine)
            flight = warps * WARP * family.flight[size] / 1000
            spilled = f", {usage.spilled} bytes spilled" if usage.spilled else ""
            cells.append(f"{usage.registers}, {warps} warps, {flight:.0f} KB{spilled}")
        shared = found[90][kernel].shared
        lines.append(f"| `{kernel}` | {shared} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def made(ptx: Path) -> str:
    """The page for a PTX."""
    return report({architecture: pack.assemble(ptx, architecture)[1] for architecture in MACHINES})


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    ptx, out = map(Path, sys.argv[1:])
    out.write_text(made(ptx))


if __name__ == "__main__":
    main()
