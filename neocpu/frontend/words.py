"""The words that attributes may hold: others are refused here, before they are taken for a default.

ONNX's checker looks at the type of an attribute alone, and neither its schemas nor the converters
of TVM say which words there are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

_ANY: Final[Mapping[str, tuple[str, ...]]] = {
    "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    "padding_mode": ("zeros", "border", "reflection"),
    "approximate": ("none", "tanh"),
}
"""By attribute, whatever the operator."""

_INTERPOLATIONS: Final = ("nearest", "linear", "cubic")
_WORDS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    ("DepthToSpace", "mode"): ("DCR", "CRD"),
    ("GridSample", "mode"): (*_INTERPOLATIONS, "bilinear", "bicubic"),
    ("Pad", "mode"): ("constant", "reflect", "edge", "wrap"),
    ("Resize", "mode"): _INTERPOLATIONS,
    ("Resize", "coordinate_transformation_mode"): (
        "half_pixel",
        "half_pixel_symmetric",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
        "tf_crop_and_resize",
        "tf_half_pixel_for_nn",
    ),
    ("RoiAlign", "mode"): ("avg", "max"),
    ("RoiAlign", "coordinate_transformation_mode"): ("half_pixel", "output_half_pixel"),
    ("ScatterElements", "reduction"): ("none", "add", "mul", "max", "min"),
    ("ScatterND", "reduction"): ("none", "add", "mul", "max", "min"),
    ("Upsample", "mode"): (*_INTERPOLATIONS, "bilinear", "bicubic"),
}
"""By operator and attribute."""


def refuse_unknown_words(op_type: str, attrs: Mapping[str, Any]) -> None:
    """Raise ValueError for an attribute of a node that holds a word ONNX does not know."""
    for name, value in attrs.items():
        known: Collection[str] | None = _WORDS.get((op_type, name), _ANY.get(name))
        if known is None or not isinstance(value, bytes):
            continue
        word = value.decode(errors="replace")
        if word and word not in known:
            raise ValueError(f"its {name} {word!r} is none of {', '.join(known)}")
