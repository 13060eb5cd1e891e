"""Nodes after the graph that make probabilities, the best class, or the best five."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from neocpu.foundation.errors import UsageError, did_you_mean
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.frontend.onnx_graph.names import fresh_names, rename
from neocpu.frontend.unsupported import STANDARD_DOMAINS

CLASSES_AXIS: Final = 1
BEST: Final = 5


def answer(graph: onnx.GraphProto, spec: TensorSpec, kind: str) -> None:
    """Replace an output of scores ``(N, classes, ...)`` by an answer, in place.

    The opset is 13 or newer. The kind is ``softmax``, probabilities; ``argmax``, the best class
    (int64), without its axis; or ``top5``, the best five classes (int64) followed by another
    output, ``NAME.scores``, with their probabilities. The outputs of a Softmax are probabilities
    already. A `UsageError` refuses an output that is not a float tensor of two or four dimensions.
    """
    name, shape = spec.name, spec.shape
    if len(shape) not in (2, 4) or not spec.dtype.startswith("float"):
        raise UsageError(
            f"--output {name}={kind}: output '{name}' is {spec.dtype} of shape "
            f"{'x'.join(map(str, shape))}, no scores of classes: these have two dimensions or "
            "four, classes in the second"
        )
    place = next(i for i, value in enumerate(graph.output) if value.name == name)
    element = graph.output[place].type.tensor_type.elem_type
    scores = fresh_names(graph).fresh(f"{name}.raw")
    is_probability = _makes_probabilities(graph, name)
    rename(graph, name, scores)
    if kind != "argmax" and not is_probability:
        made = name if kind == "softmax" else fresh_names(graph).fresh(f"{name}.probabilities")
        graph.node.append(helper.make_node("Softmax", [scores], [made], axis=CLASSES_AXIS))
        scores = made
    if kind == "softmax":
        if is_probability:
            rename(graph, scores, name)
        return
    rest = [*shape[:1], *shape[2:]]
    if kind == "argmax":
        graph.node.append(
            helper.make_node("ArgMax", [scores], [name], axis=CLASSES_AXIS, keepdims=0)
        )
        outputs = [(name, TensorProto.INT64, rest)]
    else:
        count = min(BEST, shape[CLASSES_AXIS])
        best = [shape[0], count, *shape[2:]]
        names = fresh_names(graph)
        values, size = names.fresh(f"{name}.scores"), names.fresh(f"{name}.count")
        graph.initializer.append(numpy_helper.from_array(np.array([count], np.int64), size))
        graph.node.append(
            helper.make_node("TopK", [scores, size], [values, name], axis=CLASSES_AXIS)
        )
        outputs = [(name, TensorProto.INT64, best), (values, element, best)]
    replace_output(graph, place, outputs)


def find_output(outputs: Sequence[TensorSpec], name: str, option: str) -> TensorSpec:
    """Return the output of a certain name; there being none is a `UsageError`."""
    specs = {spec.name: spec for spec in outputs}
    if name not in specs:
        hint = did_you_mean(name, specs) or f"; the outputs are {', '.join(specs)}"
        raise UsageError(f"{option} names an output '{name}' the model does not have{hint}")
    return specs[name]


def replace_output(
    graph: onnx.GraphProto, place: int, outputs: Sequence[tuple[str, int, Sequence[int | str]]]
) -> None:
    """Replace an output by others, each given as (name, element type, shape)."""
    kept = list(graph.output)
    kept[place : place + 1] = [helper.make_tensor_value_info(*output) for output in outputs]
    del graph.output[:]
    graph.output.extend(kept)


def _makes_probabilities(graph: onnx.GraphProto, name: str) -> bool:
    makers = (node for node in graph.node if name in node.output)
    return any(node.op_type == "Softmax" and node.domain in STANDARD_DOMAINS for node in makers)
