"""Toy models that are compiled once, for all tests."""

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_plans import small_operator, small_plan

from neocpu.building.link import write_artifact
from neocpu.foundation.tensor_spec import TensorSpec
from neocpu.runtime.header import ArtifactHeader

PLAIN = {"x86_64": "llvm -mcpu=x86-64", "aarch64": "llvm -mcpu=generic"}[os.uname().machine]
"""A target that every machine of this kind can run."""


@pytest.fixture
def code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the cache of code, in tests of code generation."""
    monkeypatch.setenv("NEOCPU_CACHE_DIR", "off")


SLOW_KERNELS = ("neocpu.building.parallel_codegen", "neocpu.building.kernel_report")
"""Loggers of warnings about kernels with shortcomings."""


@pytest.fixture(autouse=True)
def no_slow_kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail tests whose kernels cause warnings, except tests of the warnings themselves."""
    records: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    loggers = [logging.getLogger(name) for name in SLOW_KERNELS]
    for logger in loggers:
        logger.addHandler(handler)
    yield
    for logger in loggers:
        logger.removeHandler(handler)
    if "caplog" not in request.fixturenames:
        assert not records


@dataclass(frozen=True)
class Toy:
    """A compiled model, its artifact and its definition in numpy."""

    built: Any
    weights: list[np.ndarray]
    header: ArtifactHeader
    path: Path
    reference: Callable[..., tuple[np.ndarray, ...]]

    def inputs(self, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [rng.uniform(-1, 1, s.shape).astype(s.dtype) for s in self.header.inputs]


def _parallel(module: Any) -> Any:
    """Run the outermost loop of every kernel on the thread pool."""
    import tvm

    for var, function in list(module.functions.items()):
        if isinstance(function, tvm.tirx.PrimFunc):
            schedule = tvm.s_tir.Schedule(function)
            for block in schedule.get_child_blocks(schedule.get_sblock("root")):
                schedule.parallel(schedule.get_loops(block)[0])
            module[var] = schedule.mod["main"].with_attr("tirx.is_scheduled", True)
    return module


def _build(
    parameters: list[tuple[str, tuple[int, ...]]], body: Callable[..., Any], **dtypes: str
) -> Any:
    """Compile ``body`` of parameters that are float32 but for ``dtypes``."""
    from tvm import relax

    builder = relax.BlockBuilder()
    variables = [
        relax.Var(name, relax.TensorType(shape, dtypes.get(name, "float32")))
        for name, shape in parameters
    ]
    with builder.function("main", variables):
        with builder.dataflow():
            result = builder.emit_output(body(builder, *variables))
        builder.emit_func_output(result)
    return build_module(_parallel(relax.transform.LegalizeOps()(builder.get())))


def build_module(module: Any) -> Any:
    """Generate the code of a module whose operators are kernels, for any CPU of this kind."""
    from neocpu.building.object_cache import open_object_cache
    from neocpu.building.parallel_codegen import OneAtATime
    from neocpu.building.pipeline import Dump, begin_build, finish_build
    from neocpu.schedules.vocabulary.target_parsing import parse_target

    with OneAtATime(open_object_cache()) as generations:
        return finish_build(begin_build(module, parse_target(PLAIN), Dump(), generations))


def _header(name: str, inputs: list[TensorSpec], outputs: list[TensorSpec]) -> ArtifactHeader:
    return ArtifactHeader(
        name=name,
        neocpu_version=version("neocpu"),
        tvm_version=version("apache-tvm"),
        ffi_version=version("apache-tvm-ffi"),
        target="llvm",
        machine=os.uname().machine,
        isa_features=(),
        threads=2,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        stored_plan=small_plan(ops=(small_operator("dense_0", workload="µ"),)).to_json(),
    )


@pytest.fixture(scope="session")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """``y = relu(x @ w + b)`` with x 4x64 and two weights."""
    from tvm import relax

    rng = np.random.default_rng(7)
    weights = [rng.normal(size=s).astype("float32") for s in ((64, 33), (33,))]
    header = _header(
        "linear", [TensorSpec("x", "float32", (4, 64))], [TensorSpec("y", "float32", (4, 33))]
    )
    header = replace(header, row_function="a row's")
    built = _build(
        [("x", (4, 64)), ("w", (64, 33)), ("b", (33,))],
        lambda bb, x, w, b: bb.emit(relax.op.nn.relu(relax.op.add(relax.op.matmul(x, w), b))),
    )
    path = tmp_path_factory.mktemp("linear") / "linear.so"
    written = write_artifact(built, weights, header, path)

    def reference(x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (np.maximum(x.astype("float64") @ weights[0] + weights[1], 0),)

    return Toy(built, weights, written, path, reference)


@pytest.fixture(scope="session")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """``y = 2 * x`` of 3x5 bfloat16 numbers."""
    import ml_dtypes
    from tvm import relax

    specs = [[TensorSpec(name, "bfloat16", (3, 5))] for name in "xy"]

    def body(bb: Any, x: Any) -> Any:
        wide = bb.emit(relax.op.astype(x, "float32"))
        doubled = bb.emit(relax.op.add(wide, wide))
        return bb.emit(relax.op.astype(doubled, "bfloat16"))

    built = _build([("x", (3, 5))], body, x="bfloat16")
    path = tmp_path_factory.mktemp("narrow") / "narrow.so"
    written = write_artifact(built, [], _header("narrow", *specs), path)

    def reference(x: np.ndarray) -> tuple[np.ndarray, ...]:
        return (x + x.astype(ml_dtypes.bfloat16),)

    return Toy(built, [], written, path, reference)


@pytest.fixture(scope="session")
def two_way(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """``(a + s * b, a)``: batch 2, two inputs, one output that is an input, and one weight."""
    from tvm import relax

    shape = (2, 3, 8, 6)
    weights = [np.random.default_rng(8).normal(size=(1, 3, 1, 1)).astype("float32")]
    header = _header(
        "two_way",
        [TensorSpec("image", "float32", shape), TensorSpec("mask", "float32", shape)],
        [TensorSpec("sum", "float32", shape), TensorSpec("same", "float32", shape)],
    )
    built = _build(
        [("image", shape), ("mask", shape), ("s", (1, 3, 1, 1))],
        lambda bb, a, b, s: bb.emit(
            relax.Tuple([bb.emit(relax.op.add(a, bb.emit(relax.op.multiply(s, b)))), a])
        ),
    )
    path = tmp_path_factory.mktemp("two_way") / "two_way.so"
    written = write_artifact(built, weights, header, path)

    def reference(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
        return a + weights[0] * b, a

    return Toy(built, weights, written, path, reference)


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    """Two convolutions, compiled as users' networks are: with activations in an arena."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    import neocpu

    rng = np.random.default_rng(9)
    weights = {
        "w1": rng.normal(size=(8, 3, 3, 3)).astype("float32"),
        "w2": rng.normal(size=(5, 8, 1, 1)).astype("float32"),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "w2"], ["y"]),
        helper.make_node("Softmax", ["y"], ["z"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 5, 4, 4])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    path = tmp_path_factory.mktemp("small") / "small.so"
    # Rows of pixels are the tasks of that algorithm, which a trace shows.
    plan = {"only_databases": True, "algorithms": ["nchw"]}
    with neocpu.compile(model, threads=1, **plan) as compiled:
        header = compiled.export(path)

    def reference(x: np.ndarray) -> tuple[np.ndarray, ...]:
        from onnx.reference import ReferenceEvaluator

        return tuple(ReferenceEvaluator(model).run(None, {"x": x}))

    return Toy(None, list(weights.values()), header, path, reference)
