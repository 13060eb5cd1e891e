"""The work of scheduled functions is counted: computing, waiting, and bytes."""

import pytest
from conv_workloads import conv_workload
from tvm import te, topi

from neocpu.schedules import registry
from neocpu.schedules.estimates.kernel_work import (
    CHAIN,
    DIVIDE,
    GATHER,
    LIBRARY,
    SCALAR,
    VECTOR,
    LoopWork,
    share,
    work_seconds,
)
from neocpu.schedules.estimates.work_count import count_work
from neocpu.schedules.operators.elementwise import schedule_function
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.target_parsing import parse_target

TARGET = parse_target("llvm -mcpu=znver5")
LANES = 16


def counted(*tensors):
    """Return the loop nests that compute the last tensor from the others."""
    return count_work(schedule_function(te.create_prim_func(list(tensors)), TARGET), TARGET)


def test_an_elementwise_function_moves_every_byte_once():
    x = te.placeholder((1, 64, 56, 64), name="x")
    (nest,) = counted(x, topi.nn.relu(x))
    elements = 64 * 56 * 64
    assert nest.size == nest.from_l2 == 2 * 4 * elements
    assert (nest.forks, nest.again) == (1, 0)
    # A load, a maximum and a store of each vector.
    assert nest.cycles[VECTOR] == pytest.approx((0.5 + 0.5 + 1) * elements / LANES)
    assert not any(nest.cycles[kind] for kind in (SCALAR, DIVIDE, GATHER, LIBRARY, CHAIN))


def test_functions_without_an_instruction_are_called_for_each_element():
    x = te.placeholder((17, 128), name="x")
    nests = counted(x, te.compute(x.shape, lambda *i: te.tan(x(*i)), name="y"))
    assert sum(nest.cycles[LIBRARY] for nest in nests) == 20 * 17 * 128


def test_an_instruction_that_a_schedule_spells_out_is_no_call_of_a_library():
    numerics = Numerics(data="bfloat16", weights="bfloat16", sum="float32", output="bfloat16")
    workload = conv_workload(1, 64, 14, 14, 64, (1, 1), numerics=numerics)
    target = parse_target("llvm -mcpu=znver4")
    scheme = registry.schemes(workload, target)[0]
    function = registry.lower(workload, scheme, target)
    assert "neocpu_dot_bfloat16" in str(function)
    assert not any(nest.cycles[LIBRARY] for nest in count_work(function, target))


def test_repeated_expressions_are_computed_once():
    x = te.placeholder((17, 128), name="x")
    nests = counted(x, te.compute(x.shape, lambda *i: te.tan(x(*i)) + 1 / te.tan(x(*i)), name="y"))
    assert sum(nest.cycles[LIBRARY] for nest in nests) == 20 * 17 * 128


def test_a_quotient_is_no_product():
    x = te.placeholder((64, 64), name="x")
    divided, multiplied = (
        sum(nest.cycles[DIVIDE] for nest in counted(x, y))
        for y in (
            te.compute(x.shape, lambda *i: x(*i) / (x(*i) + 1.0), name="y"),
            te.compute(x.shape, lambda *i: x(*i) * (x(*i) + 1.0), name="y"),
        )
    )
    assert divided > 0 == multiplied


@pytest.mark.parametrize(("divisor", "divides"), [(2.0, False), (0.25, False), (3.0, True)])
def test_a_quotient_whose_inverse_is_exact_is_a_product(divisor, divides):
    x = te.placeholder((64, 64), name="x")
    nests = counted(x, te.compute(x.shape, lambda *i: x(*i) / divisor, name="y"))
    assert (sum(nest.cycles[DIVIDE] for nest in nests) > 0) == divides


def test_a_sum_of_a_prime_length_waits_for_itself():
    x = te.placeholder((64, 197), name="x")
    k = te.reduce_axis((0, 197), "k")
    y = te.compute((64,), lambda i: te.sum(x[i, k], axis=k), name="y")
    assert sum(nest.cycles[CHAIN] for nest in counted(x, y)) > 64 * 197


def test_a_transpose_fused_with_its_operand_gathers():
    x = te.placeholder((96, 160), name="x")
    y = te.compute((160, 96), lambda i, j: x[j, i] * 2.0, name="y")
    nests = counted(x, y)
    assert sum(nest.cycles[GATHER] + nest.cycles[SCALAR] for nest in nests) >= 96 * 160 / 2
    assert sum(nest.size for nest in nests) == 2 * 4 * 96 * 160


def test_a_product_of_matrices_comes_back_to_one_of_them():
    a, b = (te.placeholder((512, 512), name=name) for name in "ab")
    k = te.reduce_axis((0, 512), "k")
    c = te.compute((512, 512), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    (nest,) = counted(a, b, c)
    assert nest.size == 3 * 4 * 512 * 512
    assert nest.from_l2 > 50 * nest.size
    multiply_adds = 512**3 / LANES
    assert multiply_adds / 2 <= nest.cycles[VECTOR] <= 4 * multiply_adds


def test_twice_the_work_takes_about_twice_as_long_and_two_threads_half():
    nest = LoopWork(
        tasks=64, forks=1, cycles=(1e7, 0, 0, 0, 0, 0, 0), size=1e5, from_l2=1e5, again=0
    )
    one, two = (work_seconds((nest,), TARGET, threads) for threads in (1, 2))
    assert work_seconds((nest, nest), TARGET, 1) == 2 * one
    assert one / 2 < two < 0.52 * one
    assert LoopWork.of_json(nest.to_json()) == nest
    assert (share(1, 2), share(3, 2), share(64, 2)) == (1, 2 / 3, 1 / 2)
