"""``neocpu models`` as a user runs it."""

import json

import onnx
import pytest

from neocpu.cli.main import main
from neocpu.frontend.models import MODELS, SUITES, build


def test_list_names_every_network(capsys):
    assert main(["models", "list"]) == 0
    output = capsys.readouterr().out
    for info in MODELS.values():
        assert info.name in output
        assert info.title in output


def test_list_as_json(capsys):
    assert main(["models", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in listed["models"]] == list(MODELS)
    assert listed["suites"] == {name: list(names) for name, names in SUITES.items()}


def test_list_tells_the_suites(capsys):
    assert main(["models", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "paper" in next(line for line in lines if line.startswith("vgg19"))
    assert "deployed" in next(line for line in lines if line.startswith("unet"))
    assert lines[-1] == "Suites, for --suite: paper (15), deployed (9), all (24)"


def test_export_writes_the_network(tmp_path, capsys):
    path = tmp_path / "net.onnx"
    arguments = ["-o", str(path), "--seed", "3", "--batch", "2"]
    assert main(["models", "export", "densenet121", *arguments]) == 0
    assert str(path) in capsys.readouterr().out
    assert onnx.load(path) == build("densenet121", batch=2, seed=3)


@pytest.mark.parametrize(("size", "image"), [("96", (96, 96)), ("64x96", (64, 96))])
def test_export_takes_another_image(tmp_path, capsys, size, image):
    path = tmp_path / "net.onnx"
    arguments = ["-o", str(path), "--image", size, "--json"]
    assert main(["models", "export", "squeezenet1_0", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["shape"] == [1, 3, *image]
    assert onnx.load(path) == build("squeezenet1_0", image=image)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ("64x", "'64x' is not an image size: write 256, or 256x320"),
        ("0", "an image of 0x0 pixels is empty"),
        ("8", "squeezenet1_0 of 8x8 pixels: the image is too small"),
    ],
)
def test_export_of_no_image(tmp_path, capsys, size, words):
    path = tmp_path / "net.onnx"
    assert main(["models", "export", "squeezenet1_0", "-o", str(path), "--image", size]) == 2
    assert words in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.parametrize("command", ["compile", "tune", "bench"])
def test_shape_of_a_built_in_network_is_checked(command, capsys):
    assert main([command, "squeezenet1_0", "--shape", "input:1,4,64,64"]) == 2
    assert "squeezenet1_0 takes input:N,3,H,W" in capsys.readouterr().err


def test_export_of_an_unknown_network_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["models", "export", "densnet121"]) == 2
    error = capsys.readouterr().err
    # Before the long list, not after it.
    assert "no built-in network 'densnet121'; did you mean 'densenet121'? known: " in error
    assert list(tmp_path.iterdir()) == []


def test_export_into_a_missing_folder(tmp_path, capsys):
    path = tmp_path / "missing" / "net.onnx"
    assert main(["models", "export", "densenet121", "-o", str(path)]) == 2
    assert f"cannot write {path}" in capsys.readouterr().err
