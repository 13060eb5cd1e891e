"""One attempt at a model: search → rewrite → lower → build → link.

Each form of the model holds all of its weights, so each step lets go of what the next replaces.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import TypeAlias

import onnx
import tvm

from neocpu.building.deep_stack import on_deep_stack
from neocpu.building.link import write_artifact
from neocpu.building.pipeline import Built, Dump, build, lower
from neocpu.compiled_module import CompiledModule
from neocpu.foundation.host import usable_cpus
from neocpu.frontend.importer import import_relax
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.passes.apply_plan import RewrittenModule, apply_plan
from neocpu.passes.simplify_relax import simplify
from neocpu.phases import PhaseClock
from neocpu.plan_report import Outcome, PlanReport, report_of
from neocpu.planning.costs import CostModel
from neocpu.planning.extract import extract
from neocpu.planning.measured_costs import Measured
from neocpu.planning.network import Network
from neocpu.planning.optimisation_levels import LayoutPlan
from neocpu.planning.plan_options import PlanOptions
from neocpu.planning.weights import weights_of
from neocpu.runtime.artifact_file.header import ArtifactHeader
from neocpu.schedules.vocabulary.accuracy import Accuracy, Admission
from neocpu.schedules.vocabulary.format import Format
from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Workload

PlanKey: TypeAlias = tuple[tuple[Format, Format, Scheme | None], ...]
"""What tells plans apart: of each operator its layouts and scheme."""


class Source:
    """A model's program and operators, which hold the weights until the last attempt takes them.

    Parameters
    ----------
    uses : int
        How many times they are taken.
    """

    def __init__(self, mod: tvm.IRModule, network: Network, uses: int) -> None:
        self._mod: tvm.IRModule | None = mod
        self._network: Network | None = network
        self._uses = uses

    @property
    def network(self) -> Network:
        """The operators, for those that look before they are taken."""
        assert self._network is not None
        return self._network

    def take(self) -> tuple[tvm.IRModule, Network]:
        """Hand over what is held, and let go of it the last time."""
        mod, network = self._mod, self.network
        assert mod is not None
        self._uses -= 1
        if self._uses == 0:
            self._mod = self._network = None
        return mod, network


@dataclass(frozen=True, slots=True)
class Imported:
    """A model as attempts take it.

    Attributes
    ----------
    loaded : LoadedModel
        Without its graphs, but for the original, where a reference is to run it.
    source : Source
    """

    loaded: LoadedModel
    source: Source


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of one plan.

    Attributes
    ----------
    admission : Admission
        Which kernels it could choose.
    key : tuple
        Tells it from other plans.
    compiled : CompiledModule
        Unchecked.
    """

    admission: Admission
    key: PlanKey
    compiled: CompiledModule


