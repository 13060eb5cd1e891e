"""Join the artifacts for single shapes into one for a set of shapes, and time its plans."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from neocpu.building.parallel_codegen import OneAtATime
from neocpu.building.shape_set import SetMember, write_shape_set
from neocpu.building.weight_packing import PackingKernels
from neocpu.compilation.compiled_module import CompiledModule
from neocpu.foundation.errors import UsageError
from neocpu.foundation.host import usable_cpus
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.foundation.tensor_spec import TensorSpec, random_inputs, shapes_text
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.runtime.composed.batch_plans import Run, inputs_by_rows, mixing
from neocpu.runtime.header import ArtifactHeader
from neocpu.runtime.module import Module
from neocpu.runtime.signature_sets import SignatureSet
from neocpu.schedules.vocabulary.target import CpuTarget


def check_set(models: Sequence[LoadedModel]) -> None:
    """Check that the signatures of a set differ in shapes of inputs, and only in shapes."""
    first = models[0]
    for number, model in enumerate(models):
        for other in models[:number]:
            if [spec.shape for spec in other.inputs] == [spec.shape for spec in model.inputs]:
                raise UsageError(
                    f"two signatures have inputs of the same shapes, {shapes_text(model.inputs)}: "
                    "only shapes distinguish the signatures of a set"
                )
        if _kinds(model) != _kinds(first):
            raise UsageError(
                f"{shapes_text(first.inputs)} and {shapes_text(model.inputs)} do not take and "
                "return tensors of the same names and types: compile an artifact for each"
            )


def _kinds(model: LoadedModel) -> list[tuple[str, str, bool]]:
    specs: tuple[TensorSpec, ...] = (*model.inputs, *model.outputs)
    return [(spec.name, spec.dtype, spec.bounded) for spec in specs]


def join_set(
    parts: Sequence[CompiledModule],
    target: CpuTarget,
    generations: OneAtATime,
    max_weights: int | None,
    report: ProgressCallback,
) -> CompiledModule:
    """Join compiled modules, one for each signature of a set, and close them.

    If any was verified, the joined module must return the same bits. A single one is returned as it
    is. `max_weights`: the limit on the packed weights of all parts in sum, in bytes.
    """
    if len(parts) == 1:
        return parts[0]
    with ExitStack() as stack:
        for part in parts:
            stack.enter_context(part)
        joined = CompiledModule(parts[0].header, parts[0].decided)
        with ExitStack() as on_failure:
            on_failure.enter_context(joined)
            members = [
                SetMember(part.header, part.kernels, part.path, part.origins) for part in parts
            ]
            packing = partial(PackingKernels.compile, target=target, generations=generations)
            joined.header = write_shape_set(members, joined.path, packing, max_weights)
            checked = [part.verification for part in parts if part.verification is not None]
            if checked:
                _check_same(joined, parts, report)
            on_failure.pop_all()
    joined.verification = max(checked, key=lambda found: found.norm_error, default=None)
    seconds: Counter[str] = Counter()
    for part in parts:
        seconds.update(part.seconds)
    joined.seconds = dict(seconds)
    joined.tuned = parts[0].tuned
    return joined


def _check_same(
    joined: CompiledModule, parts: Sequence[CompiledModule], report: ProgressCallback
) -> None:
    """Check that a set returns the same bits as its parts, and store the times of its plans."""
    threads = min(joined.header.threads, usable_cpus())
    with joined.module(threads) as every:
        for part in parts:
            inputs = random_inputs(part.header.inputs, seed=1)
            with part.module(threads) as alone:
                expected = alone.run(inputs)
            for name, found in every.run(inputs).items():
                assert found.tobytes() == expected[name].tobytes(), (part.header.summary, name)
        timed = _with_seconds(joined.header, every, report)
    joined.add_outcome(timed)


def _with_seconds(
    header: ArtifactHeader, module: Module, report: ProgressCallback
) -> ArtifactHeader:
    """Return the header of a set with the seconds of packing weights and of calling its plans."""
    if header.prologue is not None:
        packing = replace(header.prologue, seconds=module.packing_seconds)
        header = replace(header, prologue=packing)
    signatures = SignatureSet(module.signatures)
    timed: list[Batches] = []
    for number, signature in enumerate(signatures.all):
        plans = signatures.batch_plans([spec.shape for spec in signature.inputs])
        is_known = any(number in batches.plans.values() for batches in timed)
        if not is_known and mixing([header.each[n] for n in plans.values()]) is None:
            timed.append(Batches(signature.inputs, plans))
    seconds = quickest_seconds(module.run, timed, report)
    first, *others = (
        each.with_plan(replace(each.plan, call_seconds=seconds[number]))
        if number in seconds
        else each
        for number, each in enumerate(header.each)
    )
    return replace(header, stored_plan=first.stored_plan, others=tuple(others))


TURNS: Final = 2
"""Least number of turns of each plan."""
MOST_TURNS: Final = 100
"""Largest number of turns of each plan, if `SECONDS` allow as many."""
SECONDS: Final = 12
"""Time limit after which no turns beyond `TURNS` begin."""


@dataclass(frozen=True, slots=True)
class Batches:
    """Plans that differ only in their number of rows."""

    inputs: Sequence[TensorSpec]
    plans: Mapping[int, int]


def quickest_seconds(
    run: Run, every: Sequence[Batches], report: ProgressCallback = silent
) -> dict[int, float]:
    """Return the seconds of a call in the quickest turn of each plan, by the plan's number.

    A shared machine is slower for seconds at a time, so that medians of a few turns depend on
    chance, whereas the quickest turns come from the same state of the machine. All plans compute
    about the same number of rows in a turn, because short turns are disturbed less often.
    """
    given = [(batches.plans, inputs_by_rows(batches.inputs, batches.plans)) for batches in every]
    for _, inputs in given:
        for rows in inputs.values():
            run(rows)
    quickest = {number: math.inf for plans, _ in given for number in plans.values()}
    is_choice = any(len(plans) > 1 for plans, _ in given)
    begun = time.perf_counter()
    for turn in range(MOST_TURNS if is_choice else TURNS):
        spent = time.perf_counter() - begun
        if turn >= TURNS and spent > SECONDS:
            break
        if is_choice:
            report(Progress("time batches", min(int(spent), SECONDS), SECONDS))
        for plans, inputs in given:
            for size, rows in inputs.items():
                calls = round(max(plans) / size)
                start = time.perf_counter()
                for _ in range(calls):
                    run(rows)
                took = (time.perf_counter() - start) / calls
                quickest[plans[size]] = min(quickest[plans[size]], took)
    return quickest
