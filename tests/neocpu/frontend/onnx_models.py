"""Small ONNX models of nodes, or of ONNX's text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.text_models import nodes_of, text_model


def value(name: str, given: Any) -> onnx.ValueInfoProto:
    """Return a float tensor of these extents, or one of a type and extents."""
    typed = given is not None and len(given) == 2 and isinstance(given[1], list | tuple)
    kind, dims = given if typed else (TensorProto.FLOAT, given)
    return helper.make_tensor_value_info(name, kind, dims)


def onnx_model(
    nodes: Sequence[onnx.NodeProto] | str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    constants: Mapping[str, Any] | None = None,
    *,
    opset: int = 18,
    domains: Sequence[str] = (),
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """Return a model of nodes or their text, and of inputs and outputs as `value` takes them."""
    weights = [
        each if isinstance(each, TensorProto) else numpy_helper.from_array(np.asarray(each), name)
        for name, each in (constants or {}).items()
    ]
    ends = ([value(*each) for each in given.items()] for given in (inputs, outputs))
    graph = helper.make_graph(
        nodes_of(nodes) if isinstance(nodes, str) else list(nodes), "little", *ends, weights
    )
    sets = [helper.make_opsetid("", opset), *(helper.make_opsetid(each, 1) for each in domains)]
    ir_version = 8 if opset < 19 else 10
    return helper.make_model(
        graph, opset_imports=sets, functions=list(functions), ir_version=ir_version
    )


def graph_model(text: str, opset: int = 18, **constants: Any) -> onnx.ModelProto:
    """Return the model of a graph in ONNX's text, without its name, and of weights."""
    return text_model(f"g {text}", constants, opset)
