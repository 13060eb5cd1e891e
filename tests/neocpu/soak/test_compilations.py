"""Compilations, many times in one process."""

import subprocess
import sys
from pathlib import Path

import needs

from tests.neocpu.soak import compilations

ROOT = Path(__file__).parents[3]


@needs.everything()
def test_compilations(soak):
    warmup = soak.count(4, compilations.KINDS)
    rounds = soak.count(8, 1000)
    done = subprocess.run(
        [sys.executable, "-B", "-m", compilations.__name__, str(rounds), str(warmup)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    soak(done.stdout.splitlines())
