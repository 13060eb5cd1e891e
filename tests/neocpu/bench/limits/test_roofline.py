"""The arithmetic of the roofline, and that limits are measured."""

import json
import subprocess

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from neocpu.bench.limits.roofline import Limits, Roofline, measure_limits, work_of
from neocpu.foundation.errors import TargetError
from neocpu.foundation.machine.machine_info import OtherLoad
from neocpu.foundation.python_child import module_command, program_command
from neocpu.frontend.load import load_model


def _model(nodes, shape, output, weights):
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
        [
            numpy_helper.from_array(np.full(size, 0.5, np.float32), name)
            for name, size in weights.items()
        ],
    )
    opsets = [helper.make_opsetid("", 20)]
    return load_model(helper.make_model(graph, opset_imports=opsets, ir_version=9))


@pytest.mark.parametrize(
    ("node", "shape", "weights", "output", "macs"),
    [
        # Conv: output pixels times the kernel, over the input channels of one group.
        (("Conv", {"pads": [1] * 4}), (2, 4, 8, 8), (6, 4, 3, 3), (2, 6, 8, 8), 768 * 36),
        (("Conv", {"group": 2}), (1, 4, 8, 8), (6, 2, 1, 1), (1, 6, 8, 8), 384 * 2),
        (("Conv", {"group": 4, "strides": [2, 2]}), (1, 4, 8, 8), (4, 1, 2, 2), (1, 4, 4, 4), 256),
        # Each input pixel is spread over the kernel of every output channel of its group.
        (("ConvTranspose", {"strides": [2, 2]}), (1, 4, 3, 3), (4, 5, 2, 2), (1, 5, 6, 6), 36 * 20),
        (("Gemm", {"transB": 1}), (3, 64), (10, 64), (3, 10), 1920),
        (("Gemm", {"transA": 1}), (64, 3), (64, 10), (3, 10), 1920),
        (("MatMul", {}), (2, 3, 64), (64, 10), (2, 3, 10), 3840),
    ],
)
def test_work_is_counted_by_hand(node, shape, weights, output, macs):
    kind, attributes = node
    made = helper.make_node(kind, ["x", "w"], ["y"], **attributes)
    work = work_of(_model([made], shape, output, {"w": weights}))
    assert work.flops == 2 * macs
    assert work.bytes == 4 * (np.prod(shape) + np.prod(weights) + np.prod(output))


def test_everything_else_is_free_but_its_weights_move():
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p", "v"], ["y"]),
    ]
    model = _model(nodes, (1, 3, 8, 8), (1, 2, 4, 4), {"w": (4, 3, 1, 1), "v": (2, 4, 1, 1)})
    work = work_of(model)
    assert work.flops == 2 * (4 * 64 * 3 + 2 * 16 * 4)
    assert work.bytes == 4 * (3 * 64 + 2 * 16 + 12 + 8)


@pytest.mark.parametrize(
    ("flops", "size", "bound", "seconds"),
    [(1e9, 1e6, "compute", 0.01), (1e6, 1e9, "memory", 0.1), (1e6, 1e4, "compute", 1e-5)],
)
def test_the_nearer_limit_counts(flops, size, bound, seconds):
    limits = Limits(threads=2, flops=1e11, dram=1e10, cache=100_000)
    line = Roofline("net", 0.2, int(flops), int(size), limits)
    assert line.bound == bound
    assert line.lower_bound == pytest.approx(seconds)
    assert line.share == pytest.approx(seconds / 0.2)
    assert line.fma_share == pytest.approx(flops / 0.2 / 1e11)
    assert line.dram_share == pytest.approx(size / 0.2 / 1e10)
    json.dumps(line.to_json())


def test_limits_are_measured_in_another_process(monkeypatch):
    real = subprocess.run
    quick = (
        "import dataclasses, json, sys\n"
        "from neocpu.bench.limits import peak\n"
        "from neocpu.schedules.vocabulary.target_parsing import host_target\n"
        "measured = peak.measure_peak(host_target(), int(sys.argv[1]), 1, 1 << 20)\n"
        "print(json.dumps(dataclasses.asdict(measured)))"
    )

    def run(command, **options):
        assert command == module_command("neocpu.bench.limits.peak", 2)
        return real(program_command(quick, 2), **options)

    monkeypatch.setattr(subprocess, "run", run)
    limits = measure_limits(2)
    assert limits.threads == 2
    assert limits.flops > 1e8
    assert limits.dram > 1e7
    assert limits.cache_read > 1e7 or not limits.cache
    json.dumps(limits.to_json())


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("MemoryError: too much", "MemoryError: too much"),
        ("neocpu.foundation.errors.ArtifactError: x.so: cut short", "x.so: cut short"),
        ("", "exit code 1"),
    ],
)
def test_limits_that_cannot_be_measured_are_an_error(monkeypatch, said, told):
    failed = subprocess.CompletedProcess([], 1, "", f"Traceback\n{said}\n" if said else "")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(TargetError, match=f"^cannot measure this machine's limits: {told}$"):
        measure_limits(2)


def test_limits_of_a_busy_machine_say_so():
    assert Limits(threads=2, flops=1e9, dram=1e9, load=OtherLoad(0.0, 0.0)).warnings == ()
    (warning,) = Limits(threads=2, flops=1e9, dram=1e9, load=OtherLoad(0.8, 0.0)).warnings
    assert "other programs used 0.8 CPUs" in warning
