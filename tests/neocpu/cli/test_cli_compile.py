"""``neocpu compile``: from the options to the artifact, and every bad input on the way."""

import inspect
import os
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import numpy as np
import onnx
import onnxruntime
import pytest
from command_line import conv_model
from conv_workloads import conv_workload
from onnx import TensorProto, helper

import neocpu
from neocpu.compilation.compiler import compile as neocpu_compile
from neocpu.foundation.errors import UsageError
from neocpu.foundation.units import size
from neocpu.frontend.processing.processing import NO_PROCESSING
from neocpu.runtime.artifact import read_header
from neocpu.search.tuner import TaskReport, TuneReport
from neocpu.search.tuning_state import TuningTask
from neocpu.verification.reference.runner import run_reference


class Stop(UsageError):
    """Raised instead of compiling."""


@pytest.fixture
def compile_calls(monkeypatch):
    """Record the calls of `neocpu.compile`, which do not return."""
    calls = []

    def record(model, **settings):
        settings.pop("on_progress")
        calls.append((model, settings))
        raise Stop("stop")

    monkeypatch.setattr(neocpu, "compile", record)
    return calls


class TestOptions:
    def test_defaults_are_those_of_python(self, cli, compile_calls):
        cli("compile", "resnet50")
        parameters = inspect.signature(neocpu_compile).parameters.values()
        defaults = {one.name: one.default for one in parameters} | {"shapes": {}}
        assert compile_calls == [
            ("resnet50", {n: d for n, d in defaults.items() if n not in ("model", "on_progress")})
        ]

    def test_all(self, cli, compile_calls):
        line = (
            "compile net.onnx -o net.so --target llvm -mcpu=skylake-avx512 -mattr=+avx2 "
            "--shape x:1,3,8,8..32/8 --shape y:0:4 --typical x:1,3,8,16 --batch 2 "
            "--threads 3 --db a --db b --only-db --tune-budget 10m --opt uniform "
            "--algorithms direct,depthwise --no-verify "
            "--solver dp --search-seconds 0.5 --max-weights 120MB --accuracy strict "
            "--no-pack-at-load "
            "--precision int8 --small --max-error 0.01 "
            "--disable-rule fold-scale,drop-slice --disable-rule merge-slices "
            "--goal throughput"
        )
        cli(*line.split())
        assert compile_calls[0][1] == {
            "target": "llvm -mcpu=skylake-avx512 -mattr=+avx2",
            "goal": "throughput",
            "threads": 3,
            "shapes": {"x": (1, 3, 8, range(8, 33, 8)), "y:0": (4,)},
            "typical": {"x": (1, 3, 8, 16)},
            "batch": 2,
            "databases": (Path("a"), Path("b")),
            "only_databases": True,
            "tune_budget": 600.0,
            "opt": "uniform",
            "algorithms": ("direct", "depthwise"),
            "accuracy": "strict",
            "precision": "int8",
            "max_error": 0.01,
            "small": True,
            "max_weights": 120_000_000,
            "pack_at_load": False,
            "solver": "dp",
            "search_seconds": 0.5,
            "verify": False,
            "processing": NO_PROCESSING,
            "disable_rules": ("fold-scale", "drop-slice", "merge-slices"),
        }

    def test_choices_are_those_of_the_compiler(self):
        from neocpu.cli import compile as command
        from neocpu.compilation import compile_options
        from neocpu.planning.optimisation_levels import OptLevel
        from neocpu.search.solver.plan import Solver

        assert command.GOALS == compile_options.GOALS
        assert set(command.OPT_LEVELS) == {str(known) for known in OptLevel}
        assert get_args(Solver) == command.SOLVERS

    @pytest.mark.parametrize(
        "output", ["missing/net.so", ".", "/sys/kernel/net.so" if os.path.isdir("/sys") else "."]
    )
    def test_destination_is_checked_first(self, cli, compile_calls, output):
        cli("compile", "net.onnx", "-o", output).fails(2, "cannot write")
        assert compile_calls == []

    def test_an_artifact_in_the_place_of_the_model(self, cli, compile_calls, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        Path("net.so").write_bytes(b"\x7fELF")
        cli("compile", "net.so").fails(
            2, "net.so would be written over: if it is compiled already, neocpu run net.so"
        )
        assert compile_calls == []

    def test_output_may_be_called_as_a_network(self, cli, compile_calls):
        assert cli("compile", "resnet50", "-o", "resnet50").error.endswith("stop")
        assert len(compile_calls) == 1

    def test_interrupted_while_tuning(self, cli, monkeypatch, tmp_path):
        database = tmp_path / "records.jsonl"
        database.write_text("{}\n")

        def interrupted(model, **settings):
            database.write_text("{}\n" * 4)
            raise KeyboardInterrupt

        monkeypatch.setattr(neocpu, "compile", interrupted)
        cli("compile", "resnet50", "--tune-budget", "9", "--db", database).fails(
            130, f"interrupted; 3 measurements kept in {database}"
        )


class TestIntegers:
    @pytest.mark.parametrize("how", [["--precision", "int8"], ["--fat", "avx2:int8,avx512"]])
    def test_of_a_float32_model_need_data(self, cli, onnx_file, how):
        outcome = cli("compile", onnx_file, "-o", "out.so", *how)
        assert (outcome.code, outcome.out) == (2, "")
        assert "--precision int8 is for quantised models" in outcome.error
        assert "--calibrate" in outcome.error
        assert not Path("out.so").exists()


class TestRecords:
    def test_where_they_went_and_how_many(self, cli, onnx_file, monkeypatch):
        counts = {"measured": 3, "reused": 2, "failed": 1, "left": 9}
        best = SimpleNamespace(result=SimpleNamespace(best=20e-6))
        task = TuningTask(conv_workload(1, 8, 8, 8, 8, (1, 1)), (2,))
        tuned = TaskReport(
            task=task, best=best, estimate=None, **counts, noise=0.01, checked=True, before=30e-6
        )
        measured = TuneReport((tuned,), 1.5, 0.042)
        monkeypatch.setattr("neocpu.compilation.compile_each.tune_networks", lambda *_: measured)
        line = ("compile", onnx_file, "-o", "x.so", "--only-db", "--db", "r.jsonl")
        outcome = cli(*line, "--tune-budget", "2s").succeeds()
        *_, title, what, layers, most, left, kept = outcome.out.splitlines()
        assert title == "tuning:"
        assert what.endswith(
            "3 schemes in 1.5 s, 1 failed; known from records: 2 schemes (1 of 1 layer); 9 left "
            "to their estimates"
        )
        assert layers.endswith(
            "1 of 1 measured: 60.0 µs as chosen before, 40.0 µs now, 1.50 times as fast"
        )
        assert most.endswith(f"{task.workload} (2 times) 30.0 µs to 20.0 µs")
        assert left == "  left to gain  about 4.2% of a network's time"
        assert kept == (
            "  kept          3 measurements kept in r.jsonl; 1 winner checked against the reference"
        )
        report = cli(*line, "--tune-budget", "1s", "--json").json
        assert report["database"] == "r.jsonl"
        assert {**report["tuning"], **counts} == report["tuning"]
        assert report["tuning"]["now_us"] == pytest.approx(40.0)
        assert report["tuning"]["gained_most"][0]["before_us"] == pytest.approx(30.0)

    @pytest.mark.parametrize(
        ("reused", "known"),
        [
            ((2, 5), "7 schemes (2 of 2 layers)"),
            ((0, 5), "5 schemes (1 of 2 layers)"),
            ((0, 0), "0 schemes (0 of 2 layers)"),
        ],
    )
    def test_what_nothing_was_measured_for(self, cli, onnx_file, monkeypatch, reused, known):
        task = TuningTask(conv_workload(1, 8, 8, 8, 8, (1, 1)), (2,))
        rest = {"measured": 0, "failed": 0, "left": 3, "noise": None, "checked": False}
        tasks = [
            TaskReport(task=task, best=None, estimate=None, reused=n, **rest, before=None)
            for n in reused
        ]
        monkeypatch.setattr(
            "neocpu.compilation.compile_each.tune_networks",
            lambda *_: TuneReport(tuple(tasks), 1.5, 0.0),
        )
        line = ("compile", onnx_file, "--only-db", "--db", "r.jsonl", "--tune-budget", "2s")
        outcome = cli(*line, "--no-verify").succeeds()
        assert outcome.out.splitlines()[-3:] == [
            "tuning:",
            f"  measured      nothing; known from records: {known}; 6 left to their estimates",
            "  left to gain  about 0.0% of a network's time",
        ]


class TestCompiles:
    def test_and_says_what_was_decided(self, cli, onnx_file):
        outcome = cli("compile", onnx_file, "--threads", 1).succeeds()
        for name in (
            "target         llvm -mtriple=",
            "threads        1",
            "opt            global",
            "convolutions   1 with 1 distinct scheme",
            "transforms     ",
            "search         ",
            "largest error  ",
        ):
            assert f"\n  {name}" in outcome.out
        assert ", proven optimal" in outcome.out
        assert "not proven" not in outcome.err
        assert "neocpu: build" in outcome.err
        header = read_header("small.so")
        assert header.name == "small"
        assert header.threads == 1

    def test_for_throughput(self, cli, onnx_file):
        outcome = cli("compile", onnx_file, "--goal", "throughput", "--threads", 2, "--no-verify")
        assert "\n  goal           throughput of 2 calls at once\n" in outcome.out
        assert "throughput of 2 calls at once" in cli("explain", "small.so").out
        assert "planned for 1, with 2 calls at once" in cli("inspect", "small.so").out

    def test_quietly(self, cli, onnx_file):
        outcome = cli("compile", onnx_file, "--quiet")
        assert (outcome.code, outcome.err) == (0, "")
        (line,) = outcome.out.splitlines()
        assert line.startswith(f"small.so: {size(Path('small.so').stat().st_size)} in ")

    def test_json(self, cli, onnx_file):
        outcome = cli("compile", onnx_file, "-o", "x.so", "--json", "--opt", "nchw")
        report = outcome.json
        assert report["artifact"] == "x.so"
        assert report["bytes"] == Path("x.so").stat().st_size
        assert report["opt"] == "nchw"
        assert report["convolutions"] == 1
        assert report["verification"]["max_abs_error"] < 1e-4
        assert report["search"]["gap"] >= 0
        assert {"import", "build", "verify"} <= set(report["phases"])
        assert 50e6 < report["peak_bytes"] < 20e9

    def test_without_verification(self, cli, onnx_file):
        report = cli("compile", onnx_file, "--json", "--no-verify").json
        assert report["verification"] is None
        assert report["unchecked"] == "--no-verify"
        assert report["obstacle"] is None
        assert report["rules"]["disabled"] == []

    def test_what_this_host_cannot_run_says_so(self, cli, onnx_file, monkeypatch):
        """The host is one without any instruction sets."""
        for module in ("neocpu.compilation.compile_each", "neocpu.foundation.instruction_sets"):
            monkeypatch.setattr(f"{module}.host_features", lambda: frozenset())
        outcome = cli("compile", onnx_file, "-o", "x.so").succeeds()
        lines = {" ".join(line.split()) for line in outcome.out.splitlines()}
        (reason,) = (line.partition(": ")[2] for line in lines if line.startswith("largest error"))
        assert outcome.out.count("largest error  not checked: this host lacks ") == 1
        assert f"runs here no, {reason}" in lines
        assert f"largest error not checked: {reason}" in " ".join(
            cli("explain", "x.so").out.split()
        )
        plan = cli("explain", "x.so", "--json").json
        assert (plan["verification"], plan["unchecked"]) == (None, reason)

    def test_dynamic_dimensions(self, cli):
        onnx.save(conv_model(dims=["batch", 3, "h", "w"]), "dynamic.onnx")
        cli("compile", "dynamic.onnx").fails(3, "--shape image:1,3,224,224")
        assert cli("compile", "dynamic.onnx", "--shape", "image:2,3,9,7", "-q").code == 0
        assert read_header("dynamic.so").inputs[0].shape == (2, 3, 9, 7)

    def test_like_onnx_runtime(self, cli, onnx_file):
        assert cli("compile", onnx_file, "-q").code == 0
        image = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)
        np.save("image.npy", image)
        assert cli("run", "small.so", "--input", "image.npy", "-o", "out.npz").code == 0
        session = onnxruntime.InferenceSession(onnx_file, providers=["CPUExecutionProvider"])
        (expected,) = session.run(None, {"image": image})
        np.testing.assert_allclose(np.load("out.npz")["features"], expected, 1e-3, 1e-4)


