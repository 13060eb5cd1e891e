"""Draw convolutions, and compare their exact Winograd kernels with plain sums, bit by bit.

``python -m tests.exact_draws [--draws 10000] [--seed 0]``: sizes, padding, schemes,
threads and instruction sets are drawn, the latter among those of this CPU. Each kernel runs on ten
pairs of data and weights, extreme ones among them: all 255, all weights of one sign and size,
sparse ones. A kernel that is not proved to be exact must be refused in favour of the direct kernel.
"""

from __future__ import annotations

import argparse
import functools
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from neocpu.schedules.convolutions.conv2d_reference import conv2d, kernel_arguments, random_operands
from neocpu.schedules.convolutions.dot_products import conv2d_dot
from neocpu.schedules.convolutions.winograd import conv2d_winograd as template
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.scheme import WinogradScheme
from neocpu.schedules.vocabulary.target_parsing import missing_on_host, parse_target
from neocpu.schedules.vocabulary.workload import Conv2dWorkload
from neocpu.search.measuring.buffers import aligned_copy
from neocpu.search.measuring.kernel_calls import Argument, KernelPool, compile_kernels
from tests.schedules.drawn_winograd import drawn_case

SUMS = Numerics(data="uint8", weights="int8", sum="int32", output="int32")
CPUS = ("znver4", "skylake-avx512", "haswell", "alderlake")
#: Data and weights that each kernel gets.
OPERANDS = 10
#: The share of kernels with very many channels.
MANY = 0.15
Run = Callable[[Sequence[Argument]], float]


def drawn(rng: random.Random) -> tuple[Conv2dWorkload, WinogradScheme, int]:
    """Draw a convolution, now and then of very many channels, a scheme, and threads."""
    workload, scheme, threads = drawn_case(rng, [SUMS], [4])
    if rng.random() < MANY:
        workload = replace(workload, batch=1, in_channels=rng.randint(141, 2048))
    return workload, scheme, threads


def drawn_numbers(rng: random.Random, shape: tuple[int, ...], kind: str) -> NDArray[np.generic]:
    """Draw data or weights: of all values, or at their ends."""
    generator, ends = np.random.default_rng(rng.getrandbits(32)), np.iinfo(kind)
    how = rng.choice(["any", "any", "ends", "largest", "smallest", "sparse", "middle"])
    if how == "largest":
        return np.full(shape, ends.max, kind)
    if how == "smallest":
        return np.full(shape, ends.max if kind == "uint8" else ends.min, kind)
    if how == "ends":
        return generator.choice(np.array([ends.min, ends.max], kind), shape)
    drawn = generator.integers(ends.min, ends.max + 1, shape)
    if how == "middle":
        drawn //= 16
    elif how == "sparse":
        drawn *= generator.random(shape) < 0.05
    return drawn.astype(kind)


def main() -> int:
    """Return 0 if every kernel computes what it should."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    cpus = [parse_target(f"llvm -mcpu={each}") for each in CPUS]
    cpus = [each for each in cpus if not missing_on_host(each)]
    if not cpus:
        sys.exit(f"this CPU runs the code of none of {', '.join(CPUS)}")
    done: Counter[str] = Counter()
    while sum(done.values()) < given.draws:
        (workload, scheme, threads), cpu = drawn(rng), rng.choice(cpus)
        if not template.applies(workload, cpu):
            assert conv2d_dot.applies(workload, cpu), workload
            done["refused, and direct"] += 1
            continue
        lowered = template.lower(workload, scheme, cpu, threads)
        (kernel,) = compile_kernels({"main": lowered}, cpu, threads)
        with KernelPool(threads) as pool:
            wrong = first_wrong(rng, workload, scheme, functools.partial(pool.call, kernel))
        if wrong:
            print(f"wrong: {workload} {scheme} {cpu.mcpu}: {wrong}")
            return 1
        kind = "edges" if scheme.edge_tiles else "whole tiles"
        done[f"{cpu.mcpu}, {kind}{', on the fly' * scheme.on_the_fly}"] += OPERANDS
        print(f"\r{sum(done.values())} of {given.draws}", end="", file=sys.stderr, flush=True)
    for kind, count in sorted(done.items()):
        print(f"{count:6d} {kind}")
    return 0


def first_wrong(
    rng: random.Random, workload: Conv2dWorkload, scheme: WinogradScheme, run: Run
) -> str | None:
    """Return the first wrong sum of some data and weights; None if all are right."""
    operands = random_operands(workload, 1)
    shape, dtype = template.argument_shapes(workload, scheme)[-1]
    for _ in range(OPERANDS):
        data = drawn_numbers(rng, operands.data.shape, "uint8")
        weights = drawn_numbers(rng, operands.weights.shape, "int8")
        these = replace(operands, data=data, weights=weights)
        packed = template.pack_weights(weights, workload, scheme)
        given = kernel_arguments(workload, scheme, these, packed)
        copies = [aligned_copy(array) for array in (*given, np.full(shape, 7, dtype))]
        run([Argument.of(copy) for copy in copies])
        got = scheme.out_layout.unpack(copies[-1], workload.out_channels)
        differing = int((got != conv2d(workload, these)).sum())
        if differing:
            return f"{differing} of {got.size} sums"
    return None


if __name__ == "__main__":
    sys.exit(main())
