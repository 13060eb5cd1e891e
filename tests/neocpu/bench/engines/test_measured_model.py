"""What is measured: an artifact, and what its peers run."""

import numpy as np
import onnx

from neocpu.bench.engines.measured_model import compile_subject
from neocpu.bench.engines.signed_form import with_signed_maps
from neocpu.input_shapes import NO_SHAPES
from tests.neocpu.quantised_models import image, network, quantised, run_onnxruntime


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
        own, in_float, peer, signed = subject.contenders(("onnxruntime",))
        assert (own.label, in_float.label) == ("neocpu", "neocpu-fp32")
        assert own.path != in_float.path
        assert peer.path == subject.model != tmp_path / "net.onnx"
        assert (signed.label, signed.engine) == ("onnxruntime-s8s8", "onnxruntime")
        assert [one.label for one in subject.contenders(("openvino",))][2:] == ["openvino"]
        assert subject.is_quantised


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
