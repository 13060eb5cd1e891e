"""Parts of a plan as several commands print them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from neocpu.units import plural, size


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


def cost_sources(plan: Mapping[str, Any]) -> dict[str, int]:
    """Return how many convolutions' costs come from where, what is known best first.

    Such as ``measured``, ``measured and folded``, ``measured on znver4 with 2 threads`` and
    ``estimated``.
    """
    found = Counter(op["cost_source"] for op in plan["ops"] if op["kind"] == "conv2d")
    order = sorted(found, key=lambda source: (source.startswith("estimated"), source))
    return {name: found[name] for name in order}


def sources_text(sources: Mapping[str, int]) -> str:
    """Return ``180 measured, 12 measured on znver4 with 2 threads, 5 estimated``."""
    return ", ".join(f"{count} {source}" for source, count in sources.items())


def accuracy_text(accuracy: Mapping[str, Any]) -> str:
    """Return ``strict: outputs err at most 5e-06``."""
    return f"{accuracy['name']}: outputs err at most {accuracy['bound']:g}, norm-wise"


def weights_text(weights: Mapping[str, Any]) -> str:
    """Return ``46.8 MB given, 102.3 MB packed, at most 120.0 MB allowed``."""
    text = f"{size(weights['given_bytes'])} given, {size(weights['packed_bytes'])} packed"
    limit = weights["limit_bytes"]
    return text if limit is None else f"{text}, at most {size(limit)} allowed"


def error_text(found: Mapping[str, float] | None) -> str:
    """Return the largest error against the reference, and what differs of selected rows."""
    if found is None:
        return "not checked"
    rows = ""
    for key, what in (("moved_rows", "in another place"), ("unmatched_rows", "only on one side")):
        if count := int(found.get(key, 0)):
            rows += f"; {plural(count, 'row')} {what}"
    return (
        f"{found['norm_error']:.2g} norm-wise, {found['max_abs_error']:.2g} absolute, "
        f"{found['max_rel_error']:.2g} of the largest value, against the reference{rows}"
    )
