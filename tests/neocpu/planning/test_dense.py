"""Dense layers: matched with their epilogue, and lowered for any rank of rows."""

import numpy as np
import pytest
from networks import build, run_as_tvm
from tvm import relax

from neocpu.planning.extract import extract
from neocpu.planning.operators.dense_op import FEW_ROWS


def mlp(net, x):
    columns = int(x.ty.shape[-1])
    hidden = net.emit(relax.op.matmul(x, net.const(columns, 37)))
    hidden = net.relu(net.emit(relax.op.add(hidden, net.const(37))))
    out = net.emit(relax.op.matmul(hidden, net.const(37, columns)))
    return net.emit(relax.op.add(net.emit(relax.op.add(out, net.const(columns))), x))


@pytest.mark.parametrize("shape", [(1, 19), (5, 64), (2, 7, 33)])
def test_epilogues_and_results(shape):
    first, second = run_as_tvm(build(mlp, shape))[0].dense
    assert [op.kind for op in first.workload.epilogue] == ["bias_add", "relu"]
    assert [op.kind for op in second.workload.epilogue] == ["bias_add", "add"]
    assert first.workload.m == np.prod(shape[:-1])


def test_activations_times_activations_are_no_dense_layer():
    def body(net, x, y):
        return net.emit(relax.op.matmul(x, y))

    assert extract(build(body, (3, 4), (4, 5))).dense == ()


STORED = {
    "a scale per column": (np.float32(np.linspace(0.01, 0.05, 37)), np.zeros(37, "int8")),
    "one scale": (np.float32(0.02), np.int8(0)),
    "a zero point": (np.float32(0.02), np.uint8(120)),
}


@pytest.mark.parametrize("rows", [1, 3, 4, 5])
@pytest.mark.parametrize("name", STORED)
def test_few_rows_read_weights_as_integers(name, rows):
    """Results stay the same, and weights take a quarter of the memory."""
    scale, zero = STORED[name]
    rng = np.random.default_rng(0)
    low, high = (0, 240) if zero.dtype == np.uint8 else (-127, 128)
    values = rng.integers(low, high, (19, 37)).astype(zero.dtype)
    constants = [relax.const(each) for each in (values, scale, zero)]

    def body(net, x):
        weights = net.emit(relax.op.dequantize(*constants, 1, "float32"))
        hidden = net.emit(relax.op.matmul(x, weights))
        return net.relu(net.emit(relax.op.add(hidden, net.const(37))))

    (layer,) = run_as_tvm(build(body, (rows, 19)))[0].dense
    assert layer.workload.numerics.weights == ("int8" if rows <= FEW_ROWS else "float32")
