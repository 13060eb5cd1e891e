"""The report of ``neocpu compile`` on a compiled model, or on the parts of a fat file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neocpu.foundation.console.terminal import echo
from neocpu.foundation.json_codec import JsonObject
from neocpu.foundation.units import duration, size
from neocpu.plan.members import members
from neocpu.plan.text.artifact_text import precision_text, signature_text
from neocpu.plan.text.columns import print_columns
from neocpu.plan.text.plan_text import cost_sources, error_text
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
        names = "predicted_us verification unchecked weights accuracy"
        return {**members(self, "inputs"), **members(self.plan, names)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledPart:
    name: str  # name of the part; empty for a model that is compiled for one CPU
    size: int  # bytes of the part; 0 if it has no name
    signatures: tuple[CompiledSignature, ...]  # shapes that it is compiled for, and their plans
    obstacle: str | None  # reason why this host cannot run it
    phases: Mapping[str, float]  # seconds of each phase of the compilation
    tuning: TuningSummary | None  # None if tuning was not requested

    @classmethod
    def of(cls, compiled: CompiledModule, name: str = "", size: int = 0) -> CompiledPart:
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
        return len({str(op.scheme) for op in self.plan.convolutions if op.scheme is not None})

    @property
    def transforms_us(self) -> float:
        return sum(each.cost_us for each in self.plan.transforms)

    def to_json(self) -> JsonObject:
        plan = self.plan
        names = (
            "target goal threads streams opt precision computes_in accuracy weights predicted_us "
            "search admission verification unchecked missed calibration processing rules"
        )
        return {
            **({"name": self.name, "bytes": self.size} if self.name else {}),
            **members(plan, names),
            **members(self, "schemes transforms_us obstacle phases tuning"),
            "convolutions": len(plan.convolutions),
            "cost_sources": cost_sources(plan),
            "transforms": len(plan.transforms),
            "shapes": [each.to_json() for each in self.signatures],
            **self.hints,
        }


def show_variants(variants: Sequence[CompiledPart]) -> None:
    columns: dict[str, Callable[[CompiledPart], str]] = {
        "variant": lambda one: one.name,
        "target": lambda one: one.plan.target,
        "computes in": lambda one: precision_text(one.plan.precision, one.plan.computes_in),
        "size": lambda one: size(one.size),
        "transforms": lambda one: str(len(one.plan.transforms)),
        "predicted": lambda one: duration(one.plan.predicted_us / 1e6),
        "largest error": lambda one: error_text(one.plan),
    }
    print_columns(variants, columns, ("size", "transforms", "predicted"))


def show_shapes(shapes: Sequence[CompiledSignature]) -> None:
    columns: dict[str, Callable[[CompiledSignature], str]] = {
        "shape": lambda each: signature_text(each.inputs),
        "predicted": lambda each: duration(each.plan.predicted_us / 1e6),
        "packed weights": lambda each: size(each.plan.weights.packed_bytes),
        "largest error": lambda each: error_text(each.plan, integers=False),
    }
    echo()
    print_columns(shapes, columns, ("predicted", "packed weights"))
