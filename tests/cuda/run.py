"""Runs the tests of CUDA on the simulated driver: each test in a process of its own, under every schedule.

A test fails by its own assertion, by a race or a leak that the driver reports, or by a host wait that nothing allows.
With `--prove-waits` each numbered wait (src/stream_order/waits.rs) is left out in turn, and the first test that then
fails is shown, and recorded in proofs.txt; a wait without such a test is an error, and so is a test that fails with it
too.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROOFS = Path(__file__).parent / "proofs.txt"
SCHEDULES = ["lazy", "random:1", "eager", "random:2", "random:3", "random:4"]
# Of them, those that every change runs under.
USUAL = SCHEDULES[:2]
# Those that ask for virtual time run under this one, for each machine; `--schedules clock` runs all.
CLOCK = "clock"
MACHINES = ["h100-sxm", "a100-pcie", "a100-x4"]
TIMED = ["tests/python/cuda/test_virtual_time.py"]
# A test that waits for what never comes.
TIMEOUT = 300


@dataclass
class Outcome:
    failures: list[str]
    ran: int


def target() -> Path:
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute()


def simulated_driver() -> Path:
    """The folder with the simulated libcuda.so.1, made by `make simulated-cuda`."""
    folder = target() / "simulated-cuda"
    if not (folder / "libcuda.so.1").exists():
        sys.exit(f"no simulated driver in {folder}: run `make simulated-cuda`")
    return folder


def environment(schedule: str, log: Path, skip: int | None, share: int = 1) -> dict[str, str]:
    """`schedule` may name a machine for the virtual clock: `clock on h100-sxm`."""
    schedule, _, machine = schedule.partition(" on ")
    path = [
        str(simulated_driver()),
        os.environ.get("ARROW_DLPACK_LIBPYTHON", ""),
        os.environ.get("LD_LIBRARY_PATH", ""),
    ]
    added = {
        "LD_LIBRARY_PATH": ":".join(part for part in path if part),
        "SIMULATED_CUDA_SCHEDULE": schedule,
        "SIMULATED_CUDA_LOG": str(log),
        "ARROW_DLPACK_CUDA_SHARE": str(share),
    }
    if schedule.startswith("random:") and int(schedule.removeprefix("random:")) % 2:
        # Pools and streams as they are on a device: what was freed comes back at once, on any stream.
        added["SIMULATED_CUDA_REUSE"] = "1"
    if schedule == CLOCK:
        # The virtual clock takes packing for the work of one thread.
        added["ARROW_DLPACK_THREADS"] = "1"
    if machine:
        added["SIMULATED_CUDA_MACHINE"] = machine
    if skip is not None:
        added["ARROW_DLPACK_SKIP_WAIT"] = str(skip)
    return {**os.environ, **added}


def executables(skip_waits: bool, flags: list[str]) -> list[str]:
    """The test programs: the crate's own unit tests, and tests/cuda. With `skip_waits` they can leave out a wait."""
    command = ["cargo", "test", *flags, "--package", "arrow-dlpack", "--features", "cuda"]
    command += ["--lib", "--test", "cuda", "--no-run", "--message-format=json"]
    added = {}
    if skip_waits:
        # A target folder of its own, as the flags are others: see the Makefile.
        command += ["--target-dir", str(target() / "skip-waits" / "build")]
        added["RUSTFLAGS"] = f"{os.environ.get('RUSTFLAGS', '')} --cfg skip_waits"
    built = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **added}, check=True, stdout=subprocess.PIPE, text=True
    )
    messages = (json.loads(line) for line in built.stdout.splitlines() if line.startswith("{"))
    return [message["executable"] for message in messages if message.get("executable") and message["profile"]["test"]]


def rust_tests(programs: list[str]) -> list[tuple[str, str]]:
    """Tests that need the simulated driver; elsewhere they are ignored with that reason."""
    tests = []
    for program in programs:
        listed = subprocess.run(
            [program, "--list", "--format", "terse", "--ignored"], check=True, stdout=subprocess.PIPE, text=True
        )
        tests += [
            (program, line.removesuffix(": test")) for line in listed.stdout.splitlines() if line.endswith(": test")
        ]
    return tests


def complaints(log: Path) -> list[str]:
    """What the driver found wrong. The waits of the host are counted by the tests, which know what is allowed."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [line for line in lines if not line.startswith("wait: ")]


def run_rust(tests: list[tuple[str, str]], schedule: str, skip: int | None) -> Outcome:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = pool.map(lambda test: failure_of(*test, schedule, skip), tests)
        try:
            found = [failure for failure in failures if failure]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return Outcome(found, len(tests))


def failure_of(program: str, name: str, schedule: str, skip: int | None) -> str | None:
    """Why a test of a program fails, which runs alone in its process."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = [program, name, "--exact", "--ignored", "--nocapture"]
        try:
            ran = subprocess.run(
                command,
                env=environment(schedule, log, skip),
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                check=False,
            )
            found = complaints(log)
            said = "" if ran.returncode == 0 else (ran.stdout + ran.stderr)[-2000:]
        except subprocess.TimeoutExpired:
            found, said, ran = [], f"no end within {TIMEOUT} s", None
    if found or ran is None or ran.returncode:
        return f"{name} [{schedule}]\n" + "\n".join([*found[:5], said]).rstrip()
    return None


