"""Operators that are expanded into others agree with ONNX Runtime, or ONNX itself."""

from __future__ import annotations

import needs
import numpy as np
import pytest
from differential import (
    DATA,
    assert_matches_onnxruntime,
    check,
    floats,
    ints,
    make_model,
    node_of,
    one_op,
    random,
    run_imported,
)
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from neocpu.foundation.errors import UnsupportedError
from neocpu.frontend.load import load_model


def matches_onnx(model, feeds):
    """Compare with ONNX's own evaluator, where ONNX Runtime lacks the operator."""
    expected = ReferenceEvaluator(model).run(None, feeds)
    _, _, actual = run_imported(model, feeds)
    for mine, theirs in zip(actual, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def check_onnx(op, *constants, x, **options):
    matches_onnx(one_op(op, x, constants, **options), {"x": x})


@pytest.mark.parametrize(
    ("groups", "parts", "masked", "attributes"),
    [
        (1, 1, False, {}),
        (2, 3, True, {"strides": [2, 1], "pads": [1, 2, 0, 1], "dilations": [1, 2]}),
    ],
)
def test_a_deformable_convolution(groups, parts, masked, attributes):
    x, weights = random(2, 6, 7, 8), random(4, 6 // groups, 2, 3, seed=1)
    strides, dilations = (attributes.get(key, [1, 1]) for key in ("strides", "dilations"))
    pads = attributes.get("pads", [0] * 4)
    sizes = [
        (x.shape[2 + a] + pads[a] + pads[2 + a] - dilations[a] * (weights.shape[2 + a] - 1) - 1)
        // strides[a]
        + 1
        for a in range(2)
    ]
    offsets = 2 * random(2, parts * 6 * 2, *sizes, seed=2)
    mask = [random(2, parts * 6, *sizes, seed=3)] if masked else [None]
    constants = (weights, offsets, floats(1, 2, 3, 4), *mask)
    check("DeformConv", *constants, x=x, opset=19, group=groups, offset_group=parts, **attributes)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_determinants(order):
    check("Det", x=random(3, 2, order, order))


def test_a_large_determinant_is_refused():
    with pytest.raises(UnsupportedError, match="matrices of up to 4 rows are supported, not 5"):
        load_model(one_op("Det", random(5, 5)))


@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
def test_sequences_are_reversed(axes):
    x = random(5, 3, 2) if axes[0] == 0 else random(3, 5, 2)
    lengths = ints(5, 1, 3)
    check("ReverseSequence", lengths, x=x, time_axis=axes[0], batch_axis=axes[1])


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_a_cache_takes_an_update(mode):
    cache, update = random(3, 2, 7, 5), random(3, 2, 3, 5, seed=1)
    starts = ints(0, 4, 2) if mode == "linear" else ints(0, 6, 5)
    check_onnx("TensorScatter", update, starts, x=cache, opset=24, mode=mode)


@pytest.mark.parametrize("attributes", [{}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}])
def test_products_add_up(attributes):
    check_onnx("CumProd", np.int64(1), x=random(2, 7, 3), opset=26, **attributes)


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 1, 3, 4, 2)])
def test_a_grid_is_an_affine_map_of_places(aligned, size):
    theta = random(2, len(size) - 2, len(size) - 1)
    check("AffineGrid", ints(*size), x=theta, opset=20, align_corners=aligned)


def test_grids_of_one_pixel_with_aligned_corners_are_refused():
    model = one_op("AffineGrid", random(2, 2, 3), (ints(2, 3, 1, 5),), opset=20, align_corners=1)
    with pytest.raises(UnsupportedError, match="align_corners takes at least two pixels"):
        load_model(model)


def test_a_matrix_of_ones_beside_its_diagonal():
    x = random(3, 5)
    node = node_of("EyeLike", "x", "e", k=-1, dtype=TensorProto.INT32)
    cast = node_of("Cast", "e", "f", to=TensorProto.FLOAT)
    add = node_of("Add", "x f")
    assert_matches_onnxruntime(make_model([node, cast, add], {"x": x}), {"x": x})


@needs.one_in(2)
@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [2, 3], "pads": [1, 0, 0, 2], "strides": [2, 1]},
        {"kernel_shape": [3, 3], "dilations": [2, 2], "storage_order": 1},
        {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1},
        {"kernel_shape": [4, 2], "auto_pad": "SAME_UPPER", "strides": [2, 2]},
    ],
)
def test_maxima_have_places(attributes):
    check("MaxPool", x=DATA, opset=22, outputs=2, **attributes)


@needs.everything()
def test_places_of_maxima_of_lines_and_volumes():
    check("MaxPool", x=random(2, 3, 11), outputs=2, kernel_shape=[3], pads=[1, 1])
    check("MaxPool", x=random(1, 2, 5, 4, 6), outputs=2, kernel_shape=[2, 2, 3])


def test_a_batch_has_its_own_statistics():
    scales = [random(6, seed=i) for i in range(3)] + [random(6, seed=3) ** 2]
    options = {"outputs": 3, "training_mode": 1, "momentum": 0.7}
    check_onnx("BatchNormalization", *scales, x=DATA, **options)


@pytest.mark.parametrize("axis", [-1, 1])
def test_a_layer_norm_tells_its_statistics(axis):
    scale = random(*DATA.shape[axis:], seed=1)
    check_onnx("LayerNormalization", scale, x=DATA, outputs=3, axis=axis)


