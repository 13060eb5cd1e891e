"""The options for processing before and after a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from neocpu.cli import options
from neocpu.foundation.errors import UsageError

if TYPE_CHECKING:
    from neocpu.frontend.processing.processing import Processing

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.option(
        "--input",
        "pictures",
        multiple=True,
        metavar="NAME=u8:nhwc:rgb:HxW",
        help="The input NAME of the artifact takes pictures as bytes: nhwc or nchw; rgb, bgr or "
        "gray; HxW pixels. The artifact computes (pixel / 255 - mean) / std, with --mean 0 and "
        "--std 1 by default, and swaps the colours if --bgr says that the model takes blue first.",
    ),
    click.option(
        "--resize",
        metavar="HxW:FIT",
        help="With --input: resize the picture to the size that the model takes. FIT is letterbox "
        "(the whole picture, with grey borders), crop (its middle) or stretch (both sides), "
        "optionally followed by :pillow (antialiased, like Pillow's BILINEAR) or :opencv (like "
        "OpenCV's INTER_LINEAR). The default is :opencv for letterbox and :pillow for the others.",
    ),
    click.option(
        "--output",
        "answers",
        multiple=True,
        metavar="NAME=top5|softmax|argmax",
        help="Replace the output NAME by its five best classes (int64, with their probabilities as "
        "NAME.scores), by all probabilities, or by the best class. Repeatable.",
    ),
    click.option(
        "--nms",
        metavar="yolo:SCORE:IOU",
        help="Replace the output of a YOLO head by its best boxes: those with a score above SCORE "
        "that overlap no better box of their class by more than IOU, as in yolo:0.25:0.45. The "
        "outputs are boxes, scores and classes; with --input, boxes are in pixels of the picture.",
    ),
)


def processing(command: Command) -> Command:
    return options.all_of(_OPTIONS, command)


def take(arguments: dict[str, Any]) -> Processing:
    """Take the options that calibration does not share out of ``arguments``. Raises UsageError."""
    from neocpu.frontend.processing.processing import Processing

    context = click.get_current_context()
    names = ("mean", "std", "bgr", "fit")
    sources = {name: context.get_parameter_source(name) for name in names}
    given = {
        name: arguments[name] if source != ParameterSource.DEFAULT else None
        for name, source in sources.items()
    }
    pictures, answers = arguments.pop("pictures"), arguments.pop("answers")
    resize, nms = arguments.pop("resize"), arguments.pop("nms")
    if len(pictures) > 1:
        raise UsageError(
            f"--input {pictures[0]} and --input {pictures[1]}: one input takes pictures; name it "
            "once"
        )
    alone = not pictures and arguments.get("calibrate") is not None
    found = Processing.parse(
        input=pictures[0] if pictures else None,
        resize=resize,
        # Without --input they describe the pictures for calibration.
        mean=None if alone else given["mean"],
        std=None if alone else given["std"],
        bgr=not alone and bool(given["bgr"]),
        outputs=_by_name(answers),
        nms=nms,
    )
    if found.resize and given["fit"] not in (None, found.resize.fit):
        raise UsageError(
            f"--fit {given['fit']} and --resize {resize} contradict each other: pictures for "
            "calibration are prepared as the artifact prepares them; drop --fit"
        )
    return found


def _by_name(answers: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in answers:
        name, equals, kind = text.rpartition("=")
        if not equals or not name:
            raise UsageError(
                f"--output {text} is not of the form NAME=top5, =softmax or =argmax; the file to "
                "write is named with -o"
            )
        if name in found:
            raise UsageError(f"--output {name}={found[name]} and {name}={kind}: give one of them")
        found[name] = kind
    return found
