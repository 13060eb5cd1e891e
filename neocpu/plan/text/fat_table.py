"""What ``neocpu compile`` prints of several CPUs, and of a set of shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from neocpu.foundation.console.terminal import echo, print_table
from neocpu.foundation.units import duration, size
from neocpu.plan.text.artifact_text import precision_text, signature_text
from neocpu.plan.text.plan_text import error_text


def show_variants(variants: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of the parts of a fat file.

    Parameters
    ----------
    variants : sequence of mapping
        The JSON form of each: what is said of one artifact, and its name and bytes.
    """
    print_table(
        ("variant", "target", "computes in", "size", "transforms", "predicted", "largest error"),
        [
            (
                variant["name"],
                variant["target"],
                precision_text(variant),
                size(variant["bytes"]),
                str(variant["transforms"]),
                duration(variant["predicted_us"] / 1e6),
                error_text(variant),
            )
            for variant in variants
        ],
        right=("size", "transforms", "predicted"),
    )


def show_shapes(shapes: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of the shapes that a file is compiled for.

    Parameters
    ----------
    shapes : sequence of mapping
        Of each signature its inputs' shapes, and what its plan came to.
    """
    echo()
    print_table(
        ("shape", "predicted", "packed weights", "largest error"),
        [
            (
                signature_text(each["inputs"]),
                duration(each["predicted_us"] / 1e6),
                size(each["weights"]["packed_bytes"] or 0),
                error_text(each),
            )
            for each in shapes
        ],
        right=("predicted", "packed weights"),
    )
