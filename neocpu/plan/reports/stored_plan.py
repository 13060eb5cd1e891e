"""The plan that an artifact stores, made of the compiler's decisions and their outcome."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from neocpu.building.kernel_report import KernelReport
from neocpu.foundation.json_codec import fields_from_json
from neocpu.foundation.units import json_number
from neocpu.lowering.apply_plan import Transform
from neocpu.plan.kernels import KernelShortcoming, LayoutTransform, PlannedKernel
from neocpu.plan.model_values import ModelValue
from neocpu.plan.operators import (
    Alternative,
    ExactSums,
    PlannedNumerics,
    PlannedOperator,
    PlannedScheme,
)
from neocpu.plan.outcome import (
    AppliedRules,
    BrokenPromise,
    PhaseTime,
    PlanSearch,
    Promise,
    Verification,
)
from neocpu.plan.plan import Plan
from neocpu.plan.reports.decisions import Decisions
from neocpu.planning import alternatives
from neocpu.planning.operators.operator_report import OperatorReport, format_text
from neocpu.schedules.vocabulary.accuracy import Accuracy, Admission
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.scheme import Scheme

if TYPE_CHECKING:
    from neocpu.verification.reference.comparison import Verdict

MICRO = 1e6


def stored_plan(
    decided: Decisions,
    kernels: Sequence[KernelReport],
    values: tuple[ModelValue, ...],
    activation_bytes: int,
    seconds: Mapping[str, float],
) -> Plan:
    """Return the plan of a model whose outputs are not verified yet.

    kernels: all that a run calls, and an entry for the time between; seconds: by phase, in order.
    """
    total = math.fsum(kernel.seconds for kernel in kernels)
    return Plan(
        target=decided.target,
        goal="latency" if decided.streams is None else "throughput",
        threads=decided.threads,
        streams=decided.streams,
        opt=decided.opt,
        precision=str(decided.precision),
        accuracy=_promise(decided.accuracy),
        admission=decided.admission.name,
        predicted_us=total * MICRO,
        bfloat16_saves_us=decided.bfloat16_saves * MICRO,
        skippable_us=math.fsum(kernel.skippable for kernel in kernels) * MICRO,
        search=_search(decided),
        ops=_operators(decided, kernels, total),
        transforms=tuple(map(_transform, decided.transforms)),
        kernels=tuple(_kernel(kernel, total) for kernel in kernels),
        values=values,
        weights=decided.weights,
        calibration=None if decided.calibration is None else decided.calibration.stored,
        processing=decided.processing,
        processing_options=decided.processing_options,
        models=decided.identities,
        rules=_rules(decided),
        activation_bytes=activation_bytes,
        passes=_phases(seconds),
    )


def with_verdict(
    plan: Plan,
    seconds: Mapping[str, float],
    verdict: Verdict | None,
    unchecked: str | None,
    missed: Sequence[tuple[Admission, Verdict]],
) -> Plan:
    """Return a plan with the result of comparing its outputs; `seconds`: by phase, with that.

    missed: plans that did not keep the promise, in the order in which they were tried.
    """
    return replace(
        plan,
        passes=_phases(seconds),
        verification=None if verdict is None else _verification(verdict),
        unchecked=unchecked,
        missed=tuple(
            BrokenPromise(admission=admission.name, verification=_verification(found))
            for admission, found in missed
        ),
    )


def _micro(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * MICRO


def _promise(accuracy: Accuracy) -> Promise:
    limit = None if accuracy.limit == math.inf else accuracy.limit
    return Promise(name=accuracy.name, bound=accuracy.bound, limit=limit)


def _phases(seconds: Mapping[str, float]) -> tuple[PhaseTime, ...]:
    return tuple(PhaseTime(name=name, seconds=value) for name, value in seconds.items())


def _search(decided: Decisions) -> PlanSearch:
    search = decided.search
    return PlanSearch(
        solver=search.solver,
        cost_us=search.cost * MICRO,
        lower_bound_us=search.lower_bound * MICRO,
        gap=search.gap,
        verdict=search.verdict,
        seconds=search.seconds,
        variables=search.variables,
        levels_us={name: seconds * MICRO for name, seconds in decided.levels.items()},
    )


def _rules(decided: Decisions) -> AppliedRules:
    applied = sorted(decided.rules.items(), key=lambda item: (-item[1], item[0]))
    return AppliedRules(applied=dict(applied), disabled=tuple(sorted(decided.disabled_rules)))


def _operators(
    decided: Decisions, kernels: Sequence[KernelReport], total: float
) -> tuple[PlannedOperator, ...]:
    names = {} if decided.calibration is None else decided.calibration.names
    sharing = Counter(op.kernel for op in decided.ops)  # kernels in loops are called more often
    seconds = {each.name: each.seconds / max(1, sharing[each.name]) for each in kernels}
    return tuple(
        planned_operator(
            op,
            seconds=None if op.kernel is None else seconds.get(op.kernel),
            total=total,
            layer=next((names[tensor] for tensor in op.tensors if tensor in names), None),
        )
        for op in decided.ops
    )


def planned_operator(
    op: OperatorReport, *, seconds: float | None, total: float, layer: str | None = None
) -> PlannedOperator:
    """Return an operator as in a plan, with its kernel's ``seconds``, if it has its own kernel.

    layer: name of the model's node, if calibration data put it into integers.
    """
    proof = op.proof
    return PlannedOperator(
        name=op.name,
        kind=op.kind,
        workload=op.workload,
        flops=op.flops,
        scheme=_scheme(op.scheme),
        weight_bytes=op.weight_bytes,
        in_layout=op.in_layout,
        out_layout=op.out_layout,
        precision=op.precision,
        numerics=_numerics(op.numerics),
        proof=None if proof is None else ExactSums(largest_sum=proof.largest, limit=proof.limit),
        cost_us=op.seconds * MICRO,
        cost_source=op.cost_source,
        cost_day=op.day,
        kernel=op.kernel,
        predicted_us=_micro(seconds),
        share=None if seconds is None else seconds / total,
        alternatives=tuple(map(_alternative, op.alternatives)),
        layer=layer,
    )


def _scheme(scheme: Scheme | None) -> PlannedScheme | None:
    return None if scheme is None else PlannedScheme.from_json(scheme.to_json())


def _numerics(numerics: Numerics | None) -> PlannedNumerics | None:
    if numerics is None or numerics.is_uniform:
        return None
    return fields_from_json(PlannedNumerics, numerics.to_json()["numerics"], exact=True)


def _alternative(one: alternatives.Alternative) -> Alternative:
    """Return another way to run an operator, with costs to the nanosecond: there are many."""
    choice = one.choice
    return Alternative(
        scheme=_scheme(choice.scheme),
        in_layout=format_text(choice.in_format),
        out_layout=format_text(choice.out_format),
        cost_us=round(choice.seconds * MICRO, 3),
        cost_source=choice.source,
        transforms_us=round(one.transforms * MICRO, 3),
        weights_us=round(one.weights * MICRO, 3),
        more_us=round(one.more * MICRO, 3),
    )


def _transform(each: Transform) -> LayoutTransform:
    return LayoutTransform(
        source=format_text(each.source),
        destination=format_text(each.destination),
        shape=each.shape,
        kernel=each.kernel,
        cost_us=each.cost.seconds * MICRO,
        cost_source=each.cost.source,
    )


def _kernel(kernel: KernelReport, total: float) -> PlannedKernel:
    return PlannedKernel(
        name=kernel.name,
        kind=kernel.kind,
        calls=kernel.calls,
        cost_us=kernel.seconds * MICRO,
        cost_source=kernel.source,
        share=kernel.seconds / total,
        lacks=tuple(
            KernelShortcoming(
                kind=lack.shortcoming.kind,
                detail=lack.shortcoming.detail,
                reason=lack.shortcoming.reason,
                cost_us=lack.seconds * MICRO,
            )
            for lack in kernel.lacks
        ),
    )


def _verification(verdict: Verdict) -> Verification:
    found = verdict.found
    return Verification(
        kept=verdict.kept,
        max_abs_error=json_number(found.max_abs_error),
        max_rel_error=json_number(found.max_rel_error),
        norm_error=json_number(found.norm_error),
        float32_error=json_number(verdict.float32_error),
        moved_rows=found.moved_rows,
        unmatched_rows=found.unmatched_rows,
        oracle=verdict.oracle,
        oracle_reason=verdict.reason,
    )
