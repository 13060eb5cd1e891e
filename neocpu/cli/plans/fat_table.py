"""What ``neocpu compile --fat`` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from neocpu.cli.plans.plan_text import error_text, precision_text
from neocpu.cli.terminal import print_table
from neocpu.foundation.units import duration, size


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
