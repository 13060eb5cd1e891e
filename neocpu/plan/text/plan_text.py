"""Parts of a plan as several commands print them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from neocpu.foundation.units import duration, plural, size
from neocpu.plan.operators import DENSE, PlannedScheme
from neocpu.plan.text.artifact_text import precision_text

if TYPE_CHECKING:
    from neocpu.plan.outcome import Calibration, PlanSearch, Promise, Verification, WeightSizes
    from neocpu.plan.plan import Plan
    from neocpu.runtime.header import ArtifactHeader
    from neocpu.runtime.header_parts import Repeat


def scheme_text(scheme: Mapping[str, object] | None) -> str:
    """Return the JSON form of a scheme as ``direct ic_bn=16 oc_bn=32 reg_n=7 unroll_ker``."""
    return "-" if scheme is None else str(PlannedScheme.from_json(scheme))


def plan_fields(header: ArtifactHeader, others: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    plan = header.plan
    search = plan.search
    dense = sum(op.kind == DENSE and op.numerics is not None for op in plan.ops)
    fields = [
        *([("shape", header.set_text), *others] if others else []),
        ("target", plan.target),
        *goal_fields(plan),
        ("opt", plan.opt),
        ("computes in", precision_text(plan.precision, plan.computes_in, dense)),
        *split_fields(plan),
        *proof_fields(plan),
        *rounding_fields(plan),
        *processing_fields(plan),
        *calibration_fields(plan),
        *rule_fields(plan),
        *loop_fields(header.repeats),
        ("accuracy", accuracy_text(plan.accuracy)),
        (
            "search",
            f"{search.solver} over {plural(search.variables, 'variable')} "
            f"in {duration(search.seconds)}, {search.verdict}",
        ),
        (
            "predicted",
            f"{duration(plan.predicted_us / 1e6)}; the search chose "
            f"{duration(search.cost_us / 1e6)} of this, and no plan within the limit on weights "
            f"takes less than {duration(search.lower_bound_us / 1e6)}{skippable_text(plan)}",
        ),
        *level_fields(search),
        ("weights", weights_text(plan.weights)),
        ("activations", f"{size(plan.activation_bytes)} between the kernels"),
    ]
    if sources := cost_sources(plan):
        fields.append(("costs", f"of convolutions: {sources_text(sources)}"))
    fields.append(("largest error", error_text(plan)))
    if missed := missed_text(plan):
        fields.append(("before", missed))
    return fields


def goal_fields(plan: Plan) -> list[tuple[str, str]]:
    threads = ("threads", str(plan.threads))
    if plan.streams is None:
        return [threads]
    return [threads, ("goal", f"throughput of {plural(plan.streams, 'call')} at once")]


def call_fields(plan: Plan) -> list[tuple[str, str]]:
    """Return the measured time of a call of a batch, by which sets compose batches."""
    took = plan.call_seconds
    return [] if took is None else [("a call took", f"{duration(took)}, where it was compiled")]


def cost_sources(plan: Plan) -> dict[str, int]:
    """Return the number of convolutions by the source of their cost, the best source first.

    These are ``measured``, ``borrowed``, ``measured on znver4 with 2 threads``, ``estimated`` …
    """
    found = Counter(op.cost_source for op in plan.convolutions)

    def doubt(source: str) -> tuple[bool, bool, str]:
        return source.startswith("estimated"), source.startswith("borrowed"), source

    return {name: found[name] for name in sorted(found, key=doubt)}


def sources_text(sources: Mapping[str, int]) -> str:
    """Return ``180 measured, 12 measured on znver4 with 2 threads, 5 estimated``."""
    return ", ".join(f"{count} {source}" for source, count in sources.items())


def accuracy_text(accuracy: Promise) -> str:
    """Return ``strict: at most 5e-06 norm-wise promised``."""
    each = " of each operator" if accuracy.of_each_operator else ""
    all_ = f", {accuracy.limit:g} of outputs" if accuracy.limit is not None else ""
    return f"{accuracy.name}: at most {accuracy.bound:.3g} norm-wise promised{each}{all_}"


def split_fields(plan: Plan) -> list[tuple[str, str]]:
    """Return the number of layers that multiply float32 in parts, if there are any."""
    schemes = (op.scheme for op in plan.ops)
    count = sum(scheme is not None and scheme.template == "conv2d_split" for scheme in schemes)
    if not count:
        return []
    text = f"{plural(count, 'layer')} of float32, by three products of bfloat16 for one"
    return [("in tiles", f"{text}: each errs 4.4e-06 ('split'; --accuracy strict has none)")]


def proof_fields(plan: Plan) -> list[tuple[str, str]]:
    """Return why convolutions of integers by Winograd are exact."""
    proofs = [op.proof for op in plan.ops if op.proof is not None]
    if not proofs:
        return []
    largest = max(proof.largest_sum for proof in proofs)
    limit = max(proof.limit for proof in proofs)
    made = plural(len(proofs), "convolution")
    return [
        (
            "exact",
            f"{made} by Winograd in integers: no weights make sums above {largest:,}, and all "
            f"below {limit:,} are exact",
        )
    ]


def rounding_fields(plan: Plan) -> list[tuple[str, str]]:
    """Return a field with the roundings and type changes that are kernels of their own, if any."""
    alone = Counter(
        op.workload.rpartition(", after ")[2] for op in plan.ops if op.kind == "quantise"
    )
    after = ", ".join(f"{count} after {maker}" for maker, count in alone.most_common())
    changes = [
        each.cost_us
        for each in plan.transforms
        if each.source.partition(" ")[2] != each.destination.partition(" ")[2]
    ]
    spent = duration(sum(changes) / 1e6)
    parts = [
        f"rounding {after}" if alone else "",
        f"{plural(len(changes), 'change')} of element types, {spent}" if changes else "",
    ]
    text = "; ".join(filter(None, parts))
    return [("kernels of their own", text)] if text else []


def calibration_fields(plan: Plan) -> list[tuple[str, str]]:
    found = plan.calibration
    if found is None:
        return []
    raced = ""
    if found.integers_us is not None and found.float32_us is not None:
        integers, floats = duration(found.integers_us / 1e6), duration(found.float32_us / 1e6)
        raced = f"{integers} in a race, float32 {floats}"
    if not found.layers:
        return [("integers", f"none: {raced or _without_race(found)}")]
    saved = f"saving {duration(sum(layer.saved_us for layer in found.layers) / 1e6)} as estimated"
    limits = [
        f"{name} {limit:g}"
        for limit, name in (
            (found.max_error, "at most"),
            (found.min_agreement, "agreement at least"),
        )
        if limit is not None
    ]
    agreement = found.agreement
    same = "" if agreement is None else f", {agreement:.1%} of rows agree"
    cost = f"{found.error:.2g} norm-wise{same} on {plural(found.samples, 'sample')}"
    return [
        ("integers", ", ".join(filter(None, (plural(len(found.layers), "layer"), saved, raced)))),
        ("off float32", f"{cost}; allowed: {', '.join(limits)}"),
    ]


def _without_race(found: Calibration) -> str:
    return f"with them {found.excess}" if found.excess else "float32 is as fast"


def processing_fields(plan: Plan) -> list[tuple[str, str]]:
    return [("processing", note) for note in plan.processing]


def rule_fields(plan: Plan) -> list[tuple[str, str]]:
    counts = ", ".join(f"{name} {count}" for name, count in plan.rules.applied.items())
    return [
        *([("rules", counts)] if counts else []),
        *([("without", ", ".join(plan.rules.disabled))] if plan.rules.disabled else []),
    ]


def loop_fields(repeats: Iterable[Repeat]) -> list[tuple[str, str]]:
    limits = [str(repeat.limit) for repeat in repeats if repeat.index is not None]
    counts = f"{', '.join(limits)} times at most; where data decide how often, µs are of one time"
    return [("loops", counts)] if limits else []


def level_fields(search: PlanSearch) -> list[tuple[str, str]]:
    """Return a field with the costs of plans whose layouts are optimised less, if any."""
    found = (f"{duration(cost / 1e6)} {name}" for name, cost in search.levels_us.items())
    return [("other levels", ", ".join(found))] if search.levels_us else []


def weights_text(weights: WeightSizes) -> str:
    """Return ``46.8 MB given, 102.3 MB packed, at most 120.0 MB allowed``."""
    text = f"{size(weights.given_bytes)} given, {size(weights.packed_bytes)} packed"
    limit = weights.limit_bytes
    return text if limit is None else f"{text}, at most {size(limit)} allowed"


def error_text(plan: Plan, *, integers: bool = True) -> str:
    """Return the largest error, or why there is none; `integers`: name the model in integers."""
    from neocpu.runtime.header_text import kept_bound  # here: it loads numpy

    found = plan.verification
    if found is None:
        return f"not checked: {plan.unchecked}" if plan.unchecked else "not checked"
    rows = ""
    for count, what in (
        (found.moved_rows, "in another place"),
        (found.unmatched_rows, "only on one side"),
    ):
        if count:
            rows += f"; {plural(count, 'row')} {what}"
    has_integers = integers and plan.calibration is not None and plan.calibration.layers
    model = " on the model in integers" if has_integers else ""
    return (
        f"{_error(found.norm_error)} norm-wise ({kept_bound(plan.accuracy, found)}), "
        f"{_error(found.max_abs_error)} absolute, "
        f"{_error(found.max_rel_error)} of the largest value, against {_oracle(found)}"
        f"{model}{rows}"
    )


def skippable_text(plan: Plan) -> str:
    """Return the part of the prediction that a run may skip; empty if there is none."""
    skippable = plan.skippable_us / 1e6
    return f"; a run may skip up to {duration(skippable)}, depending on data" if skippable else ""


def missed_text(plan: Plan) -> str:
    """Return the errors of plans that broke the promise; empty if the first one kept it."""
    missed = ", ".join(
        f"{_error(each.verification.norm_error)} {each.admission} "
        f"(numpy in float32 {_error(each.verification.float32_error)})"
        for each in plan.missed
    )
    return f"{missed}; compiled again {plan.admission}" if missed else ""


def _oracle(found: Verification) -> str:
    # The reference needs no reason.
    reason = found.oracle_reason
    return f"{found.oracle} ({reason})" if reason else "the reference"


def _error(value: float | None) -> str:
    return "infinite" if value is None else f"{value:.2g}"
