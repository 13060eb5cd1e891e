"""Which convolutions of a network are counted."""

import onnx
import pytest

from neocpu.bench.instructions.arm_kernels import hot_kernels
from neocpu.frontend.models.network_builder import NetworkBuilder
from neocpu.frontend.shapes.input_shapes import NO_SHAPES
from neocpu.schedules.vocabulary.target import parse_target

TARGET = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72")


@pytest.fixture
def network(tmp_path, monkeypatch):
    """Path of a network whose 1x1 convolutions of 16 channels do more in sum than a wider one."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    net = NetworkBuilder("net", (2, 16, 16, 16), seed=0)
    first = net.relu(net.conv(net.input, "first", 16, 3, padding=1, bias=True), "relu")
    x = first
    for name in ("one", "two", "three"):
        x = net.relu(net.conv(x, name, 16, 1, bias=True), f"relu_{name}")
    x = net.relu(net.add(net.conv(x, "residual", 16, 3, padding=1, bias=True), first, "add"), "r")
    x = net.conv(x, "wide", 32, 1, bias=True)
    x = net.conv(x, "deep", 32, 3, padding=1, groups=32, bias=True)
    x = net.conv(net.global_average_pool(x, "pool"), "negligible", 8, 1, stride=2, bias=True)
    path = tmp_path / "net.onnx"
    onnx.save(net.finish(x), path)
    return str(path)


def test_the_hottest_of_each_kind_that_matters(network):
    kernels = hot_kernels(network, TARGET, NO_SHAPES)
    workloads = [kernel.workload for kernel in kernels]
    found = [(w.kernel, w.stride, w.groups, w.out_channels) for w in workloads]
    assert found == [((3, 3), (1, 1), 1, 16), ((1, 1), (1, 1), 1, 16), ((3, 3), (1, 1), 32, 32)]
    # One image, and nothing that not every engine fuses.
    assert all(workload.batch == 1 for workload in workloads)
    steps = [[op.kind for op in workload.epilogue] for workload in workloads]
    assert steps == [["bias_add", "relu"], ["bias_add", "relu"], ["bias_add"]]
    assert kernels[0].macs == 16 * 16 * 16 * 16 * 9
    assert all(kernel.scheme.in_layout.block <= 16 for kernel in kernels)
