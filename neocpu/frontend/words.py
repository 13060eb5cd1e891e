"""The words that attributes may hold: others are refused here, before they are taken for a default.

ONNX's checker looks at the type of an attribute alone. Some of TVM's converters refuse a word that
they do not know, others take it for another, or leave it to code generation to fail.
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
    # An empty one is the default, in ONNX Runtime too, as is an empty reduction; no other is.
    "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", ""),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "nearest_mode": tuple(ROUNDING),
    "padding_mode": ("zeros", "border", "reflection"),
    "approximate": ("none", "tanh"),
}
"""By attribute, whatever the operator."""

WORDS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    ("DepthToSpace", "mode"): ("DCR", "CRD"),
    **{(op, "direction"): tuple(DIRECTIONS) for op in GATES},
    ("GridSample", "mode"): ("nearest", "linear", "cubic", "bilinear", "bicubic"),
    ("Pad", "mode"): ("constant", *PAD_MODES),
    ("Resize", "mode"): ("nearest", "linear", "cubic"),
    ("Resize", "coordinate_transformation_mode"): COORDINATES,
    # ONNX Runtime does not mind the case.
    ("RoiAlign", "mode"): ("avg", "max", "AVG", "MAX"),
    ("RoiAlign", "coordinate_transformation_mode"): ("half_pixel", "output_half_pixel"),
    ("ScatterElements", "reduction"): (*REDUCTIONS, ""),
    ("ScatterND", "reduction"): (*REDUCTIONS, ""),
    ("SpaceToDepth", "mode"): ("DCR", "CRD"),
}
"""By operator and attribute."""


def refuse_unknown_words(op_type: str, attrs: Mapping[str, Any]) -> None:
    """Raise ValueError for an attribute of a node that holds a word ONNX does not know."""
    for name, value in attrs.items():
        known = WORDS.get((op_type, name), WORDS_OF_ALL.get(name))
        if known is None or not isinstance(value, bytes):
            continue
        word = value.decode(errors="replace")
        if word not in known:
            raise ValueError(f"its {name} {word!r} is none of {', '.join(filter(None, known))}")
