"""The results of a benchmark of one or many models, and their summary."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from neocpu.bench.engines.contenders import OWN
from neocpu.bench.engines.measured_model import Compilation
from neocpu.bench.limits.roofline import Roofline
from neocpu.bench.race.coldstart import ColdStartReport
from neocpu.bench.race.convolution_kernels import KernelReport
from neocpu.bench.race.latency_report import LatencyReport, LatencyResult, ScalingReport
from neocpu.bench.results.failure import ModelFailure
from neocpu.bench.results.sample_statistics import Ratio
from neocpu.foundation.json_codec import JsonObject
from neocpu.plan.members import members
from neocpu.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class Planned:
    predicted: float  # seconds of one run
    # The largest possible excess of the plan's cost over the best one's, relative to its cost.
    gap: float
    search_seconds: float
    integer_layers: int | None = None  # None without calibration data
    skippable: float = 0.0  # predicted seconds of operators that data may skip

    @classmethod
    def of(cls, plan: Plan) -> Planned:
        calibration = plan.calibration
        return cls(
            predicted=plan.predicted_us / 1e6,
            gap=plan.search.gap,
            search_seconds=plan.search.seconds,
            integer_layers=None if calibration is None else len(calibration.layers),
            skippable=plan.skippable_us / 1e6,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport:
    name: str
    target: str
    latency: LatencyReport  # the latency at the largest number of threads
    planned: Planned | None
    compilation: Compilation | None
    scaling: ScalingReport | None = None  # if there are several numbers of threads
    roofline: Roofline | None = None
    kernels: KernelReport | None = None
    cold_start: ColdStartReport | None = None

    @property
    def own(self) -> LatencyResult | None:
        return self.latency.find(OWN)

    @property
    def best_peer(self) -> LatencyResult | None:
        return self.latency.best_peer(OWN)

    @property
    def ratio(self) -> Ratio | None:
        """Latency of the best peer over neocpu's; None without a peer or with wrong outputs."""
        own, best = self.own, self.best_peer
        if own is None or best is None or not own.agrees:
            return None
        return self.latency.ratio(best, own)

    @property
    def memory_ratio(self) -> float | None:
        """Peak resident memory over the median peer's; None where either is unknown."""
        own = self.own
        peers = [r.peak_rss for r in self.latency.results if r.label != OWN and r.peak_rss]
        if own is None or not own.peak_rss or not peers:
            return None
        return own.peak_rss / statistics.median(peers)

    @property
    def prediction_error(self) -> float | None:
        """Predicted over measured latency, minus 1."""
        if self.planned is None or self.own is None:
            return None
        return self.planned.predicted / self.own.median - 1

    def __str__(self) -> str:
        words = [f"{r.label} {r.median * 1e3:.2f} ms" for r in self.latency.results]
        if (ratio := self.ratio) is not None:
            words.append(f"best peer / {OWN} {ratio.value:.2f}")
        return f"{self.name}: {', '.join(words)}"

    def to_json(self) -> JsonObject:
        """Return the JSON form; times in seconds."""
        names = "target ratio planned memory_ratio prediction_error compilation"
        reports = "latency scaling roofline kernels cold_start"
        best = self.best_peer and self.best_peer.label
        return {"model": self.name, "best_peer": best, **members(self, f"{names} {reports}")}


@dataclass(frozen=True, slots=True)
class SuiteReport:
    models: tuple[ModelReport, ...]
    failures: tuple[ModelFailure, ...] = ()

    @property
    def compared(self) -> tuple[tuple[ModelReport, Ratio], ...]:
        return tuple((model, ratio) for model in self.models if (ratio := model.ratio) is not None)

    @property
    def geometric_mean(self) -> float | None:
        ratios = [ratio.value for _, ratio in self.compared]
        return statistics.geometric_mean(ratios) if ratios else None

    @property
    def worst(self) -> tuple[ModelReport, Ratio] | None:
        return min(self.compared, key=lambda pair: pair[1].value, default=None)

    @property
    def wins(self) -> int:
        """The number of models on which neocpu is faster than every peer, beyond doubt."""
        return sum(ratio.low > 1 for _, ratio in self.compared)

    @property
    def memory_ratios(self) -> tuple[tuple[ModelReport, float], ...]:
        ratios = ((model, model.memory_ratio) for model in self.models)
        return tuple((model, ratio) for model, ratio in ratios if ratio is not None)

    @property
    def prediction_error(self) -> float | None:
        """Median of the relative errors of the predictions, without their signs."""
        errors = [abs(e) for model in self.models if (e := model.prediction_error) is not None]
        return statistics.median(errors) if errors else None

    def summary(self) -> JsonObject:
        worst = self.worst
        memory = max(self.memory_ratios, key=lambda pair: pair[1], default=None)
        return {
            **members(self, "geometric_mean wins prediction_error"),
            "compared": len(self.compared),
            "worst": worst and {"model": worst[0].name, "ratio": worst[1].value},
            "most_memory": memory and {"model": memory[0].name, "ratio": memory[1]},
        }
