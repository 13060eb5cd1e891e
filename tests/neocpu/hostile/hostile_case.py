"""Hostile data, and a model that reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from neocpu.verification.reference.runner import run_reference

DRAWS = 12
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 1e-38)
FLOATS = np.array([*SPECIAL, 0.3, -0.7, 1, -1, 2.5, 1e9, -1e9, 3e38, -3e38])
# As many usual numbers as extreme ones: a model with only invalid indices tests little.
USUAL = np.array([-0.9, -0.5, -0.1, 0.2, 0.4, 0.6, 0.8, 0.95])
REALS = np.concatenate([FLOATS, USUAL, USUAL])
# Denormals are zero in compiled code.
NORMAL = REALS[~((0 < np.abs(REALS)) & (np.abs(REALS) < 1e-30))]
DATA = np.linspace(-2, 2, 64)


@dataclass(frozen=True)
class Case:
    """One model, its data, and the outputs it should have.

    `inputs`: the type and shape of each input, and the values to draw from. `expected`: a function
    of the model and its feeds that returns the documented outputs by name. `shapes`: the shapes of
    float32 outputs that ONNX does not infer.
    """

    nodes: Sequence[onnx.NodeProto]
    inputs: Mapping[str, tuple[str, tuple[int, ...], np.ndarray]]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    expected: Callable[[onnx.ModelProto, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]] = (
        run_reference
    )
    opset: int = 21
    rtol: float = 1e-5
    draws: int = DRAWS
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def model(self) -> onnx.ModelProto:
        """Return the model; all results of its nodes are outputs."""
        read = {name for node in self.nodes for name in node.input}
        made = [name for node in self.nodes for name in node.output if name not in read]
        graph = helper.make_graph(
            list(self.nodes),
            "hostile",
            [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape
                )
                for name, (dtype, shape, _) in self.inputs.items()
            ],
            [
                helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, self.shapes[name])
                if name in self.shapes
                else onnx.ValueInfoProto(name=name)
                for name in made
            ],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        return onnx.shape_inference.infer_shapes(model)

    def feeds(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Draw one set of inputs."""
        with np.errstate(all="ignore"):
            return {
                name: rng.choice(values, shape).astype(dtype)
                for name, (dtype, shape, values) in self.inputs.items()
            }


def integers(dtype: str, *extents: int) -> np.ndarray:
    """Extreme integers of a type, and as many indices into axes of ``extents``."""
    limits = np.iinfo(dtype)
    near = [e + d for e in extents for d in (-1, 0, 1)] + [-e + d for e in extents for d in (-1, 0)]
    wild = [limits.min, limits.min + 1, limits.max, limits.max - 1, -1, 0, 1, 2, 100, 10**6]
    wild += [-(2**31), 2**31 - 1, 2**31, 2**32, 2**62, -(2**62), 10**12, *near]
    usual = [i for e in extents for i in range(-e, e)] or [-7, -3, -2, 3, 5, 10]
    wild, usual = ([v for v in vs if limits.min <= v <= limits.max] for vs in (wild, usual))
    repeats = -(-len(wild) // len(usual))
    return np.array([*wild, *usual * repeats], dtype)


def named(prefix: str, variants: Sequence[tuple[str, Sequence[str], dict[str, Any]]]) -> list:
    """Return a node per variant, ``(operator, inputs, attributes)``."""
    return [
        helper.make_node(op, list(inputs), [f"{prefix}{number}"], **attributes)
        for number, (op, inputs, attributes) in enumerate(variants)
    ]


def nothing_expected(model, feeds) -> Mapping[str, np.ndarray]:
    """Expect only that the model ends, because its results depend on the treatment of NaN."""
    return {}
