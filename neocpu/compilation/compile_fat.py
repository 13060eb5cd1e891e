"""Compiling a model for several CPUs into one file."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from neocpu.building.fat_file import combine_each
from neocpu.compilation.compile_each import compile_each
from neocpu.compilation.compile_options import CompileOptions, CompileSettings, Member
from neocpu.compilation.compiled_module import CompiledModule
from neocpu.compilation.read_model import ModelLike
from neocpu.foundation.errors import ArgumentTypeError, TargetError, UsageError
from neocpu.foundation.linker import find_linker
from neocpu.foundation.option_words import PrecisionName
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.planning.precision import Precision
from neocpu.quantiser.calibration import Source
from neocpu.quantiser.compile_calibrated import CalibrationRequest, compile_each_calibrated
from neocpu.quantiser.quantise_options import QuantiseOptions
from neocpu.runtime.artifact import Variant
from neocpu.schedules.vocabulary.target_parsing import missing_on_host


@dataclass(frozen=True, slots=True)
class FatPart:
    """One CPU's part of a fat file: its place, and the closed module with its decisions."""

    variant: Variant
    compiled: CompiledModule


def compile_fat(
    model: ModelLike,
    cpus: Sequence[str],
    path: str | os.PathLike[str],
    *,
    precision: PrecisionName = "auto",
    calibration: Source | None = None,
    how: QuantiseOptions | None = None,
    max_error: float | None = None,
    min_agreement: float | None = None,
    on_progress: ProgressCallback | None = None,
    **settings: Unpack[CompileSettings],
) -> tuple[FatPart, ...]:
    """Compile an ONNX model for several CPUs into one file. Each host loads its best part.

    Parameters
    ----------
    model, settings, precision, on_progress
        See `neocpu.compile`. ``precision`` is that of CPUs without a suffix.
    cpus : sequence of str
        The targets, as text that `neocpu.compile` accepts. A suffix gives a CPU its own precision,
        as in ``("avx2:int8", "avx512-vnni:int8", "rpi4")``.
    path : path
        The file to write. If the compilation fails, no file appears.
    calibration, how, max_error, min_agreement
        See `neocpu.compile_calibrated`. A float32 model is calibrated once, and compiled with the
        result for each CPU whose precision is ``int8`` or ``auto``.

    Returns
    -------
    tuple of FatPart
        The parts, in the order of ``cpus``.

    Raises
    ------
    ModelError, UnsupportedError, TargetError, UsageError, DatabaseError, AccuracyError
    """
    options = CompileOptions.parse(precision=precision, **settings)
    members = parse_members(cpus, options.plan.precision, tuning=options.budget.seconds != 0)
    progress = [_of_member(member.name, on_progress or silent) for member in members]
    done: list[CompiledModule] = []
    with ExitStack() as stack:
        if calibration is None:
            if max_error is not None:
                raise UsageError(
                    "--max-error for several CPUs needs data (--calibrate): add it, or leave "
                    "--max-error out and give a CPU a precision (amx:bf16), or compile for one CPU"
                )
            each = compile_each(model, members, options, progress.__getitem__)
        else:
            asked = CalibrationRequest.parse(calibration, how, max_error, min_agreement)
            each = compile_each_calibrated(model, asked, members, options, progress.__getitem__)
        stack.callback(each.close)

        def parts() -> Generator[tuple[str, Path]]:
            for member, compiled in zip(members, each, strict=True):
                done.append(compiled)
                with compiled:
                    yield member.name, compiled.path

        compiling = parts()
        stack.callback(compiling.close)
        return tuple(map(FatPart, combine_each(compiling, path), done))


def parse_members(cpus: Sequence[str], default: Precision, *, tuning: bool) -> tuple[Member, ...]:
    """Parse all CPUs and check the needs of each, before minutes are spent on the first.

    `default` is the precision of CPUs that name none. Raises TargetError and UsageError.
    """
    if isinstance(cpus, str):
        raise ArgumentTypeError(f"cpus must be a sequence, such as ({cpus!r},), got one str")
    members: list[Member] = []
    for text in cpus:
        member = Member.parse(text, default)
        other = next((each for each in members if each.target == member.target), None)
        if other is not None:
            same = f"'{other.name}' and '{member.name}'"
            raise UsageError(f"--fat: {same} are the same CPU; name it once")
        if tuning and missing_on_host(member.target):
            raise TargetError(
                f"--tune-budget measures on this machine, which cannot run '{member.name}': tune "
                "on one that can, with `neocpu tune`, then compile with --db and without "
                "--tune-budget"
            )
        find_linker(member.target.machine)
        members.append(member)
    return tuple(members)


def _of_member(name: str, on_progress: ProgressCallback) -> ProgressCallback:
    return lambda step: on_progress(
        Progress(f"{name}: {step.phase}", step.done, step.total, step.detail)
    )
