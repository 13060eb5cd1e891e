"""Building single kernels and timing them in this process."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import tvm

from neocpu.bench.engines.engine_session import AnyArray
from neocpu.foundation.closing import Closing
from neocpu.foundation.errors import TargetError
from neocpu.schedules.tir.codegen import PIPELINE
from neocpu.schedules.vocabulary.target import CpuTarget, missing_on_host

_SHARE_ALL_CORES: Final = -3  # ThreadGroup::kSpecifyThreadShareAllCore

SAMPLE_SECONDS: Final = 0.002
"""Length of one sample: long against the clock's grain, short against a scheduler's slice."""


class KernelRunner(Closing):
    """Builds kernels and times them on a thread of its own, with a pool of exactly ``threads``.

    Raises
    ------
    TargetError
        If this machine cannot run code for ``target``.
    """

    def __init__(self, target: CpuTarget, threads: int) -> None:
        if missing := missing_on_host(target):
            raise TargetError(
                f"cannot time kernels for {target.mcpu} here: this machine lacks "
                f"{', '.join(missing)}; run the benchmark on such a machine"
            )
        self.target = target
        self.threads = threads
        self._worker = ThreadPoolExecutor(1, "neocpu-bench")  # TVM's pools belong to threads
        self._on_worker(lambda: _configure_pool(threads))

    def build(self, kernel: Any, arguments: Sequence[AnyArray]) -> TimedKernel:
        """Compile a scheduled ``PrimFunc`` and bind it to arrays, its output among them."""
        module = tvm.IRModule({"main": kernel.with_attr("global_symbol", "main")})
        built = tvm.tirx.build(module, self.target.to_tvm(), pipeline=PIPELINE)
        return TimedKernel(self, built, [tvm.runtime.tensor(array) for array in arguments])

    def sample(self, module: Any, arguments: Sequence[Any], calls: int) -> float:
        """Return the mean seconds of ``calls`` calls that follow one more."""
        evaluator = module.time_evaluator("main", tvm.cpu(), number=calls)
        return float(self._on_worker(lambda: evaluator(*arguments)).results[0])

    def close(self) -> None:
        """End the thread and its pool."""
        self._worker.shutdown()

    def _on_worker(self, call: Any) -> Any:
        return self._worker.submit(call).result()


def _configure_pool(threads: int) -> None:
    """Give the calling thread its own TVM pool of exactly ``threads`` threads, itself included.

    TVM's pool binds its threads, and the thread that launches it, to single cores when it is made;
    the second call and the last line take that back, so that all of them may run on all CPUs of
    this process. (The environment variable that prevents it is process-wide: not ours to set.)
    """
    cpus = os.sched_getaffinity(0)
    configure = tvm.get_global_func("runtime.config_threadpool")
    names = [str(cpu) for cpu in sorted(cpus)]
    configure(_SHARE_ALL_CORES, threads, list(itertools.islice(itertools.cycle(names), threads)))
    if threads > 1:
        configure(_SHARE_ALL_CORES, threads, names)
    os.sched_setaffinity(0, cpus)
    assert tvm.get_global_func("runtime.NumThreads")() == threads


class TimedKernel:
    """A kernel of a `KernelRunner`, bound to its arguments.

    Attributes
    ----------
    best : float
        Seconds per call of the fastest sample; ``inf`` before the first.
    """

    def __init__(self, runner: KernelRunner, module: Any, arguments: Sequence[Any]) -> None:
        self.best = math.inf
        self._runner = runner
        self._module = module
        self._arguments = arguments

    def sample(self, seconds: float = SAMPLE_SECONDS) -> float:
        """Call the kernel for about ``seconds``; return and remember the seconds per call."""
        if self.best == math.inf:
            self.best = self._runner.sample(self._module, self._arguments, 1)
        calls = max(1, round(seconds / self.best))
        mean = self._runner.sample(self._module, self._arguments, calls)
        self.best = min(self.best, mean)
        return mean

    def arrays(self) -> list[AnyArray]:
        """Return copies of the arguments, such as an output that was written."""
        return [argument.numpy() for argument in self._arguments]