@dataclass(frozen=True, slots=True)
class Builder:
    """What stays the same from one attempt to the next.

    Attributes
    ----------
    options : PlanOptions
    templates : frozenset of str or None
        Convolution templates to choose among; None for all.
    records : callable
        What was measured of a workload.
    accuracy : Accuracy
        What is promised of the outputs.
    """

    target: CpuTarget
    threads: int
    options: PlanOptions
    templates: frozenset[str] | None
    records: Callable[[Workload], Measured]
    accuracy: Accuracy
    clock: PhaseClock
    dump: Dump

    def read(self, load: Callable[[], LoadedModel], *, keep: bool, uses: int = 1) -> Imported:
        """Import a model, and return it as attempts take it.

        Parameters
        ----------
        load : callable
            Reads and checks the model.
        keep : bool
            Whether to keep the original, which a reference runs.
        uses : int
            How many plans will be compiled of it.
        """
        with self.clock.phase("import"):
            loaded, mod = on_deep_stack(self._import, load)
        loaded = _without_graphs(loaded, keep_original=keep)
        with self.clock.phase("simplify"):
            return Imported(loaded, on_deep_stack(self._simplify, mod, uses))

    def _import(self, load: Callable[[], LoadedModel]) -> tuple[LoadedModel, tvm.IRModule]:
        loaded = load()
        mod = import_relax(loaded)
        self.dump.module("import", mod)
        return loaded, mod

    def _simplify(self, mod: tvm.IRModule, uses: int) -> Source:
        mod = simplify(mod)
        self.dump.module("simplify", mod)
        prologues = self.options.fuses_prologues(self.templates)
        return Source(mod, extract(mod, prologues=prologues), uses)

    def attempt(
        self,
        loaded: LoadedModel,
        source: Source,
        admissions: Sequence[Admission],
        tried: Collection[PlanKey] = (),
    ) -> Attempt | None:
        """Compile by the first plan that is none of ``tried``; None if all are.

        Parameters
        ----------
        admissions : sequence of Admission
            What plans are made with, in turn.
        """
        mod, network = source.take()
        with self.clock.phase("search"):
            weights = weights_of(mod, network, self.target, self.threads)
            chosen = self._choose(network, weights.fixed, admissions, tried)
        if chosen is None:
            return None
        costs, plan = chosen
        with self.clock.phase("rewrite"):
            rewritten = on_deep_stack(apply_plan, mod, plan, costs)
            self.dump.module("rewrite", rewritten.mod)
        report = report_of(
            plan,
            rewritten,
            self.target,
            self.threads,
            weights.report(rewritten.weights, self.options.max_weights),
            costs.admission,
            self.accuracy,
        )
        key = _key(plan)
        # Which hold the weights as they were before they were packed.
        del mod, network, chosen, plan
        return Attempt(costs.admission, key, self._build(loaded, rewritten, report))

    def _choose(
        self,
        network: Network,
        fixed_weights: int,
        admissions: Sequence[Admission],
        tried: Collection[PlanKey],
    ) -> tuple[CostModel, LayoutPlan] | None:
        for admission in admissions:
            costs = CostModel(self.target, self.threads, self.records, self.templates, admission)
            plan = self.options.plan(network, costs, fixed_weights)
            if _key(plan) not in tried:
                return costs, plan
        return None

    def _build(
        self, loaded: LoadedModel, rewritten: RewrittenModule, report: PlanReport
    ) -> CompiledModule:
        clock, dump = self.clock, self.dump
        with clock.phase("lower"):
            mod = on_deep_stack(lower, rewritten.mod, self.target, dump)
        with clock.phase("build"):
            built = build(mod, self.target, dump, usable_cpus(), loaded.row_counts)
        report = replace(report, outcome=Outcome(built.arena_bytes, dict(clock.seconds)))
        dump("plan", partial(json.dumps, report.to_json(), indent=1), "json")
        compiled = CompiledModule(self._header(loaded, built, report), report)
        with ExitStack() as on_failure:
            on_failure.enter_context(compiled)
            with clock.phase("link"):
                compiled.header = write_artifact(
                    built.executable, rewritten.weights, compiled.header, compiled.path
                )
            on_failure.pop_all()
        return compiled

    def _header(self, loaded: LoadedModel, built: Built, report: PlanReport) -> ArtifactHeader:
        return ArtifactHeader(
            name=loaded.name,
            neocpu_version=version("neocpu"),
            tvm_version=version("apache-tvm"),
            ffi_version=version("apache-tvm-ffi"),
            target=str(self.target),
            machine=self.target.machine,
            isa_features=self.target.features,
            threads=self.threads,
            inputs=loaded.inputs,
            outputs=loaded.outputs,
            row_counts=loaded.row_counts,
            activations=built.activations,
            arena_bytes=built.arena_bytes,
            plan=report.to_json(),
        )


def _without_graphs(loaded: LoadedModel, *, keep_original: bool) -> LoadedModel:
    """Let go of an imported model's graphs, each of which holds a copy of all weights."""
    nothing = onnx.ModelProto()
    if keep_original:
        return replace(loaded, simplified=nothing)
    return replace(loaded, original=nothing, simplified=nothing, sample=None)


def _key(plan: LayoutPlan) -> PlanKey:
    return tuple((each.in_format, each.out_format, each.scheme) for each in plan.choices)
