"""Building candidates with TVM, timing and checking them: what runs inside a measuring process."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from typing import Any

import numpy as np
import tvm

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
from neocpu.schedules.tir.codegen import PIPELINE
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload
from neocpu.search.measuring.buffers import Buffers, Shape, aligned_tensor
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
        self._buffers = Buffers()

    def build(self, requests: Sequence[Request]) -> list[Any]:
        """Compile ``requests`` as one module, which is faster than one each."""
        named = {}
        for index, request in enumerate(requests):
            function = registry.lower(request.workload, request.scheme, self._target, self._threads)
            named[f"f{index}"] = function.with_attr("global_symbol", f"f{index}")
        executable = tvm.compile(tvm.IRModule(named), self._target.to_tvm(), tir_pipeline=PIPELINE)
        # The first look-up generates the machine code, which must not wait for the measurement.
        return [executable[name] for name in named]

    def time(self, function: Any, request: Request, repeats: int, best: float) -> tuple[float, ...]:
        """Return the seconds per call of ``repeats`` repeats, after a warm-up.

        One is enough of a candidate that is hopeless against ``best`` seconds.
        """
        shapes = registry.argument_shapes(request.workload, request.scheme)
        if isinstance(request.workload, Conv2dWorkload):
            turn = self._with_cold_weights(shapes)
        else:
            places = self._buffers.in_turns(shapes, OWN_CACHES * self._target.l2 * self._threads)
            turn = cycle(places)

        def run(calls: int) -> float:
            turns = list(islice(turn, calls))
            start = time.perf_counter()
            for each in turns:
                function(*each)
            return round((time.perf_counter() - start) / calls, 9)  # to the nanosecond

        return repeated(run, repeats, best)

    def _with_cold_weights(self, shapes: Sequence[Shape]) -> Iterator[list[Any]]:
        arguments = self._buffers.arguments(shapes)
        while True:
            cold = self._buffers.cold(shapes[WEIGHTS])
            yield [*arguments[:WEIGHTS], cold, *arguments[WEIGHTS + 1 :]]

    def check(self, function: Any, request: Request) -> str | None:
        """Compare one run on random data with the reference; None if it is right."""

        def run(arrays: Sequence[Array]) -> Array:
            copies, tensors = zip(*map(aligned_tensor, arrays), strict=True)
            function(*tensors)
            output: Array = copies[-1]
            return output

        return checked(run, request)


def repeated(run: Callable[[int], float], repeats: int, best: float) -> tuple[float, ...]:
    """Return what ``run(calls)``, in seconds per call, gives for as many calls as fill a repeat.

    One repeat is enough of a candidate that is hopeless against ``best`` seconds.
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
