"""The results of the contenders of a race."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from neocpu.bench.engines.agreement import MAX_RELATIVE_ERROR
from neocpu.bench.engines.contenders import NNCF, OWN_FLOAT, SIGNED, Failure
from neocpu.bench.results.sample_statistics import (
    NOISY_SPREAD,
    Ratio,
    Rounds,
    percentile,
    ratio_of_medians,
    spread,
)
from neocpu.foundation.json_codec import JsonObject, value_to_json
from neocpu.foundation.machine.machine_info import OtherLoad
from neocpu.foundation.units import json_number
from neocpu.plan.members import members


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyResult:
    label: str
    version: str
    rounds: Rounds  # seconds of every run, by round
    load_seconds: float  # seconds of importing the engine and loading the model
    error: float  # norm-wise relative distance from the reference's outputs
    peak_rss: int = 0  # peak memory of its process, in bytes
    mismatch: str = ""  # outputs that are not comparable, as ``boxes (153, 4) vs (152, 4)``
    tolerance: float = MAX_RELATIVE_ERROR  # see `LatencyOptions`
    computes_in: str = ""  # see `Session`

    def percentile(self, percent: float) -> float:
        return percentile(self.rounds, percent)

    @property
    def median(self) -> float:
        return self.percentile(50)

    @property
    def p50(self) -> float:
        """Half of the runs took no longer, in seconds."""
        return self.percentile(50)

    @property
    def p90(self) -> float:
        return self.percentile(90)

    @property
    def p99(self) -> float:
        return self.percentile(99)

    @property
    def spread(self) -> float:
        return spread(self.rounds)

    @property
    def agrees(self) -> bool:
        return self.error <= self.tolerance

    def to_json(self) -> JsonObject:
        names = "label version median p50 p90 p99 spread load_seconds peak_rss mismatch computes_in"
        error = json_number(self.error)
        return {**members(self, f"{names} agrees rounds"), "relative_error": error}


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyReport:
    threads: int  # the threads of each contender
    results: tuple[LatencyResult, ...]  # the contenders that finished, in the given order
    failures: tuple[Failure, ...]  # the contenders that failed
    reference: str | None  # the contender whose outputs count as right
    seed: int = 0  # the seed of the confidence intervals
    overruled: str | None = None  # reference that all others agree against
    load: OtherLoad | None = None  # the load of other programs during the measurement
    defaults: bool = False  # whether engines had their own defaults instead of ``threads``

    def find(self, label: str) -> LatencyResult | None:
        """Return a contender's result; None if it failed or never ran."""
        return next((result for result in self.results if result.label == label), None)

    def ratio(self, numerator: LatencyResult, denominator: LatencyResult) -> Ratio:
        return ratio_of_medians(numerator.rounds, denominator.rounds, self.seed)

    def best_peer(self, label: str = "neocpu") -> LatencyResult | None:
        """Return ``label``'s fastest peer with right outputs, or None; neocpu-fp32 is no peer."""
        ours = (label, OWN_FLOAT)
        others = [result for result in self.results if result.label not in ours and result.agrees]
        return min(others, key=lambda result: result.median, default=None)

    @property
    def inconclusive(self) -> tuple[str, ...]:
        """A sentence if the measurement cannot tell whether neocpu or its best peer is faster."""
        own, best = self.find("neocpu"), self.best_peer("neocpu")
        if own is None or best is None or self.ratio(own, best).decided:
            return ()
        return (f"{own.label} and {best.label} are too close to tell apart.",)

    @property
    def warnings(self) -> tuple[str, ...]:
        failed = [f"{failure.label} failed: {failure.reason}" for failure in self.failures]
        wrong = [self._disagreement(result) for result in self.results if not result.agrees]
        return (*self._forms(), *failed, *wrong, *self._noise())

    def _forms(self) -> list[str]:
        said = []
        if self.defaults:
            said.append("every engine with its own defaults: threads, element types, the rest")
        if self.find(SIGNED) is not None:
            said.append(f"onnxruntime runs feature maps of uint8 (u8s8), {SIGNED} the same as int8")
        if self.find(NNCF) is not None:
            said.append(f"{NNCF} is the model as NNCF, OpenVINO's own quantiser, makes it")
        if wide := [r.label for r in self.results if r.computes_in == "f32"]:
            said.append(f"no bfloat16 on this CPU, float32 instead: {', '.join(wide)}")
        return said

    def _disagreement(self, result: LatencyResult) -> str:
        how = (
            result.mismatch or f"relative error {result.error:.2g}, tolerance {result.tolerance:g}"
        )
        against = f"{result.label} disagrees with {self.reference}"
        if result.label == self.overruled:
            against = f"{result.label} disagrees with all others, which agree with each other"
        return f"{against}: {how}"

    def _noise(self) -> list[str]:
        said = []
        if noisy := [r for r in self.results if r.spread > NOISY_SPREAD]:
            said.append(
                f"noisy machine: rounds of {', '.join(r.label for r in noisy)} differ by up to "
                f"{max(r.spread for r in noisy):.0%}; close other programs and use more --rounds"
            )
        if self.load is not None and self.load.disturbing:
            said.append(f"busy machine: {self.load} during the measurement")
        return said

    def to_json(self) -> JsonObject:
        """Return the JSON form; times in seconds, ratios of each contender over each other."""
        return {
            **members(self, "threads defaults reference overruled failures inconclusive warnings"),
            "tolerance": next((r.tolerance for r in self.results), MAX_RELATIVE_ERROR),
            "results": [
                {
                    **r.to_json(),
                    "ratios": {
                        other.label: asdict(self.ratio(r, other))
                        for other in self.results
                        if other is not r
                    },
                }
                for r in self.results
            ],
            "other_load": value_to_json(self.load),
        }


@dataclass(frozen=True, slots=True)
class ScalingReport:
    reports: Mapping[int, LatencyReport]  # a report for each number of threads, ascending

    @property
    def threads(self) -> tuple[int, ...]:
        return tuple(self.reports)

    @property
    def labels(self) -> tuple[str, ...]:
        labels = (result.label for report in self.reports.values() for result in report.results)
        return tuple(dict.fromkeys(labels))

    def speedups(self, label: str) -> dict[int, Ratio]:
        """Return throughput relative to that at the fewest threads, where the contender ran."""
        found = {threads: report.find(label) for threads, report in self.reports.items()}
        results = {threads: result for threads, result in found.items() if result is not None}
        if not results:
            return {}
        base = next(iter(results.values()))
        seed = next(iter(self.reports.values())).seed
        return {
            threads: Ratio(1.0, 1.0, 1.0)
            if result is base
            else ratio_of_medians(base.rounds, result.rounds, seed, paired=False)
            for threads, result in results.items()
        }

    def to_json(self) -> JsonObject:
        """Return the JSON form: a list of reports, and each contender's speed-ups by threads."""
        return {
            "reports": [report.to_json() for report in self.reports.values()],
            "speedups": {
                label: {
                    str(threads): asdict(ratio) for threads, ratio in self.speedups(label).items()
                }
                for label in self.labels
            },
        }
