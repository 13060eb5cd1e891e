"""Hard swish in every spelling is a step of the convolution before it, and nothing else is."""

import numpy as np
import pytest
from networks import build
from tvm import relax

from neocpu.planning.extract import extract
from neocpu.relax_utils import make_const
from neocpu.schedules.vocabulary.steps import STEP_KINDS

R = relax.op
SHAPE = (1, 8, 5, 6)


def number(value):
    return make_const(np.float32(value))


def of_onnx(net, y):
    """As TVM's importer writes HardSwish, divisions being products."""
    inner = net.emit(R.clip(net.emit(R.add(y, number(3))), 0, 6))
    return net.emit(R.multiply(y, net.emit(R.multiply(inner, number(1 / 6)))))


def by_sigmoid(net, y):
    inner = net.emit(R.add(net.emit(R.multiply(y, number(1 / 6))), number(0.5)))
    return net.emit(R.multiply(net.emit(R.clip(inner, 0, 1)), y))


def divided_last(net, y):
    inner = net.emit(R.clip(net.emit(R.add(y, number(3))), 0, 6))
    return net.emit(R.multiply(net.emit(R.multiply(y, inner)), number(1 / 6)))


@pytest.mark.parametrize("spelling", [of_onnx, by_sigmoid, divided_last])
def test_spellings(spelling):
    def body(net, x):
        return net.relu(spelling(net, net.conv(x, 8)))

    (conv,) = extract(build(body, SHAPE)).ops
    assert [op.kind for op in conv.workload.epilogue] == ["bias_add", "hard_swish", "relu"]
    step = conv.workload.epilogue[1]
    y = np.linspace(-5, 5, 41, dtype=np.float32)
    expected = y * np.clip(y + 3, 0, 6) / 6
    got = STEP_KINDS[step.kind].compute(y, *step.args)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)


def unclipped(net, y):
    return net.emit(R.multiply(y, net.emit(R.add(y, number(3)))))


def upside_down(net, y):
    inner = net.emit(R.multiply(net.emit(R.clip(y, 0, 6)), number(-1)))
    return net.emit(R.multiply(y, inner))


def read_elsewhere(net, y):
    inner = net.emit(R.clip(net.emit(R.add(y, number(3))), 0, 6))
    return net.emit(R.add(net.emit(R.multiply(y, inner)), inner))


def of_another(net, y):
    inner = net.emit(R.clip(net.emit(R.add(y, number(3))), 0, 6))
    return net.emit(R.add(y, net.emit(R.multiply(inner, inner))))


def seen(net, y):
    inner = net.emit(R.clip(net.emit(R.add(y, number(3))), 0, 6))
    product = net.emit(R.multiply(y, inner))
    return net.emit(relax.Tuple([product, inner]))


@pytest.mark.parametrize("body", [unclipped, upside_down, read_elsewhere, of_another, seen])
def test_what_is_none(body):
    conv = extract(build(lambda net, x: body(net, net.conv(x, 8)), SHAPE)).ops[0]
    assert [op.kind for op in conv.workload.epilogue] == ["bias_add"]
