"""The hot loops of ResNet-50's and MobileNet-v2's convolutions: dot products, tiles, pairs."""

from __future__ import annotations

import re

import needs
import pytest

from neocpu.schedules import registry
from tests.hot_loops.dot_loops import (
    MATRIX_TARGETS,
    RESNET_50,
    TARGETS,
    WORKLOADS,
    compiled,
    compiled_matrix,
    hot_loop,
    in_bfloat16,
    is_multiplied_in_blocks,
)
from tests.schedules.kernel_harness import compile_for

# Instructions for each dot product, itself among them, beyond the loads of its operands.
MAX_PER_DOT = 1.3
# A load brings two steps of 24 channels in blocks of 8: LLVM broadcasts their words separately,
# and subtracts 128 from each separately.
EXCEPTIONS = {("1x24x56x56 -> 144, 1x1", "cortex-a76"): 1.6}


# One CPU for each convolution, in turn; the others too if all tests are asked for.
CASES = [
    pytest.param(workload, cpu, marks=() if (i - j) % len(TARGETS) == 0 else needs.everything())
    for i, workload in enumerate(WORKLOADS)
    for j, cpu in enumerate(TARGETS)
]


@pytest.mark.parametrize(("workload", "cpu"), CASES, ids=str)
def test_hot_loops_have_only_dot_products_and_their_loads(workload, cpu):
    scheme, loop = compiled(workload, cpu)
    assert scheme.template == "conv2d_dot"
    sums = (
        scheme.reg_oh
        * scheme.reg_n
        * scheme.reg_oc
        // TARGETS[cpu][0].dot_unit(workload.numerics).lanes
    )
    assert loop.dots >= sums
    assert not loop.spills
    shape = str(workload).partition(" +")[0]
    assert loop.per_dot <= EXCEPTIONS.get((shape, cpu), MAX_PER_DOT)


def test_a_loop_is_read():
    text = """
    kernel:
    .LBB0_1:            # outer
        vmovups %zmm1, 64(%rsp)
    .LBB0_2:
        vpbroadcastd (%rax,%rbx), %zmm2
        vmovups 64(%rsp), %zmm3 # reload
        {vex} vpdpbusd %zmm2, %zmm3, %zmm4
        vpdpbusd %zmm2, %zmm3, %zmm5
        addq $4, %rax
        jne .LBB0_2
        jmp .LBB0_1
        ret
    """
    loop = hot_loop(text, "vpdpbusd")
    assert (len(loop.body), loop.dots, loop.loads, len(loop.spills)) == (6, 1, 2, 1)
    assert loop.per_dot == 4


TILES, PAIRS = "sapphirerapids", "neoverse-v1"
#: Instructions for each product of tiles, itself among them, without no-ops and prefetches.
MOST_PER_PRODUCT = 3.2
#: Instructions of a turn of the loop for addresses, beyond those.
ADDRESSES = 6
#: Instructions of pairs of pixels for a multiply-add, of those of a dot product.
PAIRS_SHARE = 0.65


def applying(cpu, workloads):
    """Yield those that such a CPU multiplies so, all or every fifth."""
    found = [workload for workload in workloads if is_multiplied_in_blocks(workload, cpu)]
    for number, workload in enumerate(found):
        yield pytest.param(workload, marks=() if number % 5 == 0 else needs.everything())


@pytest.mark.parametrize(
    "workload", list(applying(TILES, [*WORKLOADS, *map(in_bfloat16, WORKLOADS)])), ids=str
)
def test_hot_loops_of_tiles_have_only_products_and_their_loads(workload):
    _, loop = compiled_matrix(workload, TILES)
    assert not any("mm" in line for line in loop.spills)  # pointers, at most
    most = MOST_PER_PRODUCT + ADDRESSES / loop.dots
    assert loop.per_product <= most + 0.05, loop.body


def test_no_ops_follow_each_load_and_product_of_tiles():
    target, instruction, _ = MATRIX_TARGETS[TILES]
    workload = next(w for w in WORKLOADS if is_multiplied_in_blocks(w, TILES))
    scheme, _ = compiled_matrix(workload, TILES)
    text = compile_for(registry.lower(workload, scheme, target), target)
    tiles = len(re.findall(rf"\b(tileloadd|{instruction})\b", text))
    assert tiles
    assert len(re.findall(r"\bnop\b", text)) >= 8 * tiles


@pytest.mark.parametrize("workload", list(applying(PAIRS, RESNET_50[1:])), ids=str)
def test_hot_loops_of_pairs_have_fewer_instructions_than_dot_products(workload):
    _, loop = compiled_matrix(workload, PAIRS)
    assert not loop.spills
    # A row of seven pixels, and scattered columns that are not copied, leave more to do.
    few = workload.out_width == 7 or (workload.kernel == (1, 1) and workload.stride != (1, 1))
    _, other = compiled(workload, PAIRS)
    assert loop.per_product / 2 <= (0.85 if few else PAIRS_SHARE) * other.per_product
