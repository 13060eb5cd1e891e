"""The results of engines that make several calls at once, and their comparison with neocpu."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from neocpu.bench.engines.contenders import OWN
from neocpu.bench.race.latency_report import LatencyReport, LatencyResult
from neocpu.bench.results.sample_statistics import Ratio
from neocpu.bench.throughput.modes import Mode, ProcessMemory
from neocpu.foundation.json_codec import JsonObject, value_to_json
from neocpu.plan.members import members


@dataclass(frozen=True, slots=True)
class ModeResult:
    mode: Mode
    speed: LatencyResult  # the latency result, with elapsed seconds per call
    memory: ProcessMemory
    images: int  # the images of a call

    @property
    def per_second(self) -> float:
        return self.images / self.speed.median

    def to_json(self) -> JsonObject:
        """Return the JSON form; memory in bytes, rounds in seconds per call."""
        return {
            "label": self.mode.label,
            "engine": self.mode.peer,
            "images_per_second": self.per_second,
            **members(self.memory, "streams rss pss"),
            **members(self.speed, "version spread agrees"),
            "relative_error": self.speed.error,
            "rounds": [seconds for one in self.speed.rounds for seconds in one],
        }


@dataclass(frozen=True, slots=True)
class ThroughputReport:
    name: str
    race: LatencyReport  # its latencies are elapsed times per call
    modes: tuple[ModeResult, ...]  # the modes that finished, in the order of the engines

    def best(self, engine: str) -> ModeResult | None:
        """Return the fastest mode of an engine among those with correct outputs."""
        right = (one for one in self.modes if one.mode.peer == engine and one.speed.agrees)
        return max(right, key=lambda one: one.per_second, default=None)

    @property
    def best_peer(self) -> ModeResult | None:
        peers = dict.fromkeys(one.mode.peer for one in self.modes if one.mode.peer != OWN)
        found = (one for peer in peers if (one := self.best(peer)) is not None)
        return max(found, key=lambda one: one.per_second, default=None)

    @property
    def ratio(self) -> Ratio | None:
        """neocpu's images a second over those of the best peer; None if either is missing."""
        own, peer = self.best(OWN), self.best_peer
        return None if own is None or peer is None else self._faster(own, peer)

    @property
    def ends(self) -> tuple[ModeResult, ModeResult] | None:
        """neocpu's results on one stream and on the most; None if either is missing."""
        own = [one for one in self.modes if one.mode.peer == OWN]
        one = next((each for each in own if each.memory.streams == 1), None)
        most = max(own, key=lambda each: each.memory.streams, default=None)
        return None if one is None or most is None or one is most else (one, most)

    @property
    def gain(self) -> Ratio | None:
        """neocpu's images a second on the most streams over those on one."""
        return None if self.ends is None else self._faster(self.ends[1], self.ends[0])

    @property
    def memory_ratio(self) -> float | None:
        """neocpu's resident memory with the most streams over that with one."""
        return None if self.ends is None else self.ends[1].memory.rss / self.ends[0].memory.rss

    @property
    def wrong(self) -> tuple[str, ...]:
        own = (one for one in self.modes if one.mode.peer == OWN)
        return tuple(one.mode.label for one in own if not one.speed.agrees)

    def _faster(self, fast: ModeResult, slow: ModeResult) -> Ratio:
        return self.race.ratio(slow.speed, fast.speed)

    def __str__(self) -> str:
        best = (one for one in (self.best(OWN), self.best_peer) if one is not None)
        return f"{self.name}: " + ", ".join(
            f"{one.mode.label} {one.per_second:.1f} images/s" for one in best
        )

    def to_json(self) -> JsonObject:
        own, peer = self.best(OWN), self.best_peer
        return {
            "model": self.name,
            **members(self.race, "threads failures warnings"),
            **members(self, "modes ratio"),
            "best": own and own.mode.label,
            "best_peer": peer and peer.mode.label,
            "streams_over_one": value_to_json(self.gain),
            "memory_over_one": self.memory_ratio,
        }


@dataclass(frozen=True, slots=True)
class Summary:
    """The `ThroughputReport.ratio`, ``gain`` and ``memory_ratio`` by model, where it has one."""

    ratios: Mapping[str, float]
    gains: Mapping[str, float]
    memory: Mapping[str, float]

    @classmethod
    def of(cls, reports: Sequence[ThroughputReport]) -> Summary:
        ratios = {one.name: ratio.value for one in reports if (ratio := one.ratio) is not None}
        gains = {one.name: gain.value for one in reports if (gain := one.gain) is not None}
        memory = {one.name: share for one in reports if (share := one.memory_ratio) is not None}
        return cls(ratios, gains, memory)

    @property
    def means(self) -> tuple[float | None, float | None, float | None]:
        """Geometric means of the three figures; None for one that no model has."""
        ratios, gains, memory = map(_mean, (self.ratios, self.gains, self.memory))
        return ratios, gains, memory

    @property
    def least(self) -> tuple[str, float] | None:
        return min(self.ratios.items(), key=lambda pair: pair[1], default=None)

    @property
    def most_memory(self) -> tuple[str, float] | None:
        """The model whose streams take the most memory, over that of one."""
        return max(self.memory.items(), key=lambda pair: pair[1], default=None)

    def to_json(self) -> JsonObject:
        ratio, gain, memory = self.means
        return {
            "ratio": ratio,
            "streams_over_one": gain,
            "memory_over_one": memory,
            "least": self.least and {"model": self.least[0], "ratio": self.least[1]},
            "most_memory": self.most_memory
            and {"model": self.most_memory[0], "ratio": self.most_memory[1]},
        }


def _mean(values: Mapping[str, float]) -> float | None:
    return statistics.geometric_mean(values.values()) if values else None
