"""The built-in networks against the published figures of their architectures."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
from network_measures import multiply_accumulates, parameters, random_image, run, shapes

from neocpu.bench.engines.measured_model import onnx_file
from neocpu.foundation.errors import UsageError
from neocpu.frontend.models import MODELS, SUITES, build, build_with_shapes, find, is_name, suite
from neocpu.frontend.models.emitter import Emitter
from neocpu.frontend.onnx_graph.weightless_model import strip_weights
from neocpu.frontend.shapes.input_shapes import NO_SHAPES, InputShapes

CLASSIFIERS = tuple(name for name in MODELS if name not in ("ssd_resnet50", "unet", "yolov3_tiny"))
# One of each kind of block, few enough multiplications to be run here.
LIGHT = (
    "densenet121",
    "efficientnet_b0",
    "inception_v3",
    "mobilenet_v1",
    "mobilenet_v2",
    "mobilenet_v3_large",
    "resnet18",
    "resnext50_32x4d",
    "shufflenet_v2_x1_0",
    "squeezenet1_0",
)
# Images that halve into odd ones too.
SIZES = {"inception_v3": (139, 203)}
# Of PyTorch's modules.
NAMES = {
    "resnet18": ("conv1.weight", "layer4.1.bn2.running_var", "layer2.0.downsample.1.weight"),
    "resnet50": ("layer3.5.conv3.weight", "fc.bias"),
    "vgg11": ("features.18.bias", "classifier.6.weight"),
    "vgg19": ("features.34.weight", "classifier.0.bias"),
    "densenet121": ("features.denseblock4.denselayer16.conv2.weight", "features.norm5.bias"),
    "mobilenet_v2": ("features.1.conv.1.weight", "features.17.conv.3.bias", "features.18.1.weight"),
    "mobilenet_v3_large": ("features.4.block.2.fc1.bias", "features.15.block.3.0.weight"),
    "efficientnet_b0": ("features.1.0.block.1.fc2.bias", "features.7.0.block.3.1.weight"),
    "squeezenet1_0": ("features.12.expand3x3.bias", "classifier.1.weight"),
    "shufflenet_v2_x1_0": ("stage4.0.branch1.2.weight", "stage2.3.branch2.6.bias", "conv5.1.bias"),
}


@pytest.fixture(scope="module")
def structure():
    """Return a function that builds a network without drawing its weights, which is slow."""

    def build_structure(*args, **keywords):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Emitter, "normal", lambda self, shape, _: np.zeros(shape, np.float32))
            return strip_weights(build(*args, **keywords)).model

    return build_structure


@pytest.fixture(scope="module", params=MODELS)
def network(request, structure):
    return MODELS[request.param], structure(request.param)


def test_is_valid_onnx(network):
    _, model = network
    onnx.checker.check_model(model, full_check=True)


def test_parameter_count_is_the_published_one(network):
    info, model = network
    assert parameters(model) == info.parameters


def test_mac_count_is_the_published_one(network):
    info, model = network
    assert multiply_accumulates(model) / 1e9 == pytest.approx(info.gmacs, rel=0.01)


def test_takes_an_image_and_gives_a_score_for_each_class(network):
    info, model = network
    assert shapes(model)["input"] == (1, 3, info.image, info.image)
    if info.name in CLASSIFIERS:
        assert shapes(model)["output"] == (1, 1000)


def test_weights_are_named_as_pytorch_names_them(network):
    info, model = network
    assert set(NAMES.get(info.name, ())) <= shapes(model).keys()


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_other_images_and_batches(name, structure):
    model = structure(name, batch=3, image=(97, 160))
    onnx.checker.check_model(model, full_check=True)
    assert shapes(model)["input"] == (3, 3, 97, 160)
    assert shapes(model)["output"] == (3, 1000)


@pytest.mark.parametrize("name", LIGHT)
def test_activations_keep_their_scale_at_every_depth(name):
    x = random_image(1, 3, *SIZES.get(name, (96, 128)))
    model = build(name, image=x.shape[2:])
    depths = [
        node.output[0]
        for node in model.graph.node
        if node.op_type in ("Conv", "Gemm", "Add", "Concat") and node.output[0] != "output"
    ]
    assert all(0.05 < value.std() < 10 for value in run(model, x, *depths).values())


@pytest.mark.parametrize("name", LIGHT)
def test_classes_and_images_have_different_scores(name):
    images = random_image(2, 1, 3, *SIZES.get(name, (96, 128)))
    model = build(name, image=images.shape[3:])
    first, second = (run(model, image)["output"][0] for image in images)
    best = np.sort(first)[-6:]
    assert np.diff(best).min() > 1e-4 * best[-1]
    assert 0.2 < first.std() < 10
    assert np.linalg.norm(first - second) > 0.005 * np.linalg.norm(first)


def test_resnet50_strides_on_the_3x3(structure):
    model = structure("resnet50")
    extents = shapes(model)
    strided = {
        extents[node.input[1]][2]
        for node in model.graph.node
        for attribute in node.attribute
        if node.op_type == "Conv"
        and attribute.name == "strides"
        and list(attribute.ints) == [2, 2]
        and "downsample" not in node.name
    }
    assert strided == {7, 3}


def test_densenet121_concatenates_all_features_before_each_layer(structure):
    concats = [n for n in structure("densenet121").graph.node if n.op_type == "Concat"]
    lengths = [len(node.input) for node in concats]
    assert lengths == [n for layers in (6, 12, 24, 16) for n in range(2, layers + 2)]


def test_inceptions_blocks_have_the_papers_shapes(structure):
    model = structure("inception_v3")
    extents = shapes(model)
    blocks = [
        extents[node.output[0]][1:]
        for node in model.graph.node
        if node.op_type == "Concat" and node.name.count("/") == 2
    ]
    assert blocks == [
        *[(256, 35, 35), (288, 35, 35), (288, 35, 35)],
        *[(768, 17, 17)] * 5,
        *[(1280, 8, 8), (2048, 8, 8), (2048, 8, 8)],
    ]


def test_inceptions_layers_have_torchvisions_options(structure):
    nodes = structure("inception_v3").graph.node
    epsilons = [_attribute(n, "epsilon") for n in nodes if n.op_type == "BatchNormalization"]
    counted = [_attribute(n, "count_include_pad") for n in nodes if n.op_type == "AveragePool"]
    assert epsilons == [np.float32(1e-3)] * 94
    assert counted == [1] * 9


def _attribute(node, name):
    return next(onnx.helper.get_attribute_value(a) for a in node.attribute if a.name == name)


@pytest.mark.parametrize("name", ["mobilenet_v3_large", "inception_v3", "unet", "yolov3_tiny"])
def test_seed_decides_the_weights(name):
    one, same, other = (build(name, seed=s, image=(96, 96)) for s in (1, 1, 2))
    assert one == same != other


@pytest.mark.parametrize(
    ("name", "image"), [("inception_v3", (75, 74)), ("unet", (15, 64)), ("squeezenet1_0", (7, 64))]
)
def test_too_small_an_image_is_refused(name, image):
    with pytest.raises(UsageError, match=rf"^{name} of {image[0]}x{image[1]} .*too small"):
        build(name, image=image)


def test_weights_do_not_depend_on_the_image():
    usual, larger = (build("squeezenet1_0", image=image) for image in (None, (256, 320)))
    assert usual.graph.initializer == larger.graph.initializer


def test_building_needs_little_more_memory_than_the_model():
    script = """
