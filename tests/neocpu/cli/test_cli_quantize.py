"""``neocpu quantize`` and what it writes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import neocpu
from neocpu.cli import quantize as quantize_command
from neocpu.foundation.option_words import CORRECTIONS
from neocpu.quantiser.pictures import FITS, Preprocessing
from neocpu.quantiser.quantise_options import AUTO, DEFAULT_SAMPLES, QuantiseOptions
from neocpu.quantiser.ranges import METHODS
from tests.neocpu.quantised_models import image, network


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in, with a model and data for it."""
    onnx.save(network(), tmp_path / "net.onnx")
    data = np.concatenate([image(seed) for seed in range(3)])
    np.savez(tmp_path / "data.npz", x=data)
    np.savez(tmp_path / "small.npz", x=data[:, :, 1:])
    data[3, 1] = np.nan
    np.savez(tmp_path / "nan.npz", x=data)
    (tmp_path / "empty").mkdir()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(b"no picture")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_model_is_written_and_described(cli, folder):
    result = cli("quantize", "net.onnx", "--calibrate", "data.npz").succeeds()
    onnx.checker.check_model(onnx.load(folder / "net.int8.onnx"))
    assert "signal/noise" in result.out
    document = cli("quantize", "net.onnx", "--calibrate", "data.npz", "-o", "a.onnx", "--json").json
    assert document["samples"] == 3
    assert len(document["layers"]) == 6
    assert document["bytes"] == (folder / "a.onnx").stat().st_size


def test_histograms_are_drawn(cli, folder):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    line = ("quantize", "net.onnx", "--calibrate", "data.npz", "--samples", "1", "--histograms")
    assert cli(*line, "seen.svg").code == 0
    assert "<svg" in (folder / "seen.svg").read_text()
    cli(*line, "seen.gif").fails(2, "histograms are drawn as .pdf, .png, .svg")


def test_options_arrive(cli, folder, monkeypatch):
    calls = []

    def record(*given, **named):
        calls.append((given, named))
        raise KeyboardInterrupt

    monkeypatch.setattr(neocpu, "quantize", record)
    line = (
        "quantize net.onnx --calibrate photos --samples 9 --fit letterbox --mean 0 --std 1,2,3 "
        "--bgr --method percentile --percentile 99.9 --symmetric --per layer --int16-sums 0 "
        "--correct-bias activations --equalise --exclude Gemm --exclude a --wide x --threads 1 "
        "--shape x:2,3,17,19"
    )
    cli(*line.split())
    ((given, named),) = calls
    assert given == (
        "net.onnx",
        "photos",
        QuantiseOptions(
            samples=9,
            method="percentile",
            percentile=99.9,
            symmetric=True,
            per_channel=False,
            int16_sums=0,
            correction="activations",
            equalise=True,
            exclude=("Gemm", "a"),
            wide=("x",),
            pictures=Preprocessing("letterbox", (0.0,), (1.0, 2.0, 3.0), True),
        ),
    )
    assert (named["threads"], named["shapes"]) == (1, {"x": (2, 3, 17, 19)})


def test_defaults_and_choices_are_those_of_python(cli):
    options = {each.name: each for each in quantize_command.command.params}
    assert tuple(options["method"].type.choices) == (*METHODS, AUTO)
    assert tuple(options["correction"].type.choices) == CORRECTIONS
    assert tuple(options["fit"].type.choices) == FITS
    plain = QuantiseOptions()
    assert options["samples"].default == DEFAULT_SAMPLES == plain.samples
    assert options["method"].default == plain.method
    assert options["correction"].default == plain.correction
    assert int(options["int16_sums"].default) == plain.int16_sums


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("quantize net.onnx", 2, "missing option '--calibrate'"),
        ("quantize net.onnx --calibrate none", 2, "none is missing; calibrate with a folder"),
        (
            "quantize net.onnx --calibrate net.onnx",
            2,
            "cannot calibrate with net.onnx: give a folder",
        ),
        ("quantize gone.onnx --calibrate data.npz", 3, "gone.onnx"),
        ("quantize net.onnx --calibrate data.npz -o net.onnx", 2, "net.onnx would be written over"),
        ("quantize net.onnx --calibrate data.npz -o no/where.onnx", 2, "no"),
        ("quantize net.onnx --calibrate data.npz --mean a", 2, "not a list of numbers"),
        ("quantize net.onnx --calibrate data.npz --method mze", 2, "did you mean 'mse'?"),
        *(
            (f"{command} net.onnx --calibrate {data}", 2, message)
            for command in ("quantize", "compile -o net.so", "compile -o net.so --precision int8")
            for data, message in (
                ("empty", "empty has no pictures; calibration takes bmp"),
                ("photos", "a.png cannot be read as a picture"),
                ("small.npz", "has shape 6x3x16x19 for input 'x', which is 2x3x17x19"),
                ("nan.npz", "sample 1 makes tensor 'x' infinite or NaN"),
            )
        ),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(cli, folder, words, code, message):
    if "photos" in words:
        pytest.importorskip("PIL", reason="Pillow is not installed")
    before = sorted(path.name for path in folder.iterdir())
    cli(*words.split()).fails(code, message)
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize(("command", "output"), [("quantize", "out.onnx"), ("compile", "out.so")])
def test_a_loader_that_exits_is_an_error(cli, folder, command, output):
    """Exit code 0 would make the caller look for a file that does not exist."""
    (folder / "loader.py").write_text("import sys\ndef samples():\n    sys.exit(0)\n")
    cli(command, "net.onnx", "--calibrate", "loader.py:samples", "-o", output).fails(
        2, "loader.py:samples failed after 0 samples: it ends the program, by sys.exit(0)"
    )
    assert not list(folder.glob("out.*"))


def test_a_module_of_operators_that_exits_is_an_error(cli, folder):
    (folder / "operators_that_end.py").write_text("import sys\nsys.exit(0)\n")
    for command in ("compile", "quantize", "reduce", "tune"):
        more = ("--calibrate", "data.npz") if command == "quantize" else ()
        cli(command, "net.onnx", "--operators", "operators_that_end", *more).fails(
            2, "operators_that_end:OPERATORS: it ends the program, by sys.exit(0)"
        )


def test_warnings_of_libraries_are_shown_on_request(shell, folder):
    """A command prints only neocpu's own messages for valid input; -v shows all."""
    (folder / "warning.py").write_text(
        "import warnings\nimport numpy as np\ndef samples():\n"
        "    warnings.warn('in a\\nlibrary', UserWarning)\n"
        "    yield np.zeros((2, 3, 24, 24), 'float32')\n"
    )
    line = ("quantize", "net.onnx", "--calibrate", "warning.py:samples")
    assert "library" not in shell(*line).err
    told = shell(*line, "-v").err
    assert f"neocpu: INFO: UserWarning in {folder / 'warning.py'}, line 4: in a library\n" in told
