"""Compiling in a process of its own."""

import sys

import onnx
import pytest
from command_line import conv_model

from neocpu.bench.engines.measured_model import compile_model
from neocpu.bench.engines.timed_compilation import CompilationCrash, compile_in_child
from neocpu.foundation.errors import DatabaseError, ModelError
from neocpu.frontend.shapes.input_shapes import NO_SHAPES
from neocpu.runtime.artifact import read_header


@pytest.fixture(autouse=True)
def no_user_database(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))


def test_time_memory_and_sizes(tmp_path):
    model, seen = tmp_path / "net.onnx", []
    aside = {"save_as_external_data": True, "location": "net.data", "size_threshold": 0}
    onnx.save(conv_model(), model, **aside)
    tested = compile_model(
        str(model),
        tmp_path,
        threads=1,
        shapes=NO_SHAPES,
        databases=(),
        verify=True,
        on_progress=seen.append,
    )
    done = tested.compilation
    assert done.seconds > 0
    assert done.peak_bytes > 50_000_000  # TVM alone
    weights = model.with_suffix(".data").stat().st_size
    assert weights > 500
    assert done.model_bytes == model.stat().st_size + weights
    assert done.artifact_bytes == tested.artifact.stat().st_size
    assert tested.header == read_header(tested.artifact)
    assert (tested.name, tested.header.threads) == ("net", 1)
    assert any("verify" in progress.detail for progress in seen)


def test_the_error_of_the_command_is_raised(tmp_path):
    with pytest.raises(ModelError, match="no such model file"):
        compile_in_child(tmp_path / "none.onnx", tmp_path / "out.so", threads=1)


def test_options_are_passed_on(tmp_path):
    model = tmp_path / "net.onnx"
    onnx.save(conv_model(), model)
    database = tmp_path / "folder"
    database.mkdir()
    with pytest.raises(DatabaseError, match="folder"):
        compile_in_child(model, tmp_path / "out.so", threads=1, databases=[database])


def test_a_bug_of_the_compiler_is_named_without_its_hints(tmp_path, monkeypatch):
    bug = "neocpu: error: KeyError: 'x'; run again with --debug for the traceback"
    program = f"import sys; print({bug!r}, file=sys.stderr); sys.exit(1)"
    monkeypatch.setattr(
        "neocpu.bench.engines.timed_compilation._PROGRAM", (sys.executable, "-c", program)
    )
    with pytest.raises(CompilationCrash) as caught:
        compile_in_child(tmp_path / "net.onnx", tmp_path / "out.so", threads=1)
    assert str(caught.value) == "compiling net.onnx ended (exit code 1): KeyError: 'x'"
    assert caught.value.exit_code == 1


def test_a_crash_is_named(tmp_path, monkeypatch):
    program = "import os, signal; os.kill(os.getpid(), 9)"
    monkeypatch.setattr(
        "neocpu.bench.engines.timed_compilation._PROGRAM", (sys.executable, "-c", program)
    )
    with pytest.raises(CompilationCrash, match=r"compiling net.onnx ended \(killed by signal 9\)"):
        compile_in_child(tmp_path / "net.onnx", tmp_path / "out.so", threads=1)
