"""The steps that a caller requests before and after a model: pictures in, answers out."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from neocpu.foundation.errors import UsageError, did_you_mean
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.option_words import FITS
from neocpu.foundation.tensor_spec import COLOURS, LAYOUTS, Picture

SAMPLINGS: Final = ("pillow", "opencv")
KINDS: Final = ("softmax", "argmax", "top5")
MAX_SIDE: Final = 1 << 14  # the largest height or width of a picture: four times that of a camera's

_BYTES: Final = "u8"
_INPUT: Final = "NAME=u8:nhwc:rgb:480x640"
_RESIZE: Final = "224x224:letterbox, crop or stretch, and perhaps :opencv or :pillow"
_NMS: Final = "yolo:SCORE:IOU, as in yolo:0.25:0.45"
_EVERY_COLOUR: Final = (1, 3)


@dataclass(frozen=True, slots=True)
class PictureInput:
    """A model's input that takes pictures of bytes.

    Its layout is ``nhwc`` or ``nchw``; colours are ``rgb``, ``bgr`` or ``gray``, by default by the
    model's number of colours, red first.
    """

    name: str
    layout: str
    colours: str | None
    height: int
    width: int

    @classmethod
    def parse(cls, text: str) -> PictureInput:
        """Parse ``NAME=u8:nhwc:rgb:480x640``; the words may come in any order."""
        name, equals, words = text.rpartition("=")
        if not equals or not name:
            raise UsageError(f"--input {text} is not of the form {_INPUT}")
        found: dict[str, str] = {}
        for word in words.split(":"):
            what = _category(word)
            if what is None:
                known = (_BYTES, *LAYOUTS, *COLOURS)
                raise UsageError(
                    f"--input {text}: unknown word '{word}'{did_you_mean(word, known)}; known: "
                    f"{', '.join(known)} and a size such as 480x640"
                )
            if what in found:
                raise UsageError(f"--input {text}: {found[what]} and {word} contradict each other")
            found[what] = word
        if "size" not in found:
            raise UsageError(f"--input {text} lacks the pictures' height and width, as in {_INPUT}")
        size = _size(f"--input {text}", found["size"])
        return cls(name, found.get("layout", "nhwc"), found.get("colours"), *size)


@dataclass(frozen=True, slots=True)
class Resize:
    """The way in which a picture becomes the size of the model's input."""

    height: int
    width: int
    # ``stretch`` scales both sides; ``crop`` takes the middle of the model's aspect ratio;
    # ``letterbox`` puts the whole picture in the middle, on grey.
    fit: str
    sampling: str  # ``pillow`` antialiases when shrinking, for classifiers; ``opencv`` is for YOLOs

    @classmethod
    def parse(cls, text: str) -> Resize:
        """Parse ``224x224:letterbox``, optionally followed by ``:opencv`` or ``:pillow``."""
        size, *words = text.split(":")
        if not 1 <= len(words) <= 2 or re.fullmatch(r"\d+x\d+", size) is None:
            raise UsageError(f"--resize {text} is not of the form {_RESIZE}")
        for word, known in zip(words, (FITS, SAMPLINGS), strict=False):
            if word not in known:
                raise UsageError(
                    f"--resize {text}: unknown word '{word}'{did_you_mean(word, known)}; known: "
                    f"{', '.join(known)}"
                )
        fit, default = words[0], "opencv" if words[0] == "letterbox" else "pillow"
        return cls(*_size(f"--resize {text}", size), fit, (*words[1:], default)[0])


@dataclass(frozen=True, slots=True)
class Suppression:
    """The score that a YOLO's box must exceed, and the IoU above which a worse one is dropped."""

    score: float
    overlap: float

    @classmethod
    def parse(cls, text: str) -> Suppression:
        """Parse ``yolo:0.25:0.45``."""
        family, *numbers = text.split(":")
        try:
            score, overlap = map(float, numbers)
        except ValueError:
            raise UsageError(f"--nms {text} is not of the form {_NMS}") from None
        if family != "yolo":
            raise UsageError(f"--nms {text}: only yolo's heads are known, as in {_NMS}")
        if not (0 <= score < 1 and 0 <= overlap <= 1):
            raise UsageError(f"--nms {text}: score and IoU are from 0 to 1, as in {_NMS}")
        return cls(score, overlap)


