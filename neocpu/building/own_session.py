"""Commands that leave no process behind, whatever they start and whenever Ctrl-C comes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from neocpu.building.interrupts import interrupts_wait


@contextmanager
def started(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start a command in a session of its own, and end what is left of it after the block."""
    with contextlib.ExitStack() as at_end:
        with interrupts_wait():  # else Ctrl-C could leave a process that nothing ends
            process = subprocess.Popen(command, start_new_session=True, **options)
            at_end.callback(_end, process)
        yield process


def _end(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
