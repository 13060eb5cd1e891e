"""Operators on every element type that ONNX allows, and the outcome of each."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper
from onnx.backend.test.loader import load_model_tests

from neocpu.foundation.errors import NeoCPUError
from neocpu.verification.reference.runner import run_reference
from tests.onnx_backend.suite import Broken, CheapBackend, Result

Array = NDArray[Any]

TYPES: Final[Mapping[str, Any]] = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float": np.float32,
    "double": np.float64,
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "bool": np.bool_,
}
"""Element types by ONNX's names. Types of 4 bits and float8 can only be converted: not listed."""

_GRAPHS: Final = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
_COARSE: Final = 2.0**-6
_UNTIED: Final = ("Bernoulli", "Multinomial", "RandomNormalLike", "RandomUniformLike")
"""Operators that draw their results."""


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator, and one of the types that its inputs have independently of each other.

    - `model`: a model of one node, from ONNX's own tests.
    - `inputs`: the inputs of that test.
    - `places`: the numbers of the inputs that have the type.
    - `allowed`: the names in `TYPES` that ONNX allows for it.
    """

    name: str
    model: onnx.ModelProto
    inputs: tuple[Array, ...]
    places: tuple[int, ...]
    allowed: tuple[str, ...]


@cache
def operators() -> Mapping[str, Operator]:
    """Return all operators by name, with their types if they have several."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite divides by zero
        cases = load_model_tests(kind="node")
    smallest: dict[str, Any] = {}
    for case in cases:
        if _is_plain(case):
            op = case.model.graph.node[0].op_type
            size = sum(np.size(each) for each in case.data_sets[0][0])
            if op not in smallest or size < smallest[op][0]:
                smallest[op] = size, case
    found = (each for op in sorted(smallest) for each in _operators(op, smallest[op][1]))
    return {each.name: each for each in found}


def _is_plain(case: Any) -> bool:
    """Whether a test is of one standard operator, on numbers."""
    nodes, inputs = case.model.graph.node, case.data_sets[0][0]
    return (
        len(nodes) == 1
        and nodes[0].domain == ""
        and not any(each.type in _GRAPHS for each in nodes[0].attribute)
        and nodes[0].op_type not in _UNTIED
        and len(inputs) == len(case.model.graph.input) > 0
        and all(isinstance(each, np.ndarray) and _is_number(each) for each in inputs)
    )


def _is_number(array: Array) -> bool:
    return array.size > 0 and array.dtype in [np.dtype(each) for each in TYPES.values()]


def _operators(op: str, case: Any) -> Iterator[Operator]:
    node = case.model.graph.node[0]
    schema = onnx.defs.get_schema(op, case.model.opset_import[0].version)
    allowed = {
        each.type_param_str: tuple(
            name for name in TYPES if f"tensor({name})" in each.allowed_type_strs
        )
        for each in schema.type_constraints
    }
    order = {value.name: number for number, value in enumerate(case.model.graph.input)}
    by_symbol: dict[str, list[int]] = {}
    for number, name in enumerate(node.input):
        symbol = schema.inputs[min(number, len(schema.inputs) - 1)].type_str
        if name in order and len(allowed.get(symbol, ())) > 1:
            by_symbol.setdefault(symbol, []).append(order[name])
    for symbol, places in by_symbol.items():
        name = op if len(by_symbol) == 1 else f"{op}: {symbol}"
        inputs = tuple(case.data_sets[0][0])
        yield Operator(name, case.model, inputs, tuple(dict.fromkeys(places)), allowed[symbol])


def numbers(array: Array, kind: str) -> Array:
    """Return an array in another type, without real numbers that are too small for it."""
    dtype = np.dtype(TYPES[kind])
    if array.dtype == dtype:
        return array
    real = array.astype(np.float64)
    if array.dtype.kind not in "iub" and dtype.kind in "iu":
        real = np.rint(4 * real)
    if dtype.kind == "u":
        real = np.abs(real)
    if dtype.kind in "iu":
        real = np.clip(real, -4, 4)  # products of a dozen of them are still exact
    return real.astype(dtype)


def run(name: str, kind: str) -> Result:
    """Run an operator on a type, and return whether it passes, is refused, or is wrong."""
    operator = operators()[name]
    inputs = [
        numbers(each, kind) if number in operator.places else each
        for number, each in enumerate(operator.inputs)
    ]
    model = _typed(operator.model, inputs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = CheapBackend.prepare(model).run(inputs)
            expected = _expected(model, inputs)
    except NeoCPUError as error:
        return Result("refused", str(error))
    except Broken as error:
        return Result("crashed", str(error)[:300])
    if expected is None:
        return Result("listed", "nothing else computes it")
    try:
        for one, other, stated in zip(found, expected, model.graph.output, strict=True):
            wanted = helper.tensor_dtype_to_np_dtype(stated.type.tensor_type.elem_type)
            assert np.asarray(one).dtype == wanted, (np.asarray(one).dtype, wanted)
            _compare(np.asarray(one), np.asarray(other), kind)
    except AssertionError as error:
        return Result("wrong", " ".join(str(error).split())[:300])
    return Result("passed")


def _compare(one: Array, other: Array, kind: str) -> None:
    coarse = kind in ("float16", "bfloat16") or one.dtype.itemsize == 2
    tolerance = _COARSE if coarse else 1e-4
    np.testing.assert_allclose(
        one.astype(np.float64), other.astype(np.float64), rtol=tolerance, atol=tolerance
    )


def _typed(model: onnx.ModelProto, inputs: list[Array]) -> onnx.ModelProto:
    """Return the model with the types of these inputs, and outputs to match."""
    graph, typed = model.graph, onnx.ModelProto()
    typed.CopyFrom(model)
    for value, each in zip(typed.graph.input, inputs, strict=True):
        kind = helper.np_dtype_to_tensor_dtype(each.dtype)
        value.type.CopyFrom(helper.make_tensor_type_proto(kind, each.shape))
    for value in typed.graph.output:
        value.ClearField("type")
    typed = onnx.shape_inference.infer_shapes(typed)
    before = [value.type.tensor_type.elem_type for value in graph.input]
    changed = {
        old: helper.np_dtype_to_tensor_dtype(each.dtype)
        for old, each in zip(before, inputs, strict=True)
    }
    for output, old in zip(typed.graph.output, graph.output, strict=True):
        if not output.type.tensor_type.elem_type:
            # A type that cannot be inferred is that of the node's input.
            output.type.CopyFrom(old.type)
            number = old.type.tensor_type.elem_type
            output.type.tensor_type.elem_type = changed.get(number, number)
    return typed


def _expected(model: onnx.ModelProto, inputs: list[Array]) -> list[Any] | None:
    """Return what ONNX Runtime computes, or else the reference; None if neither can."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    feeds = {value.name: each for value, each in zip(model.graph.input, inputs, strict=True)}
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        return list(session.run(None, feeds))
    except Exception:  # it has no kernel for the type
        try:
            return list(run_reference(model, feeds).values())
        except Exception:
            return None
