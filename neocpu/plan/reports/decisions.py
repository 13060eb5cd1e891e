"""The decisions about a model, in the compiler's own types: later phases compute with them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from neocpu.building.kernel_report import KnownCalls
from neocpu.lowering.apply_plan import RewrittenModule, Transform
from neocpu.plan.kernels import TRANSFORM
from neocpu.plan.operators import CONVOLUTION, DENSE
from neocpu.plan.outcome import WeightSizes
from neocpu.plan.reports.calibration_report import CalibrationReport
from neocpu.planning.alternatives import alternatives_of
from neocpu.planning.choice import is_estimated
from neocpu.planning.operators.dense_op import DenseOp
from neocpu.planning.operators.network_costs import NetworkCosts, NetworkTime
from neocpu.planning.operators.operator_report import (
    OperatorReport,
    report_of_layer,
    report_of_op,
)
from neocpu.planning.operators.product_op import ProductOp
from neocpu.planning.optimisation_levels import LayoutPlan
from neocpu.planning.precision import Precision
from neocpu.schedules.vocabulary.accuracy import Accuracy, Admission
from neocpu.search.solver.plan import Plan as SearchResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """The decisions about a model, before its kernels are built.

    Attributes
    ----------
    target : str
        CPU that the model is compiled for.
    threads : int
        Threads of a call.
    streams : int or None
        Calls at once; None where one call's time counts.
    opt : str
        Level of optimisation.
    precision : Precision
        Numbers that operators were allowed to compute in.
    accuracy : Accuracy
        Promise that the schemes were chosen for.
    admission : Admission
        Schemes that were allowed.
    search : SearchResult
        Account of the solver.
    levels : mapping of str to float
        Seconds that the plans of lower levels of optimisation would take, as far as searched.
    bfloat16_saves : float
        Estimated seconds that bfloat16 would save; 0 if it is allowed, or if it was not estimated.
    ops : tuple of OperatorReport
        Operators that the plan has choices for, and products of matrices.
    transforms : tuple of Transform
        Layout transforms between them.
    weights : WeightSizes
        Bytes of the weights.
    calibration : CalibrationReport or None
        Decisions that calibration data led to; None if the model is compiled without such data.
    processing : tuple of str
        Notes on the processing before and after the model.
    processing_options : mapping or None
        JSON form of the `Processing` that asks for it.
    identities : tuple of str
        Identities of the model, and of the models that it was made of.
    rules : mapping of str to int
        Number of times that each rule for graphs was applied.
    disabled_rules : frozenset of str
        Rules for graphs that the user disabled.
    """

    target: str
    threads: int
    streams: int | None
    opt: str
    precision: Precision
    accuracy: Accuracy
    admission: Admission
    search: SearchResult
    levels: Mapping[str, float]
    bfloat16_saves: float
    ops: tuple[OperatorReport, ...]
    transforms: tuple[Transform, ...]
    weights: WeightSizes
    calibration: CalibrationReport | None
    processing: tuple[str, ...]
    processing_options: Mapping[str, Any] | None
    identities: tuple[str, ...]
    rules: Mapping[str, int]
    disabled_rules: frozenset[str]

    @property
    def estimated_seconds(self) -> float:
        """Estimated seconds of a run: the search's cost and the dense layers."""
        return self.search.cost + math.fsum(op.seconds for op in self.ops if op.kind == DENSE)

    def known_calls(self) -> dict[str, KnownCalls]:
        """Return the known costs of kernels, by their names."""
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


def _known(kind: str, times: list[NetworkTime]) -> KnownCalls:
    # An estimate of a convolution covers computing only.
    computing = kind == CONVOLUTION and any(is_estimated(each.source) for each in times)
    return KnownCalls(kind, tuple(times), computing)


def operator_reports(
    plan: LayoutPlan, rewritten: RewrittenModule, costs: NetworkCosts
) -> tuple[OperatorReport, ...]:
    """Return the decisions of a plan about each operator.

    Parameters
    ----------
    plan : LayoutPlan
        Choices of the network's operators.
    rewritten : RewrittenModule
        The network under that plan.
    costs : NetworkCosts
        Costs of kernels in a run.
    """
    rows = zip(plan.network.ops, plan.choices, alternatives_of(plan), strict=True)
    kernels, renamed = rewritten.kernels, rewritten.renamed
    layers: tuple[DenseOp | ProductOp, ...] = (*plan.network.dense, *plan.network.products)
    return (
        *(
            report_of_op(op, choice, costs, kernels.get(op.name), renamed, others)
            for op, choice, others in rows
        ),
        *(report_of_layer(layer, costs, kernels.get(layer.name), renamed) for layer in layers),
    )
