"""The check of an artifact whose calls choose extents of its inputs: at several sizes."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from multiprocessing.sharedctypes import RawValue
from typing import Final, TypeAlias

from neocpu.building.forked import run_in_child
from neocpu.compilation.accuracy_fallback import verifier_of
from neocpu.compilation.compiled_module import CompiledModule
from neocpu.foundation.errors import UnsupportedError
from neocpu.foundation.host import usable_cpus
from neocpu.foundation.progress import Progress
from neocpu.foundation.size_formulas import Size
from neocpu.foundation.tensor_spec import random_inputs
from neocpu.frontend.loaded_model import LoadedModel
from neocpu.pipeline import Pipeline
from neocpu.runtime.guarding import GUARD_VARIABLE
from neocpu.verification.reference.comparison import Verdict

SPECIAL_SIZES: Final = 6
"""The most sizes that are verified because some kernel has a special case there."""
RANDOM_SIZES: Final = 5
"""The number of sizes between the smallest and the largest at which outputs are verified."""

Load: TypeAlias = Callable[[tuple[int, ...]], LoadedModel]
"""A function that reads the model whose inputs have these extents where calls choose them."""


def verify_sizes(
    compiled: CompiledModule,
    pipeline: Pipeline,
    load: Load,
    checked: Sequence[tuple[int, ...]],
) -> tuple[Verdict, str]:
    """Return the worst verdict on outputs at several sizes, and a line that tells its error.

    Raises UnsupportedError: a kernel steps out of its tensors.
    """
    # Checks may take about as long as the compilation in sum.
    patience = sum(pipeline.clock.seconds.values()) / len(checked)
    worst: tuple[Verdict, str] | None = None
    with pipeline.clock.phase("verify", alone=False):
        _run_guarded(compiled, checked, patience)
        for number, own in enumerate(checked):
            pipeline.clock.report(Progress("verify", number, len(checked)))
            verdict, told = _verify_size(compiled, pipeline, load(own), own, patience)
            if (
                worst is None
                or not verdict.kept
                or verdict.found.norm_error > worst[0].found.norm_error
            ):
                worst = verdict, told
            if not verdict.kept:
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
    at = RawValue("i", 0)  # the position among the sizes, which the child sets

    def work() -> None:
        os.environ[GUARD_VARIABLE] = "1"
        os.close(2)  # a crash is reported by its signal
        begun = time.monotonic()
        with compiled.module(1) as module:
            for number, sizes in enumerate(checked):
                at.value = number
                shapes = form.shapes(sizes, form.inputs)
                own = [replace(s, shape=shape) for s, shape in zip(specs, shapes, strict=True)]
                module.run(random_inputs(own, seed=1))
                if time.monotonic() - begun > patience:
                    break

    if (lost := run_in_child(work)) is not None:
        what = "steps out of its tensors" if "signal" in lost else "cannot be checked"
        size = "x".join(map(str, checked[at.value]))
        raise UnsupportedError(
            f"a kernel for any size {what} at {size} ({lost}): please report this model, and give "
            "a single shape"
        )


def _verify_size(
    compiled: CompiledModule,
    pipeline: Pipeline,
    loaded: LoadedModel,
    sizes: tuple[int, ...],
    patience: float,
) -> tuple[Verdict, str]:
    verifier = verifier_of(loaded, pipeline.accuracy)
    with compiled.module(min(pipeline.threads, usable_cpus())) as module:
        outputs = module.run(verifier.inputs)
    verdict = verifier.judge(outputs, patience)
    shape = "x".join(map(str, sizes))
    return verdict, f"at size {shape}, {verifier.reason(verdict)}"


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
