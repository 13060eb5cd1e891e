"""The steps of a compilation, in order.

1. import: read and check ONNX, make a Relax module (`neocpu.frontend`)
2. simplify: rewrite the graph by rules (`neocpu.graph`)
3. search: find operators, choose their formats and schemes (`neocpu.planning`, `neocpu.search`)
4. rewrite: apply the plan, pack weights (`neocpu.lowering`)
5. lower: fuse and schedule, place tensors in memory (`neocpu.building.pipeline`)
6. build: generate code in child processes (`neocpu.building`)
7. link: write the artifact (`neocpu.building.link`)
8. verify: compare with a float64 reference (`neocpu.verification.reference`)

Steps 1 and 2 are `Pipeline.read`, 3 and 4 `Pipeline.plan`, 5 and 6 `Pipeline.generate`, 6 and 7
`Pipeline.finish`. `neocpu.compilation` runs them for each CPU and shape, verifies the artifact, and
plans again with more exact kernels if outputs err too much.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import tvm

from neocpu.building.deep_stack import on_deep_stack
from neocpu.building.kernel_report import kernel_reports, report_shortcomings
from neocpu.building.link import write_artifact
from neocpu.building.parallel_codegen import OneAtATime
from neocpu.building.pipeline import (
    Built,
    Dump,
    PhaseClock,
    begin_build,
    finish_build,
    lower,
)
from neocpu.compilation.artifact_header import header_of
from neocpu.compilation.compiled_module import CompiledModule
from neocpu.compilation.model_forms import (
    Attempt,
    Generating,
    PlanKey,
    Planned,
    Simplified,
    Source,
    plan_key,
)
from neocpu.foundation.dtypes import bytes_of
from neocpu.foundation.host import usable_cpus
from neocpu.frontend.importer import import_relax
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.graph.simplify import simplify
from neocpu.ir.array_digests import ArrayDigests
from neocpu.ir.row_analysis.proof import prove_independent_rows
from neocpu.lowering.apply_plan import apply_plan
from neocpu.lowering.values import placed
from neocpu.lowering.weight_table import WeightTable
from neocpu.plan.outcome import WeightSizes
from neocpu.plan.reports.decisions import CalibrationReport, Decisions, operator_reports
from neocpu.plan.reports.stored_plan import stored_plan
from neocpu.planning.choice import Measured
from neocpu.planning.costs import CostModel
from neocpu.planning.extract import extract
from neocpu.planning.network import Network
from neocpu.planning.operators.network_costs import NetworkCosts
from neocpu.planning.optimisation_levels import LayoutPlan, OptLevel
from neocpu.planning.plan_jointly import most_of_convolutions, plan_jointly
from neocpu.planning.plan_options import PlanOptions
from neocpu.planning.weights import weights_of
from neocpu.schedules.estimates.memory_traffic import with_cores
from neocpu.schedules.vocabulary.accuracy import Accuracy, Admission
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The steps of a compilation, with the settings that they share.

    `threads`: threads of a call. `records`: a function that returns the measurements of a workload.
    `streams`: number of concurrent calls that plans are made for; None to minimise the time of one
    call. `in_set`: whether the model is compiled for other shapes too.
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
    in_set: bool = False

    def read(self, load: Callable[[], LoadedModel], *, keep: bool, uses: int = 1) -> Simplified:
        """Import and simplify a model.

        `keep`: whether to keep the original, for the reference to run. `uses`: the number of plans
        that will be made for the model.
        """
        with self.clock.phase("import"):
            loaded, mods = on_deep_stack(self._import, load, keep)
        with self.clock.phase("simplify"):
            return Simplified(loaded, on_deep_stack(self._simplify, loaded, mods, uses))

    def _import(
        self, load: Callable[[], LoadedModel], keep: bool
    ) -> tuple[LoadedModel, list[tvm.IRModule]]:
        loaded = load()
        mod = import_relax(loaded)
        self.dump.module("import", mod)
        return loaded.without_graphs(keep_original=keep), [mod]

    def _simplify(self, loaded: LoadedModel, mods: list[tvm.IRModule], uses: int) -> Source:
        """Simplify the program in ``mods``. To save memory, only the passes refer to it then."""
        fired: Counter[str] = Counter()
        row_counts = loaded.row_counts
        mod = simplify(mods.pop(), self.disabled_rules, fired)
        self.dump.module("simplify", mod)
        prologues = self.options.fuses_prologues(self.templates)
        digests = ArrayDigests()
        rows = prove_independent_rows(mod, row_counts, other_batches=self.in_set, digests=digests)
        return Source(mod, extract(mod, prologues=prologues), uses, fired, rows, digests)

    def plan(
        self,
        model: Simplified,
        admissions: Sequence[Admission],
        tried: Collection[PlanKey] = (),
        agreed: LayoutPlan | None = None,
        *,
        compares: bool = True,
        packed: WeightTable | None = None,
    ) -> Planned | None:
        """Rewrite a model by the first plan that was not tried yet.

        It uses admissions in order, and returns None if each leads to a plan that was tried.
        `agreed` is the plan of `plan_jointly` for the first admission. `compares` says whether to
        report the costs of lower levels of optimisation and the gain of bfloat16. `packed` is an
        empty table for packed weights.
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
            rewritten = on_deep_stack(
                apply_plan, mod, plan, costs, self.generations.outline, packed
            )
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
            key=plan_key(plan),
            mod=rewritten.mod,
            weights=[*rewritten.weights],
            decided=decided,
            values=rewritten.values,
            origins=rewritten.origins(digests) if self.options.packs_at_load else (),
            rows=model.source.rows,
        )

    def _network_costs(self, weights: WeightSizes) -> NetworkCosts:
        return NetworkCosts.of(self.target, self.threads, float(weights.packed_bytes))

    def _saved_in_bfloat16(
        self, mod: tvm.IRModule, network: Network, plan: LayoutPlan, costs: CostModel
    ) -> float:
        """Estimate the seconds that bfloat16 would save; 0 if there is no reason to suggest it."""
        if not self.options.lacks_bfloat16(network):
            return 0.0
        if self.options.fuses_prologues(self.templates):  # no kernel of bfloat16 applies one
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
            if plan_key(plan) not in tried:
                return costs, plan
        return None

    def choose(
        self, model: Simplified, admissions: Sequence[Admission]
    ) -> tuple[CostModel, LayoutPlan]:
        """Choose a model's plan without rewriting it."""
        source = model.source
        with self.clock.phase("search"):
            found = self._choose(source.network, 0, admissions[:1], ())
        assert found is not None  # no plan was tried before
        return found

    def plan_jointly(
        self, models: Sequence[Simplified], admission: Admission
    ) -> Sequence[LayoutPlan | None]:
        """Choose plans for several shapes of a model that need few packings of their weights.

        All are None if there is one shape, or if the optimisation level is not ``global``.
        """
        if len(models) == 1 or self.options.opt is not OptLevel.GLOBAL:
            return [None for _ in models]
        with self.clock.phase("search"):
            options = self.options
            costs = self._costs(admission)
            networks = [options.allowing(each.source.network, costs) for each in models]
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
        """Lower a model, and start the child processes that generate its code."""
        with self.clock.phase("lower"):
            mod = on_deep_stack(lower, planned.mod, self.target, self.dump, planned.names)
        with self.clock.phase("build"):
            building = begin_build(
                mod, self.target, self.dump, self.generations, usable_cpus(), planned.names
            )
        return Generating(planned, building)

    def finish(self, generating: Generating) -> Attempt:
        """Wait for a model's code, and write its artifact."""
        planned, building = generating.planned, generating.building
        with self.clock.phase("build"):
            built = finish_build(building, self.threads)
        compiled = self.describe(planned, built)
        with ExitStack() as on_failure:
            on_failure.enter_context(compiled)
            with self.clock.phase("link"):
                compiled.header = write_artifact(
                    built, planned.weights, compiled.header, compiled.path
                )
            planned.weights.clear()
            on_failure.pop_all()
        return Attempt(planned.key, compiled)

    def describe(self, planned: Planned, built: Built) -> CompiledModule:
        """Return a module whose header has the plan; its artifact is not written yet."""
        predicted = kernel_reports(
            built.planned.program,
            built.work,
            planned.decided.known_calls(),
            self._network_costs(planned.decided.weights),
            sum(math.prod(spec.shape) * bytes_of(spec.dtype) for spec in planned.loaded.inputs),
            built.lacks,
        )
        report_shortcomings(predicted)
        plan = stored_plan(
            planned.decided,
            kernels=predicted,
            values=placed(planned.values, built.planned.places),
            activation_bytes=built.planned.arena_bytes,
            seconds=self.clock.seconds,
        )
        header = header_of(planned, plan, self.target)
        self.dump("plan", partial(json.dumps, header.stored_plan, indent=1), "json")
        return CompiledModule(
            header,
            planned.decided,
            predicted=predicted,
            kernels=built.kernels,
            origins=planned.origins,
        )
