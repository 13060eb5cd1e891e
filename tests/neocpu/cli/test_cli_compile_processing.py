"""``neocpu compile --input --resize --output --nms``."""

from pathlib import Path

import onnx
import pytest

import neocpu
from neocpu.foundation.errors import UsageError
from neocpu.frontend.processing.processing import Processing

PICTURES = ("--input", "image=u8:nhwc:bgr:24x32", "--resize", "16x16:letterbox")


def test_processing_is_shown_by_compile_explain_and_inspect(cli, onnx_file):
    name = onnx.load(onnx_file).graph.output[0].name
    outcome = cli("compile", onnx_file, "-o", "net.so", *PICTURES, "--output", f"{name}=argmax")
    assert outcome.code == 0, outcome.error
    assert "image: pictures nhwc bgr 24x32 -> 16x16 letterbox, as opencv does" in outcome.out
    assert f"{name}: argmax" in outcome.out
    assert "24x32 -> 16x16" in cli("explain", "net.so").out
    inspected = cli("inspect", "net.so")
    assert "image: uint8[1, 24, 32, 3], nhwc bgr pictures" in inspected.out
    (spec,) = cli("inspect", "net.so", "--json").json["variants"][0]["inputs"]
    assert spec["picture"] == {"layout": "nhwc", "colours": "bgr", "fit": "letterbox"}
    assert f"{name}" in cli("run", "net.so").out


@pytest.fixture
def asked(cli, monkeypatch):
    """Return the arguments of `neocpu.compile` or `compile_calibrated` for some options."""

    def ask(*words):
        calls = []

        def record(*_, **named):
            calls.append(named)
            raise UsageError("stop")

        for name in ("compile", "compile_calibrated"):
            monkeypatch.setattr(neocpu, name, record)
        outcome = cli("compile", "net.onnx", *words)
        assert calls, outcome.error
        return calls[0]

    return ask


def test_options_arrive(asked):
    given = asked(*PICTURES, "--mean", "0.5", "--bgr", "--output", "y=top5", "--nms", "yolo:0.1:1")
    assert given["processing"] == Processing.parse(
        input=PICTURES[1],
        resize=PICTURES[3],
        mean=0.5,
        bgr=True,
        outputs={"y": "top5"},
        nms="yolo:0.1:1",
    )
    assert asked(*PICTURES)["processing"].std == (1.0,)
    assert not asked()["processing"]


def test_pictures_for_calibration_keep_their_own_options(asked):
    given = asked("--calibrate", "photos", "--mean", "0.5", "--bgr")
    assert not given["processing"]
    assert given["how"].pictures.mean == (0.5,)
    given = asked(*PICTURES, "--calibrate", "photos", "--mean", "0.5")
    assert given["processing"].mean == (0.5,)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*PICTURES, "--input", "x=8x8"), "one input takes pictures; name it once"),
        (("--input", "image=u8:hwc:24x32"), "unknown word 'hwc'"),
        (("--input", "imag=16x16"), "did you mean 'image'?"),
        (("--resize", "16x16:crop"), "--resize is for pictures: give --input"),
        (("--mean", "0.5"), "--mean is for pictures"),
        ((*PICTURES, "--mean", "0.5,0.5"), "one number, or one for each of three colours"),
        ((*PICTURES, "--fit", "crop"), "--fit crop and --resize 16x16:letterbox contradict"),
        (("--output", "net.so"), "the file to write is named with -o"),
        (("--output", "a=top5", "--output", "a=softmax"), "give one of them"),
        (("--nms", "yolo:0.25:0.45"), "no output is a YOLO's head"),
    ],
)
def test_mistakes_take_one_line(cli, onnx_file, words, message):
    outcome = cli("compile", onnx_file, "-o", "net.so", *words, "--quiet").fails(2, message)
    assert outcome.error.count("\n") <= 1
    assert not Path("net.so").exists()
