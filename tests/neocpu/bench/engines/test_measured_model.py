"""The artifact that is measured, how it is compiled, and the models that its peers run."""

import os
import sys

import needs
import numpy as np
import onnx
import pytest
from command_line import conv_model

from neocpu.bench.engines import quantised_forms
from neocpu.bench.engines.measured_model import CompilationCrash, compile_in_child, compile_model
from neocpu.bench.engines.quantised_forms import other_forms, with_signed_maps
from neocpu.foundation.errors import DatabaseError, ModelError
from neocpu.frontend.shapes.input_shapes import NO_SHAPES
from neocpu.runtime.artifact import read_header
from tests.neocpu.quantised_models import image, network, quantised, run_onnxruntime, sliced_network


def compiled_model(model, folder, precision, peers=()):
    settings = {"threads": 2, "shapes": NO_SHAPES, "databases": (), "verify": False}
    return compile_model(str(model), folder, precision=precision, peers=peers, **settings)


def test_a_model_is_quantised_for_all_engines(tmp_path):
    """The peers run neocpu's quantised model in int8, and float32 is measured too."""
    onnx.save(sliced_network(), tmp_path / "net.onnx")
    for precision in ("int8", "auto") if needs.EVERYTHING else ("int8",):
        folder = tmp_path / precision
        folder.mkdir()
        measured = compiled_model(tmp_path / "net.onnx", folder, precision, peers=("onnxruntime",))
        own, in_float, peer, signed = measured.contenders(("onnxruntime",))
        assert (own.label, in_float.label) == ("neocpu", "neocpu-fp32")
        assert own.path != in_float.path
        assert peer.path == measured.model != tmp_path / "net.onnx"
        assert (signed.label, signed.engine) == ("onnxruntime-s8s8", "onnxruntime")
        assert [one.label for one in measured.contenders(("openvino",))][2:] == ["openvino"]
        assert measured.is_quantised


def test_openvino_also_runs_the_model_that_nncf_quantised(tmp_path, monkeypatch, caplog):
    """NNCF runs in a separate process, and may fail without ending the benchmark."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "nncf.py").write_text(_NNCF)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
    source, data = tmp_path / "net.onnx", tmp_path / "data.npz"
    onnx.save(network(), source)
    np.savez(data, x=np.concatenate([image(seed) for seed in range(3)]))
    made = [
        each
        for each in other_forms(source, data, network(), ("openvino",), tmp_path)
        if each.label == "openvino-nncf"
    ]
    assert [(each.engine, each.path.read_text()) for each in made] == [("openvino", "3 of x")]
    (site / "nncf.py").write_text("raise ImportError('no such thing')")
    assert list(other_forms(source, data, network(), ("openvino",), tmp_path)) == []
    assert "openvino-nncf is out: ImportError: no such thing" in caplog.text
    (site / "nncf.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(quantised_forms, "TIMEOUT", 2.0)
    assert list(other_forms(source, data, network(), ("openvino",), tmp_path)) == []
    assert "openvino-nncf is out: it took more than 2 s" in caplog.text
    assert list(other_forms(source, data, network(), ("ncnn",), tmp_path)) == []


_NNCF = """
import sys, types

class Model:
    def input(self, name):
        return types.SimpleNamespace(shape=(2,))

sys.modules["openvino"] = types.SimpleNamespace(
    Core=lambda: types.SimpleNamespace(read_model=lambda path: Model()),
    save_model=lambda model, path, compress_to_fp16: open(path, "w").write(model),
)
Dataset = list

def quantize(model, inputs, subset_size):
    assert all(each["x"].shape[0] == 2 for each in inputs)
    return f"{subset_size} of {' '.join({name for each in inputs for name in each})}"
"""


def test_all_engines_compute_in_bfloat16(tmp_path):
    """All engines take the same unchanged model, and float32 is measured too."""
    onnx.save(network(), tmp_path / "net.onnx")
    measured = compiled_model(tmp_path / "net.onnx", tmp_path, "bf16")
    own, in_float, *peers = measured.contenders(("onnxruntime", "openvino", "ncnn"))
    assert read_header(own.path).plan.precision == "bf16"
    assert read_header(in_float.path).plan.precision == "fp32"
    assert [one.label for one in peers] == ["onnxruntime", "openvino", "ncnn"]
    assert [one.engine for one in peers] == ["onnxruntime-bf16", "openvino-bf16", "ncnn-bf16"]
    assert {one.path for one in peers} == {tmp_path / "net.onnx"}
    assert not measured.is_quantised


def test_signed_feature_maps_stand_for_the_same_numbers():
    model = quantised(network())
    signed = with_signed_maps(model)
    assert signed is not None
    onnx.checker.check_model(signed, full_check=True)
    kinds = {each.data_type for each in signed.graph.initializer}
    assert onnx.TensorProto.UINT8 not in kinds
    for seed in range(3):
        x = image(seed)
        np.testing.assert_array_equal(run_onnxruntime(signed, x), run_onnxruntime(model, x))
    assert with_signed_maps(signed) is None
    assert with_signed_maps(network()) is None


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
        "neocpu.bench.engines.measured_model._PROGRAM", (sys.executable, "-c", program)
    )
    with pytest.raises(CompilationCrash) as caught:
        compile_in_child(tmp_path / "net.onnx", tmp_path / "out.so", threads=1)
    assert str(caught.value) == "compiling net.onnx ended (exit code 1): KeyError: 'x'"
    assert caught.value.exit_code == 1


def test_a_crash_is_named(tmp_path, monkeypatch):
    program = "import os, signal; os.kill(os.getpid(), 9)"
    monkeypatch.setattr(
        "neocpu.bench.engines.measured_model._PROGRAM", (sys.executable, "-c", program)
    )
    with pytest.raises(CompilationCrash, match=r"compiling net.onnx ended \(killed by signal 9\)"):
        compile_in_child(tmp_path / "net.onnx", tmp_path / "out.so", threads=1)
