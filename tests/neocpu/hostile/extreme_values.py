"""ONNX's own example of every operator, side by side in a few models, run on extreme values.

``python -m tests.neocpu.hostile.extreme_values`` is for ``NEOCPU_GUARD=1``: no kernel may die, or
access memory outside its tensors. NaN and infinities must be where ONNX Runtime has them, except
for inputs that are nearly denormal, which count as zero here, and for operators in `UNDECIDED`.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import compose, helper, numpy_helper
from onnx.backend.test.case.node import TestCase, collect_testcases

import neocpu
from neocpu.foundation.errors import NeoCPUError
from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model

PER_MODEL = 20
"""Operators compiled as one model: what a compilation costs besides its kernels is shared."""

INDICES = ("Gather", "Scatter", "OneHot", "GridSample", "ReverseSequence", "RoiAlign", "MaxUnpool")
"""Operators whose integer inputs are data; others' are parameters, constant in networks."""

EXCLUDED = re.compile("expanded|training|_int4|_uint4|float8|bfloat16|string|sequence|optional")
"""Names of examples whose data are not numbers, or that expand an operator into others."""

UNDECIDED: dict[str, str] = {
    "BatchNormalization": "scale and shift are one product and one sum, and overflow elsewhere",
    "ConvTranspose": "zeros around the data, and between taps, are multiplied by infinities",
    "Det": "products overflow in another order",
    "DynamicQuantizeLinear": "of what is no number the scale is none; there it is 1",
    "LayerNormalization": "a mean of the largest numbers overflows; there it is of float64",
    "LRN": "what is divided by an infinite sum is 0; there it is no number",
    "MeanVarianceNormalization": "of equal numbers it is 0, by ONNX's own text; there it is none",
    "RNN": "the first state, 0, is multiplied by infinite weights",
}
"""Operators whose NaN differ between neocpu and ONNX Runtime, with the reason."""


def extremes(dtype: np.dtype) -> NDArray:
    """Return values that are most likely to break arithmetic and indexing."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
        values = [least, most, 0, 1, *(-x for x in (1, 2, 100, 10**6)), 2, 100, 10**6, 2**31, 2**40]
        return np.array([value for value in values if least <= value <= most], dtype)
    limits = np.finfo(dtype)
    tiny = limits.smallest_subnormal
    values = [np.nan, np.inf, -np.inf, limits.max, limits.min, tiny, -tiny, limits.tiny]
    return np.array([*values, 0.0, -0.0, 1.0, -1.0, 1e6, -1e6], dtype)


def feeds(inputs: Sequence[neocpu.TensorSpec]) -> Iterator[list[NDArray]]:
    """Yield each extreme value in all places, then several mixtures."""
    rng = np.random.default_rng(0)
    longest = max((extremes(np.dtype(spec.dtype)).size for spec in inputs), default=1)
    for turn in range(longest):
        yield [
            np.full(spec.shape, np.take(extremes(np.dtype(spec.dtype)), turn, mode="wrap"))
            for spec in inputs
        ]
    for _ in range(4):
        yield [rng.choice(extremes(np.dtype(spec.dtype)), spec.shape) for spec in inputs]


def cases() -> list[onnx.ModelProto]:
    """Return the first suitable example of each operator from ONNX."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    chosen: dict[str, onnx.ModelProto] = {}
    for case in found:
        graph = case.model.graph
        operator = graph.node[0].op_type
        if len(graph.node) != 1 or operator in chosen:
            continue
        if EXCLUDED.search(case.name):
            continue
        try:
            model = prepared(case)
            import_relax(load_model(model))
        except (NeoCPUError, TypeError, ValueError):
            continue
        chosen[operator] = model
    return list(chosen.values())


def prepared(case: TestCase) -> onnx.ModelProto:
    """Return the model of an example, with its parameters as constants."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    graph = model.graph
    indices = graph.node[0].op_type.startswith(INDICES)
    values, _ = case.data_sets[0]
    for value, given in list(zip(graph.input, values, strict=True))[1:]:
        array = np.asarray(given)
        if array.dtype.kind in "iub" and array.ndim <= 1 and not indices:
            graph.initializer.append(numpy_helper.from_array(array, value.name))
            graph.input.remove(value)
    return model


def side_by_side(models: Sequence[onnx.ModelProto]) -> onnx.ModelProto:
    """Return one model of several independent ones."""
    parts = [compose.add_prefix(model, f"m{n}_").graph for n, model in enumerate(models)]
    graph = helper.make_graph(
        [node for part in parts for node in part.node],
        "extremes",
        [value for part in parts for value in part.input],
        [value for part in parts for value in part.output],
        [array for part in parts for array in part.initializer],
    )
    opsets = {each.domain: each for model in models for each in model.opset_import}
    return helper.make_model(graph, opset_imports=opsets.values(), ir_version=10)


def session_of(model: onnx.ModelProto) -> onnxruntime.InferenceSession | None:
    """Return a session of ONNX Runtime; None if it does not know the operator."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options)
    except Exception:
        return None


def check_numbers(
    models: Sequence[onnx.ModelProto],
    peers: Sequence[onnxruntime.InferenceSession | None],
    arrays: Sequence[NDArray],
    results: Sequence[NDArray],
) -> None:
    """Compare which elements are NaN or infinite in the outputs of models.

    Raises AssertionError: an operator returns NaN or infinity where ONNX Runtime returns a number,
    or vice versa.
    """
    given, made = iter(arrays), iter(results)
    for model, peer in zip(models, peers, strict=True):
        inputs = {value.name: next(given) for value in model.graph.input}
        outputs = [next(made) for _ in model.graph.output]
        operator = model.graph.node[0].op_type
        if peer is None or operator in UNDECIDED or any(map(is_tiny, inputs.values())):
            continue
        try:
            expected = peer.run(None, inputs)
        except Exception:  # indices outside, which it refuses
            continue
        for ours, theirs in zip(outputs, expected, strict=True):
            if ours.dtype.kind == "f" and ours.shape == theirs.shape:
                same = np.isnan(ours) == np.isnan(theirs)
                assert same.all(), f"{operator} of {inputs} is {ours}, and not {theirs}"


def is_tiny(array: NDArray) -> bool:
    """Return whether an array has numbers that are denormal, or nearly so."""
    if array.dtype.kind != "f":
        return False
    return bool(((array != 0) & (np.abs(array) < 16 * np.finfo(array.dtype).tiny)).any())


def _opset(model: onnx.ModelProto) -> int:
    return next(each.version for each in model.opset_import if not each.domain)


def main(one_in: int = 1, start: int = 0) -> None:
    """Compile and run every n-th case, beginning with a number."""
    by_opset: dict[int, list[onnx.ModelProto]] = {}
    for model in cases()[start::one_in]:
        by_opset.setdefault(_opset(model), []).append(model)
    groups = [
        group[first : first + PER_MODEL]
        for group in by_opset.values()
        for first in range(0, len(group), PER_MODEL)
    ]
    for group in groups:
        print(", ".join(model.graph.node[0].op_type for model in group), flush=True)
        with (
            neocpu.compile(side_by_side(group), threads=2, verify=False) as compiled,
            compiled.module() as module,
        ):
            peers = [session_of(model) for model in group]
            for arrays in feeds(module.inputs):
                found = module(arrays)
                check_numbers(group, peers, arrays, found if isinstance(found, tuple) else (found,))
    print(sum(map(len, groups)), "operators")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
