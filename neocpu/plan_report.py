"""The plan as people and tools read it: what ``neocpu explain --json`` prints is its JSON form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from neocpu.calibration_report import CalibrationReport
from neocpu.foundation.bfloat16 import NAME as BFLOAT16
from neocpu.foundation.dtypes import DTYPES
from neocpu.passes.apply_plan import RewrittenModule, Transform
from neocpu.planning.choice import Choice
from neocpu.planning.operators.dense_op import DenseOp
from neocpu.planning.operators.layout_op import LayoutOp
from neocpu.planning.operators.product_op import ProductOp
from neocpu.planning.optimisation_levels import LayoutPlan
from neocpu.planning.precision import Precision
from neocpu.schedules.vocabulary.accuracy import DEFAULT, Accuracy, Admission
from neocpu.schedules.vocabulary.format import Format
from neocpu.schedules.vocabulary.numerics import Numerics
from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.search.solver.plan import Plan

if TYPE_CHECKING:
    from neocpu.reference.verdict import Verdict

MICRO = 1e6


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """What was decided of one operator.

    Attributes
    ----------
    name, kind : str
        Such as ``conv2d_7`` and ``conv2d``.
    workload : str
        What it computes.
    flops : int
        Floating-point operations of the direct algorithm.
    scheme : Scheme or None
        Of a convolution.
    weight_bytes : int or None
        Packed; None of dense layers, whose weights no plan changes.
    in_layout, out_layout : str
    precision : str
        What it computes with: ``fp32``, ``int8`` or ``bf16``.
    seconds : float
        What the plan takes it to cost.
    cost_source : str
        Where that is from.
    kernel : str or None
        The function that computes it; None if fusion is yet to decide.
    reads_integers : bool
        Whether its weights or its data are integers.
    numerics : Numerics or None
        Of a convolution: element types of all that it reads, adds up and stores.
    tensors : frozenset of str
        Names of what it makes, and of what it absorbed, as far as the model's are left.
    """

    name: str
    kind: str
    workload: str
    flops: int
    scheme: Scheme | None
    weight_bytes: int | None
    in_layout: str
    out_layout: str
    precision: str
    seconds: float
    cost_source: str
    kernel: str | None
    tensors: frozenset[str] = frozenset()
    reads_integers: bool = False
    numerics: Numerics | None = None

    def to_json(self) -> dict[str, Any]:
        """JSON form; costs are in microseconds."""
        numerics = self.numerics
        bytes_ = {} if self.weight_bytes is None else {"weight_bytes": self.weight_bytes}
        return {
            "name": self.name,
            "kind": self.kind,
            "workload": self.workload,
            "flops": self.flops,
            "scheme": None if self.scheme is None else self.scheme.to_json(),
            **bytes_,
            "in_layout": self.in_layout,
            "out_layout": self.out_layout,
            "precision": self.precision,
            **({} if numerics is None or numerics.is_uniform else numerics.to_json()),
            "cost_us": self.seconds * MICRO,
            "cost_source": self.cost_source,
            "kernel": self.kernel,
        }


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
    rules : mapping of str to int
        How often each rule for graphs was applied.
    disabled_rules : frozenset of str
        Those that were not to be.
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
    rules: Mapping[str, int] = field(default_factory=dict)
    disabled_rules: frozenset[str] = frozenset()

    @property
    def predicted_seconds(self) -> float:
        """What a run takes, as far as the plan knows: the search's cost, and dense layers."""
        return self.search.cost + math.fsum(op.seconds for op in self.ops if op.kind == "dense")

    def to_json(self) -> dict[str, Any]:
        """JSON form, which artifacts carry; every cost is in microseconds."""
        search = self.search
        return {
            "target": self.target,
            "threads": self.threads,
            "opt": self.opt,
            "precision": str(self.precision),
            "accuracy": {"name": self.accuracy.name, "bound": self.accuracy.bound},
            "admission": self.admission.name,
            "predicted_us": self.predicted_seconds * MICRO,
            "search": {
                "solver": search.solver,
                "cost_us": search.cost * MICRO,
                "lower_bound_us": search.lower_bound * MICRO,
                "gap": search.gap,
                "verdict": search.verdict,
                "seconds": search.seconds,
                "variables": search.variables,
            },
            "ops": self._ops(),
            "transforms": [_transform(each) for each in self.transforms],
            "weights": dict(self.weights),
            "calibration": None if self.calibration is None else self.calibration.to_json(),
            "processing": list(self.processing),
            "rules": {
                "applied": dict(sorted(self.rules.items(), key=lambda item: (-item[1], item[0]))),
                "disabled": sorted(self.disabled_rules),
            },
            **self.outcome.to_json(),
        }

    def _ops(self) -> list[dict[str, Any]]:
        layers = () if self.calibration is None else self.calibration.layers
        names = {layer.result: {"layer": layer.name} for layer in layers}
        return [
            op.to_json() | next((names[each] for each in op.tensors if each in names), {})
            for op in self.ops
        ]


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
    pairs = zip(plan.network.ops, plan.choices, strict=True)
    ops = [_op(op, choice, rewritten.kernels.get(op.name)) for op, choice in pairs]
    for layer in (*plan.network.dense, *plan.network.products):
        ops.append(_layer(layer, target, threads, rewritten.kernels.get(layer.name)))
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