import resource
from neocpu.frontend.models.network_builder import NetworkBuilder
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
net = NetworkBuilder("dense", (1, 3, 64, 64), seed=0)
model = net.finish(net.dense(net.flatten(net.input, "flatten"), "fc", 2000))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 / model.ByteSize())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    # The array beside its bytes, then these beside the model's own.
    assert float(done.stdout) < 2.5


@pytest.mark.parametrize(
    ("find_it", "words"),
    [
        (find, r"no built-in network 'resnet5'.*did you mean 'resnet50'"),
        (suite, r"no suite 'resnet5'; known: paper, deployed, all$"),
    ],
)
def test_unknown_name_gets_a_suggestion(find_it, words):
    with pytest.raises(UsageError, match=words):
        find_it("resnet5")


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"batch": 0}, "batch"),
        ({"seed": -1}, "seed"),
        ({"image": (0, 224)}, "0x224 pixels is empty"),
    ],
)
def test_bad_arguments_are_refused(keywords, words):
    with pytest.raises(UsageError, match=words):
        build("squeezenet1_0", **keywords)


def test_shapes_choose_batch_and_image(tmp_path):
    expected = build("squeezenet1_0", batch=2, image=(64, 96))
    assert build_with_shapes("squeezenet1_0", InputShapes({"input": (2, 3, 64, 96)})) == expected
    path = onnx_file("squeezenet1_0", InputShapes({"input": (2, 3, 64, 96)}), tmp_path)
    assert onnx.load(path) == expected
    assert build_with_shapes("squeezenet1_0", NO_SHAPES) == build("squeezenet1_0")


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"imput": (1, 3, 64, 64)}, r"input 'imput'.*takes input:N,3,H,W.*did you mean 'input'"),
        ({"input": (1, 4, 64, 64)}, "does not fit: squeezenet1_0 takes"),
        ({"input": (3, 64, 64)}, "does not fit"),
        ({"input": (0, 3, 64, 64)}, "batch must be at least 1"),
    ],
)
def test_shapes_of_another_form_are_refused(shapes, words):
    with pytest.raises(UsageError, match=words):
        build_with_shapes("squeezenet1_0", InputShapes(shapes))


def test_the_batch():
    expected = build("squeezenet1_0", batch=2)
    assert build_with_shapes("squeezenet1_0", InputShapes(batch=2)) == expected
    usual = {"input": (2, 3, 224, 224)}
    assert build_with_shapes("squeezenet1_0", InputShapes(usual, 2)) == expected
    with pytest.raises(UsageError, match=r"224\)} and batch=3 contradict"):
        build_with_shapes("squeezenet1_0", InputShapes(usual, 3))


def test_suites():
    paper = suite("paper")
    assert paper[:5] == ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
    assert paper[-2:] == ("inception_v3", "ssd_resnet50")
    assert len(paper) == 15
    assert len(suite("deployed")) == 9
    assert sorted(paper + suite("deployed")) == sorted(MODELS)
    assert all(set(names) <= MODELS.keys() for names in SUITES.values())


def test_listing_imports_no_onnx():
    script = (
        "import sys, neocpu.frontend.models as m; assert m.MODELS; print('onnx' in sys.modules)"
    )
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


def test_a_folder_hides_no_network(tmp_path, monkeypatch):
    # `neocpu bundle resnet50.so -o resnet50/` makes one.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "resnet50").mkdir()
    (tmp_path / "resnet51").mkdir()
    assert is_name("resnet50")
    assert not is_name("resnet51")
