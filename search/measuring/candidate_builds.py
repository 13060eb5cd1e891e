"""Building candidates with TVM, timing and checking them: what runs inside a measuring process."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from neocpu.foundation.bfloat16 import array_dtype
from neocpu.foundation.dtypes import DTYPES
from neocpu.schedules import registry
from neocpu.schedules.convolutions.conv2d_reference import (
    Array,
    conv2d,
    kernel_arguments,
    random_operands,
    wrong_answer,
)
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload
from neocpu.search.measuring.buffers import Buffers, Turns, aligned_copy
from neocpu.search.measuring.kernel_calls import Argument, Kernel, KernelPool, compile_kernels
from neocpu.search.measuring.measure import Request

# Length of one timed repeat: long against the clock's and the scheduler's grain.
REPEAT_SECONDS = 2e-3
# Times as slow as its workload's best: more repeats could not make such a candidate the winner.
HOPELESS = 2.0
WEIGHTS = 1  # position of the packed weights among a convolution's arguments
CHECK_SEED = 0
# Times the cores' own caches: what feature maps take together that must not lie in them.
OWN_CACHES = 4


class Kernels:
    """Builds, times and checks the candidates of one target and thread count."""

    def __init__(self, target: CpuTarget, threads: int) -> None:
        self._target = target
        self._threads = threads
        self._pool = KernelPool(threads)
        self._buffers = Buffers()
        self._turns = Turns()

    def build(self, requests: Sequence[Request]) -> list[Kernel]:
        """Compile ``requests`` as one module, which is faster than one each."""
        functions = {
            f"f{index}": registry.lower(
                request.workload, request.scheme, self._target, self._threads
            )
            for index, request in enumerate(requests)
        }
        return compile_kernels(functions, self._target, self._threads)

    def time(
        self, function: Kernel, request: Request, repeats: int, best: float
    ) -> tuple[float, ...]:
        """Return the seconds per call of ``repeats`` repeats after a warm-up, or of one if
        hopeless.
        """
        shapes = registry.argument_shapes(request.workload, request.scheme)
        if isinstance(request.workload, Conv2dWorkload):
            arguments = self._buffers.arguments(shapes)
            moving = arguments[WEIGHTS] = self._buffers.cold(shapes[WEIGHTS])
        else:
            least = OWN_CACHES * self._target.l2 * self._threads
            arguments = self._buffers.in_turns(shapes, least)
            moving = arguments[0]

        def run(calls: int) -> float:
            first = self._turns.take(calls, moving.stride, moving.places)
            seconds = self._pool.call(function, arguments, calls, first)
            return round(seconds / calls, 9)  # to the nanosecond

        return repeated(run, repeats, best)

    def check(self, function: Kernel, request: Request) -> str | None:
        """Compare one run on random data with the reference; None if it is right."""

        def run(arrays: Sequence[Array]) -> Array:
            copies = [aligned_copy(array) for array in arrays]
            self._pool.call(function, [Argument.of(copy) for copy in copies])
            return copies[-1]

        return checked(run, request)


def repeated(run: Callable[[int], float], repeats: int, best: float) -> tuple[float, ...]:
    """Return what ``run(calls)`` gives, in seconds per call, for each repeat.

    One repeat is enough for a candidate that is hopeless against ``best`` seconds.
    """
    run(1)  # touches the pages, wakes the threads
    once = min(run(1), run(1))
    if once > HOPELESS * best:
        return (once,)
    calls = max(1, math.ceil(REPEAT_SECONDS / once))
    return tuple(run(calls) for _ in range(repeats))


def checked(run: Callable[[Sequence[Array]], Array], request: Request) -> str | None:
    """Compare a convolution's output of ``run`` on random arguments with the reference."""
    workload, scheme = request.workload, request.scheme
    assert isinstance(workload, Conv2dWorkload), "nothing else has a reference"
    operands = random_operands(workload, CHECK_SEED)
    packed = registry.pack_weights(operands.weights, workload, scheme)
    shape, dtype = registry.argument_shapes(workload, scheme)[-1]
    arrays = [
        *kernel_arguments(workload, scheme, operands, packed),
        # An element that is never written shows, of floats at least.
        np.full(shape, np.nan if DTYPES[dtype].is_float else 0, array_dtype(dtype)),
    ]
    expected = conv2d(workload, operands)
    numerics = workload.numerics
    may_round = numerics.reads_float32
    return wrong_answer(scheme, run(arrays), expected, reads=numerics.data, may_round=may_round)