@dataclass(frozen=True, slots=True, kw_only=True)
class Processing:
    """The steps of an artifact before and after its model.

    Attributes
    ----------
    picture : PictureInput or None
        The input that takes pictures; None if there is none.
    resize : Resize or None
        The resizing of pictures; None if they have the model's size.
    mean, std : tuple of float
        The model's input is ``(pixel / 255 - mean) / std``, with one number for all colours or one
        for each.
    bgr : bool
        Whether the model's first colour is blue.
    outputs : mapping of str to str
        The answers, one of `KINDS`, that replace outputs, by the outputs' names.
    suppression : Suppression or None
        The suppression of boxes of a YOLO's head.
    """

    picture: PictureInput | None = None
    resize: Resize | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    bgr: bool = False
    outputs: Mapping[str, str] = field(default_factory=dict)
    suppression: Suppression | None = None

    def __post_init__(self) -> None:
        for option, values in (("--mean", self.mean), ("--std", self.std)):
            text = ",".join(f"{value:g}" for value in values)
            if len(values) not in _EVERY_COLOUR or not all(map(math.isfinite, values)):
                raise UsageError(
                    f"{option} {text}: one number, or one for each of three colours, is needed"
                )
        if not all(value > 0 for value in self.std):
            raise UsageError(f"--std {','.join(map(str, self.std))}: it must be above 0")

    @classmethod
    def parse(
        cls,
        *,
        input: str | None = None,
        resize: str | None = None,
        mean: float | Sequence[float] | None = None,
        std: float | Sequence[float] | None = None,
        bgr: bool = False,
        outputs: Mapping[str, str] | None = None,
        nms: str | None = None,
    ) -> Processing:
        """Parse the arguments of the command line.

        Parameters
        ----------
        input : str, optional
            ``NAME=u8:nhwc:rgb:480x640``: the model's input of that name takes pictures of bytes.
            ``nchw``, ``bgr`` and ``gray`` are alternatives; the words may come in any order.
        resize : str, optional
            ``224x224:letterbox``, ``:crop`` or ``:stretch``, optionally followed by ``:pillow`` or
            ``:opencv``.
        mean, std : float or sequence of float, optional
            0 and 1 by default, so that pixels are from 0 to 1.
        bgr : bool
            Whether the model's first colour is blue.
        outputs : mapping of str to str, optional
            ``softmax``, ``argmax`` or ``top5``, by the outputs' names.
        nms : str, optional
            ``yolo:0.25:0.45``: boxes of a YOLO's head, with thresholds of score and IoU.

        Raises
        ------
        UsageError
        """
        if input is None:
            for option, given in (("--resize", resize), ("--mean", mean), ("--std", std)):
                if given is not None:
                    raise UsageError(f"{option} is for pictures: give --input {_INPUT} too")
            if bgr:
                raise UsageError(f"bgr is for pictures: give --input {_INPUT} too")
        for name, kind in (outputs or {}).items():
            if kind not in KINDS:
                raise UsageError(
                    f"--output {name}={kind}: unknown word '{kind}'{did_you_mean(kind, KINDS)}; "
                    f"known: {', '.join(KINDS)}"
                )
        return cls(
            picture=None if input is None else PictureInput.parse(input),
            resize=None if resize is None else Resize.parse(resize),
            mean=_numbers(mean, 0.0),
            std=_numbers(std, 1.0),
            bgr=bgr,
            outputs=dict(outputs or {}),
            suppression=None if nms is None else Suppression.parse(nms),
        )

    def to_json(self) -> JsonObject:
        """Return the arguments of `parse` that make this object."""
        words: JsonObject = {"outputs": dict(self.outputs)}
        if (asked := self.picture) is not None:
            size = f"{asked.height}x{asked.width}"
            parts = (_BYTES, asked.layout, *filter(None, [asked.colours]), size)
            words |= {"input": f"{asked.name}={':'.join(parts)}", "bgr": self.bgr}
            words |= {"mean": list(self.mean), "std": list(self.std)}
        if (how := self.resize) is not None:
            words["resize"] = f"{how.height}x{how.width}:{how.fit}:{how.sampling}"
        if (boxes := self.suppression) is not None:
            words["nms"] = f"yolo:{boxes.score!r}:{boxes.overlap!r}"
        return words

    def __bool__(self) -> bool:
        return bool(self.picture or self.outputs or self.suppression)

    @property
    def fit(self) -> str:
        """The fit that a decoder of pictures applies to those of other sizes."""
        return self.resize.fit if self.resize else "stretch"

    def picture_of(self, colours: int) -> Picture:
        """Return the description of the artifact's input, for a model of so many colours."""
        assert self.picture is not None
        given = self.picture.colours or ("gray" if colours == 1 else "rgb")
        return Picture(self.picture.layout, given, self.fit)


NO_PROCESSING: Final = Processing()  # no steps: the model alone


def _category(word: str) -> str | None:
    if re.fullmatch(r"\d+x\d+", word):
        return "size"
    known = {"dtype": (_BYTES,), "layout": LAYOUTS, "colours": COLOURS}
    return next((what for what, words in known.items() if word in words), None)


def _size(where: str, text: str) -> tuple[int, int]:
    # No side of more digits is allowed, and Python refuses to parse thousands of them.
    height, width = (int(side[:9]) for side in text.split("x"))
    if not (0 < height <= MAX_SIDE and 0 < width <= MAX_SIDE):
        raise UsageError(f"{where}: height and width are from 1 to {MAX_SIDE}")
    return height, width


def _numbers(given: Any, default: float) -> tuple[float, ...]:
    if given is None:
        return (default,)
    try:
        return tuple(map(float, given if isinstance(given, Sequence) else [given]))
    except (OverflowError, TypeError, ValueError):
        raise UsageError(f"mean and std are numbers, got {given!r}") from None
