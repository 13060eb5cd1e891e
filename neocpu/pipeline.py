"""The stages of a compilation: imported → simplified → planned → generating → artifact.

Each is what the next is made of. Most hold all of the model's weights in some form: each step lets
go of what the next replaces.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TypeAlias

import numpy as np
import tvm
from numpy.typing import NDArray

from neocpu.building.deep_stack import on_deep_stack
from neocpu.building.kernel_report import KernelReport, kernel_reports, report_shortcomings
from neocpu.building.link import write_artifact
from neocpu.building.parallel_codegen import OneAtATime
from neocpu.building.phases import PhaseClock
from neocpu.building.pipeline import Building, Built, Dump, begin_build, finish_build, lower
from neocpu.compilation.compiled_module import CompiledModule
from neocpu.foundation.dtypes import bytes_of
from neocpu.foundation.host import usable_cpus
from neocpu.frontend.importer import import_relax
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.graph.simplify import simplify
from neocpu.ir.array_digests import ArrayDigests
from neocpu.ir.row_analysis.proof import Rows, prove_independent_rows
from neocpu.lowering.apply_plan import apply_plan
from neocpu.lowering.values.held_values import StoredValue, placed
from neocpu.plan.outcome import WeightSizes
from neocpu.plan.plan import Plan
from neocpu.plan.reports.calibration_report import CalibrationReport
from neocpu.plan.reports.decisions import Decisions, operator_reports
from neocpu.plan.reports.stored_plan import stored_plan
from neocpu.planning.costs import CostModel
from neocpu.planning.extract import extract
from neocpu.planning.measured_costs import Measured
from neocpu.planning.network import Network
from neocpu.planning.operators.network_costs import NetworkCosts
from neocpu.planning.optimisation_levels import LayoutPlan, OptLevel
from neocpu.planning.plan_options import PlanOptions
from neocpu.planning.together.plan_together import most_of_convolutions, plan_jointly
from neocpu.planning.weight_origin import WeightOrigin
from neocpu.planning.weights import weights_of
from neocpu.runtime.header import ArtifactHeader
from neocpu.schedules.estimates.memory_traffic import with_cores
from neocpu.schedules.vocabulary.accuracy import Accuracy, Admission
from neocpu.schedules.vocabulary.format import Format
from neocpu.schedules.vocabulary.scheme import Scheme
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Workload

PlanKey: TypeAlias = tuple[tuple[Format, Format, Scheme | None], ...]
"""What tells plans apart: of each operator its layouts and scheme."""


class Source:
    """A model's program and operators, which hold the weights until the last plan takes them.

    Parameters
    ----------
    uses : int
        How many times they are taken.
    fired : mapping of str to int
        How often each rule was applied to simplify the program.
    rows : Rows
        Whether the program computes the rows of a batch apart.
    digests : ArrayDigests
        Of the weights.
    """

    def __init__(
        self,
        mod: tvm.IRModule,
        network: Network,
        uses: int,
        fired: Mapping[str, int],
        rows: Rows,
        digests: ArrayDigests,
    ) -> None:
        self.digests = digests
        self.fired = fired
        self.rows = rows
        self._mod: tvm.IRModule | None = mod
        self._network: Network | None = network
        self._uses = uses

    @property
    def network(self) -> Network:
        """The operators, for those that look before they are taken."""
        assert self._network is not None
        return self._network

    def take(self) -> tuple[tvm.IRModule, Network, ArrayDigests]:
        """Hand over what is held, and let go of it the last time."""
        mod, network, digests = self._mod, self.network, self.digests
        assert mod is not None
        self._uses -= 1
        if self._uses == 0:
            self._mod = self._network = None
            self.digests = ArrayDigests()
        return mod, network, digests


@dataclass(frozen=True, slots=True, eq=False)
class Imported:
    """A model and its program, as it was written.

    Attributes
    ----------
    loaded : LoadedModel
        The model without its graphs, but for the original, where a reference is to run it.
    mods : list of tvm.IRModule
        The program; empty once it is being simplified.
    """

    loaded: LoadedModel
    mods: list[tvm.IRModule]


@dataclass(frozen=True, slots=True, eq=False)
class Simplified:
    """A model as plans are made of it.

    Attributes
    ----------
    loaded : LoadedModel
        Without its graphs, but for the original, where a reference is to run it.
    source : Source
    """

    loaded: LoadedModel
    source: Source


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Planned:
    """A model rewritten by a plan.

    Attributes
    ----------
    loaded : LoadedModel
    key : tuple
        Tells it from other plans.
    mod : tvm.IRModule
    weights : list of array
        Packed, until the artifact has them: then it is empty.
    decided : Decisions
        The decisions about it.
    values : tuple of StoredValue
        The model's tensors that are left.
    origins : tuple of WeightOrigin or None
        Of a set's weights, what they were packed of; of others nothing.
    rows : Rows
        Whether the rows of a batch are computed apart.
    """

    loaded: LoadedModel
    key: PlanKey
    mod: tvm.IRModule
    weights: list[NDArray[np.generic]]
    decided: Decisions
    values: tuple[StoredValue, ...]
    origins: tuple[WeightOrigin | None, ...]
    rows: Rows

    @property
    def names(self) -> frozenset[str]:
        """Those of the variables that hold the model's tensors."""
        return frozenset(value.variable for value in self.values)


