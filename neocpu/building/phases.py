"""The phases of a compilation: the time of each, and which may run beside others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Final

from neocpu.foundation.progress import Progress, ProgressCallback
from neocpu.serving.freed_memory import return_freed_memory

# TVM keeps the functions under construction on one stack for all threads of the process.
BUILDING: Final = threading.Lock()


class PhaseClock:
    """Times the phases and reports the start of each."""

    def __init__(self, report: ProgressCallback) -> None:
        self.report = report
        self.seconds: dict[str, float] = {}
        self._last = ""

    @contextmanager
    def phase(self, name: str, *, alone: bool = True) -> Iterator[None]:
        """Add the time of the block to that of phase ``name``. `alone` says whether no other thread
        may build at the same time.
        """
        if name != self._last:  # a phase may be resumed
            self._last = name
            self.report(Progress(name))
        with BUILDING if alone else nullcontext():
            start = time.perf_counter()
            yield
            return_freed_memory()
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
