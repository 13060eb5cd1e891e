"""The differences between two plans of a model, step by step, and the time that each saves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from neocpu.foundation.errors import UsageError
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.units import plural
from neocpu.plan.changes.steps import Pair, Step, bare, pair_up, planned
from neocpu.plan.kernels import TRANSFORM
from neocpu.plan.members import members
from neocpu.runtime.header import ArtifactHeader

REASONS: Final[Mapping[str, str]] = {
    "precision": "computes in other numbers",
    "workload": "computes another size",
    "fusion": "other operators are computed within its kernel",
    "algorithm": "another algorithm",
    "scheme": "other parameters of its algorithm",
    "layout": "reads or writes another layout",
    "transforms": "layout transforms",
    "gone": "no longer a kernel of its own",
    "added": "a kernel that was not there",
    "cost": "the same kernel, known better",
    "same": "as it was",
}
"""Reasons for a difference, in words. A step with several counts for the first of them.
``cost``: only the known time of the step changed."""

RELATED: Final = 0.6  # share of the smaller plan's operators in the other


@dataclass(frozen=True, slots=True)
class Side:
    label: str  # name of its file
    header: ArtifactHeader
    steps: tuple[Step, ...]

    @property
    def us(self) -> float:
        return sum(step.us for step in self.steps)

    @property
    def convolutions_in(self) -> dict[str, int]:
        """Number of convolutions by the numbers that they compute in, the most frequent first."""
        counts = Counter(step.precision for step in self.steps if step.kind == "conv2d")
        return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))

    def to_json(self) -> JsonObject:
        header = self.header
        plan = header.plan
        moves = [step for step in self.steps if step.kind == TRANSFORM]
        measured = [step.measured_us for step in self.steps if step.measured_us is not None]
        return {
            "artifact": self.label,
            "model": header.name,
            **members(header, "target threads arena_bytes"),
            "opt": plan.opt,
            "predicted_us": sum(step.predicted_us for step in self.steps),
            "measured_us": sum(measured) if measured else None,
            "operators": planned(self.steps),
            "convolutions_in": self.convolutions_in,
            "calls": len(header.calls),
            "transforms": sum(step.times for step in moves),
            "transforms_us": sum(step.us for step in moves),
            "weight_bytes": plan.weights.packed_bytes,
        }


@dataclass(frozen=True, slots=True)
class Change:
    pair: Pair
    reason: str  # one of `REASONS`
    words: tuple[str, ...]  # description of each difference, in a few words

    @property
    def step(self) -> Step:
        """The step after the change, or before it if it is gone."""
        found = self.pair.after or self.pair.before
        assert found is not None
        return found

    @property
    def before_us(self) -> float | None:
        """Microseconds that it took; None if it is new."""
        return None if self.pair.before is None else self.pair.before.us

    @property
    def after_us(self) -> float | None:
        """Microseconds that it takes; None if it is gone."""
        return None if self.pair.after is None else self.pair.after.us

    @property
    def bought_us(self) -> float:
        """Microseconds that a run takes less."""
        return (self.before_us or 0.0) - (self.after_us or 0.0)

    def to_json(self) -> JsonObject:
        return {
            "name": self.step.name,
            "matched_by": self.pair.by or None,
            "changes": list(self.words),
            **members(self, "reason before_us after_us bought_us"),
            **members(self.pair, "before after"),
        }


@dataclass(frozen=True)
class PlanChange:
    before: Side
    after: Side
    changes: tuple[Change, ...]  # every step of both, unchanged ones included

    @cached_property
    def bought_us(self) -> float:
        return self.before.us - self.after.us

    @cached_property
    def by_reason(self) -> dict[str, tuple[int, float]]:
        """Number of steps for each reason, and the microseconds that they save."""
        counts = Counter(change.reason for change in self.changes)
        bought = dict.fromkeys(REASONS, 0.0)
        for change in self.changes:
            bought[change.reason] += change.bought_us
        return {name: (counts[name], bought[name]) for name in REASONS if counts[name]}

    def to_json(self) -> JsonObject:
        return {
            "before": self.before.to_json(),
            "after": self.after.to_json(),
            "bought_us": self.bought_us,
            "by_reason": {
                name: {"steps": count, "bought_us": us}
                for name, (count, us) in self.by_reason.items()
            },
            "steps": [change.to_json() for change in self.changes],
        }


def compare_plans(before: Side, after: Side) -> PlanChange:
    """Compare two artifacts of one model. Raises UsageError: they are not."""
    pairs = pair_up(before.steps, after.steps)
    counts = [planned(side.steps) for side in (before, after)]
    common = planned(pair.before for pair in pairs if pair.before and pair.by not in ("", "name"))
    if common < RELATED * max(1, min(counts)) and any(counts):
        sides = (f"{side.label} ({side.header.name})" for side in (before, after))
        raise UsageError(
            f"{' and '.join(sides)} are not compiled from one model: of "
            f"{plural(min(counts), 'operator')} they have {common} in common; name two of one model"
        )
    return PlanChange(before, after, tuple(map(_change, pairs)))


def _change(pair: Pair) -> Change:
    before, after = pair.before, pair.after
    if before is None or after is None:
        alone = before or after
        assert alone is not None
        word = "gone" if after is None else "added"
        words = [word if alone.times == 1 else f"{alone.times} {word}"]
        return Change(pair, "transforms" if alone.kind == TRANSFORM else word, tuple(words))
    found = list(_differences(before, after))
    if not found and before.us != after.us:
        found = [("cost", _known(before, after))]
    reasons = {reason for reason, _ in found} or {"same"}
    first = next(reason for reason in REASONS if reason in reasons)
    return Change(pair, first, tuple(words for _, words in found))


def _differences(before: Step, after: Step) -> Iterator[tuple[str, str]]:
    if before.precision != after.precision:
        yield "precision", f"{before.precision or 'unplanned'} → {after.precision or 'unplanned'}"
    yield from _fusions(before, after)
    algorithms = [
        "none" if step.scheme is None else step.scheme.algorithm for step in (before, after)
    ]
    if algorithms[0] != algorithms[1]:
        yield "algorithm", " → ".join(algorithms)
    elif before.scheme is not None and after.scheme is not None:
        old, new = before.scheme.parameters, after.scheme.parameters
        for key in new:
            if old.get(key) != new[key]:
                yield "scheme", f"{key} {_text(old.get(key))} → {_text(new[key])}"
    if before.layouts != after.layouts and before.layouts and after.layouts:
        for word, one, other in zip(
            ("reads", "writes"), before.layouts, after.layouts, strict=True
        ):
            if one != other:
                yield "layout", f"{word} {one} → {other}"
    if before.times != after.times:
        yield "transforms", f"{before.times} → {after.times} times"


def _fusions(before: Step, after: Step) -> Iterator[tuple[str, str]]:
    if before.kind == TRANSFORM:
        return
    counts = [Counter(_fused(step.workload)) for step in (before, after)]
    for word, more in (
        ("fused", counts[1] - counts[0]),
        ("no longer fused", counts[0] - counts[1]),
    ):
        if more:
            names = (f"{count} {name}" if count > 1 else name for name, count in more.items())
            yield "fusion", f"{word}: {', '.join(names)}"
    if bare(before.workload) != bare(after.workload):
        yield "workload", f"computes {bare(after.workload)}, before {bare(before.workload)}"


def _fused(workload: str) -> list[str]:
    words = workload.replace(",", " ").split()
    return [
        part for word in words if "+" in word for part in word.split("+") if part.isidentifier()
    ]


def _known(before: Step, after: Step) -> str:
    if after.measured_us is not None and before.measured_us is not None:
        return "as before; measured again"
    if before.source != after.source:
        return f"as before; {after.source}, was {before.source}"
    return "as before; predicted anew"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def changed(found: PlanChange) -> Sequence[Change]:
    """Return the changes, those that save or cost most first."""
    other = [change for change in found.changes if change.reason != "same"]
    return sorted(other, key=lambda change: -abs(change.bought_us))
