"""Checks of both Winograd convolutions in integers, the exact and the scaled one."""

from __future__ import annotations

from dataclasses import replace

from kernel_harness import compile_for

from neocpu.schedules.convolutions.winograd import conv2d_winograd as template
from neocpu.schedules.convolutions.winograd.winograd_tiling import Tiling
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import Conv2dWorkload
from tests.hot_loops.dot_loops import hot_loop

# Intel CPUs run these kernels too, but have not SSE4A, for which other instructions would be used.
ZEN4 = parse_target("llvm -mcpu=znver4 -mattr=-sse4a")
HASWELL = parse_target("llvm -mcpu=haswell")
SKYLAKE = parse_target("llvm -mcpu=skylake-avx512")
PAD = (1, 1, 1, 1)
NO_WINOGRAD = (
    {"stride": (2, 2)},
    {"kernel": (5, 5)},
    {"groups": 2, "in_channels": 64, "out_channels": 64},
    {"in_channels": 3},
)
"""Changes after which other templates have to compute a convolution."""


def assert_computes_with_instructions(workload: Conv2dWorkload) -> None:
    """Check that the template asks a CPU for products of 16-bit integers."""
    for target in ("nehalem", "-mtriple=aarch64-linux-gnu -mcpu=neoverse-v1"):
        cpu = parse_target(f"llvm -mcpu={target}" if "=" not in target else f"llvm {target}")
        assert not template.applies(workload, cpu)


def assert_loops_over_products(
    layer: Conv2dWorkload, channels: int, pixels: int, target: CpuTarget, instruction: str
) -> None:
    """Check for whole steps of a register tile whose sums stay in registers."""
    size = {"in_channels": channels, "out_channels": channels, "height": pixels, "width": pixels}
    workload = replace(layer, batch=1, kernel=(3, 3), padding=PAD, **size)
    scheme = template.space(workload, target)[0]
    loop = hot_loop(compile_for(template.lower(workload, scheme, target), target), instruction)
    vectors = scheme.reg_oc // target.lanes("int32")
    tiling = Tiling(workload, scheme, target.lanes("int32"))
    sizes = [reg_n for *_, reg_n in tiling.register_tiles(scheme.reg_n)]
    # The largest of those it may be: with the fewest loads.
    whole = [reg_n for reg_n in sizes if loop.dots % (reg_n * vectors) == 0]
    assert whole, (loop.dots, sizes, vectors)
    reg_n = max(whole)
    steps = loop.dots // (reg_n * vectors)
    assert steps >= 1
    assert loop.loads <= steps * (reg_n + vectors)
    assert not loop.spills
