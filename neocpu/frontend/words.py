"""Refuse words in attributes that ONNX does not define, before they are taken for a default.

ONNX's checker checks only the type of an attribute. Of TVM's converters, some refuse an unknown
word, some take it for another, and some fail in code generation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from neocpu.frontend.converters.convert_recurrent import DIRECTIONS
from neocpu.frontend.converters.convert_resize import COORDINATES, ROUNDING
from neocpu.frontend.converters.convert_shape import PAD_MODES
from neocpu.schedules.operators.indexing.scatter import REDUCTIONS
from neocpu.schedules.recurrent.workload import GATES

WORDS_OF_ALL: Final[Mapping[str, tuple[str, ...]]] = {
    # An empty word is the default, as in ONNX Runtime, also for reductions, but for no others.
    "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", ""),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "nearest_mode": tuple(ROUNDING),
    "padding_mode": ("zeros", "border", "reflection"),
    "approximate": ("none", "tanh"),
}
"""The words of attributes that have the same ones in all operators."""

WORDS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    ("DepthToSpace", "mode"): ("DCR", "CRD"),
    **{(op, "direction"): tuple(DIRECTIONS) for op in GATES},
    ("GridSample", "mode"): ("nearest", "linear", "cubic", "bilinear", "bicubic"),
    ("Pad", "mode"): ("constant", *PAD_MODES),
    ("Resize", "mode"): ("nearest", "linear", "cubic"),
    ("Resize", "coordinate_transformation_mode"): COORDINATES,
    # ONNX Runtime ignores the case.
    ("RoiAlign", "mode"): ("avg", "max", "AVG", "MAX"),
    ("RoiAlign", "coordinate_transformation_mode"): ("half_pixel", "output_half_pixel"),
    ("ScatterElements", "reduction"): (*REDUCTIONS, ""),
    ("ScatterND", "reduction"): (*REDUCTIONS, ""),
    ("SpaceToDepth", "mode"): ("DCR", "CRD"),
}
"""The words by operator and attribute."""


def refuse_unknown_words(op_type: str, attrs: Mapping[str, Any]) -> None:
    """Raise a `ValueError` if an attribute of a node has a word that ONNX does not define."""
    for name, value in attrs.items():
        known = WORDS.get((op_type, name), WORDS_OF_ALL.get(name))
        if known is None or not isinstance(value, bytes):
            continue
        word = value.decode(errors="replace")
        if word not in known:
            raise ValueError(f"its {name} {word!r} is none of {', '.join(filter(None, known))}")