def run_python(
    schedule: str,
    skip: int | None,
    arguments: list[str],
    tests: Sequence[str] = ("tests/python/cuda",),
    share: int = 1,
) -> Outcome:
    """`share`: of each test's parameter sets one in so many runs, and the first."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--no-header",
            "-rfE",
            *tests,
            *arguments,
        ]
        ran = subprocess.run(
            command,
            cwd=ROOT,
            env=environment(schedule, Path(folder) / "log", skip, share),
            capture_output=True,
            text=True,
            check=False,
        )
    failures = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", ran.stdout, re.M)
    counted = [int(number) for number in re.findall(r"(\d+) (?:passed|failed|error)", ran.stdout)]
    if ran.returncode not in (0, 1) or not sum(counted):
        failures.append((ran.stdout + ran.stderr)[-4000:])
    elif failures and skip is None:
        failures.append(ran.stdout[-6000:])
    return Outcome([f"{failure} [{schedule}]" for failure in failures], sum(counted))


def test(programs: list[str], schedules: list[str], share: int, python: bool, arguments: list[str]) -> int:
    tests, failed = rust_tests(programs), False
    runs = [(schedule, tests, ["tests/python/cuda"], share if at else 1) for at, schedule in enumerate(schedules)]
    runs += [(f"{CLOCK} on {machine}", [], TIMED, 1) for machine in MACHINES]
    for schedule, chosen, folders, one_in in runs:
        outcomes = [run_rust(chosen, schedule, None)]
        if python:
            outcomes.append(run_python(schedule, None, arguments, folders, one_in))
        failed = failed or any(outcome.failures for outcome in outcomes)
        print(
            f"{schedule:18}",
            ", ".join(f"{outcome.ran} tests, {len(outcome.failures)} failed" for outcome in outcomes),
            flush=True,
        )
        for failure in (failure for outcome in outcomes for failure in outcome.failures):
            print("FAILED", failure, flush=True)
    return 1 if failed else 0


def waits() -> list[tuple[int, str]]:
    text = (ROOT / "src/stream_order/waits.rs").read_text()
    return [(int(number), name) for name, number in re.findall(r"^    (\w+) = (\d+),$", text, re.M)]


@dataclass
class Proof:
    """A test that fails without a wait, and the schedule under which it does."""

    test: str
    schedule: str


def recorded() -> dict[str, Proof]:
    """What failed without each wait when this was last run: tried first."""
    lines = PROOFS.read_text().splitlines() if PROOFS.exists() else []
    rows = [line.split(maxsplit=3) for line in lines if not line.startswith("#")]
    return {name: Proof(test, schedule) for _, name, schedule, test in rows}


def record(proofs: dict[str, Proof]) -> None:
    text = (
        "# Without a wait this test fails, under this schedule. Written by `make prove-waits`, which tries it first.\n"
    )
    for number, name in waits():
        if name in proofs:
            text += f"{number:2} {name:24} {proofs[name].schedule:8} {proofs[name].test}\n"
    PROOFS.write_text(text)


def first_failure(tests: list[tuple[str, str]], python: bool, number: int | None, schedule: str) -> str | None:
    """The first test that fails under a schedule; those in Rust, which are the shorter ones, before those in Python."""
    for test in tests:
        if run_rust([test], schedule, number).failures:
            return test[1]
    # Each of these takes many processes, and what they fail by the others show as well.
    arguments = ["--exitfirst", "--ignore=tests/python/cuda/test_failures.py"]
    failures = run_python(schedule, number, arguments).failures if python else []
    return failures[0].removesuffix(f" [{schedule}]") if failures else None


def still_fails(tests: list[tuple[str, str]], proof: Proof, number: int | None) -> bool:
    if proof.test.startswith("tests/python/"):
        return bool(run_python(proof.schedule, number, [], [proof.test]).failures)
    return bool(run_rust([test for test in tests if test[1] == proof.test], proof.schedule, number).failures)


def prove_waits(programs: list[str], python: bool) -> int:
    tests = rust_tests(programs)
    before, proofs, wrong = recorded(), {}, []
    for number, name in waits():
        proof = before.get(name)
        if proof is None or not still_fails(tests, proof, number):
            found = ((schedule, first_failure(tests, python, number, schedule)) for schedule in USUAL)
            proof = next((Proof(test, schedule) for schedule, test in found if test is not None), None)
        print(f"{number:3} {name:24} {f'{proof.test} [{proof.schedule}]' if proof else 'NO TEST FAILS'}", flush=True)
        if proof is None:
            wrong.append(f"no test fails without {name}")
        elif still_fails(tests, proof, None):
            wrong.append(f"{proof.test} fails with {name} too, so that it proves nothing")
        else:
            proofs[name] = proof
    record(proofs)
    for line in wrong:
        print(f"\n{line}")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prove-waits", action="store_true")
    parser.add_argument("--schedules", default=",".join(SCHEDULES))
    parser.add_argument(
        "--share",
        type=int,
        default=1,
        metavar="N",
        help="of a Python test's parameter sets, every schedule but the first takes one in N",
    )
    parser.add_argument("--without-python", action="store_true")
    parser.add_argument("--cargo-flags", default="")
    parser.add_argument("arguments", nargs="*", help="for pytest")
    options = parser.parse_args()
    programs = executables(options.prove_waits, options.cargo_flags.split())
    if options.prove_waits:
        return prove_waits(programs, not options.without_python)
    return test(programs, options.schedules.split(","), options.share, not options.without_python, options.arguments)


if __name__ == "__main__":
    sys.exit(main())
