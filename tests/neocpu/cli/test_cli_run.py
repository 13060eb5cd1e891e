"""``neocpu run``: arrays in, arrays out, and every bad input on the way."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import environment, imported
from file_limits import run_with_files_up_to

from neocpu.building.link import write_artifact
from neocpu.cli.array_files.arrays import write_archive
from neocpu.foundation.tensor_spec import TensorSpec


class TestInputs:
    def test_random_ones_follow_the_seed(self, cli, linear):
        results = []
        for number, seed in enumerate((1, 1, 2)):
            outcome = cli("run", linear.path, "--seed", seed, "-o", f"{number}.npz").succeeds()
            assert ", random" in outcome.out
            results.append(np.load(f"{number}.npz")["y"])
        assert np.array_equal(results[0], results[1])
        assert not np.array_equal(results[0], results[2])

    @pytest.mark.parametrize("form", ["single", "named", "archive", "in order"])
    def test_of_one_input(self, cli, linear, form):
        (x,) = linear.inputs()
        np.save("x=1.npy", x)
        np.savez("named.npz", x=x)
        np.savez("in order.npz", x)
        option = {
            "single": ["--input", "x=1.npy"],
            "named": ["--input", "x=x=1.npy"],
            "archive": ["--inputs", "named.npz"],
            "in order": ["--inputs", "in order.npz"],
        }[form]
        if form == "single":  # a name with "=" in it, and no file "1.npy"
            Path("x=1.npy").rename("plain.npy")
            option = ["--input", "plain.npy"]
        outcome = cli("run", linear.path, *option, "--outputs", "y.npz").succeeds()
        assert ", random" not in outcome.out
        np.testing.assert_allclose(np.load("y.npz")["y"], linear.reference(x)[0], 1e-4, 1e-5)

    def test_of_bfloat16(self, cli, narrow):
        """Files hold its bits."""
        (x,) = narrow.inputs()
        np.save("x.npy", x.view("uint16"))
        outcome = cli(
            "run", narrow.path, "--input", "x.npy", "--outputs", "y.npz", "--json"
        ).succeeds()
        bits = np.load("y.npz")["y"]
        (expected,) = narrow.reference(x)
        np.testing.assert_array_equal(bits.view(x.dtype), expected)
        (output,) = outcome.json["outputs"]
        assert (output["dtype"], output["max"]) == ("bfloat16", float(expected.max()))
        np.save("x.npy", x.astype("float32"))
        assert "astype(ml_dtypes.bfloat16)" in cli("run", narrow.path, "--input", "x.npy").err

    @pytest.mark.parametrize("in_order", [True, False])
    def test_of_several_inputs(self, cli, two_way, in_order):
        image, mask = two_way.inputs()
        np.save("image.npy", image)
        np.save("mask.npy", mask)
        np.savez("both.npz", image, mask)
        named = ["--input", "mask=mask.npy", "--input", "image=image.npy"]
        options = ["--inputs", "both.npz"] if in_order else named
        assert cli("run", two_way.path, *options, "-o", "y.npz").code == 0
        with np.load("y.npz") as outputs:
            assert outputs.files == ["sum", "same"]
            for name, expected in zip(outputs, two_way.reference(image, mask), strict=True):
                np.testing.assert_allclose(outputs[name], expected, 1e-6)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--input", "y=x.npy"], "the model has no input 'y', only x"),
            (["--input", "missing.npy"], "no such input file: 'missing.npy'"),
            (["--inputs", "missing.npz"], "no such input file: 'missing.npz'"),
            (["--input", "x.txt"], "cannot read 'x.txt': not a .npy or .npz file"),
            (["--inputs", "x.txt"], "cannot read 'x.txt': not a .npy or .npz file"),
            (["--inputs", "x.npy"], "pass it with --input"),
            (["--input", "x.npz"], "pass it with --inputs"),
            (["--inputs", "cut.npz"], "cannot read 'cut.npz'"),
            (["--input", "cut.npy"], "cannot read 'cut.npy'"),
            (["--input", "empty.npy"], "cannot read 'empty.npy'"),
            (["--input", "pickle.npy"], "cannot read 'pickle.npy'"),
            (["--input", "."], "cannot read '.'"),
            (["--inputs", "other.npz"], "no input 'z', only x"),
            (["--input", "x=x.npy", "--input", "x.npy"], "input 'x' is given twice"),
            (["--input", "x.npy", "--inputs", "x.npz"], "both by --inputs and by --input"),
            (["--input", "double.npy"], "convert it with x.astype('float32')"),
            (["--input", "short.npy"], "expected float32[4,64], got float32[4,63]"),
            (["-o", "missing/y.npz"], "there is no folder missing"),
            (
                ["--trace", "missing/t.json"],
                "there is no folder missing; create it or change --trace",
            ),
            (["--trace", "."], "cannot write .: it is a folder; choose another --trace"),
        ],
    )
    def test_bad(self, cli, linear, options, message):
        (x,) = linear.inputs()
        np.save("x.npy", x)
        np.savez("x.npz", x=x)
        np.savez("other.npz", z=x)
        np.save("double.npy", x.astype(float))
        np.save("short.npy", x[:, 1:])
        np.save("pickle.npy", np.array([{}], dtype=object))
        for name in ("x.npy", "x.npz"):
            data = Path(name).read_bytes()
            Path(f"cut{Path(name).suffix}").write_bytes(data[: len(data) // 2])
        Path("empty.npy").touch()
        Path("x.txt").write_text("1 2 3\n")
        cli("run", linear.path, *options).fails(2, message)

    def test_unnamed_among_several(self, cli, two_way):
        np.save("x.npy", two_way.inputs()[0])
        cli("run", two_way.path, "--input", "x.npy").fails(2, "2 inputs (image, mask)")
        cli("run", two_way.path, "--input", "image=x.npy").fails(2, "missing input mask")


class TestReport:
    def test_json(self, cli, two_way):
        outcome = cli("run", two_way.path, "--json", "--repeat", 3, "--threads", 1)
        report = outcome.json
        assert report["threads"] == 1
        assert [spec["name"] for spec in report["inputs"]] == ["image", "mask"]
        assert [output["shape"] for output in report["outputs"]] == [[2, 3, 8, 6]] * 2
        latency = report["latency_ms"]
        assert latency["runs"] == 3
        assert 0 < latency["min"] <= latency["median"] <= latency["max"]
        output = report["outputs"][1]
        assert output["min"] < output["mean"] < output["max"]
        assert output["not_finite"] == 0

    def test_no_latency_of_a_single_run(self, cli, linear):
        outcome = cli("run", linear.path)
        assert "first run" in outcome.out
        assert "latency" not in outcome.out

    def test_values_that_are_not_finite(self, cli, two_way):
        image, mask = two_way.inputs()
        image[0, 0, 0, :2] = np.nan, np.inf
        np.savez("x.npz", image, mask)
        outcome = cli("run", two_way.path, "--inputs", "x.npz", "--json")
        output = outcome.json["outputs"][1]
        assert output["not_finite"] == 2
        assert output["max"] == image[np.isfinite(image)].max()

    def test_classes_are_ranked(self):
        from neocpu.cli.run import _describe

        scores = np.zeros((1, 100), np.float32)
        scores[0, [7, 70, 17]] = 3, 2, 1
        spec = TensorSpec("scores", "float32", scores.shape)
        assert _describe(spec, scores)["top"] == [7, 70, 17, 0, 1]
        assert _describe(spec, scores.reshape(10, 10))["top"] == []

    def test_needs_neither_the_compiler_nor_onnx(self, linear):
        line = ["run", str(linear.path), "-q"]
        found = imported(f"from neocpu.cli.main import main; assert main({line}) == 0")
        assert not found & {"tvm", "onnx", "scipy", "xgboost"}


class TestOutputs:
    @pytest.mark.parametrize("name", ["file", "a/b", "/x:0", "arr_0", "ü"])
    def test_may_have_any_name(self, name):
        array = np.arange(6.0, dtype=np.float32).reshape(2, 3)
        write_archive(Path("out.npz"), {name: array})
        with np.load("out.npz") as archive:
            assert archive.files == [name]
            assert np.array_equal(archive[name], array)

    @pytest.mark.parametrize("option", ["-o", "--trace"])
    def test_disk_full(self, linear, option):
        Path("y").write_text("what was here before")
        command = [sys.executable, "-m", "neocpu", "run", str(linear.path), option, "y"]
        done = run_with_files_up_to(100, command, environment(), capture_output=True, text=True)
        assert done.returncode == 8
        assert done.stderr.startswith("neocpu: error: cannot write y: ")
        assert done.stderr.count("\n") == 1
        assert Path("y").read_text() == "what was here before"
        assert len(list(Path().iterdir())) == 1


class TestTrace:
    @pytest.mark.parametrize("repeat", [None, 3])
    def test_has_the_runs_that_are_measured(self, cli, small, repeat):
        options = [] if repeat is None else ["--repeat", repeat]
        outcome = cli("run", small.path, *options, "--trace", "t.json", "--json").succeeds()
        assert outcome.json["trace"] == "t.json"
        events = json.loads(Path("t.json").read_text())["traceEvents"]
        kinds = [event["cat"] for event in events if event["ph"] == "X"]
        assert kinds.count("run") == (repeat or 1)
        assert kinds.count("kernel") == (repeat or 1) * len(small.header.calls)
        assert "task" in kinds

    def test_is_named_on_the_screen(self, cli, linear):
        assert "timeline" not in cli("run", linear.path).out
        outcome = cli("run", linear.path, "--trace", "t.json")
        assert "timeline" in outcome.out
        assert "t.json" in outcome.out


class TestArtifacts:
    @pytest.mark.parametrize("command", ["run", "explain"])
    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda data: None, "No such file"),
            (lambda data: b"", "is empty"),
            (lambda data: data[: len(data) // 2], "not a complete neocpu artifact"),
            (lambda data: data[:-1], "truncated"),
            (lambda data: data + b"\0", "bytes are missing or added at its end"),
            (lambda data: data.replace(b'"name":"linear"', b'"name":"linnet"'), "checksum"),
            (lambda data: b"\x7fELF" + bytes(100), "not a complete neocpu artifact"),
            (lambda data: b"not an artifact", "not a complete neocpu artifact"),
        ],
    )
    def test_damaged(self, cli, linear, command, damage, message):
        data = damage(linear.path.read_bytes())
        if data is not None:
            Path("net.so").write_bytes(data)
        cli(command, "net.so").fails(8, message)

    def test_tampered_weights(self, cli, linear):
        data = bytearray(linear.path.read_bytes())
        place = data.index(linear.weights[0].tobytes())
        data[place] ^= 1
        Path("net.so").write_bytes(data)
        cli("run", "net.so").fails(8, "weights are damaged")

    @pytest.mark.parametrize(
        ("change", "code", "message"),
        [
            ({"isa_features": ("avx99",)}, 5, "this host lacks avx99"),
            ({"format": 99}, 8, "artifact format 99"),
        ],
    )
    def test_for_another_machine_or_library(self, cli, linear, change, code, message):
        header = replace(linear.header, **change)
        write_artifact(linear.built, linear.weights, header, "net.so")
        cli("run", "net.so").fails(code, message)
