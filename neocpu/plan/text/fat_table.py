"""The tables that ``neocpu compile`` prints for several CPUs, and for a set of shapes."""

from __future__ import annotations

from collections.abc import Sequence

from neocpu.foundation.console.terminal import echo, print_table
from neocpu.foundation.units import duration, size
from neocpu.plan.text.artifact_text import precision_text, signature_text
from neocpu.plan.text.compiled_part import CompiledPart, CompiledSignature
from neocpu.plan.text.plan_text import error_text


def show_variants(variants: Sequence[CompiledPart]) -> None:
    """Print a table of the parts of a fat file."""
    print_table(
        ("variant", "target", "computes in", "size", "transforms", "predicted", "largest error"),
        [
            (
                variant.name,
                variant.plan.target,
                precision_text(variant.plan.precision, variant.plan.computes_in),
                size(variant.size),
                str(len(variant.plan.transforms)),
                duration(variant.plan.predicted_us / 1e6),
                error_text(variant.plan),
            )
            for variant in variants
        ],
        right=("size", "transforms", "predicted"),
    )


def show_shapes(shapes: Sequence[CompiledSignature]) -> None:
    """Print a table of the shapes that a file is compiled for."""
    echo()
    print_table(
        ("shape", "predicted", "packed weights", "largest error"),
        [
            (
                signature_text(each.inputs),
                duration(each.plan.predicted_us / 1e6),
                size(each.plan.weights.packed_bytes),
                error_text(each.plan, integers=False),
            )
            for each in shapes
        ],
        right=("predicted", "packed weights"),
    )
