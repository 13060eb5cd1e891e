"""A learned correction of the analytic estimates, trained on every record there is.

It consists of two boosted regressions. The first learns the errors of estimates from the records of
other workloads, networks and CPUs; it is trained once. The second learns the remaining error from
the workloads being tuned, and is trained again as their records come in; it is small, because
nothing is measured meanwhile. Both predict the logarithm of measured over estimated seconds, so
without any records the model is the estimate.

Features are numbers; what a scheme's template does not have is NaN, which trees treat as missing.
Sizes and times are logarithms: an octave of a large layer is worth as much as one of a small layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from neocpu.foundation.dtypes import bytes_of
from neocpu.schedules import registry
from neocpu.schedules.vocabulary.layout import ceil_div
from neocpu.schedules.vocabulary.scheme import SCHEMES, Scheme
from neocpu.schedules.vocabulary.steps import TENSOR
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Conv2dWorkload
from neocpu.search.strategies import WorkloadState
from neocpu.tuning_db.nearest import cpu_target
from neocpu.tuning_db.record import Record, TargetKey

TEMPLATES = sorted(SCHEMES)
FIELDS = sorted({field.name for scheme in SCHEMES.values() for field in fields(scheme)})


def feature_rows(
    workload: Conv2dWorkload, estimates: Mapping[Scheme, float], target: CpuTarget, threads: int
) -> NDArray[np.float32]:
    """Return a row of features for each scheme of ``estimates``, on ``threads`` threads."""
    common = [*_workload(workload), *_machine(workload, target, threads)]
    rows = [
        [*common, math.log2(workload.flops / estimate), *_scheme(workload, scheme, target, threads)]
        for scheme, estimate in estimates.items()
    ]
    return np.array(rows, np.float32)


def _workload(workload: Conv2dWorkload) -> list[float]:
    sizes = (
        workload.batch,
        workload.in_channels,
        workload.out_channels,
        workload.groups,
        workload.out_height,
        workload.out_width,
        workload.flops,
        math.prod(workload.input_shape),
        math.prod(workload.output_shape),
        math.prod(workload.kernel_shape),
    )
    operands = sum(op.operand == TENSOR for op in workload.epilogue)
    return [
        *map(math.log2, sizes),
        *workload.kernel,
        max(workload.stride),
        max(workload.dilation),
        float(any(workload.padding)),
        len(workload.epilogue),
        operands,
        len(workload.prologue),
    ]


def _machine(workload: Conv2dWorkload, target: CpuTarget, threads: int) -> list[float]:
    numerics, unit = workload.numerics, target.dot_unit(workload.numerics)
    return [
        unit.lanes,
        target.vector_registers,
        unit.per_cycle,
        math.log2(target.l1d),
        math.log2(target.l2),
        math.log2(target.l3 + 1),
        threads,
        math.log2(bytes_of(numerics.weights) * math.prod(workload.kernel_shape) / target.l2),
        math.log2(bytes_of(numerics.data) * math.prod(workload.input_shape) / target.l2),
    ]


def _scheme(
    workload: Conv2dWorkload, scheme: Scheme, target: CpuTarget, threads: int
) -> list[float]:
    """The scheme, and how well it fits the image, the registers, the caches and the threads."""
    ic_bn, oc_bn, reg_n, reg_oh = (
        getattr(scheme, name, 0) or 1 for name in ("ic_bn", "oc_bn", "reg_n", "reg_oh")
    )
    weights = bytes_of(workload.numerics.weights) * math.prod(workload.kernel_shape)
    block = oc_bn * weights / workload.out_channels
    vectors = oc_bn / target.dot_unit(workload.numerics).lanes
    tasks = ceil_div(workload.out_channels, oc_bn) * ceil_div(workload.out_height, reg_oh)
    return [
        float(TEMPLATES.index(scheme.template)) if scheme.template in TEMPLATES else math.nan,
        *(float(getattr(scheme, name, math.nan)) for name in FIELDS),
        vectors,
        vectors * reg_n * reg_oh / target.vector_registers,
        _waste(workload.out_width, reg_n),
        _waste(workload.out_height, reg_oh),
        _waste(workload.out_channels, oc_bn),
        _waste(workload.image_channels, ic_bn),
        _waste(tasks, threads),
        math.log2(tasks),
        math.log2(block / target.l1d),
        math.log2(block / target.l2),
    ]


def _waste(extent: int, block: int) -> float:
    """Share of work on top that the last, partly filled block does in vain."""
    return ceil_div(extent, block) * block / extent - 1.0


# Records either model is trained on at most: of more, evenly spread ones.
MAX_RECORDS = 10_000
# Fewer records than this teach nothing.
FEWEST = 8
HISTORY_ROUNDS, ROUNDS = 80, 30
PARAMETERS = {
    "nthread": 1,  # sums in one order give one result
    "tree_method": "hist",
    "max_depth": 6,
    "eta": 0.15,
    "min_child_weight": 3,
    "subsample": 0.8,
    "colsample_bytree": 0.7,
}

Estimate = Callable[[Conv2dWorkload, Scheme, CpuTarget, int], float]
Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Table:
    """A workload's legal schemes: features, and the log of their seconds as history has them."""

    rows: Vector
    base: Vector
    place: dict[Scheme, int]


