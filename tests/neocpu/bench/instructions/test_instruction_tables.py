"""``neocpu bench instructions``: what it says of counts, and what it refuses."""

import json

import pytest
from conv_workloads import conv_workload
from synthetic import MACHINE

from neocpu.bench.instructions import convolution_counter, instruction_count
from neocpu.bench.instructions.arm_kernels import Kernel
from neocpu.bench.instructions.convolution_counter import summarise
from neocpu.bench.instructions.instruction_count import Executed
from neocpu.bench.instructions.instruction_report import (
    EngineCount,
    HotLoop,
    InstructionReport,
    KernelCounts,
)
from neocpu.bench.instructions.instruction_tables import render, tables
from neocpu.bench.instructions.throughput_model import Throughput
from neocpu.bench.results.document import Run
from neocpu.bench.results.failure import ModelFailure
from neocpu.cli.main import main
from neocpu.foundation.errors import NeoCPUError, UsageError
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.target import parse_target

TARGET = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72")
WORKLOAD = conv_workload(1, 16, 10, 10, 16, (1, 1))
KERNEL = Kernel(WORKLOAD, registry.schemes(WORKLOAD, TARGET)[0])
LOOPS = (HotLoop(100, Throughput(20, 16.0, 16.0)), HotLoop(10, Throughput(30, 16.0, 32.0)))
OWN = EngineCount("neocpu", "1.2", 8960, 6400.0, LOOPS, 0.95)
PEER = EngineCount("ncnn", "2026", 12800, 6400.0, LOOPS[1:], 0.91)
FAILURE = ModelFailure("onnxruntime", NeoCPUError("it does not run"))
REPORT = InstructionReport("net", (KernelCounts(KERNEL, (OWN, PEER), (FAILURE,)),))


def test_tables_put_the_engines_side_by_side():
    per_mac, bound, details = tables([REPORT], [ModelFailure("other", NeoCPUError("broken"))])
    assert per_mac.header == ("convolution", "neocpu", "ncnn", "onnxruntime")
    assert per_mac.rows == ((str(WORKLOAD), "0.350", "0.500", "failed"),)
    assert any("it does not run" in note for note in per_mac.notes)
    assert "other failed: broken" in per_mac.notes
    # 1600 + 160 cycles of multiply-adds in 1600 + 320.
    assert bound.rows == ((str(WORKLOAD), "91.7%", "50.0%", "failed"),)
    assert bound.notes == ("neocpu's worst: 91.7%.",)
    assert [row[1] for row in details.rows] == ["neocpu", "ncnn"]
    assert details.rows[0][2:] == (
        *("0.0", "0.01", "0.01", "1.40", "2", "95%", "20", "16", "16.0"),
        str(KERNEL.scheme),
    )


def test_the_document_says_how_it_was_counted():
    run = Run("neocpu bench net --instructions", MACHINE, ("ncnn",), (1,), 0)
    text = render("Convolutions", [REPORT], [], run)
    assert text.startswith("# Convolutions\n")
    assert "llvm-mca" in text
    assert "### Instructions per MAC" in text


def test_what_was_executed_is_summed_up(monkeypatch):
    texts = {1: "fmla v0.4s, v1.4s, v2.s[0]", 2: "b.ne #-4", 3: "ldr q0, [x0]"}
    monkeypatch.setattr(convolution_counter, "disassemble", lambda words: texts)
    modelled = []

    def model(body, cpu):
        modelled.append((body, cpu))
        return Throughput(2, 1.0, 4.0)

    monkeypatch.setattr(convolution_counter, "model", model)
    found = summarise("neocpu", "1", [Executed(0, 1, 100), Executed(4, 2, 100), Executed(8, 3, 7)])
    assert modelled == [((texts[1], texts[2]), "cortex-a72")]
    assert (found.instructions, found.multiply_adds, found.covered) == (207, 100.0, 1.0)
    assert found.bound_share == 0.25
    assert summarise("neocpu", "1", [Executed(8, 3, 7)]).bound_share == 0.0


@pytest.fixture
def counted(monkeypatch):
    """The command, with everything but the counting itself, and the programs that count."""
    monkeypatch.setattr(convolution_counter, "require_tools", lambda: None)
    monkeypatch.setattr(instruction_count, "tool_versions", lambda: {"QEMU": "7.2", "LLVM": "14.0"})

    def outcomes(models, request, on_progress):
        yield from reports

    reports = [REPORT]
    monkeypatch.setattr(convolution_counter, "count_models", outcomes)
    return reports


def test_the_command_prints_and_writes(counted, capsys, tmp_path):
    page = tmp_path / "arm.md"
    assert (
        main(["bench", "instructions", "resnet18", "--vs", "ncnn", "--json", "-o", str(page)]) == 0
    )
    (result,) = json.loads(capsys.readouterr().out)["results"]
    engines = result["kernels"][0]["engines"]
    assert [(e["engine"], e["instructions"]) for e in engines] == [
        ("neocpu", 8960),
        ("ncnn", 12800),
    ]
    text = page.read_text()
    assert text.startswith("# Convolutions on a cortex-a72: resnet18\n")
    assert "QEMU 7.2" in text


def test_a_failure_of_our_own_fails_the_command(counted, capsys):
    failure = ModelFailure("neocpu", NeoCPUError("the kernel is wrong"))
    counted[:] = [InstructionReport("net", (KernelCounts(KERNEL, (PEER,), (failure,)),))]
    assert main(["bench", "instructions", "resnet18"]) == 1
    assert "the kernel is wrong" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--vs", "openvino"), "neocpu bench instructions counts ncnn, onnxruntime, not openvino"),
        (("--threads", "1"), "no option --threads"),
        (("--sysroot", "nowhere"), "no AArch64 system in nowhere"),
    ],
)
def test_what_does_not_go_with_it(options, words, monkeypatch, capsys):
    monkeypatch.setattr(convolution_counter, "require_tools", lambda: None)
    assert main(["bench", "instructions", "resnet18", *options]) == UsageError.exit_code
    assert words in capsys.readouterr().err


def test_the_system_goes_with_this_view_alone(capsys):
    assert main(["bench", "resnet18", "--sysroot", "elsewhere"]) == UsageError.exit_code
    assert "no option --sysroot" in capsys.readouterr().err
