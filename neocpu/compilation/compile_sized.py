"""Compile a model whose calls choose extents of its inputs: one plan for all of its sizes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from neocpu.building.link import link_artifact, place
from neocpu.building.sized.build import generate_code, sized_header
from neocpu.compilation.accuracy_fallback import Judged, finished, next_admissions
from neocpu.compilation.compiled_module import CompiledModule
from neocpu.compilation.sized_samples import plan_for_sizes, sample_sizes
from neocpu.compilation.verify_sizes import Load, checked_sizes, verify_sizes
from neocpu.foundation.errors import AccuracyError
from neocpu.foundation.host import usable_cpus
from neocpu.foundation.size_formulas import Size
from neocpu.pipeline import Pipeline
from neocpu.schedules.vocabulary.accuracy import Admission


def compile_sized(
    pipeline: Pipeline, load: Load, sizes: Sequence[Size], unchecked: str | None
) -> CompiledModule:
    """Compile a model for all sizes, by the first plan whose outputs keep the promised accuracy.

    `unchecked`: the reason why outputs are not verified; None if they are. Raises UnsupportedError:
    the model is not the same for all sizes. Raises AccuracyError: no plan keeps the promise.
    """
    judged: list[Judged] = []
    admissions: Sequence[Admission] = pipeline.accuracy.admissions
    while True:
        admission = admissions[0]
        with ExitStack() as on_failure:
            compiled, apart = _compile(pipeline, load, sizes, admission)
            on_failure.enter_context(compiled)
            if unchecked is None:
                checked = checked_sizes(sizes, apart)
                verdict, told = verify_sizes(compiled, pipeline, load, checked)
                judged.append((admission, verdict))
                admissions = next_admissions(admission, verdict, pipeline.accuracy)
                if admissions:
                    continue  # this artifact is deleted
                if not verdict.is_accepted:
                    raise AccuracyError(told)
            finished(pipeline, compiled, judged, unchecked)
            on_failure.pop_all()
            return compiled


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
