"""Tests that ``neocpu doctor`` runs in a child process, because a wrong library may crash it.

``python -m neocpu.cli.checks.self_test ffi|smoke|guard`` prints its result and exits 0.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from onnx import ModelProto

from neocpu.foundation.console.terminal import echo
from neocpu.foundation.temporary import TemporaryFolder


def ffi() -> str:
    """Save and load a TVM object as JSON, which crashes with a wrong apache-tvm-ffi."""
    import tvm
    from tvm import te

    x = te.placeholder((4,), name="x")
    function = te.create_prim_func([x, te.compute((4,), lambda i: x[i] + 1)])
    again = tvm.ir.load_json(tvm.ir.save_json(function))
    tvm.ir.assert_structural_equal(function, again)
    return "a function survives its round trip through JSON"


def smoke() -> str:
    """Compile a convolution, check it against the reference, write it, load it and run it."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    import neocpu

    weights = np.random.default_rng(0).standard_normal((16, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["image", "weights"], ["sums"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["sums"], ["features"]),
        ],
        "smoke",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, [1, 16, 16, 16])],
        [numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    start = time.perf_counter()
    with TemporaryFolder("doctor") as folder:
        path = Path(folder) / "smoke.so"
        with neocpu.compile(model) as compiled:
            compiled.export(path)
            check = compiled.verification
        with neocpu.load(path) as module:
            result = module(np.ones((1, 3, 16, 16), np.float32))
    assert check is not None
    assert np.isfinite(result).all()
    seconds = time.perf_counter() - start
    return f"compiled and ran in {seconds:.1f} s, largest error {check.max_abs_error:.2g}"


def guard() -> str:
    """Run kernels of awkward shapes, with their tensors between inaccessible pages."""
    import neocpu
    from neocpu.runtime.guarding import is_guarded

    assert is_guarded(), "the environment must ask for it"
    start, templates, operators = time.perf_counter(), set(), 0
    for algorithms in (None, ["direct"], ["winograd"], ["nchw"]):
        with neocpu.compile(_awkward_model(), algorithms=algorithms, threads=2) as compiled:
            ops = compiled.plan.ops
        operators += len(ops)
        templates |= {op.scheme.template for op in ops if op.scheme}
    seconds = time.perf_counter() - start
    kinds = ", ".join(sorted(templates))
    return f"{operators} operators keep to their tensors ({kinds}), {seconds:.1f} s"


def _awkward_model() -> ModelProto:
    """Return a network of every kind of template, whose shapes fill no block and no tile."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    constants: dict[str, Any] = {}
    nodes: list[Any] = []

    def constant(array: Any) -> str:
        constants[name := f"constant{len(constants)}"] = np.asarray(array)
        return name

    def node(op: str, *inputs: str, count: int = 1, **attributes: Any) -> str:
        outputs = [f"{op}{len(nodes)}_{number}" for number in range(count)]
        nodes.append(helper.make_node(op, inputs, outputs, **attributes))
        return outputs[0]

    def convolution(source: str, shape: tuple[int, ...], **attributes: Any) -> str:
        weights = constant((rng.standard_normal(shape) * 0.2).astype(np.float32))
        bias = constant(rng.standard_normal(shape[0]).astype(np.float32))
        return node("Relu", node("Conv", source, weights, bias, **attributes))

    same: dict[str, Any] = {"pads": [1, 1, 1, 1]}
    stem = convolution("image", (17, 3, 3, 3), **same)
    deep = convolution(stem, (33, 17, 3, 3), **same)
    sparse = convolution(deep, (33, 1, 3, 3), group=33, strides=[2, 2], **same)
    wide = convolution(sparse, (24, 33, 1, 1))
    grouped = convolution(wide, (24, 8, 3, 3), group=3, **same)
    pooled = node("MaxPool", deep, kernel_shape=[3, 3], strides=[2, 2], **same)
    joined = node("Concat", node("Add", wide, grouped), pooled, axis=1)
    scales = constant(np.array([1, 1, 2, 2], np.float32))
    larger = node("Resize", joined, "", scales, mode="linear")
    average = node("AveragePool", larger, kernel_shape=[3, 3], **same)
    flat = node("Flatten", node("GlobalAveragePool", average))
    layer = constant((rng.standard_normal((57, 21)) * 0.1).astype(np.float32))
    scores = node("Softmax", node("Gemm", flat, layer, constant(np.zeros(21, np.float32))))
    best = node("TopK", scores, constant(np.array([5], np.int64)), count=2)
    boxes = constant(rng.uniform(0, 1, (1, 21, 4)).astype(np.float32))
    each = node("Reshape", scores, constant(np.array([1, 1, 21], np.int64)))
    limits = (constant(np.array([9], np.int64)), constant(np.array([0.5], np.float32)))
    kept = node("NonMaxSuppression", boxes, each, *limits)
    graph = helper.make_graph(
        nodes,
        "awkward",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 13, 11])],
        [
            helper.make_tensor_value_info(average, TensorProto.FLOAT, [None] * 4),
            helper.make_tensor_value_info(best, TensorProto.FLOAT, [None] * 2),
            helper.make_tensor_value_info(kept, TensorProto.INT64, [None] * 2),
        ],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


TESTS: Final[dict[str, Callable[[], str]]] = {"ffi": ffi, "smoke": smoke, "guard": guard}

if __name__ == "__main__":
    echo(TESTS[sys.argv[1]]())
