"""From code to an artifact whose outputs keep what was promised, by ever more exact plans.

Plans are admitted by what kernels err in general. Where a model forgives less than most, the next
admission is stricter (`accuracy.LADDER`); only what the strictest plan computes wrongly is refused.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from neocpu.building.forked import ForkedJobs, Limits
from neocpu.compilation.compiled_module import CompiledModule
from neocpu.compilation.model_forms import Attempt, Generating, Simplified
from neocpu.foundation.errors import AccuracyError, TargetError
from neocpu.foundation.host import usable_cpus
from neocpu.foundation.temporary import TemporaryFolder
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.frontend.load import load_model
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.pipeline import Pipeline
from neocpu.plan.reports.stored_plan import with_verdict
from neocpu.schedules.vocabulary.accuracy import Accuracy, Admission
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.schedules.vocabulary.target_parsing import host_target
from neocpu.verification.reference.verdict import Verdict

if TYPE_CHECKING:
    from neocpu.verification.reference.verification import Arrays, Verifier

_log = logging.getLogger("neocpu")

_FOREVER: Final = Limits(cpu_seconds=10**6, seconds=10**6)
"""A run that is checked may take as long as its model needs."""

Judged = tuple[Admission, Verdict]


def finish_unchecked(pipeline: Pipeline, first: Generating, reason: str) -> CompiledModule:
    """Return what comes of the first plan.

    Parameters
    ----------
    reason : str
        Why nothing is checked.
    """
    return _finished(pipeline, pipeline.finish(first), unchecked=reason)


def verifier_of(loaded: LoadedModel, accuracy: Accuracy) -> Verifier:
    """Return what judges a model's outputs, on random inputs; nothing is computed yet."""
    from neocpu.verification.reference.verification import (
        Verifier,  # here: what is not checked waits for no reference
    )

    inputs = random_inputs(loaded.inputs, seed=0)
    return Verifier(loaded.reference, inputs, accuracy, loaded.row_groups, loaded.shapes)


def finish_as_promised(pipeline: Pipeline, first: Generating, verifier: Verifier) -> CompiledModule:
    """Return what comes of the first plan whose outputs keep the promise.

    If none does, of the last one that errs hardly more than numpy in float32.

    Parameters
    ----------
    first : Generating
        By the plan that comes first.
    verifier : Verifier
        Of the model, for what is promised.

    Raises
    ------
    AccuracyError
        If outputs are wrong, or the reference cannot run the model.
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
            # Nobody waits longer for the check than for what is checked.
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
            # The weights are gone: read again, they need not be held beside the packed ones.
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
        if not judged[-1][1].kept or len(judged) > 1:
            _log.warning("%s", tell(judged, accuracy))
        compiled = _finished(pipeline, attempts[chosen], judged)
        on_failure.pop_all()
    return compiled


def next_admissions(
    admission: Admission, verdict: Verdict, accuracy: Accuracy
) -> Sequence[Admission]:
    """Return what to try after a plan was judged, in turn; nothing if it kept the promise.

    What rounding explains descends step by step. A wrong kernel is no question of degree, and where
    float32 itself misses the bound no step between helps: then the strictest plan is next, of the
    fewest and plainest algorithms.
    """
    stricter = accuracy.admissions[accuracy.admissions.index(admission) + 1 :]
    if verdict.kept:
        return ()
    within_reach = verdict.float32_error is None or verdict.float32_error <= accuracy.bound
    return stricter if verdict.is_rounding(accuracy) and within_reach else stricter[-1:]


def tell(judged: Sequence[Judged], accuracy: Accuracy) -> str:
    """Return in one line what became of the plans before the last, and of the last one."""
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
    """Return an error in words; an infinite one is of other rows, or of a truth that is zero."""
    return f"by {error:.2g}" if math.isfinite(error) else "beyond measure"


def _outputs(compiled: CompiledModule, verifier: Verifier, pipeline: Pipeline) -> Arrays:
    threads = min(pipeline.threads, usable_cpus())

    def run() -> Arrays:
        # Closed again before the reference runs: the two never hold the weights at once.
        with compiled.module(threads) as module:
            return module.run(verifier.inputs)

    if pipeline.target.mcpu != host_target().mcpu:
        _run_apart(run, pipeline.target)
    return run()


def _run_apart(run: Callable[[], Arrays], target: CpuTarget) -> None:
    """Run code for another CPU in a child first, which it may end.

    Raises
    ------
    TargetError
        If it does.
    """

    def work(_: int) -> None:
        with contextlib.suppress(Exception):  # the parent meets it too
            run()

    with TemporaryFolder("first-run") as folder:
        jobs = ForkedJobs(work, 1, 1, _FOREVER, Path(folder))
        try:
            jobs.start()
            (lost,) = jobs.outcomes()
        finally:
            jobs.close()
    if lost is not None:
        raise TargetError(
            f"code for -mcpu={target.mcpu} ended the process that was to check it ({lost}), though "
            "this host has all that LLVM says it needs; nothing was written: please report this, "
            "and compile with --target host, or pass --no-verify for a host that runs it"
        )


def _finished(
    pipeline: Pipeline,
    attempt: Attempt,
    judged: Sequence[Judged] = (),
    unchecked: str | None = None,
) -> CompiledModule:
    """Write the outcome into an attempt's artifact; if that fails, delete it."""
    compiled, seconds = attempt.compiled, dict(pipeline.clock.seconds)
    verdict = judged[-1][1] if judged else None
    with ExitStack() as on_failure:
        on_failure.enter_context(compiled)
        compiled.amend(
            with_verdict(
                compiled.plan,
                seconds=seconds,
                verdict=verdict,
                unchecked=unchecked,
                missed=judged[:-1],
            )
        )
        on_failure.pop_all()
    compiled.verification = verdict.found if verdict is not None else None
    compiled.seconds = seconds
    return compiled
