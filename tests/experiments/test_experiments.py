"""Every experiment runs."""

import onnx
import pytest

from neocpu.bench.race.latency import LatencyOptions
from neocpu.frontend.models.network_builder import NetworkBuilder
from neocpu.frontend.shapes.input_shapes import NO_SHAPES
from neocpu.schedules.vocabulary.target_parsing import parse_target
from tests.experiments import ablation, solvers
from tests.experiments.instructions.arm_kernels import hot_kernels
from tests.experiments.instructions.convolution_counter import HOT
from tests.experiments.instructions.hot_loops import hottest, innermost_loops
from tests.experiments.instructions.instruction_count import parse_counts


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    net = NetworkBuilder("tiny", (1, 8, 12, 12), seed=0)
    x = net.relu(net.conv(net.input, "conv1", 16, 3, padding=1), "relu1")
    path = tmp_path_factory.mktemp("tiny") / "tiny.onnx"
    onnx.save(net.finish(net.classifier(net.conv(x, "conv2", 16, 1), "fc", 10)), path)
    return str(path)


@pytest.mark.slow
def test_levels_are_compared(tiny):
    variants = {"nchw": ["--opt", "nchw"], "global": []}
    options = LatencyOptions(rounds=2, round_seconds=0.01, warmup_seconds=0.0)
    report = ablation.measure(tiny, variants, threads=1, options=options)
    table = ablation.table({"a": report, "b": report}, tuple(variants))
    assert table.header == ("model", "global", "global ms")
    assert [row[0] for row in table.rows] == ["a", "b", "geometric mean"]


def test_solvers_are_compared(tiny, capsys):
    assert solvers.main([tiny, "--threads", "1", "--milp-seconds", "60"]) == 0
    *_, row = (line for line in capsys.readouterr().out.splitlines() if line.startswith("|"))
    assert row.startswith("| tiny |")
    assert "| equal |" in row or "| - |" in row


def test_hot_convolutions_are_those_of_a_network(tiny):
    target = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72")
    kernels = hot_kernels(tiny, target, NO_SHAPES)
    assert (3, 3) in {kernel.workload.kernel for kernel in kernels}


def test_the_loop_that_multiplies_is_found():
    words = {1: "fmla v0.4s, v1.4s, v2.4s", 2: "b.ne #-4", 3: "ret"}
    executed = parse_counts("0 100 0000000100000002\n8 1 00000003\n")
    assert [each.times for each in executed] == [100, 100, 1]
    (loop,) = hottest(innermost_loops(executed, words), 100, HOT)
    assert (loop.iterations, loop.work, len(loop.body)) == (100, 100.0, 2)
