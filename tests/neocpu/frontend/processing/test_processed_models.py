"""Models with pictures before them and answers after them, compiled."""

import numpy as np
import onnx
import pytest
from differential import make_model
from onnx.helper import make_node as node
from onnx.reference import ReferenceEvaluator

import neocpu
from neocpu.foundation.errors import UnsupportedError, UsageError
from neocpu.foundation.tensor_spec import Picture
from neocpu.frontend.load import load_model
from neocpu.frontend.processing.load_processed import load_processed
from neocpu.frontend.processing.processing import Processing
from neocpu.frontend.shapes.input_shapes import NO_SHAPES, InputShapes

MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
PICTURE = np.random.default_rng(0).integers(0, 256, (1, 37, 53, 3), dtype=np.uint8)


def identity(shape=(1, 3, 20, 24), dtype="float32"):
    """A model that returns its input, as a network sees it."""
    return make_model([node("Neg", ["x"], ["n"]), node("Neg", ["n"], ["y"])],
                      {"x": np.zeros(shape, dtype)})  # fmt: skip


def run(model, inputs, shapes=NO_SHAPES, **asked):
    """Return a compiled model's outputs, and those of its standard form by onnx's evaluator."""
    processing = Processing.parse(**asked)
    loaded = load_processed(model, shapes, processing)
    onnx.checker.check_model(loaded.original)
    standard = ReferenceEvaluator(loaded.original).run(None, inputs)
    given = {"batch": shapes.batch, "shapes": shapes.by_name}
    with neocpu.compile(model, processing=processing, **given) as compiled:
        assert compiled.header.inputs == loaded.inputs
        with compiled.module() as module:
            made = module.run(inputs)
    return made, dict(zip(made, standard, strict=True))


def by_pillow(fit, bgr):
    """Return a network's input for `PICTURE`, resized by Pillow to 20x24."""
    image = pytest.importorskip("PIL.Image")
    picture = image.fromarray(PICTURE[0])
    bilinear = image.Resampling.BILINEAR
    if fit == "stretch":
        pixels = np.asarray(picture.resize((24, 20), bilinear))
    elif fit == "crop":  # 20 / 37 of 53 are 28
        pixels = np.asarray(picture.resize((28, 20), bilinear))[:, 2:26]
    else:  # 24 / 53 of 37 are 17
        pixels = np.full((20, 24, 3), 114, np.uint8)
        pixels[1:18] = np.asarray(picture.resize((24, 17), bilinear))
    pixels = pixels[:, :, ::-1] if bgr else pixels
    return ((pixels / 255 - MEAN) / STD).transpose(2, 0, 1)[None]


@pytest.mark.parametrize(
    ("fit", "layout", "colours", "bgr"),
    [
        ("stretch", "nhwc", "rgb", False),
        ("crop", "nchw", "bgr", False),
        ("letterbox", "nhwc", "bgr", True),
    ],
)
def test_pictures_are_one_step_from_pillows(fit, layout, colours, bgr):
    given = PICTURE if layout == "nhwc" else PICTURE.transpose(0, 3, 1, 2).copy()
    made, standard = run(
        identity(),
        {"x": given},
        input=f"x=u8:{layout}:{colours}:37x53",
        resize=f"20x24:{fit}:pillow",
        mean=tuple(MEAN),
        std=tuple(STD),
        bgr=bgr,
    )
    np.testing.assert_allclose(made["y"], standard["y"], atol=1e-5)
    steps = (made["y"] - by_pillow(fit, (colours == "bgr") != bgr)) * STD[:, None, None] * 255
    assert np.abs(steps).max() <= 1.001


def test_a_batch_of_grey_pictures_for_colours_last_in_half_precision():
    model = identity((1, 8, 9, 1), "float16")
    pictures = np.arange(3 * 16 * 9, dtype=np.uint8).reshape(3, 16, 9, 1)
    made, standard = run(
        model, {"x": pictures}, InputShapes(batch=3), input="x=16x9", resize="8x9:stretch:opencv"
    )
    assert made["y"].dtype == np.float16
    np.testing.assert_allclose(made["y"], standard["y"], atol=1e-3)
    halves = pictures.reshape(3, 8, 2, 9, 1).mean(axis=2) / 255
    np.testing.assert_allclose(made["y"], halves, atol=1e-3)


def test_the_model_may_leave_its_size_open():
    model = identity()
    for value in (*model.graph.input, *model.graph.output):
        for axis in (0, 2, 3):
            value.type.tensor_type.shape.dim[axis].dim_param = "nhw"[axis - 1]
    asked = Processing.parse(input="x=37x53", resize="20x24:crop")
    loaded = load_processed(model, NO_SHAPES, asked)
    assert [spec.shape for spec in loaded.outputs] == [(1, 3, 20, 24)]
    (spec,) = loaded.inputs
    assert (spec.dtype, spec.shape) == ("uint8", (1, 37, 53, 3))
    assert spec.picture == Picture("nhwc", "rgb", "crop")
    assert loaded.notes == ("x: pictures nhwc rgb 37x53 -> 20x24 crop, as pillow does",)


