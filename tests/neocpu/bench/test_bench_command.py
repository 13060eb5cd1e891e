"""``neocpu bench`` as a user runs it."""

import json
from functools import partial

import needs
import onnx
import pytest

from neocpu.bench.limits.roofline import Limits
from neocpu.bench.profile import network_profiles
from neocpu.bench.race import suite
from neocpu.cli.main import main
from neocpu.foundation.errors import AccuracyError
from neocpu.frontend.models.network_builder import NetworkBuilder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Path of a network of two convolutions with a dynamic batch."""
    net = NetworkBuilder("tiny", (1, 3, 16, 16), seed=0)
    x = net.relu(net.batch_norm(net.conv(net.input, "conv1", 16, 3, padding=1), "bn1"), "relu1")
    y = net.relu(net.batch_norm(net.conv(x, "conv2", 16, 1), "bn2"), "relu2")
    model = net.finish(net.classifier(y, "fc", 10))
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    path = tmp_path_factory.mktemp("tiny") / "tiny.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture(autouse=True)
def no_user_database(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


@pytest.fixture
def known_limits(monkeypatch):
    """The machine's limits, which take seconds to measure: another test does."""
    limits = Limits(threads=1, flops=1e11, dram=1e10)
    for module in (suite, network_profiles):
        monkeypatch.setattr(module, "measure_limits", lambda *arguments: limits)


def _bench(*arguments):
    return main(["bench", "--rounds", "2", "--threads", "1", *map(str, arguments)])


def test_an_artifact_alone(linear, capsys):
    assert _bench(linear.path, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    (result,) = document["results"]
    assert result["model"] == "linear"
    (latency,) = result["latency"]["results"]
    assert latency["label"] == "neocpu"
    assert latency["median"] > 0
    assert result["kernels"] is result["cold_start"] is None
    assert document["machine"]["cpus"] > 0


def test_an_artifact_beside_a_peer(linear, linear_onnx, capsys, monkeypatch):
    quick = partial(suite.measure_cold_start, rounds=1)
    monkeypatch.setattr(suite, "measure_cold_start", quick)
    arguments = (linear.path, "--model", linear_onnx, "--vs", "onnxruntime", "--markdown")
    assert _bench(*arguments, "--cold-start") == 0
    output = capsys.readouterr().out
    assert "### Latency of linear, threads: 1" in output
    assert "| onnxruntime" in output
    assert "reference" in output
    assert "### Process start to first output of linear" in output


def test_a_wrong_result_is_called_out(linear, wrong_onnx, capsys):
    code = _bench(linear.path, "--model", wrong_onnx, "--vs", "onnxruntime")
    assert code == AccuracyError.exit_code
    captured = capsys.readouterr()
    assert "neocpu disagrees with onnxruntime" in captured.out
    assert "wrong outputs of neocpu" in captured.err


@pytest.mark.slow
@pytest.mark.usefixtures("known_limits")
def test_a_model_is_compiled_and_measured_in_every_way(tiny, capsys):
    arguments = ("--shape", "input:2,3,16,16", "--vs", "onnxruntime", "--kernels", "--roofline")
    assert _bench(tiny, *arguments, "--json") == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["compilation"]["seconds"] > 0
    assert result["compilation"]["peak_bytes"] > result["compilation"]["model_bytes"] > 0
    labels = [one["label"] for one in result["latency"]["results"]]
    assert labels == ["neocpu", "onnxruntime"]
    assert all(one["agrees"] for one in result["latency"]["results"])
    assert result["roofline"]["flops"] == 2 * 2 * (256 * 16 * 27 + 256 * 16 * 16 + 160)
    assert result["roofline"]["limits"]["flops"] == 1e11
    workloads = [one["workload"] for one in result["kernels"]["kernels"]]
    assert [text.split(" -> ")[0] for text in workloads] == ["2x3x16x16", "2x16x16x16"]


@pytest.mark.slow
@needs.everything()
def test_bfloat16_beside_an_engine_without_it(tiny, capsys):
    arguments = (tiny, "--vs", "onnxruntime", "--precision", "bf16", "--shape", "input:1,3,16,16")
    assert _bench(*arguments, "--json") == 0
    latency = json.loads(capsys.readouterr().out)["results"][0]["latency"]
    own, in_float, peer = latency["results"]
    assert (latency["reference"], in_float["relative_error"]) == ("neocpu-fp32", 0.0)
    assert 1e-5 < own["relative_error"] < 0.05
    assert peer["relative_error"] < 1e-5
    assert "no bfloat16 on this CPU, float32 instead: onnxruntime" in latency["warnings"]


@pytest.mark.slow
@pytest.mark.usefixtures("known_limits")
def test_models_and_artifacts_are_profiled(linear, tiny, tmp_path, capsys):
    page = tmp_path / "profile.md"
    arguments = [str(linear.path), str(tiny), "--shape", "input:1,3,16,16", "-o", str(page)]
    assert main(["bench", "profile", *arguments, "--threads", "1", "--json"]) != 0
    captured = capsys.readouterr()
    assert "--shape and --batch are for models" in captured.err
    (result,) = json.loads(captured.out)["results"]
    assert result["model"] == "tiny"
    assert result["profile"]["operators"]
    assert result["profile"]["limits"]["flops"] == 1e11
    assert main(["bench", "profile", str(linear.path), "--threads", "1", "-o", str(page)]) == 0
    assert "Profile of linear, threads: 1" in capsys.readouterr().out
    assert "| class | times |" in page.read_text()


def test_a_view_that_is_none_is_a_model(capsys):
    for view in ("profil", "accuracy", "solvers"):
        assert main(["bench", view]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"no built-in network '{view}'" in line


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("{so}", "--vs", "onnxruntim"), 2, "no engine 'onnxruntim' for --vs"),
        (("{so}", "--vs", "onnxruntim"), 2, "did you mean 'onnxruntime'?"),
        (("{so}", "--vs", "onnxruntime"), 2, "name it with --model FILE.onnx"),
        (("{so}", "--kernels"), 2, "name it with --model FILE.onnx"),
        (("{so}", "--shape", "x:4,64"), 2, "--shape and --batch are for models"),
        (("{so}", "--model", "{onnx}", "--model", "resnet50"), 2, "is not what"),
        (("{onnx}", "--model", "{onnx}"), 2, "--model goes with one OUT.so"),
        (("{onnx}", "--kernels"), 2, "linear has no convolutions for --kernels"),
        (("resnet51",), 2, "no built-in network 'resnet51'"),
        (("missing.onnx",), 3, "no such model file"),
        (("missing.so",), 8, "missing.so"),
        ((), 2, "missing argument"),
    ],
)
def test_bad_arguments(arguments, code, message, linear, linear_onnx, capsys):
    paths = {"so": linear.path, "onnx": linear_onnx}
    assert _bench(*(argument.format(**paths) for argument in arguments)) == code
    lines = capsys.readouterr().err.splitlines()
    assert message in lines[-1]
    assert sum(line.startswith("neocpu: error: ") for line in lines) == 1
