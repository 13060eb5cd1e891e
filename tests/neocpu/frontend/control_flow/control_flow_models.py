"""Models with control flow, in ONNX's text form."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, parser


def parsed(graph: str, opset: int = 16, functions: str = "") -> onnx.ModelProto:
    """Return the model of a graph's text."""
    imports = f'"" : {opset}' + (', "own" : 1' if functions else "")
    text = f"<ir_version: 8, opset_import: [{imports}]>\n{graph}\n{functions}"
    model = parser.parse_model(text)
    onnx.checker.check_model(model)
    return model


#: An If whose branches both have work of their own.
BRANCHES = """
g (float[1,8,9,7] x, bool c) => (float[1,8,9,7] y) {
  y = If (c) <
    then_branch = t () => (float[1,8,9,7] a) {
      a0 = Sigmoid(x)
      a1 = ReduceMean<axes = [3], keepdims = 1>(a0)
      a = Add(a1, x)
    },
    else_branch = e () => (float[1,8,9,7] b) {
      b0 = Softmax<axis = 2>(x)
      two = Constant<value = int64 {2}>()
      b1 = CumSum(b0, two)
      b2 = Softmax<axis = 3>(b1)
      b = Mul(b2, x)
    }
  >
}
"""


WHILE_SMALL = """
g (float[3,4] x, float most, bool first) => (float[3,4] y) <int64 count = {6}> {
  y = Loop (count, first, x) <body = b (int64 i, bool c, float[] s) => (bool again, float[] t) {
    t = Add(s, x)
    size = ReduceMax<keepdims = 0>(t)
    again = Less(size, most)
  }>
}"""


def scanning(axes=(0, 0), ways=(0, 0), out=0, out_way=0):
    """A Scan over two inputs of five steps, along other axes and in other directions."""
    body = parsed("""
b (float[2] s, float[2] u, float v) => (float[2] t, float[2] row) {
  p = Mul(u, v)
  t = Add(s, p)
  row = Sub(t, u)
}""").graph
    node = helper.make_node(
        "Scan", ["s", "u", "v"], ["y", "rows"], body=body, num_scan_inputs=2,
        scan_input_axes=axes, scan_input_directions=ways, scan_output_axes=[out],
        scan_output_directions=[out_way],
    )  # fmt: skip
    shapes = {"s": (2,), "u": [(5, 2), (2, 5)][axes[0] % 2], "v": (5,)}
    values = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    ]
    results = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims)
        for name, dims in (("y", [2]), ("rows", ["k", "l"]))
    ]
    graph = helper.make_graph([node], "scan", values, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    random = np.random.default_rng(1)
    feeds = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return model, feeds
