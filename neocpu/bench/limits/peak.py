"""The machine's measured peaks: multiply-adds, and reads of memory and cache."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from tvm.tirx.script.builder import ir as T

from neocpu.bench.limits.kernel_runner import KernelRunner, TimedKernel
from neocpu.foundation.dtypes import bytes_of
from neocpu.foundation.machine.machine_info import caches
from neocpu.schedules.tir.builder import build_kernel, span
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.target_parsing import host_target

DTYPE: Final = "float32"  # the element type of peak measurements
SAMPLES: Final = 100  # of each kernel: a few seconds, in which a machine is not always busy
FMA_STEPS: Final[int] = 1 << 18  # rounds over the accumulators per call: one or two milliseconds
READ_BYTES: Final = 256 << 20  # the least bytes that a call reads to measure bandwidth
READ_CACHES: Final = 4  # the least size it reads, in last-level caches: few data are still cached
READ_VECTORS: Final = 8  # sums of the reading kernel, so that additions never wait for each other


@dataclass(frozen=True, slots=True)
class MachinePeak:
    """The best rates that a number of threads reached jointly."""

    threads: int
    gflops: float  # 1e9 float32 operations per second in vector multiply-adds, each counted as two
    read_gbytes: float  # 1e9 bytes per second read from memory
    cache_gbytes: float  # a quarter of the last-level cache's size; 0 if that is unknown


def measure_peak(
    target: CpuTarget, threads: int, samples: int = SAMPLES, read_bytes: int | None = None
) -> MachinePeak:
    """Measure this machine. The best sample counts, because noise only slows down.

    read_bytes: size of the array that is read, by default far beyond the last-level cache.
    Raises TargetError: this machine cannot run code for ``target``.
    """
    cache = max(caches().values(), default=0)
    size = read_bytes or max(READ_BYTES, READ_CACHES * cache)
    with KernelRunner(target, threads) as runner:
        fma, read, near = (
            fma_peak(runner),
            read_peak(runner, size),
            read_peak(runner, cache // 4) if cache else None,
        )
        for _ in range(samples):
            for kernel in (fma, read, near):
                if kernel is not None:
                    kernel.sample()
    return MachinePeak(
        threads,
        fma_flops(target, threads) / fma.best / 1e9,
        size / read.best / 1e9,
        cache // 4 / near.best / 1e9 if near is not None else 0.0,
    )


def fma_peak(runner: KernelRunner) -> TimedKernel:
    """Return the kernel whose speed is the FMA peak: `fma_flops` per call."""
    lanes, chains = runner.target.lanes(DTYPE), _chains(runner.target)
    # Small but normal numbers: they grow by less than a thousandth in all steps of a call.
    seeds = np.linspace(1, 2, (chains + 1) * lanes, dtype=DTYPE)
    seeds[:lanes] = 1e-9
    output = np.zeros((runner.threads, chains * lanes), DTYPE)
    return runner.build(fma_kernel(runner.target, runner.threads, FMA_STEPS), [seeds, output])


def fma_flops(target: CpuTarget, threads: int, steps: int = FMA_STEPS) -> int:
    """Return the floating-point operations of one call of `fma_kernel`."""
    return 2 * threads * steps * _chains(target) * target.lanes(DTYPE)


def fma_kernel(target: CpuTarget, threads: int, steps: int) -> Any:
    """Build a kernel that only does multiply-adds between registers.

    ::

        for task in parallel(threads):
            acc[0 : chains] = seeds[1 : chains + 1]                # vectors, in registers
            for _ in range(steps):
                for c in unrolled(chains):
                    acc[c] += seeds[0] * acc[(c + 1) % chains]
            output[task] = acc

    Every product changes in every step, so none can be hoisted. Every sum is used, so none can be
    dropped. A step reads values written ``chains - 1`` multiply-adds earlier, which is more than
    latency times throughput on any core.
    """
    lanes, chains = target.lanes(DTYPE), _chains(target)

    def vector(index: Any) -> Any:
        return span(index * lanes, lanes)

    def body(seeds: Any, output: Any) -> None:
        with T.parallel(threads) as task:
            acc = T.alloc_buffer((chains * lanes,), "float32", layout=None)
            with T.unroll(chains) as c:
                T.buffer_store(acc, seeds[vector(c + 1)], [vector(c)])
            with T.serial(steps):
                for c in range(chains):
                    product = seeds[vector(0)] * acc[vector((c + 1) % chains)]
                    T.buffer_store(acc, acc[vector(c)] + product, [vector(c)])
            with T.unroll(chains) as c:
                T.buffer_store(output, acc[vector(c)], [task, vector(c)])

    return build_kernel(
        [("seeds", ((chains + 1) * lanes,), DTYPE), ("output", (threads, chains * lanes), DTYPE)],
        body,
    )


def read_peak(runner: KernelRunner, size: int = READ_BYTES) -> TimedKernel:
    """Return the kernel whose speed is the bandwidth of reading ``size`` bytes of memory."""
    width = READ_VECTORS * runner.target.lanes(DTYPE)
    rows = size // (bytes_of(DTYPE) * width * runner.threads)
    data = np.ones((runner.threads, rows, width), DTYPE)
    output = np.zeros((runner.threads, width), DTYPE)
    return runner.build(read_kernel(runner.target, runner.threads, rows), [data, output])


def read_kernel(target: CpuTarget, threads: int, rows: int) -> Any:
    """Build a kernel that sums an array of shape ``(threads, rows, READ_VECTORS * lanes)``.

    ::

        for task in parallel(threads):
            for row in range(rows):
                for v in unrolled(READ_VECTORS): acc[v] += data[task, row, v]
            output[task] = acc
    """
    lanes = target.lanes(DTYPE)

    def body(data: Any, output: Any) -> None:
        with T.parallel(threads) as task:
            acc = T.alloc_buffer((READ_VECTORS * lanes,), "float32", layout=None)
            vectors = [span(v * lanes, lanes) for v in range(READ_VECTORS)]
            for at in vectors:
                T.buffer_store(acc, data[task, 0, at], [at])
            with T.serial(rows - 1) as row:
                for at in vectors:
                    T.buffer_store(acc, acc[at] + data[task, row + 1, at], [at])
            for at in vectors:
                T.buffer_store(output, acc[at], [task, at])

    width = READ_VECTORS * lanes
    return build_kernel(
        [("data", (threads, rows, width), DTYPE), ("output", (threads, width), DTYPE)], body
    )


def _chains(target: CpuTarget) -> int:
    """Return the number of accumulators: three quarters of the registers are enough."""
    return target.vector_registers * 3 // 4


def main() -> None:
    threads = int(sys.argv[1])
    print(json.dumps(asdict(measure_peak(host_target(), threads))))


if __name__ == "__main__":
    main()
