"""Parts of a plan as several commands print them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def scheme_text(scheme: Mapping[str, Any] | None) -> str:
    """Return ``direct ic_bn=16 oc_bn=32 reg_n=7 unroll_ker``; flags show by name, if set."""
    if scheme is None:
        return "-"
    words = [str(scheme["template"]).removeprefix("conv2d_")]
    for name, value in scheme.items():
        if value is True:
            words.append(name)
        elif name != "template" and value is not False:
            words.append(f"{name}={value}")
    return " ".join(words)


def error_text(found: Mapping[str, float] | None) -> str:
    """Return the largest error against the reference."""
    if found is None:
        return "not checked"
    return (
        f"{found['max_abs_error']:.2g} absolute, {found['max_rel_error']:.2g} relative, against "
        "the reference"
    )
