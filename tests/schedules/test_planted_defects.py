"""Every kernel with an off-by-one defect is found between inaccessible pages."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import needs
import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outcomes():
    """Return the outcome of each kernel; a child compiles them, and its own children run them."""
    command = [sys.executable, "-B", "-m", "tests.schedules.planted_defects"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("code", ["broken", "exact"])
@needs.everything()
def test_every_planted_defect_is_found(outcomes, code):
    """Artifacts' code takes aligned arguments; code for any arguments is tested too."""
    assert len(outcomes) > 20
    # 3 says that a pattern beside a tensor was overwritten, or that results depend on it.
    missed = [one for one in outcomes if one[code] not in (-signal.SIGSEGV, 3)]
    assert not missed


def test_kernels_without_defects_pass(outcomes):
    assert not [one for one in outcomes if one["sound"] != 0]


def test_most_defects_do_not_show_without_guards(outcomes):
    """Kernels usually end normally if all surrounding memory is accessible.

    An exception is an index that is read from an unwritten workspace.
    """
    assert sum(one["unguarded"] == 0 for one in outcomes) >= 20
