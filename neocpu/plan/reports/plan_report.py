"""The plan as people and tools read it: what ``neocpu explain --json`` prints is its JSON form."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from neocpu.building.kernel_report import TRANSFORM, KernelReport, KnownCalls
from neocpu.foundation.units import json_number
from neocpu.lowering.apply_plan import RewrittenModule, Transform
from neocpu.plan.reports.calibration_report import CalibrationReport
from neocpu.planning.alternatives import alternatives_of
from neocpu.planning.choice import is_estimated
from neocpu.planning.operators.dense_op import DenseOp
from neocpu.planning.operators.network_costs import NetworkCosts, NetworkTime
from neocpu.planning.operators.operator_report import (
    MICRO,
    OperatorReport,
    format_text,
    report_of_layer,
    report_of_op,
)
from neocpu.planning.operators.product_op import ProductOp
from neocpu.planning.optimisation_levels import LayoutPlan
from neocpu.planning.precision import Precision
from neocpu.runtime.model_values import ModelValue
from neocpu.schedules.vocabulary.accuracy import DEFAULT, Accuracy, Admission
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.search.solver.plan import Plan

if TYPE_CHECKING:
    from neocpu.verification.reference.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a compilation came to, once it was built and judged.

    Attributes
    ----------
    activation_bytes : int
        Of the arena.
    seconds : dict of str to float
        How long each phase took, in order.
    verdict : Verdict or None
        How far off the outputs are; None if nobody looked.
    unchecked : str or None
        Why nothing was checked.
    missed : sequence of pair of Admission and Verdict
        The plans that did not keep the promise, in the order in which they were tried.
    """

    activation_bytes: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    verdict: Verdict | None = None
    unchecked: str | None = None
    missed: Sequence[tuple[Admission, Verdict]] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "activation_bytes": self.activation_bytes,
            "passes": [{"name": name, "seconds": value} for name, value in self.seconds.items()],
            "verification": None if self.verdict is None else _judgement(self.verdict),
            "unchecked": self.unchecked,
            "missed": [{"admission": one.name, **_judgement(found)} for one, found in self.missed],
        }


@dataclass(frozen=True, slots=True)
class PlanReport:
    """What was decided and why, and what came of it.

    Attributes
    ----------
    target : str
    threads : int
    opt : str
        The level of optimisation.
    precision : Precision
        What operators were allowed to compute in.
    accuracy : Accuracy
        What the schemes were chosen for.
    admission : Admission
        Which of them were allowed.
    search : Plan
        The solver's account.
    ops : tuple of OperatorReport
    transforms : tuple of Transform
    weights : mapping
        Bytes before and after packing, and the limit.
    outcome : Outcome
    calibration : CalibrationReport or None
        Of a float32 model that was compiled with calibration data.
    processing : tuple of str
        What is done before and after the model.
    processing_options : mapping or None
        How that was asked for: `Processing.to_json`. None where nothing is.
    identities : tuple of str
        Of the model, and of what it was made of: `LoadedModel.identities`.
    rules : mapping of str to int
        How often each rule for graphs was applied.
    disabled_rules : frozenset of str
        Those that were not to be.
    kernels : tuple of KernelReport
        All that a run calls, and what it does between; none before they are built.
    streams : int or None
        Calls at once that it is for; None where one call's time counts.
    values : tuple of ModelValue
        The model's tensors that are in the arena at some point of a run, in order.
    levels : mapping of str to float
        Seconds that the plans of lower levels of optimisation would take, as far as searched.
    bfloat16_saves : float
        Seconds that a run would take less, as estimated, were bfloat16 allowed; 0 if it is, or
        if nobody looked.
    """

    target: str
    threads: int
    opt: str
    precision: Precision
    accuracy: Accuracy
    admission: Admission
    search: Plan
    ops: tuple[OperatorReport, ...]
    transforms: tuple[Transform, ...]
    weights: Mapping[str, int | None]
    outcome: Outcome = field(default_factory=Outcome)
    calibration: CalibrationReport | None = None
    processing: tuple[str, ...] = ()
    processing_options: Mapping[str, Any] | None = None
    identities: tuple[str, ...] = ()
    rules: Mapping[str, int] = field(default_factory=dict)
    disabled_rules: frozenset[str] = frozenset()
    kernels: tuple[KernelReport, ...] = ()
    streams: int | None = None
    values: tuple[ModelValue, ...] = ()
    levels: Mapping[str, float] = field(default_factory=dict)
    bfloat16_saves: float = 0.0

    @property
    def predicted_seconds(self) -> float:
        """What a run takes: all kernels, or before they are built what the plan knows of.

        That is the search's cost, and dense layers.
        """
        if self.kernels:
            return math.fsum(kernel.seconds for kernel in self.kernels)
        return self.search.cost + math.fsum(op.seconds for op in self.ops if op.kind == "dense")

    def to_json(self) -> dict[str, Any]:
        """JSON form, which artifacts carry; every cost is in microseconds."""
        search, total = self.search, self.predicted_seconds
        return {
            "target": self.target,
            "goal": "latency" if self.streams is None else "throughput",
            "threads": self.threads,
            "streams": self.streams,
            "opt": self.opt,
            "precision": str(self.precision),
            "accuracy": self.accuracy.to_json(),
            "admission": self.admission.name,
            "predicted_us": total * MICRO,
            "bfloat16_saves_us": self.bfloat16_saves * MICRO,
            "skippable_us": math.fsum(kernel.skippable for kernel in self.kernels) * MICRO,
            "search": {
                "solver": search.solver,
                "cost_us": search.cost * MICRO,
                "lower_bound_us": search.lower_bound * MICRO,
                "gap": search.gap,
                "verdict": search.verdict,
                "seconds": search.seconds,
                "variables": search.variables,
                "levels_us": {name: each * MICRO for name, each in self.levels.items()},
            },
            "ops": self._ops(total),
            "transforms": [_transform(each) for each in self.transforms],
            "kernels": [kernel.to_json(total) for kernel in self.kernels],
            "values": [value.to_json() for value in self.values],
            "weights": dict(self.weights),
            "calibration": None if self.calibration is None else self.calibration.to_json(),
            "processing": list(self.processing),
            "processing_options": self.processing_options and dict(self.processing_options),
            "models": list(self.identities),
            "rules": {
                "applied": dict(sorted(self.rules.items(), key=lambda item: (-item[1], item[0]))),
                "disabled": sorted(self.disabled_rules),
            },
            **self.outcome.to_json(),
        }

    def known_calls(self) -> dict[str, KnownCalls]:
        """Return what the plan knows of kernels, by their names."""
        times: dict[str, list[NetworkTime]] = {}
        kinds: dict[str, str] = {}
        for op in self.ops:
            if op.kernel is not None:
                kinds[op.kernel] = op.kind
                found = times.setdefault(op.kernel, [])
                if op.in_network is not None:
                    found.append(op.in_network)
        for each in self.transforms:
            if each.kernel is not None:
                times.setdefault(each.kernel, [])
                kinds[each.kernel] = TRANSFORM
        return {name: _known(kinds[name], times[name]) for name in times}

    def _ops(self, total: float) -> list[dict[str, Any]]:
        layers = () if self.calibration is None else self.calibration.layers
        names = {layer.result: {"layer": layer.name} for layer in layers}
        sharing = Counter(op.kernel for op in self.ops)  # a loop's are called more often
        takes = {each.name: each.seconds / max(1, sharing[each.name]) for each in self.kernels}
        return [
            op.to_json(takes.get(op.kernel or ""), total)
            | next((names[each] for each in op.tensors if each in names), {})
            for op in self.ops
        ]