@dataclass(frozen=True, slots=True, eq=False)
class Generating:
    """A planned model whose code children generate; this process may do something else."""

    planned: Planned
    building: Building


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of one plan.

    Attributes
    ----------
    key : tuple
        Tells it from other plans.
    compiled : CompiledModule
        Unchecked.
    """

    key: PlanKey
    compiled: CompiledModule

    @property
    def admission(self) -> Admission:
        """Kernels that the plan could choose."""
        return self.compiled.decided.admission


@dataclass(frozen=True, slots=True, kw_only=True)
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
    generations : OneAtATime
        Shared with other builders that are at work.
    calibration : CalibrationReport or None
        What calibration data decided before.
    disabled_rules : frozenset of str
        Rules for graphs that are not applied.
    streams : int or None
        Calls at once that plans are made for; None where one call's time counts.
    together : bool
        Whether the model is compiled for other shapes too.
    """

    target: CpuTarget
    threads: int
    options: PlanOptions
    templates: frozenset[str] | None
    records: Callable[[Workload], Measured]
    accuracy: Accuracy
    clock: PhaseClock
    dump: Dump
    generations: OneAtATime
    calibration: CalibrationReport | None = None
    disabled_rules: frozenset[str] = frozenset()
    streams: int | None = None
    together: bool = False

    def read(self, load: Callable[[], LoadedModel], *, keep: bool, uses: int = 1) -> Simplified:
        """Import and simplify a model.

        Parameters
        ----------
        load : callable
            Reads and checks the model.
        keep : bool
            Whether to keep the original, which a reference runs.
        uses : int
            How many plans will be made of it.
        """
        with self.clock.phase("import"):
            imported = on_deep_stack(self._import, load, keep)
        loaded = imported.loaded
        with self.clock.phase("simplify"):
            return Simplified(loaded, on_deep_stack(self._simplify, imported, uses))

    def _import(self, load: Callable[[], LoadedModel], keep: bool) -> Imported:
        loaded = load()
        mod = import_relax(loaded)
        self.dump.module("import", mod)
        return Imported(loaded.without_graphs(keep_original=keep), [mod])

    def _simplify(self, imported: Imported, uses: int) -> Source:
        """Simplify the program, which no variable holds meanwhile but the passes' own."""
        fired: Counter[str] = Counter()
        row_counts = imported.loaded.row_counts
        mod = simplify(imported.mods.pop(), self.disabled_rules, fired)
        self.dump.module("simplify", mod)
        prologues = self.options.fuses_prologues(self.templates)
        digests = ArrayDigests()
        rows = prove_independent_rows(mod, row_counts, other_batches=self.together, digests=digests)
        return Source(mod, extract(mod, prologues=prologues), uses, fired, rows, digests)

    def plan(
        self,
        model: Simplified,
        admissions: Sequence[Admission],
        tried: Collection[PlanKey] = (),
        agreed: LayoutPlan | None = None,
        *,
        compares: bool = True,
    ) -> Planned | None:
        """Rewrite a model by the first plan that is none of ``tried``; None if all are.

        Parameters
        ----------
        admissions : sequence of Admission
            What plans are made with, in turn.
        agreed : LayoutPlan, optional
            What `plan_jointly` chose with the first of them: it is taken.
        compares : bool
            Whether the report is to tell what less optimisation of layouts would cost.
        """
        mod, network, digests = model.source.take()
        with self.clock.phase("search"):
            weights = weights_of(mod, network, self.target, self.threads)
            chosen = (
                self._choose(network, weights.fixed, admissions, tried)
                if agreed is None
                else (self._costs(admissions[0]), agreed)
            )
            if chosen is None:
                return None
            costs, plan = chosen
            levels = self.options.levels(network, costs) if compares else {}
            saves = self._saved_in_bfloat16(mod, network, plan, costs) if compares else 0.0
        with self.clock.phase("rewrite"):
            rewritten = on_deep_stack(apply_plan, mod, plan, costs, self.generations.outline)
            self.dump.module("rewrite", rewritten.mod)
        sizes = weights.sizes(rewritten.weights, self.options.max_weights)
        decided = Decisions(
            target=str(self.target),
            threads=self.threads,
            streams=self.streams,
            opt=str(plan.opt),
            precision=self.options.precision,
            accuracy=self.accuracy,
            admission=costs.admission,
            search=plan.search,
            levels=levels,
            bfloat16_saves=saves,
            ops=operator_reports(plan, rewritten, self._network_costs(sizes)),
            transforms=rewritten.transforms,
            weights=sizes,
            calibration=self.calibration,
            processing=model.loaded.notes,
            processing_options=asked.to_json() if (asked := model.loaded.processing) else None,
            identities=model.loaded.identities,
            rules=model.source.fired,
            disabled_rules=self.disabled_rules,
        )
        return Planned(
            loaded=model.loaded,
            key=_key(plan),
            mod=rewritten.mod,
            weights=[*rewritten.weights],
            decided=decided,
            values=rewritten.values,
            origins=rewritten.origins(digests) if self.options.packs_at_load else (),
            rows=model.source.rows,
        )

    def _network_costs(self, weights: WeightSizes) -> NetworkCosts:
        """Return the costs of kernels in a run of a model with these weights."""
        return NetworkCosts.of(self.target, self.threads, float(weights.packed_bytes))

    def _saved_in_bfloat16(
        self, mod: tvm.IRModule, network: Network, plan: LayoutPlan, costs: CostModel
    ) -> float:
        """Return the seconds that allowing bfloat16 would save, as estimated; 0 if it is."""
        if not self.options.lacks_bfloat16(network):
            return 0.0
        if self.options.fuses_prologues(self.templates):  # which no kernel of bfloat16 applies
            network = on_deep_stack(extract, mod, prologues=False)
        return self.options.saved_in_bfloat16(network, plan, costs)

    def _choose(
        self,
        network: Network,
        fixed_weights: int,
        admissions: Sequence[Admission],
        tried: Collection[PlanKey],
    ) -> tuple[CostModel, LayoutPlan] | None:
        for admission in admissions:
            costs = self._costs(admission)
            plan = self.options.plan(network, costs, fixed_weights)
            if _key(plan) not in tried:
                return costs, plan
        return None

    def plan_jointly(
        self, models: Sequence[Simplified], admission: Admission
    ) -> Sequence[LayoutPlan | None]:
        """Choose plans for several shapes of a model, for few packings of their weights.

        None where plans are not searched for, or there is one shape.
        """
        if len(models) == 1 or self.options.opt is not OptLevel.GLOBAL:
            return [None for _ in models]
        with self.clock.phase("search"):
            options = self.options
            networks = [options.allowing(each.source.network, self.target) for each in models]
            costs = self._costs(admission)
            most = most_of_convolutions(networks, costs, options.max_weights)
            digests = [each.source.digests for each in models]
            return plan_jointly(
                networks, costs, digests, options.limits, most, options.packs_at_load
            )

    def _costs(self, admission: Admission) -> CostModel:
        target = with_cores(self.target, self.threads)
        return CostModel(
            target=target,
            threads=self.threads,
            measured=self.records,
            templates=self.templates,
            admission=admission,
            keep=self.generations.kept,
        )

    def generate(self, planned: Planned) -> Generating:
        """Have children generate a model's code."""
        with self.clock.phase("lower"):
            mod = on_deep_stack(lower, planned.mod, self.target, self.dump, planned.names)
        with self.clock.phase("build"):
            building = begin_build(
                *(mod, self.target, self.dump, self.generations, usable_cpus()), planned.names
            )
        return Generating(planned, building)

    def finish(self, generating: Generating) -> Attempt:
        """Wait for a model's code, and write its artifact."""
        planned, building = generating.planned, generating.building
        with self.clock.phase("build"):
            built = finish_build(building, self.threads)
        predicted = self._kernels(planned, built)
        report_shortcomings(predicted)
        plan = stored_plan(
            planned.decided,
            kernels=predicted,
            values=placed(planned.values, built.planned.places),
            activation_bytes=built.planned.arena_bytes,
            seconds=self.clock.seconds,
        )
        compiled = CompiledModule(
            self._header(planned, plan),
            planned.decided,
            predicted=predicted,
            kernels=built.kernels,
            origins=planned.origins,
        )
        with ExitStack() as on_failure:
            on_failure.enter_context(compiled)
            self.dump("plan", partial(json.dumps, compiled.header.stored_plan, indent=1), "json")
            with self.clock.phase("link"):
                compiled.header = write_artifact(
                    built, planned.weights, compiled.header, compiled.path
                )
            planned.weights.clear()
            on_failure.pop_all()
        return Attempt(planned.key, compiled)

    def _kernels(self, planned: Planned, built: Built) -> tuple[KernelReport, ...]:
        return kernel_reports(
            built.planned.program,
            built.work,
            planned.decided.known_calls(),
            self._network_costs(planned.decided.weights),
            sum(math.prod(spec.shape) * bytes_of(spec.dtype) for spec in planned.loaded.inputs),
            built.lacks,
        )

    def _header(self, planned: Planned, plan: Plan) -> ArtifactHeader:
        loaded = planned.loaded
        return ArtifactHeader(
            name=loaded.name,
            neocpu_version=version("neocpu"),
            tvm_version=version("apache-tvm"),
            ffi_version=version("apache-tvm-ffi"),
            target=str(self.target),
            machine=self.target.machine,
            isa_features=self.target.demands,
            threads=self.threads,
            streams=self.streams,
            inputs=loaded.inputs,
            outputs=loaded.outputs,
            row_counts=loaded.row_counts,
            row_function=planned.rows.function,
            rows_mixed=planned.rows.mixed,
            numbered=planned.rows.numbered,
            stored_plan=plan.to_json(),
        )


def _key(plan: LayoutPlan) -> PlanKey:
    return tuple((each.in_format, each.out_format, each.scheme) for each in plan.choices)
