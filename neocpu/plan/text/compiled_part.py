"""The report of ``neocpu compile`` on a compiled model, or on one part of a fat file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neocpu.foundation.json_codec import JsonObject, value_to_json
from neocpu.plan.text.plan_text import cost_sources
from neocpu.plan.text.tuning_summary import TuningSummary, bfloat16_hint, weights_hint

if TYPE_CHECKING:
    from neocpu.compilation.compiled_module import CompiledModule
    from neocpu.plan.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledSignature:
    """The shapes of one signature's inputs, and its plan."""

    inputs: Mapping[str, tuple[int, ...]]
    plan: Plan

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        plan = self.plan
        return {
            "inputs": value_to_json(self.inputs),
            "predicted_us": plan.predicted_us,
            "verification": value_to_json(plan.verification),
            "unchecked": plan.unchecked,
            "weights": value_to_json(plan.weights),
            "accuracy": value_to_json(plan.accuracy),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPart:
    """A compiled model, or one part of a fat file."""

    name: str  # name of the part; empty for a model that is compiled for one CPU
    size: int  # bytes of the part; 0 if it has no name
    signatures: tuple[CompiledSignature, ...]  # shapes that it is compiled for, and their plans
    obstacle: str | None  # reason why this host cannot run it
    phases: Mapping[str, float]  # seconds of each phase of the compilation
    # Summary of the measurements for it; None if tuning was not requested.
    tuning: TuningSummary | None

    @classmethod
    def of(cls, compiled: CompiledModule, name: str = "", size: int = 0) -> CompiledPart:
        """Return the report on a compiled model."""
        from neocpu.foundation.instruction_sets import code_obstacle, host_features

        header, tuned = compiled.header, compiled.tuned
        return cls(
            name=name,
            size=size,
            signatures=tuple(
                CompiledSignature(
                    inputs={spec.name: spec.shape for spec in each.inputs}, plan=each.plan
                )
                for each in header.each
            ),
            obstacle=code_obstacle(header.machine, header.isa_features, host_features()),
            phases=compiled.seconds,
            tuning=None if tuned is None else TuningSummary.of(tuned),
        )

    @property
    def plan(self) -> Plan:
        """The plan of the first signature."""
        return self.signatures[0].plan

    @property
    def hints(self) -> dict[str, str | None]:
        """Advice on large weights and on the speed of float32; None if there is none."""
        return {"hint": weights_hint(self.plan), "bfloat16_hint": bfloat16_hint(self.plan)}

    @property
    def schemes(self) -> int:
        """Number of distinct schemes of convolutions."""
        return len({str(op.scheme) for op in self.plan.convolutions if op.scheme is not None})

    @property
    def transforms_us(self) -> float:
        """Microseconds of all layout transforms."""
        return sum(each.cost_us for each in self.plan.transforms)

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        plan = self.plan
        return {
            **({"name": self.name, "bytes": self.size} if self.name else {}),
            "target": plan.target,
            "goal": plan.goal,
            "threads": plan.threads,
            "streams": plan.streams,
            "opt": plan.opt,
            "precision": plan.precision,
            "computes_in": plan.computes_in,
            "accuracy": value_to_json(plan.accuracy),
            "weights": value_to_json(plan.weights),
            "convolutions": len(plan.convolutions),
            "schemes": self.schemes,
            "cost_sources": cost_sources(plan),
            "transforms": len(plan.transforms),
            "transforms_us": self.transforms_us,
            "predicted_us": plan.predicted_us,
            "shapes": [each.to_json() for each in self.signatures],
            "search": value_to_json(plan.search),
            "admission": plan.admission,
            "verification": value_to_json(plan.verification),
            "unchecked": plan.unchecked,
            "missed": value_to_json(plan.missed),
            "calibration": value_to_json(plan.calibration),
            "processing": value_to_json(plan.processing),
            "rules": value_to_json(plan.rules),
            "obstacle": self.obstacle,
            "phases": dict(self.phases),
            "tuning": value_to_json(self.tuning),
            **self.hints,
        }
