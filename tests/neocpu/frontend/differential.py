"""Build small ONNX models, run them through the importer and TVM, and compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import tvm
from onnx import helper, numpy_helper
from tvm import relax

from neocpu.frontend.importer import import_relax
from neocpu.frontend.load import load_model
from neocpu.frontend.loaded_model import LoadedModel
from tests.guarded_machine import legalized_machine

IR_VERSION = 10


def make_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, np.ndarray],
    constants: Mapping[str, np.ndarray] | None = None,
    outputs: Sequence[str] = ("y",),
    opset: int = 18,
    like_first_input: bool = False,
) -> onnx.ModelProto:
    """Return a model of the given nodes.

    Output types are inferred, or the first input's where ONNX cannot infer them.
    """
    graph = helper.make_graph(
        list(nodes),
        "test",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in inputs.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = min(IR_VERSION, helper.find_min_ir_version_for(model.opset_import))
    model.ir_version = max(model.ir_version, 4)
    if like_first_input:
        model.graph.output[0].type.CopyFrom(model.graph.input[0].type)
    return onnx.shape_inference.infer_shapes(model)


def node_of(op: str, inputs: str, outputs: str = "y", **attributes: Any) -> onnx.NodeProto:
    """Return a node of inputs and outputs by their names; ``_`` is one that is left out."""
    names = [["" if name == "_" else name for name in each.split()] for each in (inputs, outputs)]
    return helper.make_node(op, *names, **attributes)


def one_op(
    op: str,
    x: np.ndarray,
    constants: Sequence[np.ndarray | None] = (),
    opset: int = 18,
    outputs: int = 1,
    **attrs: Any,
) -> onnx.ModelProto:
    """Return a model of one node over input ``x`` and constant further inputs."""
    names = ["x", *("" if array is None else f"c{i}" for i, array in enumerate(constants))]
    results = ["y"] if outputs == 1 else [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, name="the_node", **attrs)
    values = {f"c{i}": array for i, array in enumerate(constants) if array is not None}
    return make_model([node], {"x": x}, values, results, opset)


def run_module(module: tvm.IRModule, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Lower a Relax module with TVM's defaults and run ``main``."""
    result = legalized_machine(module)["main"](
        *(tvm.runtime.tensor(np.require(array, requirements="C")) for array in arguments)
    )
    if isinstance(result, tvm.runtime.Tensor):
        return [result.numpy()]
    return [element.numpy() for element in result]


def run_imported(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]
) -> tuple[LoadedModel, tvm.IRModule, list[np.ndarray]]:
    """Load, import, lower and run a model."""
    loaded = load_model(model)
    module = import_relax(loaded)
    relax.analysis.well_formed(module)
    results = run_module(module, [feeds[spec.name] for spec in loaded.inputs])
    for spec, result in zip(loaded.outputs, results, strict=True):
        assert (spec.dtype, spec.shape) == (str(result.dtype), result.shape)
    return loaded, module, results


def run_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Run a model in ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Unfused: its fusion of Pad and MaxPool replaces zeros by minus infinity.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, dict(feeds))


def assert_matches_onnxruntime(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], rtol: float = 1e-4, atol: float = 1e-5
) -> tvm.IRModule:
    """Import and run a model, compare with ONNX Runtime, and return the Relax module."""
    expected = run_onnxruntime(model, feeds)
    _, module, actual = run_imported(model, feeds)
    assert len(actual) == len(expected)
    for mine, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=atol)
    return module


def relax_ops(module: tvm.IRModule) -> list[str]:
    """Return the names of the Relax operators of ``main``, in order."""
    names: list[str] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, tvm.ir.Call):
            names.append(getattr(expr.op, "name", "?").removeprefix("relax."))

    relax.analysis.post_order_visit(module["main"], visit)
    return names


def random(*shape: int, seed: int = 0) -> np.ndarray:
    """Return seeded normal float32 numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    """Return an int64 vector."""
    return np.array(values, np.int64)


def floats(*values: float) -> np.ndarray:
    """Return a float32 vector."""
    return np.array(values, np.float32)


DATA = random(2, 6, 9, 11)


def check(op: str, *constants: np.ndarray | None, x: np.ndarray = DATA, **kwargs: Any) -> list[str]:
    """Compare one node with ONNX Runtime and return the Relax operators it became."""
    model = one_op(op, x, constants, **kwargs)
    return relax_ops(assert_matches_onnxruntime(model, {"x": x}))
