"""A soak finds what is left behind, and every case of it leaves nothing."""

import os
from typing import Any

import arrow_dlpack as ad
import pytest
import soak


def few(cases: dict[str, Any]) -> dict[str, Any]:
    return {name: (max(1, times // 200), case) for name, (times, case) in cases.items()}


def test_its_cases_leave_nothing():
    calls, rounds = soak.soak(0, few(soak.CASES))
    assert rounds == soak.WARM_UP + 1
    assert calls >= rounds * len(soak.CASES)


@pytest.mark.parametrize(
    "leak",
    [lambda: ad.to_tensor(soak.NUMBERS, nulls=0), lambda: [[] for _ in range(200)], lambda: os.fdopen(os.dup(1))],
)
def test_a_case_that_leaves_something_behind_fails(leak: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(soak, "PATIENCE", 0)
    left: list[Any] = []
    with pytest.raises(AssertionError, match="after 4 rounds and 4 calls"):
        soak.soak(0, {"a leak": (1, lambda: left.append(leak()))})
    for one in left:
        if hasattr(one, "close"):
            one.close()
