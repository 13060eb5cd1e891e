"""Dense layers against numpy."""

from dataclasses import replace

import numpy as np
import pytest
from conv_reference import EPILOGUES
from kernel_harness import HOST, normal, run

from neocpu.schedules.operators.dense import (
    DenseWorkload,
    argument_shapes,
    block_width,
    lower_dense,
    pack_weights,
    strips_of,
)
from neocpu.schedules.vocabulary.numerics import FLOAT32
from neocpu.schedules.vocabulary.steps import PER_CHANNEL, STEP_KINDS
from neocpu.schedules.vocabulary.target_parsing import parse_target
from neocpu.schedules.vocabulary.workload import EpilogueOp


def check(workload, threads=1, target=HOST):
    data, weights = normal((workload.m, workload.k), 1), normal((workload.k, workload.n), 2)
    expected = data.astype(np.float64) @ weights
    operands = []
    for number, op in enumerate(workload.epilogue):
        used = ()
        if op.operand != "none":
            shape = (workload.n,) if op.operand == PER_CHANNEL else (workload.m, workload.n)
            operands.append(normal(shape, 3 + number))
            used = (operands[-1],)
        expected = STEP_KINDS[op.kind].compute(expected, *used, *op.args)
    arguments = [data, pack_weights(weights, workload, target, threads), *operands]
    shapes = argument_shapes(workload, target, threads)
    assert tuple((a.shape, str(a.dtype)) for a in arguments) == shapes[:-1]
    got = run(lower_dense(workload, target, threads), arguments, shapes[-1][0])
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=2e-6 * workload.k)


@pytest.mark.parametrize("m", [1, 2, 8, 29])
@pytest.mark.parametrize(("n", "k"), [(1, 7), (10, 64), (33, 31), (128, 17), (1000, 5)])
@pytest.mark.parametrize("threads", [1, 8])
def test_matches_numpy(m, n, k, threads):
    check(DenseWorkload(m, n, k), threads)


@pytest.mark.parametrize("epilogue", EPILOGUES, ids=str)
@pytest.mark.parametrize(("m", "n"), [(1, 64), (3, 37)])
def test_epilogues(epilogue, m, n):
    check(DenseWorkload(m, n, 40, epilogue=epilogue))


def test_hard_swish_of_large_numbers_is_finite():
    """ONNX's definition stays finite, though six times the number would be infinite."""
    workload = DenseWorkload(1, 1, 1, epilogue=(EpilogueOp("hard_swish"),))
    data, one = np.array([[2e38]], "float32"), np.ones((1, 1), "float32")
    packed = pack_weights(one, workload, HOST)
    shape = argument_shapes(workload, HOST)[-1][0]
    assert run(lower_dense(workload, HOST), [data, packed], shape) == data


@pytest.mark.parametrize("m", [301, 293])
def test_many_rows_are_computed_in_strips(m):
    target = replace(HOST, l2=16 << 10)
    workload = DenseWorkload(m, 70, 64, epilogue=(EpilogueOp("bias_add"), EpilogueOp("add")))
    assert "T.parallel(1)" not in lower_dense(workload, target).script()
    check(workload, target=target)
    assert strips_of(workload, 6, 5, target) > 1
    assert strips_of(workload, 6, 5, replace(HOST, l2=1 << 20)) == 1


@pytest.mark.parametrize("weights", ["bfloat16", "int8", "float32"])
@pytest.mark.parametrize("cpu", ["sapphirerapids", "znver4"])
def test_narrow_weights_of_one_row_are_prefetched_where_that_was_measured(cpu, weights):
    numerics = replace(FLOAT32, weights=weights)
    workload = DenseWorkload(1, 256, 512, numerics)
    script = lower_dense(workload, parse_target(f"llvm -mcpu={cpu}")).script()
    assert ("prefetch" in script) == (cpu == "sapphirerapids" and weights != "float32")


def test_the_next_block_is_prefetched_while_tiles_of_rows_share_one():
    def prefetches(m):
        return lower_dense(DenseWorkload(m, 256, 64), HOST).script().count("prefetch")

    assert prefetches(32) > 0
    assert prefetches(1) == 0


def test_blocks_leave_every_thread_work():
    workload = DenseWorkload(1, 1000, 2048)
    assert -(-1000 // block_width(workload, HOST, 8)) >= 32
    assert block_width(workload, HOST, 1) >= block_width(workload, HOST, 8)
