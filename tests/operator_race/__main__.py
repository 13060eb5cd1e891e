"""Single operators beside ONNX Runtime: ``python -m tests.operator_race [WORD …] [--rounds N]``.

Each is a model of one operator, or of a few that belong together, on random data, run in turns with
ONNX Runtime on two threads. What is told is how many times as fast neocpu is, by medians; then the
geometric mean, and which are below 0.8. With words, only those whose names have one of them.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import neocpu
from tests.set_race.__main__ import race

THREADS = 2
LEAST = 0.8
"""What no operator should be below."""

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)


@dataclass(frozen=True, slots=True)
class Case:
    """A model of some nodes, its inputs by name, and its constants."""

    name: str
    nodes: Sequence[onnx.NodeProto]
    feeds: Mapping[str, Array]
    constants: Mapping[str, Array] = field(default_factory=dict)
    opset: int = 20

    def model(self) -> onnx.ModelProto:
        """Return the model, whose outputs are those of the last node."""
        inputs = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in self.feeds.items()
        ]
        outputs = [onnx.ValueInfoProto(name=name) for name in self.nodes[-1].output]
        weights = [numpy_helper.from_array(each, name) for name, each in self.constants.items()]
        graph = helper.make_graph(list(self.nodes), self.name, inputs, outputs, weights)
        opsets = [helper.make_opsetid("", self.opset)]
        return onnx.shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=opsets, ir_version=10)
        )


def normal(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def whole(below: int, *shape: int) -> Array:
    return RNG.integers(0, below, shape)


def node(op: str, inputs: str, outputs: str = "y", **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), outputs.split(), **attrs)


def transposed() -> Iterator[Case]:
    """Yield transposed convolutions in all forms."""
    forms = (
        ("inverse STFT", (400,), 258, 1, 256, 64, 1, 1, 0),
        ("kernel 16 stride 8", (500,), 128, 64, 16, 8, 1, 1, 4),
        ("kernel 4 stride 2, rows", (2000,), 64, 32, 4, 2, 1, 1, 1),
        ("kernel 4 stride 2", (32, 32), 64, 32, 4, 2, 1, 1, 1),
        ("kernel 2 stride 2", (64, 64), 128, 64, 2, 2, 1, 1, 0),
        ("dilation 2", (32, 32), 64, 32, 3, 1, 2, 1, 2),
        ("dilation 2 stride 2", (32, 32), 64, 32, 3, 2, 2, 1, 2),
        ("4 groups", (32, 32), 64, 64, 4, 2, 1, 4, 1),
        ("depthwise", (32, 32), 64, 64, 4, 2, 1, 64, 1),
        ("volumes", (8, 16, 16), 32, 16, 2, 2, 1, 1, 0),
    )
    for name, extents, ins, outs, kernel, stride, dilation, groups, pad in forms:
        rank = len(extents)
        attrs = {
            "strides": [stride] * rank,
            "dilations": [dilation] * rank,
            "pads": [pad] * 2 * rank,
            "group": groups,
        }
        weights = normal(ins, outs // groups, *[kernel] * rank)
        made, x = [node("ConvTranspose", "x w", **attrs)], normal(1, ins, *extents)
        yield Case(f"ConvTranspose, {name}", made, {"x": x}, {"w": weights})
        if name == "kernel 4 stride 2":
            yield Case(f"ConvTranspose, {name}, weights given", made, {"x": x, "w": weights})


def indexing() -> Iterator[Case]:
    """Yield operators that look up, write where indices say, or rank."""
    table, rows = normal(256, 1000), whole(1000, 256, 1000)
    yield Case("GatherElements", [node("GatherElements", "x i", axis=1)], {"x": table, "i": rows})
    order = np.argsort(table, 1)
    scatter = {"x": table, "i": order, "u": normal(256, 1000)}
    yield Case("ScatterElements", [node("ScatterElements", "x i u", axis=1)], scatter)
    image, places = normal(200, 200, 16), whole(200, 10000, 2)
    yield Case("GatherND", [node("GatherND", "x i")], {"x": image, "i": places})
    written = {"x": image, "i": places, "u": normal(10000, 16)}
    yield Case("ScatterND", [node("ScatterND", "x i u")], written)
    for axis in range(2):
        made = [node("CumSum", "x a")]
        yield Case(f"CumSum along {axis}", made, {"x": table}, {"a": np.array(axis)})
    top = node("TopK", "x k", "y i")
    for count, shape in ((5, (100, 1000)), (50, (1, 200000)), (100, (1, 200000))):
        yield Case(
            f"TopK {count} of {shape}", [top], {"x": normal(*shape)}, {"k": np.array([count])}
        )
    ramp = np.arange(200000, dtype=np.float32)[None]
    yield Case("TopK 100 of a ramp", [top], {"x": ramp}, {"k": np.array([100])})
    yield Case("ArgMax", [node("ArgMax", "x", axis=1)], {"x": normal(1, 21, 128, 128)})


def products() -> Iterator[Case]:
    """Yield products whose weights are given, or made of integers."""
    filters = {"x": normal(1, 64, 28, 28), "w": normal(64, 64, 3, 3)}
    yield Case("Conv, weights given", [node("Conv", "x w", pads=[1] * 4)], filters)
    made = [
        node("DynamicQuantizeLinear", "x", "q s z"),
        node("MatMulInteger", "q w z", "i"),
        node("Cast", "i", "c", to=1),
        node("Mul", "c s"),
    ]
    weights = RNG.integers(-100, 100, (512, 512)).astype(np.int8)
    yield Case("MatMulInteger of rounded rows", made, {"x": normal(128, 512)}, {"w": weights})
    heads = {name: normal(1, 196, 512) for name in "qkv"}
    attention = node("Attention", "q k v", q_num_heads=8, kv_num_heads=8)
    yield Case("Attention", [attention], heads, opset=23)
    pair = {"x": normal(1, 8, 196, 64), "w": normal(1, 8, 196, 64)}
    yield Case("Einsum", [node("Einsum", "x w", equation="bhqd,bhkd->bhqk")], pair)
    gates = {"w": normal(1, 512, 128) / 8, "r": normal(1, 512, 128) / 8}
    lstm = node("LSTM", "x w r", hidden_size=128)
    yield Case("LSTM", [lstm], {"x": normal(50, 1, 128)}, gates)
    deformed = {"x": normal(1, 64, 28, 28), "o": normal(1, 18, 28, 28)}
    made = [node("DeformConv", "x w o", pads=[1] * 4)]
    yield Case("DeformConv", made, deformed, {"w": normal(64, 64, 3, 3)})


def maps() -> Iterator[Case]:
    """Yield operators on feature maps and rows of them."""
    x = normal(1, 64, 56, 56)
    columns = {"i": np.array([56, 56]), "b": np.array([3, 3])}
    made = [node("Col2Im", "x i b", pads=[1] * 4)]
    yield Case("Col2Im", made, {"x": normal(1, 576, 3136)}, columns)
    grid = {"x": normal(1, 32, 64, 64), "g": normal(1, 64, 64, 2) / 2}
    yield Case("GridSample", [node("GridSample", "x g")], grid)
    scales = {"s": np.array([1, 1, 2, 2], np.float32)}
    cubic = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="cubic")
    yield Case("Resize, cubic", [cubic], {"x": normal(1, 32, 56, 56)}, scales)
    yield Case("Transpose", [node("Transpose", "x", perm=[0, 2, 3, 1])], {"x": x})
    yield Case("LRN", [node("LRN", "x", size=5)], {"x": x})
    yield Case(
        "InstanceNormalization",
        [node("InstanceNormalization", "x a a")],
        {"x": x},
        {"a": normal(64)},
    )
    rows = {"x": normal(1, 196, 768)}
    yield Case("LayerNormalization", [node("LayerNormalization", "x a")], rows, {"a": normal(768)})
    made = [node("ReduceMax", "x a")]
    yield Case("ReduceMax along 1", made, {"x": normal(64, 512, 49)}, {"a": np.array([1])})
    made = [node("Greater", "x z", "m"), node("Where", "m x z")]
    yield Case("Where", made, {"x": x}, {"z": np.float32(0)})


def ratio(case: Case, rounds: int) -> float:
    """Return how many times as fast neocpu is as ONNX Runtime.

    Raises
    ------
    AssertionError
        If their outputs differ.
    """
    model = case.model()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    with neocpu.compile(model, threads=THREADS, verify=False) as compiled:
        module = compiled.module(THREADS)
        found, wanted = module.run(case.feeds), session.run(None, dict(case.feeds))
        for ours, theirs in zip(found.values(), wanted, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-2, atol=1e-2, err_msg=case.name)
        fast, _ = race(
            lambda: module.run(case.feeds), lambda: session.run(None, dict(case.feeds)), rounds
        )
    return fast


def main() -> None:
    """Print a line for each operator, then what they come to."""
    parser = argparse.ArgumentParser(prog="tests.operator_race", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--rounds", type=int, default=30, metavar="N")
    options = parser.parse_args()
    found = {}
    for case in (*transposed(), *indexing(), *products(), *maps()):
        if not options.words or any(word in case.name for word in options.words):
            found[case.name] = ratio(case, options.rounds)
            print(f"{found[case.name]:6.2f}  {case.name}", flush=True)
    slow = sorted(name for name, fast in found.items() if fast < LEAST)
    print(f"{statistics.geometric_mean(found.values()):6.2f}  geometric mean of {len(found)}")
    print(f"{len(slow)} below {LEAST}: {'; '.join(slow)}")


if __name__ == "__main__":
    main()
