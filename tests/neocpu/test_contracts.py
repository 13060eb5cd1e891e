"""A template and an operator in one file each are known everywhere: see toy_operators."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import toy_operators
from onnx import helper, numpy_helper
from toy_operators import ToyScheme

import neocpu
from neocpu.bench.limits.roofline import Limits
from neocpu.foundation.errors import UsageError
from neocpu.plan.profiling.operator_times import measure_profile
from neocpu.schedules import registry

LIMITS = Limits(threads=1, flops=1e11, dram=1e10, cache=1_000_000, cache_read=4e10)


@pytest.fixture(autouse=True)
def toys():
    with toy_operators.registered():
        yield


def model():
    """Convolutions with odd channels, padding, a stride and a residual; a global maximum."""
    rng = np.random.default_rng(0)

    def weights(name, *shape):
        values = rng.standard_normal(shape, np.float32) / np.sqrt(np.prod(shape[1:]))
        return numpy_helper.from_array(values.astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["a"], kernel_shape=[3, 3], pads=[1, 0, 0, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"], strides=[2, 2]),
        helper.make_node("Conv", ["b", "w2"], ["d"], strides=[2, 2]),
        helper.make_node("Add", ["c", "d"], ["e"]),
        helper.make_node("GlobalMaxPool", ["e"], ["f"]),
        helper.make_node("Conv", ["f", "w3"], ["y"]),
    ]
    shapes = {"x": (2, 5, 9, 11), "y": (2, 7, 1, 1)}
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in shapes.items()]
    constants = [weights("w0", 19, 5, 3, 3), weights("b0", 19), weights("w1", 33, 19, 1, 1)]
    constants += [weights("w2", 33, 19, 1, 1), weights("w3", 7, 33, 1, 1)]
    graph = helper.make_graph(nodes, "toys", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def operators(compiled):
    return {op.name: op for op in compiled.plan.ops}


def test_a_network_is_planned_compiled_checked_and_explained(tmp_path):
    kept = {"threads": 2, "disable_rules": ["sum-convolutions"]}
    with neocpu.compile(model(), algorithms=["toy"], **kept) as compiled:
        plan = operators(compiled)
        assert plan["global_max_0"].kernel == "global_max_0"
        convolutions = [op for name, op in plan.items() if name.startswith("conv2d")]
        assert len(convolutions) == 4
        assert {op.scheme.template for op in convolutions} == {"conv2d_toy"}
        assert compiled.plan.verification.kept
        assert compiled.plan.accuracy.name == "default"


def test_a_profile_names_custom_templates_and_operators(tmp_path):
    path = tmp_path / "toys.so"
    with neocpu.compile(model(), threads=1, algorithms=["toy"], verify=False) as compiled:
        compiled.export(path)
        plan = compiled.plan
    report = measure_profile(path, plan, LIMITS, rounds=2)
    assert {"convolution, toy", "global_max"} <= {one.kind for one in report.operators}


def test_custom_templates_are_tuned_into_a_database_and_chosen_from_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    database = tmp_path / "records.jsonl"
    report = neocpu.tune(
        [model()], threads=2, database=database, only_database=True, strategy="grid"
    )
    assert report.measured > 0
    with neocpu.compile(
        model(), threads=2, databases=[database], only_databases=True, algorithms=["toy"]
    ) as compiled:
        convolutions = [op for op in compiled.plan.ops if op.kind == "conv2d"]
        assert {op.cost_source for op in convolutions} == {"measured"}
        assert {op.scheme.template for op in convolutions} == {"conv2d_toy"}


def test_unregistered_templates_are_unknown():
    registry.unregister("conv2d_toy")
    try:
        with pytest.raises(UsageError, match="unknown algorithm 'toy'"):
            neocpu.compile(model(), algorithms=["toy"])
    finally:
        registry.register(toy_operators.TEMPLATE)


def test_names_are_taken_once():
    with pytest.raises(UsageError, match="a template's name is its own"):
        registry.register(toy_operators.TEMPLATE)
    assert registry.template(ToyScheme(8, 8)) is toy_operators.TEMPLATE
