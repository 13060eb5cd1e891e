"""Random models of branches and loops in each other, over values of one shape."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SHAPE = (2, 3)
FLAGS = ("p", "q")
_CALLS = ("Add", "Sub", "Mul", "Max")


class _Generator:
    """Draws graphs; ``count`` numbers their values."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def pick(self, options):
        return options[int(self.random.integers(len(options)))]

    def nodes(self, values: list[str], flags: list[str], depth: int) -> list[onnx.NodeProto]:
        """Return nodes that read ``values``; their results are added to these."""
        made = []
        for _ in range(int(self.random.integers(1, 4))):
            kinds = [self.call, self.call, self.condition]
            kinds += [self.branch, self.branch, self.loop, self.scan] if depth else []
            made += self.pick(kinds)(values, flags, depth)
        return made

    def call(self, values, flags, depth):
        result = self.name()
        node = helper.make_node(self.pick(_CALLS), [self.pick(values), self.pick(values)], [result])
        bounded = helper.make_node("Tanh", [result], [self.name()])
        values.append(bounded.output[0])
        return [node, bounded]

    def condition(self, values, flags, depth):
        total, result = self.name(), self.name()
        flags.append(result)
        return [
            helper.make_node("ReduceSum", [self.pick(values)], [total], keepdims=0),
            helper.make_node("Less", [total, "zero"], [result]),
        ]

    def body(self, values, flags, depth, inputs, results, again=None, rows=0):
        """Return a graph of ``results`` values and ``rows``, perhaps with a loop condition."""
        inner, own = [*values], [*flags]
        nodes = self.nodes(inner, own, depth - 1)
        outputs = [self.pick(inner) for _ in range(results + rows)]
        renamed = [self.name() for _ in outputs]
        nodes += [
            helper.make_node("Identity", [a], [b]) for a, b in zip(outputs, renamed, strict=True)
        ]
        values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, SHAPE) for n in renamed]
        if again is not None:
            name = self.name()
            nodes.append(helper.make_node("Identity", [again or self.pick([*own, *FLAGS])], [name]))
            values.insert(0, helper.make_tensor_value_info(name, TensorProto.BOOL, ()))
        weight = numpy_helper.from_array(np.float32(self.random.normal(size=SHAPE)), self.name())
        return helper.make_graph(nodes, "body", inputs, values, [weight])

    def branch(self, values, flags, depth):
        count = int(self.random.integers(1, 3))
        pair = [self.body(values, flags, depth, [], count) for _ in range(2)]
        outputs = [self.name() for _ in range(count)]
        values += outputs
        flag = self.pick([*flags, *FLAGS, "yes"])
        return [helper.make_node("If", [flag], outputs, then_branch=pair[0], else_branch=pair[1])]

    def loop(self, values, flags, depth):
        states = [self.pick(values) for _ in range(int(self.random.integers(1, 3)))]
        inputs = [
            helper.make_tensor_value_info(self.name(), TensorProto.INT64, ()),
            helper.make_tensor_value_info(self.name(), TensorProto.BOOL, ()),
            *(helper.make_tensor_value_info(self.name(), TensorProto.FLOAT, SHAPE) for _ in states),
        ]
        inner = [*values, *(value.name for value in inputs[2:])]
        decided = self.random.random() < 0.5
        again = "" if decided else inputs[1].name
        rows = 0 if decided else 1
        body = self.body(inner, flags, depth, inputs, len(states), again, rows)
        outputs = [self.name() for _ in states]
        stacked = [self.name() for _ in range(rows)]
        values += outputs
        count = self.pick(["one", "three"])
        first = self.pick([*FLAGS, "yes"]) if decided else self.pick(["", "yes"])
        loop = helper.make_node("Loop", [count, first, *states], outputs + stacked, body=body)
        return [loop, *self.summed(stacked, 0, values)]

    def scan(self, values, flags, depth):
        axis, backward = int(self.random.integers(-3, 3)), int(self.random.integers(2))
        pair = [self.pick(values), self.pick(values)]
        long, slices = self.name(), [self.name() for _ in pair]
        unsqueezed = [
            helper.make_node("Unsqueeze", [value, f"axis{axis % 3}"], [new])
            for value, new in zip(pair, slices, strict=True)
        ]
        joined = helper.make_node("Concat", slices, [long], axis=axis)
        names = [self.name() for _ in range(2)]
        inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, SHAPE) for n in names]
        body = self.body([*values, *names], flags, depth, inputs, 1, rows=1)
        state, rows = self.name(), self.name()
        values.append(state)
        out_axis = int(self.random.integers(-3, 3))
        scan = helper.make_node(
            "Scan", [self.pick(values[:-1]), long], [state, rows], body=body, num_scan_inputs=1,
            scan_input_axes=[axis], scan_input_directions=[backward],
            scan_output_axes=[out_axis], scan_output_directions=[1 - backward],
        )  # fmt: skip
        return [*unsqueezed, joined, scan, *self.summed([rows], out_axis % 3, values)]

    def summed(self, rows, axis, values):
        """Return nodes that make one value of rows and depend on their order."""
        nodes = []
        for name in rows:
            weighted, total = self.name(), self.name()
            nodes.append(helper.make_node("CumSum", [name, f"place{axis}"], [weighted]))
            nodes.append(
                helper.make_node("ReduceMean", [weighted, f"axis{axis}"], [total], keepdims=0)
            )
            values.append(total)
        return nodes


def random_model(seed: int, depth: int = 3) -> onnx.ModelProto:
    """Return a model of an input ``x`` and the flags, and of three outputs."""
    generator = _Generator(seed)
    values, flags = ["x"], []
    nodes = generator.nodes(values, flags, depth)
    for _ in range(2):
        nodes += generator.branch(values, flags, depth)
    outputs = [*dict.fromkeys(reversed(values))][:3]
    nodes += [helper.make_node("Identity", [a], [f"y{i}"]) for i, a in enumerate(outputs)]
    constants = {
        "zero": np.float32(0),
        "one": np.int64(1),
        "three": np.int64(3),
        "yes": np.bool_(True),
        **{f"axis{axis}": np.array([axis], np.int64) for axis in range(3)},
        **{f"place{axis}": np.int64(axis) for axis in range(3)},
    }
    graph = helper.make_graph(
        nodes,
        "random",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE),
            *(helper.make_tensor_value_info(name, TensorProto.BOOL, ()) for name in FLAGS),
        ],
        [
            helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, SHAPE)
            for i in range(len(outputs))
        ],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
