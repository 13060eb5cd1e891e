"""Partial results are combined by halves, and give the same result."""

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te, tirx
from tvm.s_tir import Schedule, transform

from neocpu.schedules.tir.reductions import FEWEST, MOST, JoinByHalves
from tests.schedules.kernel_harness import build, call, normal, unwritten


def joining(count, fold=te.sum, dtype="float32"):
    """Return a function that joins rows one by one."""
    data = te.placeholder((5, count), dtype, name="data")
    k = te.reduce_axis((0, count), name="k")
    joined = te.compute((5,), lambda i: fold(data[i, k], axis=k), name="joined")
    return te.create_prim_func([data, joined])


@pytest.mark.parametrize("fold", ["sum", "max", "min"])
@pytest.mark.parametrize("count", [FEWEST - 1, FEWEST, 7, 14, 16, 37, MOST, MOST + 1])
def test_halved_loops_compute_the_same(count, fold):
    data = normal((5, count))
    (found,) = call(build(joining(count, getattr(te, fold))), [data], [unwritten((5,))])
    np.testing.assert_allclose(found, getattr(data, fold)(1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("count", "dtype", "loops"), [(16, "float32", 1), (MOST + 1, "float32", 2), (16, "int32", 2)]
)
def test_halving_leaves_the_expected_loops(count, dtype, loops):
    sch = Schedule(tvm.IRModule({"main": joining(count, dtype=dtype)}))
    block = sch.get_sblock("joined")
    sch.decompose_reduction(block, sch.get_loops(block)[1])
    passes = [
        transform.ConvertBlocksToOpaque(),
        transform.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
        JoinByHalves(),
    ]
    mod = tvm.transform.Sequential(passes)(sch.mod)
    found = []
    tvm_ffi.structural_walk(mod["main"].body, (tirx.For, found.append))
    assert len(found) == loops
