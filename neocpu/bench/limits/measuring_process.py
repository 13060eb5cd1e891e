"""Run measurements in separate processes, whose last line of output is JSON."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from typing import Any, Final

from neocpu.foundation.errors import NeoCPUError
from neocpu.foundation.python_child import module_command

_OURS: Final = rf"^{re.escape(NeoCPUError.__module__)}\.\w+: "
"""The prefix of our own errors' messages in a traceback."""


def measure_in_process(
    module: str,
    arguments: Sequence[object],
    error: type[NeoCPUError],
    *,
    doing: str,
    cannot: str,
    timeout: float,
) -> Any:
    """Run ``python -m module arguments`` and return the JSON of its last line.

    doing, cannot: beginnings of messages, such as ``profiling net.so`` and ``cannot profile
        net.so``.
    Raises error: the process takes longer, or fails.
    """
    command = module_command(module, *arguments)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise error(f"{doing} took over {timeout:g} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise error(f"{cannot}: {re.sub(_OURS, '', last)}")
    return json.loads(done.stdout.splitlines()[-1])
