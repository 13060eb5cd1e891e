"""Run a model as the standard defines it, in numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx.reference.op_run import OpRun

from neocpu.foundation.arrays import Array
from neocpu.frontend.numpy_operators.table import OPERATORS
from neocpu.frontend.onnx_graph.subgraphs import model_nodes
from neocpu.frontend.shapes.static_shapes import real_inputs, static_dims
from neocpu.frontend.unsupported import node_name
from neocpu.ir.custom_operators.custom_operator import CustomOperator
from neocpu.ir.custom_operators.lowering import attributes_of
from neocpu.ir.custom_operators.registry import find_operator
from neocpu.verification.reference.evaluator import Noise, evaluate


def run_reference(
    model: onnx.ModelProto,
    inputs: Mapping[str, Array],
    *,
    double: bool = False,
    noise: Noise | None = None,
) -> dict[str, Array]:
    """Run a model of opset 7 or later with numpy; return its outputs by name, in graph order.

    Some inputs may have N images where the model takes one: it is then run for each, and outputs
    are concatenated. ``double`` computes float32 in float64, as a truth that rounding is measured
    against; ``noise`` stands for a different rounding.
    """
    operators: list[type[OpRun]] = [*OPERATORS, *custom_operators_of(model)]
    run = partial(evaluate, model, operators=operators, double=double, noise=noise)
    with np.errstate(all="ignore"):  # infinities and NaN are results of the model
        return run_each_image(model, inputs, run)


def run_each_image(
    model: onnx.ModelProto,
    inputs: Mapping[str, Array],
    run: Callable[[Mapping[str, Array]], dict[str, Array]],
) -> dict[str, Array]:
    """Run a model of one image for each image of the inputs."""
    several = _images(model, inputs)
    if not several:
        return run(inputs)
    results = []
    for index in range(min(map(len, several.values()))):
        image = {name: images[index : index + 1] for name, images in several.items()}
        results.append(run({**inputs, **image}))
    return {name: np.concatenate([each[name] for each in results]) for name in results[0]}


def image_count(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> int:
    """Return the number of times that `run_each_image` runs a model."""
    return min(map(len, _images(model, inputs).values()), default=1)


def _images(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    of_one = [v.name for v in real_inputs(model.graph) if (static_dims(v) or ())[:1] == (1,)]
    return {name: inputs[name] for name in of_one if len(inputs[name]) > 1}


def custom_operators_of(model: onnx.ModelProto) -> list[type[OpRun]]:
    """Return classes for onnx's evaluator that run the custom operators of a model."""
    names = {(node.domain, node.op_type) for node in model_nodes(model)}
    found = (find_operator(*each) for each in sorted(names))
    return [_evaluated(operator) for operator in found if operator is not None]


def _evaluated(operator: CustomOperator) -> type[OpRun]:
    def run(self: OpRun, *inputs: Array | None, **attributes: Any) -> tuple[Array, ...]:
        node = self.onnx_node
        return operator.reference_outputs(node_name(node), inputs, attributes_of(node))

    # The evaluator finds a class by its name.
    return type(operator.name, (OpRun,), {"op_domain": operator.domain, "_run": run})
