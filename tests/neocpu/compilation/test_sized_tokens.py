"""Transformers, norms and recurrent layers over any number of tokens."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from sized_runs import SizedRunner

from neocpu.compilation.sized_samples import sample_sizes
from neocpu.foundation.errors import UnsupportedError
from neocpu.foundation.size_formulas import Size
from neocpu.schedules.vocabulary.target_parsing import host_target
from tests.neocpu.compilation.test_sized_samples import THREADS, planned

TOKENS = Size(name="n", least=1, most=400, step=1, typical=197)
COUNTS = (1, 2, 16, 31, 97, 197, 256, 400)


class Tokens:
    """A network of rows ``(1, n, width)``, made operator by operator."""

    def __init__(self, width):
        self._rng = np.random.default_rng(0)
        self._nodes, self._weights, self._width = [], {}, width

    def op(self, kind, *inputs, outputs=1, **attributes):
        names = [f"v{len(self._nodes)}_{number}" for number in range(outputs)]
        inputs = [self.weight(each) if isinstance(each, np.ndarray) else each for each in inputs]
        self._nodes.append(onnx.helper.make_node(kind, inputs, names, **attributes))
        return names[0] if outputs == 1 else names

    def weight(self, array):
        name = f"w{len(self._weights)}"
        self._weights[name] = array
        return name

    def drawn(self, *shape):
        return (self._rng.standard_normal(shape) / np.sqrt(shape[-2])).astype(np.float32)

    def dense(self, x, ins, outs):
        bias = self._rng.standard_normal(outs).astype(np.float32)
        return self.op("Add", self.op("MatMul", x, self.drawn(ins, outs)), bias)

    def norm(self, x):
        ones = np.full(self._width, 1.1, np.float32)
        return self.op("LayerNormalization", x, ones, ones - 1, axis=-1)

    def attention(self, x, heads):
        width = self._width

        def split(rows):
            shape = np.array([0, -1, heads, width // heads])
            return self.op("Transpose", self.op("Reshape", rows, shape), perm=[0, 2, 1, 3])

        q, k, v = (split(self.dense(x, width, width)) for _ in range(3))
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.op("Mul", scores, np.array((width // heads) ** -0.5, np.float32))
        made = self.op("MatMul", self.op("Softmax", scores, axis=-1), v)
        joined = self.op("Transpose", made, perm=[0, 2, 1, 3])
        return self.op("Reshape", joined, np.array([0, -1, width]))

    def model(self, shape, *outputs):
        value, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
        arrays = [onnx.numpy_helper.from_array(a, name) for name, a in self._weights.items()]
        graph = onnx.helper.make_graph(
            self._nodes,
            "tokens",
            [value("x", kind, shape)],
            [value(name, kind, None) for name in outputs],
            arrays,
        )
        opsets = [onnx.helper.make_opsetid("", 17)]
        return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)


def transformer(size):
    net = Tokens(48)
    x = net.op("Add", "x", net.dense(net.attention(net.norm("x"), 3), 48, 48))
    wide = net.op("Relu", net.dense(net.norm(x), 48, 128))
    return net.model((1, *size, 48), net.op("Add", x, net.dense(wide, 128, 48)))


def stored_scores(size):
    """Return a network whose products and softmax are no attention: the scores are an output."""
    net = Tokens(48)
    keys = net.op("Transpose", net.dense("x", 48, 48), perm=[0, 2, 1])
    scores = net.op("Softmax", net.op("MatMul", net.dense("x", 48, 48), keys), axis=-1)
    return net.model((1, *size, 48), net.op("MatMul", scores, "x"), scores)


def recurrent(size):
    net = Tokens(48)
    gates = net.drawn(2, 80, 48), net.drawn(2, 80, 20)
    y, h, c = net.op("LSTM", "x", *gates, outputs=3, hidden_size=20, direction="bidirectional")
    return net.model((*size, 1, 48), y, h, c)


@pytest.mark.parametrize("make", [transformer, stored_scores, recurrent])
def test_one_program_computes_any_number_of_tokens(make):
    found = planned(make, sample_sizes([TOKENS]))
    runner = SizedRunner(found.program, found.planned.weights, host_target(), THREADS)
    for count in COUNTS:
        model = make((count,))
        shape = [each.dim_value for each in model.graph.input[0].type.tensor_type.shape.dim]
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
        for got, exact in zip(runner.run((count,), x), expected, strict=True):
            assert np.linalg.norm(got - exact) <= 1e-4 * np.linalg.norm(exact), count


def test_mixed_heads_are_refused_by_name():
    def talking_heads(size):
        net = Tokens(48)

        def split(rows):
            shape = np.array([0, -1, 3, 16])
            return net.op("Transpose", net.op("Reshape", rows, shape), perm=[0, 2, 1, 3])

        q, k, v = (split(net.dense("x", 48, 48)) for _ in range(3))
        scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 1, 3, 2]))
        mixed = net.op("Conv", scores, net.drawn(3, 3, 1, 1))
        made = net.op("MatMul", net.op("Softmax", mixed, axis=-1), v)
        return net.model((1, *size, 48), made)

    with pytest.raises(UnsupportedError, match=r"mixed heads .* give a single shape"):
        planned(talking_heads, sample_sizes([TOKENS]))