class TestRefuses:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (None, "no such model file: 'net.onnx'"),
            (b"", "'net.onnx' is empty"),
            (b"\x89PNG\r\n\x1a\n", "not an ONNX model"),
            (conv_model().SerializeToString()[:-40], "truncated"),
        ],
    )
    def test_what_is_no_model(self, cli, content, message):
        if content is not None:
            Path("net.onnx").write_bytes(content)
        cli("compile", "net.onnx").fails(3, message)
        assert not Path("net.so").exists()

    def test_a_folder(self, cli):
        Path("net.onnx").mkdir()
        assert cli("compile", "net.onnx").code == 3

    def test_unknown_operators_naming_them_all(self, cli):
        model = conv_model()
        for name in ("Frobnicate", "Defenestrate"):
            model.graph.node.append(helper.make_node(name, ["sums"], [name], domain="my.own"))
            model.graph.output.append(
                helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8, 16, 16])
            )
        model.opset_import.append(helper.make_opsetid("my.own", 1))
        onnx.save(model, "net.onnx")
        cli("compile", "net.onnx").fails(4, "Frobnicate", "Defenestrate")

    @pytest.mark.parametrize(
        ("target", "message"),
        [
            ("llvm -mcpu=skylake-avx51", "did you mean 'skylake-avx512'?"),
            ("llvm -mcup=skylake-avx512", "unknown target option -mcup"),
            ("llvm -mattr=+avx3", "unknown feature; did you mean 'avx"),
            ("cuda", "'cuda' is not supported"),
            ("{", "not valid JSON"),
        ],
    )
    def test_unknown_targets(self, cli, onnx_file, target, message):
        cli("compile", onnx_file, "--target", *target.split()).fails(5, message)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ("--solver exact --search-seconds 1", "--search-seconds is for --solver auto or dp"),
            ("--solver pbqp --search-seconds 1", "--search-seconds is for --solver auto or dp"),
            ("--accuracy strikt", "did you mean 'strict'?"),
            ("--disable-rule fold-scales", "did you mean 'fold-scale'?"),
            ("--algorithms dirct", "did you mean 'direct'?"),
            ("--shape imag:1,3,16,16", "did you mean 'image'?"),
            ("--only-db --batch 2 --shape image:1,3,16,16", "contradict each other"),
        ],
    )
    def test_options_that_cannot_be(self, cli, onnx_file, options, message):
        cli("compile", onnx_file, *options.split()).fails(2, message)

    def test_a_wrong_result_and_writes_nothing(self, cli, onnx_file, monkeypatch):

        def wrong(model, inputs, **how):
            right = run_reference(model, inputs, **how)
            return {name: array + 1 for name, array in right.items()}

        monkeypatch.setattr("neocpu.verification.reference.oracles.run_reference", wrong)
        Path("small.so").write_text("what was here before")
        cli("compile", onnx_file).fails(6, "please report what 'neocpu reduce' leaves")
        assert Path("small.so").read_text() == "what was here before"

    @pytest.mark.parametrize("others", [(), ("--db", "new.jsonl")])
    def test_a_missing_database(self, cli, onnx_file, others):
        cli("compile", onnx_file, "--db", "missing.jsonl", *others).fails(
            7, "missing.jsonl", "--db"
        )


class TestCalibration:
    """``--calibrate`` and its related options."""

    def test_options_arrive(self, cli, monkeypatch):
        calls = []

        def record(*given, **named):
            calls.append((given, named))
            raise Stop("stop")

        monkeypatch.setattr(neocpu, "compile_calibrated", record)
        cli(*"compile net.onnx --calibrate a.npz --samples 5 --max-error 0.2 --bgr".split())
        ((model,), named) = calls[0]
        how = named["how"]
        assert (model, named["calibration"]) == ("net.onnx", "a.npz")
        assert (how.samples, how.pictures.bgr) == (5, True)
        assert (named["max_error"], named["min_agreement"]) == (0.2, None)
        assert named["precision"] == "auto"

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ("--min-agreement 0.9", "needs --calibrate"),
            ("--calibrate a.npz --precision fp32", "not fp32"),
            ("--calibrate a.npz --fat avx2:fp32,sse:fp32", "not fp32"),
            ("--calibrate a.npz --min-agreement 2", "not in the range"),
        ],
    )
    def test_mistakes(self, cli, words, message):
        cli("compile", "net.onnx", *words.split()).fails(2, message)
