"""The cases of a test that this commit runs, where another commit runs others.

Each test marked ``one_in(n)`` runs every ``n``-th of its cases. The first one follows from the hash
of the commit, so that one commit runs the same cases everywhere, and commits after each other run
different ones.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

VARIABLE: Final = "NEOCPU_TESTS_OFFSET"
"""The environment variable that fixes the offset, in order to repeat a run."""
LARGEST: Final = 10_000
"""Offsets are smaller than this number."""


def offset(checkout: Path, environment: MutableMapping[str, str] = os.environ) -> int:
    """Return the offset of this run: the environment's, else the commit's, else 0.

    It is left in the environment, which the other processes of the run inherit.
    """
    if not environment.get(VARIABLE):
        environment[VARIABLE] = str(_of_commit(checkout))
    return int(environment[VARIABLE])


def _of_commit(checkout: Path) -> int:
    """Return a number that follows from the hash of the commit; 0 without git or a commit."""
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return int(done.stdout, 16) % LARGEST
    except (OSError, ValueError, subprocess.CalledProcessError):
        return 0


def runs(case: int, cases: int, count: int, offset: int) -> bool:
    """Return whether to run a case of a test: one of every ``count``, and at least one of all."""
    return (case + offset) % min(count, cases) == 0
