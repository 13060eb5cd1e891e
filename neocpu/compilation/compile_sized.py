"""Compile a model whose calls choose extents of its inputs: one plan for all of its sizes."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias

from neocpu.building.forked import ForkedJobs
from neocpu.building.link import link_artifact, place
from neocpu.building.sized_build import generate_code, sized_header
from neocpu.compilation.accuracy_fallback import FOREVER, verifier_of
from neocpu.compilation.compiled_module import CompiledModule
from neocpu.compilation.sized_samples import plan_for_sizes, sample_sizes
from neocpu.foundation.errors import AccuracyError, UnsupportedError
from neocpu.foundation.host import usable_cpus
from neocpu.foundation.progress import Progress
from neocpu.foundation.size_formulas import Size
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.pipeline import Pipeline
from neocpu.plan.reports.stored_plan import with_verdict
from neocpu.runtime.guarding import GUARD_VARIABLE
from neocpu.schedules.vocabulary.accuracy import Admission
from neocpu.verification.reference.comparison import Verdict

SPECIAL_SIZES: Final = 4
"""The most sizes that are verified because some kernel has a special case there."""
RANDOM_SIZES: Final = 5
"""The number of sizes between the smallest and the largest at which outputs are verified."""

Load: TypeAlias = Callable[[tuple[int, ...]], LoadedModel]
"""A function that reads the model whose inputs have these extents where calls choose them."""


def compile_sized(
    pipeline: Pipeline, load: Load, sizes: Sequence[Size], unchecked: str | None
) -> CompiledModule:
    """Compile a model for all sizes, by the first plan whose outputs keep the promised accuracy.

    `unchecked`: the reason why outputs are not verified; None if they are. Raises UnsupportedError:
    the model is not the same for all sizes. Raises AccuracyError: no plan keeps the promise.
    """
    missed: list[tuple[Admission, Verdict]] = []
    admissions = pipeline.accuracy.admissions
    for admission in admissions if unchecked is None else admissions[:1]:
        with ExitStack() as on_failure:
            compiled, apart = _compile(pipeline, load, sizes, admission)
            on_failure.enter_context(compiled)
            checked = checked_sizes(sizes, apart)
            verdict = None if unchecked else _verify(compiled, pipeline, load, checked)
            if verdict is None or verdict.kept or admission is admissions[-1]:
                _finish(compiled, pipeline, verdict, unchecked, missed)
                on_failure.pop_all()
                return compiled
            missed.append((admission, verdict))
    raise AssertionError("there is no admission")


def _compile(
    pipeline: Pipeline, load: Load, sizes: Sequence[Size], admission: Admission
) -> tuple[CompiledModule, Sequence[tuple[int, ...]]]:
    """Return a module that is not verified, and sizes that were compared with nothing."""
    sized = plan_for_sizes(pipeline, load, sample_sizes(sizes), admission)
    program, planned = sized.program, sized.planned
    with pipeline.clock.phase("build"):
        built = generate_code(
            program, sized.typical, pipeline.target, pipeline.generations, usable_cpus()
        )
    weights = [*planned.weights, *program.constants]
    places = place(weights)
    compiled = pipeline.describe(planned, built)
    with ExitStack() as on_failure:
        on_failure.enter_context(compiled)
        compiled.header = sized_header(compiled.header, program, sizes, places)
        with pipeline.clock.phase("link"):
            link_artifact(built.kernels, places, weights, compiled.header, compiled.path)
        planned.weights.clear()
        on_failure.pop_all()
    return compiled, program.apart


def _verify(
    compiled: CompiledModule,
    pipeline: Pipeline,
    load: Load,
    checked: Sequence[tuple[int, ...]],
) -> Verdict:
    """Return the worst verdict on outputs at several sizes."""
    # Checks may take about as long as the compilation in sum.
    patience = sum(pipeline.clock.seconds.values()) / len(checked)
    worst: Verdict | None = None
    with pipeline.clock.phase("verify", alone=False):
        _run_guarded(compiled, checked, patience)
        for number, own in enumerate(checked):
            pipeline.clock.report(Progress("verify", number, len(checked)))
            verdict = _verify_size(compiled, pipeline, load(own), own, patience)
            if worst is None or verdict.found.norm_error > worst.found.norm_error:
                worst = verdict
            if not verdict.kept:
                worst = verdict
                break
    assert worst is not None
    return worst


def _run_guarded(
    compiled: CompiledModule, checked: Sequence[tuple[int, ...]], patience: float
) -> None:
    """Run the kernels at several sizes in a child process, each tensor next to forbidden memory.

    Raises UnsupportedError: a kernel steps out of its tensors.
    """
    form = compiled.header.sized
    assert form is not None
    specs = compiled.header.inputs

    def work(_: int) -> None:
        os.environ[GUARD_VARIABLE] = "1"
        os.close(2)  # a crash is reported by its signal
        begun = time.monotonic()
        with compiled.module(1) as module:
            for sizes in checked:
                shapes = form.shapes(sizes, form.inputs)
                own = [replace(s, shape=shape) for s, shape in zip(specs, shapes, strict=True)]
                module.run(random_inputs(own, seed=1))
                if time.monotonic() - begun > patience:
                    break

    with TemporaryFolder("guarded") as folder:
        jobs = ForkedJobs(work, 1, 1, FOREVER, Path(folder))
        try:
            jobs.start()
            (lost,) = jobs.outcomes()
        finally:
            jobs.close()
    if lost is not None:
        raise UnsupportedError(
            f"a kernel for any size steps out of its tensors ({lost}): please report this model, "
            "and give a single shape"
        )


def _verify_size(
    compiled: CompiledModule,
    pipeline: Pipeline,
    loaded: LoadedModel,
    sizes: tuple[int, ...],
    patience: float,
) -> Verdict:
    verifier = verifier_of(loaded, pipeline.accuracy)
    with compiled.module(min(pipeline.threads, usable_cpus())) as module:
        outputs = module.run(verifier.inputs)
    verdict = verifier.judge(outputs, patience)
    if not verdict.is_accepted:
        shape = "x".join(map(str, sizes))
        raise AccuracyError(f"at size {shape}, {verifier.reason(verdict)}")
    return verdict


def checked_sizes(
    sizes: Sequence[Size], apart: Sequence[tuple[int, ...]] = ()
) -> list[tuple[int, ...]]:
    """Return the sizes at which outputs are verified: typical, smallest, largest, random ones.

    The first of ``apart``, at which kernels are special cases, are verified besides.
    """
    rng = random.Random(0)
    ends = (
        tuple(size.typical for size in sizes),
        tuple(size.least for size in sizes),
        tuple(size.most for size in sizes),
    )
    between = (
        tuple(rng.randrange(size.least, size.most + 1, size.step) for size in sizes)
        for _ in range(RANDOM_SIZES)
    )
    special = (
        each
        for each in apart
        if all(value in size for value, size in zip(each, sizes, strict=True))
    )
    return list(dict.fromkeys((*ends, *islice(special, SPECIAL_SIZES), *between)))


def _finish(
    compiled: CompiledModule,
    pipeline: Pipeline,
    verdict: Verdict | None,
    unchecked: str | None,
    missed: Sequence[tuple[Admission, Verdict]],
) -> None:
    """Write the verdict into the artifact."""
    seconds = dict(pipeline.clock.seconds)
    plan = with_verdict(
        compiled.plan, seconds=seconds, verdict=verdict, unchecked=unchecked, missed=missed
    )
    compiled.add_outcome(compiled.header.with_plan(plan))
    compiled.verification = None if verdict is None else verdict.found
    compiled.seconds = seconds
