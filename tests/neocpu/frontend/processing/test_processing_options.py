"""Options of pre- and postprocessing are parsed, and every mistake in them is refused."""

import json

import pytest

from neocpu.foundation.errors import UsageError
from neocpu.foundation.tensor_spec import Picture, TensorSpec
from neocpu.frontend.processing.processing import PictureInput, Processing, Resize, Suppression

PICTURES = "x=u8:nhwc:bgr:480x640"


def test_words_come_in_any_order():
    asked = PictureInput("a:b=c", "nchw", "bgr", 480, 640)
    assert PictureInput.parse("a:b=c=480x640:bgr:nchw:u8") == asked
    assert PictureInput.parse("x=7x9") == PictureInput("x", "nhwc", None, 7, 9)


def test_each_fit_has_its_library():
    assert Resize.parse("224x160:letterbox") == Resize(224, 160, "letterbox", "opencv")
    assert Resize.parse("224x160:crop") == Resize(224, 160, "crop", "pillow")
    assert Resize.parse("224x160:stretch:opencv").sampling == "opencv"


def test_suppression():
    assert Suppression.parse("yolo:0.25:0.45") == Suppression(0.25, 0.45)


def test_no_options_mean_no_processing():
    assert not Processing.parse()
    assert Processing.parse(outputs={"y": "top5"})
    assert Processing.parse(input=PICTURES).mean == (0.0,)
    assert Processing.parse(input=PICTURES, mean=0.5).mean == (0.5,)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"outputs": {"y": "top5", "z": "argmax"}},
        {"input": "a:b=c=480x640:gray:nchw:u8", "resize": "224x160:letterbox:pillow", "bgr": True},
        {"input": "x=7x9", "mean": (0.1, 0.2, 0.3), "std": 1 / 3, "nms": "yolo:1e-5:0.45"},
    ],
)
def test_requested_processing_is_kept_as_json(given):
    asked = Processing.parse(**given)
    assert Processing.parse(**json.loads(json.dumps(asked.to_json()))) == asked


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"input": "u8:480x640"}, "not of the form NAME=u8:nhwc:rgb:480x640"),
        ({"input": "=u8:480x640"}, "not of the form"),
        ({"input": "x=u8:nhcw:480x640"}, "unknown word 'nhcw'; did you mean 'nhwc'?"),
        ({"input": "x=f32:480x640"}, "unknown word 'f32'; known: u8, nhwc"),
        ({"input": "x=nhwc:nchw:480x640"}, "nhwc and nchw contradict each other"),
        ({"input": "x=rgb:bgr:480x640"}, "rgb and bgr contradict"),
        ({"input": "x=480x640:480x641"}, "480x640 and 480x641 contradict"),
        ({"input": "x=u8:nhwc"}, "lacks the pictures' height and width"),
        ({"input": "x=0x640"}, "height and width are from 1 to 16384"),
        ({"input": "x=640x99999999999999999999999"}, "height and width are from 1"),
        ({"input": PICTURES, "resize": "224x224"}, "not of the form 224x224:letterbox"),
        ({"input": PICTURES, "resize": "224:crop"}, "not of the form"),
        ({"input": PICTURES, "resize": "2x2:crap"}, "unknown word 'crap'; did you mean 'crop'?"),
        ({"input": PICTURES, "resize": "2x2:crop:cv2"}, "unknown word 'cv2'; known: pillow, op"),
        ({"input": PICTURES, "resize": "2x2:crop:pillow:x"}, "not of the form"),
        ({"input": PICTURES, "mean": (0.1, 0.2)}, "mean=0.1,0.2: one number, or one for each"),
        ({"input": PICTURES, "std": (1, 1, 1, 1)}, "std=1,1,1,1: one number"),
        ({"input": PICTURES, "std": (1, 0, 1)}, "it must be above 0"),
        ({"input": PICTURES, "mean": float("nan")}, "mean=nan"),
        ({"input": PICTURES, "mean": "half"}, "mean and std are numbers"),
        ({"resize": "224x224:crop"}, "resize is for pictures: give input="),
        ({"mean": 0.5}, "mean is for pictures"),
        ({"bgr": True}, "bgr is for pictures"),
        ({"outputs": {"y": "top6"}}, "unknown word 'top6'; did you mean 'top5'?"),
        ({"nms": "yolo:0.25"}, "not of the form yolo:SCORE:IOU"),
        ({"nms": "yolo:a:b"}, "not of the form yolo:SCORE:IOU"),
        ({"nms": "ssd:0.25:0.45"}, "only yolo's heads"),
        ({"nms": "yolo:0.25:1.45"}, "score and IoU are from 0 to 1"),
        ({"nms": "yolo:nan:0.45"}, "score and IoU are from 0 to 1"),
    ],
)  # fmt: skip
def test_mistakes_are_named(given, message):
    with pytest.raises(UsageError) as caught:
        Processing.parse(**given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_header_tells_of_pictures():
    spec = TensorSpec("x", "uint8", (1, 24, 32, 3), picture=Picture("nhwc", "bgr", "crop"))
    assert TensorSpec.from_json(spec.to_json()) == spec
    assert "picture" not in TensorSpec("x", "uint8", (1, 24, 32, 3)).to_json()


@pytest.mark.parametrize(
    "changed",
    [
        {"picture": "nhwc"},
        {"picture": {"layout": "nhwc", "colours": "bgr"}},
        {"picture": {"layout": "nhwc", "colours": "cmyk", "fit": "crop"}},
        {"picture": {"layout": ["nhwc"], "colours": "bgr", "fit": "crop"}},
        {"dtype": "float32"},
        {"shape": [1, 24, 32]},
        {"shape": [1, 24, 32, 1]},
    ],
)
def test_a_header_with_an_impossible_picture_has_none(changed):
    spec = TensorSpec("x", "uint8", (1, 24, 32, 3), picture=Picture("nhwc", "bgr", "crop"))
    assert TensorSpec.from_json({**spec.to_json(), **changed}).picture is None