def test_a_dropout_that_drops_nothing_has_a_mask():
    check("Dropout", np.float32(0.3), x=DATA, outputs=2)


@needs.one_in(2)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("op", ["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"])
def test_losses(op, reduction):
    x = random(3, 5, 2)
    labels = np.array([[0, 4], [2, 1], [3, 0]])
    weights = np.abs(random(5, seed=1))
    check(op, labels, weights, x=x, opset=13, reduction=reduction, ignore_index=3)


@pytest.mark.parametrize(
    ("targets", "axes"), [((12, 5, 8, 11), None), ((3, 14), [3, -3]), ((6, 9), [2, 1])]
)
def test_images_are_cropped_and_padded_about_their_centres(targets, axes):
    check("CenterCropPad", ints(*targets), x=DATA, **({"axes": axes} if axes else {}))


@pytest.mark.parametrize("attributes", [{}, {"interleaved": 1, "rotary_embedding_dim": 4}])
def test_rotary_embeddings(attributes):
    x = random(2, 3, 5, 8)
    half = attributes.get("rotary_embedding_dim", 8) // 2
    cosines, sines = random(7, half, seed=1), random(7, half, seed=2)
    positions = np.array([[0, 3, 6, 2, 1], [5, 4, 3, 2, 1]])
    check_onnx("RotaryEmbedding", cosines, sines, positions, x=x, opset=23, **attributes)


@pytest.mark.parametrize(
    ("heads", "attributes"), [((6, 6), {"is_causal": 1}), ((6, 2), {"scale": 0.3, "softcap": 2.0})]
)
def test_attention(heads, attributes):
    q, k = random(2, heads[0], 5, 7), random(2, heads[1], 5, 7, seed=1)
    v = random(2, heads[1], 5, 3)
    check_onnx("Attention", k, v, x=q, opset=23, **attributes)


def test_attention_of_three_dimensions_with_a_mask_and_a_past():
    q, k, v = random(2, 5, 16), random(2, 5, 8, seed=1), random(2, 5, 6, seed=2)
    past = random(2, 2, 4, 4, seed=3), random(2, 2, 4, 3, seed=4)
    mask = random(5, 9, seed=5) > 0
    mask[:, 0] = True
    heads = {"q_num_heads": 4, "kv_num_heads": 2}
    check_onnx("Attention", k, v, mask, *past, x=q, opset=23, outputs=3, **heads)


def test_bits_are_cast():
    x = random(3, 5)
    nodes = [
        node_of("BitCast", "x", "bits", to=TensorProto.INT32),
        node_of("Abs", "bits", "size"),
        node_of("BitCast", "size", to=TensorProto.FLOAT),
    ]
    matches_onnx(make_model(nodes, {"x": x}, opset=26), {"x": x})


def test_empty_tensors_drop_out_of_concatenations():
    nodes = [node_of("Split", "x sizes", "a none b", axis=1), node_of("Concat", "b none a", axis=1)]
    model = make_model(nodes, {"x": DATA}, {"sizes": ints(4, 0, 2)})
    matches_onnx(model, {"x": DATA})


EINSUMS = [
    ("bhqd,bhkd->bhqk", (2, 3, 5, 4), (2, 3, 7, 4)),
    ("bhqk,bkhd->bqhd", (2, 3, 5, 7), (2, 7, 3, 4)),
    ("bqc,bchw->bqhw", (2, 5, 4), (2, 4, 3, 7)),
    ("...ij,jk", (2, 3, 5, 4), (4, 7)),
    ("ij,...jk->...ik", (5, 4), (3, 4, 2)),
    ("bnd,dhk->bhnk", (2, 5, 6), (6, 3, 2)),
    ("abc,cd->ad", (2, 3, 5), (5, 4)),
    ("bc,bc->b", (3, 5), (3, 5)),
    ("i,j->ij", (3,), (5,)),
    ("bci,bc->bic", (2, 3, 5), (2, 3)),
    ("ab,ab", (3, 5), (3, 5)),
    ("bcd,dc->b", (2, 3, 5), (5, 3)),
]


@pytest.mark.parametrize(("equation", "one", "other"), EINSUMS)
def test_einsum_is_a_product(equation, one, other):
    node = node_of("Einsum", "x z", equation=equation)
    feeds = {"x": random(*one), "z": random(*other, seed=1)}
    module = assert_matches_onnxruntime(make_model([node], feeds), feeds)
    assert not any("einsum" in str(name) for name in module.functions)
    if other == (4, 7):  # and of weights on either side
        for side in "xz":
            model = make_model(
                [node], {k: v for k, v in feeds.items() if k != side}, {side: feeds[side]}
            )
            assert_matches_onnxruntime(model, {k: v for k, v in feeds.items() if k != side})


@pytest.mark.parametrize(
    ("equation", "shape"), [("ij->ji", (3, 5)), ("ijk->k", (2, 3, 5)), ("ii->i", (4, 4))]
)
def test_einsum_of_one_tensor(equation, shape):
    check("Einsum", x=random(*shape), equation=equation)


def test_einsums_of_integers_agree_with_onnxruntime():
    integers = {"x": np.arange(6).reshape(2, 3), "z": np.arange(12).reshape(3, 4)}
    node = node_of("Einsum", "x z", equation="ij,jk")
    assert_matches_onnxruntime(make_model([node], integers), integers)
