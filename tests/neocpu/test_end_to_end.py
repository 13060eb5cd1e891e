"""Whole networks, compiled, loaded and run, against ONNX Runtime."""

import needs
import numpy as np
import onnx
import onnxruntime
import pytest
from light_models import LIGHT_MODELS, light_model
from onnx import TensorProto, helper

import neocpu

FACE = needs.FACE_DETECTOR
RTOL, ATOL = 1e-3, 1e-4


def onnxruntime_outputs(model: onnx.ModelProto, inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Its own rewrites are not the reference: one of them moves a zero Pad into a MaxPool.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def check(model: onnx.ModelProto, **options):
    """Compile ``model`` and compare it on a random image; return our outputs and the plan."""
    with neocpu.compile(model, threads=2, verify=False, **options) as compiled:
        with compiled.module() as module:
            actual, expected = compare(module, model)
        return actual, expected, compiled.plan


def compare(module: neocpu.Module, model: onnx.ModelProto, seed: int = 0):
    """Run both on a random image; return our outputs and ONNX Runtime's."""
    rng = np.random.default_rng(seed)
    inputs = {s.name: rng.standard_normal(s.shape).astype(s.dtype) for s in module.inputs}
    actual, expected = module.run(inputs), onnxruntime_outputs(model, inputs)
    assert list(actual) == list(expected)
    for name, want in expected.items():
        np.testing.assert_allclose(actual[name], want, rtol=RTOL, atol=ATOL * np.abs(want).max())
    return actual, expected


def same_ranking(actual, expected, top: int = 5) -> bool:
    return bool((np.argsort(-actual)[..., :top] == np.argsort(-expected)[..., :top]).all())


# Other networks have the same operators with fewer weights.
REPEATED = {"bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "vgg19", "zfnet512"}


@pytest.mark.parametrize("name", needs.repeated(LIGHT_MODELS, REPEATED))
def test_light_models(name):
    actual, expected, plan = check(light_model(name))
    (output,) = expected
    classes = int(np.prod(expected[output].shape[1:]))
    assert same_ranking(actual[output].reshape(-1, classes), expected[output].reshape(-1, classes))
    assert plan.search.gap == 0.0


@needs.file(FACE)
def test_face_detector():
    model = onnx.load(FACE)
    with neocpu.compile(model, threads=2, verify=False) as compiled, compiled.module() as module:
        assert compiled.plan.search.gap == 0.0
        for seed in range(3):
            best = [
                outputs["scores"][0, :, 1].argsort()[-20:]
                for outputs in compare(module, model, seed)
            ]
            np.testing.assert_array_equal(*best)


@pytest.mark.parametrize("opt", ["nchw", "conv-layout", "uniform", "global"])
@needs.one_in(2)
def test_every_level_computes_the_same(opt):
    _, _, plan = check(light_model("squeezenet"), opt=opt)
    assert plan.opt == opt


def test_algorithms_are_restricted():
    _, _, plan = check(light_model("squeezenet"), algorithms=["nchw"])
    used = {op.scheme.template for op in plan.ops if op.scheme}
    assert used == {"conv2d_nchw"}


def test_batch_and_unusual_image_size_through_shapes():
    """A dynamic model: two images of 97 by 61 pixels, a prime number of channels."""
    rng = np.random.default_rng(0)
    weights = {
        "w0": rng.standard_normal((17, 3, 3, 3)).astype(np.float32),
        "w1": rng.standard_normal((31, 17, 1, 1)).astype(np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "w1"], ["d"]),
        helper.make_node("GlobalAveragePool", ["d"], ["g"]),
        helper.make_node("Flatten", ["g"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "dynamic",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 31])],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    check(model, shapes={"x": (2, 3, 97, 61)})


def test_compilation_is_verified_against_the_reference(tmp_path):
    with neocpu.compile(light_model("squeezenet"), threads=2) as compiled:
        assert compiled.verification is not None
        assert compiled.verification.ok
        assert 0 < compiled.verification.max_rel_error < 1e-4
        header = compiled.export(tmp_path / "net.so")
        assert header.plan.threads == 2
    assert neocpu.load(tmp_path / "net.so").metadata.name
