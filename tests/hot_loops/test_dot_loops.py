"""The hot loops of ResNet-50's and MobileNet-v2's convolutions in 8 bits, as LLVM makes them."""

import needs
import pytest

from tests.hot_loops.dot_loops import TARGETS, WORKLOADS, compiled, hot_loop

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
