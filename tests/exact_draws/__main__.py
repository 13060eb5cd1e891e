"""Draw convolutions and hold their exact Winograd kernels to plain sums, bit by bit.

``python -m tests.exact_draws [--draws 10000] [--seed 0]``: sizes, padding, schemes,
threads and instruction sets are drawn, of which this CPU must have those it is to run; each kernel
gets ten data and weights, extreme ones among them: all 255, all weights of one sign and size,
sparse ones. What is not proved to be exact must be refused, and taken by the direct kernel.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import tvm
from numpy.typing import NDArray

from neocpu.schedules.convolutions.conv2d_reference import conv2d, kernel_arguments, random_operands
from neocpu.schedules.convolutions.dot_products import conv2d_dot
from neocpu.schedules.convolutions.winograd import conv2d_winograd as template
from neocpu.schedules.convolutions.winograd.domain import domain_of
from neocpu.schedules.tir.codegen import PIPELINE
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.scheme import WinogradScheme
from neocpu.schedules.vocabulary.target import CpuTarget, missing_on_host, parse_target
from neocpu.schedules.vocabulary.workload import Conv2dWorkload
from neocpu.search.measuring.buffers import aligned_tensor

SUMS = Numerics("uint8", "int8", "int32", "int32")
CPUS = ("znver4", "skylake-avx512", "haswell", "alderlake")
#: Data and weights that each kernel gets.
OPERANDS = 10
LANES = 16


def drawn_workload(rng: random.Random) -> Conv2dWorkload:
    """Draw a convolution: mostly small and prime, now and then of very many channels."""
    height, width = rng.randint(1, 20), rng.randint(1, 20)
    padding = tuple(rng.randint(0, 3) for _ in range(4))
    height, width = (
        max(height, 3 - padding[0] - padding[2]),
        max(width, 3 - padding[1] - padding[3]),
    )
    channels = rng.choice([rng.randint(16, 140)] * 6 + [rng.randint(141, 2048)])
    if channels > 140:
        height, width = max(3, height // 3), max(3, width // 3)
    return Conv2dWorkload(
        rng.choice([1, 1, 2, 3]),
        channels,
        height,
        width,
        rng.randint(16, 70),
        (3, 3),
        padding=padding,
        numerics=SUMS,
    )


def drawn_scheme(rng: random.Random, workload: Conv2dWorkload) -> WinogradScheme:
    """Draw a scheme: any, not one of those that are fast."""
    scheme = WinogradScheme(
        ic_bn=LANES * rng.randint(1, 4),
        oc_bn=LANES * rng.randint(1, 4),
        reg_n=rng.randint(1, 9),
        tile=4,
        reg_oc=LANES * rng.randint(1, 3),
        strip=rng.randint(1, 6),
        oc_split=rng.random() < 0.6,
    )
    has_edges = domain_of(workload).edge_tiles(4, workload) is not None
    edge_tiles = scheme.oc_split and has_edges and rng.random() < 0.7
    return replace(scheme, edge_tiles=edge_tiles)


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
        workload, cpu = drawn_workload(rng), rng.choice(cpus)
        if not template.applies(workload, cpu):
            assert conv2d_dot.applies(workload, cpu), workload
            done["refused, and direct"] += 1
            continue
        scheme = drawn_scheme(rng, workload)
        if wrong := first_wrong(rng, workload, scheme, cpu):
            print(f"wrong: {workload} {scheme} {cpu.mcpu}: {wrong}")
            return 1
        done[f"{cpu.mcpu}, {'edges' if scheme.edge_tiles else 'whole tiles'}"] += OPERANDS
        print(f"\r{sum(done.values())} of {given.draws}", end="", file=sys.stderr, flush=True)
    for kind, count in sorted(done.items()):
        print(f"{count:6d} {kind}")
    return 0


def first_wrong(
    rng: random.Random, workload: Conv2dWorkload, scheme: WinogradScheme, cpu: CpuTarget
) -> str | None:
    """Return what is wrong of some data and weights; None if all sums are equal."""
    function = template.lower(workload, scheme, cpu, rng.randint(1, 3))
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    kernel = tvm.tirx.build(module, cpu.to_tvm(), pipeline=PIPELINE)["main"]
    operands = random_operands(workload, 1)
    shape, dtype = template.argument_shapes(workload, scheme)[-1]
    for _ in range(OPERANDS):
        data = drawn_numbers(rng, operands.data.shape, "uint8")
        weights = drawn_numbers(rng, operands.weights.shape, "int8")
        these = replace(operands, data=data, weights=weights)
        packed = template.pack_weights(weights, workload, scheme)
        given = kernel_arguments(workload, scheme, these, packed)
        copies, tensors = zip(*map(aligned_tensor, (*given, np.full(shape, 7, dtype))), strict=True)
        kernel(*tensors)
        got = scheme.out_layout.unpack(copies[-1], workload.out_channels)
        differing = int((got != conv2d(workload, these)).sum())
        if differing:
            return f"{differing} of {got.size} sums"
    return None


if __name__ == "__main__":
    sys.exit(main())
