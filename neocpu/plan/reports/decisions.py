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
from neocpu.plan.outcome import Calibration, WeightSizes
from neocpu.planning.alternatives import alternatives_of
from neocpu.planning.choice import is_estimated
from neocpu.planning.operators.dense_op import DenseOp
from neocpu.planning.operators.network_costs import NetworkCosts, NetworkTime
from neocpu.planning.operators.operator_report import OperatorReport, report_of_layer, report_of_op
from neocpu.planning.operators.product_op import ProductOp
from neocpu.planning.optimisation_levels import LayoutPlan
from neocpu.planning.precision import Precision
from neocpu.schedules.vocabulary.accuracy import Accuracy, Admission
from neocpu.search.solver.plan import Plan as SearchResult


@dataclass(frozen=True, slots=True)
class IntegerLayer:
    """A layer that computes in integers, or with weights that are stored as such."""

    name: str  # name of its node in the model
    result: str  # the tensor that it makes
    saved_seconds: float  # seconds that it saves against float32, as far as costs are known
    noise: float = 0.0  # share of the outputs' power; 0 if unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport:
    """The decisions that calibration data led to, as a plan stores them."""

    stored: Calibration  # the decisions
    names: Mapping[str, str]  # of layers in integers, by the tensor that each makes


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """The decisions about a model, before its kernels are built."""

    target: str  # CPU that the model is compiled for
    threads: int  # threads of a call
    streams: int | None  # calls at once; None where one call's time counts
    opt: str  # level of optimisation
    precision: Precision  # numbers that operators were allowed to compute in
    accuracy: Accuracy  # promise that the schemes were chosen for
    admission: Admission  # schemes that were allowed
    search: SearchResult  # account of the solver
    levels: Mapping[str, float]  # seconds of plans of lower levels, as far as searched
    bfloat16_saves: float  # estimate; 0 if it is allowed, or was not estimated
    ops: tuple[OperatorReport, ...]  # those with choices, and products of matrices
    transforms: tuple[Transform, ...]  # layout transforms between them
    weights: WeightSizes  # bytes of the weights
    calibration: CalibrationReport | None  # None without calibration data
    processing: tuple[str, ...]  # notes on the processing before and after the model
    processing_options: Mapping[str, Any] | None  # JSON form of the `Processing` that asks for it
    identities: tuple[str, ...]  # identities of the model, and of the models that it was made of
    rules: Mapping[str, int]  # number of times that each rule for graphs was applied
    disabled_rules: frozenset[str]  # rules for graphs that the user disabled

    @property
    def estimated_seconds(self) -> float:
        """Estimated seconds of a run: the search's cost and the dense layers."""
        return self.search.cost + math.fsum(op.seconds for op in self.ops if op.kind == DENSE)

    def known_calls(self) -> dict[str, KnownCalls]:
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
