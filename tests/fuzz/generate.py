"""Small random graphs, made of ONNX's own operator schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import onnx
from onnx import helper

from neocpu.frontend.shapes.static_shapes import fix_inputs
from neocpu.graph.table import RULES
from tests.fuzz import (
    recipes_blocks,
    recipes_elementwise,
    recipes_indexing,
    recipes_linear,
    recipes_nesting,
    recipes_shapes,
    recipes_tokens,
    recipes_windows,
)
from tests.fuzz.case import Case
from tests.fuzz.choices import Choices
from tests.fuzz.graph_builder import ALIKE, GraphBuilder, Value

_RULES: Final = [rule.name for rule in RULES if not rule.required]
Recipe = Callable[[GraphBuilder, str], tuple[Value, ...] | None]

OPSETS: Final = [*range(7, 23), 23, 24]
_OPSET_WEIGHTS: Final = [1, 1, 2, 2, 4, 2, 6, 3, 4, 4, 8, 6, 3, 4, 4, 6, 1, 1]
_COMMON: Final = {
    **{"Conv": 12, "MaxPool": 4, "AveragePool": 3, "Resize": 3, "GlobalAveragePool": 2},
    **{"Relu": 6, "Add": 8, "Mul": 6, "Sigmoid": 3, "Clip": 3, "Sub": 2, "Div": 2},
    **{"Concat": 6, "Reshape": 5, "Transpose": 5, "Slice": 4, "Split": 3, "Pad": 2, "Cast": 2},
    **{"MatMul": 4, "Gemm": 4, "Softmax": 3, "BatchNormalization": 5, "ReduceMean": 3},
    **{"Gather": 4, "QuantizeLinear": 2, "attention": 4},
}
"""The weights of operators that deployed networks use; other operators have weight 1."""


def _families() -> list[tuple[int, Mapping[str, Recipe]]]:
    """Return the recipes by family, and how often each family comes."""
    chosen: list[tuple[int, Mapping[str, Recipe]]] = [
        (26, recipes_windows.RECIPES),
        (24, recipes_shapes.RECIPES),
        (20, recipes_linear.RECIPES),
        (8, recipes_indexing.RECIPES),
        (8, recipes_elementwise.RECIPES),
        (2, recipes_nesting.RECIPES),
        (16, recipes_tokens.RECIPES),
        (16, recipes_blocks.RECIPES),
    ]
    taken = {name for _, recipes in chosen for name in recipes}
    others = recipes_elementwise.describable(taken)
    return [*chosen, (24, dict.fromkeys(others, recipes_elementwise.by_schema))]


FAMILIES: Final = _families()
_FIXED: Final = 0.15
"""The probability that some of a graph's inputs are constants."""


def generate(rng: Choices) -> Case:
    """Return a random model of 1 to 12 nodes, or a few more where one takes several."""
    builder = GraphBuilder(rng, rng.weighted(OPSETS, _OPSET_WEIGHTS))
    if rng.chance(0.1):
        builder.most *= 10
    if rng.chance(0.3):
        builder.alike = rng.choice(ALIKE)
    if builder.chance(0.9):
        builder.new_input()
    wanted = rng.weighted([1, 2, 3, 4, 5, 6, 8, 12], [2, 3, 3, 3, 2, 2, 2, 1])
    added = tries = 0
    while added < wanted and tries < 6 * wanted:
        tries += 1
        added += _step(builder) is not None
    if not builder.nodes:
        builder.add("Relu", builder.take())
    return finish(builder)


def _step(builder: GraphBuilder) -> tuple[Value, ...] | None:
    weights, families = zip(*FAMILIES, strict=True)
    recipes = builder.rng.weighted(families, weights)
    names = list(recipes)
    name = builder.rng.weighted(names, [_COMMON.get(name, 1) for name in names])
    return recipes[name](builder, name)


def finish(builder: GraphBuilder) -> Case:
    """Choose the outputs, and return the model."""
    read = {name for node in builder.nodes for name in node.input}
    made = {name for node in builder.nodes for name in node.output}
    results = [v for v in builder.values if v.name in made]
    outputs = [v for v in results if v.name not in read and not builder.chance(0.07)]
    outputs += [v for v in results if v.name in read and builder.chance(0.08)]
    if builder.chance(0.02) and builder.inputs:
        outputs.append(builder.rng.choice(builder.inputs))
    outputs = outputs or results[-1:]
    model = helper.make_model(
        builder.graph(outputs),
        opset_imports=[helper.make_opsetid("", builder.opset)],
        ir_version=min(10, helper.find_min_ir_version_for([helper.make_opsetid("", 22)])),
    )
    _forget_types(builder, model)
    feeds = {name: np.asarray(array) for name, array in builder.feeds.items()}
    constants = _constants(builder, model)
    fix_inputs(model.graph, {name: feeds.pop(name) for name in constants})
    return Case(model, feeds, "random graph", _options(builder.rng), extreme=builder.chance(0.2))


def _constants(builder: GraphBuilder, model: onnx.ModelProto) -> list[str]:
    """Return inputs to be constants, at times: all but one at most, and none that is an output."""
    if not builder.chance(_FIXED):
        return []
    outputs = {value.name for value in model.graph.output}
    names = [value.name for value in model.graph.input if value.name not in outputs]
    return [name for name in names[1:] if builder.chance(0.6)]


def _options(rng: Choices) -> dict[str, object]:
    """Return what to compile with: the defaults mostly, other layouts and promises at times."""
    options: dict[str, object] = {"threads": 1 + rng.chance(0.3)}
    if rng.chance(0.15):
        options["opt"] = rng.choice(["nchw", "conv-layout", "uniform"])
    if rng.chance(0.1):
        options["accuracy"] = "strict"
    if rng.chance(0.1):
        options["target"] = rng.choice(["haswell", "nehalem"])  # vectors of eight and four floats
    if rng.chance(0.1):
        options["disable_rules"] = [rng.choice(_RULES)]
    if rng.chance(0.05):
        options["algorithms"] = [rng.choice(["direct", "winograd", "pointwise", "nchw"])]
    return options


def _forget_types(builder: GraphBuilder, model: onnx.ModelProto) -> None:
    """Leave some outputs' extents open, as exporters do."""
    for value in model.graph.output:
        if builder.chance(0.15):
            for dim in value.type.tensor_type.shape.dim:
                dim.Clear()
