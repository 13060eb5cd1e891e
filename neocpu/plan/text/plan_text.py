"""Parts of a plan as several commands print them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from neocpu.foundation.units import duration, plural, size

if TYPE_CHECKING:
    from neocpu.runtime.header_parts import Repeat


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


def goal_fields(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the number of threads and, where one call's time is not what counts, what does."""
    threads = ("threads", str(plan["threads"]))
    if plan.get("streams") is None:  # an older neocpu knew nothing else
        return [threads]
    return [threads, ("goal", f"throughput of {plural(plan['streams'], 'call')} at once")]


def call_fields(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what a call of a batch took, by which sets compose batches."""
    took = plan.get("call_seconds")
    return [] if took is None else [("a call took", f"{duration(took)}, where it was compiled")]


def cost_sources(plan: Mapping[str, Any]) -> dict[str, int]:
    """Return how many convolutions' costs come from where, what is known best first.

    Such as ``measured``, ``measured and folded``, ``borrowed``, ``measured on znver4 with 2
    threads`` and ``estimated``.
    """
    found = Counter(op["cost_source"] for op in plan["ops"] if op["kind"] == "conv2d")

    def doubt(source: str) -> tuple[bool, bool, str]:
        return source.startswith("estimated"), source.startswith("borrowed"), source

    return {name: found[name] for name in sorted(found, key=doubt)}


def sources_text(sources: Mapping[str, int]) -> str:
    """Return ``180 measured, 12 measured on znver4 with 2 threads, 5 estimated``."""
    return ", ".join(f"{count} {source}" for source, count in sources.items())


def accuracy_text(accuracy: Mapping[str, Any]) -> str:
    """Return ``strict: at most 5e-06 norm-wise promised``."""
    each = " of each operator" if accuracy["name"] == "bfloat16" else ""
    limit = accuracy.get("limit")
    all_ = f", {limit:g} of outputs" if limit is not None else ""
    return f"{accuracy['name']}: at most {accuracy['bound']:.3g} norm-wise promised{each}{all_}"


def split_fields(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return how many convolutions multiply float32 in parts, if any do."""
    schemes = (op["scheme"] for op in plan["ops"] if op.get("kind") == "conv2d")
    count = sum(scheme["template"] == "conv2d_split" for scheme in schemes)
    if not count:
        return []
    text = f"{plural(count, 'convolution')} of float32, by three products of bfloat16 for one"
    return [("in tiles", f"{text}: each errs 4.4e-06 ('split'; --accuracy strict has none)")]


def proof_fields(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return why convolutions by Winograd lose nothing of integers."""
    proofs = [op["proof"] for op in plan["ops"] if "proof" in op]
    if not proofs:
        return []
    largest, limit = (max(int(proof[key]) for proof in proofs) for key in ("largest_sum", "limit"))
    made = plural(len(proofs), "convolution")
    return [
        (
            "exact",
            f"{made} by Winograd in integers: no weights make sums above {largest:,}, and all "
            f"below {limit:,} are exact",
        )
    ]


def rounding_fields(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what no kernel has taken in: rounding to integers, and why, and changes of types."""
    alone = Counter(
        str(op["workload"]).rpartition(", after ")[2]
        for op in plan["ops"]
        if op["kind"] == "quantise"
    )
    after = ", ".join(f"{count} after {maker}" for maker, count in alone.most_common())
    changes = [
        float(each["cost_us"])
        for each in plan["transforms"]
        if each["from"].partition(" ")[2] != each["to"].partition(" ")[2]
    ]
    spent = duration(sum(changes) / 1e6)
    parts = [
        f"rounding {after}" if alone else "",
        f"{plural(len(changes), 'change')} of element types, {spent}" if changes else "",
    ]
    text = "; ".join(filter(None, parts))
    return [("kernels of their own", text)] if text else []


def calibration_fields(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what integers saved and cost, of a model compiled with calibration data."""
    found = plan.get("calibration")
    if found is None:
        return []
    raced = ""
    if found["integers_us"] is not None:
        times = (duration(found[key] / 1e6) for key in ("integers_us", "float32_us"))
        raced = "{} in a race, float32 {}".format(*times)
    if not found["layers"]:
        return [("integers", f"none: {raced or _without_race(found)}")]
    saved_us = sum(float(layer["saved_us"]) for layer in found["layers"])
    saved = f"saving {duration(saved_us / 1e6)} as estimated"
    limits = [
        f"{name} {found[key]:g}"
        for key, name in (("max_error", "at most"), ("min_agreement", "agreement at least"))
        if found[key] is not None
    ]
    agreement = found["agreement"]
    same = "" if agreement is None else f", {agreement:.1%} of rows agree"
    cost = f"{found['error']:.2g} norm-wise{same} on {plural(found['samples'], 'sample')}"
    return [
        (
            "integers",
            ", ".join(filter(None, (plural(len(found["layers"]), "layer"), saved, raced))),
        ),
        ("off float32", f"{cost}; allowed: {', '.join(limits)}"),
    ]


def _without_race(found: Mapping[str, Any]) -> str:
    """Return why no layer is in integers, where nothing was timed."""
    if "excess" not in found:  # an older neocpu did not tell which
        return "float32 is as fast, or integers miss the limits"
    return f"with them {found['excess']}" if found["excess"] else "float32 is as fast"


def loop_fields(repeats: Iterable[Repeat]) -> list[tuple[str, str]]:
    """Return what there is to say of loops that the runtime repeats."""
    limits = [str(repeat.limit) for repeat in repeats if repeat.index is not None]
    counts = f"{', '.join(limits)} times at most; where data decide how often, µs are of one time"
    return [("loops", counts)] if limits else []


def level_fields(search: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what the search's part would take if layouts were optimised less."""
    levels = search.get("levels_us") or {}  # an older neocpu searched for none
    found = (f"{duration(cost / 1e6)} {name}" for name, cost in levels.items())
    return [("other levels", ", ".join(found))] if levels else []


def weights_text(weights: Mapping[str, Any]) -> str:
    """Return ``46.8 MB given, 102.3 MB packed, at most 120.0 MB allowed``."""
    text = f"{size(weights['given_bytes'])} given, {size(weights['packed_bytes'])} packed"
    limit = weights["limit_bytes"]
    return text if limit is None else f"{text}, at most {size(limit)} allowed"


def error_text(plan: Mapping[str, Any]) -> str:
    """Return the largest error against the reference, or why there is none.

    Parameters
    ----------
    plan : mapping
        Or what of it has its ``accuracy``, ``verification`` and ``unchecked``.
    """
    from neocpu.runtime.header_text import kept_bound  # here: it loads numpy

    found = plan["verification"]
    if found is None:
        reason = plan.get("unchecked")  # an older neocpu gave none
        return f"not checked: {reason}" if reason else "not checked"
    rows = ""
    for key, what in (("moved_rows", "in another place"), ("unmatched_rows", "only on one side")):
        if count := int(found.get(key, 0)):
            rows += f"; {plural(count, 'row')} {what}"
    kept = kept_bound(plan.get("accuracy"), found)
    model = " on the model in integers" if (plan.get("calibration") or {}).get("layers") else ""
    return (
        f"{_error(found['norm_error'])} norm-wise{kept and f' ({kept})'}, "
        f"{_error(found['max_abs_error'])} absolute, "
        f"{_error(found['max_rel_error'])} of the largest value, against {_oracle(found)}"
        f"{model}{rows}"
    )


def skippable_text(plan: Mapping[str, Any]) -> str:
    """Return what of the prediction is of calls that a run may do without; empty if nothing is."""
    skippable = plan.get("skippable_us", 0.0) / 1e6
    return f"; a run may skip up to {duration(skippable)}, depending on data" if skippable else ""


def missed_text(plan: Mapping[str, Any]) -> str:
    """Return how the plans erred that did not keep the promise; empty if the first one did."""
    missed = [
        f"{_error(each['norm_error'])} {each['admission']} ({_float32(each)})"
        for each in plan.get("missed", ())
    ]
    return f"{', '.join(missed)}; compiled again {plan['admission']}" if missed else ""


def _oracle(found: Mapping[str, Any]) -> str:
    # The reference needs no reason, and an older neocpu had no other oracle.
    reason = found.get("oracle_reason")
    return f"{found['oracle']} ({reason})" if reason else "the reference"


def _float32(found: Mapping[str, Any]) -> str:
    return f"numpy in float32 {_error(found['float32_error'])}"


def _error(value: float | None) -> str:
    return "infinite" if value is None else f"{value:.2g}"
