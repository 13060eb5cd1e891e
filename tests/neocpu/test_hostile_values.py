"""No input value makes compiled code crash, hang or write elsewhere.

docs/robustness.md documents the results.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import needs
import pytest

from tests.neocpu.hostile import run

#: Children, each with its share of the cases.
SHARES = 4
SECONDS = 300
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
@needs.one_in(2)
def test_hostile_values(share):
    check(list(run.CASES)[share::SHARES])


@needs.everything()
@pytest.mark.slow
def test_more_hostile_values():
    check(list(run.SLOW_CASES))


def check(names: list[str]) -> None:
    child = subprocess.run(
        [sys.executable, "-B", "-m", run.__name__, *names],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd=ROOT,
        check=False,
    )
    reached = child.stdout.splitlines()
    assert child.returncode >= 0, f"signal {-child.returncode} in {reached[-1]}"
    assert child.returncode == 0, child.stderr
    assert reached == names
