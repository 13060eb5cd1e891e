"""Run measurements in separate processes, whose last line of output is JSON."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from typing import Any, Final

from neocpu.foundation.errors import NeoCPUError
from neocpu.foundation.python_child import module_command

_OURS: Final = rf"^{re.escape(NeoCPUError.__module__)}\.\w+: "  # of our own errors in a traceback


def measure_in_process(
    module: str, arguments: Sequence[object], error: type[NeoCPUError], task: str, timeout: float
) -> Any:
    """Return the JSON that ``python -m module`` ends with. Raises error: it fails, or too late."""
    command = module_command(module, *arguments)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise error(f"cannot {task} within {timeout:g} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise error(f"cannot {task}: {re.sub(_OURS, '', last)}")
    return json.loads(done.stdout.splitlines()[-1])
