"""The paper's ablation (Table 3): what each level of layout optimisation brings."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from neocpu.bench.engines.contenders import Contender
from neocpu.bench.engines.engine_session import Inputs
from neocpu.bench.engines.timed_compilation import compile_in_child
from neocpu.bench.race.latency import LatencyOptions, measure_latency
from neocpu.bench.race.latency_report import LatencyReport
from neocpu.foundation.progress import Progress, ProgressCallback, silent
from neocpu.planning.optimisation_levels import OptLevel


def measure_ablation(
    model: Path,
    inputs: Inputs,
    threads: int,
    databases: Sequence[str | os.PathLike[str]],
    folder: Path,
    options: LatencyOptions,
    on_progress: ProgressCallback = silent,
    *,
    optimised: Path | None = None,
) -> LatencyReport:
    """Compile a model at every level of ``--opt`` and measure the results against each other.

    Parameters
    ----------
    model : Path
        ONNX, with static shapes.
    folder : Path
        For the artifacts.
    optimised : Path, optional
        The artifact of the highest level, if it exists already.

    Returns
    -------
    LatencyReport
        Its labels are the levels, in the order of the paper: each adds to the one before.

    Raises
    ------
    NeoCPUError
        As `neocpu.compile`.
    """
    contenders = []
    for number, level in enumerate(OptLevel):
        on_progress(Progress("compile levels", number, len(OptLevel), str(level)))
        path = folder / f"{level}.so"
        if level is OptLevel.GLOBAL and optimised is not None:
            path = optimised
        else:
            # No comparison with the reference: the outputs are compared with each other below.
            compile_in_child(model, path, threads=threads, databases=databases, opt=str(level))
        contenders.append(Contender(str(level), "neocpu", path))
    return measure_latency(contenders, inputs, threads, options, on_progress=on_progress)