class LearnedCostModel:
    """Predicts the seconds of schemes on one target and thread count. `estimate` returns analytic
    seconds on any target. `history` has whatever was measured before, of any workload on any CPU.
    Equal seeds and records give equal predictions.
    """

    def __init__(
        self,
        target: CpuTarget,
        threads: int,
        estimate: Estimate,
        history: Iterable[Record],
        seed: int,
    ) -> None:
        self._target = target
        self._threads = threads
        self._seed = seed
        self._tables: dict[Conv2dWorkload, _Table] = {}
        self._estimate = estimate
        self._history = history
        self._correction: Any = None

    def learn(self, states: Sequence[WorkloadState]) -> None:
        """Train on all that is measured of the workloads being tuned."""
        rows: list[Vector] = []
        errors: list[Vector] = []
        for state in states:
            table = self._table(state)
            usable = [(s, r) for s, r in state.records.items() if r.result.error is None]
            places = [table.place[scheme] for scheme, _ in usable]
            rows.append(table.rows[places])
            errors.append(_log(record.result.best for _, record in usable) - table.base[places])
        self._correction = self._fit(rows, errors, ROUNDS)

    def predict(self, states: Sequence[WorkloadState]) -> list[Vector]:
        """Return for each workload the logarithm of the seconds of each of its candidates."""
        bases: list[Vector] = []
        rows: list[Vector] = []
        for state in states:
            table = self._table(state)
            places = [table.place[scheme] for scheme in state.candidates]
            bases.append(table.base[places])
            rows.append(table.rows[places])
        corrections = _predict(self._correction, np.concatenate(rows))
        ends = np.cumsum([len(base) for base in bases])[:-1]
        return [b + c for b, c in zip(bases, np.split(corrections, ends), strict=True)]

    def _table(self, state: WorkloadState) -> _Table:
        workload = state.workload
        assert isinstance(workload, Conv2dWorkload), "nothing else leaves a choice"
        if workload not in self._tables:
            rows = feature_rows(workload, state.estimates, self._target, self._threads)
            base = _log(state.estimates.values()) + _predict(self._learnt, rows)
            place = {scheme: i for i, scheme in enumerate(state.estimates)}
            self._tables[workload] = _Table(rows, base, place)
        return self._tables[workload]

    @cached_property
    def _learnt(self) -> Any:
        """The model trained by history; only who asks for predictions waits for the training."""
        usable = [
            record
            for record in self._history
            if isinstance(record.workload, Conv2dWorkload) and record.result.error is None
        ]
        rows: list[Vector] = []
        errors: list[Vector] = []
        step = max(1, ceil_div(len(usable), MAX_RECORDS))
        for (workload, key), group in groupby(usable[::step], lambda r: (r.workload, r.target)):
            cpu = (
                self._target if key == TargetKey.of(self._target, key.threads) else cpu_target(key)
            )
            if cpu.find_dot_unit(workload.numerics) is None:
                continue  # what it was measured with nothing here can estimate
            computed = (r for r in group if registry.can_compute(workload, r.scheme, cpu))
            seconds = {record.scheme: record.result.best for record in computed}
            if not seconds:
                continue
            estimates = {s: self._estimate(workload, s, cpu, key.threads) for s in seconds}
            rows.append(feature_rows(workload, estimates, cpu, key.threads))
            errors.append(_log(seconds.values()) - _log(estimates.values()))
        return self._fit(rows, errors, HISTORY_ROUNDS)

    def _fit(self, rows: Sequence[Vector], errors: Sequence[Vector], rounds: int) -> Any:
        count = sum(map(len, rows))
        if count < FEWEST:
            return None
        import xgboost  # only who uses this strategy waits for it

        step = ceil_div(count, MAX_RECORDS)
        data = xgboost.DMatrix(np.concatenate(rows)[::step], np.concatenate(errors)[::step])
        return xgboost.train({**PARAMETERS, "seed": self._seed}, data, rounds)


def _predict(booster: Any, rows: Vector) -> Vector:
    if booster is None or not len(rows):
        return np.zeros(len(rows), np.float32)
    predicted: Vector = booster.inplace_predict(rows)
    return predicted


def _log(seconds: Iterable[float]) -> Vector:
    return np.log(np.fromiter(seconds, np.float32))
