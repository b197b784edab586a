"""Every wait of the CUDA half has a proof in tests/cuda/proofs.txt: a test that fails without it, and that exists."""

import functools
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RUN = runpy.run_path(str(ROOT / "tests/cuda/run.py"))
WAITS = RUN["waits"]()
PROOFS = RUN["recorded"]()


@functools.cache
def rust() -> list[str]:
    files = [*ROOT.glob("tests/cuda/*.rs"), *ROOT.glob("src/**/*.rs")]
    return [file.read_text(encoding="utf-8") for file in files]


def test_every_wait_is_read():
    text = (ROOT / "src/stream_order/waits.rs").read_text(encoding="utf-8")
    variants = re.search(r"^waits! \{(.*?)^\}", text, re.S | re.M)
    assert variants
    assert [name for _, name in WAITS] == re.findall(r"^\s*(\w+)\s*=", variants[1], re.M)


def test_every_wait_has_a_proof():
    lines = [line.split() for line in RUN["PROOFS"].read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    assert [(int(number), name) for number, name, *_ in lines] == WAITS, "run make prove-waits"


@pytest.mark.parametrize("wait", PROOFS)
def test_a_proof_is_a_test(wait: str):
    proof = PROOFS[wait]
    assert proof.schedule in RUN["USUAL"]
    if proof.test.startswith("tests/python/"):
        path, *_, name = proof.test.partition("[")[0].split("::")
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")
    else:
        name = proof.test.rpartition("::")[2]
        assert any(f"fn {name}(" in source for source in rust())


def test_no_proof_is_among_the_parameters_that_a_second_schedule_leaves_out():
    first, *others = RUN["USUAL"]
    assert not [proof.test for proof in PROOFS.values() if proof.schedule in others and "[" in proof.test], first
