"""``neocpu models`` as a user runs it."""

import json

import onnx

from neocpu.cli.main import main
from neocpu.models import MODELS, build


def test_list_names_every_network(capsys):
    assert main(["models", "list"]) == 0
    output = capsys.readouterr().out
    for info in MODELS.values():
        assert info.name in output
        assert info.title in output


def test_list_as_json(capsys):
    assert main(["models", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["models"]
    assert [entry["name"] for entry in listed] == list(MODELS)


def test_export_writes_the_network(tmp_path, capsys):
    path = tmp_path / "net.onnx"
    arguments = ["-o", str(path), "--seed", "3", "--batch", "2"]
    assert main(["models", "export", "densenet121", *arguments]) == 0
    assert str(path) in capsys.readouterr().out
    assert onnx.load(path) == build("densenet121", batch=2, seed=3)


def test_export_of_an_unknown_network_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["models", "export", "densnet121"]) == 2
    assert "did you mean 'densenet121'?" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_export_into_a_missing_folder(tmp_path, capsys):
    path = tmp_path / "missing" / "net.onnx"
    assert main(["models", "export", "densenet121", "-o", str(path)]) == 2
    assert f"cannot write {path}" in capsys.readouterr().err
