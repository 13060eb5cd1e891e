"""Models with control flow, in ONNX's text form."""

from __future__ import annotations

import onnx
from onnx import parser


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
