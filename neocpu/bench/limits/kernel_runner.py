"""Build single kernels and time them in this process."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from neocpu.bench.engines.engine_session import AnyArray
from neocpu.foundation.closing import Closing
from neocpu.foundation.errors import TargetError
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.target_parsing import missing_on_host
from neocpu.search.measuring.buffers import aligned_copy
from neocpu.search.measuring.kernel_calls import Argument, Kernel, KernelPool, compile_kernels

SAMPLE_SECONDS: Final = 0.002  # far above the clock's resolution, below a scheduler's slice


class KernelRunner(Closing):
    """Builds kernels and times them on the runtime's threads. Raises TargetError: another CPU's."""

    def __init__(self, target: CpuTarget, threads: int) -> None:
        if missing := missing_on_host(target):
            raise TargetError(
                f"cannot time kernels for {target.mcpu} here: this machine lacks "
                f"{', '.join(missing)}; run the benchmark on one that has them"
            )
        self.target = target
        self.threads = threads
        self.pool: Final = KernelPool(threads)

    def build(self, kernel: Any, arguments: Sequence[AnyArray]) -> TimedKernel:
        """Compile a scheduled ``PrimFunc`` and bind it to copies of arrays, outputs included."""
        (built,) = compile_kernels({"main": kernel}, self.target, self.threads)
        return TimedKernel(self.pool, built, [aligned_copy(array) for array in arguments])

    def close(self) -> None:
        self.pool.close()


class TimedKernel:
    """A kernel bound to its arguments; `best`: its fastest sample's seconds per call."""

    def __init__(self, pool: KernelPool, kernel: Kernel, arrays: Sequence[AnyArray]) -> None:
        self.best = math.inf
        self._pool = pool
        self._kernel = kernel
        self._arrays = tuple(arrays)

    def sample(self, seconds: float = SAMPLE_SECONDS) -> float:
        """Call the kernel for about ``seconds``; return and remember the seconds per call."""
        if self.best == math.inf:
            self.best = self._mean(1)
        mean = self._mean(max(1, round(seconds / self.best)))
        self.best = min(self.best, mean)
        return mean

    def arrays(self) -> list[AnyArray]:
        """Return copies of the arguments, such as an output that was written."""
        return [np.copy(array) for array in self._arrays]

    def _mean(self, calls: int) -> float:
        """Return the mean seconds of ``calls`` calls after a first untimed one."""
        arguments = [Argument.of(array) for array in self._arrays]
        self._pool.call(self._kernel, arguments)
        return self._pool.call(self._kernel, arguments, calls) / calls
