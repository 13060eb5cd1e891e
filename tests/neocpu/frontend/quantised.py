"""Nodes, weights and tolerances for tests of quantised models."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from tests.neocpu.frontend.differential import relax_ops, run_imported, run_onnxruntime

RNG = np.random.default_rng(0)
STEP = 0.05
WEIGHTS = RNG.integers(-127, 128, (7, 5, 3, 3)).astype(np.int8)


def node(op: str, inputs: str, outputs: str, **attributes: object) -> onnx.NodeProto:
    names = [[("" if n == "_" else n) for n in each.split()] for each in (inputs, outputs)]
    return helper.make_node(op, *names, name=f"the_{op}_{outputs}", **attributes)


def assert_within_a_step(model: onnx.ModelProto, feeds: dict, step: float = STEP) -> list[str]:
    """Compare with ONNX Runtime, and return the operators of the Relax module."""
    expected = run_onnxruntime(model, feeds)
    _, module, actual = run_imported(model, feeds)
    for mine, theirs in zip(actual, expected, strict=True):
        assert mine.dtype == theirs.dtype
        far = np.abs(mine.astype(np.float64) - theirs) / (step if mine.dtype.kind == "f" else 1)
        assert far.max() <= 1.01
        assert (far > 0.01).mean() <= 0.02
    return relax_ops(module)
