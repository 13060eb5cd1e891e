"""The built-in networks against the published figures of their architectures."""

import math
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest

from neocpu.models import MODELS, build, find, is_name
from neocpu.schedules.errors import UsageError

ALL = tuple(MODELS)


@pytest.fixture(scope="module", params=ALL)
def network(request):
    return MODELS[request.param], build(request.param)


def _shapes(model):
    graph = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph
    values = (*graph.input, *graph.value_info, *graph.output)
    shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in values}
    return shapes | {t.name: tuple(t.dims) for t in graph.initializer}


def _macs(model):
    """Multiply-accumulates of convolutions and dense layers, which is what papers count."""
    shapes = _shapes(model)
    total = 0
    for node in model.graph.node:
        if node.op_type in ("Conv", "Gemm"):
            per_output = math.prod(shapes[node.input[1]][1:])
            total += math.prod(shapes[node.output[0]]) * per_output
    return total


def _run(model, x, *extra):
    probed = onnx.ModelProto()
    probed.CopyFrom(model)
    probed.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in extra)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        probed.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"input": x})


def test_is_valid_onnx(network):
    _, model = network
    onnx.checker.check_model(model, full_check=True)


def test_parameter_count_is_the_published_one(network):
    info, model = network
    trained = [t for t in model.graph.initializer if ".running_" not in t.name]
    assert sum(math.prod(t.dims) for t in trained) == info.parameters


def test_mac_count_is_the_published_one(network):
    info, model = network
    assert _macs(model) / 1e9 == pytest.approx(info.gmacs, abs=0.006)


def test_activations_keep_their_scale_at_every_depth(network):
    info, model = network
    x = np.random.default_rng(1).standard_normal((1, 3, info.image, info.image), np.float32)
    depths = [n.output[0] for n in model.graph.node if n.op_type in ("Conv", "Add", "Concat")]
    for value in _run(model, x, *depths):
        assert 0.2 < value.std() < 20


def test_images_give_different_outputs(network):
    info, model = network
    images = np.random.default_rng(1).standard_normal((2, 1, 3, info.image, info.image), np.float32)
    first, second = (_run(model, x)[0] for x in images)
    assert len(np.unique(first)) > 990
    assert np.linalg.norm(first - second) > 0.01 * np.linalg.norm(first)


def test_resnet50_strides_on_the_3x3():
    model = build("resnet50")
    shapes = _shapes(model)
    strided = {
        shapes[node.input[1]][2]
        for node in model.graph.node
        for attribute in node.attribute
        if node.op_type == "Conv"
        and attribute.name == "strides"
        and list(attribute.ints) == [2, 2]
        and "downsample" not in node.name
    }
    assert strided == {7, 3}


def test_densenet121_concatenates_all_features_before_each_layer():
    concats = [n for n in build("densenet121").graph.node if n.op_type == "Concat"]
    lengths = [len(node.input) for node in concats]
    assert lengths == [n for layers in (6, 12, 24, 16) for n in range(2, layers + 2)]


def test_batch_is_the_callers():
    model = build("densenet121", batch=3)
    shapes = _shapes(model)
    assert shapes["input"] == (3, 3, 224, 224)
    assert shapes["output"] == (3, 1000)


def test_seed_decides_the_weights():
    one, same, other = (build("densenet121", seed=s).SerializeToString() for s in (1, 1, 2))
    assert one == same != other


def test_unknown_name_gets_a_suggestion():
    with pytest.raises(UsageError, match=r"no built-in network 'resnet5'.*did you mean 'resnet50'"):
        find("resnet5")


@pytest.mark.parametrize(("keywords", "words"), [({"batch": 0}, "batch"), ({"seed": -1}, "seed")])
def test_bad_arguments_are_refused(keywords, words):
    with pytest.raises(UsageError, match=words):
        build("resnet50", **keywords)


def test_listing_imports_no_onnx():
    script = "import sys, neocpu.models as m; assert m.MODELS; print('onnx' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_a_file_is_not_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert is_name("resnet50")
    assert is_name("resnet51")
    assert not is_name("resnet50.onnx")
    assert not is_name("./resnet50")
    (tmp_path / "resnet50").touch()
    assert not is_name("resnet50")
