"""No value of any input makes compiled code crash, hang or write elsewhere; results are documented.

docs/robustness.md says what they are.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.neocpu import hostile_values

#: Children, each with its share of the cases.
SHARES = 8
SECONDS = 300


@pytest.mark.parametrize("share", range(SHARES))
def test_hostile_values(share):
    names = list(hostile_values.CASES)[share::SHARES]
    child = subprocess.run(
        [sys.executable, "-B", "-P", hostile_values.__file__, *names],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    reached = child.stdout.splitlines()
    assert child.returncode >= 0, f"signal {-child.returncode} in {reached[-1]}"
    assert child.returncode == 0, child.stderr
    assert reached == names