def _op(op: LayoutOp, choice: Choice, kernel: str | None) -> OperatorReport:
    return OperatorReport(
        op.name,
        op.name.rpartition("_")[0],
        op.describe(choice),
        op.flops,
        choice.scheme,
        choice.weight_bytes,
        _format(choice.in_format),
        _format(choice.out_format),
        _precision(choice.in_format.dtype),
        choice.seconds,
        choice.source,
        kernel,
        frozenset(str(var.name) for var in (op.result, *op.absorbed)),
        DTYPES[choice.in_format.dtype].is_integer,
        op.numerics(choice),
    )


def _precision(dtype: str) -> Precision:
    """Return what an operator computes with that reads such elements."""
    if dtype == BFLOAT16:
        return Precision.BF16
    return Precision.INT8 if DTYPES[dtype].is_integer else Precision.FP32


def _format(form: Format) -> str:
    """Return the layout, and the element type where it is another than float32."""
    return str(form.layout if form.dtype == "float32" else form)


def _layer(
    op: DenseOp | ProductOp, target: CpuTarget, threads: int, kernel: str | None
) -> OperatorReport:
    """Describe an operator on matrices, of which the search has nothing to choose."""
    numerics = op.workload.numerics
    return OperatorReport(
        op.name,
        op.name.rpartition("_")[0],
        str(op.workload),
        op.workload.flops,
        op.scheme(target, threads),
        None,
        "NC",
        "NC",
        op.precision,
        op.estimate(target, threads),
        "estimated",
        kernel,
        frozenset(str(var.name) for var in (op.result, *op.absorbed)),
        DTYPES[numerics.weights].is_integer,
        numerics if op.precision is Precision.INT8 else None,
    )


def _transform(each: Transform) -> dict[str, Any]:
    return {
        "from": _format(each.source),
        "to": _format(each.destination),
        "shape": list(each.shape),
        "kernel": each.kernel,
        "cost_us": each.cost.seconds * MICRO,
        "cost_source": each.cost.source,
    }


def _judgement(verdict: Verdict) -> dict[str, Any]:
    found = verdict.found
    return {
        "kept": verdict.kept,
        "max_abs_error": _number(found.max_abs_error),
        "max_rel_error": _number(found.max_rel_error),
        "norm_error": _number(found.norm_error),
        "float32_error": _number(verdict.float32_error),
        "moved_rows": found.moved_rows,
        "unmatched_rows": found.unmatched_rows,
        "oracle": verdict.oracle,
        "oracle_reason": verdict.reason,
    }


def _number(value: float | None) -> float | None:
    """Return a number that JSON has."""
    return value if value is not None and math.isfinite(value) else None