def _known(kind: str, times: Sequence[NetworkTime]) -> KnownCalls:
    # Convolutions' estimates are of computing alone.
    computing = kind == "conv2d" and any(is_estimated(each.source) for each in times)
    return KnownCalls(kind, tuple(times), computing)


def report_of(
    plan: LayoutPlan,
    rewritten: RewrittenModule,
    target: CpuTarget,
    threads: int,
    weights: Mapping[str, int | None],
    admission: Admission = DEFAULT.admission,
    accuracy: Accuracy = DEFAULT,
    precision: Precision = Precision.AUTO,
) -> PlanReport:
    """Return the report of a plan whose outcome is not known yet.

    Parameters
    ----------
    rewritten : RewrittenModule
        What became of the network under ``plan``.
    """
    rows = zip(plan.network.ops, plan.choices, alternatives_of(plan), strict=True)
    costs = NetworkCosts.of(target, threads, float(weights.get("packed_bytes") or 0))
    kernels, renamed = rewritten.kernels, rewritten.renamed
    ops = [
        report_of_op(op, choice, costs, kernels.get(op.name), renamed, others)
        for op, choice, others in rows
    ]
    layers: tuple[DenseOp | ProductOp, ...] = (*plan.network.dense, *plan.network.products)
    for layer in layers:
        ops.append(report_of_layer(layer, costs, kernels.get(layer.name), renamed))
    return PlanReport(
        str(target),
        threads,
        str(plan.opt),
        precision,
        accuracy,
        admission,
        plan.search,
        tuple(ops),
        rewritten.transforms,
        weights,
    )


def _transform(each: Transform) -> dict[str, Any]:
    return {
        "from": format_text(each.source),
        "to": format_text(each.destination),
        "shape": list(each.shape),
        "kernel": each.kernel,
        "cost_us": each.cost.seconds * MICRO,
        "cost_source": each.cost.source,
    }


def _judgement(verdict: Verdict) -> dict[str, Any]:
    found = verdict.found
    return {
        "kept": verdict.kept,
        "max_abs_error": json_number(found.max_abs_error),
        "max_rel_error": json_number(found.max_rel_error),
        "norm_error": json_number(found.norm_error),
        "float32_error": json_number(verdict.float32_error),
        "moved_rows": found.moved_rows,
        "unmatched_rows": found.unmatched_rows,
        "oracle": verdict.oracle,
        "oracle_reason": verdict.reason,
    }
