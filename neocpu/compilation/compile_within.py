"""Compile a float32 model with bfloat16 where that is faster, within a limit on errors.

Errors of outputs are measured on the random inputs of verification. If the whole network in
bfloat16 errs too much, layers return to float32, starting with those that save the least time. All
layers add about the same noise, so the power of the noise is proportional to their number.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Final

from neocpu.compilation.compile_each import compile_each, plan_only
from neocpu.compilation.compile_options import CompileOptions, Member
from neocpu.compilation.compiled_module import CompiledModule
from neocpu.compilation.read_model import ModelLike, load_for_import
from neocpu.foundation.errors import AccuracyError, UsageError
from neocpu.foundation.instruction_sets import code_obstacle, host_features
from neocpu.foundation.progress import ProgressCallback
from neocpu.frontend.quantised.quantised_operators import is_quantised
from neocpu.plan.reports.decisions import Decisions
from neocpu.planning.precision import Precision
from neocpu.schedules.vocabulary.target import CpuTarget
from neocpu.search.tuner import TuneReport

_log = logging.getLogger("neocpu")

_ATTEMPTS: Final = 3
"""Number of attempts with fewer layers in bfloat16, before all are in float32."""
_FEWER: Final = 0.7
"""Safety factor of each lower number of layers, and the assumed share if an error is infinite."""


def limited(options: CompileOptions, limit: float) -> CompileOptions:
    if not 0 < limit < math.inf:
        raise UsageError(f"max_error must be above 0, got {limit!r}")
    if options.ranges is not None:
        raise UsageError("--max-error is measured at one size: give one, or --precision bf16")
    if options.plan.precision not in (Precision.AUTO, Precision.BF16):
        raise UsageError(
            f"--max-error allows bfloat16, and --precision {options.plan.precision} does not: "
            "drop one of them"
        )
    return replace(options, max_error=limit)


def is_in_float32(model: ModelLike, options: CompileOptions) -> bool:
    """Return whether a model is not quantised: integers of a quantised model cause no error."""
    loaded = load_for_import(model, options.signatures[0], options.processing)
    return not is_quantised(loaded.reference)


def compile_within(
    model: ModelLike, cpu: CpuTarget, options: CompileOptions, on_progress: ProgressCallback
) -> CompiledModule:
    """Compile a float32 model so that its outputs err at most ``options.max_error``, norm-wise.

    Raises UsageError (the host cannot run the code, or verification is off) and AccuracyError.
    """
    limit = options.max_error
    obstacle = code_obstacle(cpu.machine, cpu.demands, host_features())
    if obstacle or not options.verify:
        raise UsageError(
            "--max-error is held by running what is compiled: "
            f"{obstacle or 'drop --no-verify'}, or pass --precision bf16, whatever it errs"
        )

    def compiled(given: CompileOptions, precision: Precision) -> CompiledModule:
        (found,) = compile_each(model, [Member(cpu, precision)], given, lambda _: on_progress)
        return found

    ranked: list[str] | None = None
    tuned: TuneReport | None = None
    for _ in range(1 + _ATTEMPTS):
        kept = None if ranked is None else frozenset(ranked)
        narrow = replace(options, plan=replace(options.plan, narrow=kept))
        try:
            found = compiled(narrow, Precision.BF16)
        except AccuracyError as wrong:
            _log.warning("in bfloat16 %s", wrong)
            break
        finally:
            options = options.after_tuning()
        tuned = tuned or found.tuned
        error = _error(found)
        if error <= limit:
            found.tuned = tuned
            return found
        found.close()
        if ranked is None:
            ranked = _ranked(found.decided, plan_only(model, cpu, _in_float32(options)))
        # An infinite error does not say how many layers to keep, so the share is a guess.
        share = (limit / error) ** 2 if math.isfinite(error) else _FEWER
        ranked = ranked[: int(len(ranked) * min(1.0, share) * _FEWER)]
        if not ranked:
            break
    plain = compiled(options, Precision.FP32)
    plain.tuned = tuned
    error = _error(plain)
    if error > limit:
        plain.close()
        missed = f"outputs err by {error:.2g} of their norm, more than --max-error {limit:g}"
        raise AccuracyError(f"in float32, too, {missed}: raise the limit")
    _log.warning("bfloat16 errs more than --max-error %g: compiled in float32", limit)
    return plain


def _error(compiled: CompiledModule) -> float:
    assert compiled.verification is not None
    return compiled.verification.norm_error


def _in_float32(options: CompileOptions) -> CompileOptions:
    """Return options that keep the names of operators in bfloat16, but compute all in float32."""
    given = options.computing(Precision.BF16)
    plan = replace(given.plan, narrow=frozenset(), max_weights=None)
    return replace(given, plan=plan, signatures=given.signatures[:1])


def _ranked(halves: Decisions, plain: Decisions) -> list[str]:
    """Return the names of operators that multiply bfloat16, by the time saved, most first."""
    seconds = {op.name: op.seconds for op in plain.ops}
    saved = {
        op.name: seconds.get(op.name, math.inf) - op.seconds
        for op in halves.ops
        if op.precision == Precision.BF16 and op.flops
    }
    return sorted(saved, key=lambda name: -saved[name])
