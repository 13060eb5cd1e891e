"""Inception-v3 against torchvision's figures."""

import numpy as np
import onnx
import pytest
from network_measures import multiply_accumulates, parameters, random_image, run, shapes

from neocpu.foundation.errors import UsageError
from neocpu.frontend.models import MODELS, build


@pytest.fixture(scope="module")
def inception():
    return build("inception_v3")


def test_is_valid_onnx(inception):
    onnx.checker.check_model(inception, full_check=True)


def test_counts_are_torchvisions(inception):
    # 27 161 264 with the auxiliary classifier.
    assert parameters(inception) == 23_834_568 == MODELS["inception_v3"].parameters
    assert round(multiply_accumulates(inception) / 1e9, 3) == 5.713 == MODELS["inception_v3"].gmacs


def test_blocks_have_the_papers_shapes(inception):
    extents = shapes(inception)
    blocks = [
        extents[node.output[0]][1:]
        for node in inception.graph.node
        if node.op_type == "Concat" and node.name.count("/") == 2
    ]
    assert blocks == [
        *[(256, 35, 35), (288, 35, 35), (288, 35, 35)],
        *[(768, 17, 17)] * 5,
        *[(1280, 8, 8), (2048, 8, 8), (2048, 8, 8)],
    ]


def test_layers_have_torchvisions_options(inception):
    norms = [n for n in inception.graph.node if n.op_type == "BatchNormalization"]
    pools = [n for n in inception.graph.node if n.op_type == "AveragePool"]
    assert len(norms) == 94
    assert {_attribute(n, "epsilon") for n in norms} == {np.float32(1e-3)}
    assert len(pools) == 9
    assert {_attribute(n, "count_include_pad") for n in pools} == {1}


def test_other_images_and_batches():
    model = build("inception_v3", batch=2, image=(139, 203))
    depths = [n.output[0] for n in model.graph.node if n.op_type in ("Conv", "Concat")]
    values = run(model, random_image(2, 3, 139, 203), *depths)
    assert values["output"].shape == (2, 1000)
    assert np.linalg.norm(values["output"][0] - values["output"][1]) > 0.1
    assert all(0.2 < values[depth].std() < 20 for depth in depths)


def test_too_small_an_image_is_refused():
    with pytest.raises(UsageError, match="inception_v3 of 75x74 pixels: the image is too small"):
        build("inception_v3", image=(75, 74))


def test_seed_decides_the_weights(inception):
    assert build("inception_v3") == inception
    assert build("inception_v3", seed=1) != inception


def _attribute(node, name):
    return next(onnx.helper.get_attribute_value(a) for a in node.attribute if a.name == name)
