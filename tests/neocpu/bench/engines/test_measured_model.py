"""What is measured: an artifact, and what its peers run."""

import onnx

from neocpu.bench.engines.measured_model import compile_subject
from neocpu.input_shapes import NO_SHAPES
from tests.neocpu.quantised_models import network


def test_a_model_is_quantised_for_all_engines(tmp_path):
    """In int8 the peers run what neocpu runs, and float32 is there to compare with."""
    onnx.save(network(), tmp_path / "net.onnx")
    for precision in ("int8", "auto"):
        folder = tmp_path / precision
        folder.mkdir()
        subject = compile_subject(
            str(tmp_path / "net.onnx"),
            folder,
            threads=2,
            shapes=NO_SHAPES,
            databases=(),
            verify=False,
            precision=precision,
        )
        own, in_float, peer = subject.contenders(("onnxruntime",))
        assert (own.label, in_float.label) == ("neocpu", "neocpu-fp32")
        assert own.path != in_float.path
        assert peer.path == subject.model != tmp_path / "net.onnx"
        assert subject.is_quantised