@pytest.mark.parametrize("opset", [11, 18])
def test_answers(opset):
    scores = np.random.default_rng(0).standard_normal((2, 7)).astype(np.float32)
    nodes = [node("Neg", ["x"], [name]) for name in ("a", "b", "c", "d")]
    nodes.append(node("Softmax", ["x"], ["e"], axis=1))
    model = make_model(nodes, {"x": scores}, outputs="abcde", opset=opset)
    kinds = {"a": "softmax", "b": "argmax", "c": "top5", "e": "top5"}
    made, standard = run(model, {"x": scores}, outputs=kinds)
    assert list(made) == ["a", "b", "c", "c.scores", "d", "e", "e.scores"]
    for name, value in standard.items():
        np.testing.assert_allclose(made[name], value, rtol=1e-5)
    probabilities = np.exp(-scores) / np.exp(-scores).sum(axis=1, keepdims=True)
    best = np.argsort(scores, axis=1)[:, :5]
    np.testing.assert_allclose(made["a"], probabilities, rtol=1e-5)
    np.testing.assert_array_equal(made["b"], scores.argmin(axis=1))
    np.testing.assert_array_equal(made["c"], best)
    np.testing.assert_allclose(
        made["c.scores"], np.take_along_axis(probabilities, best, 1), rtol=1e-5
    )
    np.testing.assert_array_equal(made["d"], -scores)
    once = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(made["e.scores"], -np.sort(-once, axis=1)[:, :5], rtol=1e-5)


def test_masks_of_classes():
    scores = np.random.default_rng(0).standard_normal((1, 3, 4, 5)).astype(np.float32)
    model = make_model([node("Neg", ["x"], ["y"])], {"x": scores})
    made, _ = run(model, {"x": scores}, outputs={"y": "argmax"})
    np.testing.assert_array_equal(made["y"], scores.argmin(axis=1))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"input": "z=20x24"}, "input names an input 'z' the model does not have"),
        ({"input": "x=37x53"}, "give resize='20x24:stretch'"),
        ({"input": "x=37x53", "resize": "20x20:crop"}, "resize makes 20x20 and the model's"),
        ({"input": "x=gray:20x24"}, "has gray pictures; the model's input is 1x3x20x24"),
        ({"outputs": {"z": "top5"}}, "outputs= z names an output 'z' the model does not have"),
        ({"outputs": {"y": "top5"}, "nms": "yolo:0.1:0.5"}, "no output is a YOLO's head"),
    ],
)
def test_processing_that_does_not_fit_the_model_is_refused(asked, message):
    with pytest.raises(UsageError, match=message):
        load_processed(identity(), NO_SHAPES, Processing.parse(**asked))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"input": f"x={'9' * 5000}x24"}, "height and width are from 1 to 16384"),
        ({"input": "x=20x24", "resize": f"20x{'9' * 50}:crop"}, "height and width are from 1"),
        ({"input": "x=20x24", "mean": 10**400}, "mean and std are numbers"),
    ],
)
def test_numbers_that_are_too_large(asked, message):
    with pytest.raises(UsageError, match=message):
        Processing.parse(**asked)


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((1, 20, 24), "float32"), ((1, 4, 8, 8), "float32"), ((1, 3, 8, 8), "int8")],
)
def test_arrays_that_are_no_pictures_are_refused(shape, dtype):
    with pytest.raises(UsageError, match=f"the model's input 'x' is {dtype} of shape"):
        load_processed(identity(shape, dtype), NO_SHAPES, Processing.parse(input="x=20x24"))


def test_outputs_without_classes_are_refused():
    model = identity((1, 3, 8))
    with pytest.raises(UsageError, match="no scores of classes"):
        load_processed(model, NO_SHAPES, Processing.parse(outputs={"y": "top5"}))
    grey = identity((1, 1, 20, 24))
    with pytest.raises(UsageError, match="mean= has 3 numbers"):
        load_processed(grey, NO_SHAPES, Processing.parse(input="x=20x24", mean=(0, 0, 0)))


def test_pictures_that_no_kernel_can_count(monkeypatch):
    asked = Processing.parse(input="x=16384x16384", resize="20x24:crop")
    with pytest.raises(UsageError, match="8 pictures of 16384x16384 have more than"):
        load_processed(identity(), InputShapes(batch=8), asked)


def test_a_file_has_no_operators_of_ours():
    """Constants of our own operators are not checked: a kernel would read out of bounds."""
    model = identity()
    model.graph.node[0].domain = "neocpu"
    model.graph.node[0].op_type = "PreparePicture"
    model.opset_import.append(onnx.helper.make_opsetid("neocpu", 1))
    with pytest.raises(UnsupportedError, match="neocpu::PreparePicture"):
        load_model(model)
