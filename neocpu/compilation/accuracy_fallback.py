"""Compile a model again with more exact plans until its outputs keep the promised accuracy.

An admission selects kernels by their typical errors. If the outputs of a sensitive model err too
much, the next admission is stricter (`accuracy.LADDER`). A model is refused only if even the
strictest plan computes wrong outputs.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from neocpu.building.forked import run_in_child
from neocpu.compilation.compiled_module import CompiledModule
from neocpu.compilation.model_forms import Attempt, Generating, Simplified
from neocpu.foundation.errors import AccuracyError, TargetError
from neocpu.foundation.host import usable_cpus
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.frontend.load import load_model
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.pipeline import Pipeline
from neocpu.plan.reports.stored_plan import with_verdict
from neocpu.schedules.vocabulary.accuracy import Accuracy, Admission
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.target_parsing import host_target
from neocpu.verification.reference.comparison import Verdict

if TYPE_CHECKING:
    from neocpu.verification.reference.verification import Arrays, Verifier

_log = logging.getLogger("neocpu")

Judged = tuple[Admission, Verdict]


def finish_unchecked(pipeline: Pipeline, first: Generating, reason: str) -> CompiledModule:
    """Finish the artifact of the first plan without verifying it."""
    return finished(pipeline, pipeline.finish(first).compiled, unchecked=reason)


def verifier_of(loaded: LoadedModel, accuracy: Accuracy) -> Verifier:
    """Return a judge of a model's outputs on random inputs. Nothing is computed yet."""
    from neocpu.verification.reference.verification import (
        Verifier,  # imported here, because without verification nobody needs the reference
    )

    inputs = random_inputs(loaded.inputs, seed=0)
    return Verifier(loaded.reference, inputs, accuracy, loaded.row_groups, loaded.shapes)


def finish_as_promised(pipeline: Pipeline, first: Generating, verifier: Verifier) -> CompiledModule:
    """Return the artifact of the first plan whose outputs keep the promised accuracy.

    If no plan keeps it, return that of the last plan that errs hardly more than numpy in float32.
    Raises AccuracyError: all plans' outputs are wrong, or nothing can run the model to judge them.
    """
    accuracy = pipeline.accuracy
    loaded = first.planned.loaded
    generating: Generating | None = first
    attempts: list[Attempt] = []
    judged: list[Judged] = []
    accepted: list[int] = []
    with ExitStack() as on_failure:
        while generating:
            attempt = pipeline.finish(generating)
            on_failure.enter_context(attempt.compiled)
            attempts.append(attempt)
            # The check may take no longer than the compilation that it checks.
            patience = sum(v for name, v in pipeline.clock.seconds.items() if name != "verify")
            with pipeline.clock.phase("verify", alone=False):
                outputs = _outputs(attempt.compiled, verifier, pipeline)
                verdict = verifier.judge(outputs, patience)
            judged.append((attempt.admission, verdict))
            if verdict.is_accepted:
                accepted.append(len(judged) - 1)
            else:
                attempt.compiled.close()
            admissions = next_admissions(attempt.admission, verdict, accuracy)
            if not admissions:
                break
            # The model is read again, so that its weights need no memory beside the packed ones.
            again = pipeline.read(
                partial(load_model, loaded.original, weights=loaded.weights), keep=False
            )
            again = Simplified(loaded, again.source)
            planned = pipeline.plan(again, admissions, {a.key for a in attempts})
            generating = pipeline.generate(planned) if planned else None
        if not accepted:
            raise AccuracyError(verifier.reason(judged[-1][1]))
        chosen = accepted.pop()
        for index in accepted:
            attempts[index].compiled.close()
        judged.append(judged.pop(chosen))
        compiled = finished(pipeline, attempts[chosen].compiled, judged)
        on_failure.pop_all()
    return compiled


def next_admissions(
    admission: Admission, verdict: Verdict, accuracy: Accuracy
) -> Sequence[Admission]:
    """Return the admissions to try after a verdict, in order; none if the promise was kept.

    If rounding explains the error, all stricter admissions follow. If a kernel is wrong, or float32
    itself misses the bound, the strictest follows at once, with the fewest and simplest algorithms.
    """
    stricter = accuracy.admissions[accuracy.admissions.index(admission) + 1 :]
    if verdict.kept:
        return ()
    within_reach = verdict.float32_error is None or verdict.float32_error <= accuracy.bound
    return stricter if verdict.is_rounding(accuracy) and within_reach else stricter[-1:]


def tell(judged: Sequence[Judged], accuracy: Accuracy) -> str:
    """Return one line about the errors of the first plan, and of the last one if it differs."""
    (first_admission, first), (last_admission, last) = judged[0], judged[-1]
    again = f"compiled again {last_admission}, " if len(judged) > 1 else ""
    if first.is_rounding(accuracy) or not last.kept:
        text = (
            f"outputs err {_by(first.found.norm_error)} {first_admission}, more than the "
            f"{accuracy.bound:g} promised: "
        )
    else:
        text = (
            f"output '{first.found.worst_output}' was wrong by {first.found.max_abs_error:.3g} "
            f"{first_admission}, please report this model: "
        )
    now = f"now {_by(last.found.norm_error)}" if again else ""
    if last.kept:
        return f"{text}{again}{now}"
    assert last.float32_error is not None
    allowed = f"numpy in float32 errs {_by(last.float32_error)}, so that no plan errs much less"
    return f"{text}{again}{now + '; ' if now else ''}{allowed}"


def _by(error: float) -> str:
    """Return an error in words. It is infinite if rows differ or the true output is zero."""
    return f"by {error:.2g}" if math.isfinite(error) else "beyond measure"


def _outputs(compiled: CompiledModule, verifier: Verifier, pipeline: Pipeline) -> Arrays:
    threads = min(pipeline.threads, usable_cpus())

    def run() -> Arrays:
        # The module is closed before the reference runs, so that only one of them has the weights.
        with compiled.module(threads) as module:
            return module.run(verifier.inputs)

    if pipeline.target.mcpu != host_target().mcpu:
        _run_in_child(run, pipeline.target)
    return run()


def _run_in_child(run: Callable[[], Arrays], target: CpuTarget) -> None:
    """Run code for another CPU in a child process first, because it may end the process."""

    def work() -> None:
        with contextlib.suppress(Exception):  # the parent raises it again
            run()

    if (lost := run_in_child(work)) is not None:
        raise TargetError(
            f"code for -mcpu={target.mcpu} ended the process that was to check it ({lost}), though "
            "this host has all that LLVM says it needs; nothing was written: please report this, "
            "and compile with --target host, or pass --no-verify for a host that runs it"
        )


def finished(
    pipeline: Pipeline,
    compiled: CompiledModule,
    judged: Sequence[Judged] = (),
    unchecked: str | None = None,
) -> CompiledModule:
    """Write the verdicts into an artifact, whose own is the last. If that fails, delete it.

    Warns if a plan missed the promised accuracy. `unchecked`: the reason why there is no verdict.
    """
    if judged and (not judged[-1][1].kept or len(judged) > 1):
        _log.warning("%s", tell(judged, pipeline.accuracy))
    seconds = dict(pipeline.clock.seconds)
    verdict = judged[-1][1] if judged else None
    with ExitStack() as on_failure:
        on_failure.enter_context(compiled)
        plan = with_verdict(
            compiled.plan, seconds=seconds, verdict=verdict, unchecked=unchecked, missed=judged[:-1]
        )
        compiled.add_outcome(compiled.header.with_plan(plan))
        on_failure.pop_all()
    compiled.verification = verdict.found if verdict is not None else None
    compiled.seconds = seconds
    return compiled
