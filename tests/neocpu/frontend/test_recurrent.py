"""LSTM, GRU and RNN against the reference, which ONNX Runtime agrees with."""

import re

import numpy as np
import pytest
from onnx import TensorProto, helper

import neocpu
from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from neocpu.graph.simplify import simplify
from neocpu.ir.expressions import is_op
from neocpu.ir.uses import bindings
from neocpu.verification.reference.runner import run_reference
from tests.neocpu.frontend.differential import (
    ints,
    make_model,
    node_of,
    run_imported,
    run_onnxruntime,
)
from tests.neocpu.recurrent_layers import BOTH, LAYERS, UNEVEN, layer
from tests.text_models import nodes_of

BATCH_FIRST = {
    "lstm, the batch first": ("LSTM", {**UNEVEN, **BOTH, "layout": 1}),
    "gru, the batch first": ("GRU", {"layout": 1, "direction": "reverse"}),
}
EVERY = {**LAYERS, **BATCH_FIRST}


def matches(model, feeds) -> None:
    _, _, found = run_imported(model, feeds)
    for actual, expected in zip(found, run_reference(model, feeds).values(), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", EVERY)
def test_layers(name):
    op, arguments = EVERY[name]
    matches(*layer(op, **arguments))


def test_lengths_at_run_time_that_no_tensor_has():
    model, feeds = layer(
        "GRU", batch=4, lengths=[-3, 2**31 - 1, -(2**31), 6], at_run_time=["lengths"]
    )
    matches(model, feeds)


def test_only_requested_outputs_are_computed():
    model, feeds = layer("LSTM")
    model.graph.node[0].output[0] = ""
    del model.graph.output[0]
    matches(model, feeds)


def test_weights_are_packed_when_compiling():
    """The module computes one product and one kernel a layer."""
    model, _ = layer("GRU", given="bh", linear_before_reset=1, **BOTH)
    function = simplify(import_relax(load_model(model)))["main"]
    computing = ("relax.matmul", "relax.call_tir", "relax.concat", "relax.strided_slice")
    names = [b.value.op.name for b in bindings(function) if is_op(b.value, *computing)]
    assert names == ["relax.matmul", "relax.call_tir"]


def test_directions_side_by_side_are_not_moved():
    """PyTorch transposes and reshapes the directions that ONNX separates."""
    model, _ = layer("LSTM", outputs=1, **BOTH)
    graph = model.graph
    graph.node[0].output[0] = "apart"
    shape = helper.make_tensor("shape", TensorProto.INT64, [3], [0, 0, -1])
    graph.initializer.append(shape)
    graph.node.append(node_of("Transpose", "apart", "beside", perm=[0, 2, 1, 3]))
    graph.node.append(node_of("Reshape", "beside shape"))
    graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 2, 26]))
    function = simplify(import_relax(load_model(model)))["main"]
    assert not [b for b in bindings(function) if is_op(b.value, "relax.permute_dims")]


def test_a_compiled_network():
    """The network runs with threads and LLVM's optimisation, and is verified."""
    model, feeds = layer("LSTM", steps=20, batch=9, hidden=50, features=40, given="bhc", **BOTH)
    with neocpu.compile(model) as compiled:
        found = compiled.module()(*feeds.values())
    expected = run_reference(model, feeds, double=True)
    for actual, wanted in zip(found, expected.values(), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lengths": [5, 6]}, "its sequence_lens has 6, where its input has 5 steps"),
        ({"lengths": [-1, 5]}, "its sequence_lens has -1, where its input has 5 steps"),
        (
            {"activations": ["Sigmoid", "Tangent", "Tanh"]},
            "its activation 'Tangent' is none of Affine, Elu, .*, ThresholdedRelu",
        ),
        ({"activations": ["Tanh"]}, "it has 1 activations, not 3"),
        ({"direction": "sideways"}, "its direction 'sideways' is none of forward, reverse, "),
        ({"clip": 0.0}, "its clip 0 is not above 0"),
        ({"hidden_size": 12}, "its hidden_size 12 is 13 by its weights"),
        (
            {"direction": "bidirectional"},
            re.escape("its input 1 has shape [1, 52, 7], not [2, 52, 7]"),
        ),
    ],
)
def test_unsupported_attributes_are_refused(arguments, message):
    changed = {k: v for k, v in arguments.items() if k != "lengths"}
    model, _ = layer("LSTM", lengths=arguments.get("lengths"))
    node = model.graph.node[0]
    kept = [a for a in node.attribute if a.name not in changed]
    del node.attribute[:]
    node.attribute.extend(kept)
    node.attribute.extend(helper.make_attribute(name, value) for name, value in changed.items())
    del model.graph.value_info[:]
    with pytest.raises(UnsupportedError, match=f"^cannot compile LSTM 'the_layer': {message}") as e:
        import_relax(load_model(model))
    assert "\n" not in str(e.value)


def test_a_network_that_reads_text():
    """Two layers read columns of feature maps as steps, as PyTorch exports them."""
    random = np.random.default_rng(0)
    hidden, ways = 9, 2
    weights = {
        "kernel": random.standard_normal((10, 1, 4, 3)),
        "w0": random.standard_normal((ways, 4 * hidden, 10)),
        "w1": random.standard_normal((ways, 4 * hidden, ways * hidden)),
        **{f"r{i}": random.standard_normal((ways, 4 * hidden, hidden)) for i in range(2)},
        **{f"b{i}": random.standard_normal((ways, 8 * hidden)) for i in range(2)},
        "words": random.standard_normal((ways * hidden, 7)),
    }
    constants = {
        **{name: (array / 4).astype(np.float32) for name, array in weights.items()},
        **{"height": ints(2), "batch": ints(1), "ways": ints(ways), "hidden": ints(hidden)},
        **{"beside": ints(0, 0, -1), "rows": ints(-1, ways * hidden), "steps": ints(13, 3, 7)},
    }
    text = """maps = Conv<pads = [0, 1, 0, 1]>(x, kernel)
    positive = Relu(maps)
    columns = Squeeze(positive, height)
    s0 = Transpose<perm = [2, 0, 1]>(columns)"""
    for i in range(2):
        text += f"""
    shape{i} = Shape<start = 1, end = 2>(s{i})
    state{i} = Concat<axis = 0>(ways, shape{i}, hidden)
    zeros{i} = ConstantOfShape(state{i})
    apart{i}, h{i}, c{i} = LSTM<hidden_size = {hidden}, direction = "bidirectional">
        (s{i}, w{i}, r{i}, b{i}, , zeros{i}, zeros{i})
    t{i} = Transpose<perm = [0, 2, 1, 3]>(apart{i})
    s{i + 1} = Reshape(t{i}, beside)"""
    text += """
    flat = Reshape(s2, rows)
    scores = Gemm(flat, words)
    y = Reshape(scores, steps)"""
    feeds = {"x": random.standard_normal((3, 1, 4, 13)).astype(np.float32)}
    model = make_model(nodes_of(text), feeds, constants)
    with neocpu.compile(model) as compiled:
        found = compiled.module()(feeds["x"])
    np.testing.assert_allclose(found, run_onnxruntime(model, feeds)[0], rtol=1e-4, atol=1e-5)
