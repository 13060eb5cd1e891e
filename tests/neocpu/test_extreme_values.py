"""No kernel of any operator leaves its tensors or crashes, for any values."""

import os
import re
import subprocess
import sys
from pathlib import Path

import needs
import pytest

from neocpu.runtime.guarding import GUARD_VARIABLE

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_of_every_operator() -> None:
    one_in = 1 if needs.EVERYTHING else 6
    numbers = [str(one_in), str(needs.first_of(one_in))]
    done = subprocess.run(
        [sys.executable, "-B", "-m", "tests.neocpu.hostile.extreme_values", *numbers],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, GUARD_VARIABLE: "1"},
    )
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    found = re.search(r"^(\d+) operators$", done.stdout, re.M)
    assert found is not None
    assert int(found[1]) >= 100 // one_in
